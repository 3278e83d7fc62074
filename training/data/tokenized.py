"""Documents as token ids, and what a tokenizer loses of them."""

import functools
from itertools import islice

import datasets
import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from ...tokenization import Coverage, check_coverage, tokenizer_json
from .dataset_calls import DatasetOrStream, map_tables

# Documents in one call of the tokenizer: enough to keep every core busy, few enough that the
# encodings of long documents (100 bytes a token and more) stay small.
TOKENIZER_BATCH = 512
# The coverage of a tokenizer is measured on this many documents, and on this many characters of
# each.
COVERAGE_DOCUMENTS = 1000
COVERAGE_CHARACTERS = 10_000


def tokenize_documents(
    documents: DatasetOrStream, tokenizer: PreTrainedTokenizerFast, num_proc: int | None = None
) -> DatasetOrStream:
    """Tokenize whole documents (column `text`): one column `input_ids` (lists), never truncated,
    without special tokens. Special tokens that are spelled out in a text are read as text.

    With `num_proc`, each of that many processes uses one core; without it, one process uses all
    cores.
    """
    options = dict(desc="Tokenizing", batch_size=TOKENIZER_BATCH, num_proc=num_proc)
    return map_tables(
        documents, tokenize_table, serialized_tokenizer=tokenizer_json(tokenizer), **options
    )


def check_tokenization(
    documents: DatasetOrStream,
    tokenizer: PreTrainedTokenizerFast,
    max_lost_text: float | None = None,
) -> Coverage:
    """Print how much of a sample of documents (column `text`; of a stream the first ones) the
    tokenizer loses, and refuse (a ValueError) one that loses too much, see
    `tokenization.check_coverage`."""
    if isinstance(documents, datasets.Dataset):
        count = min(len(documents), COVERAGE_DOCUMENTS)
        documents = documents.select(np.linspace(0, len(documents) - 1, count).astype(int))
    first_documents = islice(documents, COVERAGE_DOCUMENTS)
    sample = (document["text"][:COVERAGE_CHARACTERS] for document in first_documents)
    coverage = check_coverage(tokenizer, sample, max_lost_text)
    print(f"Tokenizer: {coverage.describe()}")
    return coverage


def smallest_dtype(count: int) -> type[np.integer]:
    """The smallest type that stores ids below `count`."""
    if count <= 1 << 16:
        return np.uint16
    return np.int32


@functools.lru_cache(maxsize=1)
def _backend(serialized_tokenizer: str) -> tuple[Tokenizer, type[np.integer]]:
    """The backend of a tokenizer, from its JSON, and the type of its ids."""
    backend = Tokenizer.from_str(serialized_tokenizer)
    # "[PAD]" spelled out in a document is text, not the padding token
    backend.encode_special_tokens = True
    highest_id = max(backend.get_vocab(with_added_tokens=True).values(), default=0)
    return backend, smallest_dtype(highest_id + 1)


def tokenize_table(table: pa.Table, serialized_tokenizer: str) -> pa.Table:
    """Column `text` to column `input_ids`, without special tokens.

    Args:
        serialized_tokenizer: As `tokenizer_json` returns it.
    """
    backend, dtype = _backend(serialized_tokenizer)
    encodings = backend.encode_batch_fast(table["text"].to_pylist(), add_special_tokens=False)
    ids = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.table({"input_ids": pa.array([encoding.ids for encoding in encodings], ids)})
