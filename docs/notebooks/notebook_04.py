"""Notebook 4, all that is none of its ideas: the checks of its exercises (which give the answers
away), the reading of its files, and three pictures.
"""

import json
import random
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from course import draw_seeds, exercise, interval, verdict
from scipy.stats import t as student


@exercise
def check_interval(function):
    values = np.array([0.1, 0.4, 0.4, 0.7])
    mean, half = function(values)
    if abs(mean - values.mean()) > 1e-9 and abs((mean + half) / 2 - values.mean()) < 1e-9:
        return "these are the two ends: return the mean, and half of the interval"
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
        mean, half = function(values)
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
        (5.0, 1.0, -1.0, 4.0): 6 / 16,
        (10.0, 2.0, 2.0, -3.0): 8 / 16,
        (0.5, 0.5, 0.5): 2 / 8,
        (-0.1, -0.2, -0.3): 2 / 8,
        (0.3, -0.1): 4 / 4,
    }
    first_case = next(iter(cases))
    result = share(np.array(first_case))
    if result > 1:
        return f"a share is at most 1, and not {result:g}: divide by the number of combinations"
    if abs(result - 3 / 16) < 1e-9 or abs(result - 5 / 16) < 1e-9:
        return "a mean below 0 may be as far from 0: take its absolute value"
    if abs(result - 6 / 16) < 1e-9:
        return "at least as far: a mean that is as far counts, too"
    by_sizes = share(np.array([5.0, 1.0, -1.0, 4.0]))
    if abs(by_sizes - 10 / 16) < 1e-9:
        return "this counts signs only: the mean depends on how large the differences are, too"
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
    module(x).square().sum().backward()
    gradient = layer.weight.grad
    if gradient is None:
        return "the layer gets no gradient: is it a copy?"
    layer.weight.grad = None
    layer(layer(layer(x))).square().sum().backward()
    if not torch.allclose(gradient, layer.weight.grad):
        return "the output is right, but the gradient is not the sum over all passes"


def planned_check(train, seeds_seen):
    """The check of exercise 4: a comparison that was planned, with pairs of the same seed.

    One pair is trained again.

    Args:
        train: a function of a seed and a change that returns a held-out loss.
        seeds_seen: seeds whose losses the notebook has printed.
    """

    def judge(answer):
        change, seeds, differences, answered_verdict = answer
        if not change:
            return "the change is empty: both models are the same"
        if len(set(seeds)) < len(seeds):
            return "a seed that counts twice tells nothing new: take different seeds"
        if len(seeds) < 5:
            return f"{len(seeds)} seeds are few: take 5 or more"
        if not set(seeds).isdisjoint(seeds_seen):
            return f"take new seeds: the losses of {sorted(seeds_seen)} are printed above"
        if len(differences) != len(seeds):
            return f"{len(seeds)} seeds have {len(seeds)} differences, and not {len(differences)}"
        difference = train(seeds[-1], **change) - train(seeds[-1])
        if difference == 0:
            return "the change changes nothing: does BERT have this value already?"
        if abs(differences[-1] + difference) < 1e-4 < abs(difference):
            return "take the loss with the change minus the loss without it"
        if abs(differences[-1] - difference) > 1e-4:
            return (
                f"at seed {seeds[-1]} the difference is {difference:+.3f}, and not"
                f" {differences[-1]:+.3f}: do both models of a pair have the same seed?"
            )
        right_verdict = verdict(*interval(differences))
        if answered_verdict != right_verdict:
            return f"by the interval of exercise 1 it is {right_verdict!r}"

    return exercise(judge)


def rule_check(toy_world, make_pairs):
    """The check of exercise 6: a rule that tells next from random without reading a fact.

    It is tried on texts without facts, too.
    """

    def judge(rule):
        texts = toy_world.texts(2_000, seed=5, named="first")
        share = share_of_pairs(rule, make_pairs, texts)
        if share < 0.35:
            return f"right in {share:.0%} of the pairs: the opposite of your rule is better"
        if share < 0.7:
            return (
                f"right in {share:.0%} of the pairs: read some random ones. What gives them away?"
            )
        share_without = share_of_pairs(rule, make_pairs, strike_facts(toy_world, texts))
        if share_without < 0.7:
            return (
                f"right in {share:.0%} of the pairs, but in {share_without:.0%} where each fact is"
                ' replaced by "does this": the rule should read no fact'
            )

    return exercise(judge)


def kind_check(toy_world, make_pairs):
    """The check of exercise 7: a rule that tells next from random where any sentence may have the
    name, and does not know which facts belong together.

    It is tried on pairs of a world, too, in which the animals have changed their facts.
    """

    def judge(rule):
        texts = toy_world.texts(2_000, seed=5, named="anywhere")
        share = share_of_pairs(rule, make_pairs, texts)
        if share < 0.35:
            return f"right in {share:.0%} of the pairs: the opposite of your rule is better"
        if share < 0.72:  # a rule of verbs reaches 0.70: it misses pastimes
            return (
                f"right in {share:.0%} of the pairs: a text never has two places. What else has it"
                " only once?"
            )
        share_elsewhere = share_of_pairs(rule, make_pairs, exchange_animals(toy_world, texts))
        if share_elsewhere < 0.72:
            return (
                f"right in {share:.0%} of the pairs, but in {share_elsewhere:.0%} where the animals"
                " have other facts: the rule should not know which facts belong together"
            )

    return exercise(judge)


def share_of_pairs(rule, make_pairs, texts):
    """In which share of the pairs of some texts a rule is right."""
    pairs = make_pairs(texts, random.Random(7))
    right = [bool(rule(first, second)) == is_next for first, second, is_next in pairs]
    return np.mean(right)


def strike_facts(toy_world, texts):
    """The texts with "does this" for each fact: "The old cat does this now. It does this often."."""
    struck = []
    for text in texts:
        for facts in toy_world.FACTS.values():
            for fact in facts:
                text = text.replace(fact, "does this")
        struck.append(text)
    return struck


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
    return sorted(file["runs"], key=lambda run: run.get("seed", 0))


def curves_by_name(runs):
    """{name: [the curve of each seed]}: rows of step, tokens, seconds and held-out loss."""
    curves = {}
    for run in runs:
        curves.setdefault(run["name"], []).append(np.array(run["curve"]))
    return curves


def first_below(curve, loss):
    """At how many thousand tokens a falling curve first goes below a loss, as text.

    Read on a straight line between two measurements; "never", and "before 102" if the first
    measurement is below already.
    """
    tokens = curve[:, 1] / 1000
    losses = curve[:, 3]
    if losses[0] < loss:
        return f"before {tokens[0]:.0f}"
    if losses[-1] >= loss:
        return "never"
    return f"{np.interp(-loss, -losses, tokens):.0f}"


def draw_curves(curves, colors, references, amount):
    """Held-out losses by tokens, a line for each seed.

    Args:
        curves: the return of `curves_by_name`.
        colors: of the names that stand out; the others are grey.
        references: {name: loss} of what has learned nothing by gradients, as horizontal lines.
        amount: the tokens at which the curves are compared, as a vertical line.
    """
    figure, axes = plt.subplots(figsize=(6.8, 3.1), dpi=80)
    grey_names = [name for name in curves if name not in colors]
    for name, of_seeds in curves.items():
        style = {"color": colors.get(name, "0.7"), "linewidth": 1, "zorder": 3}
        label = name
        if name in grey_names:
            style["zorder"] = 2  # behind the others
            label = None
        for curve in of_seeds:
            axes.plot(curve[:, 1] / 1000, curve[:, 3], label=label, **style)
            label = None
    axes.plot([], [], color="0.7", label=",\n".join(grey_names))
    for (name, loss), style in zip(references.items(), ("--", ":"), strict=True):
        axes.axhline(loss, color="black", linewidth=1, linestyle=style, label=name)
    axes.axvline(amount / 1000, color="black", linewidth=0.5)
    axes.set(xlabel="thousand tokens (compared at the vertical line)", ylabel="held-out loss")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_rounds(differences_by_round, comparisons_by_round, names):
    """A panel for each round: the differences of each name by seed, with two bars of 95 %.

    The broad bar is the interval of a comparison that stands alone, the thin one is widened for
    the comparisons of the round. A row is red if the thin one does not contain 0, and else grey.
    Each panel has a scale of its own.
    """
    figure, panels = plt.subplots(1, len(differences_by_round), figsize=(7.5, 3.6), sharey=True)
    for panel, (title, differences) in zip(panels, differences_by_round.items(), strict=True):
        for row, name in enumerate(names):
            if name not in differences:
                continue
            values = differences[name]
            mean, alone = interval(values)
            _, widened = interval(values, comparisons_by_round[title])
            color = "C3"
            if abs(mean) <= widened:
                color = "0.45"
            panel.errorbar(mean, row, xerr=widened, color=color, capsize=3, linewidth=1)
            panel.errorbar(mean, row, xerr=alone, color=color, linewidth=5, alpha=0.35)
            panel.plot(values, [row] * len(values), "o", color=color, markersize=3)
        panel.axvline(0, color="0.5", linewidth=1)
        panel.set(title=title, xlabel="difference of held-out losses")
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
