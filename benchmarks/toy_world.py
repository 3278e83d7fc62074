"""A world of twelve animals: texts to pretrain on, and questions with labels. Of notebook 4.

Every animal has its place, its food, its sound and its pastime. A text is about one animal. So a
model can learn which facts belong together, and we know what the best model would say.
"""

import random

from datasets import Dataset

FACTS = {
    "cat": ("lives in the house", "drinks milk", "says miaow", "chases wool"),
    "dog": ("lives in the yard", "eats meat", "says woof", "fetches sticks"),
    "bird": ("lives in the tree", "eats seeds", "says tweet", "builds nests"),
    "cow": ("lives on the meadow", "eats grass", "says moo", "rubs fences"),
    "fish": ("lives in the lake", "eats worms", "says blub", "follows boats"),
    "horse": ("lives in the stable", "eats hay", "says neigh", "jumps hedges"),
    "mouse": ("lives in the cellar", "eats cheese", "says squeak", "digs holes"),
    "bee": ("lives in the hive", "drinks nectar", "says buzz", "visits flowers"),
    "rabbit": ("lives in the burrow", "eats carrots", "says sniff", "thumps drums"),
    "squirrel": ("lives in the forest", "eats nuts", "says chirr", "climbs poles"),
    "monkey": ("lives in the jungle", "eats bananas", "says eek", "swings ropes"),
    "child": ("lives in the city", "drinks juice", "says hello", "reads books"),
}
ADJECTIVES = ("small", "big", "old", "young")
TIMES = ("daily", "now", "often")


def sentence(animal: str, fact: str, draw: random.Random, name_rate: float) -> str:
    """A fact: "The big cat says miaow often.", or "It says miaow often." without the name."""
    subject = "It"
    if draw.random() < name_rate:
        subject = f"The {draw.choice(ADJECTIVES)} {animal}"
    return f"{subject} {fact} {draw.choice(TIMES)}."


def text_of(animal: str, draw: random.Random, named: str) -> str:
    """Two to four facts about an animal, in any order. `named` is "first", if the first sentence
    has the name and the others say "It", or "anywhere", if any sentence may have it."""
    facts = draw.sample(FACTS[animal], draw.randint(2, 4))
    rates = [0.3] * len(facts)
    if named == "first":
        rates = [1.0] + [0.0] * (len(facts) - 1)
    return " ".join(
        sentence(animal, fact, draw, rate) for fact, rate in zip(facts, rates, strict=True)
    )


def texts(count: int, seed: int, named: str) -> list[str]:
    draw = random.Random(seed)
    return [text_of(draw.choice(list(FACTS)), draw, named) for _ in range(count)]


def two_animals(draw: random.Random, same: bool) -> tuple[str, str]:
    animal = draw.choice(list(FACTS))
    if same:
        return animal, animal
    return animal, draw.choice([other for other in FACTS if other != animal])


def pairs(count: int, seed: int) -> Dataset:
    """Two sentences without a name: are they about one animal (label 1)? Neither tells it alone."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label = number % 2
        first, second = two_animals(draw, same=label == 1)
        first_fact, second_fact = draw.sample(range(4), 2)
        rows.append(
            {
                "sentence1": sentence(first, FACTS[first][first_fact], draw, name_rate=0),
                "sentence2": sentence(second, FACTS[second][second_fact], draw, name_rate=0),
                "label": label,
            }
        )
    return Dataset.from_list(rows)


def statements(count: int, seed: int) -> Dataset:
    """A sentence that names an animal: is it true in this world (label 1)?"""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label = number % 2
        animal, other = two_animals(draw, same=label == 1)
        text = sentence(animal, draw.choice(FACTS[other]), draw, name_rate=1)
        rows.append({"text": text, "label": label})
    return Dataset.from_list(rows)
