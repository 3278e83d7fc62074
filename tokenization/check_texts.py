"""Texts as tokenizers are trained and extended on: an iterable of strings."""

from typing import Any


def check_texts(texts: Any) -> None:
    """Refuse (a ValueError) what is no iterable of texts, but would be iterated over: one string,
    whose characters come out, and a table, whose column names or rows do."""
    if isinstance(texts, str):
        raise ValueError("texts: a single str; use a list, or another iterable, of strings")
    if hasattr(texts, "columns") or hasattr(texts, "column_names"):
        raise ValueError(
            f"texts: a {type(texts).__name__} is a table; give its column of texts, such as"
            ' table["text"]'
        )


def check_text(text: Any, index: int) -> None:
    """Refuse (a ValueError) one of the texts that is no string."""
    if not isinstance(text, str):
        raise ValueError(f"texts[{index}]: of type {type(text).__name__}; use strings")
