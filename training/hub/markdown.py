"""Values of files and of users on a card: as text that Markdown shows as it is, or as code."""

import re

from ..common.printable import printable

LONGEST_VALUE = 1000  # characters of one value on a card


def one_line(value: object) -> str:
    """A value on one line, at most `LONGEST_VALUE` characters, all of them printable."""
    text = printable(re.sub(r"\s+", " ", str(value)[: 2 * LONGEST_VALUE]))
    if len(text) > LONGEST_VALUE:
        text = f"{text[:LONGEST_VALUE]}…"
    return text


def plain(value: object) -> str:
    """`one_line` as Markdown shows it: without links, markup, code, formulae, headings and table
    cells."""
    text = re.sub(r"([\\`*\[\]<>|#~&!$]|(?<!\w)_|_(?!\w))", r"\\\1", one_line(value))
    # what would become a link
    return re.sub(r"(:)(?=//)|\b(www)(?=\.)", r"\1\2\\", text, flags=re.IGNORECASE)


class Verbatim(str):
    """Text that the template shows as it is."""


def code(value: str) -> Verbatim:
    """A Python literal of a string; a ValueError for one that is too long for a card."""
    if len(value) > LONGEST_VALUE:
        raise ValueError(
            f"a value for the code of the model card has {len(value):,} characters: {value[:50]!r}…"
        )
    literal = repr(value)
    if literal[0] == "'" and '"' not in literal:
        literal = f'"{literal[1:-1]}"'
    return Verbatim(literal)


def output_block(text: str) -> Verbatim:
    """What a snippet printed, for a block of text."""
    lines = [one_line(line) for line in text.splitlines()]
    return Verbatim("\n".join(lines).replace("`" * 3, "´" * 3))
