"""The model card: what is known of a model, put into the template `hub_card.md`.

Beside a card (README.md) lies `model_card.json`: the facts that it was made of and its checksum. So a card can be made
again (with the name of the repository it is pushed to), and one that somebody edited since is left alone.
"""

import dataclasses
import datetime
import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedTokenizerBase, TrainingArguments

from ... import modeling_minibert
from ...configuration_minibert import MiniBertConfig
from ..arguments.pretraining import MaskingArguments
from ..checkpoints import kept_step
from ..files import whole, write_json
from ..loading import saved_tokenizer

TEMPLATE = Path(__file__).parents[2] / "hub_card.md"
CARD, FACTS = "README.md", "model_card.json"

# What a head is for, and the Hub's name of the task it serves, if there is one.
HEADS = {
    "MiniBertModel": ("gives a vector for every token and text", "feature-extraction"),
    "MiniBertForPreTraining": ("fills in masked words and judges whether a text follows another", "fill-mask"),
    "MiniBertForMaskedLM": ("fills in masked words", "fill-mask"),
    "MiniBertForCausalLM": ("continues a text", "text-generation"),
    "MiniBertForNextSentencePrediction": ("judges whether a text follows another", None),
    "MiniBertForReplacedTokenDetection": ("finds replaced words", None),
    "MiniBertForSequenceClassification": ("classifies texts", "text-classification"),
    "MiniBertForTokenClassification": ("labels the words of a text", "token-classification"),
    "MiniBertForQuestionAnswering": ("finds the answer to a question in a text", "question-answering"),
    "MiniBertForMultipleChoice": ("chooses the best of several continuations", "multiple-choice"),
}
# The same of the models of sentence-transformers.
SENTENCE_TRANSFORMERS = {
    "SentenceTransformer": ("gives texts vectors to compare", "sentence-similarity"),
    "CrossEncoder": ("scores how well a text answers a query", "text-ranking"),
}
OBJECTIVES = {
    "mlm": "masked language modelling",
    "mlm+nsp": "masked language modelling and next-sentence prediction",
    "rtd": "replaced-token detection",
    "clm": "next-token prediction",
}
# What the figures of an evaluation by `Trainer` stand beside: what it cost, and how many targets it was of.
COSTS = {"runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "targets", "mlm_targets"}
HEADLINES = ("f1", "f1_micro", "accuracy", "spearman", "perplexity")  # what a reader asks for first


@dataclass
class Result:
    """A figure on held-out data."""

    metric: str  # as `evaluate` calls it
    value: float
    dataset: str  # in words
    split: str | None = None
    baseline: float | None = None  # the same figure of something simple


@dataclass
class CardFacts:
    """What is known of a model beside its files; nothing needs to be."""

    data: str | None = None  # what it was trained on, in words or as names of Hub data sets
    training: dict[str, str] = field(default_factory=dict)  # recipe, hardware, time: what and how much
    results: list[Result] = field(default_factory=list)  # of which a card shows the `headlines`
    results_note: str | None = None  # what the results are of
    baseline: str | None = None  # what their baselines are of
    base_model: str | None = None  # the Hub name of the model that was fine-tuned
    license: str | None = None  # of the weights, as the Hub names it
    language: str | list[str] | None = None
    tags: list[str] = field(default_factory=list)
    max_length: int | None = None  # the longest text of training, in tokens


@dataclass
class SavedCard:
    """The card of a folder or a repository; `SavedCard()` where there is none."""

    text: str = ""
    facts: CardFacts | None = None  # that it was made of, if they are known
    edited: bool = False  # since; `read_card` takes one that is not ours for edited
    uploaded: bool = False  # this very text was put on the Hub by `minibert push`, or comes from there


# --- cards and folders ---


def save_card(folder: str | Path, facts: CardFacts, repository: str | None = None, revision: str = "main") -> bool:
    """Write README.md and model_card.json for the model that is saved in `folder`, unless a README.md is there that
    was edited by hand; whether they were written. Arguments and errors as of `render_card`."""
    path = Path(folder) / CARD
    if read_card(folder).edited:
        print(f"{path} was edited by hand and stays as it is (`minibert push --overwrite-card` writes a new one)")
        return False
    text = render_card(folder, facts, repository or str(folder), revision)
    path.unlink(missing_ok=True)  # a process may end between the two files, and a card without facts is one by hand
    write_json(path.with_name(FACTS), {"sha256": _checksum(text), "facts": dataclasses.asdict(facts)})
    with whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return True


def read_card(folder: str | Path) -> SavedCard:
    path, kept = Path(folder) / CARD, Path(folder) / FACTS
    if not path.exists():
        return SavedCard()
    text, uploaded = path.read_text(encoding="utf-8"), False
    try:
        state = json.loads(kept.read_text(encoding="utf-8"))
        uploaded = state.get("uploaded") == _checksum(text)
        results = [Result(**result) for result in state["facts"].pop("results")]
        facts = CardFacts(**state["facts"], results=results)
        return SavedCard(text, facts, state["sha256"] != _checksum(text), uploaded)
    # there is none, it was edited, or a later version wrote it
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return SavedCard(text, edited=True, uploaded=uploaded)


def mark_uploaded(folder: Path) -> None:
    """Note in model_card.json that the README.md of `folder`, written by hand, is what is on the Hub, so that a later
    one is no other person's."""
    card, path = read_card(folder), folder / FACTS
    state = {} if card.facts is None else json.loads(path.read_text(encoding="utf-8"))
    path.unlink(missing_ok=True)  # a link
    path.write_text(json.dumps(state | {"uploaded": _checksum(card.text)}, indent=1) + "\n", encoding="utf-8")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.replace("\r\n", "\n").strip().encode()).hexdigest()


def render_card(folder: str | Path, facts: CardFacts, repository: str, revision: str = "main") -> str:
    """The card of the model in `folder` as text; its snippets load `repository` at `revision`.

    Raises:
        ValueError: no model in the folder, or a head that is none of MiniBERT's.
    """
    folder = Path(folder)
    config = MiniBertConfig.from_pretrained(folder)
    head = (config.architectures or [None])[0]
    if head not in HEADS:
        known = ", ".join(HEADS)
        raise ValueError(f"{folder}: config.json has the architecture {head!r}; use a model of one of {known}")
    with torch.device("meta"):
        parameters = getattr(modeling_minibert, head)(config).num_parameters()
    tokenizer = saved_tokenizer(folder) if (folder / "tokenizer_config.json").exists() else None
    kind, (purpose, task) = head, HEADS[head]
    if (folder / "modules.json").exists():
        kind = "CrossEncoder" if head == "MiniBertForSequenceClassification" else "SentenceTransformer"
        purpose, task = SENTENCE_TRANSFORMERS[kind]
    name = repository.rstrip("/").split("/")[-1]
    results = headlines(facts.results)
    # [language=]item[:config], as `--data` takes them
    languages, data = zip(*(part.split(":")[0].strip().rpartition("=")[::2] for part in (facts.data or "").split(",")))
    codes = [code for code in dict.fromkeys(languages) if re.fullmatch("[a-z]{2,3}", code)]
    measured = [
        EvalResult(
            task or "other", re.sub(r"[^\w./-]+", "-", result.dataset).strip("-").lower(), result.dataset,
            result.metric, result.value, dataset_split=result.split,
        )
        for result in results
    ]  # fmt: skip
    metadata = ModelCardData(
        library_name="sentence-transformers" if kind in SENTENCE_TRANSFORMERS else "transformers", pipeline_tag=task,
        license=facts.license, language=facts.language or codes or None, base_model=published_name(facts.base_model),
        datasets=[each for each in data if published_name(each)] or None,
        tags=list(dict.fromkeys(["minibert", *facts.tags])),
        model_name=name if results else None, eval_results=measured or None,
    )  # fmt: skip
    facts = dataclasses.replace(
        facts, data=plain(facts.data), base_model=plain(facts.base_model), license=plain(facts.license),
        training={plain(what): plain(value) for what, value in facts.training.items()},
    )  # fmt: skip
    results = [dataclasses.replace(x, metric=plain(x.metric), dataset=plain(x.dataset)) for x in results]
    card = ModelCard.from_template(
        metadata, template_path=str(TEMPLATE), facts=facts, results=results, config=config, parameters=parameters,
        kind=kind, purpose=purpose, tokenizer=tokenizer, best_known=best_known,
        name=plain(name), repository=repository, revision=revision, published=published_name(repository),
        loss_curve=(folder / "loss.png").exists(), year=datetime.date.today().year,
    )  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", str(card)).strip() + "\n"


def plain(text: str | None) -> str | None:
    """Names and words from outside as Markdown shows them: on one line, with no link, markup, code or cell in them."""
    return None if text is None else re.sub(r"([\\\[<|`])", r"\\\1", " ".join(text.split()))


def headlines(results: Sequence[Result]) -> list[Result]:
    """The results that a card shows, to 4 digits: the finite ones, those of `HEADLINES` first and losses last, without
    parts of another one (beside f1: f1_PER, f1_LOC, …)."""
    metrics = {result.metric for result in results}
    first = {metric: place for place, metric in enumerate(HEADLINES)}
    return [
        dataclasses.replace(result, value=round(float(result.value), 4))
        for result in sorted(results, key=lambda x: (x.metric.endswith("loss"), first.get(x.metric, len(first))))
        if math.isfinite(result.value) and not any(result.metric.startswith(f"{whole}_") for whole in metrics)
    ]


def best_known(tokenizer: PreTrainedTokenizerBase | None, sentences: Sequence[str]) -> str:
    """The sentence, with {} for a word to fill in, that the tokenizer knows best."""

    def tokens(sentence: str) -> int:
        ids = tokenizer(sentence.replace("{}", ""), add_special_tokens=False)["input_ids"]
        return len(ids) + 10 * ids.count(tokenizer.unk_token_id)

    return min(sentences, key=tokens) if tokenizer else sentences[0]


def published_name(name: str | None) -> str | None:
    """`name` if it can be a repository on the Hub and is no path here."""
    return name if name and re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not Path(name).exists() else None


# --- what is known ---


def describe_training(training: TrainingArguments) -> dict[str, str]:
    """Batch, optimizer, precision, seed and the machine, of a run on this machine."""
    batch = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
    hardware = f"{training.device.type} ({platform.machine()}, {os.cpu_count()} cores)"
    if training.device.type == "cuda":
        hardware = f"{training.world_size} × {torch.cuda.get_device_name(training.device)}"
    optimizer, schedule = (getattr(each, "value", each) for each in (training.optim, training.lr_scheduler_type))
    rates = f"learning rate {training.learning_rate:g}, {schedule} schedule, weight decay {training.weight_decay:g}"
    return {
        **({} if training.auto_find_batch_size else {"batch": f"{batch} sequences"}),  # found: `training` does not know
        "optimizer": f"{optimizer}, {rates}",
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
        "seed": str(training.seed),
        "hardware": hardware,
        "software": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }


def describe_data(data: str) -> str:
    """`data`, a list with commas, without the folders of files on this machine: only names of the Hub keep a slash."""

    def without_folder(part: str) -> str:
        language, sign, source = part.strip().rpartition("=")
        return language + sign + (source if published_name(source.split(":")[0]) else Path(source).name)

    return ", ".join(map(without_folder, data.split(",")))


def facts_from_trainer(
    state: Mapping[str, Any], training: TrainingArguments | None = None, data: str | None = None
) -> CardFacts:
    """What the state of a `Trainer` (as `trainer_state.json` has it) and its arguments, if it ran on this machine,
    tell: steps, time, the recipe, and the figures of the model at hand, if it was evaluated and is known to be the last
    or the best one; `data` says in words what it was trained and evaluated on."""
    told: dict[str, str] = {}
    evaluated: dict[int, dict[str, Any]] = {}  # by the step of the model
    step = state["global_step"]
    for entry in state["log_history"]:
        told["steps"] = f"{entry['step']:,} ({entry.get('epoch', 0):.2f} epochs)"
        if "train_runtime" in entry:  # the end, at which the best model takes the last one's place, if so asked
            told["time"] = f"{entry['train_runtime'] / 60:.1f} minutes"
            best = kept_step(state, training is None or training.load_best_model_at_end)
            if best != step:
                evaluated[step] = evaluated.get(best, {}) if training else {}
        evaluated.setdefault(entry["step"], {}).update(entry)  # each data set has its own
    results = [
        Result(name, value, data or "held-out data", "validation")
        for key, value in evaluated.get(step, {}).items()
        if (name := key.removeprefix("eval_")) != key and isinstance(value, (int, float))
        if not f"_{name}".endswith(tuple(f"_{cost}" for cost in COSTS))
    ]
    return CardFacts(data=data, training=told | (describe_training(training) if training else {}), results=results)


def write_card(
    folder: str | Path, report: dict[str, Any], data: str, recipe: dict[str, Any], training: TrainingArguments
) -> CardFacts:
    """Write the card of a pretraining run into `folder`, beside the saved model and tokenizer, and return what it says.

    Args:
        report: the figures of `minibert pretrain`; data: what the model was trained on, in words.
        recipe: the arguments of rows, masking and optimization, by name.
    """
    data, objective = describe_data(data), report.get("objective", "mlm")
    unused = {field.name for field in dataclasses.fields(MaskingArguments)} if objective == "clm" else set()
    recipe = {name: x for name, x in recipe.items() if str(x) not in ("None", "False", "[]") and name not in unused}
    told = {
        "objective": OBJECTIVES.get(objective, objective),
        "steps": f"{report['steps']:,}" + (f" ({report['epochs']:.2f} epochs)" if report["epochs"] is not None else ""),
        "tokens": f"{report['training_tokens']:,}",
        "arguments": ", ".join(f"{name} {value}" for name, value in recipe.items()),
        **({"time": f"{report['training_seconds'] / 60:.1f} minutes"} if report["training_seconds"] else {}),
        **describe_training(training),
    }
    if recipe.get("optimizer") == "muon":
        told["optimizer"] = f"Muon for the matrices of the blocks; for the rest {told['optimizer']}"
    prefix, baseline = ("constant_", "always “original”") if objective == "rtd" else ("unigram_", "unigram frequencies")
    figures = {
        key.removeprefix("validation_"): value
        for key, value in report.items()
        if isinstance(value, float) and not key.startswith(prefix) and key not in ("epochs", "training_seconds")
    }
    facts = CardFacts(
        data=data,
        training=told,
        results=[
            Result(name, value, "held-out documents", "validation", report.get(prefix + name))
            for name, value in figures.items()
        ],
        results_note=f"At {report['targets']:,} targets of held-out documents.",
        baseline=baseline,
        max_length=recipe["seq_length"],
    )
    save_card(folder, facts, training.hub_model_id)
    return facts
