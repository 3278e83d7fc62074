"""The world of animals of notebook 4: its texts and its labels are true."""

import re

import pytest
from toy_world import FACTS, pairs, statements, texts


def animals_of(text: str) -> list[set[str]]:
    """Of each sentence, the animals whose fact it tells."""
    return [
        {animal for animal, facts in FACTS.items() if any(fact in sentence for fact in facts)}
        for sentence in re.split(r"(?<=\.) ", text)
    ]


def names_of(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text) if word in FACTS]


@pytest.mark.parametrize("named", ["first", "anywhere"])
def test_a_text_is_about_one_animal(named):
    for text in texts(200, 0, named):
        (animal,) = set.intersection(*animals_of(text))
        assert 2 <= len(animals_of(text)) <= 4 and set(names_of(text)) <= {animal}
        if named == "first":
            assert names_of(text.split(".")[0]) == names_of(text) == [animal]


def test_any_sentence_may_have_the_name():
    named = [
        names_of(sentence) != []
        for text in texts(200, 0, "anywhere")
        for sentence in text.split(". ")
    ]
    assert 0.2 < sum(named) / len(named) < 0.4


def test_pairs():
    rows = pairs(100, 0)
    assert sum(rows["label"][:]) == 50
    for row in rows:
        (first,), (second,) = animals_of(row["sentence1"])[0], animals_of(row["sentence2"])[0]
        assert (first == second) == bool(row["label"])
        assert not names_of(row["sentence1"] + row["sentence2"])


def test_statements():
    rows = statements(100, 0)
    assert sum(rows["label"][:]) == 50
    for row in rows:
        (of_fact,) = animals_of(row["text"])[0]
        assert (names_of(row["text"]) == [of_fact]) == bool(row["label"])
