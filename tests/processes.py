"""Fresh Python processes. Loading torch and what Transformers loads besides takes seconds: one process does, and every
fresh one is a copy of it, in which neither Transformers nor the Hub's library nor MiniBERT has been loaded.

Nothing here may import them, either.
"""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import sys
import textwrap
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([
    "jinja2", "pandas", "scipy.optimize", "sklearn.metrics", "sympy", "tokenizers", "torch._dynamo",
    "torch.distributed.fsdp", "torch.distributed.tensor",
])  # fmt: skip


class Python:
    """A Python process of its own that runs pieces of code, one after the other; to be closed, or used by `with`.

    Args:
        folder: where it runs.
        environment: all of its environment; by default ours.
        with_package: else `import minibert` is an ImportError in it.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, with_package: bool = True
    ):
        self._channel, theirs = _context.Pipe()
        given = dict(os.environ if environment is None else environment)
        self._process = _context.Process(
            target=_serve, args=(theirs, str(folder), given, with_package), daemon=True
        )
        self._process.start()
        theirs.close()
        self.printed = ""

    def run(self, code: str) -> Any:
        """Run code and hand back its variable `result`; what it printed is in `printed`."""
        self._channel.send(textwrap.dedent(code))
        error, result, self.printed = self._channel.recv()
        assert error is None, f"{error}\n{self.printed}"
        return result

    def close(self) -> None:
        self._process.kill()
        self._process.join()

    def __enter__(self) -> Python:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def _serve(channel, folder: str, environment: dict[str, str], with_package: bool) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if not with_package:
        sys.modules["minibert"] = None
    gc.freeze()  # as in conftest.py
    with contextlib.suppress(EOFError):
        while True:
            code, printed, names, error = (
                channel.recv(),
                io.StringIO(),
                {"__name__": "__main__"},
                None,
            )
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                try:
                    exec(compile(code, "task", "exec"), names)
                except BaseException:
                    error = traceback.format_exc()
            channel.send((error, names.get("result"), printed.getvalue()))
