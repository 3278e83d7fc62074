"""Rows that were made from text once, in parquet shards, for any number of trainings on any number
of machines.

A folder holds the shards (`train-….parquet`, `validation-….parquet`: columns `input_ids` and
`position_ids`, as `pack_documents` makes them), the tokenizer, and a manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...tokenization import check_fast, tokenizer_json
from ..common.files import write_json
from .dataset_calls import DatasetOrStream, load_files
from .entries import ROWS_MANIFEST, is_prepared

SPLITS = ("train", "validation")
# The settings that decide the rows.
ROW_SETTINGS = ("validation_size", "seq_length", "packing")
ROWS_IN_SHARD = 65_536


def save_rows(
    folder: str | Path,
    splits: Mapping[str, datasets.Dataset],
    tokenizer: PreTrainedTokenizerFast,
    settings: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> None:
    """Write the rows of both splits, their tokenizer, and a manifest: the `ROW_SETTINGS` among the
    `settings`, and all `arguments` for people and model cards."""
    folder = Path(folder)
    tokenizer.save_pretrained(folder)
    # The one that a training will load; it may be of another class.
    saved_tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    manifest: dict[str, Any] = {name: settings[name] for name in ROW_SETTINGS}
    manifest["tokenizer_sha256"] = tokenizer_checksum(saved_tokenizer)
    for split, rows in splits.items():
        manifest[split] = _save_shards(folder, split, rows)
    manifest["arguments"] = dict(arguments)
    write_json(folder / ROWS_MANIFEST, manifest)


def _save_shards(folder: Path, split: str, rows: datasets.Dataset) -> dict[str, dict[str, int]]:
    """Write the rows of a split; returns the rows and bytes of each file by its name."""
    shards = {}
    num_shards = -(-len(rows) // ROWS_IN_SHARD)
    for number in range(num_shards):
        path = folder / f"{split}-{number:05d}.parquet"
        shard = rows.shard(num_shards, number)
        shard.to_parquet(path)
        shards[path.name] = {"rows": len(shard), "bytes": path.stat().st_size}
    return shards


def tokenizer_checksum(tokenizer: PreTrainedTokenizerFast) -> str:
    """A checksum of what decides the ids of a row. It ignores the post-processor, which a decoder
    changes, and whether [MASK] takes in the space before it, which a training adapts."""
    state = json.loads(tokenizer_json(tokenizer)) | {"post_processor": None}
    for token in state["added_tokens"]:
        token["lstrip"] &= token["content"] != tokenizer.mask_token
    parts = [state, tokenizer.cls_token_id, tokenizer.sep_token_id]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of prepared rows; a ValueError if it is not as `save_rows` writes it."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        manifest = None
    if not _is_manifest(manifest):
        raise ValueError(
            f"data: {str(path)!r} is not what minibert prepare writes; prepare the rows again"
        )
    return manifest


def _is_manifest(manifest: Any) -> bool:
    """Whether a value is what `save_rows` writes."""
    if not isinstance(manifest, dict):
        return False
    types = {
        "seq_length": int,
        "packing": str,
        "tokenizer_sha256": str,
        "train": dict,
        "validation": dict,
        "arguments": dict,
    }
    for name, expected in types.items():
        if not isinstance(manifest.get(name), expected):
            return False
    if not isinstance(manifest.get("validation_size"), int | float):
        return False
    data = manifest["arguments"].get("data", [])
    if not isinstance(data, list) or not all(isinstance(entry, str) for entry in data):
        return False
    shards = [*manifest["train"].items(), *manifest["validation"].items()]
    return all(_is_shard(name, counts) for name, counts in shards)


def _is_shard(name: str, counts: Any) -> bool:
    if os.path.basename(name) != name or not isinstance(counts, dict):
        return False
    return isinstance(counts.get("rows"), int) and isinstance(counts.get("bytes"), int)


class PreparedRows:
    """A folder that `minibert prepare` has finished; a ValueError if a shard is missing or has
    changed."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder / ROWS_MANIFEST)
        self.settings = {name: self.manifest[name] for name in ROW_SETTINGS}
        # the text that they were made of
        self.data: list[str] = self.manifest["arguments"].get("data", [])
        for name, counts in (self.manifest["train"] | self.manifest["validation"]).items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != counts["bytes"]:
                raise ValueError(
                    f"data: {str(path)!r} is missing or has changed; prepare the rows again"
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @classmethod
    def find(cls, data: Sequence[str]) -> PreparedRows | None:
        """The prepared rows among `data`; None if it is text, a ValueError if it is both."""
        for entry in data:
            if not isinstance(entry, str) or not is_prepared(entry):
                continue
            if len(data) > 1:
                raise ValueError(
                    f"data: {entry!r} holds prepared rows; give no other data beside them"
                )
            return cls(entry)
        return None

    def describe(self) -> str:
        return f"{self._count('train'):,} rows to train on, {self._count('validation'):,} held out"

    def _count(self, split: str) -> int:
        return sum(counts["rows"] for counts in self.manifest[split].values())

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse (a ValueError) another tokenizer than that of the rows."""
        check_fast(tokenizer)
        if tokenizer_checksum(tokenizer) != self.manifest["tokenizer_sha256"]:
            raise ValueError(
                f"tokenizer: {tokenizer.name_or_path!r} is not the one that the rows in"
                f" {str(self.folder)!r} were made with; use that one, or prepare rows with yours"
            )

    def load(self, split: str, streaming: bool = False) -> DatasetOrStream:
        """The rows in the order of the documents: mapped into memory from the cache of `datasets`,
        or a stream."""
        files = [str(self.folder / name) for name in self.manifest[split]]
        return load_files("parquet", files, streaming=streaming)


def decode_documents(
    rows: Iterable[dict[str, Any]], tokenizer: PreTrainedTokenizerBase
) -> Iterator[str]:
    """The texts of the documents in packed rows, as their tokenizer spells them."""
    for row in rows:
        ids = np.asarray(row["input_ids"])
        starts = np.flatnonzero(np.asarray(row["position_ids"]) == 0)
        for document in np.split(ids, starts[1:]):
            yield tokenizer.decode(document, skip_special_tokens=True)
