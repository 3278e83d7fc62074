"""The losses of tasks: class weights, smoothed labels."""

import numpy as np
import pytest
import torch
from helpers import write_rows
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy
from toy_reviews import WORDS, finetune, sentences, six_rows

from minibert.training.finetuning.tasks.choice import Choose
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.tasks.tagging import Tag

ROWS = {
    "classify": lambda i: {"text": " ".join(WORDS[: 1 + i]), "label": "abc"[i % 3]},
    "tag": lambda i: {"tokens": WORDS[: 1 + i], "pos": ["NV"[j % 2] for j in range(1 + i)]},
    "several": lambda i: {"text": " ".join(WORDS[: 1 + i]), "label": ["a", "b"][: i % 3]},
}
GIVEN = {"classify": [0.3, 2.0, 5.0], "tag": ["V=4"], "several": ["b=3", "a=0.5"]}
WEIGHTS = {"classify": [0.3, 2.0, 5.0], "tag": [1.0, 4.0], "several": [0.5, 3.0]}


def prepared(kind, folder, given, **options):
    """A trainer on six rows, with its one batch."""
    task_class, never = (
        Tag if kind == "tag" else Classify,
        {"eval_strategy": "no", "load_best_model_at_end": False},
    )
    return six_rows(task_class, ROWS[kind], folder, {"class_weights": given}, **never | options)


def expected_loss(logits, labels, weights):
    """Weighted cross-entropy, in NumPy and float64."""
    logits, labels = logits.detach().double().numpy(), labels.numpy()
    if labels.dtype.kind == "f":
        probabilities = 1 / (1 + np.exp(-logits))
        parts = labels * np.log(probabilities) * weights + (1 - labels) * np.log(1 - probabilities)
        return -parts.mean()
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    logits, labels = logits[labels != -100], labels[labels != -100]
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(labels)), labels]
    weight = np.array(weights)[labels]
    return (weight * losses).sum() / weight.sum()


def check_losses(trainer, formula):
    """The loss of the one batch, of two parts of it in one step, and of an evaluation, which is neither weighted nor
    smoothed, against a formula of logits, labels and whether it is."""
    (batch,) = trainer.get_train_dataloader()
    logits = trainer.model(
        **{name: value for name, value in batch.items() if name != "labels"}
    ).logits.detach()
    expected, plain = (float(formula(logits, batch["labels"], which)) for which in (True, False))
    assert abs(expected - plain) > 0.01
    assert trainer.compute_loss(trainer.model, dict(batch)).item() == pytest.approx(
        expected, rel=1e-5
    )
    parts = [
        {name: value[rows] for name, value in batch.items()} for rows in (slice(2), slice(2, None))
    ]
    count = trainer._get_num_items_in_batch(parts, torch.device("cpu"))
    losses = [
        trainer.compute_loss(trainer.model, dict(part), num_items_in_batch=count) for part in parts
    ]
    assert sum(losses).item() == pytest.approx(expected, rel=1e-5)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(plain, rel=1e-4)
    assert trainer.compute_loss(trainer.model.train(), dict(batch)).item() == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("kind", ROWS)
def test_class_weights_are_those_of_torch(kind, tmp_path):
    def formula(logits, labels, weighted):
        return expected_loss(
            logits, labels, WEIGHTS[kind] if weighted else [1.0] * logits.shape[-1]
        )

    check_losses(prepared(kind, tmp_path, GIVEN[kind]), formula)


@pytest.mark.parametrize("kind", ["classify", "tag", "choose"])
def test_labels_are_smoothed_as_torch_does(kind, tmp_path):
    """(What refuses it: test_finetune_input.py.)"""

    def formula(logits, labels, smoothed):
        return cross_entropy(
            logits.flatten(0, -2), labels.flatten(), label_smoothing=0.3 * smoothed
        )

    row = ROWS.get(kind, lambda i: {"text": WORDS[i], "choices": WORDS[:3], "label": i % 3})
    task = {"classify": Classify, "tag": Tag, "choose": Choose}[kind]
    check_losses(six_rows(task, row, tmp_path, {}, label_smoothing_factor=0.3), formula)


@pytest.mark.parametrize("kind", ROWS)
def test_accumulated_steps_train_the_same(kind, tmp_path):
    """(By plain descent: Adam makes much of gradients that are almost 0.)"""
    models, options = (
        [],
        {"max_steps": 3, "save_strategy": "no", "optim": "sgd", "learning_rate": 0.1},
    )
    for accumulated in (1, 3):
        sizes = {
            "per_device_train_batch_size": 6 // accumulated,
            "gradient_accumulation_steps": accumulated,
        }
        trainer = prepared(kind, tmp_path, GIVEN[kind], **options, **sizes)
        trainer.train()
        models.append(trainer.model)
    for one, other in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


class TestBalanced:
    def test_it_is_that_of_scikit_learn(self, tmp_path):
        weights = prepared("tag", tmp_path, "balanced").task.learned.label_weights
        tags = [tag for i in range(6) for tag in ROWS["tag"](i)["pos"]]
        assert weights == pytest.approx(
            compute_class_weight("balanced", classes=np.array(["N", "V"]), y=tags)
        )

    def test_of_several_labels_it_is_the_negatives_for_each_positive(self, tmp_path):
        assert prepared("several", tmp_path, ["balanced"]).task.learned.label_weights == [
            2 / 4,
            4 / 2,
        ]


@pytest.mark.parametrize(
    ("label", "options", "said"),
    [
        ("good", ["--class_weights", "nice=2"], "'nice' is not a label; the labels are bad, good"),
        (
            "good",
            ["--class_weights", "1", "2", "3"],
            "1 2 3; use balanced, a number above 0 for each of 2 labels .bad",
        ),
        ("good", ["--class_weights", "1", "0"], "1 0; use balanced, a number above 0"),
        ("good", ["--class_weights", "equal"], "equal; use balanced"),
        (
            "good",
            ["--class_weights", "balanced", "--label_smoothing_factor", "0.1"],
            "no class_weights",
        ),
        (0.5, ["--class_weights", "balanced"], "tune_threshold: 'label' has values, not classes"),
        ("fine", ["--tune_threshold", "true"], "has 3 classes; it needs two classes"),
    ],
)
def test_bad_weights_and_thresholds_are_refused(label, options, said, start, tmp_path):
    rows = [
        {"text": text, "label": label if i % 3 else 1.5}
        for i, (text, *_) in enumerate(sentences(30))
    ]
    if isinstance(label, str):
        rows = [row | {"label": (label, "good", "bad")[i % 3]} for i, row in enumerate(rows)]
    file = write_rows(tmp_path / "train.jsonl", rows)
    with pytest.raises(ValueError, match=said):
        finetune(
            "classify",
            "--model",
            start,
            "--train",
            file,
            "--output_dir",
            str(tmp_path / "out"),
            *options,
        )
    assert not list((tmp_path / "out").glob("*"))


def test_unknown_tags_are_refused(start, tmp_path):
    rows = [{"tokens": ["the", "film"], "ner_tags": ["O", "B-X"]} for _ in range(20)]
    file = write_rows(tmp_path / "train.jsonl", rows)
    given = ["--model", start, "--train", file, "--validation", file, "--class_weights", "X=2"]
    with pytest.raises(
        ValueError, match="class_weights: 'X' is not a label; the labels are O, B-X, I-X"
    ):
        finetune("tag", *given, "--output_dir", str(tmp_path / "out"))
