"""Fine-tunings that are stopped, break off or are moved, and what goes on from there."""

import json
import os
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file
from toy_reviews import QUICK
from transformers import Trainer

from minibert.training import cli
from minibert.training.checkpoints import find_damage
from minibert.training.finetuning import run as command
from minibert.training.finetuning.tasks import classification


@pytest.mark.parametrize(
    "steps, more",
    [
        (10, []),
        pytest.param(10, ["--save_strategy", "best"], marks=pytest.mark.slow),
        (15, ["--max_steps", "15"]),  # within an epoch
        (10, ["--eval_strategy", "steps", "--eval_steps", "5", "--save_strategy", "best"]),  # the first one is
    ],
    ids=str,
)
def test_sigterm_in_a_step_that_is_due_for_an_evaluation(start, data, tmp_path, monkeypatch, steps, more):
    """By which the best model is chosen, and which a resumed training would leave out; it may be killed in it."""
    step, output, found = Trainer.training_step, tmp_path / "out", []
    evaluate, checkpoint = Trainer.evaluate, output / f"checkpoint-{steps}"

    def told(trainer, *given):
        if trainer.state.global_step == steps - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer, *given)

    monkeypatch.setattr(Trainer, "training_step", told)
    monkeypatch.setattr(classification.Classify, "compute_metrics", lambda *_: {"accuracy": -len(found)})
    monkeypatch.setattr(
        Trainer, "evaluate", lambda *given, **named: found.append(find_damage(checkpoint)) or evaluate(*given, **named)
    )
    arguments = ["--model", start, "--data", data, "--output_dir", str(output), *QUICK]
    arguments += ["--num_train_epochs", "2", "--per_device_train_batch_size", "32", *more]
    with pytest.raises(SystemExit) as stop:
        cli.main(["finetune", "classify", *arguments])
    assert stop.value.code == 128 + signal.SIGTERM and found[-1] is None
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    evaluations = [entry["step"] for entry in state["log_history"] if "eval_loss" in entry]
    assert evaluations == {15: [10, 15], 10: [5, 10] if "5" in more else [10]}[steps]
    monkeypatch.undo()
    assert cli.main(["finetune", "classify", *arguments, "--resume_from_checkpoint", "true"]) == 0


def test_rows_grouped_by_length_come_in_the_same_order_when_resumed(start, data, tmp_path):
    arguments = ["finetune", "classify", "--model", start, "--data", data, *QUICK, "--num_train_epochs", "3",
                 "--per_device_train_batch_size", "32", "--train_sampling_strategy", "group_by_length",
                 "--eval_strategy", "no", "--save_strategy", "steps", "--save_steps", "15", "--save_total_limit", "9",
                 "--save_only_model", "false", "--load_best_model_at_end", "false"]  # fmt: skip
    whole, again = tmp_path / "whole", tmp_path / "again"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "remove_checkpoints", lambda folder: None)
        assert cli.main([*arguments, "--output_dir", str(whole)]) == 0
    shutil.copytree(whole / "checkpoint-15", again / "checkpoint-15")
    assert json.loads((whole / "checkpoint-15/trainer_state.json").read_text())["epoch"] == 1.5
    assert cli.main([*arguments, "--output_dir", str(again), "--resume_from_checkpoint", "true"]) == 0
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (whole, again))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_best_model_until_then_is_found_where_the_run_was_moved_to(start, data, tmp_path, monkeypatch, capsys):
    """Transformers knows it by its path of before, and forgets what is not there without a word."""
    step, first = Trainer.training_step, tmp_path / "first"

    def told(trainer, *given):
        if trainer.state.global_step == 19:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer, *given)

    scores = iter([0.9, 0.1])
    monkeypatch.setattr(Trainer, "training_step", told)
    monkeypatch.setattr(classification.Classify, "compute_metrics", lambda *_: {"accuracy": next(scores)})
    arguments = ["finetune", "classify", "--model", start, "--data", data, *QUICK, "--num_train_epochs", "2",
                 "--per_device_train_batch_size", "32", "--output_dir"]  # fmt: skip
    with pytest.raises(SystemExit):
        cli.main([*arguments, str(first)])
    monkeypatch.undo()
    shutil.copytree(first / "checkpoint-20", tmp_path / "alone" / "checkpoint-20")
    first.rename(tmp_path / "moved")
    assert cli.main([*arguments, str(tmp_path / "alone"), "--resume_from_checkpoint", "true"]) == 2
    assert "resume_from_checkpoint: checkpoint-10, the best until" in capsys.readouterr().err
    assert cli.main([*arguments, str(tmp_path / "moved"), "--resume_from_checkpoint", "true"]) == 0
    assert json.loads((tmp_path / "moved" / "metrics.json").read_text())["best_step"] == 10
