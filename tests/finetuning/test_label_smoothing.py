"""`--label_smoothing_factor` is right in every task that has it (what refuses it: test_finetune_input.py)."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from toy_reviews import WORDS, six_rows

from minibert.training.finetuning.tasks.choice import Choose
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.tasks.tagging import Tag

TASKS = {
    "classify": (Classify, {}, lambda i: {"text": " ".join(WORDS[: 1 + i]), "label": "abc"[i % 3]}),
    "tag": (Tag, {}, lambda i: {"tokens": WORDS[: 1 + i], "pos": ["NV"[j % 2] for j in range(1 + i)]}),
    "choose": (Choose, {}, lambda i: {"text": WORDS[i], "choices": WORDS[:3], "label": i % 3}),
}


@pytest.mark.parametrize("kind", TASKS)
def test_targets_are_smoothed_as_torch_does(kind, tmp_path):
    """Also where a step is accumulated over batches with different numbers of targets."""
    task_class, arguments, row = TASKS[kind]
    trainer = six_rows(task_class, row, tmp_path, arguments, label_smoothing_factor=0.3)
    (batch,) = trainer.get_train_dataloader()
    labels = batch["labels"]
    logits = trainer.model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    expected = cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.flatten(), label_smoothing=0.3)
    assert abs(expected - cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.flatten())) > 0.01
    torch.testing.assert_close(trainer.compute_loss(trainer.model, dict(batch)), expected)
    parts = [{name: value[rows] for name, value in batch.items()} for rows in (slice(2), slice(2, None))]
    count = (labels != -100).sum()
    losses = [trainer.compute_loss(trainer.model, part, num_items_in_batch=count) for part in parts]
    torch.testing.assert_close(sum(losses), expected)
    plain = cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.flatten())  # as `minibert evaluate` has it
    assert abs(trainer.evaluate(trainer.train_dataset)["eval_loss"] - plain) < 1e-5
    torch.testing.assert_close(trainer.compute_loss(trainer.model.train(), dict(batch)), expected)
