"""Notebook 4, all that is none of its ideas: the checks of its exercises (which give the answers
away), the reading of its files, and two pictures.
"""

import json
import random
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from course import draw_seeds, exercise
from scipy.stats import t as student


@exercise
def check_interval(interval):
    values = np.array([0.1, 0.4, 0.4, 0.7])
    _, half = interval(values)
    deviation = values.std(ddof=1)
    quantile = student.ppf(0.975, 3)
    wrong_halves = {
        quantile * values.std() / 2: "s divides by n − 1: `values.std(ddof=1)`",
        quantile * deviation: "this is without √n",
        1.96 * deviation / 2: "1.96 is of the normal distribution: take Student's t",
        student.ppf(0.95, 3) * deviation / 2: "95 % leaves 2.5 % on each side: take t at 0.975",
        student.ppf(0.975, 4) * deviation / 2: "Student's t has n − 1 degrees of freedom",
        2 * quantile * deviation / 2: "this is the whole interval: return half of it",
    }
    for wrong_half, problem in wrong_halves.items():
        if abs(half - wrong_half) < 1e-6:
            return problem
    for values in (np.array([-1.0, -2.0]), np.array([3.0, 5.0, 4.0, 9.0, 1.0])):
        mean, half = interval(values)
        count = len(values)
        right_half = student.ppf(0.975, count - 1) * values.std(ddof=1) / count**0.5
        if abs(mean - values.mean()) > 1e-9:
            return f"{values} have the mean {values.mean():.3f}, and not {mean:.3f}"
        if abs(half - right_half) > 1e-6:
            return f"of {values} half of the interval is {right_half:.3f}, and not {half:.3f}"


@exercise
def check_signs(share):
    cases = {
        (1.0, 2.0, -3.0, 4.0): 10 / 16,
        (-1.0, -2.0, 3.0, -4.0): 10 / 16,
        (0.5, 0.5, 0.5): 2 / 8,
        (-0.1, -0.2, -0.3): 2 / 8,
        (0.3, -0.1): 4 / 4,
    }
    first_case = next(iter(cases))
    result = share(np.array(first_case))
    if abs(result - 3 / 16) < 1e-9 or abs(result - 5 / 16) < 1e-9:
        return "a mean below 0 may be as far from 0: take its absolute value"
    if abs(result - 6 / 16) < 1e-9:
        return "at least as far: a mean that is as far counts, too"
    for differences, right in cases.items():
        result = share(np.array(differences))
        if abs(result - right) > 1e-9:
            return f"for {differences} it is {right}, and not {result:.4f}"


@exercise
def check_chance(chance):
    result = chance(18)
    if abs(result - 100 * (1 - 0.95**18)) < 1:
        return "in percent this is right; return a number between 0 and 1"
    if abs(result - 18 * 0.05) < 1e-9:
        return "18 · 0.05 is how many wrong intervals one expects; the question is whether one is"
    if abs(result - 0.95**18) < 1e-6:
        return "this is the probability that none is wrong"
    for count in (1, 2, 5, 18):
        right = 1 - 0.95**count
        if abs(chance(count) - right) > 1e-6:
            return (
                f"for {count} it is not {chance(count):.4f}: how likely is it that all are right?"
            )


@exercise
def check_shared(shared_class):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    module = shared_class(layer, 3)
    x = torch.randn(2, 4)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    if parameters == 0:
        return "it has no parameters: keep the layer as an attribute, so that the module finds it"
    if parameters != 20:
        return f"it has {parameters} parameters, and the layer 20: are these copies?"
    if not torch.allclose(module(x), layer(layer(layer(x)))):
        return "its output is not layer(layer(layer(x)))"
    for times in (1, 2, 5):
        expected = x
        for _ in range(times):
            expected = layer(expected)
        if not torch.allclose(shared_class(layer, times)(x), expected):
            return f"right for 3 passes, but not for {times}"
    module(x).sum().backward()
    if layer.weight.grad is None:
        return "the layer gets no gradient: is it a copy?"


def rule_check(toy_world, make_pairs):
    """The check of exercise 5: a rule that tells next from random without knowing a fact.

    It is tried on pairs of a second world, too, in which the animals have changed their facts. A
    rule that knows facts fails there.
    """

    def accuracy(rule, texts):
        pairs = make_pairs(texts, random.Random(7))
        right = [bool(rule(first, second)) == is_next for first, second, is_next in pairs]
        return np.mean(right)

    def judge(rule):
        texts = toy_world.texts(2_000, seed=5, named="first")
        share = accuracy(rule, texts)
        if share < 0.35:
            return f"right in {share:.0%} of the pairs: the opposite of your rule is better"
        if share < 0.7:
            return (
                f"right in {share:.0%} of the pairs: read some random ones. What gives them away?"
            )
        share_elsewhere = accuracy(rule, exchange_animals(toy_world, texts))
        if share_elsewhere < 0.7:
            return (
                f"right in {share:.0%} of the pairs, but in {share_elsewhere:.0%} where the animals"
                " have other facts: the rule should know no fact"
            )

    return exercise(judge)


def exchange_animals(toy_world, texts):
    """The texts of a world in which facts belong to other animals.

    The kinds of facts (place, food, sound, pastime) move by different numbers of animals, so that
    no two facts of one animal stay together.
    """
    animals = list(toy_world.FACTS)
    new_facts = {}
    for number, animal in enumerate(animals):
        for fact_type, fact in enumerate(toy_world.FACTS[animal]):
            other = animals[(number + 3 * fact_type) % len(animals)]
            new_facts[fact] = toy_world.FACTS[other][fact_type]
    exchanged = []
    for text in texts:
        sentences = []
        for sentence in text.split(". "):
            fact = next(fact for fact in new_facts if fact in sentence)
            sentences.append(sentence.replace(fact, new_facts[fact]))
        exchanged.append(". ".join(sentences))
    return exchanged


def read_runs(name):
    """The runs of a file beside the notebook, in the order of their seeds.

    Prints the command that wrote it, the day and the machine.
    """
    file = json.loads(Path(name).read_text())
    print(file["command"], "|", file["date"], "|", file["machine"]["device"])
    return sorted(file["runs"], key=lambda run: run["seed"])


def curves_by_name(runs):
    """{name: [the curve of each seed]}: rows of step, tokens, seconds and held-out loss."""
    curves = {}
    for run in runs:
        curves.setdefault(run["name"], []).append(np.array(run["curve"]))
    return curves


def draw_changes(losses_by_quantity, names):
    """A panel for each quantity: the held-out losses of each name, one below the other."""
    figure, panels = plt.subplots(1, len(losses_by_quantity), figsize=(7.5, 3.4), sharey=True)
    for panel, (quantity, losses) in zip(panels, losses_by_quantity.items(), strict=True):
        for row, name in enumerate(names):
            draw_seeds(panel, row, losses[name], horizontal=True)
        panel.set(xlabel=f"held-out loss at equal {quantity}")
        panel.grid(alpha=0.3, axis="x")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    return figure


def draw_probes(accuracies):
    """A panel for each task: accuracies of probes, {task: {name of the model: percent by seed}}."""
    figure, panels = plt.subplots(1, len(accuracies), figsize=(7.5, 3.2), sharey=True)
    for panel, (task, by_model) in zip(panels, accuracies.items(), strict=True):
        for column, values in enumerate(by_model.values()):
            draw_seeds(panel, column, values)
        panel.axhline(50, color="0.6", linestyle=":")
        panel.set_xticks(range(len(by_model)), by_model, rotation=30)
        panel.set(title=task, ylim=(40, 115), yticks=range(40, 101, 10))
    panels[0].set_ylabel("accuracy of the probe, %")
    return figure
