"""Which sense a word has, told from the nearest of its labelled uses.

Sense vectors are means over labelled uses, and the nearest one by cosine wins (1-NN: Peters et al. 2018, section 5.3;
Loureiro and Jorge 2019). Beside it stand a bag of words with logistic regression, which sees no vectors at all, and the
best setting that the validation file chooses. Micro accuracy is the share of rows that are right, macro the mean over
words of the accuracy on each (not, as of Loureiro et al. 2021, who made CoarseWSD-20, over a word's senses of F1).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pictures import plot_wsd
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm.auto import tqdm
from uses import Probe, Use, option, parse, read_uses, save_results
from vectors import LAYERS_HELP, SUBWORDS_HELP, Layers, encode_uses, load_model, parse_layers, unit, word_vectors

from minibert.training.report import format_table

VECTORS = ("word", "sentence", "word + sentence")
SCALINGS = ("raw", "z-scored", "centred by word", "z-scored by word")
NEIGHBOURS = (0, 1, 5, 10)  # 0: sense means
DRAWN = set(product(VECTORS[:2], SCALINGS[:2]))  # by state, as sense means
PROBE_C = 0.01  # with as many dimensions as labelled uses, logistic regression needs to be held back
MOST_FREQUENT = DummyClassifier(strategy="most_frequent")  # the first in the alphabet of equals

Fit = Callable[[np.ndarray, np.ndarray], Any]  # features [n, …] and senses [n] to a classifier with `predict`


@dataclass(frozen=True)
class Setting:
    """One way to tell senses apart."""

    layers: Layers  # which states make a vector
    vector: str = "word"  # one of VECTORS; of "word + sentence" each has unit length, side by side
    scaling: str = "raw"  # or with means (and deviations) of all training uses, or of the lemma's ("by word")
    neighbours: int = 0  # k of the nearest uses vote; 0 is the nearest of the senses' mean vectors

    def __str__(self) -> str:
        method = f"{self.neighbours} nearest" if self.neighbours else "sense means"
        return ", ".join([method, self.vector, self.layers.name, self.scaling])

    def fit(self, x: np.ndarray, senses: np.ndarray) -> Pipeline:
        """A classifier of one lemma, by the cosine to k of the uses `x` [n, d] or to the means of their senses."""
        steps = []
        if self.scaling.endswith("by word"):
            steps.append(StandardScaler(with_std=self.scaling.startswith("z")).fit(x))
            x = steps[0].transform(x)
        if self.neighbours == 0:
            names = np.unique(senses)
            x, senses = np.stack([x[senses == name].mean(0) for name in names]), names
        neighbours = KNeighborsClassifier(min(self.neighbours or 1, len(x)), metric="cosine", algorithm="brute")
        return make_pipeline(*steps, neighbours.fit(x, senses))


class Split:
    """Labelled uses as columns [n]; `rows` are those of every lemma."""

    def __init__(self, uses: Sequence[Use]):
        self.uses = uses
        columns = (np.array([getattr(use, name) for use in uses], dtype=object) for name in ("lemma", "sense", "text"))
        self.lemmas, self.senses, self.texts = columns
        self.states = np.empty(0)  # [n, 2 (word, sentence), L + 1, d]
        self.rows = {lemma: np.flatnonzero(self.lemmas == lemma) for lemma in sorted(set(self.lemmas))}


@lru_cache(maxsize=2)  # settings that are tried in turn have the same ones
def vectors_of(split: Split, layers: Layers, vector: str = "word") -> np.ndarray:
    """[n, d], or [n, 2 d] of words and sentences."""
    if vector == "word + sentence":
        return unit(layers(split.states)).reshape(len(split.states), -1)
    return layers(split.states[:, VECTORS.index(vector)])


def fit_bag_of_words(texts: np.ndarray, senses: np.ndarray) -> Pipeline:
    """TF-IDF of the sentences' words, logarithmic counts, and logistic regression. Words of one character are left out,
    unless there are no others (Chinese may stand character by character)."""
    words = r"\b\w\w+\b" if any(re.search(r"\w\w", text) for text in texts) else r"\S+"
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=words)
    return make_pipeline(vectorizer, LogisticRegression(C=10, max_iter=1000)).fit(texts, senses)


def by_word(known: Split, split: Split, features: Callable[[Split], np.ndarray], fit: Fit) -> np.ndarray:
    """The senses [n] of the uses of `split`, every lemma by a classifier of its own. A lemma without training uses gets
    the most frequent sense of all, a lemma with one sense that sense."""
    x_known, x = features(known), features(split)
    # as objects: the classifier's own array has room for names as long as its one sense only
    predicted = MOST_FREQUENT.fit(x_known, known.senses).predict(x).astype(object)
    for lemma, of_split in split.rows.items():
        of_known = known.rows.get(lemma, [])
        senses = known.senses[of_known]
        if len(set(senses)) == 1:
            predicted[of_split] = senses[0]
        elif len(senses):
            predicted[of_split] = fit(x_known[of_known], senses).predict(x[of_split])
    return predicted


def predict(known: Split, split: Split, setting: Setting) -> np.ndarray:
    """The senses [n] that the setting finds for the uses of `split`, from those of `known`."""
    features = partial(vectors_of, layers=setting.layers, vector=setting.vector)
    if setting.scaling == "z-scored":
        scaler = StandardScaler().fit(features(known))
        return by_word(known, split, lambda part: scaler.transform(features(part)), setting.fit)
    return by_word(known, split, features, setting.fit)


def accuracy(split: Split, predicted: np.ndarray, bag_of_words: np.ndarray | None = None) -> dict[str, Any]:
    """Micro and macro accuracy (see the module's docstring), and that of every word; against the predictions of a bag
    of words also the difference of micro accuracy and half of its 95 % interval (the rows are paired)."""
    right = predicted == split.senses
    words = {lemma: float(right[rows].mean()) for lemma, rows in split.rows.items()}
    found = {"micro": float(right.mean()), "macro": float(np.mean(list(words.values()))), "words": words}
    if bag_of_words is not None:
        above = right.astype(float) - (bag_of_words == split.senses)
        half = float(1.96 * above.std() / np.sqrt(len(above)))
        found["above_bag_of_words"] = {"difference": float(above.mean()), "half_interval": half}
    return found


def choose(known: Split, validation: Split, num_layers: int) -> tuple[dict[str, Setting], dict[Setting, tuple]]:
    """The best settings by micro accuracy on the validation file (of equals by macro), of three families; and the
    (micro, macro) accuracies of all that were tried: every state but the embeddings, and the means of the last ones."""
    names = [str(state) for state in range(1, num_layers + 1)] + [f"{s}-{num_layers}" for s in range(1, num_layers)]
    layers = [parse_layers(name, num_layers) for name in names]
    tried = {}
    for choice in tqdm(list(product(layers, VECTORS, SCALINGS, NEIGHBOURS)), desc="Settings", leave=False):
        found = accuracy(validation, predict(known, validation, Setting(*choice)))
        tried[Setting(*choice)] = (found["micro"], found["macro"])
    of_words = [setting for setting in tried if setting.vector == "word"]
    families = {
        "best 1-NN of the word": [setting for setting in of_words if setting.neighbours < 2],
        "best k-NN of the word": [setting for setting in of_words if setting.neighbours > 1],
        "best of all": list(tried),
    }
    return {name: max(family, key=tried.get) for name, family in families.items()}, tried


@dataclass
class Arguments:
    train: str | None = option(None, "Labelled uses (columns tokens, target_index, lemma, sense) to learn from.")
    test: list[str] = option([], "Files that are measured.")
    validation: str | None = option(None, "Labelled uses that the best setting is chosen on; without it none is.")
    layers: list[str] = option(["last_four_mean"], f"The vector of a word: {LAYERS_HELP} Several are measured each.")
    subwords: Literal["mean", "first"] = option("mean", SUBWORDS_HELP)
    output_dir: str = option("runs/probe-wsd", "Folder for the results and the plot.")


def main(probe: Probe, arguments: Arguments) -> dict[str, Any]:
    """Measure; print tables; write `wsd.png` and `results.json`, which is returned: "accuracy" of every method on every
    file, with "above_bag_of_words" on those of the test; the "best" settings and all "tried"."""
    for field in ("train", "test"):
        if not getattr(arguments, field):
            raise ValueError(f"{field}: none given; use a file with the columns tokens, target_index, lemma, sense")
    validation = [arguments.validation] if arguments.validation else []
    files = validation + arguments.test
    names = [Path(file).stem for file in files]
    if len({"train", *names}) <= len(names):
        names = files
    measured = names[len(validation) :]
    known = Split(read_uses(arguments.train))
    splits = {name: Split(read_uses(file)) for name, file in zip(names, files)}
    model, tokenizer = load_model(probe.model)
    layers = [parse_layers(name, model.config.num_hidden_layers) for name in arguments.layers]
    everything = {"train": known, **splits}
    # of all files before the first is run, since a word may be left without tokens
    encoded = [encode_uses(tokenizer, split.uses, arguments.subwords) for split in everything.values()]
    for (name, split), rows in zip(everything.items(), encoded):
        split.states = word_vectors(model, rows, probe.batch_tokens, f"Word vectors of {name}", sentences=True)
    of_texts = partial(by_word, known, features=attrgetter("texts"))
    methods = {"most frequent sense": partial(of_texts, fit=MOST_FREQUENT.fit)}
    methods["bag of words"] = partial(of_texts, fit=fit_bag_of_words)
    regression = make_pipeline(StandardScaler(), LogisticRegression(C=PROBE_C, max_iter=1000))
    for chosen in layers:
        of_layers = partial(by_word, known, features=partial(vectors_of, layers=chosen))
        methods[f"sense means, {chosen.name}"] = partial(of_layers, fit=Setting(chosen).fit)
        methods[f"logistic regression, {chosen.name}"] = partial(of_layers, fit=regression.fit)
    best, tried = choose(known, splits[names[0]], model.config.num_hidden_layers) if validation else ({}, {})
    methods |= {name: partial(predict, known, setting=setting) for name, setting in best.items()}

    pairs = tqdm(list(product(methods, splits)), desc="Methods", unit=" predictions", leave=False)
    predicted = {(name, file): methods[name](splits[file]) for name, file in pairs}
    baselines = {file: predicted["bag of words", file] for file in measured}
    scores: dict[str, dict[str, Any]] = {name: {} for name in methods}
    for (name, file), senses in predicted.items():
        scores[name][file] = accuracy(splits[file], senses, baselines.get(file))
    header, table = ["method"], [[name] for name in methods]
    for file in splits:
        header += [f"{file} micro", "macro", *(["above bag of words"] if file in measured else [])]
        for row, of_files in zip(table, scores.values()):
            row += [of_files[file]["micro"], of_files[file]["macro"]]
            if above := of_files[file].get("above_bag_of_words"):
                shown = f"{above['difference']:+.3f} ± {above['half_interval']:.3f}"
                row.append(shown if above["half_interval"] else "")
    print(format_table(header, table, digits=3))
    print("\nmicro: share of rows; macro: mean over words; ±: 95 % interval of the paired difference.")
    for name, setting in best.items():
        print(f"{name}, chosen by the validation file: {setting}")
    first = measured[0]
    words = {word: len(rows) for word, rows in splits[first].rows.items()}
    of_words = {name: found[first]["words"] for name, found in scores.items()}
    table = [[word, count, *(found[word] for found in of_words.values())] for word, count in words.items()]
    print(f"\nAccuracy on {first} by word:\n{format_table(['word', 'rows', *of_words], table, digits=3)}")
    for name, split in splits.items():
        if unseen := sum(lemma not in known.rows for lemma in split.lemmas):
            print(f"{name}: {unseen} rows of lemmas without training uses got the most frequent sense of all.")
        if new := {*zip(split.lemmas, split.senses)} - {*zip(known.lemmas, known.senses)}:
            print(f"{name}: {len(new)} senses have no training use: {', '.join(sorted(sense for _, sense in new)[:8])}")
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    for each, (micro, _) in tried.items():
        if each.layers.name.isdigit() and not each.neighbours and (each.vector, each.scaling) in DRAWN:
            curves[f"{each.vector}, {each.scaling}"][each.layers.first] = 100 * micro
    results = {
        "rows": {name: len(split.uses) for name, split in everything.items()},
        "accuracy": scores,
        "best": {name: asdict(setting) for name, setting in best.items()},
        "tried": [{"setting": str(setting), "micro": m, "macro": n} for setting, (m, n) in tried.items()],
    }
    draw = partial(plot_wsd, file=first, words=words, accuracy=of_words, curves=curves)
    return save_results(results, probe, arguments, None, wsd=draw)


if __name__ == "__main__":
    main(*parse(__doc__, Probe, Arguments))
