"""Answer questions with a part of a context (extractive question answering)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertForQuestionAnswering
from ...data.sentences import split_sentences
from ...evaluation.metrics import SquadScores, compare_answers
from ...evaluation.plots import plot_scores
from ..data import as_list, bad_value, each_row, with_column
from .base import LABEL, Labels, Predictions, Scores, Task, shortened

STARTS = (
    "_starts"  # the column that `read` adds beside `LABEL`: the first characters of the answers
)
MAX_LENGTH, MAX_QUESTION = (
    384,
    64,
)  # tokens of an input and of its question, as BERT had them on SQuAD
THRESHOLD = "null_threshold"  # where the tokenizer's config keeps that of the training
MANY_LONG = 0.05  # the share of answers above `max_answer_length` from which on it is said
NULL = 0  # the token that stands for "no answer here": the first one, [CLS]
ANSWER = (
    '{"text": ["1907"], "answer_start": [24]}, or for no answer {"text": [], "answer_start": []}'
)


@dataclass(eq=False)
class AnswerQuestions(Task):
    """A model that answers questions with a part of a text. Longer texts are read in parts that share a third.

    Args:
        question_column: The column of the question; by default guessed by its name.
        context_column: The column of the context; by default guessed by its name.
        answers_column: The column of {text: […], answer_start: […]}, as in SQuAD; by default guessed by its name.
        max_length: Longest input, in tokens; longer contexts are read in parts. By default that of a model trained for
            this task, else at most 384.
        max_answer_length: Longest answer, in tokens.
    """

    name = "answer"
    model_class = MiniBertForQuestionAnswering
    metric_for_best_model = "f1"
    baseline = "most alike sentence"
    shortest_input = 128
    columns = {
        "question_column": ("question",),
        "context_column": ("context", "passage", "text"),
        "answers_column": ("answers", "answer"),
    }
    copied = slice(1, 2)  # the context
    label_feature = datasets.List(datasets.Value("string"))

    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    question_column: str | None = None
    context_column: str | None = None
    answers_column: str | None = None
    max_length: int | None = None
    max_answer_length: int = 30

    def __post_init__(self):
        # By how much "no answer" must beat the best answer; None: there is always one.
        self.null_threshold = self.tokenizer.init_kwargs.get(THRESHOLD)
        self.tokenizer.padding_side = "right"  # positions are columns

    def read_labels(self, split: datasets.Dataset) -> list[list[tuple[str, int]]]:
        """The answers of each row, as text and first character, without the spaces around them."""
        return each_row(split, self._answers, split)

    def _answers(self, row: dict[str, Any]) -> list[tuple[str, int]]:
        answers, context = row[self.label_column], row[self.text_columns[1]]
        if row.get(
            "is_impossible"
        ):  # SQuAD 2.0; what some files list there is plausible, but wrong
            return []
        given = answers if isinstance(answers, dict) else {}
        texts, starts = (as_list(given.get(part)) for part in ("text", "answer_start"))
        readable = all(isinstance(text, str) for text in texts) and all(
            isinstance(start, int) for start in starts
        )
        if (
            not {"text", "answer_start"} <= given.keys()
            or not readable
            or len(texts) != len(starts)
        ):
            raise bad_value(self.label_column, answers, ANSWER)
        for text, start in zip(texts, starts):
            there = context[start : start + len(text)] if start >= 0 else ""
            if there != text or not text.strip():
                of = (
                    f" of question {row['id']!r}" if row.get("id") else ""
                )  # a nested file has no rows
                why = f"{of} with answer_start {start} does not match the context, which has {there!r} there"
                raise bad_value(
                    self.label_column, text, "a part of the context and its first character", why
                )
        return [
            (text.strip(), start + len(text) - len(text.lstrip()))
            for text, start in zip(texts, starts)
        ]

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        if (
            self.max_length is None and config is None
        ):  # a model trained for this task keeps its own length
            self.tokenizer.model_max_length = min(MAX_LENGTH, self.tokenizer.model_max_length)
        for name, rows in labels.items():
            self._check_lengths(name, [answers[0][0] for answers in rows if answers])
        saved = self.tokenizer.init_kwargs
        if "train" in labels or THRESHOLD not in saved:
            # where every question has an answer, "none" is no candidate
            answerable = (
                all(labels["train"]) if "train" in labels else all(map(all, labels.values()))
            )
            self.null_threshold = None if answerable else 0.0
        saved[THRESHOLD] = self.null_threshold
        return labels

    def _check_lengths(self, split: str, answers: list[str]) -> None:
        """Refuse a split of which no answer can be given, and say if many cannot."""
        encoded = (
            self.tokenizer(answers, add_special_tokens=False, verbose=False)["input_ids"]
            if answers
            else []
        )
        lengths = np.array([len(ids) for ids in encoded])
        long = (lengths > self.max_answer_length).sum()
        if long > MANY_LONG * len(lengths):
            said = f"{long:,} of {len(lengths):,} answers of the {split} rows are longer than {self.max_answer_length}"
            said += f" tokens and cannot be given; give --max_answer_length {lengths.max()}"
            if long == len(lengths):
                raise ValueError(f"max_answer_length: {said}")
            print(said)

    def with_labels(
        self, split: datasets.Dataset, labels: list[list[tuple[str, int]]]
    ) -> datasets.Dataset:
        texts, starts = (
            [[answer[part] for answer in answers] for answers in labels] for part in (0, 1)
        )
        return with_column(
            super().with_labels(split, texts),
            STARTS,
            starts,
            datasets.List(datasets.Value("int64")),
        )

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(split, [*self.text_columns, LABEL, STARTS], encode_questions)

    def preprocess_logits(
        self, logits: Sequence[torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """The logits of each token as the first and as the last one: [batch, length, 2]."""
        return torch.stack(logits[:2], -1).float()

    def decode(self, predictions: Predictions) -> Iterator[str]:
        """The texts of the answers; empty: there is none."""
        windows, contexts = [], iter(predictions.examples[self.text_columns[1]])
        for logits, window in zip(
            predictions.outputs, predictions.encoded.select_columns(["offsets", "is_last"])
        ):
            windows.append((logits, window["offsets"]))
            if window["is_last"]:
                yield best_answer(
                    windows, next(contexts), self.max_answer_length, self.null_threshold
                )
                windows = []

    def score(self, predictions: Iterable[str], references: Sequence[list[str]]) -> Scores:
        return SquadScores().compute(predictions=list(predictions), references=references)

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        return list(self.score([""] * len(examples), examples[LABEL][:]))

    def guesses(self, known: datasets.Dataset, examples: datasets.Dataset) -> list[list[str]]:
        """The sentence with most words of the question; or never an answer."""
        words = [{*question.lower().split()} for question in examples[self.text_columns[0]]]
        sentences = [
            max(
                split_sentences(text),
                key=lambda part: len(asked & {*part.lower().split()}),
                default="",
            )
            for asked, text in zip(words, examples[self.text_columns[1]])
        ]
        return [sentences, [""] * len(examples)]

    def confidence(
        self, logits: Sequence[torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        return torch.stack(logits[:2]).float().softmax(-1).amax(-1).prod(0)

    def mistake(self, predicted: str, true: list[str], confidence: float) -> float:
        return (
            0.0 if any(compare_answers(predicted, text)[0] for text in true or [""]) else confidence
        )

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        plot_scores(self.compute_metrics(predictions), "score", path, note)

    def show_input(self, row: Mapping[str, Any]) -> str:
        return shortened(row[self.text_columns[0]])

    def show_label(self, row: Mapping[str, Any], label: str | list[str]) -> str:
        return " or ".join(map(repr, dict.fromkeys(as_list(label or [])))) or "no answer"


def encode_questions(tokenizer, questions, contexts, answers, starts) -> dict[str, list]:
    """Pairs of a question, cut to `MAX_QUESTION` tokens, and a part of its context, `model_max_length` tokens at most;
    neighbouring parts share a third of that. One row each, in order. Beside the model's inputs: `start_positions` and
    `end_positions` of the first answer (texts and first characters are given), both 0 where it is not wholly there;
    `offsets`, for each token the characters [first, last + 1] that it covers, [-1, -1] where it is not of the context;
    `is_last`, whether the context ends here."""
    longest = min(MAX_QUESTION, tokenizer.model_max_length // 4)
    tokenized = tokenizer(
        questions, add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    questions = list(questions)
    for i, offsets in enumerate(tokenized["offset_mapping"]):
        if len(offsets) > longest:
            questions[i] = questions[i][: offsets[longest - 1][1]]
            while (
                len(tokenizer.tokenize(questions[i])) > longest
            ):  # a character may be several tokens
                questions[i] = questions[i][:-1]
    parts = {
        "truncation": "only_second",
        "stride": tokenizer.model_max_length // 3,
        "return_overflowing_tokens": True,
    }
    encoded = tokenizer(questions, contexts, return_offsets_mapping=True, **parts)
    question_of, all_offsets = (
        encoded.pop("overflow_to_sample_mapping"),
        encoded.pop("offset_mapping"),
    )
    rows = {"start_positions": [], "end_positions": [], "offsets": [], "is_last": []}
    for i, (question, offsets) in enumerate(zip(question_of, all_offsets)):
        offsets = [
            pair if segment == 1 else (-1, -1)
            for pair, segment in zip(offsets, encoded.sequence_ids(i))
        ]
        first, last = NULL, NULL
        if answers[question]:
            text, start = answers[question][0], starts[question][0]
            first, last = answer_tokens(offsets, start, start + len(text)) or (NULL, NULL)
        rows["start_positions"].append(first)
        rows["end_positions"].append(last)
        rows["offsets"].append(offsets)
        rows["is_last"].append(i + 1 == len(question_of) or question_of[i + 1] != question)
    return {**encoded, **rows}


def answer_tokens(
    offsets: Sequence[tuple[int, int]], start: int, end: int
) -> tuple[int, int] | None:
    """The first and last token of a window that together cover characters `start` to `end - 1`; None if the answer is
    not wholly in it. `offsets`: as `encode_questions` makes them. Characters that belong to no token (such as accents
    that a normalizer drops) are in it where a token of the context follows or goes before."""
    shown = [i for i, (first, _) in enumerate(offsets) if first >= 0]
    inside = [i for i in shown if offsets[i][0] < end and offsets[i][1] > start]
    covered = inside and (offsets[inside[0]][0] <= start or inside[0] > shown[0])
    covered = covered and (end <= offsets[inside[-1]][1] or inside[-1] < shown[-1])
    return (inside[0], inside[-1]) if covered else None


def best_answer(
    windows: Iterable[tuple[np.ndarray, Sequence[tuple[int, int]]]],
    context: str,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> str:
    """The text with the highest sum of the logits of its first and last token over all windows of one question; empty
    where nothing of the context can be it.

    Args:
        windows: of each the logits of its tokens as first and as last one of the answer, [tokens or more, 2], and their
            `offsets`, see `encode_questions`.
        max_answer_length: in tokens.
        null_threshold: by how much the score of the empty answer (the lowest null logit of the windows; Devlin et al.
            2019, section 4.3) must exceed the best answer's to be given; None: there is always an answer.
    """
    null, best, text = np.inf, -np.inf, ""
    for logits, offsets in windows:
        logits = np.asarray(logits[: len(offsets)], float)  # without padding
        null = min(null, float(logits[NULL].sum()))
        first, last = np.where(
            np.array(offsets)[:, :1] >= 0, logits, -np.inf
        ).T  # of the context only
        last = np.pad(last, (0, max_answer_length - 1), constant_values=-np.inf)
        scores = first[:, None] + sliding_window_view(
            last, max_answer_length
        )  # i, j: from token i to i + j
        while scores.max() > best:
            i, j = np.unravel_index(scores.argmax(), scores.shape)
            end = max([offsets[i + j][1], *(after for after, _ in offsets[i + j + 1 : i + j + 2])])
            # Up to the next token: accents may belong to none. Byte-level tokens begin with the space before a word.
            if found := context[offsets[i][0] : end].strip():
                best, text = scores[i, j], found
            scores[i, j] = -np.inf
    return "" if null_threshold is not None and null - best > null_threshold else text
