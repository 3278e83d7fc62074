"""Metrics against hand-worked values, other libraries and formulas written anew."""

import math
import socket

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from minibert.training.metrics import (
    F1,
    Accuracy,
    MatthewsCorrelation,
    Pearson,
    Retrieval,
    Seqeval,
    Spearman,
    SquadScores,
    normalize_answer,
)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a metric asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def score(metric, predictions, references, **options):
    return metric.compute(predictions=predictions, references=references, **options)


class TestClasses:
    predictions, references = [1, 1, 0, 1, 0, 0, 1, 0], [1, 0, 0, 1, 1, 0, 1, 0]  # 3 tp, 1 fp, 1 fn, 3 tn

    def test_accuracy(self):
        assert score(Accuracy(), self.predictions, self.references) == {"accuracy": 0.75}

    def test_accuracy_of_several_labels_wants_the_whole_row(self):
        assert score(Accuracy(), [[1, 0], [1, 1]], [[1, 0], [1, 0]]) == {"accuracy": 0.5}

    def test_binary_f1_is_of_class_1(self):
        precision, recall = 3 / 4, 3 / 4
        expected = 2 * precision * recall / (precision + recall)
        assert score(F1(), self.predictions, self.references, average="binary")["f1"] == pytest.approx(expected)
        skewed = score(F1(), [1, 1, 1, 0], [1, 0, 0, 0], average="binary")["f1"]
        assert skewed == pytest.approx(2 * (1 / 3) * 1 / (1 / 3 + 1))

    def test_macro_f1_is_the_mean_over_classes(self):
        predictions, references = [0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 2, 0]
        per_class = [2 * 1 / (2 + 2), 2 * 1 / (1 + 2), 2 * 2 / (3 + 2)]  # 2 tp / (predicted + true)
        assert score(F1(), predictions, references)["f1"] == pytest.approx(np.mean(per_class))
        assert score(F1(), predictions, references, average="micro")["f1"] == pytest.approx(4 / 6)
        assert score(F1(), predictions, references, average=None)["f1"] == pytest.approx(per_class)
        assert score(F1(), predictions, references, average=None, labels=[2])["f1"] == pytest.approx(per_class[2:])

    def test_f1_of_several_labels(self):
        predictions, references = np.array([[1, 0, 1], [0, 0, 1]]), np.array([[1, 1, 0], [0, 0, 1]])
        tp, predicted, true = 2, 3, 3
        assert score(F1(), predictions, references, average="micro")["f1"] == pytest.approx(2 * tp / (predicted + true))
        assert score(F1(), [[1, 0]], [[1, 0]], average=None)["f1"] == [1, 0]  # a label that never occurs

    def test_matthews(self):
        tp, fp, fn, tn = 3, 1, 1, 3
        expected = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        assert score(MatthewsCorrelation(), self.predictions, self.references)["matthews_correlation"] == pytest.approx(
            expected
        )


class TestCorrelations:
    @given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=20))
    @settings(max_examples=15, deadline=None)
    def test_against_the_formula(self, pairs):
        x, y = np.array(pairs, dtype=float).T

        def correlation(x, y):
            x, y = x - x.mean(), y - y.mean()
            norm = math.sqrt((x**2).sum() * (y**2).sum())
            return float((x * y).sum() / norm) if norm > 1e-12 else 0.0

        def ranks(x):  # equal values share the mean of their places
            return np.array([(x < value).sum() + ((x == value).sum() + 1) / 2 for value in x])

        assert score(Pearson(), x, y)["pearson"] == pytest.approx(correlation(x, y), abs=1e-9)
        assert score(Spearman(), x, y)["spearman"] == pytest.approx(correlation(ranks(x), ranks(y)), abs=1e-9)

    @pytest.mark.parametrize("metric", [Pearson, Spearman])
    def test_not_defined_is_0(self, metric):
        for predictions, references in (([0.5], [1.0]), ([0.5, 0.5], [1.0, 2.0])):
            assert list(score(metric(), predictions, references).values()) == [0.0]


TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


class TestSpans:
    @given(
        st.lists(
            st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=8),
            max_size=5,
            min_size=1,
        )
    )
    @settings(max_examples=20, deadline=None)
    def test_default_mode_counts_equal_spans(self, rows):
        predictions, references = [[p for p, _ in row] for row in rows], [[r for _, r in row] for row in rows]
        result = score(Seqeval(), predictions, references)
        spans = [
            {(row, *entity) for row, tags in enumerate(side) for entity in get_entities(tags)}
            for side in (predictions, references)
        ]
        for name, own in [(None, spans)] + [
            (name, [{entity for entity in side if entity[1] == name} for side in spans]) for name in ("PER", "LOC")
        ]:
            right = len(own[0] & own[1])
            if name is None or own[0] | own[1]:
                row = result if name is None else result["per_type"][name]
                assert row["precision"] == pytest.approx(right / max(len(own[0]), 1))
                assert row["recall"] == pytest.approx(right / max(len(own[1]), 1))
                assert row["f1"] == pytest.approx(2 * right / max(len(own[0]) + len(own[1]), 1))
                assert name is None or row["support"] == len(own[1])
            else:
                assert name not in result["per_type"]
        assert result["accuracy"] == pytest.approx(np.mean([p == r for row in rows for p, r in row]))

    def test_no_entity_anywhere(self):
        assert {*score(Seqeval(), [["B-PER"]], [["B-LOC"]])["per_type"]} == {"PER", "LOC"}  # and no averages
        expected = {"precision": 0.0, "recall": 0.0, "f1": 0.0, "per_type": {}}
        assert score(Seqeval(), [["O", "O"]], [["O", "O"]]) == expected | {"accuracy": 1.0}
        assert score(Seqeval(), [[]], [[]]) == expected | {"accuracy": 0.0}

    def test_uneven_sequences_are_refused(self):
        with pytest.raises(ValueError, match="a sequence has another length"):
            score(Seqeval(), [["O"], ["O"]], [["O"], ["O", "O"]])


class TestAnswers:
    @pytest.mark.parametrize(
        "text, expected",
        [("The  Cat's, hat!", "cats hat"), ("an apple a day", "apple day"), ("theatre", "theatre"), ("the", "")],
    )
    def test_normalization(self, text, expected):
        assert normalize_answer(text) == expected

    def test_best_of_several_answers(self):
        result = score(SquadScores(), ["the big red dog"], [["a dog", "red dog"]])
        assert result["exact_match"] == 0.0  # "big red dog" against "dog" and "red dog"
        assert result["f1"] == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))

    def test_repeated_words_count_as_often_as_both_have_them(self):
        result = score(SquadScores(), ["dog dog cat"], [["dog bird"]])
        assert result["f1"] == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))

    def test_questions_without_an_answer(self):
        result = score(SquadScores(), ["", "Rome", "Rome", ""], [[], [], ["Rome"], []])
        assert (result["exact_match"], result["f1"]) == (0.75, 0.75)
        assert (result["f1_answerable"], result["f1_unanswerable"]) == (1, pytest.approx(2 / 3))
        assert score(SquadScores(), ["", ""], [["the", "Rome"], ["the"]])["f1"] == 0.5  # as the official script has it
        assert score(SquadScores(), ["a", "Rome"], [[], ["Rome"]])["f1"] == 1.0  # "a" is nothing, normalized


class TestRetrieval:
    def test_worked_by_hand(self):
        found = [["x", "b", "a"], ["c", "y"], ["z"]]
        relevant = [
            {"ids": ["a", "b", "q"], "grades": [1, 3, 2]},
            {"ids": ["c"], "grades": [1]},
            {"ids": ["d"], "grades": [4]},
        ]
        result = score(Retrieval(), found, relevant, ks=(1, 3))
        assert result["mrr@1"] == pytest.approx((0 + 1 + 0) / 3)
        assert result["mrr@3"] == pytest.approx((1 / 2 + 1 + 0) / 3)
        assert result["recall@3"] == pytest.approx((2 / 3 + 1 + 0) / 3)
        assert result["hit@3"] == pytest.approx(2 / 3)
        first = (3 / math.log2(3) + 1 / math.log2(4)) / (3 + 2 / math.log2(3) + 1 / math.log2(4))
        assert result["ndcg@3"] == pytest.approx((first + 1 + 0) / 3)

    @given(st.lists(st.integers(0, 4), min_size=2, max_size=12), st.integers(1, 12), st.randoms())
    @settings(max_examples=20, deadline=None)
    def test_ndcg_is_scikit_learns(self, grades, k, random):
        names = [str(i) for i in range(len(grades))]
        ranking = names.copy()
        random.shuffle(ranking)
        scores = [-ranking.index(name) for name in names]
        expected = sklearn.metrics.ndcg_score([grades], [scores], k=k)
        result = score(Retrieval(), [ranking], [{"ids": names, "grades": grades}], ks=(k,))
        assert result[f"ndcg@{k}"] == pytest.approx(expected)

    def test_a_document_found_twice_is_refused(self):
        with pytest.raises(ValueError, match="found twice"):
            score(Retrieval(), [["a", "a"]], [{"ids": ["a"], "grades": [1]}])
