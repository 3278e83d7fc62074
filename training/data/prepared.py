"""Rows that were made of text once, in parquet shards, for any number of trainings on any number of machines.

A folder holds the shards (`train-….parquet`, `validation-….parquet`: columns `input_ids` and `position_ids`, as
`pack_documents` makes them), the tokenizer, and, written last, a manifest. A shard is of whole windows of documents, so
that its rows are the same whoever makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...tokenization import check_fast, special_ids, tokenizer_backend
from ..files import whole, write_json
from .documents import ROWS_MANIFEST, TOKENIZER_BATCH, tokenize_table
from .packing import WINDOW, pack_table
from .tables import DatasetOrStream, load_files

SPLITS = ("train", "validation")
MADE = ("validation_size", "seq_length", "packing")  # how rows were made


def write_shard(
    path: Path, texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, packing: str, seq_length: int
) -> None:
    """Tokenize and pack documents (one or more, none blank) into one parquet file, named "train-…" or "validation-…",
    which has its name only when it is whole."""
    backend, special, texts, writer = tokenizer_backend(tokenizer), special_ids(tokenizer), iter(texts), None
    with whole(path) as unfinished, ExitStack() as opened:
        while window := list(islice(texts, WINDOW)):
            batches = (window[start : start + TOKENIZER_BATCH] for start in range(0, len(window), TOKENIZER_BATCH))
            tokenized = pa.concat_tables(tokenize_table(pa.table({"text": batch}), backend) for batch in batches)
            packed = pack_table(tokenized, packing, seq_length, **special)
            writer = writer or opened.enter_context(pq.ParquetWriter(unfinished, packed.schema, compression="zstd"))
            writer.write_table(packed)


def shard_counts(path: Path) -> dict[str, int] | None:
    """A shard's rows, and its size in bytes; None where there is no whole one."""
    try:
        return {"rows": pq.read_metadata(path).num_rows, "bytes": path.stat().st_size}
    except (OSError, pa.ArrowInvalid):
        return None


def write_manifest(folder: str | Path, made: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Say that the shards in a folder, and the tokenizer saved beside them, are all there is; how they were `made` (the
    values of `MADE`), and more of the `arguments`, for people; `data`, for the cards of models."""
    folder, tokenizer = Path(folder), AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    shards = {
        split: {path.name: shard_counts(path) for path in sorted(folder.glob(f"{split}-*.parquet"))} for split in SPLITS
    }
    about = {"tokenizer_sha256": tokenizer_checksum(tokenizer), "arguments": dict(arguments)}
    write_json(folder / ROWS_MANIFEST, {name: made[name] for name in MADE} | about | shards)


def tokenizer_checksum(tokenizer: PreTrainedTokenizerFast) -> str:
    """Of all that makes the ids of a row: not of the special tokens around other texts, which a decoder changes, nor of
    the space that [MASK] takes in, which a training adapts."""
    backend = json.loads(tokenizer_backend(tokenizer)) | {"post_processor": None}
    for token in backend["added_tokens"]:
        token["lstrip"] &= token["content"] != tokenizer.mask_token
    parts = [backend, tokenizer.cls_token_id, tokenizer.sep_token_id]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class PreparedRows:
    """A folder that `minibert prepare` has finished; a ValueError if a shard is missing, or not as it was prepared."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.manifest = json.loads((self.folder / ROWS_MANIFEST).read_text(encoding="utf-8"))
        self.made = {name: self.manifest[name] for name in MADE}
        self.data: list[str] = self.manifest["arguments"].get("data", [])  # the text that they were made of
        for name, counts in (self.manifest["train"] | self.manifest["validation"]).items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != counts["bytes"]:
                raise ValueError(f"data: {str(path)!r} is missing, or not as it was prepared; prepare the rows again")

    @classmethod
    def find(cls, data: Sequence[str]) -> PreparedRows | None:
        """What `--data` names, if that is prepared rows and not text; a ValueError if it is both."""
        found = [item for item in data if isinstance(item, str) and os.path.isfile(os.path.join(item, ROWS_MANIFEST))]
        if found and len(data) > 1:
            raise ValueError(f"data: {found[0]!r} holds prepared rows; give them alone, without {len(data) - 1} others")
        return cls(found[0]) if found else None

    def describe(self) -> str:
        train, held_out = (sum(counts["rows"] for counts in self.manifest[split].values()) for split in SPLITS)
        return f"{train:,} rows to train on, {held_out:,} held out"

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """A ValueError if it is not the one that the rows were made with."""
        check_fast(tokenizer)
        if tokenizer_checksum(tokenizer) != self.manifest["tokenizer_sha256"]:
            rows = f"the rows in {str(self.folder)!r} were made with"
            use = "use that one, or prepare rows with yours"
            raise ValueError(f"tokenizer: {tokenizer.name_or_path!r} is not the one that {rows}; {use}")

    def load(self, split: str, streaming: bool = False) -> DatasetOrStream:
        """The rows in the order of the documents: mapped into memory from the cache of `datasets`, or a stream."""
        return load_files("parquet", [str(self.folder / name) for name in self.manifest[split]], streaming=streaming)


def texts_of(rows: Iterable[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """The documents in rows, as their tokenizer spells them."""
    for row in rows:
        ids = np.asarray(row["input_ids"])
        for document in np.split(ids, np.flatnonzero(np.asarray(row["position_ids"]) == 0)[1:]):
            yield tokenizer.decode(document, skip_special_tokens=True)
