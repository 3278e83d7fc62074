"""What a fine-tuning leaves in its folder: the model, its tokenizer, its card and its results."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.checkpoints import remove_checkpoints
from ..common.files import written_whole
from ..common.printing import warn
from ..hub.card import (
    CardFacts,
    Result,
    describe_data,
    facts_from_trainer,
    headlines,
    published_name,
    save_card,
)
from .data import Source
from .models import load_tokenizer, read_config
from .results import FILES, Results
from .trainer import FinetuningTrainer

LOG = "trainer_state.json"


def save_finetuned(
    trainer: FinetuningTrainer, model: str, sources: Mapping[str, Source], output: Path
) -> dict[str, Any]:
    """Save a model that was trained and measured, and print its scores. Returns the report.

    Args:
        model: Where the training started from.
        sources: Where the rows are from, by split, for the card.
        output: The folder.
    """
    task = trainer.task
    report = {
        "task": task.name,
        "model": model,
        "settings": trainer.settings,
        "precision": precision_of(trainer.args),
        "seed": trainer.args.seed,
        **trainer.scores,
        **trainer.describe_training(),
    }
    results = Results(
        task, trainer.predictions, trainer.scores, trainer.baseline, trainer.simple_scores
    )
    trained_length = task.tokenizer.model_max_length
    if task.name != "answer":  # which keeps its windows; others may read more than in training
        tokenizer_before = load_tokenizer(model, read_config(model), None)
        task.tokenizer.model_max_length = tokenizer_before.model_max_length
    if not trainer.args.should_save:  # one of several processes saves
        return report
    trainer.reset_tokenizer()
    with written_whole(output) as folder:
        trainer.model.save_pretrained(folder)
        task.tokenizer.save_pretrained(folder)
    trainer.state.save_to_json(str(output / LOG))
    files = {name: describe(source) for name, source in sources.items() if source is not None}
    facts = card_facts(trainer, report, results, files, trained_length)
    save_card(output, facts, trainer.args.hub_model_id)
    print(
        f"\n{report['trained_parameters']:,} of {report['parameters']:,} parameters trained for"
        f" {report['steps']:,} steps ({report['epochs']:.2f} epochs), {report['precision']};"
        f" kept: step {report['best_step']:,}"
    )
    print(f"\n{results.describe()}\n")
    results.save(report, output)
    longer = ""
    if task.tokenizer.model_max_length > trained_length:
        longer = (
            f" (it reads {task.tokenizer.model_max_length:,} tokens,"
            f" also if trained on {trained_length:,})"
        )
    print(f"Saved to {output}: the model{longer}, the tokenizer, README.md (the card), {FILES}")
    warn(results.warning)
    remove_checkpoints(output)  # last: until now, they are the only copy of the model
    return report


def precision_of(args: Any) -> str:
    if args.bf16:
        return "bf16"
    if args.fp16:
        return "fp16"
    return "fp32"


def describe(source: Source) -> str:
    """The source of rows, for the card."""
    if isinstance(source, (str, os.PathLike)):
        return describe_data(str(source))
    if isinstance(source, (list, tuple)):
        return describe_data(", ".join(map(str, source)))
    return "a data set in memory"


def card_facts(
    trainer: FinetuningTrainer,
    report: Mapping[str, Any],
    results: Results,
    files: Mapping[str, str],
    trained_length: int,
) -> CardFacts:
    """What the card says.

    Args:
        files: Where the rows are from, in words, by split.
        trained_length: The longest input of the training, in tokens.
    """
    training_files = ", ".join(files[name] for name in ("data", "train") if name in files)
    facts = facts_from_trainer(vars(trainer.state), trainer.args, training_files)
    facts.training = {"task": report["task"], **facts.training}
    facts.training["steps"] += f", step {report['best_step']:,} kept"
    if report["training_seconds"] is None:
        del facts.training["time"]
    measured = []
    for split, scores in results.scores.items():
        split_files = files.get(split) or files.get("data") or files["train"]
        for metric, value in scores.items():
            if value is not None:
                baseline = trainer.baseline[split].get(metric)
                measured.append(Result(metric, value, split_files, split, baseline))
    facts.results = headlines(measured)
    facts.decisions = trainer.task.describe_decision()
    facts.pipeline_scores = results.pipeline_scores.get(results.last, {})
    facts.baseline = trainer.task.baseline
    facts.warning = results.warning
    facts.base_model = published_name(report["model"])
    facts.max_length = trained_length
    return facts
