"""The models of search, all of them sentence-transformers' own: `open_encoder` (texts → vectors)
and `open_reranker` (pairs of texts → scores). `encode` and `score_pairs` run them with a batch on
every core.

What they hold is a MiniBERT, which drops the padding of a batch itself. The files of
sentence-transformers beside a model say how it pools, whether it normalises, where it cuts texts
off and which prompt it puts before them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from datasets import Dataset
from tqdm.auto import tqdm

from ...configuration_minibert import MiniBertConfig
from ...option_checks import checked_keywords
from ..common.files import atomic_write
from ..common.locks import lock_file
from ..common.paths import check_folder
from ..common.precision import dtype_of_saved
from ..common.printing import print_next_step, warn
from ..common.processes import shared_cores
from ..data.packing import group_by_length
from ..data.tables import Rows, as_dataset, read_table
from ..loading.models import load_sentence_transformer, minibert_config
from ..loading.saved_files import read_json
from ..loading.weights import check_weights
from .reading.texts import is_table, read_lines, texts_of

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import (
        CrossEncoder,
        MultiVectorEncoder,
        SentenceTransformer,
        SparseEncoder,
    )

# Heads that are trained on text alone, so that what they leave in the encoder can stand for a text.
TEXT_HEADS = (
    "MaskedLM",
    "PreTraining",
    "NextSentencePrediction",
    "CausalLM",
    "ReplacedTokenDetection",
)
TEXT_MODELS = ("MiniBertModel", *(f"MiniBertFor{head}" for head in TEXT_HEADS))
RERANKER_ARCHITECTURE = "MiniBertForSequenceClassification"
# The classes of sentence-transformers: one vector of a text; one as wide as the vocabulary, mostly
# zero (SPLADE); one of every token (ColBERT).
ENCODER_CLASSES = {
    "dense": "SentenceTransformer",
    "sparse": "SparseEncoder",
    "multi-vector": "MultiVectorEncoder",
}
MAX_COUNTED_TEXTS = 2000  # whose lengths are looked at
MIN_CUT_SHARE = 0.01  # the share of them from which on it is said that they are cut
NUM_SPECIAL_TOKENS = 4  # of a text or a pair, at most
BATCH_TOKENS = 16384  # of a batch, with its padding
EncoderType = Literal["dense", "sparse", "multi-vector"]
PoolingName = Literal["mean", "cls"]
DtypeName = Literal["float32", "bfloat16"]


def check_encoder(
    path: str, reranker: bool = False, max_length: int | None = None
) -> MiniBertConfig:
    """The config of a MiniBERT that vectors of text can be taken from, or that scores pairs by one
    logit; a ValueError if it is none, or takes no texts of `max_length` tokens."""
    config = minibert_config(path)
    head = (config.architectures or ["MiniBertModel"])[0]
    if reranker and (head != RERANKER_ARCHITECTURE or config.num_labels != 1):
        raise ValueError(
            f"model: {path!r} holds a {head}; a reranker is a {RERANKER_ARCHITECTURE} with one"
            " label"
        )
    if not reranker and head not in TEXT_MODELS:
        raise ValueError(f"model: {path!r} holds a {head}; use one of {', '.join(TEXT_MODELS)}")
    longest = config.max_position_embeddings
    if max_length is not None and not 3 <= max_length <= longest:
        raise ValueError(
            f"max_length: {max_length} is out of range; use 3 up to {longest}, which the model"
            " takes"
        )
    return config


def saved_encoder_type(path: str) -> str:
    """The type that sentence-transformers saved a model as; dense if it did not."""
    settings = read_json(path, "config_sentence_transformers.json")
    if isinstance(settings, dict):
        for encoder_type, class_name in ENCODER_CLASSES.items():
            if settings.get("model_type") == class_name:
                return encoder_type
    return "dense"


def open_encoder(
    path: str,
    encoder_type: str | None = None,
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    dtype: str | None = None,
) -> SentenceTransformer | SparseEncoder | MultiVectorEncoder:
    """Load a MiniBERT, perhaps with the files of sentence-transformers; see `embed` for the
    arguments. By default it is of the `encoder_type` that it was saved as (with a `pooling`,
    dense); a ValueError for another type or another task's head.
    """
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    config = check_encoder(path, max_length=max_length)
    saved_type = saved_encoder_type(path)
    if encoder_type is None:
        encoder_type = "dense" if pooling else saved_type
    if saved_type not in ("dense", encoder_type) and not pooling:
        raise ValueError(
            f"model: {path!r} makes {saved_type} vectors, not {encoder_type} ones; use another"
            " model, or a pooling"
        )
    if encoder_type == "sparse" and (config.architectures or [""])[0] != "MiniBertForMaskedLM":
        raise ValueError(
            f"kind: sparse vectors are made by a masked-LM head, which {path!r} lacks; use a model"
            " as it was pretrained, before fine-tuning"
        )
    options = {"dtype": dtype or dtype_of_saved(config)}
    encoder_class = getattr(sentence_transformers, ENCODER_CLASSES[encoder_type])
    model = load_sentence_transformer(encoder_class, path, model_kwargs=options)
    check_weights(path, model.transformers_model)
    model.max_seq_length = max_length or min(model.max_seq_length, config.max_position_embeddings)
    if pooling is not None:
        _remove_modules(model, Pooling)
        model.insert(1, Pooling(config.hidden_size, pooling))
    if normalize is not None:
        _remove_modules(model, Normalize)
    if normalize:
        model.append(Normalize())
    return model


def _remove_modules(model: SentenceTransformer, module_class: type[torch.nn.Module]) -> None:
    for index in reversed(range(len(model))):
        if isinstance(model[index], module_class):
            del model[index]


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


def open_reranker(path: str) -> CrossEncoder:
    """A cross-encoder: how well a passage answers a query, from reading both at once; a ValueError
    if it is none."""
    from sentence_transformers import CrossEncoder

    config = check_encoder(path, reranker=True)
    options = {"dtype": dtype_of_saved(config)}
    model = load_sentence_transformer(CrossEncoder, path, model_kwargs=options)
    check_weights(path, model.transformers_model)
    model.max_seq_length = min(model.max_seq_length, config.max_position_embeddings)
    return model


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


def warn_cut(model: SentenceTransformer, texts: Sequence[str]) -> None:
    """Warn if many documents, with their prompt, have more tokens than the model reads."""
    prompt = model.prompts.get("document") or ""
    documents = [prompt + text for text in texts[:MAX_COUNTED_TEXTS]]
    rows = model.tokenizer(documents, verbose=False).input_ids
    num_cut = sum(len(row) > model.max_seq_length for row in rows)
    if num_cut > MIN_CUT_SHARE * len(rows):
        warn(
            f"{num_cut:,} of {len(rows):,} texts have more than {model.max_seq_length} tokens and"
            " are cut; use a larger --max_length, or shorter texts"
        )


@checked_keywords
def embed(
    text: str | Iterable[str] | Rows | None = None,
    *,
    file: str | None = None,
    column: str = "text",
    output: str | None = None,
    model: str = "runs/embed",
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    dtype: DtypeName | None = None,
) -> np.ndarray:
    """Turn texts into vectors.

    Args:
        text: The texts; in Python also a table (a `Dataset`, a DataFrame or dictionaries).
        file: Instead of texts, a text file with a text in each line ("-": stdin), or a JSON lines,
            csv, tsv or parquet file.
        column: The column of the text in a table.
        output: The file of the vectors, a new .npy file.
        model: The model: a folder or a Hub name.
        pooling: How the last states of the tokens become one vector: mean, or cls (the first
            token). By default as the model was saved, else mean.
        normalize: Scale vectors to length 1; by default as the model was saved, else false.
        max_length: Longest text, in tokens; longer ones are cut. By default as the model was saved.
        dtype: The number format to compute in; bfloat16 is faster on processors with AMX. By
            default as the model was saved, but float32 on processors that are slow at 16 bits.

    Returns:
        The vectors, [texts, width], in float32. Row i is that of text i: empty lines of a file keep
        their place.
    """
    if output is not None:
        _check_output(output)
    texts = _read_texts(text, file, column)
    with nullcontext() if output is None else lock_file(Path(output)):
        if output is not None:
            # again, since another process may have written it before the lock
            _check_output(output)
        encoder = open_encoder(model, "dense", pooling, normalize, max_length, dtype)
        vectors = encode(encoder, texts, None, "Embedding")
        if output is not None:
            with atomic_write(Path(output)) as unfinished, open(unfinished, "wb") as stream:
                np.save(stream, vectors, allow_pickle=False)
            print(f"{len(texts):,} texts × {vectors.shape[1]} → {Path(output)}")
            print_next_step(
                "minibert", "search", "INDEX", "QUERY", "--data", "FOLDER", "--model", model
            )
    return vectors


def _check_output(output: str) -> None:
    """Refuse (a ValueError) a file of vectors that exists, has another ending, or cannot be
    written."""
    target = Path(output)
    if target.exists() or target.suffix != ".npy":
        raise ValueError(
            f"output: give a new file that ends in .npy, not {output!r}; nothing is overwritten"
        )
    check_folder(target.parent, "output")


def _read_texts(
    text: str | Iterable[str] | Rows | None, file: str | None, column: str
) -> list[str]:
    """The texts that `embed` is given: as they are, or in a file."""
    text = as_dataset(text, "text")
    if text and file not in (None, "-"):
        raise ValueError("file: give texts or a file, not both")
    if isinstance(text, str):
        return [text]
    if isinstance(text, Dataset):
        return texts_of(read_table(text, [column], field="text"), column, "the data set")
    if text is not None and text != []:
        return list(text)
    if file is None:
        raise ValueError("text: none given; give texts, or a file")
    if column != "text" and not is_table(file):
        raise ValueError(f"column: {file!r} is no table, whose column could be read; leave it out")
    if is_table(file):
        return texts_of(read_table(file, [column], field="file"), column, file)
    return read_lines(file)
