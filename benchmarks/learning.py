"""What the same steps on the same machine teach MiniBERT and Transformers' own models.

    python benchmarks/learning.py --data my-text/ --recipes mine.yaml --grammar blimp.jsonl --output runs/learning

All runs read the same text with the same tokenizer and are measured on the same held-out documents under the same
masks. Each is a process of its own, and only one trains at a time, a few steps in turn, so that a machine that stalls
stalls them all; what counts as seconds is the time of training steps, and of what is done to the model before them.
A run that is done has a file in the output folder and is not repeated.
"""

import json
import math
import os
import random
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from common import Corpus, choose_device, describe_machine, now, option, parse
from grammar import measure_accuracy, read_minimal_pairs
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
    trainer,
)
from workloads import sparse_masked_lm

from minibert import MiniBertConfig, train_tokenizer
from minibert.training.cli import parser as cli_parser
from minibert.training.common.files import write_json
from minibert.training.common.precision import fast_bf16
from minibert.training.common.printing import format_table
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.evaluation.plots import picture

MLM_PROBABILITY = 0.15
HELD_OUT, TEXT = "held_out.json", "train.jsonl"
# What must be alike for runs to be compared.
FIXED = ("data", "size", "vocab_size", "steps", "rows", "seq_length", "documents", "seed")
PEERS = ("bert", "modernbert")
QUICK = dict(
    size="tiny",
    vocab_size=1024,
    steps=12,
    evaluations=3,
    documents=40,
    turn=2,
    rows=2,
    seq_length=128,
)


@dataclass
class Arguments(Corpus):
    recipes: list[str] = option(
        [], "Recipes that run beside MiniBERT's default: names or YAML files."
    )
    peers: list[str] = option(
        ["bert", "modernbert"],
        "Transformers' models to run against, each trained plainly; bert=5e-4 has one rate.",
    )
    learning_rates: list[float] = option(
        [5e-4, 1e-3, 2e-3], "Learning rates of the peers that name none."
    )
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = option(
        "mini", "The size of all models."
    )
    vocab_size: int = option(8192, "Size of the vocabulary that is trained for all.")
    steps: int = option(500, "Optimizer steps of every run.")
    rows: int = option(4, "Rows of a step.")
    seq_length: int = option(512, "Longest row, in tokens.")
    evaluations: int = option(10, "How often the held-out loss is measured, evenly over the steps.")
    documents: int = option(400, "Held-out documents: so many, but at most one in twenty.")
    turn: int = option(5, "Steps that a run takes before it is the next one's turn.")
    seed: int = option(0, "Seed of the split, the rows, the weights and the masks.")
    grammar: str | None = option(
        None, "Minimal pairs (BLiMP) that every trained model is measured on as well."
    )
    output: str = option(
        "runs/learning",
        "Folder for the results, one file a run; a run whose file is there is done.",
    )
    quick: bool = option(
        False, "Tiny models, few steps, one learning rate: shows that all runs, not who learns."
    )


def main(arguments: Arguments) -> dict[str, Any]:
    """Train all, in turns; print a table; write `results.json`, `loss.png` and a file for each run.

    Returns:
        by run: its `curve` (step, tokens, seconds, flops, loss), `loss`, `bits_per_byte`, and against each peer at its
        best learning rate the share of the peer's seconds and tokens after which it has the peer's final loss.
    """
    if arguments.quick:
        arguments = replace(arguments, **QUICK, learning_rates=arguments.learning_rates[:1])
    folder = Path(arguments.output)
    runs: dict[str, dict[str, Any]] = {"minibert": {}}
    for peer, _, own in (peer.partition("=") for peer in arguments.peers):
        for rate in [float(own)] if own else arguments.learning_rates:
            runs[f"{peer} {rate:g}"] = {"peer": peer, "learning_rate": rate}
    runs |= {Path(recipe).stem: {"recipe": recipe} for recipe in arguments.recipes}
    if arguments.grammar:
        read_minimal_pairs(arguments.grammar, 1)
    settings = {name: getattr(arguments, name) for name in FIXED} | describe_machine(
        choose_device()
    )
    if not (folder / HELD_OUT).exists():
        prepare(arguments, settings)
    elif (before := json.loads((folder / HELD_OUT).read_text())["settings"]) != settings:
        raise ValueError(f"{folder} has runs with {before}, not {settings}; use another --output")
    files = {name: folder / f"{name}.json" for name in runs}
    take_turns({name: run for name, run in runs.items() if not files[name].exists()}, arguments)
    results = {name: json.loads(path.read_text()) for name, path in files.items()}
    for name, result in results.items() if arguments.grammar else ():
        if result.get("grammar_data") != arguments.grammar:
            accuracy = measure_accuracy(str(folder / name), arguments.grammar, pairs=100)[
                "accuracy"
            ]
            result |= {"grammar": accuracy, "grammar_data": arguments.grammar}
            write_json(files[name], result)
    results = dict(sorted(results.items(), key=lambda item: _final_loss(item[1])))
    summary = {"arguments": asdict(arguments), "runs": results, "best": compare(results)}
    write_json(folder / "results.json", summary)
    plot_losses(folder / "loss.png", results)
    print(results_table(summary))
    return summary


def compare(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each peer its best run, and by run the share of that one's seconds, tokens and flops after which the held-out
    loss is as low (between two measurements by a straight line); None where it never is."""
    best: dict[str, dict[str, Any]] = {}
    for peer in PEERS:
        of_peer = [
            name
            for name, run in results.items()
            if run["peer"] == peer and math.isfinite(run["loss"])
        ]
        if of_peer:
            name = min(of_peer, key=lambda name: _final_loss(results[name]))
            goal = results[name]["curve"][-1]
            reached = {other: _reached(run["curve"], goal) for other, run in results.items()}
            best[peer] = {"run": name, "reached": reached}
    return best


def _final_loss(run: Mapping[str, Any]) -> float:
    """Of a run that diverged to NaN it is infinite, so that no run is worse."""
    return math.inf if math.isnan(run["loss"]) else run["loss"]


def _reached(curve: list[dict[str, float]], goal: dict[str, float]) -> dict[str, float] | None:
    for before, after in zip([curve[0], *curve], curve):
        if after["loss"] <= goal["loss"]:
            share = (
                (before["loss"] - goal["loss"]) / (before["loss"] - after["loss"])
                if before is not after
                else 1
            )
            at = {
                axis: before[axis] + share * (after[axis] - before[axis])
                for axis in ("seconds", "tokens", "flops")
            }
            return {axis: value / goal[axis] for axis, value in at.items()}
    return None


def results_table(summary: Mapping[str, Any]) -> str:
    """The runs as aligned text, best loss first."""
    best = summary["best"]
    header = [
        "run",
        "loss",
        "bits per byte",
        "accuracy",
        "tokens",
        "seconds",
        "tokens/s",
        "grammar",
    ]
    header += [f"seconds to {found['run']}" for found in best.values()]
    rows = []
    for name, run in summary["runs"].items():
        last = run["curve"][-1]
        cells = [name, run["loss"], run["bits_per_byte"], f"{run['accuracy']:.1%}", last["tokens"]]
        cells += [f"{last['seconds']:.0f}", f"{last['tokens'] / last['seconds']:,.0f}"]
        cells.append("" if run.get("grammar") is None else f"{run['grammar']:.1%}")
        for found in best.values():
            reached = found["reached"][name]
            cells.append(f"1/{1 / reached['seconds']:.2f}" if reached else "never")
        rows.append(cells)
    return format_table(header, rows, digits=3)


# --- taking turns ---


def take_turns(runs: Mapping[str, Mapping[str, Any]], arguments: Arguments) -> None:
    """Train the runs, each in a process of its own, of which one at a time gets the word."""
    context, lines, processes = get_context("spawn"), {}, []

    def answer(name: str) -> Any:
        try:
            return lines[name].recv()
        except EOFError:
            log = Path(arguments.output) / f"{name}.log"
            reason = " ".join(log.read_text(errors="replace").strip().splitlines()[-1:])
            raise RuntimeError(f"the run {name!r} failed: {reason} (see {log})") from None

    try:
        for name, run in tqdm(runs.items(), desc="Start", unit=" runs"):
            lines[name], theirs = context.Pipe()
            process = context.Process(
                target=train_run, args=(name, run, arguments, theirs), daemon=True
            )
            process.start()
            theirs.close()
            processes.append(process)
            answer(name)  # ready to begin
        with tqdm(total=arguments.steps * len(runs), desc="Race", unit=" steps") as bar:
            while lines:
                for name in list(lines):
                    lines[name].send("go")
                    steps = answer(name)
                    if steps:
                        bar.update(steps)
                    else:
                        del lines[name]
    finally:
        for process in processes:
            process.join(10) if not lines else process.terminate()


def train_run(name: str, run: Mapping[str, Any], arguments: Arguments, line: Connection) -> None:
    """One run, in its own process; what it prints goes to a log file."""
    folder = Path(arguments.output)
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    held_out = json.loads((folder / HELD_OUT).read_text())
    batches = [
        {name: torch.tensor(x) for name, x in batch.items()} for batch in held_out["batches"]
    ]
    turns = Turns(line, arguments, batches)
    trainer.DEFAULT_CALLBACKS.append(
        turns
    )  # of this process: the only way into a training that a recipe describes
    shutil.rmtree(folder / name, ignore_errors=True)  # of a run that was not finished
    model = (train_peer if "peer" in run else train_minibert)(name, run, arguments)
    turns.measure(*turns.end, model)  # as it was saved
    last = turns.curve[-1]
    result = {
        "peer": run.get("peer"),
        **run,
        "parameters": model.num_parameters(),
        "loss": last["loss"],
        "accuracy": last["accuracy"],
        "bits_per_byte": last["loss"] / math.log(2) / held_out["bytes_per_token"],
        "curve": turns.curve,
    }
    write_json(folder / f"{name}.json", result)
    line.send(0)


class Turns(TrainerCallback):
    """Trains while it has the word, measures the time of steps and the held-out loss.

    `curve`: step, tokens, seconds, loss, accuracy and flops, 6 for each token and parameter outside the embeddings
    (Kaplan et al. 2020, arXiv 2001.08361), at every measurement.
    """

    def __init__(
        self, line: Connection, arguments: Arguments, batches: list[dict[str, torch.Tensor]]
    ):
        self.line, self.batches, self.curve, self.seconds = line, batches, [], 0.0
        self.turn, self.every = arguments.turn, math.ceil(arguments.steps / arguments.evaluations)

    def on_init_end(self, args, state, control, **kwargs):
        self.start = now(args.device)

    on_step_begin = on_init_end

    def on_train_begin(self, args, state, control, **kwargs):
        self.seconds = now(args.device) - self.start  # counts for the first word embeddings, say
        self.line.send("ready")
        self.line.recv()

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.seconds += now(args.device) - self.start
        step, last = state.global_step, state.global_step == state.max_steps
        if step % self.every == 0 and not last:
            self.measure(args, state, model)
        if step % self.turn == 0 and not last:
            self.line.send(self.turn)
            self.line.recv()

    def on_train_end(self, args, state, control, **kwargs):
        self.end = args, state
        self.line.send(state.global_step % self.turn or self.turn)
        self.line.recv()

    @torch.no_grad()
    def measure(self, args: TrainingArguments, state: Any, model: torch.nn.Module) -> None:
        model.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        for batch in self.batches:
            batch = {name: x.to(model.device) for name, x in batch.items()}
            with torch.autocast(model.device.type, torch.bfloat16, enabled=args.bf16):
                logits = model(**batch).logits
            labels = batch["labels"][batch["labels"] != -100]
            if logits.dim() == 3:  # else they are of the masked tokens alone
                logits = logits[batch["labels"] != -100]
            loss = F.cross_entropy(logits.float(), labels, reduction="sum")
            sums += (
                torch.stack(
                    [loss, (logits.argmax(-1) == labels).sum(), loss.new_tensor(len(labels))]
                )
                .double()
                .cpu()
            )
        model.train()
        loss, right, targets = sums.tolist()
        tokens = int(state.num_input_tokens_seen)
        flops = 6 * tokens * model.num_parameters(exclude_embeddings=True)
        self.curve.append(
            {"step": state.global_step, "tokens": tokens, "seconds": self.seconds, "flops": flops,
             "loss": loss / targets, "accuracy": right / targets}
        )  # fmt: skip


# --- text and models ---


def prepare(arguments: Arguments, settings: Mapping[str, Any]) -> None:
    """Save the documents to train on, the tokenizer, and held-out documents, each cut to a row, with their masks: the
    same for all runs."""
    folder = Path(arguments.output)
    documents = Corpus(arguments.data).documents()["text"][:]
    different = sorted(set(documents))
    random.Random(arguments.seed).shuffle(different)
    texts = different[: max(1, min(arguments.documents, len(different) // 20))]
    train = [text for text in documents if text not in {*texts}]
    folder.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict({"text": train}).to_json(folder / TEXT)
    tokenizer = train_tokenizer(
        train, vocab_size=arguments.vocab_size, model_max_length=arguments.seq_length
    )
    tokenizer.save_pretrained(folder / "tokenizer")
    rows = tokenizer(texts, truncation=True, return_special_tokens_mask=True)
    length = sum(
        len(text[: max(e for _, e in row.offsets)].encode())
        for text, row in zip(texts, rows.encodings)
    )
    tokens = sum(mask.count(0) for mask in rows["special_tokens_mask"])
    rows = sorted(
        (dict(zip(rows, row)) for row in zip(*rows.values())), key=lambda row: len(row["input_ids"])
    )
    collator = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=MLM_PROBABILITY, seed=arguments.seed
    )
    batches = [collator(rows[start : start + 8]) for start in range(0, len(rows), 8)]
    batches = [{name: x.tolist() for name, x in batch.items()} for batch in batches]
    held_out = {"settings": settings, "bytes_per_token": length / tokens, "batches": batches}
    write_json(folder / HELD_OUT, held_out)


def train_minibert(name: str, run: Mapping[str, Any], arguments: Arguments) -> PreTrainedModel:
    """`minibert pretrain` with its defaults, or a recipe. A few of the documents are held out for its own report."""
    folder = Path(arguments.output)
    length = dict(
        max_steps=arguments.steps,
        per_device_train_batch_size=arguments.rows,
        gradient_accumulation_steps=1,
    )
    length |= dict(
        seq_length=arguments.seq_length, size=arguments.size, seed=arguments.seed, validation_size=8
    )
    saved = dict(
        output_dir=str(folder / name),
        tokenizer=str(folder / "tokenizer"),
        eval_strategy="no",
        save_strategy="no",
    )
    options = {"data": folder / TEXT, **length, **saved} | (
        {"recipe": run["recipe"]} if run.get("recipe") else {}
    )
    function, keywords = cli_parser.parse(
        "pretrain", [f"--{option}={value}" for option, value in options.items()]
    )
    return function(**keywords).model


def join_documents(
    batch: Mapping[str, list], length: int, cls: int, sep: int
) -> dict[str, list[list[int]]]:
    """Rows of documents joined and cut, in which they see each other."""
    ids = [token for document in batch["input_ids"] if document for token in (cls, *document, sep)]
    return {"input_ids": [ids[start : start + length] for start in range(0, len(ids), length)]}


def train_peer(name: str, run: Mapping[str, Any], arguments: Arguments) -> PreTrainedModel:
    """Transformers' own model, logits at the masked tokens only, as run_mlm.py trains it: documents joined and cut into
    rows, AdamW, linear decay."""
    folder = Path(arguments.output)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer", trust_remote_code=False)
    documents = datasets.load_dataset("json", data_files=str(folder / TEXT), split="train")
    documents = tokenize_documents(documents, tokenizer, None)
    options = dict(
        length=arguments.seq_length, cls=tokenizer.cls_token_id, sep=tokenizer.sep_token_id
    )
    rows = documents.map(join_documents, batched=True, batch_size=4096, fn_kwargs=options)
    training = TrainingArguments(
        output_dir=str(folder / name),
        max_steps=arguments.steps,
        per_device_train_batch_size=arguments.rows,
        learning_rate=run["learning_rate"],
        bf16=fast_bf16()[0],
        use_cpu=not torch.accelerator.is_available(),
        seed=arguments.seed,
        save_strategy="no",
        report_to="none",
        include_num_input_tokens_seen="non_padding",
    )
    set_seed(arguments.seed)
    config = MiniBertConfig.from_tokenizer(tokenizer, run["peer"], arguments.size)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MLM_PROBABILITY)
    peer = Trainer(sparse_masked_lm(config), training, data_collator=collator, train_dataset=rows)
    peer.train()
    peer.save_model()
    tokenizer.save_pretrained(training.output_dir)
    return peer.model


def plot_losses(path: str | Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Held-out loss over seconds of training and over tokens, a curve a run."""
    with picture(
        path, "Held-out loss at 15 % masks", panels=2, size=(11, 4.5), sharey=True
    ) as panels:
        for axes, axis in zip(panels, ("seconds", "tokens")):
            for name, run in results.items():
                x, y = ([point[key] for point in run["curve"]] for key in (axis, "loss"))
                label = f"{name}: {run['loss']:.2f}" if axis == "seconds" else None
                axes.plot(x, y, "--" if run["peer"] else "-", marker=".", label=label)
            axes.set_xlabel(f"{axis} of training")
        panels[0].set_ylabel("loss")


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
