"""Metrics against hand-worked values, other libraries and formulas written anew."""

import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from minibert.training.evaluation.answer_metrics import normalize_answer
from minibert.training.evaluation.entity_metrics import EntityScores
from minibert.training.evaluation.retrieval_metrics import retrieval_scores
from minibert.training.evaluation.squad_metrics import SquadScores
from minibert.training.evaluation.value_metrics import correlations


def test_correlations_against_the_formula():
    @given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=20))
    @settings(max_examples=15, deadline=None)
    def check(pairs):
        x, y = np.array(pairs, dtype=float).T
        norm = math.sqrt(((x - x.mean()) ** 2).sum() * ((y - y.mean()) ** 2).sum())
        expected = ((x - x.mean()) * (y - y.mean())).sum() / norm if norm > 1e-12 else 0.0
        assert correlations(x, y)["pearson"] == pytest.approx(expected, abs=1e-9)

    check()
    assert (
        correlations([0.5, 0.5], [1.0, 2.0])["spearman"] == 0.0
    )  # predictions that are all the same


TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


class TestSpans:
    @given(
        st.lists(
            st.lists(st.tuples(*[st.sampled_from(TAGS)] * 2), min_size=1, max_size=8),
            max_size=5,
            min_size=1,
        )
    )
    @settings(max_examples=20, deadline=None)
    def test_default_mode_counts_equal_spans(self, rows):
        predictions, references = (
            [[p for p, _ in row] for row in rows],
            [[r for _, r in row] for row in rows],
        )
        result = EntityScores().compute(predictions=predictions, references=references)
        spans = [
            {(row, *entity) for row, tags in enumerate(side) for entity in get_entities(tags)}
            for side in (predictions, references)
        ]
        for name, own in [(None, spans)] + [
            (name, [{entity for entity in side if entity[1] == name} for side in spans])
            for name in ("PER", "LOC")
        ]:
            right = len(own[0] & own[1])
            if name is None or own[0] | own[1]:
                row = result if name is None else result["per_type"][name]
                if name is None and not own[1]:
                    assert row["precision"] is row["recall"] is row["f1"] is None
                    continue
                assert row["precision"] == pytest.approx(right / max(len(own[0]), 1))
                assert row["recall"] == pytest.approx(right / max(len(own[1]), 1))
                assert row["f1"] == pytest.approx(2 * right / max(len(own[0]) + len(own[1]), 1))
                assert name is None or row["support"] == len(own[1])
            else:
                assert name not in result["per_type"]
        assert result["accuracy"] == pytest.approx(
            np.mean([p == r for row in rows for p, r in row])
        )

    def test_no_entity_anywhere(self):
        wrong = EntityScores().compute(predictions=[["B-PER"]], references=[["B-LOC"]])
        assert {*wrong["per_type"]} == {"PER", "LOC"}  # and no averages
        expected = {"precision": None, "recall": None, "f1": None, "per_type": {}}
        assert EntityScores().compute(
            predictions=[["O", "O"]], references=[["O", "O"]]
        ) == expected | {"accuracy": 1.0}
        assert EntityScores().compute(predictions=[[]], references=[[]]) == expected | {
            "accuracy": None
        }


class TestAnswers:
    @pytest.mark.parametrize(
        "text, expected",
        [
            ("The  Cat's, hat!", "cats hat"),
            ("an apple a day", "apple day"),
            ("theatre", "theatre"),
            ("the", ""),
        ],
    )
    def test_normalization(self, text, expected):
        assert normalize_answer(text) == expected

    def test_best_of_several_answers(self):
        result = SquadScores().compute(
            predictions=["the big red dog"], references=[["a dog", "red dog"]]
        )
        assert result["exact_match"] == 0.0  # "big red dog" against "dog" and "red dog"
        assert result["f1"] == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))

    def test_repeated_words_count_as_often_as_both_have_them(self):
        result = SquadScores().compute(predictions=["dog dog cat"], references=[["dog bird"]])
        assert result["f1"] == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))

    def test_questions_without_an_answer(self):
        result = SquadScores().compute(
            predictions=["", "Rome", "Rome", ""], references=[[], [], ["Rome"], []]
        )
        assert (result["exact_match"], result["f1"]) == (0.75, 0.75)
        assert (result["f1_answerable"], result["f1_unanswerable"]) == (1, pytest.approx(2 / 3))
        # As the official script has it: "the" and "a" are nothing, normalized.
        assert (
            SquadScores().compute(predictions=["", ""], references=[["the", "Rome"], ["the"]])["f1"]
            == 0.5
        )
        assert (
            SquadScores().compute(predictions=["a", "Rome"], references=[[], ["Rome"]])["f1"] == 1.0
        )


class TestRetrieval:
    def test_worked_by_hand(self):
        found = [["x", "b", "a"], ["c", "y"], ["z"]]
        relevant = [{"a": 1, "b": 3, "q": 2}, {"c": 1}, {"d": 4}]
        result = retrieval_scores(found, relevant, ks=(1, 3))
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
        result = retrieval_scores([ranking], [dict(zip(names, grades))], ks=(k,))
        assert result[f"ndcg@{k}"] == pytest.approx(expected)
