"""Which checkpoint a training goes on from, when some are missing files or are half-written."""

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from minibert import MiniBertConfig, MiniBertForMaskedLM
from minibert.training import cli
from minibert.training.loop import checkpoint_mixin
from minibert.training.loop.callbacks import add_callbacks, common_callbacks
from minibert.training.loop.checkpoint_mixin import CheckpointMixin
from minibert.training.loop.checkpoints import (
    MANIFEST,
    checkpoint_to_resume,
    find_damage,
    write_manifest,
)
from minibert.training.loop.resume_guard import ResumeGuardCallback

FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


class OurTrainer(CheckpointMixin, Trainer):
    pass


def make_trainer(folder, kind=OurTrainer, **given):
    torch.manual_seed(0)
    shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
    config = MiniBertConfig(vocab_size=40, **shape)
    ids = torch.randint(5, 40, (16, 12))
    defaults = dict(save_steps=2, max_steps=4, disable_tqdm=True, report_to="none", use_cpu=True)
    training = TrainingArguments(str(folder), save_strategy="steps", **defaults | given)
    rows = [{"input_ids": row, "labels": row} for row in ids]
    return kind(MiniBertForMaskedLM(config), training, train_dataset=rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints, of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("run")
    trainer = make_trainer(folder)
    add_callbacks(trainer, common_callbacks())
    trainer.train()
    return folder


@pytest.fixture
def run(saved, tmp_path):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    return tmp_path


def resumed(folder, given="true"):
    return checkpoint_to_resume(
        TrainingArguments(str(folder), use_cpu=True, resume_from_checkpoint=given)
    )


def test_the_newest_whole_checkpoint_is_taken(run, capsys):
    assert resumed(run) == str(run / "checkpoint-4")
    assert "Skipped" not in capsys.readouterr().out
    assert resumed(run, str(run / "checkpoint-2")) == str(run / "checkpoint-2")


def test_resuming_into_a_folder_in_use_is_refused(run, tmp_path_factory):
    other, checkpoint = tmp_path_factory.mktemp("other"), str(run / "checkpoint-2")
    assert resumed(other, checkpoint) == checkpoint
    (other / "config.json").touch()
    with pytest.raises(ValueError, match="holds a finished model"):
        resumed(other, checkpoint)
    shutil.copytree(run / "checkpoint-4", other / "checkpoint-4")
    (other / "config.json").unlink()
    with pytest.raises(ValueError, match="holds an unfinished run"):
        resumed(other, checkpoint)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("cut", [None, 0.99])
def test_damaged_checkpoint_is_passed_over(name, cut, run, capsys):
    path = run / "checkpoint-4" / name
    if cut is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: int(cut * path.stat().st_size)])
    assert resumed(run) == str(run / "checkpoint-2")
    assert "Skipped checkpoint-4: " in capsys.readouterr().out
    with pytest.raises(ValueError, match="no checkpoint is whole .checkpoint-4: "):
        resumed(run, str(run / "checkpoint-4"))
    shutil.rmtree(run / "checkpoint-2")
    with pytest.raises(ValueError, match="no checkpoint is whole .checkpoint-4: "):
        resumed(run)


def test_where_no_checkpoint_was_finished_a_training_starts_anew(run, capsys):
    for number in (2, 4):
        (run / f"checkpoint-{number}" / MANIFEST).unlink()
    assert resumed(run) is None and "starting anew" in capsys.readouterr().out
    with pytest.raises(ValueError, match="it was not finished"):
        resumed(run, str(run / "checkpoint-4"))


@pytest.mark.parametrize("report", ["report.json", "metrics.json"])
def test_finished_run_with_leftover_checkpoints_is_finished(report, run):
    for name in ("config.json", report):
        (run / name).write_text("{}")
    (run / "checkpoint-4" / "scheduler.pt").unlink()
    shutil.rmtree(run / "checkpoint-2")
    for given in ("true", None):
        with pytest.raises(ValueError, match="holds a finished model"):
            resumed(run, given)


def test_a_manifest_notices_changed_bytes(run):
    path = run / "checkpoint-4" / "optimizer.pt"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert find_damage(run / "checkpoint-4").startswith("optimizer.pt is ")


class Killed(OurTrainer):
    """Its process is killed in the middle of the second checkpoint."""

    def _save_scaler(self, output_dir):
        if self.state.global_step == 4:
            optimizer = Path(output_dir) / "optimizer.pt"
            optimizer.write_bytes(optimizer.read_bytes()[:1000])
            os.kill(os.getpid(), signal.SIGKILL)
        super()._save_scaler(output_dir)


def killed_manifest(checkpoint):
    if checkpoint.name == "checkpoint-4":
        os.kill(os.getpid(), signal.SIGKILL)
    write_manifest(checkpoint)


@pytest.mark.parametrize("place", ["optimizer", "manifest"])
def test_kill_while_saving_keeps_the_older_checkpoint(place, tmp_path):
    def train():
        trainer = make_trainer(tmp_path, Killed if place == "optimizer" else OurTrainer)
        checkpoint_mixin.write_manifest = (
            write_manifest if place == "optimizer" else killed_manifest
        )  # of this process
        trainer.args.save_total_limit = 1
        add_callbacks(trainer, common_callbacks())
        trainer.train()

    process = multiprocessing.get_context("fork").Process(target=train)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    checkpoint = resumed(tmp_path)
    assert checkpoint == str(tmp_path / "checkpoint-2")
    trainer = make_trainer(tmp_path)
    add_callbacks(trainer, common_callbacks())
    trainer.train(resume_from_checkpoint=checkpoint)
    assert trainer.state.global_step == 4 and find_damage(tmp_path / "checkpoint-4") is None


def test_the_command_refuses_before_anything_is_read(run, tmp_path, capsys):
    (run / "checkpoint-4" / "optimizer.pt").unlink()
    missing = str(tmp_path / "no such file*")  # a glob, which is looked for when the text is read
    for given, said in (
        (["--resume_from_checkpoint", str(run / "checkpoint-4")], "it holds the model alone"),
        (["--resume_from_checkpoint", str(run / "checkpoint-9")], "no checkpoint is whole"),
        ([], "holds an unfinished run; resume it with --resume_from_checkpoint true"),
    ):
        assert cli.main(["pretrain", "--data", missing, "--output_dir", str(run), *given]) == 2
        assert said in capsys.readouterr().err


def test_notebook_progress_table_is_removed(tmp_path, monkeypatch):
    """It shows the mean loss of batches, as the held-out one."""

    class Table(TrainerCallback):
        pass

    for place in ("transformers.trainer", "minibert.training.loop.callbacks"):
        monkeypatch.setattr(f"{place}.DEFAULT_PROGRESS_CALLBACK", Table)
    trainer = make_trainer(tmp_path, disable_tqdm=False)
    before = [type(callback) for callback in trainer.callback_handler.callbacks]
    add_callbacks(trainer, common_callbacks())
    assert Table in before and Table not in [
        type(callback) for callback in trainer.callback_handler.callbacks
    ]


def resumable(folder, **given):
    trainer = make_trainer(folder, **{"save_total_limit": None} | given)
    add_callbacks(trainer, common_callbacks())
    trainer.add_callback(ResumeGuardCallback({"a": 1}))
    return trainer


def test_other_intervals_take_effect_when_resumed(tmp_path):
    """Those of the checkpoint are in its trainer_state.json."""
    resumable(tmp_path, max_steps=2, save_steps=2, logging_steps=2).train()
    trainer = resumable(tmp_path, max_steps=8, save_steps=3, logging_steps=4)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    saved = sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("checkpoint-*"))
    assert saved == [2, 3, 6, 8]
    assert [log["step"] for log in trainer.state.log_history if "loss" in log] == [2, 4, 8]


def test_a_longer_training_has_the_rates_of_its_schedule(tmp_path):
    """From the first step after the checkpoint on."""
    rates = {}
    for name, resumed_from in (("unbroken", None), ("resumed", 4)):
        folder = tmp_path / name
        if resumed_from:
            resumable(folder, max_steps=4).train()
        trainer = resumable(folder, max_steps=8, logging_steps=1)
        checkpoint = str(folder / "checkpoint-4") if resumed_from else None
        trainer.train(resume_from_checkpoint=checkpoint)
        history = trainer.state.log_history
        rates[name] = [log["learning_rate"] for log in history if log["step"] > 4 and "loss" in log]
    assert rates["resumed"] == rates["unbroken"] and len(rates["resumed"]) == 4
