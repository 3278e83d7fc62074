"""Answer questions with a part of a context (extractive question answering)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from ....modeling_minibert import MiniBertForQuestionAnswering
from ...arguments.finetuning import AnswerArguments
from ...metrics import SquadScores
from ...report import plot_scores
from ..data import check_columns, check_texts, find_column, where
from .base import Task, map_rows
from .spans import Answer, WindowScores, answer_tokens, best_answers

QUESTIONS, CONTEXTS, ANSWERS = ("question",), ("context", "passage", "text"), ("answers", "answer")
READ_ANSWERS, READ_STARTS = "_answers", "_starts"  # the columns that `read` adds: texts and first characters
MAX_LENGTH = 384  # of BERT on SQuAD
NULL = 0  # the token that stands for "no answer here": the first one, [CLS]


class AnswerQuestions(Task):
    """A classifier of tokens as the first and the last one of the answer."""

    name = "answer"
    model_class = MiniBertForQuestionAnswering
    metric_for_best_model = "f1"

    def __init__(self, arguments: AnswerArguments, tokenizer: PreTrainedTokenizerBase):
        super().__init__(arguments, tokenizer)
        self.null_threshold = arguments.null_threshold

    @property
    def stride(self) -> int:
        """Tokens that neighbouring parts of a context share."""
        return self.tokenizer.model_max_length // 3 if self.arguments.stride is None else self.arguments.stride

    @property
    def shortest_input(self) -> int:
        """The least number of tokens with which `stride` is legal."""
        taken = self._taken()
        return taken * 3 // 2 + 1 if self.arguments.stride is None else taken + self.arguments.stride + 1

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        arguments, first = self.arguments, next(iter(splits.values()))
        self.question_column = find_column(
            first, arguments.question_column, QUESTIONS, "question_column", "the question"
        )
        (self.context_column,) = self.group_columns(first)
        self.answers_column = self.find_labels(first)
        if arguments.max_length is None and config is None:  # a model trained for this task keeps its own length
            self.tokenizer.model_max_length = min(MAX_LENGTH, self.tokenizer.model_max_length)
        self._check_stride()
        read = {}
        for name, split in splits.items():
            check_columns(split, [self.answers_column], "answers_column")
            self._check_texts(split)
            read[name] = _with_answers(split, [self._checked(row) for row in split])
        answerable = [bool(answers) for split in read.values() for answers in split[READ_ANSWERS]]
        if arguments.null_threshold is None:  # where every question has an answer, "none" is no candidate
            self.null_threshold = None if all(answerable) else 0.0
        return datasets.DatasetDict(read)

    def find_labels(self, split: datasets.Dataset) -> str:
        return find_column(split, self.arguments.answers_column, ANSWERS, "answers_column", "the answers")

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        self._check_texts(split)
        return _with_answers(split, [[] for _ in range(len(split))])

    def group_columns(self, split: datasets.Dataset) -> list[str]:
        return [find_column(split, self.arguments.context_column, CONTEXTS, "context_column", "the context")]

    def config_fields(self) -> dict[str, Any]:
        return {}

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        self._check_stride()  # `--plan` changes the longest input after reading
        return map_rows(
            split.select_columns([self.question_column, self.context_column, READ_ANSWERS, READ_STARTS]),
            encode_questions,
            self.tokenizer,
            columns=[self.question_column, self.context_column],
            stride=self.stride,
            max_question_length=self.arguments.max_question_length,
            desc="Tokenizing",
        )

    def collator(self) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
        self.tokenizer.padding_side = "right"  # positions are columns
        return DataCollatorWithPadding(self.tokenizer)

    def preprocess_logits(
        self, logits: tuple[torch.Tensor, torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """The best tokens of each window, as starts and as ends: their numbers and logits, each [batch, k]; and the
        logit of "no answer", [batch, 1]. The question's tokens may be among them: k leaves room for all of those."""
        special = self.tokenizer.num_special_tokens_to_add(pair=True)
        k = min(self.arguments.n_best + self.arguments.max_question_length + special, logits[0].shape[1])
        (start_logits, starts), (end_logits, ends) = (side.float().topk(k) for side in logits[:2])
        null = (logits[0][:, NULL] + logits[1][:, NULL]).float().unsqueeze(1)
        return starts.int(), start_logits, ends.int(), end_logits, null

    def predict(self, prediction: EvalPrediction, examples: datasets.Dataset) -> Iterator[list[Answer]]:
        """The best answers to each question, best first."""
        encoded = self.encode(examples, training=False).select_columns(["offsets", "is_last"])
        windows = iter(zip(encoded, *prediction.predictions))
        for context in examples[self.context_column]:
            of_question, is_last = [], False
            while not is_last:
                window, *kept = next(windows)
                is_last = window["is_last"]
                of_question.append(_window_scores(window["offsets"], *kept))
            yield self.best(of_question, context)

    def best(self, windows: list[WindowScores], context: str) -> list[Answer]:
        """The best answers to a question from all windows of its context."""
        return best_answers(
            windows,
            context,
            n_best=self.arguments.n_best,
            max_answer_length=self.arguments.max_answer_length,
            null_threshold=self.null_threshold,
        )

    def compute_metrics(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, float]:
        predictions = self.predicted(prediction, examples)
        return SquadScores().compute(predictions=predictions, references=examples[READ_ANSWERS][:])

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        references = examples[READ_ANSWERS][:]  # which ones there are depends on the kinds of questions
        return list(SquadScores().compute(predictions=[""] * len(references), references=references))

    def predicted(self, prediction: EvalPrediction, examples: datasets.Dataset) -> list[str]:
        """The texts of the answers; empty: there is none."""
        return [answers[0].text for answers in self.predict(prediction, examples)]

    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        """F1 of questions by their first word."""
        found: dict[str, tuple[list[str], list[list[str]]]] = {}
        rows = zip(examples[self.question_column], examples[READ_ANSWERS], self.predict(prediction, examples))
        for question, true, answers in rows:
            kind = next((word for word in question.lower().split() if word in QUESTION_WORDS), "other")
            predictions, references = found.setdefault(kind, ([], []))
            predictions.append(answers[0].text)
            references.append(true)
        ordered = sorted(found.items(), key=lambda item: -len(item[1][0]))
        plot_scores(
            {
                f"{kind} ({len(predictions):,})": SquadScores().compute(predictions=predictions, references=references)[
                    "f1"
                ]
                for kind, (predictions, references) in ordered
            },
            "F1 of questions with this word (their number)",
            path,
        )

    def show(self, folder: Path, examples: datasets.Dataset) -> list[str]:
        lines, arguments = [], dataclasses.replace(self.arguments, null_threshold=self.null_threshold)
        for row in examples.select(range(min(3, len(examples)))):
            answer = answer_question(folder, row[self.question_column], row[self.context_column], arguments)
            said = repr(answer.text) if answer.text else "no answer"
            true = " or ".join(repr(text) for text in dict.fromkeys(row[READ_ANSWERS])) or "no answer"
            lines += [f"  {row[self.question_column].strip()}", f"    {said}; in the data: {true}"]
        return lines

    def _taken(self) -> int:
        """Tokens of an input that are not the context's, at most."""
        return self.arguments.max_question_length + self.tokenizer.num_special_tokens_to_add(pair=True)

    def _check_stride(self) -> None:
        length, taken = self.tokenizer.model_max_length, self._taken()
        room = length - taken
        if room < 1:
            special = taken - self.arguments.max_question_length
            raise ValueError(
                f"max_question_length: {self.arguments.max_question_length} is not legal: inputs of {length} tokens, of"
                f" which {special} are special ones, leave nothing for the context; legal: below {length - special}"
            )
        if not 0 <= self.stride < room:
            raise ValueError(
                f"stride: {self.stride} is not legal: inputs of {length} tokens with"
                f" questions of up to {self.arguments.max_question_length} leave {room} for the context, of which"
                " fewer may be shared"
            )

    def _check_texts(self, split: datasets.Dataset) -> None:
        columns = [self.question_column, self.context_column]
        check_columns(split, columns, "question_column, context_column")
        check_texts(split, columns)

    def _checked(self, row: dict[str, Any]) -> list[tuple[str, int]]:
        """The answers of a row, as text and first character, without the spaces around them: no token has to hold
        those."""
        answers, context = row[self.answers_column], row[self.context_column]
        place = where(row) + (f" (id {row['id']!r})" if row.get("id") else "")  # a nested file has no rows
        given = answers if isinstance(answers, dict) else {}
        texts, starts = (_as_list(given.get(part)) for part in ("text", "answer_start"))
        readable = all(isinstance(text, str) for text in texts) and all(isinstance(start, int) for start in starts)
        if not {"text", "answer_start"} <= given.keys() or not readable:
            raise ValueError(
                f"{place}: {self.answers_column!r} is {answers!r}; legal: {{text: [...], answer_start: [...]}}, "
                "texts and the numbers of their first characters"
            )
        if len(texts) != len(starts):
            raise ValueError(
                f"{place}: {len(texts)} texts but {len(starts)} offsets in {self.answers_column!r}; legal: as many"
            )
        for text, start in zip(texts, starts):
            there = context[start : start + len(text)] if start >= 0 else ""
            if there != text or not text.strip():
                raise ValueError(
                    f"{place}: the answer {text!r} with answer_start {start} does not match the context, which has"
                    f" {there!r} there"
                )
        return [(text.strip(), start + len(text) - len(text.lstrip())) for text, start in zip(texts, starts)]


def _as_list(value: Any) -> list[Any]:
    """A single answer stands for a list of one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _with_answers(split: datasets.Dataset, answers: list[list[tuple[str, int]]]) -> datasets.Dataset:
    split = split.remove_columns([c for c in (READ_ANSWERS, READ_STARTS) if c in split.column_names])
    texts, starts = ([[answer[part] for answer in row] for row in answers] for part in (0, 1))
    split = split.add_column(READ_ANSWERS, texts, feature=datasets.List(datasets.Value("string")))
    return split.add_column(READ_STARTS, starts, feature=datasets.List(datasets.Value("int64")))


QUESTION_WORDS = ("what", "who", "whom", "whose", "which", "when", "where", "why", "how")


def encode_questions(
    batch: dict[str, list], tokenizer, columns: list[str], stride: int, max_question_length: int
) -> dict[str, list]:
    """Pairs of a question and a part of its context of at most `tokenizer.model_max_length` tokens; neighbouring parts
    share `stride` tokens. One row each, in order. Beside the model's inputs: `start_positions` and `end_positions` of
    the first answer, both 0 where it is not wholly there; `offsets`, for each token the characters [first, last + 1] of
    the context that it covers, [-1, -1] where it is not of the context; `is_last`, whether the context ends here.

    Args:
        columns: of the question and of the context.
        max_question_length: in tokens; longer questions are cut.
    """
    questions, contexts = batch[columns[0]], batch[columns[1]]
    tokenized = tokenizer(questions, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    questions = [
        question[: offsets[max_question_length - 1][1]] if len(offsets) > max_question_length else question
        for question, offsets in zip(questions, tokenized["offset_mapping"])
    ]
    encoded = tokenizer(
        questions,
        contexts,
        truncation="only_second",
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    question_of, all_offsets = encoded.pop("overflow_to_sample_mapping"), encoded.pop("offset_mapping")
    rows = {"start_positions": [], "end_positions": [], "offsets": [], "is_last": []}
    for i, (question, offsets) in enumerate(zip(question_of, all_offsets)):
        offsets = [offset if segment == 1 else None for offset, segment in zip(offsets, encoded.sequence_ids(i))]
        tokens = None
        if batch[READ_ANSWERS][question]:
            text, start = batch[READ_ANSWERS][question][0], batch[READ_STARTS][question][0]
            tokens = answer_tokens(offsets, start, start + len(text))
        first, last = tokens or (NULL, NULL)
        rows["start_positions"].append(first)
        rows["end_positions"].append(last)
        rows["offsets"].append([(-1, -1) if offset is None else offset for offset in offsets])
        rows["is_last"].append(i + 1 == len(question_of) or question_of[i + 1] != question)
    return {**encoded, **rows}


def answer_question(
    folder: str | Path, question: str, context: str, arguments: AnswerArguments | None = None
) -> Answer:
    """The best answer of a saved model to one question (Transformers 5 has no pipeline for it).

    Args:
        folder: of a model that `minibert finetune answer` saved, or a name on the Hub.
        arguments: how contexts are cut and answers decoded; those of the training, or else the defaults.
    """
    model, tokenizer = _load(str(folder))
    tokenizer.model_max_length = min(tokenizer.model_max_length, model.config.max_position_embeddings)
    task = AnswerQuestions(arguments or AnswerArguments(), tokenizer)
    batch = {"question": [question], "context": [context], READ_ANSWERS: [[]], READ_STARTS: [[]]}
    encoded = encode_questions(
        batch, tokenizer, ["question", "context"], task.stride, task.arguments.max_question_length
    )
    inputs = {name: encoded[name] for name in tokenizer.model_input_names if name in encoded}
    inputs = tokenizer.pad(inputs, padding_side="right", return_tensors="pt")
    with torch.inference_mode():
        output = model(**inputs)
    kept = task.preprocess_logits((output.start_logits, output.end_logits), inputs)
    rows = zip(encoded["offsets"], *(part.numpy() for part in kept))
    return task.best([_window_scores(*row) for row in rows], context)[0]


@lru_cache(maxsize=1)
def _load(folder: str):
    return AutoModelForQuestionAnswering.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def _window_scores(offsets, starts, start_logits, ends, end_logits, null) -> WindowScores:
    """What `preprocess_logits` kept of one window, without tokens outside of the context."""
    of_context = np.array([first >= 0 for first, _ in offsets])

    def candidates(tokens: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        there = (tokens >= 0) & (tokens < len(offsets))  # padding of shorter batches, and of this one
        tokens, logits = tokens[there], logits[there]
        return tokens[of_context[tokens]], logits[of_context[tokens]]

    return WindowScores(*candidates(starts, start_logits), *candidates(ends, end_logits), float(null[0]), offsets)
