"""How a cell of a table writes its label, or several."""

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

# Between several labels in one cell, as in joy|sad.
LABEL_SEPARATOR = "|"
# What people write there too. It is part of a name, as in "Arts, Crafts", and gives a warning where
# a part is in several names.
UNREAD_SEPARATORS = ("#", ",", ";", "/")
LIST_EXAMPLE = (
    'a list of names (or of their numbers), each of them once, such as ["joy", "sad"];'
    " not of 0 and 1"
)


def plain_label(value: Any, names: Sequence[str] | None) -> Any:
    """A label as it is compared: its name where its column has `names` for numbers, a whole number
    as int, the list that a text writes (["joy", "sad"], joy|sad or Label Studio's {"choices":
    ["joy", "sad"]}), None for an empty cell."""
    if isinstance(value, str) and value.lstrip().startswith('{"choices"'):
        with suppress(json.JSONDecodeError):
            value = json.loads(value)
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        value = value["choices"]
    if isinstance(value, list):
        return [plain_label(item, names) for item in value]
    if isinstance(value, str) and value.strip()[:1] == "[" and value.strip()[-1] == "]":
        for text in (value, value.replace("'", '"')):  # as JSON and as Python write it
            with suppress(json.JSONDecodeError):
                return json.loads(text)
        raise ValueError(f'the label {value[:100]!r} is not a list; write it as ["joy", "sad"]')
    if isinstance(value, str) and LABEL_SEPARATOR in value:
        return [part.strip() for part in value.split(LABEL_SEPARATOR)]
    if value == "" or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if names and isinstance(value, int) and value >= 0:
        return names[value]
    if isinstance(value, bool):
        return str(value)
    return value


def is_list_of_one(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def are_classes_with_gaps(columns: Sequence[list[Any]]) -> bool:
    """Whether labels (columns of all splits) are lists of one class each, of two or more classes,
    beside empty ones. With a single label, an empty list says that an example lacks it."""
    classes = set()
    has_gaps = False
    for value in chain.from_iterable(columns):
        if value == []:
            has_gaps = True
        elif is_list_of_one(value):
            classes.add(str(value[0]))
        else:
            return False
    return has_gaps and len(classes) > 1
