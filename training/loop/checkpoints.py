"""Checkpoints: which one a training resumes from, and whether it is whole."""

import json
import re
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from ..common.files import write_json
from ..common.paths import check_folder
from ..common.printable import printable
from ..common.processes import of_first_rank
from ..loading.linked_files import check_links

RESUME_ADVICE = "resume with --resume_from_checkpoint true"
MANIFEST = "checkpoint_manifest.json"
# Files of the optimizer's state, also of FSDP and DeepSpeed.
OPTIMIZER_FILES = ("optimizer*", "global_step*")


def checkpoint_to_resume(
    args: TrainingArguments, checkpoint: str | bool | None = None, *, is_quiet: bool = False
) -> str | None:
    """Find the checkpoint that `resume_from_checkpoint` names (`checkpoint`, or that of the
    arguments): a path, or `true` for the newest whole one in the output folder. Returns None for a
    new training, and with `true` if no checkpoint was finished. The first process decides for all.

    Args:
        is_quiet: Whether to print nothing, as before a trainer that calls this again.

    Raises:
        ValueError: the output folder holds another run, or links that lead out of it, with which
            its model could not be loaded; or none of its checkpoints is whole.
    """
    if checkpoint is None:
        checkpoint = args.resume_from_checkpoint
    newest = None
    if args.process_index == 0:
        choice = str(checkpoint or "false")
        newest, notes = _find_checkpoint(Path(args.output_dir), choice)
        for note in notes:
            if not is_quiet:
                print(note)
    path = of_first_rank(newest)
    if path is not None and not Path(path).is_dir():
        raise ValueError(
            f"output_dir: {path!r} is not on this machine; use a folder that all machines share"
        )
    return path


def _find_checkpoint(folder: Path, choice: str) -> tuple[str | None, list[str]]:
    """The checkpoint of a choice, and what to print of it. A choice is "false", "true" (the newest
    one) or a path."""
    check_links(folder)
    is_newest = choice.lower() == "true"
    is_inside = Path(choice).resolve().parent == folder.resolve()
    if choice.lower() == "false" or not (is_newest or is_inside):
        check_no_run(folder)
    if choice.lower() == "false":
        return None, []
    candidates = _checkpoints(folder) if is_newest else [Path(choice)]
    damages = []
    for checkpoint in candidates:
        damage = find_damage(checkpoint)
        if damage is None:
            notes = [f"Skipped {printable(line)}" for line in damages]
            notes.append(f"Resuming from {checkpoint}")
            return str(checkpoint), notes
        damages.append(f"{checkpoint.name}: {damage}")
    _refuse_finished(folder)
    if not is_newest or any((checkpoint / MANIFEST).exists() for checkpoint in candidates):
        reasons = "; ".join(damages)
        raise ValueError(
            f"resume_from_checkpoint: no checkpoint is whole ({reasons}); train in another folder"
        )
    return None, [f"No checkpoint in {str(folder)!r} was finished: starting anew"]


def check_no_run(folder: Path) -> None:
    """`check_folder`; and one that holds a finished or an unfinished run is refused too."""
    check_folder(folder)
    _refuse_finished(folder)
    if _checkpoints(folder):
        use = "resume it with --resume_from_checkpoint true, give another folder, or remove it"
        raise ValueError(f"output_dir: {str(folder)!r} holds an unfinished run; {use}")


def _refuse_finished(folder: Path) -> None:
    """Refuse (ValueError) a folder that holds a finished run."""
    # A push during the training leaves a config too. The report is saved at the end, before
    # checkpoints are removed.
    has_report = (folder / "report.json").exists() or (folder / "metrics.json").exists()
    is_finished = has_report or not _checkpoints(folder)
    if (folder / "config.json").exists() and is_finished:
        raise ValueError(
            f"output_dir: {str(folder)!r} holds a finished model; give another folder, or remove it"
        )


def kept_step(state: Mapping[str, Any], load_best_model_at_end: bool) -> int:
    """The step of the model that a training keeps; `state`: the fields of its `TrainerState`."""
    # Not best_global_step: if evaluations are more frequent than checkpoints, it may have no
    # checkpoint.
    best = state["best_model_checkpoint"]
    if best is None or not load_best_model_at_end:
        return state["global_step"]
    return _step(Path(best))


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a finished training, which hold pickles, and the folder if it is
    empty then."""
    for path in _checkpoints(folder):
        shutil.rmtree(path)
    with suppress(OSError):
        folder.rmdir()


def find_damage(checkpoint: Path) -> str | None:
    """Say why a checkpoint cannot be resumed; None if it is as its manifest says."""
    try:
        saved = dict(json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return f"it was not finished (no {MANIFEST})"
    if not any(path for name in OPTIMIZER_FILES for path in checkpoint.glob(name)):
        return "it holds the model alone (train with --save_only_model false)"
    contents = _contents(checkpoint)
    for name in saved:
        if contents.get(name) != saved[name]:
            return f"{name} is missing or has changed"
    return None


def write_manifest(checkpoint: Path) -> None:
    """List a checkpoint's files with their sizes and checksums, once all are written."""
    write_json(checkpoint / MANIFEST, _contents(checkpoint))


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    folders = []
    for path in folder.glob("checkpoint-*"):
        if re.fullmatch(r"checkpoint-\d+", path.name) and path.is_dir():
            folders.append(path)
    return sorted(folders, key=_step, reverse=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def _contents(checkpoint: Path) -> dict[str, list[int]]:
    """The size and the checksum of every file but the manifest, by name."""
    files = (
        path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != MANIFEST
    )
    return {
        path.relative_to(checkpoint).as_posix(): [path.stat().st_size, _checksum(path)]
        for path in files
    }


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            checksum = zlib.crc32(block, checksum)
    return checksum
