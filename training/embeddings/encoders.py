"""The two encoders of search, both sentence-transformers' own: `Embedder` holds a `SentenceTransformer` (texts →
vectors), `open_reranker` gives a `CrossEncoder` (pairs of texts → scores). `minibert embed` writes vectors to a file.

What they hold is a MiniBERT, which drops the padding of a batch itself. The files of sentence-transformers beside a
model say how it pools, whether it normalises, where it cuts texts off and which prompt it puts before them.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import save_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.util import load_file_path
from tqdm.auto import tqdm

from ...configuration_minibert import MiniBertConfig
from ...tokenization import tokenizer_backend
from ..data.packing import group_by_length
from ..data.tables import read_table
from ..files import check_folder, whole
from ..loading import check_weights, minibert_config, reading
from ..precision import dtype_of_saved
from ..processes import shared_cores
from .data import is_table, read_lines, texts_of

# What the weights do not show of the function that they are.
OF_CONFIG = (
    "num_attention_heads", "hidden_act", "norm_type", "norm_eps", "norm_placement", "position_embedding_type",
    "rope_parameters", "layer_types", "local_attention", "is_causal",
)  # fmt: skip
# Heads that are trained on text alone, so that what they leave in the encoder can stand for a text.
TEXT_HEADS = ("MaskedLM", "PreTraining", "NextSentencePrediction", "CausalLM", "ReplacedTokenDetection")
TEXT_MODELS = ("MiniBertModel", *(f"MiniBertFor{head}" for head in TEXT_HEADS))
RERANKER = "MiniBertForSequenceClassification"
MASKED_LM = "MiniBertForMaskedLM"
# One vector of a text; one as wide as the vocabulary, mostly zero (SPLADE); one of every token (ColBERT).
KINDS = {"dense": SentenceTransformer, "sparse": SparseEncoder, "multi-vector": MultiVectorEncoder}
PoolingName = Literal["mean", "cls"]
DtypeName = Literal["float32", "bfloat16"]


class Embedder:
    """Texts → vectors, by a `SentenceTransformer` whose first module is a MiniBERT."""

    def __init__(self, model: SentenceTransformer):
        self.model = model
        pooling = next((module for module in model if isinstance(module, Pooling)), None)
        self.pooling = pooling.pooling_mode if pooling else "none"
        self.normalize = any(isinstance(module, Normalize) for module in model)

    @classmethod
    def from_pretrained(
        cls,
        path: str,
        pooling: PoolingName | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        dtype: str | None = None,
        keep_pooler: bool = False,
    ) -> Embedder:
        """Load a folder or a Hub name.

        Args:
            path: a MiniBERT, perhaps with the files of sentence-transformers.
            pooling: of the last states: their mean, or that of the first token; by default as saved, else the mean.
            normalize: give vectors the length 1; by default as saved, else not.
            max_length: cut texts off after so many tokens; by default as saved.
            dtype: by default as saved, but float32 where the processor is slow in 16 bits.
            keep_pooler: load the pooler of a BERT too, to save it again; no vector here needs it.

        Raises:
            ValueError: no MiniBERT, one with a head for another task, a `SparseEncoder` and its like (unless a
                `pooling` is given), or a `max_length` that it does not take.
        """
        config = check_encoder(path)
        model_kwargs = {"dtype": dtype or dtype_of_saved(config)} | (
            {} if keep_pooler else {"add_pooling_layer": False}
        )
        with reading(path):
            if pooling is None:
                check_dense(path)
            model = SentenceTransformer(path, model_kwargs=model_kwargs)
        check_weights(path, model[0].auto_model)
        limit_length(model, max_length)
        replaced = (Pooling,) * (pooling is not None) + (Normalize,) * (normalize is not None)
        for place in reversed([place for place, module in enumerate(model) if isinstance(module, replaced)]):
            del model[place]
        if pooling is not None:
            model.insert(1, Pooling(config.hidden_size, pooling))
        if normalize:
            model.append(Normalize())
        return cls(model)

    def embed(
        self, texts: Sequence[str], batch_tokens: int = 16384, progress: str | None = None, task: str | None = None
    ) -> np.ndarray:
        """[texts, width], fp32, in the order of `texts`. `batch_tokens` bounds a batch with its padding; `progress` is
        what the bar is called, if there is to be one; the `task` "query" or "document", of search, has the model's
        prompt for it, None its default prompt, if any."""
        shortened = self.normalize and self.model.truncate_dim is not None  # which comes after `Normalize`
        encode = partial(getattr(self.model, f"encode_{task}" if task else "encode"), normalize_embeddings=shortened)
        prompt = self.model.prompts.get(task or self.model.default_prompt_name)
        return _in_batches(self.model, encode, texts, prompt, batch_tokens, progress)

    def count_cut(self, texts: Sequence[str]) -> int:
        """How many documents, with their prompt, have more tokens than the model reads."""
        prompt = self.model.prompts.get("document") or ""
        batches = ([prompt + text for text in texts[start : start + 1000]] for start in range(0, len(texts), 1000))
        rows = chain.from_iterable(self.model.tokenizer(batch, verbose=False).input_ids for batch in batches)
        return sum(len(row) > self.model.max_seq_length for row in rows)

    def fingerprint(self) -> str:
        """The same for the same weights, vocabulary and settings, wherever they lie; another one for any other."""
        config, tokenizer = self.model.transformers_model.config, self.model.tokenizer
        settings = [self.pooling, self.normalize, self.model.max_seq_length, self.model.truncate_dim]
        settings += [tokenizer_backend(tokenizer) if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())]
        settings += [getattr(config, name) for name in OF_CONFIG] + [m.get_config_dict() for m in list(self.model)[1:]]
        settings += [self.model.prompts.get(name) for name in (self.model.default_prompt_name, "document")]
        digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
        weights = [self.model.transformers_model.state_dict(), *(m.state_dict() for m in list(self.model)[1:])]
        for name, tensor in (item for state in weights for item in sorted(state.items())):
            digest.update(name.encode())
            # as rounded to 16 bits: in whatever dtype a model computes, it is the same model
            digest.update(tensor.detach().cpu().bfloat16().contiguous().view(torch.uint8).numpy())
        return digest.hexdigest()


def embed(
    text: str | Iterable[str] | None = None,
    *,
    file: str | None = None,
    column: str = "text",
    output: str | None = None,
    model: str = "runs/embed",
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    dtype: DtypeName | None = None,
    batch_tokens: int = 16384,
) -> np.ndarray:
    """Turn texts into vectors.

    Args:
        text: The texts.
        file: In place of texts: a text file, of which each line is a text ("-": stdin), or a JSON lines, csv, tsv or
            parquet file.
        column: The column of a table that holds the text.
        output: Where the vectors go: a new .safetensors (under the name "embeddings") or .npy file.
        model: The model: a folder or a Hub name.
        pooling: mean or cls (the first token) of the last states; by default as the model was saved, else mean.
        normalize: Give vectors the length 1; by default as the model was saved, else not.
        max_length: Cut texts off after this many tokens; by default as the model was saved.
        dtype: What to compute in, bfloat16 being faster on processors with AMX; by default as the model was saved,
            float32 where the processor is slow in 16 bits.
        batch_tokens: Most tokens of a batch, padding included; on CPU every core works on a batch of its own.

    Returns:
        The vectors, [texts, width], in float32. Row i is that of text i: empty lines of a file keep their place.

    Raises:
        ValueError: no text, a missing column, another kind of output or one that exists, a model of another task, or
            vectors that are not finite.
    """
    target = Path(output) if output else None
    if target and target.suffix not in (".safetensors", ".npy"):
        raise ValueError(f"output: {output!r} is no file of vectors; end its name in .safetensors or .npy")
    if target and target.exists():
        raise ValueError(f"output: {output!r} exists already: nothing is overwritten, give a new file")
    if target:
        check_folder(target.parent, "output")
    texts = _texts_to_embed(text, file, column)
    embedder = Embedder.from_pretrained(model, pooling, normalize, max_length, dtype)
    started = time.perf_counter()
    vectors = embedder.embed(texts, batch_tokens, progress="Embedding")
    seconds = time.perf_counter() - started
    if target:
        made_by = {"model": model, "fingerprint": embedder.fingerprint(), "pooling": embedder.pooling}
        _write_vectors(vectors, target, made_by | {"normalize": str(embedder.normalize)})
    scaled = "normalised" if embedder.normalize else "not normalised"
    where = f" → {target}" if target else ""
    print(f"{len(texts):,} texts × {vectors.shape[1]} ({embedder.pooling}, {scaled}) in {seconds:.1f} s{where}")
    return vectors


def _texts_to_embed(text: str | Iterable[str] | None, file: str | None, column: str) -> list[str]:
    if text and file not in (None, "-"):
        raise ValueError("file: give texts or a file, not both")
    if text is not None and (texts := as_texts(text)):
        return texts
    if file is None:
        raise ValueError("text: none given; give texts, or a file")
    if is_table(file):
        return texts_of(read_table(file, [column], field="file"), column, file)
    return read_lines(file)


def as_texts(texts: str | Iterable[str], argument: str = "text") -> list[str]:
    """A list of strings; a ValueError for other values (such as a table's missing value, nan), or if all are blank."""
    texts = [texts] if isinstance(texts, str) else list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{argument}: {text!r} is a {type(text).__name__}; give strings")
    if texts and not any(map(str.strip, texts)):
        raise ValueError(f"{argument}: there is no text in it")
    return texts


def _write_vectors(vectors: np.ndarray, target: Path, made_by: dict[str, str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole(target) as unfinished:
        if target.suffix == ".npy":
            with open(unfinished, "wb") as file:
                np.save(file, vectors, allow_pickle=False)
        else:
            save_file({"embeddings": vectors}, unfinished, metadata=made_by)


def open_reranker(path: str) -> CrossEncoder:
    """A cross-encoder: how well a passage answers a query, from reading both at once; a ValueError if it is none."""
    config = check_encoder(path, reranker=True)
    with reading(path):
        model = CrossEncoder(path, model_kwargs={"dtype": dtype_of_saved(config)})
    check_weights(path, model.transformers_model)
    limit_length(model)
    return model


def score_pairs(
    reranker: CrossEncoder, pairs: Sequence[tuple[str, str]], progress: str | None = None, batch_tokens: int = 16384
) -> np.ndarray:
    """[pairs], fp32: the score of each (query, passage), as `CrossEncoder.predict` gives it."""
    prompt = reranker.prompts.get(reranker.default_prompt_name)
    return _in_batches(reranker, reranker.predict, pairs, prompt, batch_tokens, progress)


def _in_batches(
    model: SentenceTransformer | CrossEncoder,
    method: Callable,
    texts: Sequence,
    prompt: str | None,
    batch_tokens: int,
    progress: str | None,
) -> np.ndarray:
    """The rows that a method of `model` gives for texts or pairs, before each of which it puts the prompt; those of
    like length together, the longest first.

    The library's own batches count texts: as many as are fast for short ones take the memory of a machine for texts of
    8192 tokens. A token is a byte or more, so that bytes bound a batch without tokenizing twice.
    """
    texts, added = list(texts), len((prompt or "").encode()) + 4
    lengths = [min(len("".join(text).encode()) + added, model.max_seq_length) for text in texts]
    batches = list(group_by_length(lengths, batch_tokens))

    def run(rows: list[int]) -> np.ndarray:
        batch = [texts[row] for row in rows]
        return method(batch, batch_size=len(batch), show_progress_bar=False)

    # Processes that share the work of an evaluation answer each other in turn. In a service, threads that begin while
    # cores are shared would keep their number.
    alone = model.device.type == "cpu" and getattr(model, "_distributed_inference", None) is None
    alone = alone and threading.current_thread() is threading.main_thread()
    parts, cores = [], torch.get_num_threads() if alone else 1
    shown = {} if progress else {"disable": True}  # with a bar, the variable TQDM_DISABLE decides
    with tqdm(total=len(texts), desc=progress, unit=" texts", **shown) as bar:
        for part in _side_by_side(run, batches, cores):
            parts.append(part)
            bar.update(len(part))
    rows = np.concatenate(parts)[np.argsort(np.concatenate(batches))].astype(np.float32, copy=False)
    bad = ~np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"model: it gives no finite numbers for {bad.sum():,} of {len(rows):,} texts, the first of them text"
            f" {first + 1}: {texts[first]!r:.80}; its training diverged, or its weights are damaged"
        )
    return rows


def _side_by_side(run: Callable[[Any], Any], batches: Sequence, cores: int) -> Iterator:
    """`map(run, batches)` with a batch a core: what a small model multiplies keeps no more than one busy.

    The first batch goes alone: it sets up the tokenizer, which must not happen while another thread is using it.
    """
    yield from map(run, batches[:1])
    workers = min(cores, len(batches) - 1)
    if workers < 2:
        yield from map(run, batches[1:])
        return
    with shared_cores(workers) as pool:
        yield from pool.map(run, batches[1:])


def check_encoder(path: str, reranker: bool = False) -> MiniBertConfig:
    """The config of a MiniBERT that vectors of text can be taken from, or that scores pairs by one logit; a ValueError
    if it is none."""
    config = minibert_config(path)
    head = (config.architectures or ["MiniBertModel"])[0]
    if reranker and (head != RERANKER or config.num_labels != 1):
        given = f"{head} with {config.num_labels} labels" if head == RERANKER else head
        raise ValueError(f"model: {path!r} holds a {given}; a reranker is a {RERANKER} with one")
    if not reranker and head not in TEXT_MODELS:
        raise ValueError(f"model: {path!r} holds a {head}; use one of {', '.join(TEXT_MODELS)}")
    return config


def saved_class(path: str) -> str | None:
    """The class of sentence-transformers that a model was saved by, if it was by one."""
    with reading(path):
        settings = load_file_path(path, "config_sentence_transformers.json")
        return json.loads(Path(settings).read_text(encoding="utf-8")).get("model_type") if settings else None


def check_dense(path: str, field: str = "model") -> None:
    """Refuse (a ValueError) what sentence-transformers saved of another class: it would open it as a new dense one."""
    if (kind := saved_class(path)) not in (None, "SentenceTransformer"):
        use = f"use {kind} of sentence-transformers, or for vectors of its encoder give a pooling"
        raise ValueError(f"{field}: {path!r} is a {kind}, which makes no dense vector of a text; {use}")


def open_encoder(
    path: str, kind: str, dtype: str | None = None, pooling: PoolingName | None = None
) -> SentenceTransformer | SparseEncoder | MultiVectorEncoder:
    """A model of a kind, as it was saved or made of an encoder: dense with vectors of length 1, multi-vector with a new
    projection.

    Raises:
        ValueError: no MiniBERT, one of another kind, or for sparse vectors one without a masked-LM head.
    """
    if kind == "dense":
        return Embedder.from_pretrained(path, pooling, normalize=True, dtype=dtype, keep_pooler=True).model
    config, saved, made = check_encoder(path), saved_class(path), KINDS[kind]
    if saved not in (None, "SentenceTransformer", made.__name__):
        raise ValueError(f"kind: {path!r} is a {saved}; give another model, or another kind")
    if kind == "sparse" and (config.architectures or [""])[0] != MASKED_LM:
        use = "use a model as it was pretrained, before fine-tuning"
        raise ValueError(f"kind: sparse vectors are made by a masked-LM head, which {path!r} lacks; {use}")
    with reading(path):
        model = made(path, model_kwargs={"dtype": dtype or dtype_of_saved(config)})
    check_weights(path, model.transformers_model)
    limit_length(model)
    return model


def open_any(
    path: str,
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    dtype: str | None = None,
) -> Embedder | SparseEncoder | MultiVectorEncoder:
    """A saved model of any kind; with a `pooling`, dense vectors of its encoder."""
    kind = next((kind for kind, made in KINDS.items() if made.__name__ == saved_class(path)), "dense")
    if kind == "dense" or pooling is not None:
        return Embedder.from_pretrained(path, pooling, normalize, max_length, dtype)
    model = open_encoder(path, kind, dtype)
    limit_length(model, max_length)
    return model


def limit_length(model: SentenceTransformer | CrossEncoder, tokens: int | None = None) -> None:
    """Cut texts off after so many tokens (None: as the model was saved, and never after more than it takes); a
    ValueError for more than the model takes, or too few for a text."""
    most = check_length(model, tokens)
    model.max_seq_length = tokens or min(model.max_seq_length, most)


def check_length(model: SentenceTransformer | CrossEncoder, tokens: int | None) -> int:
    """The most tokens that a model takes; a ValueError if `tokens` are more, or too few for a text."""
    most = model.transformers_model.config.max_position_embeddings
    if tokens is not None and not 3 <= tokens <= most:
        raise ValueError(f"max_length: {tokens} is out of range; use 3 up to {most}, which the model takes")
    return most
