"""`minibert probe wsd`: which sense a word has, told from the nearest of its labelled uses.

Sense vectors are means over labelled uses, and the nearest one by cosine wins (1-NN: Peters et al. 2018, section 5.3;
Loureiro and Jorge 2019). Beside it stand a bag of words with logistic regression, which sees no vectors at all, and the
best setting that the validation file chooses.

Micro accuracy is the share of rows that are right; macro accuracy is the mean over words of the accuracy on each.
(Loureiro et al. 2021, who made CoarseWSD-20, call macro the mean over a word's senses of F1: another figure.)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.base import ClassifierMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm.auto import tqdm

from ..arguments.probes import ProbeArguments, WsdArguments
from .data import LabelledUse, check_positive, read_uses, save, table
from .vectors import Layers, load_model, max_length, parse_layers, span_vectors, unit, uses_in_words

VECTORS = ("word", "sentence", "word + sentence")
SCALINGS = ("raw", "z-scored", "centred by word", "z-scored by word")
NEIGHBOURS = (0, 1, 5, 10)  # 0: sense means

# Words that the plot shows at most.
SHOWN = 60

# With as many dimensions as labelled uses, logistic regression needs to be held back.
PROBE_C = 0.01


@dataclass(frozen=True)
class Setting:
    """One way to tell senses apart.

    Args:
        layers: which states make a vector.
        vector: the "word"'s, the mean of the "sentence", or both at unit length side by side ("word + sentence").
        scaling: "raw"; "z-scored" with means and deviations of all training uses; "centred by word" or "z-scored by
            word" with those of the lemma's training uses.
        neighbours: k of the nearest uses vote; 0 is the nearest of the senses' mean vectors.
    """

    layers: Layers
    vector: str = "word"
    scaling: str = "raw"
    neighbours: int = 0

    def __str__(self) -> str:
        method = f"{self.neighbours} nearest" if self.neighbours else "sense means"
        return ", ".join([method, self.vector, self.layers.name, self.scaling])


class Split:
    """Labelled uses as columns: `lemmas`, `senses` and `texts` [n], and `states` [n, 2 (word, sentence), L + 1, d]; and
    `rows`, those of every lemma."""

    def __init__(self, uses: Sequence[LabelledUse]):
        self.uses = uses
        self.lemmas = np.array([use.lemma for use in uses], dtype=object)
        self.senses = np.array([use.sense for use in uses], dtype=object)
        self.texts = np.array([" ".join(use.tokens) for use in uses], dtype=object)
        self.states = np.empty(0)
        rows = defaultdict(list)
        for row, use in enumerate(uses):
            rows[use.lemma].append(row)
        self.rows = {lemma: np.array(rows[lemma]) for lemma in sorted(rows)}

    def vectors(self, setting: Setting) -> np.ndarray:
        """[n, d], or [n, 2 d] of words and sentences."""
        if setting.vector == "word + sentence":
            return unit(setting.layers(self.states)).reshape(len(self.states), -1)
        return setting.layers(self.states[:, VECTORS.index(setting.vector)])


class MostFrequentSense(ClassifierMixin):
    """The most frequent sense in training, the first in the alphabet of equals."""

    def fit(self, x: Any, senses: np.ndarray) -> MostFrequentSense:
        counts = Counter(senses)
        self.sense = min(counts, key=lambda sense: (-counts[sense], sense))
        return self

    def predict(self, x: Any) -> np.ndarray:
        return np.full(len(x), self.sense, dtype=object)


def nearest(neighbours: int, x: np.ndarray, senses: np.ndarray) -> KNeighborsClassifier:
    """A classifier by the cosine to k of the uses `x` [n, d], or to the means of their senses (0)."""
    if neighbours == 0:
        names = np.unique(senses)
        x, senses = np.stack([x[senses == name].mean(0) for name in names]), names
    return KNeighborsClassifier(min(neighbours or 1, len(x)), metric="cosine", algorithm="brute").fit(x, senses)


def predict(known: Split, split: Split, setting: Setting) -> np.ndarray:
    """The senses [n] that a setting finds for the uses of `split`, from those of `known`."""
    x_known, x = known.vectors(setting), split.vectors(setting)
    if setting.scaling == "z-scored":
        scaler = StandardScaler().fit(x_known)
        x_known, x = scaler.transform(x_known), scaler.transform(x)

    def fit_and_predict(x_known, senses, x):
        if setting.scaling.endswith("by word"):
            scaler = StandardScaler(with_std=setting.scaling.startswith("z")).fit(x_known)
            x_known, x = scaler.transform(x_known), scaler.transform(x)
        return nearest(setting.neighbours, x_known, senses).predict(x)

    return by_word(known, split, x_known, x, fit_and_predict)


def by_word(known: Split, split: Split, x_known: np.ndarray, x: np.ndarray, fit_and_predict) -> np.ndarray:
    """Every word by a classifier of its own. A lemma without training uses gets the most frequent sense of all, a lemma
    with one sense that sense."""
    predicted = MostFrequentSense().fit(None, known.senses).predict(x)
    for lemma, of_split in tqdm(split.rows.items(), desc="Words", leave=False, delay=2):
        of_known = known.rows.get(lemma, [])
        senses = known.senses[of_known]
        if len(set(senses)) == 1:
            predicted[of_split] = senses[0]
        elif len(senses):
            predicted[of_split] = fit_and_predict(x_known[of_known], senses, x[of_split])
    return predicted


def with_classifier(make) -> Any:
    """`fit_and_predict` of `by_word` from a constructor of a scikit-learn classifier."""
    return lambda x_known, senses, x: make().fit(x_known, senses).predict(x)


def bag_of_words(x_known: np.ndarray, senses: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`fit_and_predict` of `by_word`: TF-IDF of the sentences' words, logarithmic counts, and logistic regression.
    Words of one character are left out, unless there are no others (Chinese may stand character by character)."""
    words = r"\b\w\w+\b"
    if not any(re.search(words, text) for text in x_known):
        words = r"\S+"
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=words)
    return make_pipeline(vectorizer, LogisticRegression(C=10, max_iter=1000)).fit(x_known, senses).predict(x)


def linear_probe():
    """Logistic regression over z-scored vectors."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=PROBE_C, max_iter=1000))


def accuracy(split: Split, predicted: np.ndarray) -> dict[str, Any]:
    """Micro and macro accuracy (see the module's docstring), and that of every word."""
    right = predicted == split.senses
    words = {lemma: right[rows].mean() for lemma, rows in split.rows.items()}
    return {"micro": right.mean(), "macro": np.mean(list(words.values())), "words": words}


def difference(split: Split, predicted: np.ndarray, baseline: np.ndarray) -> tuple[float, float]:
    """Micro accuracy above the baseline's, and half of its 95 % interval (the rows are paired)."""
    above = (predicted == split.senses).astype(float) - (baseline == split.senses)
    return above.mean(), 1.96 * above.std() / np.sqrt(len(above))


def settings(num_layers: int) -> list[Setting]:
    """All that is tried on the validation file: every state but the embeddings, and the means of the last ones."""
    names = [str(state) for state in range(1, num_layers + 1)] + [f"{s}-{num_layers}" for s in range(1, num_layers)]
    layers = [parse_layers(name, num_layers) for name in names]
    return [Setting(*choice) for choice in product(layers, VECTORS, SCALINGS, NEIGHBOURS)]


def choose(known: Split, validation: Split, num_layers: int) -> tuple[dict[str, Setting], dict[str, Any]]:
    """The best settings by micro accuracy on the validation file (of equals by macro), of three families; and the
    accuracies of all that were tried."""
    tried = {}
    for setting in tqdm(settings(num_layers), desc="Settings", leave=False):
        found = accuracy(validation, predict(known, validation, setting))
        tried[setting] = (found["micro"], found["macro"])
    families = {
        "best 1-NN of the word": [s for s in tried if s.vector == "word" and s.neighbours < 2],
        "best k-NN of the word": [s for s in tried if s.vector == "word" and s.neighbours > 1],
        "best of all": list(tried),
    }
    return {name: max(family, key=tried.get) for name, family in families.items()}, tried


def wsd(probe: ProbeArguments, arguments: WsdArguments) -> None:
    """Measure; print a table; write `results.json` and `wsd.png`.

    Raises:
        ValueError: bad arguments, files or rows, or no MiniBERT at the path, before any work.
    """
    check_positive(probe, "batch_tokens")
    check_positive(arguments)
    if not arguments.train or not arguments.test:
        missing = "train" if not arguments.train else "test"
        raise ValueError(f"{missing}: no file given; legal: a file with the columns tokens, target_index, lemma, sense")
    known = Split(read_uses(arguments.train, "train"))
    files = ([arguments.validation] if arguments.validation else []) + arguments.test
    stems = [Path(file).stem for file in files]
    names = stems if len({"train", *stems}) > len(stems) else files
    splits = {
        name: Split(read_uses(file, "validation" if file == arguments.validation else "test"))
        for name, file in zip(names, files)
    }
    validation = splits[names[0]] if arguments.validation else None
    measured = names[1:] if arguments.validation else names
    model, tokenizer = load_model(probe.model)
    layers = [parse_layers(name, model.config.num_hidden_layers) for name in arguments.layers]
    limit = max_length(model, tokenizer)
    encoded = {  # of all files before the first is run, since a word may be left without tokens
        split: uses_in_words(
            tokenizer,
            [use.tokens for use in split.uses],
            [use.target_index for use in split.uses],
            limit,
            [use.name for use in split.uses],
        )
        for split in (known, *splits.values())
    }

    for split, uses in encoded.items():
        spans = [[use.word(arguments.subwords), use.sentence] for use in uses]
        split.states = span_vectors(model, [use.input_ids for use in uses], spans, probe.batch_tokens, "Word vectors")

    methods: dict[str, dict[str, np.ndarray]] = {}

    def add(name: str, predict_split) -> None:
        methods[name] = {split_name: predict_split(split) for split_name, split in splits.items()}

    def with_features(features, fit_and_predict):
        return lambda split: by_word(known, split, features(known), features(split), fit_and_predict)

    add("most frequent sense", with_features(lambda split: split.texts, with_classifier(MostFrequentSense)))
    add("bag of words", with_features(lambda split: split.texts, bag_of_words))
    for chosen in layers:
        setting = Setting(chosen)
        add(f"sense means, {chosen.name}", lambda split, setting=setting: predict(known, split, setting))
        vectors = with_features(lambda split, setting=setting: split.vectors(setting), with_classifier(linear_probe))
        add(f"logistic regression, {chosen.name}", vectors)
    best, tried = choose(known, validation, model.config.num_hidden_layers) if validation else ({}, {})
    for name, setting in best.items():
        add(name, lambda split, setting=setting: predict(known, split, setting))

    scores = {
        name: {split_name: accuracy(splits[split_name], predicted) for split_name, predicted in predictions.items()}
        for name, predictions in methods.items()
    }
    against = {
        name: {
            split_name: difference(splits[split_name], predictions[split_name], methods["bag of words"][split_name])
            for split_name in measured
        }
        for name, predictions in methods.items()
    }
    _print(splits, measured, scores, against, best, known)
    results = {
        "model": probe.model,
        "arguments": asdict(arguments),
        "rows": {"train": len(known.uses), **{name: len(split.uses) for name, split in splits.items()}},
        "accuracy": scores,
        "above_bag_of_words": {
            name: {split: {"difference": above, "half_interval": half} for split, (above, half) in row.items()}
            for name, row in against.items()
        },
        "best": {name: asdict(setting) for name, setting in best.items()},
        "tried": [{"setting": str(setting), "micro": m, "macro": n} for setting, (m, n) in tried.items()],
    }
    figure = _draw(measured[0], splits[measured[0]], scores, tried)
    save(arguments.output_dir, results, wsd=figure)


def _print(splits, measured, scores, against, best, known) -> None:
    header = ["method"]
    for name in splits:
        header += [f"{name} micro", "macro", *(["above bag of words"] if name in measured else [])]
    lines = [header]
    for method, found in scores.items():
        line = [method]
        for name in splits:
            line += [float(found[name]["micro"]), float(found[name]["macro"])]
            if name in measured:
                above, half = against[method][name]
                line.append(f"{above:+.3f} ± {half:.3f}" if half else "")
        lines.append(line)
    print(table(lines))
    print("\nmicro: share of rows; macro: mean over words; ±: 95 % interval of the paired difference.")
    for name, setting in best.items():
        print(f"{name}, chosen by the validation file: {setting}")
    words = sorted({lemma for name in measured for lemma in splits[name].lemmas})
    name = measured[0]
    print(f"\nAccuracy on {name} by word:")
    rows = [["word", "rows", *scores]]
    for word in words:
        if word in splits[name].rows:
            count = len(splits[name].rows[word])
            rows.append([word, count, *(float(found[name]["words"][word]) for found in scores.values())])
    print(table(rows))
    for name, split in splits.items():
        unseen = ~np.isin(split.lemmas, known.lemmas)
        if unseen.any():
            print(f"{name}: {unseen.sum()} rows of lemmas without training uses got the most frequent sense of all.")
        new = {*zip(split.lemmas, split.senses)} - {*zip(known.lemmas, known.senses)}
        if new:
            print(f"{name}: {len(new)} senses have no training use: {', '.join(sorted(sense for _, sense in new)[:8])}")


def _draw(name: str, split: Split, scores: dict[str, Any], tried: dict[Setting, tuple[float, float]]) -> Figure:
    words = sorted(split.rows, key=lambda word: -len(split.rows[word]))[:SHOWN]
    title = "By word" if len(words) == len(split.rows) else f"By word, the {SHOWN} with most rows"
    words.sort(key=scores["bag of words"][name]["words"].get)
    figure = Figure(figsize=(13, max(4.5, 1.5 + 0.25 * len(words))), layout="constrained")
    panels = figure.subplots(1, 2 if tried else 1, squeeze=False)[0]
    for (method, found), marker in zip(scores.items(), "xosD^v*P<>hd" * 2):
        values = [100 * found[name]["words"][word] for word in words]
        panels[0].plot(values, range(len(words)), marker, markersize=5, alpha=0.8, label=method)
    panels[0].set(yticks=range(len(words)), yticklabels=words, xlabel=f"accuracy on {name} (%)", title=title)
    panels[0].grid(alpha=0.3)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
    if tried:
        for vector, color in zip(VECTORS[:2], ("C0", "C1")):
            for scaling, style in zip(SCALINGS[:2], ("-", "--")):
                chosen = {
                    setting.layers.first: micro
                    for setting, (micro, _) in tried.items()
                    if setting.layers.first == setting.layers.last
                    and (setting.vector, setting.scaling, setting.neighbours) == (vector, scaling, 0)
                }
                panels[1].plot(*zip(*((s, 100 * m) for s, m in chosen.items())), color=color, linestyle=style,
                               marker="o", label=f"{vector}, {scaling}")  # fmt: skip
        panels[1].set(xlabel="state (layer)", ylabel="micro accuracy on the validation file (%)", title="Sense means")
        panels[1].grid(alpha=0.3)
        panels[1].legend(fontsize=8)
    return figure
