"""The model card: what is known of a model, put into the template `hub_card.md`."""

import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
import torch
import transformers
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import TrainingArguments

from ... import modeling_minibert
from ...configuration_minibert import MiniBertConfig
from ..common.checkpoints import kept_step
from ..common.files import atomic_write, printable
from ..common.loading import saved_tokenizer
from ..evaluation.baselines import is_better
from .files import CARD, is_card

TEMPLATE = Path(__file__).parents[2] / "hub_card.md"
LONGEST_VALUE = 1000  # characters of one value on a card
# Texts of cards that a library wrote and nobody finished.
UNFINISHED = (
    "sentence_transformers_model_id", "cross_encoder_model_id", "[More Information Needed]",
    "generated automatically according to the information the Trainer had access to",
)  # fmt: skip

# What a model is for, and the Hub's name of the task it serves, if there is one: by head, and of sentence-transformers.
HEADS = {
    "MiniBertModel": ("gives a vector for every token and text", "feature-extraction"),
    "MiniBertForPreTraining": (
        "fills in masked words and judges whether a text follows another",
        "fill-mask",
    ),
    "MiniBertForMaskedLM": ("fills in masked words", "fill-mask"),
    "MiniBertForCausalLM": ("continues a text", "text-generation"),
    "MiniBertForNextSentencePrediction": ("judges whether a text follows another", None),
    "MiniBertForReplacedTokenDetection": ("finds replaced words", None),
    "MiniBertForSequenceClassification": ("classifies texts", "text-classification"),
    "MiniBertForTokenClassification": ("labels the words of a text", "token-classification"),
    "MiniBertForQuestionAnswering": (
        "finds the answer to a question in a text",
        "question-answering",
    ),
    "MiniBertForMultipleChoice": ("chooses the best of several continuations", "multiple-choice"),
}
SENTENCE_TRANSFORMERS = {
    "SentenceTransformer": ("gives texts vectors to compare", "sentence-similarity"),
    "CrossEncoder": ("scores how well a text answers a query", "text-ranking"),
    "SparseEncoder": ("gives texts sparse vectors to search by", "feature-extraction"),
    "MultiVectorEncoder": (
        "gives every token of a text a vector to search by",
        "feature-extraction",
    ),
}
# What an evaluation by `Trainer` reports besides its metrics.
COSTS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "targets")
HEADLINES = ("f1", "f1_micro", "accuracy", "spearman", "perplexity")  # what a reader asks for first


@dataclass
class Result:
    """A metric on held-out data."""

    metric: str  # as `evaluate` calls it
    value: float
    dataset: str  # in words
    split: str | None = None
    baseline: float | None = None  # the same metric of something simple


@dataclass
class CardFacts:
    """What is known of a model beside its files. Nothing is required."""

    data: str | None = None  # what it was trained on, in words or as names of Hub data sets
    training: dict[str, str] = field(
        default_factory=dict
    )  # recipe, hardware, time: what and how much
    results: list[Result] = field(default_factory=list)
    results_note: str | None = None  # what the results are of
    baseline: str | None = None  # what their baselines are of
    warning: str | None = None  # why the model should not be used
    base_model: str | None = None  # the Hub name of the model that was fine-tuned
    license: str | None = None  # of the weights, as the Hub names it
    language: str | list[str] | None = None
    tags: list[str] = field(default_factory=list)
    max_length: int | None = None  # the longest text of training, in tokens


# --- cards and folders ---


def save_card(folder: str | Path, facts: CardFacts, repository: str | None = None) -> None:
    """Write the README.md of the model in `folder`. One that is not a model card, as of a project, stays.

    Args:
        repository: the name that its snippets load; by default the folder. `push` puts the repository in its place.
    """
    path = Path(folder) / CARD
    if path.exists() and not is_generated(path):
        print(f"{printable(path)} is not a model card of ours, and stays as it is")
        return
    text = render_card(folder, facts, repository)
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def add_table(
    folder: str | Path, title: str, note: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Put a section with a table before "Use" on the card in `folder`; it replaces the section of that title. Without a
    card of ours, nothing happens."""
    path = Path(folder) / CARD
    if not path.is_file() or not is_generated(path):
        return
    lines = [[*header], ["---"] * len(header), *([plain(value) for value in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text = re.sub(
        rf"^## {title}\n.*?(?=^## )",
        "",
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    with atomic_write(path) as unfinished:
        text = text.replace("\n## Use\n", f"\n## {title}\n\n{note}\n\n{table}\n\n## Use\n", 1)
        unfinished.write_text(text, encoding="utf-8")
    print(f"The table is on {printable(path)}")


def is_generated(path: Path) -> bool:
    """Whether a README.md is a card of `render_card`, perhaps edited since, or one that a library left unfinished."""
    try:
        text = path.read_text(encoding="utf-8")
        return any(words in text for words in UNFINISHED) or "minibert" in (
            _read(text).data.tags or []
        )
    except ValueError:  # no UTF-8, no YAML
        return False


def card_for(
    folder: Path,
    repository: str,
    revision: str | None = None,
    license: str | None = None,
    facts: CardFacts | None = None,
) -> str:
    """The card that goes up with the model in `folder`, which `stage` has filled: its README.md, whose snippets load `repository` at `revision`;
    or a new one from `facts`, if that is no card, or one that a library left unfinished."""
    path = folder / CARD
    text = path.read_text(encoding="utf-8") if is_card(path) else ""
    if not text or any(words in text for words in UNFINISHED):
        if text:
            print(f"{CARD} is a card that a library left unfinished; a generated one is uploaded")
        text = render_card(folder, facts or CardFacts(), repository)
    text = re.sub(
        r"^model_id = .*$", lambda _: f"model_id = {code(repository)}", text, flags=re.MULTILINE
    )
    if revision:
        text = text.replace('revision="main"', f"revision={code(revision)}")
    card = _read(text)
    if license or card.data.eval_results:
        card.data.license = license or card.data.license
        card.data.model_name = repository.split("/")[-1] if card.data.eval_results else None
        text = str(card)
    if card.data.license is None:
        print("The card names no licence of the weights; --license does")
    return text


def _read(text: str) -> ModelCard:
    try:
        return ModelCard(text, ignore_metadata_errors=True)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{CARD}: the metadata are not YAML: {printable(error)}") from None


def render_card(folder: str | Path, facts: CardFacts, repository: str | None = None) -> str:
    """The card of the model in `folder` as text. Arguments and errors as of `save_card`."""
    folder, repository = Path(folder), repository or str(folder)
    config = MiniBertConfig.from_pretrained(folder)
    head = (config.architectures or [None])[0]
    if head not in HEADS:
        raise ValueError(
            f"{folder}: config.json has the architecture {head!r}; use one of {', '.join(HEADS)}"
        )
    with torch.device("meta"):
        parameters = getattr(modeling_minibert, head)(config).num_parameters()
    kind, (purpose, task) = head, HEADS[head]
    if (folder / "modules.json").exists():
        settings = folder / "config_sentence_transformers.json"
        kind = (
            "CrossEncoder" if head == "MiniBertForSequenceClassification" else "SentenceTransformer"
        )
        if settings.exists():  # older versions do not write the kind
            kind = json.loads(settings.read_text(encoding="utf-8")).get("model_type", kind)
        purpose, task = SENTENCE_TRANSFORMERS[kind]
    results = [
        replace(
            each,
            metric=one_line(each.metric),
            dataset=one_line(each.dataset),
            split=one_line(each.split or ""),
        )
        for each in headlines(facts.results)
    ]
    measured = [
        EvalResult(
            task or "other", re.sub(r"[^\w./-]+", "-", result.dataset).strip("-").lower(), result.dataset,
            result.metric, result.value, dataset_split=result.split or None,
        )
        for result in results
    ]  # fmt: skip
    languages = [facts.language] if isinstance(facts.language, str) else facts.language or []
    data = [part.rpartition("=")[2].split(":")[0].strip() for part in (facts.data or "").split(",")]
    metadata = ModelCardData(
        library_name="sentence-transformers" if kind in SENTENCE_TRANSFORMERS else "transformers", pipeline_tag=task,
        license=facts.license and one_line(facts.license), language=[*map(one_line, languages)] or None,
        base_model=published_name(facts.base_model),
        datasets=[each for each in data if published_name(each)] or None,
        tags=list(dict.fromkeys(["minibert", *map(one_line, facts.tags)])),
        model_name=one_line(Path(repository).name) if results else None, eval_results=measured or None,
    )  # fmt: skip
    environment = jinja2.Environment(
        finalize=lambda value: value if isinstance(value, _Code) else plain(value)
    )
    environment.filters["code"] = code
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        facts=facts, results=results, config=config, parameters=parameters, head=head, kind=kind, purpose=purpose,
        tokenizer=saved_tokenizer(folder) if (folder / "tokenizer_config.json").exists() else None,
        of_library=kind in SENTENCE_TRANSFORMERS, model_id=repository, loss_curve=(folder / "loss.png").exists(),
    )  # fmt: skip
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return f"---\n{metadata.to_yaml()}\n---\n\n{text}\n"


def one_line(value: object) -> str:
    """A value on one line, at most `LONGEST_VALUE` characters, all of them printable."""
    text = printable(re.sub(r"\s+", " ", str(value)[: 2 * LONGEST_VALUE]))
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def plain(value: object) -> str:
    """`one_line` as Markdown shows it: without links, markup, code, formulae, headings and table cells."""
    text = re.sub(r"([\\`*\[\]<>|#~&!$]|(?<!\w)_|_(?!\w))", r"\\\1", one_line(value))
    return re.sub(
        r"(:)(?=//)|\b(www)(?=\.)", r"\1\2\\", text, flags=re.IGNORECASE
    )  # which would become a link


class _Code(str):
    """Text that the template shows as it is."""


def code(value: str) -> _Code:
    """A Python literal of a string; a ValueError for one that is too long for a card."""
    if len(value) > LONGEST_VALUE:
        raise ValueError(
            f"a value for the code of the model card has {len(value):,} characters: {value[:50]!r}…"
        )
    literal = repr(value)
    return _Code(f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal)


def headlines(results: Sequence[Result]) -> list[Result]:
    """The finite results, to 4 digits: those of `HEADLINES` first, then what the baseline reaches too, losses last."""

    def place(result: Result) -> tuple[bool, bool, int]:
        better = result.baseline is None or is_better(result.metric, result.value, result.baseline)
        first = HEADLINES.index(result.metric) if result.metric in HEADLINES else len(HEADLINES)
        return result.metric.endswith("loss"), not better, first

    finite = [result for result in results if math.isfinite(result.value)]
    return [
        replace(result, value=round(float(result.value), 4)) for result in sorted(finite, key=place)
    ]


def published_name(name: str | None) -> str | None:
    """`name` if it can be a repository on the Hub and is no path here."""
    return (
        name
        if name and re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", name) and not Path(name).exists()
        else None
    )


# --- what is known of a training ---


def describe_data(data: str) -> str:
    """`data`, a list with commas, without the folders of files on this machine: only names of the Hub keep a slash."""

    def without_folder(part: str) -> str:
        language, sign, source = part.strip().rpartition("=")
        if not published_name(source.split(":")[0]):
            path = Path(source)
            if path.name in ("", ".."):  # such as "."
                path = path.resolve()
            source = path.name or "/"
        return language + sign + source

    return ", ".join(map(without_folder, data.split(",")))


def facts_from_trainer(
    state: Mapping[str, Any], training: TrainingArguments, data: str | None = None
) -> CardFacts:
    """What is known of a training on this machine: steps, time, recipe, and the metrics of the model it ended with.

    Args:
        state: its `TrainerState`, by field.
        data: in words, what it was trained and evaluated on.
    """
    history, step = state["log_history"], state["global_step"]
    ends = [
        i for i, entry in enumerate(history) if "train_runtime" in entry and entry["step"] == step
    ]
    # At the end, the best model takes the last one's place, if so asked.
    kept = kept_step(state, training.load_best_model_at_end) if ends else step
    evaluated: dict[str, Any] = {}
    for i, entry in enumerate(history):
        if entry["step"] == kept or (ends and i > ends[-1]):
            evaluated |= entry  # each data set has its own
    facts = CardFacts(data=data)
    if history:
        facts.training["steps"] = f"{step:,} ({history[-1].get('epoch', 0):.2f} epochs)"
    if ends:
        facts.training["time"] = f"{history[ends[-1]]['train_runtime'] / 60:.1f} minutes"
    facts.training |= describe_training(training)
    facts.results = [
        Result(key.removeprefix("eval_"), value, data or "held-out data", "validation")
        for key, value in evaluated.items()
        if key.startswith("eval_") and isinstance(value, (int, float)) and not key.endswith(COSTS)
    ]
    return facts


def describe_training(training: TrainingArguments) -> dict[str, str]:
    batch = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
    hardware = f"{training.device.type} ({platform.machine()}, {os.cpu_count()} cores)"
    if training.device.type == "cuda":
        hardware = f"{training.world_size} × {torch.cuda.get_device_name(training.device)}"
    optimizer, schedule = (
        getattr(each, "value", each) for each in (training.optim, training.lr_scheduler_type)
    )
    rates = f"learning rate {training.learning_rate:g}, {schedule} schedule, weight decay {training.weight_decay:g}"
    return {
        **(
            {} if training.auto_find_batch_size else {"batch": f"{batch} sequences"}
        ),  # found: `training` does not know
        "optimizer": f"{optimizer}, {rates}",
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
        "seed": str(training.seed),
        "hardware": hardware,
        "software": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }


def write_card(
    folder: str | Path,
    report: dict[str, Any],
    data: str,
    recipe: dict[str, Any],
    training: TrainingArguments,
) -> CardFacts:
    """Write the card of a pretraining run into `folder`, beside the saved model and tokenizer, and return what it says.

    Args:
        report: the metrics of `minibert pretrain`; data: what the model was trained on, in words.
        recipe: the arguments of rows, masking and optimization, by name.
    """
    epochs, seconds = report["epochs"], report["training_seconds"]
    shown = {
        name: value for name, value in recipe.items() if str(value) not in ("None", "False", "[]")
    }
    told = {
        "objective": report.get("objective", "mlm"),
        "steps": f"{report['steps']:,}" + (f" ({epochs:.2f} epochs)" if epochs is not None else ""),
        "tokens": f"{report['training_tokens']:,}",
        "arguments": ", ".join(f"{name} {value}" for name, value in shown.items()),
        **({"time": f"{seconds / 60:.1f} minutes"} if seconds else {}),
        **describe_training(training),
    }
    if recipe.get("optimizer") == "muon":
        told["optimizer"] = f"Muon for the matrices of the blocks; for the rest {told['optimizer']}"
    rtd = told["objective"] == "rtd"
    prefix, baseline = (
        ("constant_", "always “original”") if rtd else ("unigram_", "unigram frequencies")
    )
    results = [
        Result(name, x, "held-out documents", "validation", report.get(prefix + name))
        for name, x in (
            (key.removeprefix("validation_"), x)
            for key, x in report.items()
            if isinstance(x, float)
        )
        if not name.startswith((prefix, "start_")) and name not in ("epochs", "training_seconds")
    ]
    note = f"At {report['targets']:,} targets of held-out documents."
    facts = CardFacts(describe_data(data), told, results, note, baseline, report.get("warning"))
    facts.max_length = recipe["seq_length"]
    save_card(folder, facts, training.hub_model_id)
    return facts
