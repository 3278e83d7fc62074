"""Text from files and names, made safe to print."""

import re

UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: object) -> str:
    """Make text from a file safe for a terminal, on one line: control characters (such as line ends
    and terminal escapes), marks that change the direction of writing, and invisible tags become
    Python escapes."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))
