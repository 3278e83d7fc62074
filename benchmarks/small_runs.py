"""What the comparisons of the notebooks share: short trainings with a curve, probes, and the file of the figures.

Seconds are those that the process computed for, which other processes do not change much.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import save_figures
from datasets import Dataset, load_dataset
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer, TrainerCallback

from minibert import PretrainingConfig, PretrainingTrainer
from minibert.training.data.packing import pack_documents
from minibert.training.data.tokenized import tokenize_documents

SEEDS = range(3)
LENGTH, ROWS = 128, 8  # tokens of a row, rows of a step


def read(kind, *files):
    options = {"sample_by": "paragraph"} if files[0].parent.name == "corpus" else {}
    return load_dataset(kind, data_files=[str(file) for file in files], split="train", **options)


def rows_of(texts, tokenizer, packing="packed"):
    return pack_documents(
        tokenize_documents(Dataset.from_dict({"text": texts}), tokenizer),
        tokenizer,
        LENGTH,
        packing,
    )


class Curve(TrainerCallback):
    """The held-out loss against steps, tokens and seconds of computing, those of the evaluations left out."""

    def __init__(self, budget=None):
        self.budget, self.seconds, self.points = budget, 0.0, []

    def on_train_begin(self, args, state, control, **kwargs):
        self.since = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        now = time.process_time()
        self.seconds, self.since = self.seconds + now - self.since, now
        if self.budget and self.seconds >= self.budget:
            control.should_training_stop = control.should_evaluate = True

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        loss = next(
            metrics[f"eval_{name}_loss"]
            for name in ("rtd", "mlm", "clm")
            if f"eval_{name}_loss" in metrics
        )
        tokens = int(state.num_input_tokens_seen)
        self.points.append([state.global_step, tokens, round(self.seconds, 2), round(loss, 4)])
        self.metrics, self.since = metrics, time.process_time()


def pretrain(
    config,
    train,
    held_out,
    tokenizer,
    seed,
    steps,
    budget=None,
    evaluations=1,
    rows=ROWS,
    callbacks=(),
    **options,
):
    """A trainer that is done, and its curve. The rate stays constant, so a curve can be read at any place: 2e-3 with
    AdamW; with Muon what the trainer chooses for the width."""
    curve = Curve(budget)
    rate = None if options.get("optimizer") == "muon" else 2e-3
    defaults = dict(optimizer="adamw", learning_rate=rate, embedding_init="random", warmup_steps=20)
    args = PretrainingConfig(
        tempfile.mkdtemp(), seed=seed, max_steps=steps, per_device_train_batch_size=rows, seq_length=LENGTH,
        lr_scheduler_type="constant_with_warmup", eval_strategy="steps", eval_steps=max(1, steps // evaluations),
        per_device_eval_batch_size=32, save_strategy="no", logging_steps=steps, report_to="none", disable_tqdm=True,
        **defaults | options,
    )  # fmt: skip
    callbacks = [curve, *callbacks]
    trainer = PretrainingTrainer(
        config, args, None, train, held_out, tokenizer, callbacks=callbacks
    )
    trainer.train()
    return trainer, curve


def save(trainer):
    folder = tempfile.mkdtemp()
    trainer.objective.save(trainer, Path(folder))
    trainer.processing_class.save_pretrained(folder)
    return folder


def sentences(data, split, count=None, least=1):
    """Rows of SST-2 with `least` words or more."""
    rows = read("json", data / f"sst2/{split}.jsonl").shuffle(seed=0)
    rows = rows.filter(lambda text: len(text.split()) >= least, input_columns="text")
    return rows.select(range(min(count or len(rows), len(rows))))


def vectors(start, rows):
    """Of every text or pair, the frozen model's output at the first token, at the last one and the mean: [3, texts,
    width]."""
    tokenizer, model = AutoTokenizer.from_pretrained(start), AutoModel.from_pretrained(start).eval()
    pairs = (("text",), ("premise", "hypothesis"), ("sentence1", "sentence2"))
    columns, found = next(names for names in pairs if names[0] in rows.column_names), []
    for batch in rows.iter(64):
        inputs = tokenizer(
            *(batch[name] for name in columns), padding=True, truncation=True, return_tensors="pt"
        )
        with torch.no_grad():
            output = model(**inputs).last_hidden_state
        real = inputs["attention_mask"][..., None]
        last = real[..., 0].sum(1) - 1
        mean = (output * real).sum(1) / real.sum(1)
        found.append(torch.stack([output[:, 0], output[torch.arange(len(last)), last], mean]))
    return torch.cat(found, 1).numpy()


def probe(known, labels, new, answers):
    """Accuracy of a logistic regression on vectors."""
    scaler = StandardScaler().fit(known)
    fitted = LogisticRegression(max_iter=200).fit(scaler.transform(known), labels)
    return round(fitted.score(scaler.transform(new), answers), 4)


def main(description: str, **comparisons: tuple[Callable, str]) -> None:
    """Run the comparison that is named (or the only one), and write its figures beside the notebooks after each run."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("name", choices=comparisons, nargs="?" if len(comparisons) == 1 else None)
    help = "folder with corpus/, sst2/, nli/ and multilingual/; by default $MINIBERT_DATA"
    parser.add_argument("--data", default=os.environ.get("MINIBERT_DATA", "."), help=help)
    parser.add_argument("--output_dir", default=str(Path(__file__).parents[1] / "docs/notebooks"))
    given = parser.parse_args()
    comparison, file = comparisons[given.name or next(iter(comparisons))]
    runs = []
    for run in comparison(Path(given.data)):
        runs.append(run)
        print(
            {key: value for key, value in run.items() if key != "curve"},
            *run.get("curve", [])[-1:],
            flush=True,
        )
        save_figures(Path(given.output_dir, file), runs=runs)
