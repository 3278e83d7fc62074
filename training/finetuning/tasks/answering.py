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
from ....option_checks import checked_class
from ...data.sentences import sentences_by_line
from ...evaluation.intervals import Interval, intervals_of_means
from ...evaluation.metrics import answer_scores, compare_answers
from ...evaluation.plots import plot_scores
from ..reading.columns import as_list, bad_value, map_examples, with_column
from .base import (
    LABEL,
    SCORE_FEATURE,
    STRING_FEATURE,
    Labels,
    Learned,
    Predictions,
    Scores,
    Task,
    shortened,
)

# The column that `read` adds beside `LABEL`: the first characters of the answers.
ANSWER_STARTS = "_starts"
# Tokens of an input and of its question, as BERT had them on SQuAD.
DEFAULT_MAX_LENGTH = 384
MAX_QUESTION_LENGTH = 64
# Where the tokenizer's config keeps the threshold of the training.
NULL_THRESHOLD_KEY = "null_threshold"
# The share of answers above `max_answer_length` from which on it is said.
MIN_SHARE_OF_LONG_ANSWERS = 0.05
# The token that stands for "no answer here": the first one, [CLS].
NULL_TOKEN = 0
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
    baseline = "most alike sentence"
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

    def use_labels_of(self, config: PreTrainedConfig) -> None:
        self.learned.null_threshold = self.tokenizer.init_kwargs.get(NULL_THRESHOLD_KEY)

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

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(split, [*self.text_columns, LABEL, ANSWER_STARTS], encode_questions)

    def preprocess_logits(
        self, logits: Sequence[torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """The logits of each token as the first and as the last one: [batch, length, 2]."""
        return torch.stack(logits[:2], -1).float()

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

    def placeholders(self, split: datasets.Dataset) -> list[list[tuple[str, int]]]:
        return [[]] * len(split)

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

    def score(self, predictions: Iterable[str], references: Sequence[list[str]]) -> Scores:
        from ...evaluation.squad_metrics import SquadScores

        return SquadScores().compute(predictions=list(predictions), references=references)

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        return list(self.score([""] * len(examples), examples[LABEL][:]))

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

    def confidence(
        self, logits: Sequence[torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        return torch.stack(logits[:2]).float().softmax(-1).amax(-1).prod(0)

    def confidence_of_examples(self, predictions: Predictions) -> list[float]:
        """Of a context that is read in parts, the confidence of the surest one."""
        last_windows = np.flatnonzero(predictions.encoded["is_last"])
        first_windows = [0, *last_windows[:-1] + 1]
        return np.maximum.reduceat(predictions.confidence, first_windows).tolist()

    def mistake(self, predicted: str, true: list[str], confidence: float) -> float:
        for answer in true or [""]:
            is_same, _ = compare_answers(predicted, answer)
            if is_same:
                return 0.0
        return confidence

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        plot_scores(self.compute_metrics(predictions), "score", path, note)

    def example_inputs(self, example: Mapping[str, Any]) -> dict[str, Any]:
        question, context = self.text_columns
        return {"question": example[question], "context": example[context]}

    def card_fields(self) -> dict[str, Any]:
        return {"max_answer_length": self.max_answer_length}

    def show_input(self, example: Mapping[str, Any]) -> str:
        return shortened(example[self.text_columns[0]])

    def show_label(self, example: Mapping[str, Any], label: str | list[str]) -> str:
        different_answers = dict.fromkeys(as_list(label or []))
        return " or ".join(map(repr, different_answers)) or "no answer"


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


def encode_questions(tokenizer, questions, contexts, answers, starts) -> dict[str, list]:
    """Pairs of a question, cut to `MAX_QUESTION_LENGTH` tokens, and a part of its context,
    `model_max_length` tokens at most; neighbouring parts share a third of that. One row each, in
    order. Beside the model's inputs: `start_positions` and `end_positions` of the first answer
    (texts and first characters are given), both 0 where it is not wholly there; `offsets`, for each
    token the characters [first, last + 1] that it covers, [-1, -1] where it is not of the context;
    `is_last`, whether the context ends here."""
    encoded = tokenizer(
        cut_questions(tokenizer, questions),
        contexts,
        truncation="only_second",
        stride=tokenizer.model_max_length // 3,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    question_of = encoded.pop("overflow_to_sample_mapping")
    all_offsets = encoded.pop("offset_mapping")
    rows = {"start_positions": [], "end_positions": [], "offsets": [], "is_last": []}
    for window, question in enumerate(question_of):
        segments = encoded.sequence_ids(window)
        offsets = []
        for segment, characters in zip(segments, all_offsets[window]):
            offsets.append(characters if segment == 1 else (-1, -1))
        first = NULL_TOKEN
        last = NULL_TOKEN
        if answers[question]:
            text = answers[question][0]
            start = starts[question][0]
            tokens = answer_tokens(offsets, start, start + len(text))
            if tokens is not None:
                first, last = tokens
        is_last = window + 1 == len(question_of) or question_of[window + 1] != question
        rows["start_positions"].append(first)
        rows["end_positions"].append(last)
        rows["offsets"].append(offsets)
        rows["is_last"].append(is_last)
    return {**encoded, **rows}


def cut_questions(tokenizer, questions: Sequence[str]) -> list[str]:
    """The questions, cut to `MAX_QUESTION_LENGTH` tokens, or a quarter of the input if that is
    less."""
    max_length = min(MAX_QUESTION_LENGTH, tokenizer.model_max_length // 4)
    tokenized = tokenizer(
        questions, add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    cut = []
    for question, offsets in zip(questions, tokenized["offset_mapping"]):
        if len(offsets) > max_length:
            question = question[: offsets[max_length - 1][1]]
            # A character may be several tokens.
            while len(tokenizer.tokenize(question)) > max_length:
                question = question[:-1]
        cut.append(question)
    return cut


def answer_tokens(
    offsets: Sequence[tuple[int, int]], start: int, end: int
) -> tuple[int, int] | None:
    """The first and last token of a window that together cover characters `start` to `end - 1`;
    None if the answer is not wholly in it. `offsets`: as `encode_questions` makes them. Characters
    that belong to no token (such as accents that a normalizer drops) are in it where a token of the
    context follows or goes before."""
    context_tokens = [token for token, (first, _) in enumerate(offsets) if first >= 0]
    answer = [
        token for token in context_tokens if offsets[token][0] < end and offsets[token][1] > start
    ]
    if not answer:
        return None
    begins_here = offsets[answer[0]][0] <= start or answer[0] > context_tokens[0]
    ends_here = end <= offsets[answer[-1]][1] or answer[-1] < context_tokens[-1]
    if not begins_here or not ends_here:
        return None
    return answer[0], answer[-1]


def best_answer(
    windows: Iterable[tuple[np.ndarray, Sequence[tuple[int, int]]]],
    context: str,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> str:
    """The text with the highest sum of the logits of its first and last token over all windows of
    one question; empty where nothing of the context can be it.

    Args:
        windows: of each the logits of its tokens as first and as last one of the answer, [tokens or
            more, 2], and their `offsets`, see `encode_questions`.
        max_answer_length: in tokens.
        null_threshold: by how much the score of the empty answer (the lowest null logit of the
            windows; Devlin et al. 2019, section 4.3) must exceed the best answer's to be given;
            None: there is always an answer.
    """
    null_score = np.inf
    best_score = -np.inf
    best_text = ""
    for logits, offsets in windows:
        logits = np.asarray(logits[: len(offsets)], float)  # without padding
        null_score = min(null_score, float(logits[NULL_TOKEN].sum()))
        is_context = np.array(offsets)[:, :1] >= 0
        first_logits, last_logits = np.where(is_context, logits, -np.inf).T
        # [i, j]: the score of the answer from token i to token i + j
        padded = np.pad(last_logits, (0, max_answer_length - 1), constant_values=-np.inf)
        scores = first_logits[:, None] + sliding_window_view(padded, max_answer_length)
        while scores.max() > best_score:
            i, j = np.unravel_index(scores.argmax(), scores.shape)
            text = text_of_tokens(context, offsets, i, i + j)
            if text:
                best_score = scores[i, j]
                best_text = text
            scores[i, j] = -np.inf
    if null_threshold is not None and null_score - best_score > null_threshold:
        return ""
    return best_text


def text_of_tokens(context: str, offsets: Sequence[tuple[int, int]], first: int, last: int) -> str:
    """The text of the tokens `first` to `last`, up to the next token: accents may belong to none.
    Byte-level tokens begin with the space before a word."""
    start = offsets[first][0]
    end = offsets[last][1]
    if last + 1 < len(offsets):
        end = max(end, offsets[last + 1][0])
    return context[start:end].strip()
