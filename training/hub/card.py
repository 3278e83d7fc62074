"""The model card: what is known of a model, put into the template `hub_card.md`.

A card is written by `save_card`. Its last line is a comment that keeps the facts it was made of and a checksum of the
rest: so a card can be made again (with the name of the repository it is pushed to), and one that somebody edited since
is recognised and left alone.
"""

from __future__ import annotations

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
from huggingface_hub.repocard_data import model_index_to_eval_results
from safetensors import safe_open
from transformers import AutoTokenizer, TrainingArguments

from ...configuration_minibert import AUTO_MAP, MiniBertConfig

TEMPLATE = Path(__file__).parents[2] / "hub_card.md"
CARD, STATE = "README.md", "trainer_state.json"
_FACTS = re.compile(r"\n<!-- minibert-card (\{.*\}) -->\s*\Z")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")

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
OBJECTIVES = {
    "mlm": "masked language modelling",
    "mlm+nsp": "masked language modelling and next-sentence prediction",
    "rtd": "replaced-token detection",
    "clm": "next-token prediction",
}
# What the report of a pretraining run has beside figures on held-out text.
NO_RESULTS = {
    "objective",
    "steps",
    "epochs",
    "training_tokens",
    "training_seconds",
    "parameters",
    "precision",
    "targets",
}
# What the figures of an evaluation by `Trainer` stand beside: what it cost, and how many targets it was of.
COSTS = {"runtime", "samples_per_second", "steps_per_second", "model_preparation_time"}
TARGETS = {"targets", "mlm_targets"}
PRETRAINED = tuple(HEADS)[:6]  # heads that are trained to be fine-tuned


@dataclass
class Result:
    """A figure on held-out data.

    Args:
        metric: `accuracy`, `f1`, `perplexity`, …, as `evaluate` calls it.
        value: the model's; `baseline` is the same figure of something simple.
        dataset: what it was measured on, in words; `split` of it.
    """

    metric: str
    value: float
    dataset: str
    split: str | None = None
    baseline: float | None = None


@dataclass
class CardFacts:
    """What is known of a model beside its files; nothing needs to be.

    Args:
        data: what it was trained on, in words or as names of Hub data sets.
        training: recipe, hardware, time: what and how much.
        results: figures on held-out data; `results_note` says of what they are.
        baseline: what the results' baselines are of.
        base_model: the Hub name of the model that was fine-tuned.
        license: of the weights, as the Hub names it.
        max_length: the longest text of training, in tokens.
    """

    data: str | None = None
    training: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    results_note: str | None = None
    baseline: str | None = None
    base_model: str | None = None
    license: str | None = None
    language: str | list[str] | None = None
    tags: list[str] = field(default_factory=list)
    max_length: int | None = None


# --- cards and folders ---


def save_card(folder: str | Path, facts: CardFacts, repository: str | None = None) -> bool:
    """Write README.md for the model that is saved in `folder`, unless one is there that was edited by hand.

    Args:
        repository: the name that its snippets load; the folder's path if left out.

    Returns:
        whether it was written.

    Raises:
        ValueError: no model in the folder, or facts that make no valid card.
    """
    path = Path(folder) / CARD
    if path.exists() and read_facts(path.read_text(encoding="utf-8")) is None:
        print(f"{path} was edited by hand and stays as it is (`minibert push --overwrite-card` writes a new one)")
        return False
    path.write_text(render_card(folder, facts, repository or str(folder)), encoding="utf-8")
    return True


def read_facts(card: str, even_if_edited: bool = False) -> CardFacts | None:
    """The facts that a card was made of; None if it was edited since (unless that is asked for), or is no card of
    ours."""
    match = _FACTS.search(card)
    if match is None:
        return None
    try:
        kept = json.loads(match[1])
        if not even_if_edited and kept["sha256"] != _checksum(card[: match.start()]):
            return None
        results = [Result(**result) for result in kept["facts"].pop("results")]
        return CardFacts(**kept["facts"], results=results)
    except (ValueError, KeyError, TypeError):  # somebody edited the comment, or a later version wrote it
        return None


def _checksum(body: str) -> str:
    return hashlib.sha256(body.replace("\r\n", "\n").strip().encode()).hexdigest()


def render_card(folder: str | Path, facts: CardFacts, repository: str, revision: str = "main") -> str:
    """The card of the model in `folder` as text.

    Args:
        repository, revision: what the card's snippets load.

    Raises:
        ValueError: no model in the folder, a head that is none of MiniBERT's, or facts that make no valid card.
    """
    folder = Path(folder)
    config = MiniBertConfig.from_pretrained(folder)
    head = head_of(config, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder) if (folder / "tokenizer_config.json").exists() else None
    embedding = (folder / "modules.json").exists()
    name = repository.rstrip("/").split("/")[-1]
    task = "sentence-similarity" if embedding else HEADS[head][1]
    auto_classes = {reference.split(".")[1]: auto_class for auto_class, reference in AUTO_MAP.items()}
    card = ModelCard.from_template(
        _metadata(facts, name, task, embedding),
        template_path=str(TEMPLATE),
        facts=facts,
        config=config,
        head=head,
        task=task,
        purpose="gives texts vectors that can be compared" if embedding else HEADS[head][0],
        auto_class=auto_classes.get(head),
        pretrained=head in PRETRAINED and not embedding,
        embedding=embedding,
        name=name,
        repository=repository,
        revision=revision,
        published=published_name(repository) is not None,
        parameters=count_parameters(folder),
        architecture=describe(config),
        mask_token=getattr(tokenizer, "mask_token", None),
        loss_curve=(folder / "loss.png").exists(),
        year=datetime.date.today().year,
    )
    body = re.sub(r"\n{3,}", "\n\n", str(card)).strip()
    kept = json.dumps({"sha256": _checksum(body), "facts": dataclasses.asdict(facts)}).replace(">", "\\u003e")
    text = f"{body}\n\n<!-- minibert-card {kept} -->\n"
    check_card(text)
    return text


def head_of(config: MiniBertConfig, folder: str | Path) -> str:
    """The class whose weights are saved.

    Raises:
        ValueError: it is none of MiniBERT's.
    """
    head = (config.architectures or [None])[0]
    if head not in HEADS:
        raise ValueError(f"{folder}: config.json has the architecture {head!r}; legal: {', '.join(HEADS)}")
    return head


def _metadata(facts: CardFacts, name: str, task: str | None, embedding: bool) -> ModelCardData:
    names = [part.strip().split(":")[0] for part in (facts.data or "").split(",")]
    datasets = [name for name in names if published_name(name)]
    results = [
        EvalResult(
            task_type=task or "other",
            dataset_type=re.sub(r"[^\w./-]+", "-", result.dataset).strip("-").lower(),
            dataset_name=result.dataset,
            dataset_split=result.split,
            metric_type=result.metric,
            metric_value=float(result.value),
        )
        for result in facts.results
    ]
    return ModelCardData(
        library_name="sentence-transformers" if embedding else "transformers",
        pipeline_tag=task,
        license=facts.license,
        language=facts.language,
        base_model=published_name(facts.base_model),
        datasets=datasets or None,
        tags=list(dict.fromkeys(["minibert", *facts.tags])),
        model_name=name if results else None,
        eval_results=results or None,
    )


def published_name(name: str | None) -> str | None:
    """`name` if it can be a repository on the Hub and is no path here."""
    return name if name and _REPOSITORY.fullmatch(name) and not Path(name).exists() else None


def check_card(text: str) -> None:
    """Refuse a card that the Hub would refuse, as far as can be told without it: the metadata is a YAML mapping whose
    results read back, with finite values, and names nothing that is only here.

    Raises:
        ValueError: naming the field.
    """
    card = ModelCard(text)
    data = card.data.to_dict()
    if "model-index" in data:
        for result in model_index_to_eval_results(data["model-index"])[1]:
            value = result.metric_value
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"{CARD}: model-index has {result.metric_type}: {value!r}; legal: a finite number")
    base = data.get("base_model")
    for name in [base] if isinstance(base, str) else base or []:
        if not _REPOSITORY.fullmatch(name) and not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"{CARD}: base_model is {name!r}; legal: the name of a repository on the Hub")
    if len(card.text.strip()) < 40:
        raise ValueError(f"{CARD}: there is nothing below its metadata")


def count_parameters(folder: str | Path) -> int:
    """The number of saved parameters (tied ones once)."""
    total = 0
    for path in sorted(Path(folder).glob("model*.safetensors")):
        with safe_open(path, "pt") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


# --- what is known ---


def describe(config: MiniBertConfig) -> list[str]:
    """The architecture and its switches in words, a line a subject."""
    layers = config.layer_types
    local = layers.count("sliding_attention")
    attention = "every layer attends to the whole document"
    if local:
        attention = (
            f"{len(layers) - local} layers attend to the whole document, {local} to {config.sliding_window} tokens on "
            "either side"
        )
    positions = {
        "absolute": f"learned positions, up to {config.max_position_embeddings}",
        "sinusoidal": "sinusoidal positions",
        "rope": "rotary positions (RoPE)",
        "none": "no positions",
    }[config.position_embedding_type]
    norm = "RMSNorm" if config.norm_type == "rmsnorm" else "LayerNorm" + ("" if config.norm_bias else " without bias")
    mlp = f"gated MLP ({config.hidden_act})" if config.gated_mlp else f"MLP ({config.hidden_act})"
    biases = [name for name, has in (("attention", config.attention_bias), ("MLP", config.mlp_bias)) if has]
    dropout = f"dropout {config.hidden_dropout:g}, on attention {config.attention_dropout:g}"
    lines = [
        f"{config.num_hidden_layers} layers, width {config.hidden_size}, {config.num_attention_heads} heads",
        f"{attention}" + (", and only to what stands before (a decoder)" if config.is_causal else ""),
        f"{positions}; {norm}, {config.norm_placement}-norm; {mlp} of width {config.intermediate_size}",
        f"{'biases in ' + ' and '.join(biases) if biases else 'no biases in attention and MLP'}; {dropout} in training",
        f"vocabulary of {config.vocab_size:,} tokens; {config.type_vocab_size or 'no'} segments",
    ]
    if config.converted_from:
        lines.append(f"weights converted from a {config.converted_from} checkpoint")
    return lines


def describe_training(training: TrainingArguments) -> dict[str, str]:
    """Batch, optimizer, precision, seed and the machine, of a run on this machine."""
    batch = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
    return {
        "batch": f"{batch} rows",
        "optimizer": f"{getattr(training.optim, 'value', training.optim)}, learning rate {training.learning_rate:g}, "
        f"{getattr(training.lr_scheduler_type, 'value', training.lr_scheduler_type)} schedule, weight decay "
        f"{training.weight_decay:g}",
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
        "seed": str(training.seed),
        "hardware": describe_hardware(training),
        "software": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }


def describe_hardware(training: TrainingArguments) -> str:
    if training.device.type == "cuda":
        return f"{training.world_size} × {torch.cuda.get_device_name(training.device)}"
    return f"{training.device.type} ({platform.machine()}, {os.cpu_count()} cores)"


def describe_data(data: str) -> str:
    """`data`, a list with commas, without the folders of files on this machine."""
    parts = [part.strip() for part in data.split(",")]
    return ", ".join(Path(part).name if Path(part).exists() else part for part in parts)


def facts_from_trainer(
    log_history: Sequence[Mapping[str, Any]], training: TrainingArguments | None = None, data: str | None = None
) -> CardFacts:
    """What `Trainer` knows of its run: steps, time, the recipe, and the last evaluation's figures.

    Args:
        log_history: `trainer.state.log_history`.
        training: the arguments, if the run was on this machine.
        data: what it was trained and evaluated on, in words.
    """
    told = {}
    for entry in log_history:
        told["steps"] = f"{entry['step']:,} ({entry.get('epoch', 0):.2f} epochs)"
        if "train_runtime" in entry:
            told["time"] = f"{entry['train_runtime'] / 60:.1f} minutes"
    evaluations = [entry for entry in log_history if any(key.startswith("eval_") for key in entry)]
    last = evaluations[-1] if evaluations else {}
    figures = {key.removeprefix("eval_"): value for key, value in last.items() if key.startswith("eval_")}
    results = [
        Result(name, float(value), data or "held-out data", "validation")
        for name, value in figures.items()
        if name not in COSTS | TARGETS and isinstance(value, (int, float)) and math.isfinite(value)
    ]
    return CardFacts(data=data, training=told | (describe_training(training) if training else {}), results=results)


def facts_from_state(folder: str | Path) -> CardFacts:
    """What a folder without a card tells: the state of `Trainer` that stands in every checkpoint, or nothing."""
    path = Path(folder) / STATE
    return facts_from_trainer(json.loads(path.read_text(encoding="utf-8"))["log_history"] if path.exists() else [])


def write_card(
    folder: str | Path,
    config: MiniBertConfig,
    report: dict[str, Any],
    data: str,
    recipe: dict[str, Any],
    training: TrainingArguments,
) -> CardFacts:
    """Write the card of a pretraining run into `folder`, beside the saved model and tokenizer.

    Args:
        report: the figures of `minibert pretrain`.
        data: what the model was trained on, in words.
        recipe: the arguments of rows, masking and optimization, by name.

    Returns:
        the facts that it says, for `HubReady.card`.
    """
    data = describe_data(data)
    objective = report.get("objective", "mlm")
    told = {
        "objective": OBJECTIVES.get(objective, objective),
        "steps": f"{report['steps']:,} ({report['epochs']:.2f} epochs)",
        "tokens": f"{report['training_tokens']:,}",
        "row length": str(recipe["seq_length"]),
        "rows": recipe["packing"],
    }
    if objective != "clm":
        masked, random = recipe.get("mask_replace_prob", 0.8), recipe.get("random_replace_prob", 0.1)
        told["masking"] = (
            f"{recipe['masking']}, {recipe['mlm_probability']:.0%}; {masked:.0%} of it masked, {random:.0%} random, "
            f"{1 - masked - random:.0%} kept"
        )
    told["time"] = f"{report['training_seconds'] / 60:.1f} minutes"
    told |= describe_training(training)
    if recipe.get("optimizer") == "muon":
        rate = recipe["muon_learning_rate"] or training.learning_rate
        told["optimizer"] = (
            f"Muon (learning rate {rate:g}) for the matrices of the blocks; for the rest {told['optimizer']}"
        )
    if recipe.get("weight_average"):
        told["weights"] = f"an exponential moving average, decay {recipe['weight_average']:g}"
    prefix, baseline = ("constant_", "always “original”") if objective == "rtd" else ("unigram_", "unigram frequencies")
    figures = [key for key in report if key not in NO_RESULTS and not key.startswith(prefix)]
    facts = CardFacts(
        data=data,
        training=told,
        results=[
            Result(
                key.removeprefix("validation_"),
                report[key],
                "held-out documents",
                "validation",
                report.get(f"{prefix}{key.removeprefix('validation_')}"),
            )
            for key in figures
            if isinstance(report[key], (int, float)) and math.isfinite(report[key])
        ],
        results_note=f"At {report['targets']:,} targets of held-out documents." if "targets" in report else None,
        baseline=baseline if any(key.startswith(prefix) for key in report) else None,
        max_length=recipe["seq_length"],
    )
    save_card(folder, facts, training.hub_model_id)
    return facts
