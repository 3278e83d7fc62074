"""From texts to numbers, with a batch on every core: `encode` gives the vectors of an embedding
model, `score_pairs` the scores of a reranker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tqdm.auto import tqdm

from ..common.printing import warn
from ..common.threads import shared_cores
from ..data.packing import group_by_length

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

MAX_COUNTED_TEXTS = 2000  # whose lengths are looked at
MIN_CUT_SHARE = 0.01  # the share of them from which on it is said that they are cut
NUM_SPECIAL_TOKENS = 4  # of a text or a pair, at most
BATCH_TOKENS = 16384  # of a batch, with its padding


def encode(
    model: SentenceTransformer,
    texts: Sequence[str],
    text_role: Literal["query", "document"] | None = None,
    bar_title: str | None = None,
) -> np.ndarray:
    """[texts, width], fp32, in the order of `texts`, as `SentenceTransformer.encode` (or that of a
    `text_role`, for which the model may have a prompt) gives them. `bar_title`: what the bar is
    called, if there is to be one."""
    method = getattr(model, f"encode_{text_role}" if text_role else "encode")
    return _in_batches(model, method, texts, text_role, bar_title)


def score_pairs(
    reranker: CrossEncoder, pairs: Sequence[tuple[str, str]], bar_title: str | None = None
) -> np.ndarray:
    """[pairs], fp32: the score of each (query, passage), as `CrossEncoder.predict` gives it."""
    return _in_batches(reranker, reranker.predict, pairs, None, bar_title)


def _in_batches(
    model: SentenceTransformer | CrossEncoder,
    method: Callable,
    texts: Sequence,
    text_role: str | None,
    bar_title: str | None,
) -> np.ndarray:
    """The rows that a method of `model` gives for texts or pairs; those of like length together,
    the longest first.

    The library's own batches count texts: as many as are fast for short ones take the memory of a
    machine for texts of 8192 tokens. A token is a byte or more, so that bytes bound a batch without
    tokenizing twice.
    """
    texts = list(texts)
    prompt = model.prompts.get(text_role or model.default_prompt_name) or ""
    num_added = len(prompt.encode()) + NUM_SPECIAL_TOKENS
    lengths = []
    for text in texts:
        num_bytes = len("".join(text).encode())  # of a text, or of a pair
        lengths.append(min(num_bytes + num_added, model.max_seq_length))
    batches = list(group_by_length(lengths, BATCH_TOKENS))

    def run(rows: list[int]) -> np.ndarray:
        batch = [texts[row] for row in rows]
        return method(batch, batch_size=len(batch), show_progress_bar=False)

    # Processes that share the work of an evaluation answer each other in turn. In a service,
    # threads that begin while cores are shared would keep their number.
    is_distributed = getattr(model, "_distributed_inference", None) is not None
    is_main_thread = threading.current_thread() is threading.main_thread()
    cores = 1
    if model.device.type == "cpu" and is_main_thread and not is_distributed:
        cores = torch.get_num_threads()
    results = _side_by_side(run, batches, cores)
    if bar_title:  # without `disable`, so that the variable TQDM_DISABLE decides
        results = tqdm(results, bar_title, len(batches), unit=" batches")
    order = np.argsort(np.concatenate(batches))
    rows = np.concatenate(list(results))[order].astype(np.float32, copy=False)
    _check_finite(rows, texts)
    return rows


def _check_finite(rows: np.ndarray, texts: Sequence) -> None:
    is_bad = ~np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if is_bad.any():
        first = int(is_bad.argmax())
        raise ValueError(
            f"model: it gives no finite numbers for {is_bad.sum():,} of {len(rows):,} texts, as"
            f" for text {first + 1}: {texts[first]!r:.80}; its training diverged, or it is damaged"
        )


def _side_by_side(run: Callable[[Any], Any], batches: Sequence, cores: int) -> Iterator:
    """`map(run, batches)` with a batch a core: what a small model multiplies keeps no more than one
    busy.

    The first batch goes alone: it sets up the tokenizer, which must not happen while another thread
    is using it.
    """
    yield from map(run, batches[:1])
    workers = min(cores, len(batches) - 1)
    if workers < 2:
        yield from map(run, batches[1:])
        return
    with shared_cores(workers) as pool:
        yield from pool.map(run, batches[1:])


def warn_cut(
    model: SentenceTransformer | CrossEncoder,
    texts: Sequence[str | tuple[str, str]],
    text_role: Literal["query", "document"] | None = None,
) -> None:
    """Warn if many texts, with the prompt of their `text_role`, have more tokens than the model
    reads. A reranker reads a pair of texts together, with the prompt before the first one."""
    prompt = model.prompts.get(text_role or model.default_prompt_name) or ""
    inputs: list[str | tuple[str, str]] = []
    unit = "texts"
    for text in texts[:MAX_COUNTED_TEXTS]:
        if isinstance(text, str):
            inputs.append(prompt + text)
        else:
            query, passage = text
            inputs.append((prompt + query, passage))
            unit = "pairs of texts"
    rows = model.tokenizer(inputs, verbose=False).input_ids
    num_cut = sum(len(row) > model.max_seq_length for row in rows)
    if num_cut > MIN_CUT_SHARE * len(rows):
        warn(
            f"{num_cut:,} of {len(rows):,} {unit} have more than {model.max_seq_length} tokens and"
            " are cut; use a larger --max_length, or shorter texts"
        )
