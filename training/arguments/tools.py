"""The arguments of the commands around trained models: convert and export."""

from dataclasses import dataclass
from typing import Literal

from . import argument, to_mapping

Architecture = Literal[
    "bert", "modernbert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "nomic_bert",
    "jina_embeddings_v3", "eurobert",
]  # fmt: skip


@dataclass
class ConvertArguments:
    """Convert a model between MiniBERT and BERT, ModernBERT, RoBERTa and their like."""

    paths: list[str] = argument([], "The model (a folder or Hub name), then the folder to write; also without --paths.")
    architecture: Architecture | None = argument(None, "Target of a MiniBERT; by default what it was.")
    set: list[str] = argument(
        [],
        "Change the MiniBERT that is written, field=value (position_embedding_type=rope local_attention=128): what is"
        " kept and what is new is printed; a field that means nothing for trained weights is refused. Mappings as JSON:"
        """ 'rope_parameters={"rope_type": "yarn", "factor": 2.0}'.""",
    )

    def __post_init__(self):
        self.set = to_mapping("set", self.set)


@dataclass
class ExportArguments:
    """Write a MiniBERT for other runtimes: as ONNX graphs, as a plain model of Transformers, with its pooling."""

    paths: list[str] = argument([], "A MiniBERT (folder or Hub name), then the folder to write; also without --paths.")
    format: Literal["onnx", "native", "sentence-transformers"] = argument(
        "onnx",
        "onnx: graphs in fp32 and int8, as sentence-transformers, text-embeddings-inference and transformers.js look"
        " for them; native: weights for Transformers' own class (BERT, ModernBERT, …), from which other converters go"
        " on; sentence-transformers: what SentenceTransformer opens.",
    )
    head: str | None = argument(
        None,
        "onnx: Model for the encoder alone, instead of the head that is saved (ForMaskedLM, …); by default the encoder"
        " where sentence-transformers pools its tokens.",
    )
    int8: bool | None = argument(None, "onnx: a graph in int8 too; by default so.")
    pooling: Literal["mean", "cls"] | None = argument(
        None, "sentence-transformers: the pooling; by default as saved, else mean."
    )
    normalize: bool | None = argument(
        None, "sentence-transformers: vectors of length 1; by default as saved, else not."
    )
