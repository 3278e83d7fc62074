"""`--compare true`: the same training with Transformers' own model, from the same weights, the head's included, on the
same rows in the same order; and the speed of both, in turn, over the same batches of the real data loader. What is
finished lies in the output folder and is not done again."""

import json
import statistics
from pathlib import Path
from typing import Any

from transformers import set_seed

from ..checkpoints import check_same, checkpoint_to_resume, remove_checkpoints
from ..conversion import to_native
from ..files import write_json
from ..report import format_scores, format_table
from .trainer import Run, TaskTrainer, seconds_of_steps, train, training_batches

REPORT, OURS = "compare.json", "MiniBERT"


def check_comparable(run: Run) -> None:
    """Refuse (a ValueError) what Transformers' models cannot be compared in, and a model that none of them equals."""
    steps = run.training.gradient_accumulation_steps
    for name, value, only, why in (
        ("compare", run.training.world_size, 1, "only one process is timed"),
        ("gradient_accumulation_steps", steps, 1, "Transformers' heads multiply their loss by it"),
        ("lora", run.arguments.lora, None, "Transformers' projections are cut otherwise"),
        ("seeds", run.arguments.seeds, 1, "both are trained once"),
    ):
        if value != only:
            raise ValueError(f"{name}: {value} cannot be compared, since {why}; use {only or 'none'} with --compare")
    to_native(run.initial_model())


def compare(run: Run, ours: dict[str, Any], output: Path) -> None:
    """Train Transformers' model as MiniBERT was trained (to the report `ours`), time both, print and save it all."""
    path, native = output / REPORT, type(to_native(run.initial_model())).__name__
    done = saved_report(path, run) if path.exists() else {}
    done |= {"settings": run.settings, OURS: ours}
    if native not in done:
        done[native] = train_native(run, output)
        write_json(path, done)
    if "speed" not in done:
        done["speed"] = measure_speed(run)
        write_json(path, done)
    speed = done["speed"]
    for split in ("validation", "test") if "test" in ours else ("validation",):
        scores = {name: {**done[name][split]} for name in (OURS, native)}
        for row in scores.values() if run.task.name == "answer" else ():
            row.pop("loss")  # Transformers' softmax is over padding, too
        print(f"\n{split}, seed {run.training.seed}\n{format_scores(scores)}")
    trained = [f"{done[name]['trained_parameters']:,} of {name}" for name in (OURS, native)]
    print(f"\nparameters trained: {', '.join(trained)}")
    measured = f"{speed['rounds']} rounds of {speed['batches']} batches, {speed['padding']:.1%} padding"
    print(f"\ntime of {native} for a training step / time of {OURS}, {measured}")
    ratios = [("median of the rounds", speed["median_ratio"]), ("fastest rounds", speed["minimum_ratio"])]
    print(format_table(["", "ratio"], ratios))
    print(f"Saved to {path}")


def train_native(run: Run, output: Path) -> dict[str, Any]:
    """The report of Transformers' model, trained from the same weights in the same way; `--resume_from_checkpoint true`
    goes on with it as with MiniBERT."""
    native, folder = to_native(run.initial_model()), output / "transformers"
    print(f"\nTraining Transformers' {type(native).__name__} in the same way")
    run, checkpoint = run.replace(output_dir=str(folder)), None
    if str(run.training.resume_from_checkpoint).lower() == "true":
        checkpoint = checkpoint_to_resume(run.training)
    else:
        remove_checkpoints(folder)  # of a training that was interrupted
    set_seed(run.training.seed)
    report = train(run, native, checkpoint).report
    remove_checkpoints(folder)
    return report


def measure_speed(run: Run) -> dict[str, Any]:
    """Seconds of both models for training steps over the same batches. In every round both run, one after the other;
    the one that begins changes. Before the first round each runs a few batches that do not count."""
    rounds, count = run.arguments.compare_rounds, run.arguments.compare_batches
    model = run.initial_model()
    models = {OURS: model, "Transformers": to_native(model)}
    trainers = {name: TaskTrainer(run, model, trains=True) for name, model in models.items()}
    batches = training_batches(trainers[OURS], rounds * count)
    for trainer in trainers.values():
        seconds_of_steps(trainer, batches[:3])
    print(f"\nMeasuring the speed of both: {rounds} rounds of {count} batches")
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for i in range(rounds):
        for name in list(trainers)[:: 1 if i % 2 == 0 else -1]:
            seconds[name].append(seconds_of_steps(trainers[name], batches[i * count : (i + 1) * count]))
    ours, theirs = seconds.values()
    masks = [batch["attention_mask"] for batch in batches]
    return {
        "median_ratio": statistics.median(b / a for a, b in zip(ours, theirs)),
        "minimum_ratio": min(theirs) / min(ours),
        "padding": 1 - sum(int((mask != 0).sum()) for mask in masks) / sum(mask.numel() for mask in masks),
        "rounds": rounds,
        "batches": count,
        "seconds": seconds,
        "device": str(run.training.device),
        "attention": {name: model.config._attn_implementation for name, model in models.items()},
    }


def saved_report(path: Path, run: Run) -> dict[str, Any]:
    """What is saved at `path` of what `run` finished; a ValueError if that had other settings."""
    saved = json.loads(path.read_text())
    made = f"the results in {str(path.parent)!r} had"
    check_same(saved["settings"], run.settings, made, "give another output_dir, or remove that one")
    print(f"{path} is there already: what it holds is not done again")
    return saved
