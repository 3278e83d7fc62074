"""A text's way from a file to its loss: which files of the package it passes, in which order.

    python benchmarks/road.py

One small training (`minibert.pretrain` of a text file, objective mlm, one process) is traced with
`sys.setprofile`, from the call of `pretrain` to the first loss. It is counted like this:

- A function is on the road if it hands the text on: it returns documents, rows, batches or states (a
  data set, an Arrow table, an array, a tensor, or a list, tuple or mapping that holds one), or makes
  an object that keeps them. An array with a row for each token of the vocabulary is no text.
- A file is on the road if functions of it are. Importing a file is not entering it: what runs while
  a module is imported does not count. Files come in the order in which the first of these functions
  was called. A file whose functions on the road have fewer than 10 lines in all is small: it passes
  the text on to others, and is listed apart.
- A step back is a pair of files, none of them small: a function of the later one calls a function
  of the earlier one, and gets the text from it. (The later one is the one that was entered later.
  Frames of other libraries in between are passed over. However often a pair occurs, it counts once.)

Files that hand no text on (settings, locks, checks, callbacks) are listed with their number.
"""

import contextlib
import io
import os
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SMALL = 10  # lines
MAX_DEPTH = 2  # lists of lists are looked into so far
VOCABULARY = 192  # a size that no batch has
SYLLABLES = [first + second for first in "bdfgklmnprstv" for second in "aeiou"]


class Road:
    """The profile function of a training, and what it has seen."""

    def __init__(self, package: Path):
        self.package = package
        self.entered: dict[str, int] = {}  # files, with the number of their first call
        self.started: dict[FrameType, int] = {}  # functions that run, with the number of their call
        self.first_calls: dict[str, int] = {}  # of files on the road
        self.functions: dict[str, set[CodeType]] = {}  # of files on the road
        self.calls: set[tuple[str, str]] = set()  # caller and called file
        self.count = 0  # of calls
        self.imports = 0  # modules that are being imported
        self.has_ended = False

    def profile(self, frame: FrameType, event: str, value: Any) -> None:
        """For `sys.setprofile`."""
        if frame.f_code.co_name == "<module>":
            if event == "call":
                self.imports += 1
            elif event == "return":
                self.imports -= 1
        if self.imports or self.has_ended or event not in ("call", "return"):
            return
        file = self._file_of(frame)
        if file is None:
            return
        if event == "call":
            self.count += 1
            self.started[frame] = self.count
            self.entered.setdefault(file, self.count)
            return
        started = self.started.pop(frame, self.count)
        if frame.f_code.co_name == "__init__":
            maker = frame.f_locals["self"]
            if type(maker).__init__.__code__ is frame.f_code:  # not the part of a base class
                value = list(vars(maker).values())
        if carries_text(value):
            self.first_calls[file] = min(started, self.first_calls.get(file, started))
            self.functions.setdefault(file, set()).add(frame.f_code)
            self.calls.add((self._caller_of(frame) or file, file))
        if frame.f_code.co_name == "compute_loss":
            self.has_ended = True

    def lines(self, file: str) -> int:
        """The lines of the functions of a file that hand the text on."""
        total = 0
        for code in self.functions[file]:
            numbers = [line for *_, line in code.co_lines() if line is not None]
            total += max(numbers) - min(numbers) + 1
        return total

    def files(self, small: bool = False) -> list[str]:
        """The files on the road, or the small ones."""
        in_order = sorted(self.first_calls, key=self.first_calls.get)
        return [file for file in in_order if (self.lines(file) < SMALL) == small]

    def steps_back(self) -> list[tuple[str, str]]:
        """Pairs of files: the later one gets the text from the earlier one."""
        order = {file: number for number, file in enumerate(self.files())}
        pairs = []
        for caller, file in sorted(self.calls):
            if caller in order and file in order and order[file] < order[caller]:
                pairs.append((caller, file))
        return pairs

    def _file_of(self, frame: FrameType) -> str | None:
        """The file of a frame, as from the package; None for other code."""
        path = frame.f_code.co_filename
        if not path.startswith(f"{self.package}/"):
            return None
        return path.removeprefix(f"{self.package}/")

    def _caller_of(self, frame: FrameType) -> str | None:
        """The file of the nearest function of the package that has led here."""
        outer = frame.f_back
        while outer is not None:
            file = self._file_of(outer)
            if file is not None:
                return file
            outer = outer.f_back
        return None


def carries_text(value: Any, depth: int = 0) -> bool:
    """Whether a value is made of the text: see the beginning of this file."""
    import datasets
    import numpy as np
    import pyarrow as pa
    import torch

    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.ndim > 0 and value.shape[0] != VOCABULARY
    if isinstance(value, (datasets.Dataset, datasets.IterableDataset, pa.Table)):
        return True
    if depth == MAX_DEPTH:
        return False
    if isinstance(value, Mapping):
        values = list(value.values())
    elif isinstance(value, (list, tuple)):
        values = list(value[:100])
    else:
        return False
    return any(carries_text(item, depth + 1) for item in values)


def trace(folder: Path) -> Road:
    """Train on a text file in `folder`; returns what was seen."""
    import datasets
    import torch

    import minibert

    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    text = folder / "text.txt"
    draw = random.Random(0)
    words = ["".join(draw.choices(SYLLABLES, k=3)) for _ in range(300)]
    text.write_text("\n".join(" ".join(draw.choices(words, k=12)) for _ in range(200)))
    road = Road(Path(minibert.__file__).parent)
    pretrain = minibert.pretrain
    sys.setprofile(road.profile)
    try:
        pretrain(
            str(text),
            size="tiny",
            vocab_size=VOCABULARY,
            seq_length=32,
            max_steps=1,
            output_dir=str(folder / "out"),
            eval_strategy="no",
            save_strategy="no",
            report_to="none",
            bf16=False,
            use_cpu=True,
            disable_tqdm=True,
        )
    finally:
        sys.setprofile(None)
    return road


def main() -> Road:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = folder  # else a step that was cached is passed by
        with contextlib.redirect_stdout(io.StringIO()):
            road = trace(Path(folder))
    print("On the road, with the lines of the functions that hand the text on:")
    for number, file in enumerate(road.files(), 1):
        print(f"  {number:2}  {file} ({road.lines(file)})")
    steps_back = road.steps_back()
    small = road.files(small=True)
    print(f"{len(road.files())} files, {len(steps_back)} steps back")
    for caller, file in steps_back:
        print(f"      {caller} ← {file}")
    print(f"{len(small)} small files on the road: {', '.join(small)}")
    beside = [file for file in road.entered if file not in road.first_calls]
    print(f"{len(beside)} files that hand no text on: {', '.join(beside)}")
    return road


if __name__ == "__main__":
    main()
