"""`minibert pretrain` and `minibert fill` from end to end, on a small made-up language."""

import dataclasses
import json
import os
import random
import re
import shutil
import threading
from types import SimpleNamespace

import datasets
import pytest
import torch
from helpers import CODE, animal_sentences, undocumented_fields
from safetensors.torch import load_file
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
)

import minibert
from minibert import MiniBertConfig, PretrainingConfig, PretrainingTrainer
from minibert.training import cli
from minibert.training.common import precision
from minibert.training.data.collators import MaskedLMCollator
from minibert.training.pretraining.objectives.base import token_sums, unigram_baseline
from minibert.training.pretraining.pretrain import report_and_return

SMALL = [
    "--config_overrides",
    "num_hidden_layers=2,hidden_size=64,num_attention_heads=4,intermediate_size=96",
]
QUICK = ["--model", "modernbert", "--size", "tiny", "--vocab_size", "150", "--seq_length", "64",
         "--per_device_train_batch_size", "16", "--disable_tqdm", "true", "--bf16", "false", *SMALL]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "animals.txt"
    path.write_text("\n\n".join(animal_sentences(600)))
    return path


def pretrain(data, output, *arguments) -> int:
    return cli.main(
        ["pretrain", "--data", str(data), "--output_dir", str(output), *QUICK, *arguments]
    )


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "animals"
    assert (
        pretrain(
            corpus, output, "--max_steps", "3", "--logging_steps", "1", "--eval_strategy", "no"
        )
        == 0
    )
    return output


def test_saved_files(run):
    report = json.loads((run / "report.json").read_text())
    assert (run / "loss.png").stat().st_size > 5000
    card = (run / "README.md").read_text()
    assert f"| perplexity | held-out documents | {report['perplexity']:.1f}" in card
    assert "pipeline_tag: fill-mask" in card
    # the snippet reads a sentence of the held-out text, and its output is shown
    assert "The sentence is held-out text; the masked word is" in card
    text = re.search(r'^text = "(.*\[MASK\].*)"$', card, re.MULTILINE)[1]
    guesses = pipeline("fill-mask", str(run))(text, top_k=3)
    shown = [f"{guess['score']:.3f} {guess['token_str']}" for guess in guesses]
    assert "```text\n" + "\n".join(shown) + "\n```" in card
    names = {path.name for path in run.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", *CODE} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    model = AutoModelForMaskedLM.from_pretrained(run)
    assert model.num_parameters() == report["parameters"]
    assert AutoModelForSequenceClassification.from_pretrained(run, num_labels=3).num_labels == 3


@pytest.mark.slow
def test_it_learns_the_language(corpus, tmp_path, capsys):
    given = [
        "--num_train_epochs",
        "18",
        "--optimizer",
        "adamw",
        "--learning_rate",
        "3e-3",
        "--eval_strategy",
        "no",
        "--embedding_init",
        "random",
    ]
    assert (
        pretrain(corpus, tmp_path / "run", *given, "--config_overrides", "num_hidden_layers=2") == 0
    )
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["validation_loss"] < 0.7 * report["unigram_loss"]
    assert report["accuracy"] > report["unigram_accuracy"] + 0.2
    text = "the red cat number 7 [MASK] near the old roof"
    capsys.readouterr()
    assert cli.main(["fill", text, "--model", str(tmp_path / "run"), "--top_k", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == text and lines[1].split()[-1] == "sleeps"


def test_python_gets_what_the_command_saves(corpus, tmp_path):
    sizes = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96)
    args = minibert.PretrainingConfig(tmp_path / "run", max_steps=1, vocab_size=150, seq_length=64, disable_tqdm=True,
                                      per_device_train_batch_size=16, bf16=True)  # fmt: skip
    result = minibert.pretrain(
        corpus, model="modernbert", size="tiny", config_overrides=sizes, args=args
    )
    assert result.report == json.loads((tmp_path / "run" / "report.json").read_text())
    assert undocumented_fields(result.report) == set()
    assert (
        result.output_dir == tmp_path / "run"
        and len(result.tokenizer) <= result.model.config.vocab_size
    )
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert all(
        torch.equal(tensor, saved[name])
        for name, tensor in result.model.state_dict().items()
        if name in saved
    )
    ids = torch.arange(5, 14)[None]
    opened = minibert.MiniBertForMaskedLM.from_pretrained(tmp_path / "run")
    torch.testing.assert_close(
        result.model.eval()(ids).logits, opened(ids).logits
    )  # no autocast is left on it


def test_other_processes_return_the_folder_too(tmp_path):
    trainer = SimpleNamespace(
        args=SimpleNamespace(output_dir=str(tmp_path)),
        tokenizer_to_save=lambda: "its tokenizer",
        is_world_process_zero=lambda: False,
    )
    result = report_and_return(trainer)
    assert result.model is None and result.report == {}
    assert result.tokenizer == "its tokenizer" and result.output_dir == tmp_path


def test_validation_loss_is_the_mean_over_masked_positions():
    logits = torch.randn(5, 11, dtype=torch.float64)
    labels = torch.tensor([[3, -100, 4], [-100, 0, 10], [7, -100, -100]])
    sums = {name: value.item() for name, value in token_sums(logits, labels).items()}
    expected = [3, 4, 0, 10, 7]
    log_probabilities = logits - logits.exp().sum(-1, keepdim=True).log()
    assert sums["loss"] == pytest.approx(
        -sum(log_probabilities[i, k].item() for i, k in enumerate(expected)), rel=1e-5
    )
    assert sums["right"] == sum(logits[i].argmax().item() == k for i, k in enumerate(expected))
    assert sums["targets"] == 5


def test_metrics_without_targets_are_none(corpus, tmp_path, monkeypatch, capsys):
    """No held-out position is masked: neither a loss of 0 nor a perplexity of 1, nowhere."""
    nothing = MaskedLMCollator.for_evaluation
    forced = dict(at_least_one_target=False)
    monkeypatch.setattr(
        MaskedLMCollator, "for_evaluation", lambda x: nothing(dataclasses.replace(x, **forced), 0.0)
    )
    assert pretrain(corpus, tmp_path / "run", "--max_steps", "1") == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["targets"] == 0
    assert {
        report[name] for name in ("validation_loss", "perplexity", "accuracy", "unigram_loss")
    } == {None}
    assert "there is no score" in capsys.readouterr().out
    card = (tmp_path / "run" / "README.md").read_text()
    assert "perplexity" not in card and "model-index" not in card
    history = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    assert not [entry for entry in history if {"eval_loss", "eval_mlm_loss"} & {*entry}]


def test_unigram_baseline_is_the_entropy_of_the_counts():
    train = datasets.Dataset.from_dict({"input_ids": [[5, 5, 5, 6]]})
    batches = [{"labels": torch.tensor([[5, -100, 6]])}]
    loss, accuracy = unigram_baseline(train, batches, 8)
    expected = (
        -(torch.tensor(4 / 12).log() + torch.tensor(2 / 12).log()) / 2
    )  # add one to each of 8 counts
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    assert accuracy == 0.5
    # special tokens that are never targets do not count
    train = datasets.Dataset.from_dict({"input_ids": [[2, 5, 5, 5, 6, 3]]})
    assert unigram_baseline(train, batches, 8, special_ids=[0, 1, 2, 3]) == (loss, accuracy)
    assert unigram_baseline(train, batches, 8)[0] > loss


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seq_length", "9000"], "seq_length: 9000 is beyond max_position_embeddings=8192"),
        (["--config_overrides", "norm_tipe=rmsnorm"], "norm_type"),
        (["--config_overrides", "num_attention_heads=7"], "num_attention_heads=7"),
        (["--config_overrides", "vocab_size=90"], "the tokenizer decides vocab_size"),
        (["--config_overrides", "pad_token_id=7"], "the tokenizer decides pad_token_id"),
    ],
)
def test_bad_input_is_refused_before_any_work(arguments, said, tmp_path, capsys):
    output = tmp_path / "run"
    assert cli.main(["pretrain", "--output_dir", str(output), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
    assert not output.exists()


def test_a_finished_run_is_never_overwritten(run, corpus, capsys):
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert pretrain(corpus, run) == 2
    assert "holds a finished model" in capsys.readouterr().err
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before


@pytest.mark.slow
def test_the_report_is_that_of_the_best_model_where_that_is_kept(corpus, tmp_path):
    output = tmp_path / "run"
    assert pretrain(corpus, output, "--max_steps", "12", "--eval_strategy", "steps", "--eval_steps", "3",
                    "--save_strategy", "steps", "--save_steps", "3", "--learning_rate", "0.3", "--lr_scheduler_type",
                    "constant_with_warmup", "--warmup_steps", "12", "--optimizer", "adamw",
                    "--load_best_model_at_end", "true") == 0  # fmt: skip
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    losses = {
        entry["step"]: entry["eval_mlm_loss"] for entry in history if "eval_mlm_loss" in entry
    }
    assert min(losses.values()) < losses[12]
    assert json.loads((output / "report.json").read_text())["validation_loss"] == min(
        losses.values()
    )


def test_examples_fit_into_a_model_with_few_positions(tmp_path, capsys):
    """Text without spaces, whose tokens are split where a letter is masked; positions that are learned end."""
    draw = random.Random(0)
    texts = (
        "".join(draw.choices("今日は良い天気ですから公園を散歩しました東京都大阪府", k=40))
        for _ in range(60)
    )
    (tmp_path / "text.txt").write_text("\n".join(texts))
    given = [
        "--model",
        "bert",
        "--algorithm",
        "bpe",
        "--vocab_size",
        "600",
        "--seq_length",
        "16",
        "--max_steps",
        "1",
    ]
    given += [
        "--config_overrides",
        f"{SMALL[1]},max_position_embeddings=16",
        "--eval_strategy",
        "no",
    ]
    assert pretrain(tmp_path / "text.txt", tmp_path / "run", *given) == 0
    assert "Held-out text" in capsys.readouterr().out


def test_fill_refuses_what_it_cannot_fill(run, tmp_path, capsys):
    for head, fields in (("SequenceClassification", {}), ("CausalLM", {"is_causal": True})):
        shutil.copytree(run, tmp_path / head, ignore=shutil.ignore_patterns("*.png"))
        model_class = getattr(minibert, f"MiniBertFor{head}")
        model_class.from_pretrained(run, **fields).save_pretrained(tmp_path / head)
    for arguments, said in (
        (
            ["a [MASK]", "--model", str(tmp_path / "SequenceClassification")],
            "no head that predicts masked tokens",
        ),
        (
            ["a [MASK]", "--model", str(tmp_path / "CausalLM")],
            "masked tokens (MiniBertForCausalLM)",
        ),
        (["no mask here", "--model", str(run)], "has no [MASK]"),
        ([], "missing TEXT"),
        (["a [MASK]", "--model", str(tmp_path)], "config.json"),
    ):
        assert cli.main(["fill", *arguments]) == 2
        assert said in capsys.readouterr().err


def break_off(tokenizer, folder, **_):
    """As `tokenizers` does on a full disk."""
    (folder / "tokenizer.json").write_text("{")
    raise Exception("No space left on device (os error 28)")


def test_tokenizer_command(corpus, tmp_path, capsys):
    output = str(tmp_path / "tokenizer")
    command = [
        "tokenizer",
        "--data",
        str(corpus),
        "--algorithm",
        "bpe",
        "--vocab_size",
        "300",
        "--output_dir",
        output,
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreTrainedTokenizerFast, "save_pretrained", break_off)
        assert cli.main(command) == 2
    assert (
        "No space left on device" in capsys.readouterr().err
        and not (tmp_path / "tokenizer").exists()
    )
    assert cli.main(command) == 0
    assert "300 tokens" in capsys.readouterr().out
    assert cli.main(command) == 2
    assert "holds a tokenizer" in capsys.readouterr().err
    assert (
        cli.main([*command[:-1], str(corpus)]) == 2
    )  # `save_pretrained` would say nothing, and save nothing
    assert "is a file; give a folder, existing or new" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "fast"), [({"avx512f", "amx_bf16"}, True), ({"avx512f"}, False), (set(), False)]
)
def test_bf16_follows_the_processor(flags, fast, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(precision, "_processor_flags", lambda: flags)
    assert precision.fast_bf16()[0] is fast


@pytest.mark.parametrize(("capability", "fast"), [((9, 0), True), ((8, 0), True), ((7, 5), False)])
def test_bf16_follows_the_gpu(capability, fast, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert precision.fast_bf16()[0] is fast
    monkeypatch.setattr(precision, "_processor_flags", lambda: set())
    assert not precision.fast_bf16("cpu")[0]  # --use_cpu


def test_resume_with_other_settings_is_refused(corpus, tmp_path):
    """Also where the weights would fit: presets differ in their windows alone, another text gives another tokenizer of
    the same size, and other batches have other rows."""
    text = corpus.read_text().split("\n\n")[:60]

    def make(name, text=text, preset="modernbert", **given):
        fixed = dict(max_steps=2, save_strategy="steps", save_steps=1, eval_strategy="no", embedding_init="random",
                     vocab_size=120, seq_length=64, disable_tqdm=True, bf16=False)  # fmt: skip
        sizes = dict(
            num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=24
        )
        args = PretrainingConfig(str(tmp_path / name), **fixed | given)
        rows = datasets.Dataset.from_dict({"text": text})
        return PretrainingTrainer(
            getattr(MiniBertConfig, preset)("tiny", **sizes), args, train_dataset=rows
        )

    make("whole").train()
    checkpoint = str(tmp_path / "whole" / "checkpoint-2")
    for changed, named in (
        (dict(preset="minibert"), "local_attention: "),
        (dict(text=[line.replace("cat", "cow") for line in text]), "tokenizer: "),
        (dict(text=text[::-1]), "text: "),  # as many, the same tokenizer
        (dict(seed=7), "seed: 7"),
        (dict(max_grad_norm=2.0), "max_grad_norm: 2.0"),
        (dict(label_smoothing_factor=0.1), "label_smoothing_factor: 0.1"),
        (dict(muon_learning_rate=9e-9), "muon_learning_rate: 9e-09"),
        (dict(per_device_train_batch_size=8), "per_device_train_batch_size"),
        (dict(max_steps=-1, minutes=1), "by the clock: True"),
    ):
        with pytest.raises(ValueError, match=f"{named}.* was trained with"):
            make("other", **changed).resume_guard.check(checkpoint)
    make("same", per_device_train_batch_size=2, gradient_accumulation_steps=2).resume_guard.check(
        checkpoint
    )

    # An older version did not save this setting.
    state_file = tmp_path / "whole" / "checkpoint-2" / "trainer_state.json"
    state = json.loads(state_file.read_text())
    del state["stateful_callbacks"]["ResumeGuardCallback"]["args"]["settings"]["max_grad_norm"]
    state_file.write_text(json.dumps(state))
    make("older", max_grad_norm=2.0).resume_guard.check(checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "halves"),
    [
        ({}, True),
        ({"gradient_accumulation_steps": 3}, True),
        (
            {"config_overrides": {"attention_dropout": 0.1}},
            False,
        ),  # whose draws threads would take in turns by chance
        ({"objective": "rtd"}, False),  # two models that share weights
    ],
)
def test_half_batches_give_the_same_training(given, halves, corpus, tmp_path, monkeypatch):
    """The same training as by all cores on whole batches, and the same bits in every run, also of one that is resumed;
    where it does not pay or could be another each time, all cores compute all."""
    cores, forward, calls = torch.get_num_threads(), minibert.MiniBertModel.forward, []

    def watched(self, input_ids, *inputs, **named):
        if self.training:
            calls.append((threading.current_thread(), torch.get_num_threads(), input_ids.numel()))
        return forward(self, input_ids, *inputs, **named)

    def train(threads, name, **more):
        torch.set_num_threads(threads)
        calls.clear()
        fixed = dict(
            size="tiny", vocab_size=150, seq_length=64, max_steps=4, logging_steps=1, bf16=False
        )
        fixed |= dict(data=str(corpus), model="modernbert", eval_strategy="no", save_total_limit=9)
        fixed |= dict(save_strategy="steps", save_steps=2)
        run = minibert.pretrain(**fixed | given | more, output_dir=tmp_path / name)
        assert torch.get_num_threads() == threads
        logs = json.loads((tmp_path / name / "trainer_state.json").read_text())["log_history"]
        return [log["loss"] for log in logs if "loss" in log], run.model.state_dict(), list(calls)

    monkeypatch.setattr(minibert.MiniBertModel, "forward", watched)
    try:
        losses, _, whole = train(1, "one")
        found, same, made = train(4, "four")
        again = train(4, "again", resume_from_checkpoint=str(tmp_path / "four" / "checkpoint-2"))[1]
    finally:
        torch.set_num_threads(cores)
    assert len(losses) == 4 and found == pytest.approx(losses, abs=2e-3)
    assert all(torch.equal(same[name], again[name]) for name in same)
    if not halves:
        assert len(made) == len(whole) and {each[:2] for each in made} == {
            (threading.main_thread(), 4)
        }
        return
    assert len(made) == 2 * len(whole) and len({thread for thread, *_ in made}) == 2
    assert {threads for _, threads, _ in made} == {2}
    assert sum(tokens for *_, tokens in made) == sum(tokens for *_, tokens in whole)
    assert max(tokens for *_, tokens in made) < 0.67 * max(tokens for *_, tokens in whole)


@pytest.mark.parametrize(
    ("bf16", "given", "kept"), [(True, None, "256"), (True, "77", "77"), (False, None, None)]
)
def test_kernel_cache_capacity_in_bf16(bf16, given, kept, monkeypatch, tmp_path):
    """Unless the environment says how many; nothing is said where there are none."""
    for name in precision.KERNEL_CACHES:
        monkeypatch.setenv(name, given or "")
        if given is None:
            monkeypatch.delenv(name)
    precision.resolve_precision(TrainingArguments(str(tmp_path), bf16=bf16, use_cpu=True))
    assert [os.environ.get(name) for name in precision.KERNEL_CACHES] == [kept, kept]


@pytest.mark.parametrize("fails", ["init_hf_repo", "upload"])
def test_a_push_that_fails_is_told_in_a_line(fails, corpus, tmp_path, monkeypatch, capsys):
    """Whatever the error of a dead line is; at the end, the model is saved."""

    def fail(*_, **__):
        raise RuntimeError("the line is dead")

    monkeypatch.setattr(
        Trainer, "init_hf_repo", lambda self, **_: setattr(self, "hub_model_id", "me/x")
    )
    monkeypatch.setattr("minibert.training.hub.push.get_token", lambda: "hf_some")
    place = (
        (Trainer, fails)
        if fails == "init_hf_repo"
        else ("minibert.training.hub.upload_mixin.upload",)
    )
    monkeypatch.setattr(*place, fail)
    given = [
        "--max_steps",
        "1",
        "--push_to_hub",
        "true",
        "--save_strategy",
        "no",
        "--hub_model_id",
        "me/x",
    ]
    assert pretrain(corpus, tmp_path / "run", *given) == 2
    assert capsys.readouterr().err.startswith("minibert: error: the Hub: the line is dead")
    assert (tmp_path / "run" / "model.safetensors").exists() == (fails == "upload")
