"""`minibert prepare`: text → tokenizer → rows on disk, made once for all trainings."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import datasets

from ...tokenization import adapt_tokenizer
from ..checkpoints import check_same, check_unused
from ..data.documents import ROWS_MANIFEST, ROWS_PLAN, check_sources, check_tokenization, name_of, text_digests
from ..data.mixtures import Corpus, prepare_documents
from ..data.packing import WINDOW, check_packing
from ..data.prepared import SPLITS, PreparedRows, shard_counts, write_manifest, write_shard
from ..files import lock_folder, write_json
from ..hub.card import describe_data
from ..loading import saved_tokenizer, without_bars
from .config import RowsConfig

SHARD_DOCUMENTS = 16 * WINDOW  # documents that a shard is made of: whole windows, as `pretrain` packs them


@without_bars()
def prepare(
    data: str | os.PathLike | list[str] | datasets.Dataset = (),
    *,
    output_dir: str = "runs/rows",
    tokenizer: str | None = None,
    seed: int = 42,
    args: RowsConfig | None = None,
    **options: Any,
) -> PreparedRows:
    """Tokenize and pack text once, in parquet shards that trainings read (`pretrain` with the folder as its data).

    The rows are those that `pretrain` would make of the same text with the same seed. The same call goes on where it
    was killed.

    Args:
        data: The text: text, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data sets (owner/name or
            owner/name:config). Without it, the built-in corpus: the documentation in this Python installation.
            From Python also a loaded data set.
        output_dir: Folder of the rows.
        tokenizer: A trained tokenizer or model (folder or Hub name); else one is trained, and kept with the rows.
        seed: Seed of what is held out and drawn; 42 is that of `pretrain`, too.
        args: The settings of the rows, and of a new tokenizer.
        options: Fields of `Corpus`, and of `RowsConfig` in the place of `args`.

    Raises:
        ValueError: bad input, before any work; or the folder holds something else.
    """
    folder, corpus = Path(output_dir), Corpus.take(data, options)
    args = args or RowsConfig(**options)
    if corpus.streaming:
        raise ValueError("streaming: rows are prepared of text that is on disk; leave it out")
    check_sources(corpus.data)
    check_packing(args.packing, args.seq_length)
    given = None if tokenizer is None else adapt_tokenizer(saved_tokenizer(tokenizer))
    with lock_folder(folder):
        check_unused(folder)
        if (folder / ROWS_MANIFEST).exists() or (any(folder.glob("*.parquet")) and not (folder / ROWS_PLAN).exists()):
            raise ValueError(f"output_dir: {str(folder)!r} holds rows already; give another one, or remove it")
        documents = prepare_documents(corpus, validation_size=args.validation_size, seed=seed)
        parts = {split: getattr(documents, split).select_columns("text") for split in SPLITS}
        plan = vars(args) | vars(corpus) | dict(seed=seed, tokenizer=tokenizer, data=list(map(name_of, corpus.data)))
        del plan["num_proc"], plan["max_lost_text"]  # which may be others when it goes on
        plan |= {f"{split}_text": _checksum(part) for split, part in parts.items()}
        if (folder / ROWS_PLAN).exists():
            before = json.loads((folder / ROWS_PLAN).read_text(encoding="utf-8"))
            unfinished = f"the unfinished rows in {str(folder)!r} are made with"
            check_same(before, json.loads(json.dumps(plan)), unfinished, "give that, or another --output_dir")
            given = saved_tokenizer(folder)
        else:
            given = given or args.train_tokenizer(documents.sample["text"], model_max_length=args.seq_length)
            check_tokenization(documents.sample, given, args.max_lost_text)
            given.save_pretrained(folder)
            write_json(folder / ROWS_PLAN, plan)
        _write_shards(folder, parts, args.num_proc, tokenizer=given, packing=args.packing, seq_length=args.seq_length)
        named = {"data": [describe_data(each) for each in plan["data"]]}  # while what is a file can be told
        write_manifest(folder, vars(args), plan | named)
        (folder / ROWS_PLAN).unlink()
    prepared = PreparedRows(folder)
    print(f"{prepared.describe()}, saved to {folder}")
    return prepared


def _write_shards(folder: Path, parts: dict[str, datasets.Dataset], num_proc: int | None, **options: Any) -> None:
    """Write the shards that are missing, each of `SHARD_DOCUMENTS` documents."""
    size = SHARD_DOCUMENTS
    for half in folder.glob(".*.unfinished"):  # of a run that was killed
        half.unlink()
    shards = [
        dict(split=split, start=start, path=str(folder / f"{split}-{start // size:05d}.parquet"))
        for split, part in parts.items()
        for start in range(0, len(part), size)
    ]
    missing = [shard for shard in shards if shard_counts(Path(shard["path"])) is None]
    if len(missing) < len(shards):
        print(f"Going on: {len(shards) - len(missing)} of {len(shards)} shards are there")
    if missing:
        options |= dict(parts=parts, size=size)
        datasets.Dataset.from_list(missing).map(_write, num_proc=num_proc, fn_kwargs=options)


def _write(shard: dict[str, Any], parts: dict[str, datasets.Dataset], size: int, **options: Any) -> None:
    documents, path = parts[shard["split"]], Path(shard["path"])
    documents = documents.select(range(shard["start"], min(shard["start"] + size, len(documents))))
    texts = (text for batch in documents.iter(batch_size=WINDOW) for text in batch["text"])
    write_shard(path, texts, **options)
    counts = shard_counts(path)
    print(f"{path.name}: {len(documents):,} documents, {counts['rows']:,} rows", flush=True)


def _checksum(documents: datasets.Dataset) -> str:
    """Of all texts in their order."""
    digest = hashlib.sha256()
    for batch in documents.iter(batch_size=WINDOW):
        digest.update(text_digests(batch["text"], seed=0).tobytes())
    return digest.hexdigest()
