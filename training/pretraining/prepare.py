"""`minibert prepare`: text → tokenizer → rows on disk, made once for all trainings."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Literal

import datasets
from transformers import PreTrainedTokenizerFast

from ...tokenization import adapt_tokenizer, train_tokenizer
from ..checkpoints import check_same, check_unused
from ..data.documents import ROWS_MANIFEST, ROWS_PLAN, check_sources, check_tokenization, name_of, text_digests
from ..data.mixtures import Corpus, prepare_documents
from ..data.packing import WINDOW, check_packing
from ..data.prepared import SPLITS, PreparedRows, shard_counts, write_manifest, write_shard
from ..files import lock_folder, write_json
from ..hub.card import describe_data
from ..loading import saved_tokenizer, without_bars


@without_bars()
def prepare(
    data: str | os.PathLike | list[str] | datasets.Dataset = (),
    *,
    output_dir: str = "runs/rows",
    tokenizer: str | None = None,
    seq_length: int = 512,
    packing: Literal["packed", "padded"] = "packed",
    validation_size: float = 0.05,
    text_column: str | None = None,
    sample_by: Literal["auto", "line", "paragraph", "document", "sentence"] = "auto",
    weights: list[float] = (),
    sampling_alpha: float | None = None,
    algorithm: Literal["wordpiece", "bpe", "unigram"] = "wordpiece",
    vocab_size: int = 8192,
    lowercase: bool | None = None,
    strip_accents: bool = False,
    max_lost_text: float | None = None,
    shard_documents: int = 65_536,
    num_proc: int | None = None,
    seed: int = 42,
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
        seq_length: Longest row, in tokens.
        packing: packed: several documents a row, each attending only to itself; padded: one document a row.
        validation_size: Documents held out: a share (below 1) or a number.
        text_column: The column of the text; by default "text", or the only one of strings.
        sample_by: A document in a text file (document: all of it); auto: paragraphs if it has blank lines, else lines;
            sentence: every sentence of any kind of data.
        weights: A weight for every entry of data: its share of the documents; by default their number.
        sampling_alpha: Draw sources with p ∝ weight^alpha (0: all alike); by default 0.3 where every entry stands
            behind its language (de=folder fr=file.txt), else 1.
        algorithm: How a new tokenizer splits words.
        vocab_size: Size of a new tokenizer's vocabulary.
        lowercase: Lower-case all text; by default wordpiece does, the others do not.
        strip_accents: Drop the marks on letters, as bert-base-uncased does (accents, vowels, tones).
        max_lost_text: Share of the characters that the tokenizer may lose; by default 0.05, and 0.01 in
            words of more than 100 characters.
        shard_documents: Documents that a shard is made of: a multiple of 4096.
        num_proc: Processes that write shards; the tokenizer uses all cores by itself.
        seed: Seed of what is held out and drawn; 42 is that of `pretrain`, too.

    Raises:
        ValueError: bad input, before any work; or the folder holds something else.
    """
    folder, made = Path(output_dir), dict(validation_size=validation_size, seq_length=seq_length, packing=packing)
    corpus = Corpus(data, text_column, sample_by, weights, sampling_alpha)
    check_sources(corpus.data)
    check_packing(packing, seq_length)
    if shard_documents < 1 or shard_documents % WINDOW:
        raise ValueError(
            f"shard_documents: {shard_documents} is not a multiple of {WINDOW}, the documents packed together"
        )
    options = dict(algorithm=algorithm, vocab_size=vocab_size, lowercase=lowercase, strip_accents=strip_accents)
    given = None if tokenizer is None else adapt_tokenizer(saved_tokenizer(tokenizer))
    with lock_folder(folder):
        check_unused(folder)
        if (folder / ROWS_MANIFEST).exists() or (any(folder.glob("*.parquet")) and not (folder / ROWS_PLAN).exists()):
            raise ValueError(f"output_dir: {str(folder)!r} holds rows already; give another one, or remove it")
        documents = prepare_documents(corpus, validation_size=validation_size, seed=seed)
        parts = {split: getattr(documents, split).select_columns("text") for split in SPLITS}
        plan = made | dict(seed=seed, shard_documents=shard_documents, sample_by=sample_by)
        plan |= dict(data=list(map(name_of, corpus.data)), text_column=text_column, weights=list(weights))
        plan |= dict(sampling_alpha=sampling_alpha, tokenizer=tokenizer) | ({} if tokenizer else options)
        plan |= {f"{split}_text": _checksum(part) for split, part in parts.items()}
        if (folder / ROWS_PLAN).exists():
            before = json.loads((folder / ROWS_PLAN).read_text(encoding="utf-8"))
            unfinished = f"the unfinished rows in {str(folder)!r} are made with"
            check_same(before, plan, unfinished, "give that, or another --output_dir")
            given = saved_tokenizer(folder)
        else:
            given = given or train_tokenizer(documents.sample["text"], **options, model_max_length=seq_length)
            check_tokenization(documents.sample, given, max_lost_text)
            given.save_pretrained(folder)
            write_json(folder / ROWS_PLAN, plan)
        _write_shards(folder, parts, shard_documents, num_proc, tokenizer=given, packing=packing, seq_length=seq_length)
        named = {"data": [describe_data(each) for each in plan["data"]]}  # while what is a file can be told
        write_manifest(folder, made, plan | named)
        (folder / ROWS_PLAN).unlink()
    prepared = PreparedRows(folder)
    print(f"{prepared.describe()}, saved to {folder}")
    return prepared


def _write_shards(
    folder: Path, parts: dict[str, datasets.Dataset], size: int, num_proc: int | None, **options: Any
) -> None:
    """Write the shards that are missing, each of `size` documents."""
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


def _write(
    shard: dict[str, Any],
    parts: dict[str, datasets.Dataset],
    size: int,
    tokenizer: PreTrainedTokenizerFast,
    packing: str,
    seq_length: int,
) -> None:
    documents, path = parts[shard["split"]], Path(shard["path"])
    documents = documents.select(range(shard["start"], min(shard["start"] + size, len(documents))))
    texts = (text for batch in documents.iter(batch_size=WINDOW) for text in batch["text"])
    write_shard(path, texts, tokenizer, packing, seq_length)
    counts = shard_counts(path)
    print(f"{path.name}: {len(documents):,} documents, {counts['rows']:,} rows", flush=True)


def _checksum(documents: datasets.Dataset) -> str:
    """Of all texts in their order."""
    digest = hashlib.sha256()
    for batch in documents.iter(batch_size=WINDOW):
        digest.update(text_digests(batch["text"], seed=0).tobytes())
    return digest.hexdigest()
