"""The arguments of the commands of search; nothing here may import torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from . import TRAINING_DEFAULTS, argument

TABLE_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")


def is_table(file: str | None) -> bool:
    """Whether rows are read from this file, and no lines."""
    return file is not None and Path(file).suffix.lower() in TABLE_SUFFIXES


def has_splits(source: str) -> bool:
    """Whether this is a retrieval folder, or a data set of the Hub."""
    return is_retrieval(source) or not (is_table(source) or Path(source).exists())


def is_retrieval(source: str) -> bool:
    """Whether this is a folder, which can only be a retrieval folder here."""
    return Path(source).is_dir()


@dataclass
class PoolingArguments:
    """How a model makes a vector of a text; by default as it was saved."""

    model: str = argument("runs/embed", "The model: a folder or a Hub name.")
    pooling: Literal["mean", "cls", "last_four"] | None = argument(
        None, "mean or cls of the last states, or mean of the last four layers; by default as saved, else mean."
    )
    normalize: bool | None = argument(None, "Give vectors the length 1; by default as the model was saved, else not.")
    max_length: int | None = argument(None, "Cut texts off after this many tokens; by default as the model was saved.")
    dtype: Literal["float32", "bfloat16"] | None = argument(
        None,
        "What to compute in, bfloat16 being faster on processors with AMX; by default as the model was saved, float32"
        " where the processor is slow in 16 bits.",
    )


@dataclass
class EmbedArguments:
    text: list[str] = argument([], "Texts; also given without --text. Without text and file: the lines of stdin.")
    file: str | None = argument(None, "Text file (a vector for each line), or jsonl, csv, tsv or parquet file.")
    column: str = argument("text", "The column of a table that holds the text.")
    output: str = argument("embeddings.safetensors", "Where the vectors go: a new .safetensors or .npy file.")
    batch_tokens: int = argument(
        16384, "Most tokens of a batch, padding included; on CPU every core works on a batch of its own."
    )


@dataclass
class SearchArguments:
    """Build an index over text and find what is near to queries."""

    words: list[str] = argument([], "The index (a folder), then queries; also given without --words.")
    data: list[str] = argument(
        [],
        "Folders and files to build the index of (txt, md, jsonl, csv, tsv, parquet). It replaces one that is there.",
    )
    model: str | None = argument(
        None, "The embedding model; by default the one that the index was built with, for a new one runs/embed."
    )
    passage_words: int = argument(
        150, "Longest passage cut from a text file, in words; of Chinese, Thai and the like, two letters count as one."
    )
    top_k: int = argument(5, "Passages found for a query.")
    reranker: str | None = argument(None, "A reranker that puts the passages found in order.")
    depth: int = argument(50, "Passages that the reranker reads for a query.")
    max_length: int | None = argument(
        None, "Cut texts off after this many tokens, in a new index; by default as the model was saved."
    )
    dtype: Literal["float32", "bfloat16"] | None = argument(None, "What to compute in; see `minibert embed`.")


@dataclass
class RerankArguments:
    """Put passages in the order of how well they answer a query."""

    words: list[str] = argument([], "The query, then passages; also given without --words.")
    file: str | None = argument(None, "Text file of further passages, one a line.")
    model: str = argument("runs/rerank", "The reranker: a folder or a Hub name.")
    top_k: int | None = argument(None, "Passages shown; by default all.")


@dataclass
class EvaluateArguments:
    """What an embedding model or a reranker is measured on."""

    data: str = argument(
        "",
        "A folder with corpus.jsonl, queries and qrels; for embed also a table, or a Hub data set, of two texts and a"
        " score.",
    )
    split: str = argument(
        "test", "Which queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of a folder, or split of a Hub data set."
    )
    columns: list[str] = argument([], "For embed: columns of a table, two texts and the score; by default guessed.")
    result: str | None = argument(None, "JSON file that the figures are written to.")

    def __post_init__(self):
        if not self.data:
            raise ValueError("data: none given; give a folder with corpus.jsonl, queries and qrels, or a scored table")


@dataclass
class ReferenceArguments:
    """Measure an embedding model on similarity or retrieval."""

    reference: str | None = argument(None, "Compare with the vectors of this model, by sentence-transformers.")
    reference_texts: int = argument(1000, "Number of texts that are compared.")


@dataclass
class EvaluateRerankArguments:
    """Measure what a reranker makes of the passages an embedding model finds."""

    model: str = argument("runs/rerank", "The reranker: a folder or a Hub name.")
    embedder: str = argument("runs/embed", "The embedding model that finds the passages.")
    depth: int = argument(20, "Passages that are found and put in order for a query.")
    weight: float = argument(
        1.0, "The reranker's share of the score (the rest: the cosine's); what other shares give stands in --result."
    )


@dataclass
class PairArguments:
    data: list[str] = argument(
        [],
        "Tables (jsonl, csv, tsv, parquet) or Hub data sets (owner/name or owner/name:config) of pairs (query,"
        " positive), triples (…, negative) or scored pairs (sentence1, sentence2, score).",
    )
    columns: list[str] = argument([], "Their columns in that order; by default guessed by such names.")
    validation: str | None = argument(
        None,
        "To choose the best checkpoint on: a table, the split validation of a Hub data set, or (embed) of a folder.",
    )
    validation_size: float = argument(0.05, "Without it: queries held out, a share (below 1) or their number.")
    patience: int | None = argument(None, "Evaluations without a better one before it stops; 0: never (default: 3).")
    max_length: int | None = argument(
        None,
        "Cut texts off after this many tokens in training; by default as the model was saved. The trained model reads"
        " as much as before.",
    )


@dataclass
class EmbedTrainingArguments:
    model: str = argument("runs/minibert", "The model to start from: a folder or a Hub name.")
    pooling: Literal["mean", "cls"] | None = argument(None, "By default what the model was saved with, else mean.")
    loss: Literal["auto", "ranking", "cosine", "cosent"] = argument(
        "auto",
        "ranking: a query's passage against all others of the batch; cosine: squared error of the cosine; cosent: order"
        " of the cosines. auto: cosent where there are scores, else ranking.",
    )
    pairs_from: list[str] = argument(
        [],
        "The data is plain text (files and folders of txt, md, or tables with a column text and perhaps title), and its"
        " pairs are one or several of: title (a document's title and text), adjacent (passages that follow each other),"
        " dropout (a passage and itself, told apart by dropout alone).",
    )
    passage_words: int | None = argument(
        None, "Longest passage of adjacent and dropout, in words (see `search`); by default 64. Sentences stay whole."
    )
    original_share: float = argument(
        0.0, "Share that the weights of before have in the model that is saved: it forgets less (LM-Cocktail)."
    )
    chunk_size: int | None = argument(None, "Texts encoded at once (GradCache), for large batches in little memory.")
    scale: float = argument(20.0, "Factor of the cosines in the losses ranking and cosent (1 / temperature).")


@dataclass
class RerankTrainingArguments:
    model: str = argument("runs/minibert", "The model to start from: a folder or a Hub name.")
    negatives: int = argument(3, "Negatives for every pair of a query and its passage.")
    miner: str | None = argument(None, "An embedding model that finds hard negatives; by default they are random.")
    corpus: list[str] = argument([], "Files or folders that negatives come from; by default the pairs' own passages.")
    mine_depth: int = argument(30, "With a miner, negatives are drawn from this many passages nearest to the query.")


EMBED_DEFAULTS: dict[str, Any] = TRAINING_DEFAULTS | {
    "output_dir": "runs/embed",
    "per_device_train_batch_size": 64,
    "learning_rate": 5e-5,
    "warmup_steps": 0.1,
    "num_train_epochs": 1.0,
    "load_best_model_at_end": True,
    "metric_for_best_model": "auto",  # nDCG, MRR or Spearman's correlation, by the data
}
RERANK_DEFAULTS = EMBED_DEFAULTS | {"output_dir": "runs/rerank", "per_device_train_batch_size": 32}
