"""Trainings that are killed, stopped or run out of room, as processes of their own; and what goes on from there."""

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from helpers import sentences
from safetensors.torch import load_file
from transformers import TrainerControl, TrainingArguments

from minibert.training import cli
from minibert.training.data.collators import MaskedLMCollator
from minibert.training.loop.checkpoints import find_damage
from minibert.training.loop.signals import STOP_SECONDS, SaveAndStop
from minibert.training.pretraining.trainer import PretrainingTrainer

STEPS, EVERY = 9, 2
SETTINGS = dict(
    size="tiny", vocab_size=100, seq_length=32, max_steps=STEPS,
    config_overrides="num_hidden_layers=1,hidden_size=16,num_attention_heads=2,intermediate_size=24,hidden_dropout=0.1",
    per_device_train_batch_size=4, save_strategy="steps",
    save_steps=EVERY, eval_strategy="steps", eval_steps=3, disable_tqdm=True, bf16=False,
)  # fmt: skip
RUNS = {
    "rows": {},
    "stream": dict(streaming=True, shuffle_buffer=20),
    "by length": dict(train_sampling_strategy="group_by_length"),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(sentences(200)))
    return path


def command(corpus: Path, output: Path, **more) -> int:
    settings = dict(data=corpus, output_dir=output) | SETTINGS | more
    return cli.main(
        [
            "pretrain",
            *(text for name, value in settings.items() for text in (f"--{name}", str(value))),
        ]
    )


def in_a_process(function, *arguments) -> int:
    """Its exit status, negative if it was killed."""

    def call():
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        sys.exit(function(*arguments))

    process = multiprocessing.get_context("fork").Process(target=call)
    process.start()
    process.join(300)
    assert process.exitcode is not None
    return process.exitcode


def kill_after(seconds: float) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


def killed(corpus: Path, output: Path, more: dict, saving: bool, share: float) -> int:
    """Train and be killed: after a share of the training, or of the time that a checkpoint takes."""
    plain = PretrainingTrainer._save_checkpoint

    def train_begins(trainer, *arguments, **keywords):
        kill_after(share * SECONDS["training"])
        return train(trainer, *arguments, **keywords)

    def save(trainer, *arguments, **keywords):
        if trainer.state.global_step == EVERY * (1 + int(share * 1000) % 4):
            kill_after(share * SECONDS["saving"])
        return plain(trainer, *arguments, **keywords)

    train = PretrainingTrainer.train
    if saving:
        PretrainingTrainer._save_checkpoint = save
    else:
        PretrainingTrainer.train = train_begins
    return command(corpus, output, resume_from_checkpoint="true", **more)


SECONDS = {"training": 0.0, "saving": 0.0}


@pytest.fixture(scope="module")
def whole(request, corpus, tmp_path_factory):
    """A training that nothing happens to, and how long it takes."""
    output, monkeypatch = tmp_path_factory.mktemp("runs") / "whole", pytest.MonkeyPatch()
    for name, key in (("train", "training"), ("_save_checkpoint", "saving")):
        plain = getattr(PretrainingTrainer, name)

        def timed(trainer, *arguments, plain=plain, key=key, **keywords):
            start = time.perf_counter()
            try:
                return plain(trainer, *arguments, **keywords)
            finally:
                SECONDS[key] = time.perf_counter() - start

        monkeypatch.setattr(PretrainingTrainer, name, timed)
    more = RUNS[request.param]
    assert command(corpus, output, **more) == 0
    monkeypatch.undo()
    return output, more


def check_same(output: Path, whole: Path) -> None:
    found, expected = (load_file(folder / "model.safetensors") for folder in (output, whole))
    assert found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


KILLS = [
    pytest.param(name, n % 2 == 0, n, marks=[pytest.mark.slow] * (n > 0 or name != "rows"))
    for name in RUNS
    for n in range(2 if name == "by length" else 10)
]


@pytest.mark.parametrize("whole, saving, number", KILLS, indirect=["whole"])
def test_a_killed_training_goes_on_bit_for_bit(saving, number, whole, corpus, tmp_path):
    output, (folder, more) = tmp_path / "run", whole
    share = random.Random(f"{saving} {number} {more}").random()
    status = in_a_process(killed, corpus, output, more, saving, share)
    assert status in (0, -signal.SIGKILL)  # 0: it was faster than the kill
    if status:
        assert command(corpus, output, resume_from_checkpoint="true", **more) == 0
    check_same(output, folder)


@pytest.mark.parametrize("whole", ["rows"], indirect=True)
def test_a_training_killed_in_its_first_checkpoint_starts_anew(whole, corpus, tmp_path):
    output, (folder, _) = tmp_path / "run", whole
    (output / f"checkpoint-{EVERY}").mkdir(parents=True)
    (output / f"checkpoint-{EVERY}" / "model.safetensors").write_bytes(b"a part")
    assert command(corpus, output, resume_from_checkpoint="true") == 0
    check_same(output, folder)


@pytest.mark.parametrize(
    "whole", ["rows", pytest.param("stream", marks=pytest.mark.slow)], indirect=True
)
def test_resuming_a_finished_training_makes_no_step(whole, corpus, tmp_path):
    """As where it was killed between its last checkpoint and its end."""
    output, (folder, more) = tmp_path / "run", whole
    shutil.copytree(folder / f"checkpoint-{STEPS}", output / f"checkpoint-{STEPS}")
    assert command(corpus, output, resume_from_checkpoint="true", **more) == 0
    check_same(output, folder)
    reports = [json.loads((each / "report.json").read_text()) for each in (output, folder)]
    assert all(report["steps"] == STEPS for report in reports)
    assert reports[0]["validation_loss"] == reports[1]["validation_loss"]
    assert [report["training_seconds"] is None for report in reports] == [
        True,
        False,
    ]  # the rest of it is not known


def stopped(
    corpus: Path, output: Path, more: dict, method: str, steps: int, number: int = signal.SIGTERM
) -> int:
    """A signal in a method of the trainer, behind so many steps."""
    plain = getattr(PretrainingTrainer, method)

    def called(trainer, *arguments, **keywords):
        if trainer.state.global_step == steps:
            os.kill(os.getpid(), number)
        return plain(trainer, *arguments, **keywords)

    setattr(PretrainingTrainer, method, called)
    return command(corpus, output, **more, resume_from_checkpoint="true")


@pytest.mark.parametrize(
    "whole", ["rows", pytest.param("stream", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize(
    ("method", "steps", "saved", "given"),
    [
        ("training_step", 5, 6, dict(save_strategy="no")),  # a step that is due for an evaluation
        pytest.param(
            "evaluate", STEPS, STEPS, dict(save_strategy="no"), marks=pytest.mark.slow
        ),  # the last one
        pytest.param(
            "evaluate", 6, 6, dict(save_steps=6, save_only_model=True), marks=pytest.mark.slow
        ),
        ("save_model", 6, 7, dict(save_steps=6, save_only_model=True)),
    ],
)
def test_sigterm_saves_and_stops(whole, corpus, tmp_path, method, steps, saved, given):
    """Also where nothing was to be saved, or nothing but the model; a finished training leaves signals as they were."""
    output, (folder, more) = tmp_path / "run", whole
    before = signal.getsignal(signal.SIGTERM)
    assert (
        in_a_process(stopped, corpus, output, more | given, method, steps) == 128 + signal.SIGTERM
    )
    assert find_damage(output / f"checkpoint-{saved}") is None
    history = json.loads((output / f"checkpoint-{saved}" / "trainer_state.json").read_text())[
        "log_history"
    ]
    due = [step for step in range(1, saved + 1) if step % SETTINGS["eval_steps"] == 0]
    assert [entry["step"] for entry in history if "eval_loss" in entry] == due
    assert not (output / "model.safetensors").exists()
    assert command(corpus, output, resume_from_checkpoint="true", **more) == 0
    check_same(output, folder)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    reason="the shell has this process ignore SIGINT",
)
def test_ctrl_c_saves_and_stops(corpus, tmp_path):
    output = tmp_path / "run"
    status = in_a_process(
        stopped, corpus, output, dict(save_strategy="no"), "training_step", 4, signal.SIGINT
    )
    assert status == 128 + signal.SIGINT
    assert (
        find_damage(output / "checkpoint-5") is None and not (output / "model.safetensors").exists()
    )


@pytest.mark.parametrize(
    "whole", ["rows", pytest.param("stream", marks=pytest.mark.slow)], indirect=True
)
def test_unreadable_row_saves_a_checkpoint_first(whole, corpus, tmp_path, monkeypatch, capsys):
    """Whatever the error is, and then the training goes on as if nothing had happened."""
    output, (folder, more) = tmp_path / "run", whole
    plain = MaskedLMCollator.torch_call

    def read(collator, examples):
        if (
            collator.num_batches == 5
            and collator.last_mlm_probability is None
            and collator.seed == 42
        ):
            raise TypeError("text.jsonl, line 7: a number where text was")
        return plain(collator, examples)

    with monkeypatch.context() as patch:
        patch.setattr(MaskedLMCollator, "torch_call", read)
        assert command(corpus, output, save_strategy="no", **more) == 2
    said = capsys.readouterr().err
    assert "text.jsonl, line 7: a number where text was (step 4 is saved" in said
    assert "--resume_from_checkpoint true" in said and find_damage(output / "checkpoint-4") is None
    assert not (output / "checkpoint-4" / "training_args.bin").exists()
    assert command(corpus, output, resume_from_checkpoint="true", **more) == 0
    check_same(output, folder)


@pytest.mark.parametrize("precision", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_training_that_diverges_stops_at_the_step_at_which_it_began(
    precision, corpus, tmp_path, monkeypatch, capsys
):
    output, plain = tmp_path / "run", PretrainingTrainer.training_step

    def diverges(trainer, model, inputs, *arguments, **keywords):
        if trainer.state.global_step == 3:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))
        return plain(trainer, model, inputs, *arguments, **keywords)

    monkeypatch.setattr(PretrainingTrainer, "training_step", diverges)
    assert command(corpus, output, bf16=precision) == 2
    said = capsys.readouterr().err
    assert "step 4: the weights are no longer finite" in said and "--learning_rate" in said
    assert {path.name for path in output.glob("checkpoint-*")} == {"checkpoint-2"}
    assert not (output / "report.json").exists() and not (output / "model.safetensors").exists()


def test_a_signal_ends_one_training():
    """In a notebook, the next one begins in the same process, and saves as the settings say."""
    callback = SaveAndStop()
    args = TrainingArguments("out", save_only_model=True, save_strategy="best", use_cpu=True)
    callback.on_train_begin(args, None, None)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        callback.on_evaluate(args, None, TrainerControl())
        assert callback.is_stopping()
        assert not args.save_only_model and args.save_strategy == "steps"
        callback.end_training(args)
        assert args.save_only_model and args.save_strategy == "best"
        callback.on_train_begin(args, None, None)
        assert not callback.is_stopping()
    finally:
        callback.restore()


def test_a_training_that_begins_again_with_smaller_batches_keeps_the_signal():
    """`auto_find_batch_size` calls `on_train_begin` again after an error for want of memory."""
    callback = SaveAndStop()
    args = TrainingArguments("out", use_cpu=True)
    handler = signal.getsignal(signal.SIGTERM)
    callback.on_train_begin(args, None, None)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        callback.on_train_begin(args, None, None)
        assert callback.is_stopping()
    finally:
        callback.end_training(args)
    assert signal.getsignal(signal.SIGTERM) == handler
    assert not callback.is_stopping()


def test_a_second_sigterm_ends_at_once():
    called, callback = [], SaveAndStop()
    before = signal.signal(signal.SIGTERM, lambda *_: called.append("before"))
    try:
        callback.on_train_begin(None, None, None)
        os.kill(os.getpid(), signal.SIGTERM)
        assert callback.received and not called
        os.kill(
            os.getpid(), signal.SIGTERM
        )  # of the same stop: from the launcher and the system, say
        assert not called
        callback.received_at -= STOP_SECONDS
        os.kill(os.getpid(), signal.SIGTERM)
        assert called == ["before"]
    finally:
        callback.restore()
        signal.signal(signal.SIGTERM, before)


def test_sigterm_handler_is_restored_after_an_exception(corpus, tmp_path, monkeypatch):
    def fails(*arguments, **keywords):
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(PretrainingTrainer, "training_step", fails)
    assert command(corpus, tmp_path / "run") == 128 + signal.SIGINT
    assert signal.getsignal(signal.SIGTERM) is before


def full(corpus: Path, output: Path, said: Path, name: str) -> int:
    """From the second checkpoint on, no file can be longer than 1000 bytes, as where a disk is full."""
    plain = getattr(PretrainingTrainer, name)

    def save(trainer, *arguments, **keywords):
        if trainer.state.global_step > EVERY:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        return plain(trainer, *arguments, **keywords)

    setattr(PretrainingTrainer, name, save)
    sys.stderr = said.open("w")
    return command(corpus, output, resume_from_checkpoint="true")


@pytest.mark.parametrize(
    "name",
    [
        "_save_optimizer_and_scheduler",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("save_model", "_save_rng_state")),
    ],
)
def test_a_full_disk_loses_no_earlier_checkpoint(name, corpus, tmp_path, capsys):
    output, said = tmp_path / "run", tmp_path / "said"
    assert in_a_process(full, corpus, output, said, name) == 2
    lines = [line for line in said.read_text().splitlines() if line.startswith("minibert: error:")]
    assert len(lines) == 1 and "checkpoint-4" in lines[0] and "Traceback" not in said.read_text()
    assert (
        find_damage(output / "checkpoint-2") is None
        and find_damage(output / "checkpoint-4") is not None
    )
    capsys.readouterr()
    assert command(corpus, output, resume_from_checkpoint="true") == 0
    assert "Skipped checkpoint-4" in capsys.readouterr().out
