"""Fine-tuning by one plain `Trainer`: MiniBERT's class beside Transformers' own.

    python benchmarks/fine_tuning_classes.py --model all-MiniLM-L6-v2 --data data

Both start from the same weights, those of a new head included, and get the same batches. The folder
`data` holds sst2, ner_wikigold, sts, nli and qa, each with train and test as jsonl. Every run is
saved as soon as it ends; runs that are in the output file already are left out.

Batches of texts of about the same length, which is the default here, have hardly any padding.
`Trainer`'s own default is `--order random`, whose batches have more.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from common import option, parse, save_figures
from datasets import Dataset, load_dataset
from scipy.stats import spearmanr
from seqeval.metrics import f1_score
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)

from minibert.training.common.precision import fast_bf16
from minibert.training.conversion import from_native
from minibert.training.evaluation.answer_metrics import answer_scores

CODES = ("minibert", "transformers")
STRATEGIES = {"length": "group_by_length", "random": "random"}
IGNORED = -100


@dataclass(frozen=True)
class Task:
    """A data set, and what is done with it.

    Args:
        folder: of the data.
        model_class: of the head.
        encode: from a row of the data to inputs and labels.
        score: from predictions and the rows of the test set to the metric.
        train_rows: so many, at random; None: all.
        seeds: that are run.
        epochs, learning_rate: of the training.
    """

    folder: str
    model_class: Any
    encode: Callable[["Encoder", Mapping[str, Any]], dict[str, Any]]
    score: Callable[["Encoder", Any, Dataset], float]
    metric: str
    train_rows: int | None
    seeds: tuple[int, ...]
    epochs: float
    learning_rate: float


@dataclass(frozen=True)
class Encoder:
    """A tokenizer and the labels of a data set.

    Args:
        labels: the names of the classes; empty for numbers and spans.
    """

    tokenizer: PreTrainedTokenizerBase
    labels: list[str]
    max_length: int = 128

    def encode_text(self, row: Mapping[str, Any]) -> dict[str, Any]:
        inputs = self.tokenizer(row["text"], truncation=True, max_length=self.max_length)
        return {**inputs, "labels": int(row["label"])}

    def encode_pair(self, row: Mapping[str, Any]) -> dict[str, Any]:
        inputs = self.tokenizer(
            row["premise"], row["hypothesis"], truncation=True, max_length=self.max_length
        )
        return {**inputs, "labels": self.labels.index(row["label"])}

    def encode_similarity(self, row: Mapping[str, Any]) -> dict[str, Any]:
        inputs = self.tokenizer(
            row["sentence1"], row["sentence2"], truncation=True, max_length=self.max_length
        )
        return {**inputs, "labels": float(row["score"]) / 5}

    def encode_words(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The label of a word stands at its first token."""
        inputs = self.tokenizer(
            row["tokens"], is_split_into_words=True, truncation=True, max_length=self.max_length
        )
        labels = []
        word_before = None
        for word in inputs.word_ids():
            is_first = word is not None and word != word_before
            labels.append(self.labels.index(row["ner_tags"][word]) if is_first else IGNORED)
            word_before = word
        return {**inputs, "labels": labels}

    def encode_answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The first tokens of the text; an answer beyond them is at [CLS]."""
        inputs = self.tokenizer(
            row["question"], row["context"], truncation="only_second", max_length=384
        )
        start = row["answers"]["answer_start"][0]
        end = start + len(row["answers"]["text"][0])
        first = inputs.char_to_token(start, sequence_index=1)
        last = inputs.char_to_token(end - 1, sequence_index=1)
        if first is None or last is None:
            first = 0
            last = 0
        return {**inputs, "start_positions": first, "end_positions": last}

    # --- metrics ---

    def accuracy(self, output: Any, rows: Dataset) -> float:
        return float((output.predictions.argmax(-1) == output.label_ids).mean())

    def spearman(self, output: Any, rows: Dataset) -> float:
        return float(spearmanr(output.predictions.squeeze(-1), output.label_ids).statistic)

    def entity_f1(self, output: Any, rows: Dataset) -> float:
        predicted_rows = []
        true_rows = []
        for logits, labels in zip(output.predictions, output.label_ids):
            is_word = labels != IGNORED
            predicted_rows.append([self.labels[label] for label in logits[is_word].argmax(-1)])
            true_rows.append([self.labels[label] for label in labels[is_word]])
        return float(f1_score(true_rows, predicted_rows))

    def answer_f1(self, output: Any, rows: Dataset) -> float:
        """The token F1 of SQuAD, of the best span of at most 30 tokens of the text."""
        answers = []
        for number, row in enumerate(rows):
            start_logits = output.predictions[0][number]
            end_logits = output.predictions[1][number]
            inputs = self.tokenizer(
                row["question"], row["context"], truncation="only_second", max_length=384
            )
            is_text = np.array([sequence == 1 for sequence in inputs.sequence_ids()])
            length = len(is_text)
            spans = start_logits[:length, None] + end_logits[None, :length]
            allowed = np.tril(np.triu(np.ones((length, length), dtype=bool)), 29)
            allowed &= is_text[:, None] & is_text[None, :]
            first, last = np.unravel_index(np.where(allowed, spans, -np.inf).argmax(), spans.shape)
            text_start = inputs.token_to_chars(int(first)).start
            text_end = inputs.token_to_chars(int(last)).end
            answers.append(row["context"][text_start:text_end])
        _, f1 = answer_scores(answers, [row["answers"]["text"] for row in rows])
        return float(f1.mean())


TASKS = {
    "SST-2, 8,000 rows": Task(
        folder="sst2",
        model_class=AutoModelForSequenceClassification,
        encode=Encoder.encode_text,
        score=Encoder.accuracy,
        metric="accuracy",
        train_rows=8000,
        seeds=(0, 1, 2),
        epochs=2,
        learning_rate=1e-4,
    ),
    "WikiGold": Task(
        folder="ner_wikigold",
        model_class=AutoModelForTokenClassification,
        encode=Encoder.encode_words,
        score=Encoder.entity_f1,
        metric="F1",
        train_rows=None,
        seeds=(0, 1, 2),
        epochs=6,
        learning_rate=2e-4,
    ),
    "STS-B": Task(
        folder="sts",
        model_class=AutoModelForSequenceClassification,
        encode=Encoder.encode_similarity,
        score=Encoder.spearman,
        metric="Spearman",
        train_rows=None,
        seeds=(0, 1, 2),
        epochs=3,
        learning_rate=1e-4,
    ),
    "SNLI, a cut": Task(
        folder="nli",
        model_class=AutoModelForSequenceClassification,
        encode=Encoder.encode_pair,
        score=Encoder.accuracy,
        metric="accuracy",
        train_rows=None,
        seeds=(0,),
        epochs=2,
        learning_rate=1e-4,
    ),
    "SQuAD, a cut": Task(
        folder="qa",
        model_class=AutoModelForQuestionAnswering,
        encode=Encoder.encode_answer,
        score=Encoder.answer_f1,
        metric="F1",
        train_rows=None,
        seeds=(0,),
        epochs=2,
        learning_rate=1e-4,
    ),
}


@dataclass
class Arguments:
    model: str = option(
        "sentence-transformers/all-MiniLM-L6-v2", "A BERT of Transformers: a folder or a Hub name."
    )
    data: str = option("data", "The folder of the data sets.")
    output: str = option("benchmarks/results/fine_tuning.json", "The file that is written.")
    tasks: list[str] = option([*TASKS], "The tasks to run.")
    order: Literal["length", "random"] = option(
        "length", "Rows of about the same length in a batch, or random ones, of one seed."
    )
    rows: int | None = option(None, "At most so many rows of each set, to try the script.")


def main(arguments: Arguments) -> None:
    output = Path(arguments.output)
    for name in arguments.tasks:
        seeds = TASKS[name].seeds
        if arguments.order == "random":
            seeds = seeds[:1]
        for seed in seeds:
            for code in CODES:
                runs = saved_runs(output)
                wanted = {"task": name, "order": arguments.order, "code": code, "seed": seed}
                if any(wanted.items() <= run.items() for run in runs):
                    continue
                run = train_once(arguments, name, seed, code)
                print(run, flush=True)
                save_figures(output, runs=[*runs, run])


def saved_runs(output: Path) -> list[dict[str, Any]]:
    return json.loads(output.read_text())["runs"] if output.exists() else []


def train_once(arguments: Arguments, name: str, seed: int, code: str) -> dict[str, Any]:
    """Train and measure one model."""
    task = TASKS[name]
    train_rows, test_rows = load_rows(arguments, task)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    encoder = Encoder(tokenizer, label_names(task, train_rows))
    train_set = encode(train_rows, encoder, task)
    test_set = encode(test_rows, encoder, task)
    model = make_model(arguments.model, task, encoder, seed)
    if code == "minibert":
        model = from_native(model)
    pads_labels = task.model_class is AutoModelForTokenClassification
    collator_class = DataCollatorForTokenClassification if pads_labels else DataCollatorWithPadding
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                folder,
                num_train_epochs=task.epochs,
                learning_rate=task.learning_rate,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=32,
                train_sampling_strategy=STRATEGIES[arguments.order],
                bf16=fast_bf16()[0],
                use_cpu=not torch.accelerator.is_available(),
                seed=seed,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            data_collator=collator_class(tokenizer),
            train_dataset=train_set,
        )
        started = time.process_time()
        seconds = trainer.train().metrics["train_runtime"]
        cpu_seconds = time.process_time() - started
        score = task.score(encoder, trainer.predict(test_set), test_rows)
    return {
        "task": name,
        "metric": task.metric,
        "order": arguments.order,
        "code": code,
        "seed": seed,
        "train_rows": len(train_set),
        "test_rows": len(test_set),
        "score": score,
        "seconds": round(float(seconds), 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }


def load_rows(arguments: Arguments, task: Task) -> tuple[Dataset, Dataset]:
    files = {split: f"{arguments.data}/{task.folder}/{split}.jsonl" for split in ("train", "test")}
    splits = load_dataset("json", data_files=files)
    train_rows = splits["train"].shuffle(seed=0)
    if task.train_rows is not None:
        train_rows = train_rows.select(range(task.train_rows))
    test_rows = splits["test"]
    if arguments.rows is not None:
        train_rows = train_rows.select(range(arguments.rows))
        test_rows = test_rows.select(range(arguments.rows))
    return train_rows, test_rows


def label_names(task: Task, rows: Dataset) -> list[str]:
    """The classes of a data set, sorted."""
    if task.encode is Encoder.encode_words:
        names = {tag for tags in rows["ner_tags"] for tag in tags}
    elif task.encode in (Encoder.encode_text, Encoder.encode_pair):
        names = set(rows["label"])
    else:
        names = set()
    return sorted(names)


def encode(rows: Dataset, encoder: Encoder, task: Task) -> Dataset:
    encoded = [task.encode(encoder, row) for row in rows]
    return Dataset.from_list(encoded)


def make_model(path: str, task: Task, encoder: Encoder, seed: int) -> Any:
    """Transformers' model with a new head; the same weights for the same seed."""
    options = {}
    if encoder.labels:
        options["num_labels"] = len(encoder.labels)
    elif task.encode is Encoder.encode_similarity:
        options["num_labels"] = 1
    config = AutoConfig.from_pretrained(path, trust_remote_code=False, **options)
    set_seed(seed)
    return task.model_class.from_pretrained(path, config=config, trust_remote_code=False)


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
