"""`minibert predict`: what a fine-tuned model says about examples that nobody has labelled.

Rows are read, predicted and written in chunks, so that a file of any length needs the same memory.
Each chunk goes the way of `minibert evaluate`: `Task.read_unlabelled` and `Task.encode`,
`TaskPredictor`, `Task.decode`. What a prediction says is `Task.describe_predictions`, and how it is
written is in `prediction_files`.
"""

import contextlib
import inspect
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from tqdm.auto import tqdm
from transformers import PreTrainedConfig

from ...option_checks import checked_keywords
from ..common.precision import resolve_precision
from ..common.printing import warn, without_bars
from ..common.random_state import random_state_kept
from ..data.tables import Rows, as_dataset, check_one_split
from ..loading.saved_files import modules_of
from .config import EvaluationConfig
from .prediction_files import (
    CONSOLE_OUTPUT,
    check_output,
    count_rows,
    file_of,
    read_chunks,
    with_numbers_of_csv,
    write_file,
    write_json_lines,
)
from .prediction_loop import TaskPredictor
from .reading.columns import FILE, ROW, with_column
from .start_model import (
    find_trained_head,
    fit_tokenizer,
    load_model,
    load_tokenizer,
    read_config,
)
from .tasks import task_class
from .tasks.base import Task
from .tasks.predictions import IS_CUT, Predictions

TASK_OF_HEAD = {
    "ForSequenceClassification": "classify",
    "ForMultipleChoice": "choose",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
}


@checked_keywords
@without_bars()
def predict(
    model: str | os.PathLike,
    data: str | Sequence[str] | os.PathLike | Rows,
    *,
    output: str | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    tokens_column: str | None = None,
    question_column: str | None = None,
    context_column: str | None = None,
    prefix_column: str | None = None,
    choice_columns: list[str] | None = None,
    columns: list[str] | None = None,
    max_length: int | None = None,
    batch_size: int = 64,
    bf16: bool | None = None,
) -> datasets.Dataset | None:
    """Predict with a model that was fine-tuned to classify, choose, tag or answer.

    The rows come out as they went in, with new columns. Classes: `label` and its probability,
    `score`. Several labels: lists of both. Values: `score`. Choices: `label` (from 0), `choice` and
    `score`. Entities: `entities`, of each its type, text, and first and last + 1 character; of
    lists of words also `tags`. Answers: `answer` (empty: there is none) and `score`. A column that
    the rows have already stays, and the new one is called predicted_NAME. A row without text gets
    empty predictions.

    Args:
        model: The fine-tuned model: a folder or a Hub name.
        data: Texts, or one file: a table (jsonl, csv, tsv, parquet, …), tagged words (CoNLL), or
            txt with a text in each line. In Python also rows: a `Dataset`, a DataFrame or
            dictionaries.
        output: The file of the predictions, .jsonl or .csv; "-" prints them as lines of JSON. In
            csv, a text that begins with =, +, - or @ gets a ' before it, so that no spreadsheet
            runs it as a formula; .jsonl has it as it is. In Python, they are returned without
            output.
        text_column: The column of the text (or of the first of two); by default guessed by its
            name, as in training. This holds for the other columns, too.
        pair_column: The column of the second text.
        tokens_column: Of a tagger: the column of the texts, or of lists of words.
        question_column: The column of the question.
        context_column: The column of the text with the answer.
        prefix_column: The column of a text that every choice begins with.
        choice_columns: The columns of the choices.
        columns: Names of the columns of a csv or tsv file without a header row.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        batch_size: Rows of a batch.
        bf16: Compute in bf16; by default if the hardware is fast at it, as in `minibert evaluate`.

    Returns:
        The rows with the predictions; with `output`, None.
    """
    column_options = {
        "text_column": text_column,
        "pair_column": pair_column,
        "tokens_column": tokens_column,
        "question_column": question_column,
        "context_column": context_column,
        "prefix_column": prefix_column,
        "choice_columns": choice_columns,
    }
    check_one_split(data)
    if isinstance(data, pd.DataFrame):
        data = as_dataset(data)
    file_of(data)  # refuses a name that is no table
    check_output(output, data)
    messages = contextlib.nullcontext()
    console = sys.stdout
    if output == CONSOLE_OUTPUT:
        # Lines of JSON are all that goes to the console.
        messages = contextlib.redirect_stdout(sys.stderr)
    with messages, random_state_kept(), tempfile.TemporaryDirectory() as folder:
        predictor = RowPredictor(str(model), column_options, max_length, batch_size, bf16, folder)
        chunks = predictor.predict(read_chunks(data, columns or ()), count_rows(data))
        predicted = None
        if output is None:
            predicted = datasets.concatenate_datasets(list(chunks))
        elif output == CONSOLE_OUTPUT:
            for chunk in chunks:
                write_json_lines(chunk, console)
        else:
            write_file(chunks, Path(output))
        predictor.print_notes()
    return predicted


# --- the steps of `predict` ---


class RowPredictor:
    """A fine-tuned model, which predicts for chunks of examples.

    Args:
        model: A folder or a Hub name.
        column_options: Options of tasks that name columns, and None for those that are not given.
        folder: For `Trainer`, which wants one. Nothing is left in it.
    """

    def __init__(
        self,
        model: str,
        column_options: Mapping[str, Any],
        max_length: int | None,
        batch_size: int,
        bf16: bool | None,
        folder: str,
    ):
        config = read_config(model)
        options = {name: value for name, value in column_options.items() if value}
        self.task = load_task_of(model, config, options, max_length)
        self.task.use_labels_of(config)
        args = resolve_precision(
            EvaluationConfig(
                folder,
                per_device_eval_batch_size=batch_size,
                bf16=bf16,
                disable_tqdm=True,
                eval_strategy="no",
                load_best_model_at_end=False,
                report_to="none",
            )
        )
        loaded_model = load_model(model, type(self.task), self.task.config_fields())
        self.predictor = TaskPredictor(self.task, loaded_model, args)
        self.new_names: dict[str, str] = {}  # of the columns of predictions
        self.num_rows = 0
        self.num_blank = 0
        self.num_cut = 0

    def predict(
        self, chunks: Iterable[datasets.Dataset], total: int | None
    ) -> Iterator[datasets.Dataset]:
        """Yield the chunks with the predictions. `total`: the number of all examples, if it is
        known, for the progress bar (which a file that is no terminal does not get)."""
        with tqdm(total=total, desc="Predicting", unit=" rows", disable=None) as progress:
            for chunk in chunks:
                yield self.predict_chunk(chunk)
                progress.update(len(chunk))

    def predict_chunk(self, chunk: datasets.Dataset) -> datasets.Dataset:
        """The examples of a chunk with the predictions."""
        if not self.num_rows:
            self.task.use_columns_of(with_numbers_of_csv(chunk))
        self.num_rows += len(chunk)
        filled = filled_examples(chunk, self.task.required_columns)
        self.num_blank += len(chunk) - len(filled)
        described: dict[str, list[Any]] = {}
        if filled:
            described = self._describe(chunk.select(filled))
        return self._add_columns(chunk.remove_columns([FILE, ROW]), described, filled)

    def _describe(self, rows: datasets.Dataset) -> dict[str, list[Any]]:
        """The predictions for examples that all have texts, by column."""
        examples = self.task.read_unlabelled(rows)
        encoded = self.task.encode(examples)
        if IS_CUT in encoded.column_names:
            self.num_cut += sum(encoded[IS_CUT])
        # Rows of similar length share a batch, the longest first: if the memory is too small, that
        # shows at once.
        longest_first = np.argsort([-input_length(ids) for ids in encoded["input_ids"]])
        output = self.predictor.predict(encoded.select(longest_first))
        # Accelerate remembers all data loaders, and with them the examples of earlier chunks.
        getattr(self.predictor.accelerator, "_dataloaders", []).clear()
        in_order = np.argsort(longest_first)
        outputs, confidence = output.predictions
        predictions = Predictions(
            examples,
            encoded,
            outputs[in_order],
            confidence[in_order],
            self.task.learned.thresholds,
        )
        return self.task.describe_predictions(predictions)

    def _add_columns(
        self, chunk: datasets.Dataset, described: Mapping[str, list[Any]], filled: Sequence[int]
    ) -> datasets.Dataset:
        """`chunk` with the predictions for the examples `filled`; None for the other ones."""
        features = self.task.prediction_features
        if not self.new_names:
            for name in features:
                self.new_names[name] = name
                if name in chunk.column_names:
                    self.new_names[name] = f"predicted_{name}"
        for name, feature in features.items():
            values: list[Any] = [None] * len(chunk)
            for index, value in zip(filled, described.get(name, ())):
                values[index] = value
            chunk = with_column(chunk, self.new_names[name], values, feature)
        return chunk

    def print_notes(self) -> None:
        """Say which examples got no full prediction."""
        for name, new_name in self.new_names.items():
            if new_name != name:
                print(f"The rows have a column {name!r}; the prediction is in {new_name!r}")
        if self.num_blank:
            warn(
                f"{self.num_blank:,} of {self.num_rows:,} rows have no text;"
                " their predictions are empty"
            )
        if self.num_cut:
            warn(
                f"{self.num_cut:,} of {self.num_rows:,} inputs are longer than"
                f" {self.task.tokenizer.model_max_length:,} tokens and were cut"
            )


def load_task_of(
    model: str, config: PreTrainedConfig, options: Mapping[str, Any], max_length: int | None
) -> Task:
    """The task that a model was fine-tuned for, with its tokenizer; a ValueError for another model,
    or for options of other tasks."""
    head = find_trained_head(config)
    if head is None:
        raise ValueError(
            f"model: {model!r} was not fine-tuned for a task; train it by `minibert finetune`"
            " (for vectors of texts, use `minibert embed`; for masks, `minibert fill`)"
        )
    if head == "ForSequenceClassification" and modules_of(model):
        raise ValueError(f"model: {model!r} is a reranker; use `minibert rerank`")
    cls = task_class(TASK_OF_HEAD[head])
    parameters = inspect.signature(cls).parameters
    for name in options:
        if name not in parameters:
            usable = [option for option in parameters if option.endswith(("_column", "_columns"))]
            raise ValueError(
                f"{name}: {model!r} was trained for '{cls.name}', which does not take it;"
                f" it takes {', '.join(usable)}"
            )
    tokenizer = load_tokenizer(model)
    fit_tokenizer(tokenizer, config, max_length)
    return cls(tokenizer, **options)


def filled_examples(chunk: datasets.Dataset, columns: Sequence[str]) -> list[int]:
    """The numbers of the examples that have something in all of these columns."""
    filled = []
    values_of_columns = [chunk[column] for column in columns]
    for index, cells in enumerate(zip(*values_of_columns)):
        if all(map(has_content, cells)):
            filled.append(index)
    return filled


def has_content(cell: Any) -> bool:
    """Whether a cell has something to predict for: no blank text, no empty list."""
    if isinstance(cell, str):
        return bool(cell.strip())
    return cell is not None and cell != []


def input_length(input_ids: Sequence[Any]) -> int:
    """The tokens of an input; of choices, of the longest one."""
    if isinstance(input_ids[0], Sequence):
        return max(map(len, input_ids))
    return len(input_ids)
