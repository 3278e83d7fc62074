"""Which sense a word has, told from its labelled uses: the figures of docs/notebooks/07_contextual_vectors.ipynb.

    python benchmarks/word_senses.py --model minilm --train wsd/train.jsonl --test wsd/test.jsonl wsd/ood_test.jsonl

Every row has the columns tokens, target_index, lemma and sense (CoarseWSD-20, Loureiro et al. 2021). Micro accuracy is
the share of rows that are right, macro the mean over words of the accuracy on each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import option, parse, read_table, save_figures
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer

from minibert.training.data.packing import group_by_length


@dataclass
class Arguments:
    model: str = option(
        "runs/minilm", "A MiniBERT, or any encoder of Transformers with a fast tokenizer."
    )
    train: str = option("wsd/train.jsonl", "Labelled uses to learn from.")
    test: list[str] = option(["wsd/test.jsonl"], "Files that are measured.")
    output: str = option("docs/notebooks/07_contextual_vectors.json", "The file that is written.")


@torch.inference_mode()
def word_vectors(model, tokenizer, rows: list[dict[str, Any]]) -> np.ndarray:
    """Each row's word as the mean of its tokens at every state, [rows, layers + 1, width]."""
    encoded = [tokenizer(row["tokens"], is_split_into_words=True, truncation=True) for row in rows]
    states = [[]] * len(rows)
    for batch in group_by_length([len(each["input_ids"]) for each in encoded], 4096):
        padded = tokenizer.pad([encoded[row] for row in batch], return_tensors="pt")
        hidden = torch.stack(
            model(**padded, output_hidden_states=True).hidden_states, 2
        )  # [batch, tokens, states, d]
        for row, of_tokens in zip(batch, hidden):
            inside = [word == rows[row]["target_index"] for word in encoded[row].word_ids()]
            states[row] = of_tokens[: len(inside)][torch.tensor(inside)].mean(0)
    return torch.stack(states).numpy()


class SenseMeans:
    """The nearest of the senses' mean vectors, by cosine."""

    def fit(self, x, senses):
        names = np.unique(senses)
        means = np.stack([x[senses == name].mean(0) for name in names])
        self.nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute").fit(means, names)
        return self.nearest


def by_word(train: tuple, test: tuple, make: Callable) -> np.ndarray:
    """Predicted senses, every word by a classifier of its own; `train` and `test` are (features, lemmas, senses)."""
    predicted = np.empty(len(test[2]), dtype=object)
    for lemma in np.unique(test[1]):
        known, asked = train[1] == lemma, test[1] == lemma
        senses = train[2][known]
        if len(np.unique(senses)) == 1:
            predicted[asked] = senses[0]
        else:
            predicted[asked] = make().fit(train[0][known], senses).predict(test[0][asked])
    return predicted


def score(right: np.ndarray, baseline: np.ndarray, lemmas: np.ndarray) -> dict[str, float]:
    """Micro and macro accuracy, and what micro is above the baseline's, with half its 95 % interval (paired rows)."""
    above = right.astype(float) - baseline
    return {
        "micro": float(right.mean()),
        "macro": float(np.mean([right[lemmas == lemma].mean() for lemma in np.unique(lemmas)])),
        "above_bag_of_words": float(above.mean()),
        "half_interval": float(1.96 * above.std() / np.sqrt(len(above))),
    }


def main(arguments: Arguments) -> None:
    files = {Path(name).stem: read_table(name) for name in [arguments.train, *arguments.test]}
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModel.from_pretrained(arguments.model, dtype=torch.float32).eval()
    columns = [
        (
            np.array([" ".join(row["tokens"]) for row in rows]),
            word_vectors(model, tokenizer, rows),
            *(np.array([row[name] for row in rows], dtype=object) for name in ("lemma", "sense")),
        )
        for rows in files.values()
    ]
    last = model.config.num_hidden_layers
    regression = lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))  # noqa: E731
    nearest = lambda: KNeighborsClassifier(1, metric="cosine", algorithm="brute")  # noqa: E731

    def bag():
        return make_pipeline(
            TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10, max_iter=1000)
        )

    methods = {"bag of words": (bag, None), "most frequent sense": (DummyClassifier, None)}
    states = {
        "mean of the last four": slice(max(last - 3, 1), last + 1),
        "last": slice(last, last + 1),
    }
    for name, chosen in states.items():
        for method, make in (
            ("sense means", SenseMeans),
            ("one neighbour", nearest),
            ("regression", regression),
        ):
            methods[f"{method}, {name}"] = (make, chosen)
    methods |= {
        f"sense means, state {state}": (SenseMeans, slice(state, state + 1))
        for state in range(last + 1)
    }
    scores: dict[str, dict[str, Any]] = {}
    train, *tests = columns
    for file, test in zip(list(files)[1:], tests):
        baseline = np.zeros(len(test[3]))
        for name, (make, chosen) in methods.items():
            x = [
                each[0] if chosen is None else each[1][:, chosen].mean(1) for each in (train, test)
            ]
            right = by_word((x[0], *train[2:]), (x[1], *test[2:]), make) == test[3]
            if name == "bag of words":  # the first
                baseline = right
            scores.setdefault(name, {})[file] = score(right, baseline, test[2])
    save_figures(
        arguments.output, rows={name: len(rows) for name, rows in files.items()}, accuracy=scores
    )


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
