"""`minibert pretrain`: a config, a corpus, and `PretrainingTrainer`."""

import os
from pathlib import Path
from typing import Any, Literal

from ..common.config_fields import checked_options, make_config
from ..common.locks import lock_output
from ..common.precision import without_autocast
from ..common.printing import print_next_step, without_bars
from ..common.training_result import TrainingResult
from ..data.corpus import Corpus
from ..data.tables import Rows
from ..loop.checkpoints import checkpoint_to_resume
from .config import PretrainingConfig, preset_config, read_overrides
from .trainer import PretrainingTrainer


@checked_options(Corpus, PretrainingConfig, former_names={"model": "preset"})
@without_bars()
def pretrain(
    data: str | os.PathLike | list[str] | Rows | Corpus | None = None,
    preset: Literal["bert", "modernbert", "minibert"] = "minibert",
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = "mini",
    tokenizer: str | None = None,
    model_name_or_path: str | None = None,
    config_overrides: str | dict[str, Any] | None = None,
    args: PretrainingConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a tokenizer and pretrain a model on text.

    The model, the tokenizer, a card, a report and the loss curve are saved to `output_dir`.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        data: The text: txt, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data
            sets (owner/name or owner/name:config), with several languages as language=FILE
            (de=folder); or a folder that `minibert prepare` wrote. By default the built-in corpus:
            the documentation in this Python installation. In Python also rows: a `Dataset`, a
            DataFrame or dictionaries; or a `Corpus`.
        preset: The architecture of a new model: one of the two published ones, or ModernBERT with
            changes that make it learn faster.
        size: The size of the preset.
        tokenizer: A trained tokenizer (folder or Hub name); by default one is trained on the text.
        model_name_or_path: A trained MiniBERT (folder or Hub name) to continue with.
        config_overrides: Fields of `MiniBertConfig` to change in the preset, as
            "hidden_size=64,num_hidden_layers=2" or as JSON; in a trained model, only fields that do
            not change the shapes of its weights.
        args: The settings of the training.
        options: Fields of `Corpus` and of `PretrainingConfig`; the latter replace those of `args`.

    Returns:
        The saved model (None in a process that saves nothing), the tokenizer, the report and the
        folder.
    """
    corpus = Corpus.from_options(data, options)
    args = make_config(PretrainingConfig, args, options)
    overrides = read_overrides(config_overrides)
    with lock_output(args):
        checkpoint_to_resume(args, is_quiet=True)  # refuse early: the trainer looks after reading
        trainer = PretrainingTrainer(
            model_name_or_path or preset_config(preset, size, overrides),
            args,
            train_dataset=corpus,
            processing_class=tokenizer,
            config_overrides=overrides,
        )
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_model()
    return report_and_return(trainer)


def report_and_return(trainer: PretrainingTrainer) -> TrainingResult:
    """Print examples of the saved model on held-out text. Only the first process returns the
    model."""
    output = Path(trainer.args.output_dir)
    tokenizer = trainer.tokenizer_to_save()
    if not trainer.is_world_process_zero():
        return TrainingResult(None, tokenizer, output_dir=output)
    demo_lines = trainer.objective.demo_lines(output, trainer.held_out_texts(), tokenizer)
    print("", *demo_lines, "", sep="\n")
    card = "README.md (the model card)"
    if trainer.card.example is not None:
        card = "README.md (the model card, with a sentence of the held-out text as its example)"
    print(f"Saved to {output}: the model, the tokenizer, {card}, report.json and pictures")
    if trainer.budget is not None:
        print(f"Used {trainer.budget.elapsed / 60:.1f} of {trainer.args.minutes:g} minutes")
    next_command = trainer.objective.next_command(output)
    print_next_step(*next_command, warning=trainer.report["warning"])
    trained = without_autocast(trainer.objective.model_to_save(trainer.model))
    return TrainingResult(trained, tokenizer, trainer.report, output)
