"""What a training command settles before it starts: which checkpoint to go on from, which number format."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from transformers import TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from .precision import fast_bf16


def checkpoint_to_resume(training: TrainingArguments) -> str | None:
    """The checkpoint that `--resume_from_checkpoint` means: a path, or `true` for the last one in the output folder.

    Raises:
        ValueError: the output folder holds a finished or an unfinished run and nothing says to go on with it; or there
            is nothing to resume.
    """
    folder = Path(training.output_dir)
    wanted = training.resume_from_checkpoint
    if wanted is None or str(wanted).lower() == "false":
        check_unused(folder)
        return None
    if str(wanted).lower() == "true":
        last = _last_checkpoint(folder)
        if last is None:
            raise ValueError(f"resume_from_checkpoint: there is no checkpoint in {str(folder)!r}")
        return last
    if not Path(wanted).is_dir():
        raise ValueError(f"resume_from_checkpoint: {wanted!r} is no folder; legal: a checkpoint's path, or true")
    return str(wanted)


def check_unused(folder: Path, one_of_several: bool = False) -> None:
    """Refuse an output folder that is in use; `one_of_several`: by a run that is a part of another one.

    Raises:
        ValueError: it is a file, or holds a finished or an unfinished run.
    """
    if folder.is_file():
        raise ValueError(f"output_dir: {str(folder)!r} is a file; legal: a folder, existing or new")
    last = _last_checkpoint(folder)
    # A push in mid-run leaves a config, too; the state is saved at the end.
    if (folder / "config.json").exists() and (last is None or (folder / "trainer_state.json").exists()):
        raise ValueError(f"output_dir: {str(folder)!r} holds a finished model; give another one, or remove it")
    if last is not None:
        goes_on = "" if one_of_several or not can_resume(last) else "go on with --resume_from_checkpoint true, "
        raise ValueError(
            f"output_dir: {str(folder)!r} holds an unfinished run; {goes_on}give another one, or remove it"
        )


def can_resume(checkpoint: str) -> bool:
    """Whether a checkpoint holds more than a model."""
    return (Path(checkpoint) / "optimizer.pt").exists()


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a finished training: its best model is saved elsewhere, and they hold pickles."""
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(path)


def _last_checkpoint(folder: Path) -> str | None:
    return get_last_checkpoint(str(folder)) if folder.is_dir() else None


def settle(training: TrainingArguments) -> TrainingArguments:
    """Decide what the user left open: bf16 where the machine is fast at it (said once), real tokens counted."""
    bf16 = bool(training.bf16)
    if training.bf16 is None and not training.fp16:
        bf16, reason = fast_bf16()
        print(f"Computing in {'bf16' if bf16 else 'fp32'}: {reason}")
    return dataclasses.replace(
        training,
        bf16=bf16,
        use_cpu=training.device.type == "cpu",  # without it Transformers refuses bf16 where there is no GPU
        include_num_input_tokens_seen="non_padding",
    )
