"""`PretrainingTrainer` as one uses a `Trainer`: from text, tokens or packed rows, with every objective, as a stream."""

import contextlib
import copy
import functools
import itertools
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import datasets
import pytest
import torch
from helpers import sentences
from safetensors.torch import load_file
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

import minibert
from minibert import (
    Corpus,
    MaskedLMCollator,
    MiniBertConfig,
    MiniBertForMaskedLM,
    PretrainingConfig,
    PretrainingTrainer,
    train_tokenizer,
)
from minibert.training.cli.recipes import read_recipe
from minibert.training.common.locks import LOCK
from minibert.training.data.masking_progress import MaskingProgress
from minibert.training.data.packing import pack_documents
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.loop.checkpoints import write_manifest
from minibert.training.loop.divergence import DivergenceCallback
from minibert.training.optimization.muon import muon_optimizer
from minibert.training.pretraining import training_data
from minibert.training.pretraining.config import fill_defaults
from minibert.training.pretraining.loss_terms import LossTermsMixin
from minibert.training.pretraining.sizes import LongTrainingCallback, smaller_sizes

SIZES = dict(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=24)
HEADS = {
    "mlm": "MaskedLM",
    "mlm+nsp": "PreTraining",
    "mlm+sop": "PreTraining",
    "rtd": "ReplacedTokenDetection",
    "clm": "CausalLM",
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """As `load_dataset("text", …)` gives it: a line a row, some of them blank."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(
        "\n".join(f"{a}. {b}.\n" for a, b in zip(sentences(150), sentences(150, seed=1)))
    )
    cache = str(path.parent / "cache")
    return datasets.load_dataset("text", data_files=str(path), split="train", cache_dir=cache)


@pytest.fixture(scope="module")
def tokenizer(text):
    return train_tokenizer(text["text"], vocab_size=100)


def settings(folder, **fields):
    defaults = dict(
        max_steps=3,
        seq_length=32,
        vocab_size=100,
        disable_tqdm=True,
        bf16=False,
        save_strategy="no",
    )
    return PretrainingConfig(str(folder), **defaults | dict(eval_strategy="no") | fields)


def config(preset="minibert", **fields):
    return getattr(MiniBertConfig, preset)("tiny", **SIZES | fields)


def test_ten_lines_train_evaluate_and_save(text, tmp_path):
    trainer = PretrainingTrainer(
        model=MiniBertConfig.minibert("tiny", num_hidden_layers=1),
        args=PretrainingConfig(tmp_path / "mine", num_train_epochs=2, validation_size=0.05),
        train_dataset=text,
    )
    trainer.train()
    (tmp_path / "other").write_text("theirs")
    for name in ("trainer_state.json", "loss.png"):
        (tmp_path / "mine" / name).symlink_to(tmp_path / "other")
    trainer.save_model()
    assert (tmp_path / "other").read_text() == "theirs"  # no link is written through
    assert not (tmp_path / "mine" / "loss.png").is_symlink()
    folder = tmp_path / "mine"
    report = json.loads((folder / "report.json").read_text())
    assert {"validation_loss", "perplexity", "accuracy", "unigram_loss"} <= {*report} and report[
        "epochs"
    ] == 2
    assert report["steps"] == trainer.state.global_step and trainer.report == report
    assert "pipeline_tag: fill-mask" in (folder / "README.md").read_text()
    model, tokenizer = (
        AutoModelForMaskedLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    assert model.num_parameters() == report["parameters"] and tokenizer.mask_token_id is not None
    held_out, rest = set(trainer.eval_dataset["input_ids"][0]), len(trainer.train_dataset)
    assert held_out and rest > len(trainer.eval_dataset)
    with pytest.raises(ValueError, match="holds a finished model"):  # which nothing overwrites
        PretrainingTrainer(config(), settings(folder), train_dataset=text).train()


def test_training_locks_its_folder(text, tmp_path):
    """Without the command too: of two processes one would overwrite the checkpoints of the other."""
    lock, seen = tmp_path / "run" / LOCK, []

    class Look(TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            seen.append(lock.exists())

    args = settings(tmp_path / "run", max_steps=1)
    trainer = PretrainingTrainer(config(), args, train_dataset=text, callbacks=[Look()])
    trainer.train()
    assert seen == [True] and not lock.exists()
    trainer.write_model = lambda folder: seen.append(lock.exists())
    trainer.save_model(_internal_call=True)  # as a push does
    assert seen == [True, True] and not lock.exists()


def rows_of(kind, text, tokenizer):
    tokens = tokenize_documents(text, tokenizer)
    return {"text": text, "tokens": tokens, "packed": pack_documents(tokens, tokenizer, 32)}[kind]


@pytest.mark.parametrize("kind", ["tokens", "packed"])
def test_text_tokens_and_packed_rows_give_the_same_training(kind, text, tokenizer, tmp_path):
    losses = []
    for name in ("text", kind):
        rows = rows_of(name, text, tokenizer)
        args = settings(tmp_path / str(len(losses)), logging_steps=1)
        trainer = PretrainingTrainer(config(), args, None, rows, rows, tokenizer)
        trainer.train()
        losses.append([log["loss"] for log in trainer.state.log_history if "loss" in log])
    assert losses[0] == losses[1] and len(losses[0]) == 3


def test_frames_and_dictionaries_are_data_sets(text, tokenizer, tmp_path):
    frame = text.to_pandas()
    trainer = PretrainingTrainer(
        config(), settings(tmp_path), None, frame, text.to_list(), tokenizer
    )
    same = PretrainingTrainer(config(), settings(tmp_path), None, text, text, tokenizer)
    assert trainer.train_dataset[:] == same.train_dataset[:]
    assert trainer.eval_dataset[:] == same.eval_dataset[:]


def test_the_tokenizer_of_the_caller_stays(text, tokenizer, tmp_path):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length = 7
    trainer = PretrainingTrainer(
        config(), settings(tmp_path), train_dataset=text, processing_class=tokenizer
    )
    assert trainer.processing_class.model_max_length == config().max_position_embeddings
    assert tokenizer.model_max_length == 7


@pytest.mark.parametrize("kind", ["tokens", "packed"])
def test_rows_of_tokens_are_held_out_too(kind, text, tokenizer, tmp_path):
    rows = rows_of(kind, text, tokenizer)
    args = settings(tmp_path, validation_size=0.2, packing="padded")
    trainer = PretrainingTrainer(config(), args, train_dataset=rows, processing_class=tokenizer)
    assert len(trainer.eval_dataset) == pytest.approx(
        0.2 * len(rows), abs=len(rows) // 2 if kind == "tokens" else 1
    )
    with pytest.raises(ValueError, match="need the tokenizer that made them"):
        PretrainingTrainer(config(), args, train_dataset=rows)


@pytest.mark.parametrize("objective", HEADS)
def test_every_objective(objective, text, tmp_path):
    """From a config, and then from what was saved, by its name."""
    preset = "bert" if objective.startswith("mlm+") else "modernbert"
    args, rows = settings(tmp_path / "first", objective=objective), text.filter(has_text)
    args.per_device_eval_batch_size = 2  # batches of unequal numbers of targets
    trainer = PretrainingTrainer(config(preset), args, train_dataset=rows)
    trainer.train()
    trainer.save_model()
    saved = trainer.model.config
    assert (
        saved.architectures == [f"MiniBertFor{HEADS[objective]}"]
        and trainer.report["validation_loss"] > 0
    )
    files = {path: path.read_bytes() for path in (tmp_path / "first").rglob("*.safetensors")}
    metrics = trainer.evaluate()
    loss = trainer.report["validation_loss"]
    assert metrics[f"eval_{trainer.objective.metric}"] == pytest.approx(loss)
    assert metrics["eval_loss"] == pytest.approx(total_loss(objective, loss, metrics))
    trainer.save_model(_internal_call=True)  # as a push does: for rtd without the generator
    assert all(path.read_bytes() == content for path, content in files.items())
    args = settings(tmp_path / "again", objective=objective)
    again = PretrainingTrainer(str(tmp_path / "first"), args, train_dataset=rows)
    assert again.args.learning_rate == 1e-4 and not again.new_weights
    before = load_file(tmp_path / "first" / "model.safetensors")
    now = again.model.state_dict()
    assert all(torch.equal(now[name], tensor) for name, tensor in before.items())
    again.train()
    with pytest.raises(ValueError, match="trains a"):
        other = MiniBertForMaskedLM if objective != "mlm" else torch.nn.Linear
        wrong = other(saved) if objective != "mlm" else copy.copy(again.model).model
        PretrainingTrainer(wrong, settings(tmp_path / "x", objective=objective), train_dataset=text)


def total_loss(objective, loss, metrics):
    """What is minimized, from the loss that is reported."""
    if objective == "rtd":
        return metrics["eval_mlm_loss"] + 50 * loss
    if objective.startswith("mlm+"):
        return loss + metrics[f"eval_{objective.removeprefix('mlm+')}_loss"]
    return loss


def has_text(row):
    return bool(row["text"])


def test_the_trainer_of_a_decoder_keeps_its_tokenizer(text, tmp_path):
    """The saved one adds no [SEP], since a text is a prompt there."""
    args = settings(tmp_path, objective="clm")
    trainer = PretrainingTrainer(config("modernbert"), args, train_dataset=text.filter(has_text))
    token_ids = trainer.processing_class("some text")["input_ids"]
    trainer.train()
    trainer.save_model()
    assert trainer.processing_class("some text")["input_ids"] == token_ids
    saved = AutoTokenizer.from_pretrained(tmp_path)
    assert saved("some text")["input_ids"] == token_ids[:-1]
    trainer.train()  # again, as in a notebook
    trainer.save_model()
    assert AutoTokenizer.from_pretrained(tmp_path)("some text") == saved("some text")


def test_a_stream_needs_an_evaluation_set(text, tokenizer, tmp_path):
    stream = text.filter(has_text).to_iterable_dataset()
    with pytest.raises(ValueError, match="eval_dataset"):
        PretrainingTrainer(
            config(), settings(tmp_path), train_dataset=stream, processing_class=tokenizer
        )
    with pytest.raises(ValueError, match="max_steps"):
        args = settings(tmp_path, max_steps=-1)
        PretrainingTrainer(
            config(), args, train_dataset=stream, eval_dataset=text, processing_class=tokenizer
        )
    args = settings(tmp_path / "run")
    trainer = PretrainingTrainer(config(), args, None, stream, stream.take(20), tokenizer)
    assert trainer.args.accelerator_config.dispatch_batches is False
    assert args.accelerator_config.dispatch_batches is None  # the user's arguments stay
    trainer.train()
    trainer.save_model()
    assert trainer.report["steps"] == 3 and trainer.report["epochs"] is None


@pytest.mark.parametrize("name", [True, pytest.param("checkpoint-4", marks=pytest.mark.slow)])
def test_resume_from_checkpoint(name, text, tokenizer, tmp_path):
    def make(folder, **fields):
        args = settings(
            folder, max_steps=6, save_strategy="steps", save_steps=2, save_total_limit=9, **fields
        )
        return PretrainingTrainer(
            config(hidden_dropout=0.1), args, train_dataset=text, processing_class=tokenizer
        )

    whole = make(tmp_path / "whole")
    whole.train()
    shutil.copytree(tmp_path / "whole" / "checkpoint-4", tmp_path / "broken" / "checkpoint-4")
    broken = make(tmp_path / "broken")
    with pytest.raises(ValueError, match="holds an unfinished run"):
        broken.train()
    broken.train(resume_from_checkpoint=name if name is True else str(tmp_path / "broken" / name))
    assert all(
        map(torch.equal, whole.model.state_dict().values(), broken.model.state_dict().values())
    )
    with pytest.raises(ValueError, match="mlm_probability: 0.2"):
        make(tmp_path / "other", mlm_probability=0.2).train(
            str(tmp_path / "whole" / "checkpoint-4")
        )


def test_its_parts_work_in_a_plain_trainer(text, tokenizer, tmp_path):
    rows = rows_of("packed", text, tokenizer)
    model = MiniBertForMaskedLM(
        MiniBertConfig.from_tokenizer(tokenizer, "minibert", "tiny", **SIZES)
    )
    collator = MaskedLMCollator(tokenizer, mlm_probability=0.3, seed=0)
    optimizer = muon_optimizer(
        model, {"decoder.weight"}, learning_rate=1e-2, muon_learning_rate=1e-2
    )
    args = TrainingArguments(str(tmp_path), num_train_epochs=3, logging_steps=1, use_cpu=True, disable_tqdm=True,
                             save_strategy="no", remove_unused_columns=False)  # fmt: skip
    callbacks = [MaskingProgress(collator)]
    trainer = Trainer(
        model, args, collator, rows, optimizers=(optimizer, None), callbacks=callbacks
    )
    trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert losses[-1] < losses[0]


def test_unsuitable_data_is_refused(text, tokenizer, tmp_path):
    tokens = rows_of("tokens", text, tokenizer)
    given = dict(train_dataset=tokens, eval_dataset=tokens, processing_class=tokenizer)
    with pytest.raises(ValueError, match="makes its pairs from text"):
        PretrainingTrainer(config("bert"), settings(tmp_path, objective="mlm+nsp"), **given)
    with pytest.raises(ValueError, match="needs a column text or input_ids, got x"):
        other = tokens.rename_column("input_ids", "x")
        PretrainingTrainer(config(), settings(tmp_path), None, other, other, tokenizer)
    for tokenizer_or_none in (None, tokenizer):
        with pytest.raises(ValueError, match="train_dataset needs a column text or input_ids, got"):
            PretrainingTrainer(
                config(),
                settings(tmp_path),
                train_dataset=other,
                processing_class=tokenizer_or_none,
            )
    with pytest.raises(ValueError, match="eval_dataset needs a column text or input_ids, got x"):
        PretrainingTrainer(config(), settings(tmp_path), None, tokens, other, tokenizer)
    with pytest.raises(ValueError, match="seq_length: 64 is beyond max_position_embeddings=32"):
        PretrainingTrainer(
            config(max_position_embeddings=32), settings(tmp_path, seq_length=64), **given
        )


@pytest.mark.parametrize("kind", ["held out", "given", "stream"])
def test_rows_without_text_are_left_out(kind, text, tokenizer, tmp_path):
    with_gaps = datasets.Dataset.from_dict({"text": [None, *text["text"][:], " ", None]})
    train = with_gaps
    evaluation = None
    if kind != "held out":
        evaluation = with_gaps
    if kind == "stream":
        train = with_gaps.to_iterable_dataset()
        evaluation = with_gaps.to_iterable_dataset()
    trainer = PretrainingTrainer(config(), settings(tmp_path), None, train, evaluation, tokenizer)
    trainer.train()
    assert all(map(str.strip, trainer.held_out_texts()))


@pytest.mark.parametrize("kind", ["text", "tokens", "stream"])
def test_data_without_a_row_are_refused(kind, text, tokenizer, tmp_path):
    column = "input_ids" if kind == "tokens" else "text"
    train = datasets.Dataset.from_dict({column: []})
    evaluation = rows_of("tokens", text, tokenizer) if kind == "tokens" else text
    if kind == "stream":
        train = datasets.Dataset.from_dict({"text": [None, " "]}).to_iterable_dataset()
    with pytest.raises(ValueError, match="train_dataset: it makes no row"):
        PretrainingTrainer(config(), settings(tmp_path), None, train, evaluation, tokenizer)


def test_given_config_and_args_are_not_changed(text, tmp_path):
    """The model's own has the vocabulary of the tokenizer; the settings are not changed either."""
    given, args = config(), settings(tmp_path)
    before = given.to_dict(), args.to_dict()
    trainer = PretrainingTrainer(given, args, train_dataset=text)
    assert (given.to_dict(), args.to_dict()) == before
    assert trainer.model.config.vocab_size == 128 and trainer.args.optimizer == "muon"


# --- one door ---


def test_a_corpus_a_data_set_and_the_command_train_alike(text, tmp_path):
    """The same weights and embeddings on all roads, from text and from prepared rows."""
    file = tmp_path / "text.txt"
    file.write_text("\n".join(filter(None, text["text"])))
    fields = dict(max_steps=3, seq_length=32, vocab_size=100, eval_strategy="no", disable_tqdm=True)
    fields |= dict(bf16=False, save_strategy="no")
    minibert.pretrain(
        str(file), size="tiny", config_overrides=SIZES, output_dir=str(tmp_path / "run"), **fields
    )
    expected = load_file(tmp_path / "run" / "model.safetensors")
    rows = dict(vocab_size=100, seq_length=32)
    minibert.prepare(str(file), output_dir=str(tmp_path / "rows"), **rows)
    roads = {"corpus": Corpus(str(file)), "path": str(file), "rows": tmp_path / "rows"}
    roads["set"] = datasets.Dataset.from_dict({"text": file.read_text().splitlines()})
    for name, train_dataset in roads.items():
        args = PretrainingConfig(str(tmp_path / name), **fields)
        trainer = PretrainingTrainer(config(), args, train_dataset=train_dataset)
        assert trainer.args.embedding_init == "cooccurrence"
        trainer.train()
        trainer.save_model()
        weights = load_file(tmp_path / name / "model.safetensors")
        assert all(torch.equal(weights[key], expected[key]) for key in expected), name


def test_embedding_init_follows_the_objective():
    """Whatever the preset; the recipes of the published models say what these had."""
    for objective, expected in (("mlm", "cooccurrence"), ("rtd", "random"), ("clm", "random")):
        args = fill_defaults(PretrainingConfig(objective=objective), is_new=True)
        assert args.embedding_init == expected
    for recipe in ("bert-classic", "roberta-style"):
        assert read_recipe(recipe)["embedding_init"] == "random"


def test_nothing_is_read_before_a_refusal(tmp_path, monkeypatch):
    monkeypatch.setattr(training_data.CorpusReader, "read", lambda *_: pytest.fail("it reads"))
    monkeypatch.setattr(training_data.DatasetReader, "read", lambda *_: pytest.fail("it reads"))
    (tmp_path / "a.txt").write_text("text")
    corpus = Corpus(str(tmp_path / "a.txt"))
    rows = datasets.Dataset.from_dict({"input_ids": [[1, 2]]})
    for fields, options, message in (
        (
            {"extend_vocabulary": 5},
            {"train_dataset": corpus},
            "extend_vocabulary: it needs text and",
        ),
        ({}, {"train_dataset": corpus, "eval_dataset": rows}, "eval_dataset: a corpus holds out"),
        ({}, {"train_dataset": rows}, "processing_class: rows without text need the tokenizer"),
        ({}, {"train_dataset": None}, "train_dataset: needed"),
        ({}, {"train_dataset": []}, "train_dataset: empty"),
        ({}, {"train_dataset": {"a": rows}}, "train_dataset: got a dict; give a data set"),
        ({}, {"train_dataset": rows, "eval_dataset": "b.txt"}, "eval_dataset: beside a data set"),
        ({}, {"train_dataset": rows, "eval_dataset": corpus}, "eval_dataset: beside a data set"),
        (
            {},
            {"train_dataset": rows, "eval_dataset": {"a": rows}},
            "eval_dataset: beside a data set",
        ),
        (
            {},
            {"train_dataset": corpus, "config_overrides": {"vocab_size": 5}},
            "config_overrides: the tokenizer decides vocab_size",
        ),
        (
            {"validation_size": 0.1},
            {"train_dataset": rows, "eval_dataset": rows},
            "validation_size: eval_dataset is given",
        ),
        ({"seq_length": 9999}, {"train_dataset": corpus}, "seq_length: 9999 is beyond"),
        ({}, {"train_dataset": str(tmp_path / "b.txt")}, "data: .*b.txt' does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            PretrainingTrainer(config(), settings(tmp_path / "out", **fields), **options)
    assert not (tmp_path / "out").exists()


def test_settings_and_data_are_refused_before_they_are_used(text, tmp_path, capsys):
    args = settings(tmp_path)
    args.optimizer = "lion"  # set after the settings were made, and checked
    with pytest.raises(ValueError, match="optimizer: 'lion' is unknown"):
        PretrainingTrainer(config(), args, train_dataset=text)
    args = settings(tmp_path, bf16_full_eval=True)
    with pytest.raises(ValueError, match="bf16_full_eval"):  # before the model is looked for
        PretrainingTrainer(str(tmp_path / "no model"), args, train_dataset=text)
    args = settings(tmp_path, save_strategy="epoch")
    with pytest.raises(ValueError, match="eval_dataset: needed"):
        PretrainingTrainer(config(), args, train_dataset=text.to_iterable_dataset())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("dict_class", [datasets.DatasetDict, datasets.IterableDatasetDict])
def test_a_data_set_of_several_splits_is_refused(dict_class, text, tmp_path):
    rows = text.to_iterable_dataset() if dict_class is datasets.IterableDatasetDict else text
    splits = dict_class(train=rows, test=rows)
    message = f"a {dict_class.__name__} with the splits 'train', 'test'; give one of them"
    with pytest.raises(ValueError, match=f"train_dataset: {message}"):
        PretrainingTrainer(config(), settings(tmp_path), train_dataset=splits)
    with pytest.raises(ValueError, match=f"eval_dataset: {message}"):
        PretrainingTrainer(config(), settings(tmp_path), train_dataset=text, eval_dataset=splits)
    for data in (splits, [splits, "a.txt"]):
        with pytest.raises(ValueError, match=f"data: {message}"):
            Corpus(data)


def test_a_second_training_has_results_of_its_own(text, tmp_path):
    """Of as many steps as the first one; the last step of the first one was not logged."""
    fields = dict(objective="mlm+nsp", learning_rate=1e-2, logging_steps=2)
    trainer = PretrainingTrainer(
        config("bert"), settings(tmp_path / "run", **fields), train_dataset=text
    )
    reports = []
    for name in ("first", "second"):
        trainer.train()
        trainer.save_model(str(tmp_path / name))
        reports.append(json.loads((tmp_path / name / "report.json").read_text()))
        log = next(log for log in trainer.state.log_history if "loss" in log)
        assert log["loss"] == pytest.approx(log["mlm_loss"] + log["nsp_loss"], abs=1e-3)
    assert reports[0]["steps"] == reports[1]["steps"] == 3
    assert reports[0]["validation_loss"] != reports[1]["validation_loss"]
    assert trainer.report == reports[1]


def test_a_report_of_a_callback_is_not_the_last_one(text, tmp_path):
    class SaveEarly(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 1:
                trainer.save_model(str(tmp_path / "early"))

    args = settings(tmp_path / "run", max_steps=2)
    trainer = PretrainingTrainer(config(), args, train_dataset=text, callbacks=[SaveEarly()])
    trainer.train()
    trainer.save_model()
    assert json.loads((tmp_path / "early" / "report.json").read_text())["steps"] == 1
    assert json.loads((tmp_path / "run" / "report.json").read_text())["steps"] == 2


def test_unreadable_rows_end_the_training_with_a_whole_checkpoint(text, tmp_path):
    args = settings(tmp_path / "run", max_steps=9, save_only_model=True)
    trainer = PretrainingTrainer(config(), args, train_dataset=text)
    collate = trainer.data_collator
    batches = []

    def fail(rows):
        if len(batches) == 3:
            raise ValueError("line 7: not JSON")
        batches.append(collate(rows))
        return batches[-1]

    trainer.data_collator = fail
    with pytest.raises(ValueError, match=r"line 7: not JSON \(step . is saved"):
        trainer.train()
    (checkpoint,) = (tmp_path / "run").glob("checkpoint-*")
    assert (checkpoint / "optimizer.pt").exists()
    assert trainer.args.save_only_model  # the setting stays


def test_muons_rate_is_filled_in_and_said(text, tmp_path):
    trainer = PretrainingTrainer(config(), settings(tmp_path), train_dataset=text)
    assert trainer.args.muon_learning_rate == pytest.approx(0.9 / 16, rel=0.01)
    assert muon_rate(trainer) == trainer.args.muon_learning_rate
    trainer.train()
    trainer.save_model()
    assert "muon_learning_rate 0.056" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("name", ["learning_rate", "muon_learning_rate"])
def test_a_learning_rate_of_0_is_one(name, text, tmp_path):
    trainer = PretrainingTrainer(config(), settings(tmp_path, **{name: 0}), train_dataset=text)
    assert muon_rate(trainer) == 0


def muon_rate(trainer):
    rates = {group["lr"] for group in trainer.create_optimizer().param_groups if "parts" in group}
    (rate,) = rates
    return rate


def test_the_clock_starts_with_the_trainer(text, tmp_path, monkeypatch):
    """Reading counts too."""
    times = []
    read = training_data.DatasetReader.read

    def noted(source, *arguments):
        times.append(time.monotonic())
        return read(source, *arguments)

    monkeypatch.setattr(training_data.DatasetReader, "read", noted)
    args = settings(tmp_path, minutes=5, max_steps=-1)
    trainer = PretrainingTrainer(config(), args, train_dataset=text)
    assert trainer.budget.started_at <= times[0]


def test_a_checkpoint_of_an_older_version_is_resumed(text, tmp_path):
    """It names the settings SettingsState, and does not say which rate Muon had."""
    fields = dict(save_strategy="steps", save_steps=2, save_total_limit=9)
    trainer = PretrainingTrainer(config(), settings(tmp_path, **fields), train_dataset=text)
    trainer.train()
    expected = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    state_file = tmp_path / "checkpoint-2" / "trainer_state.json"
    state = json.loads(state_file.read_text())
    callbacks = state["stateful_callbacks"]
    callbacks["SettingsState"] = callbacks.pop("ResumeGuardCallback")
    callbacks["SettingsState"]["args"]["settings"]["muon_learning_rate"] = None  # Muon's default
    state_file.write_text(json.dumps(state))
    write_manifest(tmp_path / "checkpoint-2")
    shutil.rmtree(tmp_path / "checkpoint-3", ignore_errors=True)
    trainer = PretrainingTrainer(config(), settings(tmp_path, **fields), train_dataset=text)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    resumed = trainer.model.state_dict()
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
    assert "SettingsState" not in trainer.state.stateful_callbacks
    callbacks["SettingsState"]["args"]["settings"]["masking"] = "span"
    state_file.write_text(json.dumps(state))
    write_manifest(tmp_path / "checkpoint-2")
    shutil.rmtree(tmp_path / "checkpoint-3", ignore_errors=True)
    trainer = PretrainingTrainer(config(), settings(tmp_path, **fields), train_dataset=text)
    with pytest.raises(ValueError, match="masking: 'token', but the checkpoint .* 'span'"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_what_a_trained_model_gains_little_from_is_said(text, tmp_path, capsys):
    """Little text; and masked training of a model whose vectors stand for texts."""
    first = PretrainingTrainer(config(), settings(tmp_path / "first"), train_dataset=text)
    first.save_model()
    printed = capsys.readouterr().out
    assert "few to continue" not in printed and "sentence embedding" not in printed
    for has_modules in (False, True):
        if has_modules:
            minibert.export(
                tmp_path / "first", tmp_path / "vectors", format="sentence-transformers"
            )
        folder = str(tmp_path / ("vectors" if has_modules else "first"))
        args = settings(tmp_path / f"more-{has_modules}", max_steps=1)
        PretrainingTrainer(folder, args, train_dataset=text).train()
        printed = capsys.readouterr().out
        assert "tokens of text are few to continue a training with" in printed
        assert ("is a sentence embedding model" in printed) is has_modules


def test_a_size_that_fits_is_named(text, tmp_path, capsys):
    """By the number of parameters, the largest one that has 50 steps in the time."""
    model = MiniBertConfig.minibert("small", vocab_size=8192)
    sizes = dict(smaller_sizes(model))
    assert list(sizes) == ["mini", "tiny"]
    assert sizes["mini"].to_dict() == MiniBertConfig.minibert("mini", vocab_size=8192).to_dict()
    assert list(dict(smaller_sizes(config()))) == []

    mini = MiniBertConfig.minibert("mini")
    trainer = PretrainingTrainer(mini, settings(tmp_path, minutes=5, max_steps=-1), train_dataset=text)  # fmt: skip
    tiny = MiniBertForMaskedLM(MiniBertConfig.minibert("tiny", vocab_size=trainer.model.config.vocab_size))  # fmt: skip
    steps = round(40 * trainer.model.num_parameters() / tiny.num_parameters())
    assert trainer.suggest_size_for_steps(40) == ("tiny", steps)
    assert trainer.suggest_size_for_steps(1) is None
    (callback,) = [
        one for one in trainer.callback_handler.callbacks if isinstance(one, DivergenceCallback)
    ]
    callback.may_warn_of_few_steps = True
    callback.check_steps(40)
    assert f"--size tiny: about {steps} steps in the same time" in capsys.readouterr().out


def test_a_training_of_hours_says_how_long_it_takes(text, tmp_path, capsys):
    """Once, on a CPU, from the steps after the first; with what a smaller size would need."""
    args = settings(tmp_path, max_steps=1000)
    trainer = PretrainingTrainer(MiniBertConfig.minibert("mini"), args, train_dataset=text)
    (callback,) = [
        one for one in trainer.callback_handler.callbacks if isinstance(one, LongTrainingCallback)
    ]
    tiny = MiniBertForMaskedLM(MiniBertConfig.minibert("tiny", vocab_size=trainer.model.config.vocab_size))  # fmt: skip
    share = tiny.num_parameters() / trainer.model.num_parameters()

    def lines_after(step_seconds, steps=8):
        ends = itertools.accumulate([500.0, *[step_seconds] * steps])  # the first step is slow
        callback.clock = functools.partial(next, ends)
        state = TrainerState(max_steps=1000)
        callback.on_train_begin(args, state, None)
        for _ in range(steps):
            callback.on_step_end(args, state, None)
        return capsys.readouterr().out.splitlines()

    capsys.readouterr()
    assert lines_after(9.0) == [
        "At this speed, 1,000 steps take about 2.5 hours."
        f" Shorter: --size tiny (about {round(9000 * share / 60)} minutes), or --minutes 60"
    ]
    assert lines_after(3.0) == []
    trainer.is_new = False  # of a saved model, the size cannot be chosen
    assert lines_after(9.0) == [
        "At this speed, 1,000 steps take about 2.5 hours. Shorter: --minutes 60"
    ]
    args = settings(tmp_path / "clock", minutes=5, max_steps=-1)
    trainer = PretrainingTrainer(MiniBertConfig.minibert("tiny"), args, train_dataset=text)
    assert LongTrainingCallback not in map(type, trainer.callback_handler.callbacks)


class SlowTerm:
    """A term of a loss that waits for the other thread when it is added."""

    def __init__(self, both_threads):
        self.both_threads = both_threads

    def detach(self):
        # with a lock, the other thread cannot come here
        with contextlib.suppress(threading.BrokenBarrierError):
            self.both_threads.wait(timeout=0.3)
        return 1


class LossTerms(LossTermsMixin, SimpleNamespace):
    """The mixin before another class than `Trainer`."""


def test_terms_of_two_threads_are_all_added():
    """The halves of a batch compute their losses at the same time: none of their terms is lost."""
    objective = SimpleNamespace(loss_name=lambda name: name)
    trainer = LossTerms(state=TrainerState(), objective=objective)
    both_threads = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        outputs = [{"a_loss": SlowTerm(both_threads)}, {"a_loss": SlowTerm(both_threads)}]
        list(pool.map(trainer._add_loss_terms, outputs))
    assert trainer._loss_terms == {"a_loss": 2}
