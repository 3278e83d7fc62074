"""A simple classifier of texts: logistic regression over TF-IDF of words and pairs of words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

CLASSIFIER_NAME = "TF-IDF with logistic regression"
# Of more training rows, so many are drawn: this should take seconds.
MAX_TRAINING_EXAMPLES = 20_000
MAX_FEATURES = 100_000
MAX_CLASSES = 200
SAMPLE_SEED = 0


class WordClassifier:
    """It is fitted to texts and their classes, or 0 or 1 for each of several labels.

    Args:
        balanced: Whether all classes count alike, as with class weights.
    """

    def __init__(self, balanced: bool = False):
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        class_weight = "balanced" if balanced else None
        regression = LogisticRegression(
            C=10.0, solver="liblinear", class_weight=class_weight, random_state=SAMPLE_SEED
        )
        self.classifier = OneVsRestClassifier(regression)
        self.vectorizers: list[TfidfVectorizer] = []

    def fit(self, columns: Sequence[Sequence[str]], labels: Sequence[int | list[float]]) -> None:
        """Learn from columns of texts (of pairs, two) and the labels of their rows. A ValueError if
        the texts have no words."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        num_rows = len(labels)
        rows = np.arange(num_rows)
        if num_rows > MAX_TRAINING_EXAMPLES:
            generator = np.random.default_rng(SAMPLE_SEED)
            rows = np.sort(generator.choice(num_rows, MAX_TRAINING_EXAMPLES, replace=False))
        features = []
        for texts in columns:
            vectorizer = TfidfVectorizer(
                token_pattern=r"\w+", ngram_range=(1, 2), sublinear_tf=True,
                max_features=MAX_FEATURES,
            )  # fmt: skip
            features.append(vectorizer.fit_transform([texts[row] for row in rows]))
            self.vectorizers.append(vectorizer)
        with warnings.catch_warnings():
            # a label that all rows have, or none
            warnings.filterwarnings("ignore", message="Label .* is present in all|Label not")
            self.classifier.fit(sparse.hstack(features).tocsr(), np.asarray(labels)[rows])

    def predict(self, columns: Sequence[Sequence[str]]) -> list[int] | list[list[int]]:
        features = []
        for vectorizer, texts in zip(self.vectorizers, columns):
            features.append(vectorizer.transform(texts))
        return self.classifier.predict(sparse.hstack(features).tocsr()).tolist()


def learn_and_predict(
    training_texts: Sequence[Sequence[str]],
    training_labels: Sequence[int | list[float]],
    texts_of_splits: Sequence[Sequence[Sequence[str]]],
    balanced: bool,
) -> list[list[int] | list[list[int]]] | None:
    """What a `WordClassifier` predicts for each of several splits; None if the training texts have
    no words.

    Args:
        training_texts: Columns of texts, of pairs two; so for each split in `texts_of_splits`.
        balanced: As of `WordClassifier`.
    """
    classifier = WordClassifier(balanced)
    try:
        classifier.fit(training_texts, training_labels)
    except ValueError:  # texts without words
        return None
    return [classifier.predict(columns) for columns in texts_of_splits]
