"""The model card: what is known of a model, put into the template `hub_card.md`."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jinja2
import torch
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ... import modeling_minibert
from ...configuration_minibert import MiniBertConfig
from ..common.files import atomic_write
from ..common.printable import printable
from ..evaluation.baselines import is_better
from ..loading.load_errors import wrap_load_errors
from ..loading.saved_files import read_json
from ..loading.tokenizers import saved_tokenizer
from .example import run_example
from .facts import CardFacts, CardMetric, hub_name, published_name
from .markdown import Verbatim, code, one_line, output_block, plain
from .uploaded_files import CARD_FILE, is_card

TEMPLATE = Path(__file__).parents[2] / "hub_card.md"
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
# What a reader asks for first.
HEADLINE_METRICS = ("f1", "f1_micro", "f1_macro", "accuracy", "spearman", "perplexity")
MAX_CLASS_COLUMNS = 8  # of the table of the data


# --- cards and folders ---


def save_card(folder: str | Path, facts: CardFacts, repository: str | None = None) -> None:
    """Write the README.md of the model in `folder`. One that is not a model card, as of a project,
    stays. The snippet of an example is run on the model, and its output is shown.

    Args:
        repository: the name that its snippets load; by default the folder. `push` puts the
            repository in its place.
    """
    path = Path(folder) / CARD_FILE
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


def save_native_card(folder: Path, facts: CardFacts) -> None:
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
    (folder / CARD_FILE).write_text(card, encoding="utf-8")


def add_table(
    folder: str | Path, title: str, note: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Put a section with a table before "Limits" on the card in `folder`; it replaces the section
    of that title. Without a card of ours, nothing happens."""
    path = Path(folder) / CARD_FILE
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


def card_to_upload(
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
    path = folder / CARD_FILE
    text = ""
    if is_card(path):
        text = path.read_text(encoding="utf-8")
    if is_unfinished(text):
        print(f"{CARD_FILE} is a card that a library left unfinished; a generated one is uploaded")
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
        raise ValueError(f"{CARD_FILE}: the metadata are not YAML: {printable(error)}") from None


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


def one_line_result(result: CardMetric) -> CardMetric:
    return replace(
        result,
        metric=one_line(result.metric),
        dataset=one_line(result.dataset),
        split=one_line(result.split or ""),
    )


def metadata_of(
    facts: CardFacts, results: list[CardMetric], repository: str, task: str | None
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
        base_model=hub_name(facts.base_model),
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
        if isinstance(value, Verbatim):
            return value
        return plain(value)

    environment = jinja2.Environment(finalize=as_text)
    environment.filters["code"] = code
    environment.filters["output"] = output_block
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def headlines(results: Sequence[CardMetric]) -> list[CardMetric]:
    """The finite results, to 4 digits: those of `HEADLINE_METRICS` first, then what the baseline
    reaches too, losses last."""

    metrics = list(dict.fromkeys(result.metric for result in results))

    def order(result: CardMetric) -> tuple[bool, bool, int, int]:
        is_loss = result.metric.endswith("loss")
        if result.baseline_value is None:
            beats_baseline = True
        else:
            beats_baseline = is_better(result.metric, result.value, result.baseline_value)
        position = len(HEADLINE_METRICS)
        if result.metric in HEADLINE_METRICS:
            position = HEADLINE_METRICS.index(result.metric)
        return is_loss, not beats_baseline, position, metrics.index(result.metric)

    finite = [result for result in results if math.isfinite(result.value)]
    finite.sort(key=order)
    return [replace(result, value=round(float(result.value), 4)) for result in finite]
