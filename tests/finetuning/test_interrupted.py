"""Fine-tunings that are stopped, break off or are moved, and what goes on from there."""

import json
import os
import shutil
import signal

import pytest
from datasets import Dataset
from toy_reviews import QUICK
from transformers import Trainer

import minibert
from minibert.training import cli
from minibert.training.finetuning.tasks import classification
from minibert.training.loop.checkpoints import find_damage


@pytest.mark.parametrize(
    "steps, more",
    [
        (10, []),
        (10, ["--save_strategy", "best"]),
        (15, ["--max_steps", "15"]),  # within an epoch
        (10, ["--eval_strategy", "steps", "--eval_steps", "5", "--save_strategy", "best"]),
    ],
    ids=str,
)
@pytest.mark.slow
def test_sigterm_in_a_step_that_is_due_for_an_evaluation(
    start, data, tmp_path, monkeypatch, steps, more
):
    """By which the best model is chosen, and which a resumed training would leave out."""
    step, output, scores = Trainer.training_step, tmp_path / "out", iter(range(9, 0, -1))
    checkpoint = output / f"checkpoint-{steps}"

    def told(trainer, *given):
        if trainer.state.global_step == steps - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer, *given)

    monkeypatch.setattr(Trainer, "training_step", told)
    monkeypatch.setattr(
        classification.Classify, "compute_metrics", lambda *_: {"accuracy": next(scores)}
    )
    arguments = ["--model", start, "--data", data, "--output_dir", str(output), *QUICK]
    arguments += ["--num_train_epochs", "2", "--per_device_train_batch_size", "32", *more]
    with pytest.raises(SystemExit) as stop:
        cli.main(["finetune", "classify", *arguments])
    assert stop.value.code == 128 + signal.SIGTERM and find_damage(checkpoint) is None
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    evaluations = [entry["step"] for entry in state["log_history"] if "eval_loss" in entry]
    assert evaluations == {15: [10, 15], 10: [5, 10] if "5" in more else [10]}[steps]
    monkeypatch.undo()
    assert cli.main(["finetune", "classify", *arguments, "--resume_from_checkpoint", "true"]) == 0


@pytest.mark.slow
def test_best_checkpoint_is_found_in_a_moved_folder(start, data, tmp_path, monkeypatch, capsys):
    """Transformers knows it by its path of before, and forgets what is not there without a word."""
    step, scores = Trainer.training_step, iter([0.9, 0.1])

    def told(trainer, *given):
        if trainer.state.global_step == 19:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer, *given)

    monkeypatch.setattr(Trainer, "training_step", told)
    monkeypatch.setattr(
        classification.Classify, "compute_metrics", lambda *_: {"accuracy": next(scores)}
    )
    arguments = ["finetune", "classify", "--model", start, "--data", data, *QUICK, "--num_train_epochs", "2",
                 "--per_device_train_batch_size", "32", "--output_dir"]  # fmt: skip
    with pytest.raises(SystemExit):
        cli.main([*arguments, str(tmp_path / "first")])
    monkeypatch.undo()
    shutil.copytree(tmp_path / "first" / "checkpoint-20", tmp_path / "alone" / "checkpoint-20")
    (tmp_path / "first").rename(tmp_path / "moved")
    assert cli.main([*arguments, str(tmp_path / "alone"), "--resume_from_checkpoint", "true"]) == 2
    assert "the best one, checkpoint-10, is missing" in capsys.readouterr().err
    assert cli.main([*arguments, str(tmp_path / "moved"), "--resume_from_checkpoint", "true"]) == 0
    assert json.loads((tmp_path / "moved" / "metrics.json").read_text())["best_step"] == 10


@pytest.mark.parametrize("command", ["classify", "embed", "pretrain"])
def test_a_full_disk_at_the_end_leaves_no_config_without_weights(
    command, start, data, tmp_path, monkeypatch
):
    """As a folder without weights would be taken for a finished model."""

    def full(*_, **__):
        raise OSError("No space left on device")

    output = tmp_path / "out"
    settings = dict(max_steps=1, save_strategy="no", disable_tqdm=True, output_dir=str(output))
    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", full)
    with pytest.raises(OSError, match="No space left"):
        if command == "pretrain":
            text = tmp_path / "text.txt"
            text.write_text("\n\n".join(f"a text of some words {number}" for number in range(60)))
            minibert.pretrain(str(text), size="tiny", **settings)
        else:
            rows = Dataset.from_dict(
                {"text": [f"a {i}" for i in range(16)], "label": ["x", "y"] * 8}
            )
            if command == "embed":
                rows = rows.rename_columns({"text": "query", "label": "positive"})
                settings["validation_size"] = 1
            minibert.finetune(command, start, data=rows, load_best_model_at_end=False, **settings)
    assert not (output / "config.json").exists()
    assert not (output / ".unfinished").exists()
