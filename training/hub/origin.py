"""What the card of a model says of where it is from: facts that stay with what is made of it.

They are texts from a file of somebody else: short ones, of the form that the Hub gives them.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.repocard import metadata_load

from ..loading.saved_files import find_file
from .uploaded_files import CARD_FILE

MAX_CARD_BYTES = 1_000_000
MAX_NAMES = 20
# Codes of languages and licences.
LANGUAGE_OR_LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,49}")
# A repository of the Hub; old ones have no owner.
REPOSITORY_NAME = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)


@dataclass
class OriginFacts:
    """Where a model is from."""

    base_model: str | None = None  # its name on the Hub, or that of the model that it was made from
    license: str | None = None
    languages: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)


def read_origin(source: str | Path) -> OriginFacts:
    """The facts of a model to start from, a folder or a Hub name. Without a card, there are none
    but the name."""
    metadata = _read_metadata(source)
    is_folder = Path(source).exists()
    base_model = metadata.get("base_model") if is_folder else str(source)
    if isinstance(base_model, list) and base_model:
        base_model = base_model[0]
    license = metadata.get("license")
    return OriginFacts(
        base_model=_match(REPOSITORY_NAME, base_model),
        license=_match(LANGUAGE_OR_LICENSE, license),
        languages=_matches(LANGUAGE_OR_LICENSE, metadata.get("language")),
        datasets=_matches(REPOSITORY_NAME, metadata.get("datasets")),
    )


def _read_metadata(source: str | Path) -> dict[str, Any]:
    """The block at the top of the README.md of a model; empty if there is none, or if it cannot be
    read: a model is worth more than its card."""
    metadata = None
    with suppress(OSError, ValueError, RecursionError, yaml.YAMLError, HfHubHTTPError):
        path = find_file(source, CARD_FILE)
        if path is not None and path.stat().st_size <= MAX_CARD_BYTES:
            metadata = metadata_load(path)
    return metadata or {}


def _match(pattern: re.Pattern, value: Any) -> str | None:
    """A text of this form; None for anything else."""
    if value is False:  # YAML's Norwegian
        value = "no"
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    return None


def _matches(pattern: re.Pattern, values: Any) -> list[str]:
    """The texts of this form in a list, which may be one text; not too many."""
    if not isinstance(values, list):
        values = [values]
    texts = []
    for value in values[:MAX_NAMES]:
        text = _match(pattern, value)
        if text is not None:
            texts.append(text)
    return texts
