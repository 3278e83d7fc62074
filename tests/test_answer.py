"""Extractive question answering: n-best decoding, windows over long contexts; and training from end to end."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.tokenization import train_tokenizer
from minibert.training.tasks.spans import WindowScores, answer_tokens, best_answers

CONTEXT = "one two three four five six seven eight nine ten"
OFFSETS = [(i, i + len(word)) for word in CONTEXT.split() for i in [CONTEXT.index(word)]]


def window(rng, tokens, keep=None):
    """Scores of a window of the context that shows `tokens`, behind three tokens of a question."""
    start, end = rng.normal(size=len(tokens)), rng.normal(size=len(tokens))
    order = [np.argsort(-x)[:keep] for x in (start, end)]
    return WindowScores(
        starts=order[0] + 3,
        start_logits=start[order[0]],
        ends=order[1] + 3,
        end_logits=end[order[1]],
        null_logit=float(rng.normal()),
        offsets=[(0, 0)] * 3 + [OFFSETS[token] for token in tokens],
    ), {(OFFSETS[a][0], OFFSETS[b][1]): start[i] + end[j] for i, a in enumerate(tokens) for j, b in enumerate(tokens)
        if i <= j}  # fmt: skip


class TestBestAnswers:
    @given(st.integers(0, 10_000), st.integers(1, 10), st.integers(1, 12))
    @settings(max_examples=60, deadline=None)
    def test_against_all_spans_of_all_windows(self, seed, longest, n_best):
        rng = np.random.default_rng(seed)
        windows, scores = zip(*(window(rng, tokens) for tokens in (range(6), range(3, 10))))
        best = {}
        for of_window in scores:
            for span, score in of_window.items():
                if len(CONTEXT[slice(*span)].split()) <= longest:
                    best[span] = max(best.get(span, -np.inf), score)
        expected = sorted(best.items(), key=lambda item: -item[1])[:n_best]
        found = best_answers(windows, CONTEXT, n_best=n_best, max_answer_length=longest)
        assert [(answer.start, answer.end) for answer in found] == [span for span, _ in expected]
        np.testing.assert_allclose([answer.score for answer in found], [score for _, score in expected])
        assert all(answer.text == CONTEXT[answer.start : answer.end] for answer in found)

    def test_the_best_tokens_are_enough_where_the_best_answer_is_made_of_them(self):
        rng = np.random.default_rng(0)
        few, _ = window(rng, range(10), keep=4)
        for answer in best_answers([few], CONTEXT):
            assert {answer.start, answer.end} <= {OFFSETS[i - 3][0] for i in few.starts} | {
                OFFSETS[i - 3][1] for i in few.ends
            }

    def test_spaces_of_byte_level_tokens_are_no_part_of_an_answer(self):
        scores = WindowScores([0], [1.0], [1], [1.0], 0.0, [(3, 7), (7, 13)])
        (answer,) = best_answers([scores], CONTEXT)
        assert (answer.text, answer.start, answer.end, answer.score) == ("two three", 4, 13, 2.0)

    @pytest.mark.parametrize("threshold, first", [(None, "one"), (0.0, ""), (0.9, ""), (1.1, "one")])
    def test_no_answer_where_its_lowest_score_is_higher_by_the_threshold(self, threshold, first):
        windows = [WindowScores([0], [1.0], [0], [1.0], null, [OFFSETS[0]]) for null in (9.0, 3.0)]
        answers = best_answers(windows, CONTEXT, null_threshold=threshold)
        assert answers[0].text == first
        assert sorted(answer.text for answer in answers) == (["one"] if threshold is None else ["", "one"])

    def test_a_question_without_any_legal_span_has_the_empty_answer(self):
        scores = WindowScores([1], [1.0], [0], [1.0], 0.5, OFFSETS[:2])
        assert [answer.text for answer in best_answers([scores], CONTEXT)] == [""]


@pytest.fixture(scope="module")
def tokenizers():
    documents = [doc for value in vars(inspect).values() if (doc := inspect.getdoc(value))]
    return {
        name: train_tokenizer(documents, name, 500, show_progress=False) for name in ("wordpiece", "bpe", "unigram")
    }


class TestAnswerTokens:
    @pytest.mark.parametrize("algorithm", ["wordpiece", "bpe", "unigram"])
    @given(data=st.data())
    @settings(max_examples=60, deadline=None)
    def test_tokens_of_words_give_the_words_back(self, tokenizers, algorithm, data):
        words = data.draw(st.lists(st.text("abcdeéß漢.-", min_size=1, max_size=9), min_size=1, max_size=8))
        context = " ".join(words)
        first = data.draw(st.integers(0, len(words) - 1))
        last = data.draw(st.integers(first, len(words) - 1))
        start = len(" ".join(words[:first])) + (first > 0)
        end = start + len(" ".join(words[first : last + 1]))
        offsets = tokenizers[algorithm](context, return_offsets_mapping=True)["offset_mapping"]
        offsets = [None, *offsets[1:-1], None]
        found = answer_tokens(offsets, start, end)
        assert found is not None
        assert context[offsets[found[0]][0] : offsets[found[1]][1]].strip() == context[start:end]

    def test_an_answer_that_a_window_cuts_is_not_in_it(self):
        offsets = [None, None, *OFFSETS[2:6], None]
        assert answer_tokens(offsets, OFFSETS[2][0], OFFSETS[3][1]) == (2, 3)
        assert answer_tokens(offsets, OFFSETS[1][0], OFFSETS[3][1]) is None
        assert answer_tokens(offsets, OFFSETS[5][0], OFFSETS[6][1]) is None
        assert answer_tokens(offsets, OFFSETS[8][0], OFFSETS[9][1]) is None
        assert answer_tokens([None], 0, 3) is None
