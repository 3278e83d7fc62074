"""Text of files: in which encoding it is, and the error for what cannot be read."""

import json
from pathlib import Path


class ReadError(ValueError):
    """A file, or a record of it, that cannot be read; the message names the file and the line."""


def detect_encoding(file: str | Path) -> str:
    """UTF-8, or a form of UTF-16 or UTF-32: the first four bytes tell them apart, by a byte-order
    mark (as Excel writes it) or by their zeros."""
    with open(file, "rb") as stream:
        encoding = json.detect_encoding(stream.read(4))
    return "utf-8-sig" if encoding == "utf-8" else encoding


def read_text(path: str | Path) -> str:
    """The text of a file in UTF-8 or UTF-16; a ReadError for other bytes."""
    try:
        return Path(path).read_text(encoding=detect_encoding(path))
    except UnicodeDecodeError as error:
        raise encoding_error(path, error) from None


def encoding_error(file: str | Path, error: UnicodeDecodeError) -> ReadError:
    """The error for bytes that are no text. Of UTF-8 it names the line of the first of them."""
    if not error.encoding.startswith("utf-8"):
        return ReadError(f"{str(file)!r} is not {error.encoding} text: {error.reason}")
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error_of_line:
                reason = error_of_line.reason
                return ReadError(
                    f"{str(file)!r} is not UTF-8 text: line {number}: {reason}; save it as UTF-8"
                )
    return ReadError(f"{str(file)!r} is not UTF-8 text: {error.reason}; save it as UTF-8")
