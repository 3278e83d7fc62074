"""Answer questions with a part of a context (extractive question answering)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertForQuestionAnswering
from ....option_checks import checked_class
from ...data.sentences import sentences_by_line
from ...evaluation.answer_metrics import answer_scores, compare_answers
from ...evaluation.intervals import Interval, intervals_of_means
from ...evaluation.plots import plot_scores
from ..reading.columns import as_list, bad_value, map_examples, with_column
from .answer_windows import best_answer, encode_questions
from .base import Learned, Task
from .display import shortened
from .predictions import LABEL, SCORE_FEATURE, STRING_FEATURE, Labels, Predictions, Scores

# The column that `read` adds beside `LABEL`: the first characters of the answers.
ANSWER_STARTS = "_starts"
# Tokens of an input, as BERT had them on SQuAD.
DEFAULT_MAX_LENGTH = 384
# Where the tokenizer's config keeps the threshold of the training.
NULL_THRESHOLD_KEY = "null_threshold"
# The share of answers above `max_answer_length` from which on it is said.
MIN_SHARE_OF_LONG_ANSWERS = 0.05
ANSWERS_EXAMPLE = (
    '{"text": ["1907"], "answer_start": [24]}, or for no answer {"text": [], "answer_start": []}'
)


@dataclass
class LearnedAnswers(Learned):
    """What `AnswerQuestions` has learned."""

    # By how much "no answer" must beat the best answer; None: there is always one.
    null_threshold: float | None = None


@checked_class
@dataclass(eq=False)
class AnswerQuestions(Task):
    """A model that answers questions with a part of a text. Longer texts are read in parts that
    share a third.

    Args:
        question_column: The column of the question; by default guessed by its name.
        context_column: The column of the context; by default guessed by its name.
        answers_column: The column of {text: […], answer_start: […]}, as in SQuAD; by default
            guessed by its name.
        max_length: Longest input, in tokens; longer contexts are read in parts. By default that of
            a model trained for this task, else at most 384.
        max_answer_length: Longest answer, in tokens.
    """

    name = "answer"
    model_class = MiniBertForQuestionAnswering
    learned_class = LearnedAnswers
    metric_for_best_model = "f1"
    baseline_name = "most alike sentence"
    keeps_max_length = True  # that of its windows
    shortest_input = 128
    columns = {
        "question_column": ("question",),
        "context_column": ("context", "passage", "text"),
        "answers_column": ("answers", "answer"),
    }
    group_columns = slice(1, 2)  # the context
    label_feature = datasets.List(datasets.Value("string"))

    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    question_column: str | None = None
    context_column: str | None = None
    answers_column: str | None = None
    max_length: int | None = None
    max_answer_length: int = 30

    def __post_init__(self):
        super().__post_init__()
        self.tokenizer.padding_side = "right"  # positions are columns

    # --- labelled examples ---

    def read_labels(self, split: datasets.Dataset) -> list[list[tuple[str, int]]]:
        """The answers of each example, as text and first character, without the spaces around
        them."""
        return map_examples(split, self._answers, split)

    def _answers(self, example: dict[str, Any]) -> list[tuple[str, int]]:
        # SQuAD 2.0; what some files list there is plausible, but wrong.
        if example.get("is_impossible"):
            return []
        context = example[self.text_columns[1]]
        texts, starts = self._texts_and_starts(example[self.learned.label_column])
        answers = []
        for text, start in zip(texts, starts):
            text_there = context[start : start + len(text)] if start >= 0 else ""
            if text_there != text or not text.strip():
                # A nested file has no rows.
                question = f" of question {example['id']!r}" if example.get("id") else ""
                raise bad_value(
                    self.learned.label_column,
                    text,
                    "a part of the context and its first character",
                    f"{question} with answer_start {start} does not match the context,"
                    f" which has {text_there!r} there",
                )
            num_leading_spaces = len(text) - len(text.lstrip())
            answers.append((text.strip(), start + num_leading_spaces))
        return answers

    def _texts_and_starts(self, cell: Any) -> tuple[list[str], list[int]]:
        """The texts and the first characters of a cell of answers; a ValueError for another
        form."""
        if not isinstance(cell, dict) or not {"text", "answer_start"} <= cell.keys():
            raise bad_value(self.learned.label_column, cell, ANSWERS_EXAMPLE)
        texts = as_list(cell["text"])
        starts = as_list(cell["answer_start"])
        are_texts = all(isinstance(text, str) for text in texts)
        are_numbers = all(isinstance(start, int) for start in starts)
        if not are_texts or not are_numbers or len(texts) != len(starts):
            raise bad_value(self.learned.label_column, cell, ANSWERS_EXAMPLE)
        return texts, starts

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        # A model trained for this task keeps its own length.
        if self.max_length is None and config is None:
            model_max_length = self.tokenizer.model_max_length
            self.tokenizer.model_max_length = min(DEFAULT_MAX_LENGTH, model_max_length)
        for name, rows in labels.items():
            self._check_lengths(name, [answers[0][0] for answers in rows if answers])
        saved_settings = self.tokenizer.init_kwargs
        if "train" in labels:
            self.learned.null_threshold = None if all(labels["train"]) else 0.0
        elif NULL_THRESHOLD_KEY in saved_settings:
            self.learned.null_threshold = saved_settings[NULL_THRESHOLD_KEY]
        else:
            self.learned.null_threshold = None if all(map(all, labels.values())) else 0.0
        saved_settings[NULL_THRESHOLD_KEY] = self.learned.null_threshold
        return labels

    def _check_lengths(self, split: str, answers: list[str]) -> None:
        """Refuse a split of which no answer can be given, and say if many cannot."""
        if not answers:
            return
        encoded = self.tokenizer(answers, add_special_tokens=False, verbose=False)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        num_long = (lengths > self.max_answer_length).sum()
        if num_long <= MIN_SHARE_OF_LONG_ANSWERS * len(lengths):
            return
        message = (
            f"{num_long:,} of {len(lengths):,} answers of the {split} rows are longer than"
            f" {self.max_answer_length} tokens and cannot be given;"
            f" give --max_answer_length {lengths.max()}"
        )
        if num_long == len(lengths):
            raise ValueError(f"max_answer_length: {message}")
        print(message)

    def with_labels(
        self, split: datasets.Dataset, labels: list[list[tuple[str, int]]]
    ) -> datasets.Dataset:
        texts = [[text for text, _ in answers] for answers in labels]
        starts = [[start for _, start in answers] for answers in labels]
        with_texts = super().with_labels(split, texts)
        feature = datasets.List(datasets.Value("int64"))
        return with_column(with_texts, ANSWER_STARTS, starts, feature)

    # --- examples without labels, for `predict` ---

    def use_labels_of(self, config: PreTrainedConfig) -> None:
        self.learned.null_threshold = self.tokenizer.init_kwargs.get(NULL_THRESHOLD_KEY)

    def placeholders(self, split: datasets.Dataset) -> list[list[tuple[str, int]]]:
        return [[]] * len(split)

    # --- the model's inputs and outputs ---

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(split, [*self.text_columns, LABEL, ANSWER_STARTS], encode_questions)

    def preprocess_logits(
        self, logits: Sequence[torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """The logits of each token as the first and as the last one: [batch, length, 2]."""
        return torch.stack(logits[:2], -1).float()

    def confidence(
        self, logits: Sequence[torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        return torch.stack(logits[:2]).float().softmax(-1).amax(-1).prod(0)

    def confidence_of_examples(self, predictions: Predictions) -> list[float]:
        """Of a context that is read in parts, the confidence of the surest one."""
        last_windows = np.flatnonzero(predictions.encoded["is_last"])
        first_windows = [0, *last_windows[:-1] + 1]
        return np.maximum.reduceat(predictions.confidence, first_windows).tolist()

    def decode(self, predictions: Predictions) -> Iterator[str]:
        """The texts of the answers; empty: there is none."""
        null_threshold = self.learned.null_threshold
        contexts = iter(predictions.examples[self.text_columns[1]])
        encoded = predictions.encoded.select_columns(["offsets", "is_last"])
        windows = []
        for logits, window in zip(predictions.outputs, encoded):
            windows.append((logits, window["offsets"]))
            if window["is_last"]:
                context = next(contexts)
                yield best_answer(windows, context, self.max_answer_length, null_threshold)
                windows = []

    # --- metrics ---

    def score(self, predictions: Iterable[str], references: Sequence[list[str]]) -> Scores:
        from ...evaluation.squad_metrics import SquadScores

        return SquadScores().compute(predictions=list(predictions), references=references)

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        return list(self.score([""] * len(examples), examples[LABEL][:]))

    # --- what the predictions are worth ---

    def guesses(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> list[list[str]]:
        """The sentence with most words of the question; or never an answer."""
        sentences = []
        questions = examples[self.text_columns[0]]
        contexts = examples[self.text_columns[1]]
        for question, context in zip(questions, contexts):
            sentences.append(most_alike_sentence(question, context))
        return [sentences, [""] * len(examples)]

    def intervals(
        self, predictions: Sequence[str], references: Sequence[list[str]]
    ) -> dict[str, Interval]:
        exact, f1 = answer_scores(predictions, references)
        interval_of = intervals_of_means({"exact_match": exact, "f1": f1})
        is_answerable = np.array([bool(answers) for answers in references])
        if is_answerable.any() and not is_answerable.all():
            interval_of |= intervals_of_means({"f1_answerable": f1[is_answerable]})
            interval_of |= intervals_of_means({"f1_unanswerable": f1[~is_answerable]})
        return interval_of

    # --- how they are shown ---

    @property
    def prediction_features(self) -> datasets.Features:
        return datasets.Features({"answer": STRING_FEATURE, "score": SCORE_FEATURE})

    def describe_predictions(self, predictions: Predictions) -> dict[str, list[Any]]:
        """An answer, empty if there is none, and the confidence of the surest part of the
        context."""
        return {
            "answer": list(self.decode(predictions)),
            "score": self.confidence_of_examples(predictions),
        }

    def mistake(self, predicted: str, true: list[str], confidence: float) -> float:
        for answer in true or [""]:
            is_same, _ = compare_answers(predicted, answer)
            if is_same:
                return 0.0
        return confidence

    def show_input(self, example: Mapping[str, Any]) -> str:
        return shortened(example[self.text_columns[0]])

    def show_label(self, example: Mapping[str, Any], label: str | list[str]) -> str:
        different_answers = dict.fromkeys(as_list(label or []))
        return " or ".join(map(repr, different_answers)) or "no answer"

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        plot_scores(self.compute_metrics(predictions), "score", path, note)

    def example_inputs(self, example: Mapping[str, Any]) -> dict[str, Any]:
        question, context = self.text_columns
        return {"question": example[question], "context": example[context]}

    def card_fields(self) -> dict[str, Any]:
        return {"max_answer_length": self.max_answer_length}


def most_alike_sentence(question: str, context: str) -> str:
    """The sentence with most words of the question; empty if the context has none."""
    question_words = set(question.lower().split())
    most_alike = ""
    max_shared = -1
    for sentence in sentences_by_line(context):
        num_shared = len(question_words.intersection(sentence.lower().split()))
        if num_shared > max_shared:
            most_alike = sentence
            max_shared = num_shared
    return most_alike
