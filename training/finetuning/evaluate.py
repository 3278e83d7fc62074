"""`minibert evaluate TASK`: measures a fine-tuned model by `FinetuningTrainer`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import DatasetDict

from ..common.config_fields import checked_options
from ..common.locks import lock_output
from ..common.paths import check_folder
from ..common.printable import printable
from ..common.printing import print_next_step, warn, without_bars
from ..common.random_state import random_state_kept
from ..data.tables import Rows
from ..embeddings.evaluate import EVALUATE_FUNCTIONS
from .command_options import SENTENCE_TASKS, call_sentence_function, make_task, resolve_options
from .config import EvaluationConfig
from .results import FILES_DESCRIPTION
from .tasks import EVALUATION_FIELDS, TASKS
from .tasks.predictions import Scores
from .trainer import FinetuningTrainer


@checked_options(
    EvaluationConfig,
    described_fields=EVALUATION_FIELDS,
    has_task_options=True,
)
@without_bars()
def evaluate(
    task: str,
    model: str | os.PathLike | None = None,
    data: str | os.PathLike | Rows | DatasetDict | None = None,
    validation: str | list[str] | Rows | None = None,
    test: str | list[str] | Rows | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    **options: Any,
) -> dict[str, Scores]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused
    before any work.

    Args:
        task: "classify", "nli", "choose", "tag" or "answer"; "embed" and "rerank" call
            `evaluate_embed` and `evaluate_rerank` in `training.embeddings.evaluate` with the other
            arguments.
        model: The fine-tuned model: a folder or a Hub name; by default runs/finetune (embed:
            runs/embed, rerank: runs/rerank).
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A
            simple baseline is made from its training rows, or else from the measured rows, and
            shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation.
        options: Options of the task, which are those of its class (`Classify`, `Tag`, …), and
            fields of `EvaluationConfig`, which replace those of `args`.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """
    if task in SENTENCE_TASKS:
        arguments = {
            "data": data,
            "model": None if model is None else str(model),
            "validation": validation,
            "test": test,
            "columns": columns,
            "args": args,
            **options,
        }
        return call_sentence_function(EVALUATE_FUNCTIONS[task], arguments)
    if model is None:
        model = "runs/finetune"
    cls, task_options, args = resolve_options(evaluate, task, args, options, EvaluationConfig)
    output = Path(args.output_dir)
    check_evaluation(task, task_options, output)
    with lock_output(args), random_state_kept():
        trainer = FinetuningTrainer(
            make_task(cls, model, task_options),
            model,
            args,
            eval_dataset=validation,
            test_dataset=test,
            data=data,
            columns=columns,
            do_train=False,
        )
        scores = trainer.measure()
        if args.should_save:  # one of several processes
            results = trainer.results()
            print(f"\n{printable(model)}, {task}\n{results.describe()}\n")
            report = {"task": task, "model": str(model), **scores, **results.make_report()}
            results.save(report, output)
            print(f"Saved to {output}: {FILES_DESCRIPTION}")
            warn(results.warning)
            print_next_step("minibert", "predict", model, "FILE", warning=results.warning)
    return scores


def check_evaluation(task: str, task_options: Mapping[str, Any], output: Path) -> None:
    """Refuse (a ValueError) options of training, and a folder whose metrics would be lost."""
    for name in TASKS[task].training_options:
        if name in task_options:
            raise ValueError(f"{name}: it matters in training only; leave it out")
    check_folder(output)
    if (output / "config.json").exists():
        raise ValueError(
            f"output_dir: {str(output)!r} holds a model, whose metrics would be lost;"
            " give another folder"
        )
