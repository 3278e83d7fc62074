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

from ...tokenization import check_fast, tokenizer_backend
from ..common.files import write_json
from .documents import ROWS_MANIFEST
from .tables import DatasetOrStream, load_files

SPLITS = ("train", "validation")
MADE = ("validation_size", "seq_length", "packing")  # how rows were made
ROWS_IN_SHARD = 65_536


def save_rows(
    folder: str | Path,
    splits: Mapping[str, datasets.Dataset],
    tokenizer: PreTrainedTokenizerFast,
    made: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> None:
    """Write the rows of both splits, their tokenizer, and a manifest: how they were `made` (the
    values of `MADE`), and the other `arguments` for people and model cards."""
    folder = Path(folder)
    tokenizer.save_pretrained(folder)
    # it may be of another class than the one that was saved
    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    manifest = {name: made[name] for name in MADE} | {
        "tokenizer_sha256": tokenizer_checksum(loaded)
    }
    for split, rows in splits.items():
        manifest[split] = {}
        num_shards = -(-len(rows) // ROWS_IN_SHARD)
        for number in range(num_shards):
            path = folder / f"{split}-{number:05d}.parquet"
            shard = rows.shard(num_shards, number)
            shard.to_parquet(path)
            manifest[split][path.name] = {"rows": len(shard), "bytes": path.stat().st_size}
    write_json(folder / ROWS_MANIFEST, manifest | {"arguments": dict(arguments)})


def tokenizer_checksum(tokenizer: PreTrainedTokenizerFast) -> str:
    """A checksum of what decides the ids of a row. It ignores the post-processor, which a decoder
    changes, and whether [MASK] takes in the space before it, which a training adapts."""
    backend = json.loads(tokenizer_backend(tokenizer)) | {"post_processor": None}
    for token in backend["added_tokens"]:
        token["lstrip"] &= token["content"] != tokenizer.mask_token
    parts = [backend, tokenizer.cls_token_id, tokenizer.sep_token_id]
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
    types = {"seq_length": int, "packing": str, "tokenizer_sha256": str, "arguments": dict}
    types |= dict.fromkeys(SPLITS, dict)
    if not isinstance(manifest, dict):
        return False
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
        self.made = {name: self.manifest[name] for name in MADE}
        # the text that they were made of
        self.data: list[str] = self.manifest["arguments"].get("data", [])
        for name, counts in (self.manifest["train"] | self.manifest["validation"]).items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != counts["bytes"]:
                raise ValueError(
                    f"data: {str(path)!r} is missing or has changed; prepare the rows again"
                )

    @classmethod
    def find(cls, data: Sequence[str]) -> PreparedRows | None:
        """The prepared rows among `data`; None if it is text, a ValueError if it is both."""
        prepared = []
        for entry in data:
            if isinstance(entry, str) and os.path.isfile(os.path.join(entry, ROWS_MANIFEST)):
                prepared.append(entry)
        if prepared and len(data) > 1:
            raise ValueError(
                f"data: {prepared[0]!r} holds prepared rows; give no other data beside them"
            )
        return cls(prepared[0]) if prepared else None

    def describe(self) -> str:
        num_rows = {}
        for split in SPLITS:
            num_rows[split] = sum(counts["rows"] for counts in self.manifest[split].values())
        return f"{num_rows['train']:,} rows to train on, {num_rows['validation']:,} held out"

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse (a ValueError) another tokenizer than that of the rows."""
        check_fast(tokenizer)
        if tokenizer_checksum(tokenizer) != self.manifest["tokenizer_sha256"]:
            rows = f"the rows in {str(self.folder)!r} were made with"
            use = "use that one, or prepare rows with yours"
            raise ValueError(
                f"tokenizer: {tokenizer.name_or_path!r} is not the one that {rows}; {use}"
            )

    def load(self, split: str, streaming: bool = False) -> DatasetOrStream:
        """The rows in the order of the documents: mapped into memory from the cache of `datasets`,
        or a stream."""
        return load_files(
            "parquet",
            [str(self.folder / name) for name in self.manifest[split]],
            streaming=streaming,
        )


def texts_of(rows: Iterable[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """The documents in rows, as their tokenizer spells them."""
    for row in rows:
        ids = np.asarray(row["input_ids"])
        for document in np.split(ids, np.flatnonzero(np.asarray(row["position_ids"]) == 0)[1:]):
            yield tokenizer.decode(document, skip_special_tokens=True)
