"""`--compare true`: the same training with Transformers' own model, and how fast both train.

Quality: both start from the same weights, the head's included, and see the same rows in the same order. Speed: training
steps over the same batches of the real data loader, both models in turn. What is finished lies in the output folder
and is not done again.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import set_seed

from ..checkpoints import remove_checkpoints
from ..conversion import to_native
from .report import print_table
from .trainer import Run, TaskTrainer, make_trainer, precision_of, train

QUALITY, SPEED, BOTH = "compare_transformers.json", "compare_speed.json", "compare.json"
OURS = "MiniBERT"


def check_comparable(run: Run) -> None:
    """Refuse what Transformers' models cannot be compared in.

    Raises:
        ValueError: gradient accumulation, LoRA, several seeds or processes; rounds or batches below 1; a model that no
            model of Transformers equals.
    """
    arguments, training = run.arguments, run.training
    if training.world_size > 1:
        raise ValueError(f"compare: with {training.world_size} processes it is not legal; legal: one")
    for name in ("compare_rounds", "compare_batches"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"{name}: {getattr(arguments, name)} is not legal: 1 or more")
    if training.gradient_accumulation_steps != 1:
        raise ValueError(
            "gradient_accumulation_steps: with --compare only 1 is legal: Transformers' heads multiply their loss by it"
        )
    if arguments.lora is not None:
        raise ValueError("lora: not legal with --compare: Transformers' projections are cut otherwise")
    if arguments.seeds != 1:
        raise ValueError("seeds: with --compare only 1 is legal")
    to_native(run.initial_model(training.seed))


def compare(run: Run, ours: dict[str, Any], output: Path) -> None:
    """Train Transformers' model as MiniBERT was trained, time both, and print and save what came out.

    Args:
        ours: the report of MiniBERT's training.
        output: the folder of the results.
    """
    native = type(to_native(run.initial_model(run.training.seed))).__name__
    theirs = _once(output / QUALITY, run, lambda: train_native(run, output))
    speed = _once(output / SPEED, run, lambda: measure_speed(run))
    for split in ("validation", "test"):
        if split in ours:
            print_table(f"{split}, seed {run.training.seed}", {OURS: ours[split], native: theirs[split]})
    rows = {
        "median of the rounds": {"ratio": speed["median_ratio"]},
        "fastest rounds": {"ratio": speed["minimum_ratio"]},
    }
    print_table(
        f"time of {native} for a training step / time of {OURS}, {speed['rounds']} rounds of {speed['batches']} "
        f"batches, {speed['padding']:.1%} of the positions are padding",
        rows,
    )
    report = {"settings": run.settings, OURS: _quality(ours), native: _quality(theirs), "speed": speed}
    (output / BOTH).write_text(json.dumps(report, indent=2) + "\n")
    print(f"Saved to {output / BOTH}")


def train_native(run: Run, output: Path) -> dict[str, Any]:
    """The report of Transformers' model, trained from the same weights by the same means."""
    native = to_native(run.initial_model(run.training.seed))
    print(f"\nTraining Transformers' {type(native).__name__} in the same way")
    folder = output / "transformers"
    remove_checkpoints(folder)  # of a training that was interrupted
    set_seed(run.training.seed)
    _, report, _, _ = train(run, native, dataclasses.replace(run.training, output_dir=str(folder)))
    remove_checkpoints(folder)
    with suppress(OSError):  # logs lie there
        folder.rmdir()
    return report


def measure_speed(run: Run) -> dict[str, Any]:
    """Seconds of both models for training steps (forward, backward, clipping, optimizer) over the same batches.

    In every round both run, one after the other, and the one that begins changes. Before the first round each runs a
    few batches that do not count.
    """
    rounds, count = run.arguments.compare_rounds, run.arguments.compare_batches
    models = {OURS: run.initial_model(run.training.seed)}
    models["Transformers"] = to_native(models[OURS])
    trainers = {
        name: make_trainer(model, run.training, run.task, run.splits, run.encoded, run.arguments)
        for name, model in models.items()
    }
    batches = _batches(trainers[OURS], rounds * count)
    for trainer in trainers.values():
        trainer.create_optimizer()
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for trainer in trainers.values():
        _steps(trainer, batches[: min(3, count)])
    for i in tqdm(range(rounds), desc="Measuring speed", unit=" rounds"):
        for name in list(trainers)[:: 1 if i % 2 == 0 else -1]:
            seconds[name].append(_steps(trainers[name], batches[i * count : (i + 1) * count]))
    ours, theirs = seconds.values()
    masks = [batch["attention_mask"] for batch in batches]
    return {
        "median_ratio": statistics.median(b / a for a, b in zip(ours, theirs)),
        "minimum_ratio": min(theirs) / min(ours),
        "padding": 1 - sum(int((mask != 0).sum()) for mask in masks) / sum(mask.numel() for mask in masks),
        "rounds": rounds,
        "batches": count,
        "rows_in_batch": run.training.train_batch_size,
        "seconds": seconds,
        "device": str(run.training.device),
        "precision": str(precision_of(run.training) or torch.float32).removeprefix("torch."),
        "attention": {name: model.config._attn_implementation for name, model in models.items()},
    }


def _batches(trainer: TaskTrainer, number: int) -> list[dict[str, torch.Tensor]]:
    """The first batches of the training data, over as many epochs as it takes, on the device."""
    set_seed(trainer.args.seed)
    found: list[dict[str, torch.Tensor]] = []
    loader = trainer.get_train_dataloader()
    while len(found) < number:
        for batch in loader:
            found.append({name: value.to(trainer.args.device) for name, value in batch.items()})
            if len(found) == number:
                break
    return found


def _steps(trainer: TaskTrainer, batches: list[dict[str, torch.Tensor]]) -> float:
    """Seconds for one training step a batch."""
    model, device, dtype = trainer.model, trainer.args.device, precision_of(trainer.args)
    model.train()
    for module in trainer.resting:
        module.eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    _synchronize(device)
    start = time.perf_counter()
    for batch in batches:
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
    _synchronize(device)
    return time.perf_counter() - start


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _once(path: Path, run: Run, work) -> dict[str, Any]:
    """What is saved at `path` of a run with the same settings, or else what `work` returns, which is saved there."""
    settings = run.settings
    if path.exists():
        saved = json.loads(path.read_text())
        if saved.pop("settings") == settings:
            print(f"{path} is there already: it is not done again")
            return saved
    done = work()
    path.write_text(json.dumps({"settings": settings, **done}, indent=2) + "\n")
    return done


def _quality(report: dict[str, Any]) -> dict[str, Any]:
    keys = ("validation", "test", "best_step", "steps", "epochs", "training_seconds", "parameters")
    return {key: report[key] for key in keys if key in report}
