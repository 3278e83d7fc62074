"""The arguments of the commands around trained models: convert, export, push, bench, audit, race."""

from dataclasses import dataclass
from typing import Literal

from . import argument, to_mapping

Architecture = Literal[
    "bert", "modernbert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "nomic_bert",
    "jina_embeddings_v3", "eurobert", "neobert",
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


@dataclass
class PushArguments:
    """Check a saved model as somebody without the package loads it, and publish it on the Hub."""

    paths: list[str] = argument([], "A saved model's folder, then the repository ([owner/]name); also without --paths.")
    revision: str | None = argument(None, "The branch to push to, made if it is not there; by default main.")
    private: bool = argument(False, "Only you can see the repository.")
    license: str | None = argument(None, "The Hub's name of the weights' licence (apache-2.0, mit, …), for a new card.")
    overwrite_card: bool = argument(False, "Write a new card even over one edited by hand, here or on the Hub.")
    eval_results: list[str] = argument(
        [], "Figures of the card for the Hub's leaderboards: METRIC=OWNER/DATASET:TASK, a task of the set's eval.yaml."
    )
    commit_message: str = argument("Upload a MiniBERT model", "The message of the commit.")
    dry_run: bool = argument(False, "Check everything and show what would be uploaded, but upload nothing.")


@dataclass
class BenchArguments:
    """Measure speed and memory against Transformers' models on this machine."""

    benchmarks: list[str] = argument(
        [],
        "Names, or their beginnings (infer-8192/ is that one alone); by default all of --list_benchmarks, none in bf16 "
        "on a processor without instructions for it.",
    )
    list_benchmarks: bool = argument(False, "Only show what can be measured on the device.")
    output: str = argument("runs/bench", "Folder of the results: a file a benchmark; what is there is not repeated.")
    overwrite: bool = argument(False, "Measure again what is in the folder already.")
    device: Literal["auto", "cpu", "cuda"] = argument("auto", "Where to measure; auto: cuda if there is one.")
    rounds: int = argument(5, "Rounds beside the first, in each of which all models run; median and minimum are shown.")
    benchmark_seconds: float = argument(600.0, "Seconds after which a benchmark begins no further round.")
    compile: bool = argument(False, "Compile all models with torch.compile.")
    quick: bool = argument(False, "Tiny models and texts: shows that everything runs, not how fast.")


@dataclass
class AuditArguments:
    """Measure what must hold for any encoder of Transformers: packing, padding, losses, initialisation, precision."""

    model: list[str] = argument(
        [], "A folder, a Hub name, or a class (BertForMaskedLM), built tiny; also without --model."
    )
    set: list[str] = argument([], "Fields of the config of a class, field=value (num_hidden_layers=2).")
    checks: list[str] = argument([], "Names of the checks, or their beginnings; by default all.")
    result: str | None = argument(None, "JSON file that the findings are written to.")

    def __post_init__(self):
        self.set = to_mapping("set", self.set)


@dataclass
class RaceArguments:
    """Measure what the same steps teach MiniBERT and Transformers' own models."""

    recipes: list[str] = argument([], "Recipes that run beside MiniBERT's default: names or YAML files.")
    peers: list[str] = argument(["bert", "modernbert"], "Transformers' models to run against, each trained plainly.")
    learning_rates: list[float] = argument([5e-4, 1e-3, 2e-3], "Learning rates that every peer is trained with.")
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = argument("mini", "The size of all models.")
    vocab_size: int = argument(8192, "Size of the vocabulary that is trained for all.")
    steps: int = argument(500, "Optimizer steps of every run.")
    rows: int = argument(4, "Rows of a step.")
    seq_length: int = argument(512, "Longest row, in tokens.")
    evaluations: int = argument(10, "How often the held-out loss is measured, evenly over the steps.")
    documents: int = argument(400, "Held-out documents at most.")
    turn: int = argument(5, "Steps that a run takes before it is the next one's turn.")
    seed: int = argument(0, "Seed of the split, the rows, the weights and the masks.")
    grammar: str | None = argument(None, "Minimal pairs (BLiMP) that every trained model is measured on as well.")
    output: str = argument("runs/race", "Folder for the results, one file a run; a run whose file is there is done.")
    quick: bool = argument(False, "Tiny models, few steps, one learning rate: shows that all runs, not who learns.")
