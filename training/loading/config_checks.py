"""Which values config.json of a saved model may hold."""

from typing import Any

from ...configuration_minibert import MAX_LABELS
from .code_references import check_kernels


def check_config_values(path: str, saved: Any) -> None:
    """Refuse (a ValueError) a config.json whose values Transformers would fail on without a clear
    word."""
    if not isinstance(saved, dict):
        raise ValueError(f"model: {path!r} has a config.json that is no JSON object")
    count = saved.get("num_labels")
    if isinstance(count, int) and count > MAX_LABELS:
        raise ValueError(f"model: {path!r} has num_labels={count:,}; use {MAX_LABELS:,} at most")
    names = saved.get("architectures") or []
    if not isinstance(names, list) or not all(map(_is_identifier, names)):
        raise ValueError(
            f"model: {path!r} has architectures={names!r:.80} in config.json; use a list of one"
            " class name"
        )
    labels = saved.get("id2label")
    if labels is not None and not _are_labels(labels):
        raise ValueError(
            f"model: {path!r} has id2label={labels!r:.80} in config.json; use names by numbers from"
            " 0"
        )
    check_kernels(saved, "config.json")


def _is_identifier(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _are_labels(labels: Any) -> bool:
    if not isinstance(labels, dict):
        return False
    numbers = [key.isascii() and key.isdecimal() and len(key) < 10 for key in labels]
    names = [isinstance(name, (str, int, float)) for name in labels.values()]
    return all(numbers) and all(names)
