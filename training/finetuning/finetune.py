"""`minibert finetune TASK`: a task, a config, and `FinetuningTrainer`."""

import os
from pathlib import Path
from typing import Any

from datasets import DatasetDict

from ..common.config_fields import checked_options
from ..common.locks import lock_output
from ..common.precision import without_autocast
from ..common.printing import print_next_step, without_bars
from ..common.training_result import TrainingResult
from ..data.tables import Rows, as_dataset
from ..loop.checkpoints import checkpoint_to_resume, remove_checkpoints
from .command_options import SENTENCE_TASKS, call_sentence_function, make_task, resolve_options
from .config import FinetuningConfig
from .plan import make_plan
from .trainer import FinetuningTrainer


@checked_options(FinetuningConfig, has_task_options=True)
@without_bars()
def finetune(
    task: str,
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | Rows | DatasetDict | None = None,
    train: str | list[str] | Rows | None = None,
    validation: str | list[str] | Rows | None = None,
    test: str | list[str] | Rows | None = None,
    columns: list[str] | None = None,
    validation_size: float | None = None,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        task: "classify", "nli", "choose", "tag" or "answer"; "embed" and "rerank" call
            `finetune_embed` and `finetune_rerank` in `training.embeddings.finetune` with the other
            arguments.
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that
            `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training file, or
            a Hub data set. In Python, all four can be rows: a `Dataset`, a DataFrame or
            dictionaries.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share below 1,
            or a number; by default 0.1 (embed, rerank: 0.05).
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are
            given are kept.
        args: The settings of the training.
        options: Options of the task, which are those of its class (`Classify`, `Tag`, …), and
            fields of `FinetuningConfig`, which replace those of `args`.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """
    sources = {
        "data": as_dataset(data),
        "train": as_dataset(train, "train"),
        "validation": as_dataset(validation, "validation"),
        "test": as_dataset(test, "test"),
    }
    if task in SENTENCE_TASKS:
        arguments = {
            **sources,
            "model": str(model),
            "columns": columns,
            "validation_size": validation_size,
            "plan": plan or None,
            "args": args,
            **options,
        }
        # here, since it imports sentence-transformers, which takes seconds
        from ..embeddings.finetune import FINETUNE_FUNCTIONS

        return call_sentence_function(FINETUNE_FUNCTIONS[task], arguments)
    cls, task_options, args = resolve_options(finetune, task, args, options, FinetuningConfig)
    with lock_output(args):
        if plan:
            new_task = make_task(cls, model, task_options)
            return make_plan(new_task, model, args, sources, columns, validation_size)
        checkpoint_to_resume(args, is_quiet=True)  # refuse early: the trainer looks after reading
        trainer = FinetuningTrainer(
            make_task(cls, model, task_options),
            model,
            args,
            train_dataset=sources["train"],
            eval_dataset=sources["validation"],
            test_dataset=sources["test"],
            data=sources["data"],
            columns=columns,
            validation_size=validation_size,
            do_train=True,
        )
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.measure()
        trainer.save_model()
        if args.should_save:  # one of several processes
            remove_checkpoints(Path(args.output_dir))
    return report_and_return(trainer)


def report_and_return(trainer: FinetuningTrainer) -> TrainingResult:
    """Print the next command. Only the process that saves returns the model and the report."""
    output = Path(trainer.args.output_dir)
    tokenizer = trainer.tokenizer_to_save()
    if not trainer.args.should_save:
        return TrainingResult(None, tokenizer, output_dir=output)
    print_next_step("minibert", "predict", output, "FILE", warning=trainer.report["warning"])
    return TrainingResult(without_autocast(trainer.model), tokenizer, trainer.report, output)
