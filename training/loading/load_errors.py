"""Loading a model without noise, and with errors that name its folder."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers.utils import logging

from ...tokenization.coverage import is_panic
from ..common.printing import without_bars

# While Transformers loads a model, it replaces `tie_weights` of all models and functions of
# `torch.nn.init`, and then restores them. Of two threads that load at once, the second would
# restore the replaced ones, for good.
LOADING_LOCK = threading.RLock()


@contextmanager
def wrap_load_errors(path: str | Path, show_warnings: bool = False) -> Iterator[None]:
    """Any error of a library that reads damaged files becomes a ValueError that names the path;
    with `suppress_logging`, or with `show_warnings` only without bars."""
    quiet = without_bars() if show_warnings else suppress_logging()
    try:
        with quiet:
            yield
    except BaseException as error:
        if isinstance(error, (ValueError, OSError)) and not isinstance(error, json.JSONDecodeError):
            if isinstance(error, OSError) and not Path(path).exists():
                raise OSError(
                    f"there is no folder {str(path)!r} here, and from the Hub it cannot be loaded:"
                    f" {error}"
                ) from error
            raise  # it is clear
        if not isinstance(error, Exception) and not is_panic(error):
            raise  # such as KeyboardInterrupt
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(
            f"{str(path)!r} has files that cannot be read ({reason}); save or download it again"
        ) from error


@contextmanager
def suppress_logging() -> Iterator[None]:
    """Hide progress bars, and warnings about a head or a pooler that is new or left out. One thread
    at a time."""
    with LOADING_LOCK:
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            with without_bars():
                yield
        finally:
            logging.set_verbosity(verbosity)
