"""`minibert zero-shot`: classify text by labels that no model was trained for, through entailment (Yin et al. 2019)."""

from __future__ import annotations

import re

from transformers import PreTrainedConfig, pipeline

from ...arguments.finetuning import ZeroShotArguments
from ..models import read_config, trained_for


def zero_shot(arguments: ZeroShotArguments) -> list[dict[str, float]]:
    """How well each label fits each text, printed too.

    Returns:
        for each text its labels, the best one first, with their probabilities.

    Raises:
        ValueError: no text or labels, a hypothesis without {}, or a model that does not tell entailment, or not where
            the pipeline looks for it.
    """
    if not arguments.text:
        raise ValueError("text: none given; use one text or more")
    if len(arguments.labels) < (1 if arguments.multi_label else 2):
        raise ValueError("labels: too few given; use --labels and two or more (one with --multi_label true)")
    if arguments.hypothesis.count("{}") != 1 or re.search("[{}]", arguments.hypothesis.replace("{}", "")):
        raise ValueError(f"hypothesis: {arguments.hypothesis!r}; use one {{}} for the label, and no other braces")
    check_entailment(arguments.model, read_config(arguments.model), arguments.multi_label)
    classifier = pipeline("zero-shot-classification", arguments.model)
    options = {"hypothesis_template": arguments.hypothesis, "multi_label": arguments.multi_label}
    found = [classifier(text, arguments.labels, **options) for text in arguments.text]
    for said in found:
        shares = [f"  {score:6.1%}  {label}" for label, score in zip(said["labels"], said["scores"])]
        print(said["sequence"], *shares, sep="\n")
    return [dict(zip(said["labels"], said["scores"])) for said in found]


def check_entailment(path: str, config: PreTrainedConfig, multi_label: bool) -> None:
    """Refuse a model whose labels do not say which one is entailment; the pipeline finds it by its beginning, "entail".
    With `multi_label`, it compares it with the first label, or with the last one if entailment is the first.

    Raises:
        ValueError: names the labels.
    """
    labels = [str(config.id2label[i]) for i in sorted(config.id2label)]
    entails = [label.lower().startswith("entail") for label in labels]
    if trained_for(config) != "ForSequenceClassification" or not any(entails):
        raise ValueError(
            f"model: {path!r} tells no entailment (class {(config.architectures or ['none'])[0]}, labels: "
            f"{', '.join(labels)}); train one with `minibert finetune nli`"
        )
    if multi_label and labels[-1 if entails[0] else 0].lower().startswith("neutral"):
        raise ValueError(
            f"multi_label: Transformers' pipeline would compare entailment with neutral in {path!r} (labels: "
            f"{', '.join(labels)}); use a model whose first label is contradiction, or whose first one is entailment "
            "and last one contradiction"
        )
