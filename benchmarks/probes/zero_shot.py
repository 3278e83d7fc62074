"""Classify texts by any labels, through a model of entailment (Yin et al. 2019).

python benchmarks/probes/zero_shot.py --model nli-model --labels sport politics --text "the match ended two to one"
"""

from dataclasses import dataclass

from transformers import pipeline
from uses import option, parse


@dataclass
class Arguments:
    text: list[str] = option([], "Texts to classify.")
    labels: list[str] = option([], "Candidate labels.")
    model: str = option("runs/finetune", "A model fine-tuned with `minibert finetune nli`: a folder or a Hub name.")
    hypothesis: str = option("This example is {}.", "The hypothesis; {} stands for a label.")
    multi_label: bool = option(False, "Judge every label by itself instead of one against the others.")


def main(arguments: Arguments) -> list[dict[str, float]]:
    classifier = pipeline("zero-shot-classification", arguments.model)
    options = {"hypothesis_template": arguments.hypothesis, "multi_label": arguments.multi_label}
    found = [classifier(text, arguments.labels, **options) for text in arguments.text]
    for said in found:
        shares = [f"  {score:6.1%}  {label}" for label, score in zip(said["labels"], said["scores"])]
        print(said["sequence"], *shares, sep="\n")
    return [dict(zip(said["labels"], said["scores"])) for said in found]


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
