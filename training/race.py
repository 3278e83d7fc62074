"""`minibert race`: what the same steps on the same machine teach MiniBERT and Transformers' own models.

All runs read the same text with the same tokenizer and are measured on the same held-out documents under the same
masks. Each is a process of its own, and only one trains at a time, a few steps in turn, so that a machine that stalls
stalls them all; what counts as seconds is the time of training steps, and of what is done to the model before them.
"""

import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
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

from ..configuration_minibert import MiniBertConfig
from ..tokenization import train_tokenizer
from .api import pretrain
from .arguments import check_least
from .arguments.pretraining import CorpusArguments, MixtureArguments, StreamingArguments
from .arguments.probes import GrammarArguments, ProbeArguments
from .arguments.tools import RaceArguments
from .bench.benchmarks import sparse_masked_lm
from .bench.run import choose_device, describe_machine
from .checkpoints import check_same, rows_checksum
from .cli.parsing import argument_names, read_recipe
from .data.documents import tokenize_documents
from .data.masking import IGNORE_INDEX
from .data.mixtures import CorpusSplits, prepare_documents
from .data.packing import pack_documents
from .files import write_json
from .precision import fast_bf16, now
from .pretraining.objectives.base import token_score
from .probes.grammar import grammar, read_minimal_pairs
from .report import format_table, plot_race

MLM_PROBABILITY = 0.15
HELD_OUT = "held_out.json"
# What must be alike for runs to be compared.
FIXED = ("size", "vocab_size", "steps", "rows", "seq_length", "documents", "seed")
# What a race decides for all runs, beside what `_train_minibert` hands over.
ALIKE = {field.name for each in (CorpusArguments, MixtureArguments, StreamingArguments) for field in fields(each)}
ALIKE |= {"validation_size", "tokenizer", "model_name_or_path"}
# … and what of a recipe it leaves out, and says so.
ITS_OWN = {"size", "vocab_size", "max_steps", "num_train_epochs", "per_device_train_batch_size", "seq_length", "seed"}
ITS_OWN |= {"minutes", "gradient_accumulation_steps", "output_dir", "eval_strategy", "save_strategy"}
PEERS = ("bert", "modernbert")
QUICK = dict(size="tiny", vocab_size=1024, steps=12, evaluations=3, documents=40, turn=2, rows=2, seq_length=128)


def race(corpus: CorpusArguments, arguments: RaceArguments) -> dict[str, Any]:
    """Train all, in turns; print a table; write `race.json`, `race.png` and a file for each run.

    Returns:
        by run: its `curve` (step, tokens, seconds, flops, loss), `loss`, `bits_per_byte`, and against each peer at its
        best learning rate the share of the peer's seconds and tokens after which it has the peer's final loss.

    Raises:
        ValueError: bad arguments, or a folder of another race, before any work; later, that a run failed, with the file
            that says why.
    """
    if arguments.quick:
        arguments = replace(arguments, **QUICK, learning_rates=arguments.learning_rates[:1])
    check_least(arguments, steps=1, rows=1, evaluations=1, documents=1, turn=1)
    folder = Path(arguments.output)
    runs: dict[str, dict[str, Any]] = {"minibert": {}}
    for peer in arguments.peers:
        if peer not in PEERS:
            raise ValueError(f"peers: {peer!r}; use {', '.join(PEERS)}")
        runs |= {f"{peer} {rate:g}": {"peer": peer, "learning_rate": rate} for rate in arguments.learning_rates}
    if arguments.grammar:
        read_minimal_pairs(arguments.grammar, 1)
    for recipe in arguments.recipes:
        name, content = Path(recipe).stem, read_recipe(recipe, argument_names("pretrain"))
        if name in runs or name in ("held_out", "race", "tokenizer"):
            raise ValueError(f"recipes: {recipe!r} would be another {name!r} in {arguments.output!r}; use another name")
        if alike := sorted(content.keys() & ALIKE):
            raise ValueError(f"recipes: {recipe!r} has {alike[0]}, which is the same for all runs; leave it out")
        if (objective := content.get("objective", "mlm")) != "mlm":
            raise ValueError(f"recipes: {recipe!r} has objective: {objective}; use one of masked tokens, mlm")
        if own := [key for key in content if key in ITS_OWN]:
            print(f"{recipe}: {', '.join(own)} are those of the race")
        kept = {key: value for key, value in content.items() if key not in ITS_OWN}
        runs[name] = {"recipe": recipe, "content": json.loads(json.dumps(kept))}
    settings = asdict(corpus) | {name: getattr(arguments, name) for name in FIXED}
    for name in runs:
        if (folder / name).exists() and not any((folder / f"{name}{end}").exists() for end in (".log", ".json")):
            raise ValueError(f"output: {str(folder / name)!r} is of no race; use another output")
    settings |= describe_machine(choose_device("auto"))
    before = json.loads((folder / HELD_OUT).read_text())["settings"] if (folder / HELD_OUT).exists() else None
    another = f"the race in {str(folder)!r} has", "use another output"
    if before is not None:
        check_same(before | {"text": None}, settings, *another)
    elif any((folder / f"{name}.json").exists() for name in runs):
        raise ValueError(f"output: {str(folder)!r} has runs without their {HELD_OUT}; use another output")
    documents = split_documents(corpus, arguments)
    settings["text"] = rows_checksum(documents.train)
    if before is None:
        prepare(documents, arguments, settings)
    else:
        check_same(before, settings, *another)
    files = {name: folder / f"{name}.json" for name in runs}
    done = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    for name, run in done.items():
        made = f"the run {name!r} in {str(folder)!r} had"
        check_same(run.get("content", {}), runs[name].get("content", {}), made, "use another name for the recipe")
    _take_turns({name: run for name, run in runs.items() if name not in done}, corpus, arguments)
    results = {name: json.loads(path.read_text()) for name, path in files.items()}
    for name, result in results.items() if arguments.grammar else ():
        if result.get("grammar_data") != arguments.grammar:
            probed = GrammarArguments(arguments.grammar, 100, output_dir=str(folder / name / "grammar"))
            accuracy = grammar(ProbeArguments(str(folder / name)), probed)["accuracy"]
            result |= {"grammar": accuracy, "grammar_data": arguments.grammar}
            write_json(files[name], result)
    results = dict(sorted(results.items(), key=lambda item: _final_loss(item[1])))
    summary = {"arguments": asdict(arguments), "runs": results, "best": compare(results)}
    write_json(folder / "race.json", summary)
    plot_race(folder / "race.png", results)
    print(race_table(summary))
    return summary


def compare(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each peer its best run, and by run the share of that one's seconds, tokens and flops after which the held-out
    loss is as low (between two measurements by a straight line); None where it never is."""
    best: dict[str, dict[str, Any]] = {}
    for peer in PEERS:
        of_peer = [name for name, run in results.items() if run["peer"] == peer and math.isfinite(run["loss"])]
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
            share = (before["loss"] - goal["loss"]) / (before["loss"] - after["loss"]) if before is not after else 1
            at = {axis: before[axis] + share * (after[axis] - before[axis]) for axis in ("seconds", "tokens", "flops")}
            return {axis: value / goal[axis] for axis, value in at.items()}
    return None


def race_table(summary: Mapping[str, Any]) -> str:
    """The runs as aligned text, best loss first."""
    best = summary["best"]
    header = ["run", "loss", "bits per byte", "accuracy", "tokens", "seconds", "tokens/s", "grammar"]
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


def _take_turns(runs: Mapping[str, Mapping[str, Any]], corpus: CorpusArguments, arguments: RaceArguments) -> None:
    """Train the runs, each in a process of its own, of which one at a time gets the word."""
    context, lines, processes = get_context("spawn"), {}, []

    def answer(name: str) -> Any:
        try:
            return lines[name].recv()
        except EOFError:
            log = Path(arguments.output) / f"{name}.log"
            reason = " ".join(log.read_text(errors="replace").strip().splitlines()[-1:])
            raise ValueError(f"the run {name!r} failed: {reason} (see {log})") from None

    try:
        for name, run in tqdm(runs.items(), desc="Start", unit=" runs"):
            lines[name], theirs = context.Pipe()
            process = context.Process(target=_run, args=(name, run, corpus, arguments, theirs), daemon=True)
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


def _run(
    name: str, run: Mapping[str, Any], corpus: CorpusArguments, arguments: RaceArguments, line: Connection
) -> None:
    """One run, in its own process; what it prints goes to a log file."""
    folder = Path(arguments.output)
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    held_out = json.loads((folder / HELD_OUT).read_text())
    batches = [{name: torch.tensor(x) for name, x in batch.items()} for batch in held_out["batches"]]
    turns = Turns(line, arguments, batches)
    trainer.DEFAULT_CALLBACKS.append(turns)  # of this process: the only way into a training that a recipe describes
    shutil.rmtree(folder / name, ignore_errors=True)  # of a run that was not finished
    model = (_train_peer if "peer" in run else _train_minibert)(name, run, corpus, arguments)
    turns.measure(*turns.end, model)  # as it was saved: with averaged weights, where there are some
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

    def __init__(self, line: Connection, arguments: RaceArguments, batches: list[dict[str, torch.Tensor]]):
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
            if logits.dim() == 3:  # else they are of the masked tokens alone
                logits = logits[batch["labels"] != IGNORE_INDEX]
            sums += token_score(logits, batch["labels"]).cpu()
        model.train()
        loss, right, targets = sums.tolist()
        tokens = int(state.num_input_tokens_seen)
        flops = 6 * tokens * model.num_parameters(exclude_embeddings=True)
        self.curve.append(
            {"step": state.global_step, "tokens": tokens, "seconds": self.seconds, "flops": flops,
             "loss": loss / targets, "accuracy": right / targets}
        )  # fmt: skip


# --- text and models ---


def split_documents(corpus: CorpusArguments, arguments: RaceArguments) -> CorpusSplits:
    """The split that `minibert pretrain` makes too."""
    return prepare_documents(
        corpus, MixtureArguments(), StreamingArguments(), validation_size=0.05, seed=arguments.seed
    )


def prepare(documents: CorpusSplits, arguments: RaceArguments, settings: Mapping[str, Any]) -> None:
    """Save the tokenizer, and held-out documents, each cut to a row, with their masks: the same for all runs."""
    folder = Path(arguments.output)
    tokenizer = train_tokenizer(
        documents.sample["text"], vocab_size=arguments.vocab_size, model_max_length=arguments.seq_length
    )
    tokenizer.save_pretrained(folder / "tokenizer")
    texts = documents.validation.shuffle(seed=arguments.seed)["text"][: arguments.documents]
    rows = tokenizer(texts, truncation=True, return_special_tokens_mask=True)
    length = sum(len(text[: max(e for _, e in row.offsets)].encode()) for text, row in zip(texts, rows.encodings))
    tokens = sum(mask.count(0) for mask in rows["special_tokens_mask"])
    rows = sorted((dict(zip(rows, row)) for row in zip(*rows.values())), key=lambda row: len(row["input_ids"]))
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MLM_PROBABILITY, seed=arguments.seed)
    batches = [collator(rows[start : start + 8]) for start in range(0, len(rows), 8)]
    batches = [{name: x.tolist() for name, x in batch.items()} for batch in batches]
    held_out = {"settings": settings, "bytes_per_token": length / tokens, "batches": batches}
    write_json(folder / HELD_OUT, held_out)


def _train_minibert(name, run, corpus, arguments) -> PreTrainedModel:
    """`minibert pretrain` with its defaults, or a recipe."""
    folder = Path(arguments.output)
    length = dict(max_steps=arguments.steps, per_device_train_batch_size=arguments.rows, gradient_accumulation_steps=1)
    length |= dict(seq_length=arguments.seq_length, size=arguments.size, seed=arguments.seed)
    saved = dict(output_dir=folder / name, tokenizer=folder / "tokenizer", eval_strategy="no", save_strategy="no")
    text = {key: value for key, value in asdict(corpus).items() if value != getattr(CorpusArguments(), key)}
    return pretrain(**text, **length, **saved, recipe=run.get("content")).model


def _train_peer(name, run, corpus, arguments) -> PreTrainedModel:
    """Transformers' own model, logits at the masked tokens only, as run_mlm.py trains it: documents joined and cut into
    rows, AdamW, linear decay."""
    tokenizer = AutoTokenizer.from_pretrained(Path(arguments.output) / "tokenizer", trust_remote_code=False)
    documents = tokenize_documents(split_documents(corpus, arguments).train, tokenizer, None)
    rows = pack_documents(documents, tokenizer, arguments.seq_length, "concatenated").select_columns("input_ids")
    training = TrainingArguments(
        output_dir=str(Path(arguments.output) / name),
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
