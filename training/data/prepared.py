"""Rows that were made of text once, in parquet shards, for any number of trainings on any number of machines.

A folder holds the shards (`train-….parquet`, `validation-….parquet`: columns `input_ids` and `position_ids`, as
`pack_documents` makes them), the tokenizer, and, written last, a manifest: what made the rows, and of every shard its
documents, tokens and rows. A shard is of whole windows of documents, so that its rows are the same whoever makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from torch.utils.data import Dataset, Sampler
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...tokenization import check_fast, special_ids, tokenizer_backend
from ..files import whole, write_json
from .documents import ROWS_MANIFEST, TOKENIZER_BATCH, tokenize_table
from .mixtures import Corpus
from .packing import WINDOW, pack_table
from .tables import load_files

SPLITS = ("train", "validation")
MADE = ("validation_size", "seq_length", "packing")  # how rows were made
# What is read at once, and dealt to the ranks: the larger, the more rows a training keeps in memory.
ROWS_IN_GROUP = 4096


# --- writing ---


def write_shard(
    path: Path, texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, packing: str, seq_length: int
) -> None:
    """Tokenize and pack documents (one or more, none blank) into one parquet file, named "train-…" or "validation-…",
    which has its name only when it is whole."""
    backend, special, texts = tokenizer_backend(tokenizer), special_ids(tokenizer), iter(texts)
    writer, documents, tokens = None, 0, 0
    with whole(path) as unfinished, ExitStack() as opened:
        while window := list(islice(texts, WINDOW)):
            batches = (window[start : start + TOKENIZER_BATCH] for start in range(0, len(window), TOKENIZER_BATCH))
            tokenized = pa.concat_tables(tokenize_table(pa.table({"text": batch}), backend) for batch in batches)
            packed = pack_table(tokenized, packing, seq_length, **special)
            writer = writer or opened.enter_context(pq.ParquetWriter(unfinished, packed.schema, compression="zstd"))
            documents += len(window)
            if len(packed):  # its documents may be without tokens: of characters that the tokenizer drops
                writer.write_table(packed, ROWS_IN_GROUP)
                tokens += pc.sum(pc.list_value_length(packed["input_ids"])).as_py()
        writer.add_key_value_metadata({"documents": str(documents), "tokens": str(tokens)})


def shard_counts(path: Path) -> dict[str, Any] | None:
    """A shard's documents, tokens and rows (in each of its row groups), and its size in bytes; None where there is no
    whole one."""
    try:
        footer = pq.read_metadata(path)
        counts = {name: int(footer.metadata[name.encode()]) for name in ("documents", "tokens")}
    except (OSError, pa.ArrowInvalid, KeyError, TypeError):
        return None
    groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    return counts | {"rows": groups, "bytes": path.stat().st_size}


def write_manifest(folder: str | Path, made: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Say that the shards in a folder, and the tokenizer saved beside them, are all there is.

    Args:
        made: how they were made: the values of `MADE`.
        arguments: what else is worth knowing of it, for people; `data`, for the cards of models; `repeats`, whether the
            text has documents more than once, whose rows are then masked anew each time.
    """
    folder, tokenizer = Path(folder), AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    shards = {}
    for split in SPLITS:
        found = shards[split] = {path.name: shard_counts(path) for path in sorted(folder.glob(f"{split}-*.parquet"))}
        if not found or None in found.values():
            raise ValueError(f"{str(folder)!r} has no whole shard {split}-….parquet, or a broken one; prepare it again")
    about = {"tokenizer_sha256": tokenizer_checksum(tokenizer), "arguments": dict(arguments)}
    write_json(folder / ROWS_MANIFEST, {name: made[name] for name in MADE} | about | shards)


def tokenizer_checksum(tokenizer: PreTrainedTokenizerFast, lstrip: bool | None = None) -> str:
    """Of all that makes the ids of a row: not of the special tokens around other texts, which a decoder changes. With
    `lstrip`, as if the mask token had it, or had not."""
    backend = json.loads(tokenizer_backend(tokenizer)) | {"post_processor": None}
    for token in backend["added_tokens"]:
        if lstrip is not None and token["content"] == tokenizer.mask_token:
            token["lstrip"] = lstrip
    parts = [backend, tokenizer.cls_token_id, tokenizer.sep_token_id]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# --- reading ---


class PreparedRows:
    """A folder that `minibert prepare` has finished.

    Raises:
        ValueError: a shard is missing, or is not as it was prepared.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        try:
            self.manifest = json.loads((self.folder / ROWS_MANIFEST).read_text(encoding="utf-8"))
            self.made = {name: self.manifest[name] for name in MADE}
            sizes = {name: counts["bytes"] for split in SPLITS for name, counts in self.manifest[split].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"data: {ROWS_MANIFEST} in {str(folder)!r} is broken; prepare the rows again") from None
        for name, size in sizes.items():
            path = self.folder / name
            if path.parent != self.folder or not path.is_file() or path.stat().st_size != size:
                raise ValueError(f"data: {str(path)!r} is missing, or not as it was prepared; prepare the rows again")

    @classmethod
    def find(cls, data: Sequence[str]) -> PreparedRows | None:
        """What `--data` names, if that is prepared rows and not text; a ValueError if it is both."""
        # (pathlib raises an OSError for what is too long to be a name)
        found = [item for item in data if os.path.isfile(os.path.join(item, ROWS_MANIFEST))]
        if found and len(data) > 1:
            raise ValueError(f"data: {found[0]!r} holds prepared rows; give them alone, without {len(data) - 1} others")
        return cls(found[0]) if found else None

    def count(self, split: str, what: str) -> int:
        """`what`: "documents", "tokens" or "rows"."""
        return int(sum(np.sum(counts[what]) for counts in self.manifest[split].values()))

    @property
    def corpus(self) -> Corpus:
        """The text that they were made of."""
        return Corpus(self.manifest["arguments"].get("data", []))

    def describe(self) -> str:
        documents, held_out = (self.count(split, "documents") for split in SPLITS)
        return f"{documents:,} documents to train on, {held_out:,} held out"

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """A ValueError if it is not the one that the rows were made with."""
        check_fast(tokenizer)
        made, found = self.manifest["tokenizer_sha256"], tokenizer_checksum(tokenizer)
        if made not in (found, *(tokenizer_checksum(tokenizer, lstrip) for lstrip in (True, False))):
            given = f"{tokenizer.name_or_path!r} (sha256 {found[:12]}…)"
            rows = f"the rows in {str(self.folder)!r} were made with (sha256 {made[:12]}…)"
            raise ValueError(f"tokenizer: {given} is not the one that {rows}; use that one, or prepare rows with yours")

    def load(self, split: str) -> datasets.Dataset:
        """The rows, mapped into memory from the cache of `datasets`, in the order of the documents."""
        files = [str(self.folder / name) for name in self.manifest[split]]
        return load_files("parquet", files)

    def stream(self, shuffle_buffer: int) -> StreamedRows:
        """The rows to train on, read from the shards when they are asked for."""
        shards = self.manifest["train"].items()
        groups = [(str(self.folder / name), i, n) for name, counts in shards for i, n in enumerate(counts["rows"])]
        return StreamedRows(groups, shuffle_buffer)


class StreamedRows(Dataset):
    """Rows that are read from their shards a group at a time, and kept in memory while they are used: for a training
    that takes them in the order of `StreamOrder`. All rows have a number, so that a training goes on in the midst of
    them without reading what is before.

    Args:
        groups: of every group of rows the file, its number in there and its length.
        shuffle_buffer: rows that are mixed with each other, at least; 0 keeps all in their order.
    """

    def __init__(self, groups: Sequence[tuple[str, int, int]], shuffle_buffer: int):
        self.groups, self.shuffle_buffer = groups, shuffle_buffer
        self.bounds = np.cumsum([0, *(rows for _, _, rows in groups)])
        self._room = shuffle_buffer + max(rows for _, _, rows in groups)
        self._kept: dict[int, pa.Table] = {}

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def __getitem__(self, number: int) -> dict[str, np.ndarray]:
        group = int(np.searchsorted(self.bounds, number, side="right")) - 1
        table, row = self._read(group), int(number - self.bounds[group])
        return {name: table[name][row].values.to_numpy() for name in table.column_names}

    def _read(self, group: int) -> pa.Table:
        if group not in self._kept:
            file, part, rows = self.groups[group]
            while self._kept and sum(map(len, self._kept.values())) + rows > self._room:
                del self._kept[next(iter(self._kept))]  # the one that was read first
            self._kept[group] = pq.ParquetFile(file).read_row_group(part, use_threads=False).combine_chunks()
        return self._kept[group]


class StreamOrder(Sampler[int]):
    """The order in which a training reads `StreamedRows`: a function of the seed and the epoch, in which every rank
    has groups of rows of its own. It begins with a batch of the first rank, then one of the second, and so on.

    Args:
        batch_size: rows in a batch of one rank.
        epoch: asked when an epoch begins.
    """

    def __init__(self, rows: StreamedRows, batch_size: int, ranks: int, seed: int, epoch: Callable[[], int]):
        self.rows, self.batch_size, self.ranks, self.seed, self.epoch = rows, batch_size, ranks, seed, epoch

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        epoch, groups = self.epoch(), np.arange(len(self.rows.groups))
        if self.rows.shuffle_buffer:
            groups = np.random.default_rng([self.seed, epoch]).permutation(groups)
        lanes = [self._mixed(groups[rank :: self.ranks], [self.seed, epoch, rank]) for rank in range(self.ranks)]
        while lanes:
            for lane in list(lanes):
                batch = list(islice(lane, self.batch_size))
                yield from batch
                if len(batch) < self.batch_size:
                    lanes.remove(lane)

    def _mixed(self, groups: np.ndarray, seed: list[int]) -> Iterator[int]:
        """The rows of the groups, as many groups mixed at a time as the buffer needs."""
        chance, mixed, bounds = np.random.default_rng(seed), [], self.rows.bounds
        for place, group in enumerate(groups):
            mixed.append(np.arange(bounds[group], bounds[group + 1]))
            if sum(map(len, mixed)) >= self.rows.shuffle_buffer or place == len(groups) - 1:
                rows = np.concatenate(mixed)
                yield from (chance.permutation(rows) if self.rows.shuffle_buffer else rows).tolist()
                mixed = []


def texts_of(rows: Iterable[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """The documents in rows, as their tokenizer spells them."""
    for row in rows:
        ids = np.asarray(row["input_ids"])
        for document in np.split(ids, np.flatnonzero(np.asarray(row["position_ids"]) == 0)[1:]):
            yield tokenizer.decode(document, skip_special_tokens=True)
