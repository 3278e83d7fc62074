"""The model card: what is known of a model, put into the template `hub_card.md`."""

import math
import os
import platform
import re
from collections import Counter
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
from ..common.files import atomic_write, printable
from ..evaluation.baselines import is_better
from ..loading.load_errors import wrap_load_errors
from ..loading.saved_files import read_json
from ..loading.tokenizers import saved_tokenizer
from ..loop.checkpoints import kept_step
from .example import Example, run_example
from .origin import REPOSITORY_NAME, OriginFacts, read_origin
from .uploaded_files import CARD, is_card

TEMPLATE = Path(__file__).parents[2] / "hub_card.md"
LONGEST_VALUE = 1000  # characters of one value on a card
# Texts of cards that a library wrote and nobody finished.
UNFINISHED_TEXTS = (
    "sentence_transformers_model_id", "cross_encoder_model_id", "[More Information Needed]",
    "generated automatically according to the information the Trainer had access to",
)  # fmt: skip

# What a model is for, and the Hub's name of the task it serves, if there is one: by head, and of
# sentence-transformers.
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
COST_METRICS = (
    "runtime",
    "samples_per_second",
    "steps_per_second",
    "model_preparation_time",
    "targets",
)
# What a reader asks for first.
HEADLINE_METRICS = ("f1", "f1_micro", "f1_macro", "accuracy", "spearman", "perplexity")
# What the card of a pretrained model shows of its report.
PRETRAINING_METRICS = (
    "loss",
    "perplexity",
    "accuracy",
    "nsp_loss",
    "nsp_accuracy",
    "sop_loss",
    "sop_accuracy",
)
MAX_CLASS_COLUMNS = 8  # of the table of the data


@dataclass
class Result:
    """A metric on rows that the training did not learn from."""

    metric: str  # as `evaluate` calls it
    value: float
    dataset: str  # in words
    split: str | None = None
    baseline: float | None = None  # the same metric of something simple
    interval: tuple[float, float] | None = None  # in which it is in 95 of 100 cases
    simple: float | None = None  # the same metric of a simple model


@dataclass
class SplitFacts:
    """What is known of the rows of a split."""

    rows: int
    source: str  # in words
    class_counts: dict[str, int] = field(default_factory=dict)  # how often each class occurs
    labelled: int = 1  # rows, or entities, that these counts are a share of


@dataclass
class CardFacts:
    """What is known of a model beside its files. Nothing is required."""

    data: str | None = None  # what it was trained on, in words or as names of Hub data sets
    # recipe, hardware, time: what and how much
    training: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    results_note: str | None = None  # what the results are of
    baseline: str | None = None  # what their baselines are of
    simple_model: str | None = None  # the name of the model that `Result.simple` is of
    are_comparable: bool = True  # whether the results go into the metadata, for leader boards
    by_class: dict[str, dict[str, float]] = field(default_factory=dict)  # scores of each class
    by_class_split: str | None = None
    splits: dict[str, SplitFacts] = field(default_factory=dict)  # the rows of a fine-tuning
    decisions: list[str] = field(default_factory=list)  # thresholds, in sentences
    warning: str | None = None  # why the model should not be used
    notes: list[str] = field(default_factory=list)  # other warnings that bear on its use
    example: Example | None = None  # what the snippet reads, by default something made up
    base_model: str | None = None  # the Hub name of the model that it was made from
    base_license: str | None = None
    base_languages: list[str] = field(default_factory=list)
    origin: str = "Fine-tuned from"  # `base_model`
    license: str | None = None  # of the weights, as the Hub names it
    language: str | list[str] | None = None
    datasets: list[str] = field(default_factory=list)  # of the Hub, beside those of `data`
    tags: list[str] = field(default_factory=list)
    max_length: int | None = None  # the longest text of training, in tokens
    max_answer_length: int = 30  # of answers to questions, in tokens
    # The metrics in a pipeline of Transformers, where it decides otherwise than `minibert predict`.
    pipeline_scores: dict[str, float] = field(default_factory=dict)


# --- cards and folders ---


def save_card(folder: str | Path, facts: CardFacts, repository: str | None = None) -> None:
    """Write the README.md of the model in `folder`. One that is not a model card, as of a project,
    stays. The snippet of an example is run on the model, and its output is shown.

    Args:
        repository: the name that its snippets load; by default the folder. `push` puts the
            repository in its place.
    """
    path = Path(folder) / CARD
    if path.exists() and not is_generated(path):
        print(f"{printable(path)} is not a model card of ours, and stays as it is")
        return
    text = render_card(folder, facts, repository)
    if facts.example is not None:
        output = run_example(render_card(folder, facts, str(folder)))
        example = replace(facts.example, output=output)
        text = render_card(folder, replace(facts, example=example), repository)
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def save_short_card(folder: Path, facts: CardFacts) -> None:
    """Write the README.md of a model of another library's class: where it is from."""
    metadata = metadata_of(facts, [], str(folder), None)
    metadata.library_name = "transformers"
    metadata.tags = None
    config = read_json(folder, "config.json")
    [architecture] = config.get("architectures") or ["model"]
    text = f"# {plain(architecture)}\n\nConverted by MiniBERT."
    if facts.base_model:
        text = f"# {plain(architecture)}\n\n{plain(facts.origin)} {plain(facts.base_model)}."
    card = f"---\n{metadata.to_yaml()}\n---\n\n{text}\n"
    (folder / CARD).write_text(card, encoding="utf-8")


def add_table(
    folder: str | Path, title: str, note: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Put a section with a table before "Limits" on the card in `folder`; it replaces the section
    of that title. Without a card of ours, nothing happens."""
    path = Path(folder) / CARD
    if not path.is_file() or not is_generated(path):
        return
    lines = [list(header), ["---"] * len(header)]
    for row in rows:
        lines.append([plain(value) for value in row])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    section = f"\n## {title}\n\n{note}\n\n{table}\n\n## Limits\n"
    text = path.read_text(encoding="utf-8")
    text = re.sub(rf"^## {title}\n.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("\n## Limits\n", section, 1)
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    print(f"The table is on {printable(path)}")


def is_generated(path: Path) -> bool:
    """Whether a README.md is a card of `render_card`, perhaps edited since, or one that a library
    left unfinished."""
    try:
        text = path.read_text(encoding="utf-8")
        return is_unfinished(text) or "minibert" in (_read(text).data.tags or [])
    except ValueError:  # no UTF-8, no YAML
        return False


def is_unfinished(text: str) -> bool:
    return any(words in text for words in UNFINISHED_TEXTS)


def card_for(
    folder: Path,
    repository: str,
    revision: str | None = None,
    license: str | None = None,
    facts: CardFacts | None = None,
) -> str:
    """The card that goes up with the model in `folder`, which `stage` has filled.

    It is the README.md there, whose snippets load `repository` at `revision`; or a new one from
    `facts`, if there is none, or one that a library left unfinished.
    """
    path = folder / CARD
    text = ""
    if is_card(path):
        text = path.read_text(encoding="utf-8")
    if is_unfinished(text):
        print(f"{CARD} is a card that a library left unfinished; a generated one is uploaded")
        text = ""
    if not text:
        text = render_card(folder, facts or CardFacts(), repository)
    name = f"model_id = {code(repository)}"
    text = re.sub(r"^model_id = .*$", lambda _: name, text, flags=re.MULTILINE)
    if revision:
        text = text.replace('revision="main"', f"revision={code(revision)}")
    card = _read(text)
    if license or card.data.eval_results:
        card.data.license = license or card.data.license
        card.data.model_name = None
        if card.data.eval_results:
            card.data.model_name = repository.split("/")[-1]
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
    folder = Path(folder)
    repository = repository or str(folder)
    with wrap_load_errors(folder):
        config = MiniBertConfig.from_pretrained(folder)
    head = (config.architectures or [None])[0]
    if head not in HEADS:
        raise ValueError(
            f"{folder}: config.json has the architecture {head!r}; use one of {', '.join(HEADS)}"
        )
    with torch.device("meta"):
        parameters = getattr(modeling_minibert, head)(config).num_parameters()
    library_class = sentence_transformers_class(folder, head)
    if library_class is None:
        purpose, task = HEADS[head]
    else:
        purpose, task = SENTENCE_TRANSFORMERS[library_class]
    results = [one_line_result(result) for result in headlines(facts.results)]
    metadata = metadata_of(facts, results, repository, task)
    metadata.library_name = "sentence-transformers" if library_class else "transformers"
    tokenizer = None
    if (folder / "tokenizer_config.json").exists():
        tokenizer = saved_tokenizer(folder)
    classes, num_classes = most_frequent_classes(facts)
    labels, labels_text = describe_labels(head, config)
    longest = config.max_position_embeddings
    null_threshold = None
    if tokenizer is not None:
        longest = min(longest, tokenizer.model_max_length)
        null_threshold = tokenizer.init_kwargs.get("null_threshold")
    if not isinstance(null_threshold, (int, float)):  # it becomes code
        null_threshold = None
    text = card_template().render(
        facts=facts,
        classes=classes,
        num_classes=num_classes,
        labels=labels,
        labels_text=labels_text,
        longest=longest,
        null_threshold=null_threshold,
        results=results,
        config=config,
        parameters=parameters,
        head=head,
        kind=library_class or head,
        purpose=purpose,
        tokenizer=tokenizer,
        of_library=library_class is not None,
        model_id=repository,
        loss_curve=(folder / "loss.png").exists(),
    )
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return f"---\n{metadata.to_yaml()}\n---\n\n{text}\n"


def sentence_transformers_class(folder: Path, head: str) -> str | None:
    """The class of sentence-transformers that opens a folder; None if it is no model of that
    library."""
    if not (folder / "modules.json").exists():
        return None
    settings = read_json(folder, "config_sentence_transformers.json")
    name = settings.get("model_type") if isinstance(settings, dict) else None
    if name == "ColBERT":  # PyLate's name
        return "MultiVectorEncoder"
    if isinstance(name, str) and name in SENTENCE_TRANSFORMERS:
        return name
    # older versions do not write it
    if head == "MiniBertForSequenceClassification":
        return "CrossEncoder"
    return "SentenceTransformer"


def most_frequent_classes(facts: CardFacts) -> tuple[list[str], int]:
    """The classes in the table of the data, and how many there are."""
    counts: Counter[str] = Counter()
    for split in facts.splits.values():
        counts.update(split.class_counts)
    names = [name for name, _ in counts.most_common(MAX_CLASS_COLUMNS)]
    return names, len(counts)


def describe_labels(head: str, config: MiniBertConfig) -> tuple[list[str], str]:
    """The names of the labels of a classifier, if they have any, and what it does with them."""
    names = [str(config.id2label[label_id]) for label_id in sorted(config.id2label)]
    have_no_names = names == [f"LABEL_{label_id}" for label_id in range(len(names))]
    is_value = config.num_labels == 1 and config.problem_type != "multi_label_classification"
    if have_no_names:
        return [], ""
    if head == "MiniBertForTokenClassification":
        return names, f"It gives every word one of {len(names):,} labels"
    if head != "MiniBertForSequenceClassification" or is_value:
        return [], ""
    if config.problem_type == "multi_label_classification":
        return names, f"It says which of {len(names):,} labels a text has"
    return names, f"It predicts one of {len(names):,} classes"


def one_line_result(result: Result) -> Result:
    return replace(
        result,
        metric=one_line(result.metric),
        dataset=one_line(result.dataset),
        split=one_line(result.split or ""),
    )


def metadata_of(
    facts: CardFacts, results: list[Result], repository: str, task: str | None
) -> ModelCardData:
    """The block of metadata at the top of a card."""
    evaluations = []
    for result in results:
        dataset_id = re.sub(r"[^\w./-]+", "-", result.dataset).strip("-").lower()
        evaluation = EvalResult(
            task_type=task or "other",
            dataset_type=dataset_id,
            dataset_name=result.dataset,
            metric_type=result.metric,
            metric_value=result.value,
            dataset_split=result.split or None,
        )
        evaluations.append(evaluation)
    languages = facts.language or []
    if isinstance(languages, str):
        languages = [languages]
    datasets = list(map(one_line, facts.datasets))
    for part in (facts.data or "").split(","):  # language=owner/name:config
        name = part.rpartition("=")[2].split(":")[0].strip()
        if published_name(name):
            datasets.append(name)
    metadata = ModelCardData(
        pipeline_tag=task,
        license=facts.license and one_line(facts.license),
        language=list(map(one_line, languages)) or None,
        base_model=model_name(facts.base_model),
        datasets=list(dict.fromkeys(datasets)) or None,
        tags=list(dict.fromkeys(["minibert", *map(one_line, facts.tags)])),
    )
    if results and facts.are_comparable:
        metadata.model_name = one_line(Path(repository).name)
        metadata.eval_results = evaluations
    return metadata


def card_template() -> jinja2.Template:
    """The template, into which values go as text without markup."""

    def as_text(value: object) -> str:
        if isinstance(value, _Code):
            return value
        return plain(value)

    environment = jinja2.Environment(finalize=as_text)
    environment.filters["code"] = code
    environment.filters["output"] = output_block
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def one_line(value: object) -> str:
    """A value on one line, at most `LONGEST_VALUE` characters, all of them printable."""
    text = printable(re.sub(r"\s+", " ", str(value)[: 2 * LONGEST_VALUE]))
    if len(text) > LONGEST_VALUE:
        text = f"{text[:LONGEST_VALUE]}…"
    return text


def plain(value: object) -> str:
    """`one_line` as Markdown shows it: without links, markup, code, formulae, headings and table
    cells."""
    text = re.sub(r"([\\`*\[\]<>|#~&!$]|(?<!\w)_|_(?!\w))", r"\\\1", one_line(value))
    # what would become a link
    return re.sub(r"(:)(?=//)|\b(www)(?=\.)", r"\1\2\\", text, flags=re.IGNORECASE)


class _Code(str):
    """Text that the template shows as it is."""


def code(value: str) -> _Code:
    """A Python literal of a string; a ValueError for one that is too long for a card."""
    if len(value) > LONGEST_VALUE:
        raise ValueError(
            f"a value for the code of the model card has {len(value):,} characters: {value[:50]!r}…"
        )
    literal = repr(value)
    if literal[0] == "'" and '"' not in literal:
        literal = f'"{literal[1:-1]}"'
    return _Code(literal)


def output_block(text: str) -> _Code:
    """What a snippet printed, for a block of text."""
    lines = [one_line(line) for line in text.splitlines()]
    return _Code("\n".join(lines).replace("`" * 3, "´" * 3))


def headlines(results: Sequence[Result]) -> list[Result]:
    """The finite results, to 4 digits: those of `HEADLINE_METRICS` first, then what the baseline
    reaches too, losses last."""

    metrics = list(dict.fromkeys(result.metric for result in results))

    def order(result: Result) -> tuple[bool, bool, int, int]:
        is_loss = result.metric.endswith("loss")
        if result.baseline is None:
            beats_baseline = True
        else:
            beats_baseline = is_better(result.metric, result.value, result.baseline)
        position = len(HEADLINE_METRICS)
        if result.metric in HEADLINE_METRICS:
            position = HEADLINE_METRICS.index(result.metric)
        return is_loss, not beats_baseline, position, metrics.index(result.metric)

    finite = [result for result in results if math.isfinite(result.value)]
    finite.sort(key=order)
    return [replace(result, value=round(float(result.value), 4)) for result in finite]


def model_name(name: str | None) -> str | None:
    """`name` if it can be a model on the Hub (old ones have no owner) and is no path here."""
    if not name or not REPOSITORY_NAME.fullmatch(name) or Path(name).exists():
        return None
    return name


def published_name(name: str | None) -> str | None:
    """`model_name` of what has an owner, as all that is published today."""
    name = model_name(name)
    return name if name and "/" in name else None


# --- what is known of a training ---


def add_source(facts: CardFacts, source: OriginFacts) -> None:
    """Add what is known of the model that a training started from. Its licence and languages are
    its own: what it became may have others."""
    facts.base_model = source.base_model
    facts.base_license = source.license
    facts.base_languages = source.languages


def describe_data(data: str) -> str:
    """`data`, a list with commas, without the folders of files on this machine: only names of the
    Hub keep a slash."""
    return ", ".join(map(name_without_folder, data.split(",")))


def name_without_folder(data: str) -> str:
    """One entry of `data`, such as a path or `language=path`, without the folder of a file on this
    machine."""
    source = data.strip()
    prefix = ""
    language, sign, path_or_name = source.partition("=")
    if sign and Path(language).name == language:  # else a folder has a "=" in its name
        prefix = f"{language}="
        source = path_or_name
    if not published_name(source.split(":")[0]):
        path = Path(source)
        if path.name in ("", ".."):  # such as "."
            path = path.resolve()
        source = path.name or "/"
    return prefix + source


def facts_from_trainer(
    state: Mapping[str, Any], training: TrainingArguments, data: str | None = None
) -> CardFacts:
    """What is known of a training on this machine: steps, time, recipe, and the metrics of the
    model it ended with.

    Args:
        state: its `TrainerState`, by field.
        data: in words, what it was trained and evaluated on.
    """
    history = state["log_history"]
    step = state["global_step"]
    last_end = None  # the entry in which the training ended
    for number, entry in enumerate(history):
        if "train_runtime" in entry and entry["step"] == step:
            last_end = number
    saved_step = step
    if last_end is not None:  # the best model takes the last one's place, if so asked
        saved_step = kept_step(state, training.load_best_model_at_end)
    metrics: dict[str, Any] = {}
    for number, entry in enumerate(history):
        is_after_the_end = last_end is not None and number > last_end
        if entry["step"] == saved_step or is_after_the_end:
            metrics |= entry  # each data set has its own
    facts = CardFacts(data=data)
    if training.load_best_model_at_end:
        facts.results_note = (
            "The best checkpoint on these rows was kept, so the scores are a little too high for"
            " other rows."
        )
    if history:
        facts.training["steps"] = f"{step:,} ({history[-1].get('epoch', 0):.2f} epochs)"
    if last_end is not None:
        minutes = history[last_end]["train_runtime"] / 60
        facts.training["time"] = f"{minutes:.1f} minutes"
    facts.training |= describe_training(training)
    for key, value in metrics.items():
        is_number = isinstance(value, (int, float))
        if key.startswith("eval_") and is_number and not key.endswith(COST_METRICS):
            metric = key.removeprefix("eval_")
            facts.results.append(Result(metric, value, data or "held-out data", "validation"))
    return facts


def describe_training(training: TrainingArguments) -> dict[str, str]:
    """Recipe and machine of a training, for its card."""
    batch = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
    hardware = f"{training.device.type} ({platform.machine()}, {os.cpu_count()} cores)"
    if training.device.type == "cuda":
        hardware = f"{training.world_size} × {torch.cuda.get_device_name(training.device)}"
    optimizer = getattr(training.optim, "value", training.optim)
    schedule = getattr(training.lr_scheduler_type, "value", training.lr_scheduler_type)
    rate = f"learning rate {training.learning_rate:g}"
    decay = f"weight decay {training.weight_decay:g}"
    precision = "fp32"
    if training.bf16:
        precision = "bf16"
    elif training.fp16:
        precision = "fp16"
    described = {}
    if not training.auto_find_batch_size:  # else `training` does not know it
        described["batch"] = f"{batch} sequences"
    described["optimizer"] = f"{optimizer}, {rate}, {schedule} schedule, {decay}"
    described["precision"] = precision
    described["seed"] = str(training.seed)
    described["hardware"] = hardware
    described["software"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return described


def write_card(
    folder: str | Path,
    report: dict[str, Any],
    data: str,
    recipe: dict[str, Any],
    training: TrainingArguments,
    started_from: str | None = None,
    example: Example | None = None,
) -> CardFacts:
    """Write the card of a pretraining run into `folder`, beside the saved model and tokenizer, and
    return what it says.

    Args:
        report: the metrics of `minibert pretrain`; data: what the model was trained on, in words.
        recipe: the arguments of rows, masking and optimization, by name.
        started_from: the saved model that was trained further.
        example: a held-out text for the snippet.
    """
    steps = f"{report['steps']:,}"
    if report["epochs"] is not None:
        steps += f" ({report['epochs']:.2f} epochs)"
    arguments = []
    for name, value in recipe.items():
        if str(value) not in ("None", "False", "[]"):
            arguments.append(f"{name} {value}")
    training_facts = {
        "objective": report.get("objective", "mlm"),
        "steps": steps,
        "tokens": f"{report['training_tokens']:,}",
        "arguments": ", ".join(arguments),
    }
    if report["training_seconds"]:
        training_facts["time"] = f"{report['training_seconds'] / 60:.1f} minutes"
    training_facts |= describe_training(training)
    if recipe.get("optimizer") == "muon":
        others = training_facts["optimizer"]
        training_facts["optimizer"] = f"Muon for the matrices of the blocks; for the rest {others}"
    prefix = "unigram_"
    baseline = "unigram frequencies"
    if training_facts["objective"] == "rtd":
        prefix = "constant_"
        baseline = "always “original”"
    facts = CardFacts(
        data=describe_data(data),
        training=training_facts,
        results=_pretraining_results(report, prefix),
        results_note=f"At {report['targets']:,} targets of held-out documents.",
        baseline=baseline,
        warning=report.get("warning"),
        max_length=recipe["seq_length"],
        example=example,
    )
    if started_from:
        add_source(facts, read_origin(started_from))
        facts.origin = "Trained further from"
    save_card(folder, facts, training.hub_model_id)
    return facts


def _pretraining_results(report: dict[str, Any], prefix: str) -> list[Result]:
    """The metrics in the report of a pretraining, each beside that of the baseline, whose names
    begin with `prefix`."""
    results = []
    for metric in PRETRAINING_METRICS:
        value = report.get(metric, report.get(f"validation_{metric}"))
        if value is not None:
            baseline = report.get(prefix + metric)
            results.append(Result(metric, value, "held-out documents", "validation", baseline))
    return results
