"""A search by Optuna in a plain `Trainer` (one over `minibert.finetune`: test_readme.py)."""

import pytest
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

optuna = pytest.importorskip("optuna", reason="Optuna is an extra of the tests")


def test_a_trainer_searches(start, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(start)
    rows = Dataset.from_dict({"text": ["the film was great", "the film was awful"] * 4, "label": [1, 0] * 4})
    rows = rows.map(lambda batch: tokenizer(batch["text"]), batched=True)
    options = {"max_steps": 2, "eval_strategy": "epoch", "save_strategy": "no", "report_to": "none", "use_cpu": True}
    trainer = Trainer(
        args=TrainingArguments(str(tmp_path), **options), train_dataset=rows, eval_dataset=rows,
        processing_class=tokenizer,
        model_init=lambda: AutoModelForSequenceClassification.from_pretrained(start, num_labels=2),
    )  # fmt: skip
    seen = {}

    def remember(metrics):
        seen[trainer.args.learning_rate] = metrics["eval_loss"]
        return metrics["eval_loss"]

    best = trainer.hyperparameter_search(
        lambda trial: {"learning_rate": trial.suggest_categorical("learning_rate", [1e-9, 1e-2])},
        n_trials=2, direction="minimize", backend="optuna", compute_objective=remember,
        sampler=optuna.samplers.GridSampler({"learning_rate": [1e-9, 1e-2]}),
    )  # fmt: skip
    assert seen.keys() == {1e-9, 1e-2} and seen[1e-9] != seen[1e-2]
    assert best.hyperparameters == {"learning_rate": min(seen, key=seen.get)}
