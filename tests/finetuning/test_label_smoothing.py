"""`--label_smoothing_factor` is right in every task that has it (what refuses it: test_finetune_input.py)."""

import pytest
import torch
from helpers import write_rows
from torch.nn.functional import cross_entropy
from toy_reviews import load

from minibert import MiniBertConfig, train_tokenizer
from minibert.training.finetuning.config import FinetuningConfig
from minibert.training.finetuning.tasks.choice import Choose
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.tasks.tagging import Tag
from minibert.training.finetuning.trainer import Run, TaskTrainer

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
TASKS = {
    "classify": (Classify, {}, lambda i: {"text": " ".join(WORDS[: 1 + i]), "label": "abc"[i % 3]}),
    "tag": (Tag, {}, lambda i: {"tokens": WORDS[: 1 + i], "pos": ["NV"[j % 2] for j in range(1 + i)]}),
    "choose": (Choose, {}, lambda i: {"text": WORDS[i], "choices": WORDS[:3], "label": i % 3}),
}


@pytest.mark.parametrize("kind", TASKS)
def test_targets_are_smoothed_as_torch_does(kind, tmp_path):
    """Also where a step is accumulated over batches with different numbers of targets."""
    task_class, arguments, row = TASKS[kind]
    torch.manual_seed(0)  # one where smoothing changes the loss
    tokenizer = train_tokenizer([" ".join(WORDS)] * 9, "wordpiece", 40, show_progress=False, model_max_length=16)
    task = task_class(tokenizer, **arguments)
    file = write_rows(tmp_path / "train.jsonl", [row(i) for i in range(6)])
    splits = task.read(load(train=[file], validation=[file]))
    encoded = {name: task.encode(split, training=True) for name, split in splits.items()}
    config = MiniBertConfig.from_tokenizer(
        tokenizer, "bert", "tiny", num_hidden_layers=1, initializer_range=0.5, hidden_dropout=0.0,
        attention_dropout=0.0, **task.config_fields(),
    )  # fmt: skip
    options = {"per_device_train_batch_size": 6, "use_cpu": True, "report_to": "none"}
    args = FinetuningConfig(str(tmp_path), label_smoothing_factor=0.3, bf16=False, **options)
    trainer = TaskTrainer(Run(task, splits, encoded, "", args, {}, {}), task.model_class(config).train())
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
    assert abs(trainer.evaluate(encoded["train"])["eval_loss"] - plain) < 1e-5
    torch.testing.assert_close(trainer.compute_loss(trainer.model.train(), dict(batch)), expected)
