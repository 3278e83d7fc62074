"""`minibert prepare`: text → tokenizer → rows on disk, made once for all trainings."""

import hashlib
import json
from pathlib import Path
from typing import Any

import datasets
from transformers import PreTrainedTokenizerFast

from ...tokenization import train_tokenizer
from ..arguments import decide
from ..arguments import pretraining as arguments
from ..arguments.pretraining import ROWS_MANIFEST, ROWS_PLAN
from ..checkpoints import check_same, check_unused
from ..data.documents import check_sources, check_tokenization, text_digests
from ..data.mixtures import prepare_documents
from ..data.packing import WINDOW, adapt_tokenizer, check_packing
from ..data.prepared import SPLITS, PreparedRows, shard_counts, write_manifest, write_shard
from ..files import write_json
from ..hub.card import describe_data
from ..loading import saved_tokenizer, without_bars


@without_bars(of_datasets=True)
def prepare(
    corpus: arguments.CorpusArguments,
    mixture: arguments.MixtureArguments,
    rows: arguments.RowArguments,
    tokenizer_arguments: arguments.TokenizerArguments,
    command: arguments.PrepareArguments,
) -> PreparedRows:
    """Write the rows that `minibert pretrain` would make of the same text with the same seed. What a run left that was
    killed is kept; a ValueError, before any work, if the folder holds something else."""
    rows = decide(rows, **arguments.UNLESS_PREPARED)
    folder, size = Path(command.output_dir), command.shard_documents
    check_sources(corpus.data)
    check_packing(rows.packing, rows.seq_length)
    check_unused(folder)
    if (folder / ROWS_MANIFEST).exists() or (any(folder.glob("*.parquet")) and not (folder / ROWS_PLAN).exists()):
        raise ValueError(f"output_dir: {str(folder)!r} holds rows already; give another one, or remove it")
    if size < 1 or size % WINDOW:
        raise ValueError(f"shard_documents: {size} is not a multiple of {WINDOW}, the documents packed together")
    tokenizer = None
    if command.tokenizer is not None:
        tokenizer = adapt_tokenizer(saved_tokenizer(command.tokenizer))
    held_out = dict(validation_size=rows.validation_size, seed=command.seed)
    documents = prepare_documents(corpus, mixture, arguments.StreamingArguments(), **held_out)
    parts = {split: getattr(documents, split).select_columns("text") for split in SPLITS}

    chosen = (corpus, mixture, rows, command, *([] if tokenizer else [tokenizer_arguments]))
    plan = {name: value for each in chosen for name, value in vars(each).items()}
    del plan["num_proc"], plan["output_dir"]
    plan |= {f"{split}_text": _checksum(part) for split, part in parts.items()}
    if (folder / ROWS_PLAN).exists():
        before = json.loads((folder / ROWS_PLAN).read_text(encoding="utf-8"))
        check_same(
            before, plan, f"the unfinished rows in {str(folder)!r} are made with", "give that, or another --output_dir"
        )
        tokenizer = saved_tokenizer(folder)
    else:
        tokenizer = tokenizer or train_tokenizer(
            documents.sample["text"], **vars(tokenizer_arguments), model_max_length=rows.seq_length
        )
        check_tokenization(documents.sample, tokenizer)
        tokenizer.save_pretrained(folder)
        write_json(folder / ROWS_PLAN, plan)

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
        options = dict(parts=parts, tokenizer=tokenizer, size=size, rows=rows)
        datasets.Dataset.from_list(missing).map(_write, num_proc=rows.num_proc, fn_kwargs=options)
    named = {"data": [describe_data(each) for each in corpus.data]}  # while what is a file can be told
    write_manifest(folder, rows, plan | named | {"repeats": documents.repeats})
    (folder / ROWS_PLAN).unlink()
    prepared = PreparedRows(folder)
    print(f"{prepared.describe()}, saved to {folder}")
    return prepared


def _write(
    shard: dict[str, Any],
    parts: dict[str, datasets.Dataset],
    tokenizer: PreTrainedTokenizerFast,
    size: int,
    rows: arguments.RowArguments,
) -> None:
    documents, path = parts[shard["split"]], Path(shard["path"])
    documents = documents.select(range(shard["start"], min(shard["start"] + size, len(documents))))
    texts = (text for batch in documents.iter(batch_size=WINDOW) for text in batch["text"])
    write_shard(path, texts, tokenizer, rows)
    counts = shard_counts(path)
    print(f"{path.name}: {counts['documents']:,} documents, {sum(counts['rows']):,} rows", flush=True)


def _checksum(documents: datasets.Dataset) -> str:
    """Of all texts in their order."""
    digest = hashlib.sha256()
    for batch in documents.iter(batch_size=WINDOW):
        digest.update(text_digests(batch["text"], seed=0).tobytes())
    return digest.hexdigest()
