"""Rows made once: they are those that a training makes itself, and a training from them is the same training."""

import json
import re
import shutil

import datasets
import numpy as np
import pytest
import torch
from foreign_tokenizers import foreign_tokenizer
from helpers import TEXTS, refusal
from safetensors.torch import load_file
from transformers import AutoTokenizer, CanineTokenizer

import minibert
from minibert.tokenization import adapt_tokenizer, train_tokenizer
from minibert.training.data import packing, prepared
from minibert.training.data.documents import load_documents
from minibert.training.data.packing import pack_documents
from minibert.training.data.prepared import PreparedRows, save_rows
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.data.validation_documents import held_out_mask

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Windows and shards of which a few hundred documents fill several."""
    monkeypatch.setattr(packing, "DOCUMENTS_PER_WINDOW", 64)
    monkeypatch.setattr(prepared, "ROWS_IN_SHARD", 20)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(TEXTS[:300]))
    return path


MADE = dict(vocab_size=300, seq_length=48)
SMALL = dict(
    size="tiny", bf16=False, per_device_train_batch_size=16, disable_tqdm=True, logging_steps=1, save_strategy="no",
    config_overrides="num_hidden_layers=1,hidden_size=32,num_attention_heads=2,intermediate_size=48,hidden_dropout=0.1",
)  # fmt: skip

SETTINGS = dict(max_steps=1, bf16=False, disable_tqdm=True)


def prepare(text, folder, **arguments):
    return minibert.prepare(data=str(text), output_dir=str(folder), **MADE | arguments)


def pretrain(data, output, **arguments):
    return minibert.pretrain(data=str(data), output_dir=str(output), **SMALL | arguments)


def losses(output):
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    return [
        {k: x for k, x in entry.items() if k in ("step", "loss", "eval_loss")} for entry in history
    ]


def same_weights(*outputs):
    first, second = (load_file(output / "model.safetensors") for output in outputs)
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


# --- what is written ---


def test_a_card_names_no_folder_of_the_text(tmp_path, monkeypatch):
    """Not even where that is gone when a model is trained, and what is left looks like a name of the Hub."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "text.txt").write_text("\n".join(TEXTS[:300]))
    prepare("secret/text.txt", tmp_path / "rows")
    shutil.rmtree(tmp_path / "secret")
    pretrain(tmp_path / "rows", tmp_path / "run", max_steps=1, eval_strategy="no")
    card = (tmp_path / "run" / "README.md").read_text()
    assert "text.txt" in card and "secret" not in card


def test_rows_name_no_folder_of_this_machine(tmp_path, monkeypatch):
    """Neither of text nor of a tokenizer, nor what else a config holds: the rows may go to other machines."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "secret" / "a=b, secret"
    folder.mkdir(parents=True)
    for language in ("de", "fr"):
        (folder / f"{language}.txt").write_text("\n".join(TEXTS[:60]))
    tokenizer = train_tokenizer(TEXTS[:60], vocab_size=200, show_progress=False)
    tokenizer.save_pretrained(folder / "words")
    args = minibert.PretrainingConfig("secret", hub_token="secret")
    rows = minibert.prepare(
        [f"de={folder / 'de.txt'}", f"fr={folder / 'fr.txt'}"],
        output_dir=tmp_path / "rows",
        tokenizer=str(folder / "words"),
        args=args,
    )
    for file in (tmp_path / "rows").glob("*.json"):
        assert "secret" not in file.read_text(), file
    arguments = rows.manifest["arguments"]
    assert arguments["data"] == ["de=de.txt", "fr=fr.txt"] and arguments["tokenizer"] == "words"
    assert arguments["sampling_alpha"] == 0.3 and arguments["seed"] == 42
    assert rows.settings == {"validation_size": 0.05, "seq_length": 512, "packing": "packed"}
    rows.check_tokenizer(tokenizer)


@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_shards_hold_the_rows_of_all_documents(text, tmp_path, packing):
    """What packing makes of the whole corpus, in several shards."""
    rows = prepare(text, tmp_path / "rows", packing=packing, validation_size=30)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "rows")
    documents = load_documents([str(text)])
    held_out = held_out_mask(documents, 30, seed=42)
    for split, count, chosen in (("train", 270, ~held_out), ("validation", 30, held_out)):
        part = documents.select(np.flatnonzero(chosen))
        expected = pack_documents(tokenize_documents(part, tokenizer), tokenizer, 48, packing)
        assert rows.load(split)[:] == expected[:] and rows.load(split).features == expected.features
        assert len(rows.manifest[split]) == -(-len(expected) // 20) and len(part) == count
        assert list(rows.load(split, streaming=True)) == list(expected)
    assert (
        f"{len(rows.load('train'))} rows to train on, {len(rows.load('validation'))} held out"
        in rows.describe()
    )


def test_rows_of_a_loaded_data_set_are_those_of_its_file(text, tmp_path):
    loaded = datasets.Dataset.from_dict({"body": text.read_text().split("\n")})
    rows = [minibert.prepare(data, output_dir=str(tmp_path / name), **MADE)
            for data, name in ((loaded, "loaded"), (text, "file"))]  # fmt: skip
    for split in ("train", "validation"):
        assert rows[0].load(split)[:] == rows[1].load(split)[:]
    assert rows[0].manifest["arguments"]["data"] == ["the data set"]


def test_any_number_of_processes_writes_the_same_bytes(text, tmp_path):
    prepare(text, tmp_path / "one")
    prepare(text, tmp_path / "two", num_proc=2)
    bytes_of = [
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.*")}
        for name in ("one", "two")
    ]
    assert bytes_of[0].keys() == bytes_of[1].keys() and len(bytes_of[0]) > 5
    assert {name for name in bytes_of[0] if bytes_of[0][name] != bytes_of[1][name]} <= {
        "minibert_rows.json"
    }


def test_interrupted_prepare_leaves_no_folder_and_reuses_its_cache(text, tmp_path, monkeypatch):
    folder, tokenized = tmp_path / "rows", []
    plain = packing.tokenize_documents

    def tokenize_documents(documents, *options):
        if len(tokenized) == 1:
            raise KeyboardInterrupt
        tokenized.append(plain(documents, *options))
        return tokenized[-1]

    monkeypatch.setattr(packing, "tokenize_documents", tokenize_documents)
    with pytest.raises(KeyboardInterrupt):
        prepare(text, folder)
    assert not folder.exists()
    monkeypatch.setattr(
        packing, "tokenize_documents", lambda *x: tokenized.append(plain(*x)) or tokenized[-1]
    )
    prepare(text, folder)
    assert tokenized[0].cache_files == tokenized[1].cache_files != []


# --- training from it ---


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm", "clm"])
def test_prepared_rows_give_the_same_training(text, tmp_path, objective):
    rows = tmp_path / "rows"
    prepare(text, rows)
    made = dict(
        objective=objective,
        num_train_epochs=2,
        eval_strategy="epoch",
        gradient_accumulation_steps=2,
    )
    pretrain(text, tmp_path / "text", **MADE, **made)
    pretrain(rows, tmp_path / "prepared", **made)
    assert (
        losses(tmp_path / "text") == losses(tmp_path / "prepared")
        and len(losses(tmp_path / "text")) > 10
    )
    assert same_weights(tmp_path / "text", tmp_path / "prepared")
    reports = [
        json.loads((tmp_path / name / "report.json").read_text()) for name in ("text", "prepared")
    ]
    assert {k: x for k, x in reports[0].items() if "seconds" not in k}.items() <= reports[1].items()
    assert "text.txt" in (tmp_path / "prepared" / "README.md").read_text()
    # … and goes on from a model, whose tokenizer is that of the rows
    going_on = {name: value for name, value in SMALL.items() if name != "size"} | dict(
        objective=objective, max_steps=1
    )
    model = str(tmp_path / "text")
    minibert.pretrain(
        data=str(rows), output_dir=str(tmp_path / "on"), model_name_or_path=model, **going_on
    )


@pytest.mark.slow
def test_streamed_prepared_rows_resume(text, tmp_path, monkeypatch):
    """To the same bits; with other rows than its first epoch would have in that order."""
    monkeypatch.setattr("minibert.training.pretraining.training_data.SAMPLE_ROWS", 1)
    prepare(text, tmp_path / "rows")
    arguments = dict(streaming=True, shuffle_buffer=20, max_steps=12, save_strategy="steps", save_steps=8,
                     save_total_limit=9, eval_strategy="no")  # fmt: skip
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pretrain(tmp_path / "rows", whole, **arguments)
    shutil.copytree(whole / "checkpoint-8", broken / "checkpoint-8")  # what a kill leaves
    pretrain(tmp_path / "rows", broken, **arguments, resume_from_checkpoint="true")
    assert same_weights(whole, broken) and losses(whole) == losses(broken)


def test_raw_and_adapted_tokenizer_match_prepared_rows(tmp_path):
    """A training saves its mask token with the space before it, whichever of the two the rows were made with."""
    raw, adapted = foreign_tokenizer("gpt2"), adapt_tokenizer(foreign_tokenizer("gpt2"))
    made = dict(validation_size=0.5, seq_length=48, packing="packed")
    for number, tokenizer in enumerate((raw, adapted)):
        splits = {"train": datasets.Dataset.from_dict({}), "validation": []}
        save_rows(tmp_path / str(number), splits, tokenizer, made, {})
        rows = PreparedRows(tmp_path / str(number))
        for other in (raw, adapted):
            rows.check_tokenizer(other)
        with pytest.raises(ValueError, match="is not the one that the rows in"):
            rows.check_tokenizer(foreign_tokenizer("llama3"))


# --- what is refused ---


def test_defaults_are_refused_beside_rows_that_have_others(text, tmp_path, capsys):
    """Given in Python or in words, a default is a setting like any other; left out, the rows decide."""
    rows = tmp_path / "rows"
    prepare(text, rows, packing="padded", validation_size=30)
    refused_length = "seq_length: 512, but the rows in .* were prepared with 48"
    assert re.search(
        refused_length, refusal(capsys, "pretrain", "--data", rows, "--seq_length", 512)
    )
    args = minibert.PretrainingConfig(tmp_path / "run", seq_length=512, **SETTINGS)
    for options, message in (
        (dict(seq_length=512), refused_length),
        (dict(args=args), refused_length),
        (dict(packing="packed"), "packing: 'packed', but .* prepared with 'padded'"),
        (dict(validation_size=0.05), "validation_size: 0.05, but .* prepared with 30"),
    ):
        with pytest.raises(ValueError, match=message):
            minibert.pretrain(rows, size="tiny", **options)
    config = minibert.MiniBertConfig.minibert("tiny", num_hidden_layers=1)
    args = minibert.PretrainingConfig(tmp_path / "run", seq_length=48, **SETTINGS)
    trainer = minibert.PretrainingTrainer(config, args, train_dataset=str(rows))
    settings = trainer.args
    assert (settings.seq_length, settings.packing, settings.validation_size) == (48, "padded", 30)
    assert (args.packing, args.validation_size) == (None, None)


@pytest.mark.slow
def test_refused_before_any_work(text, tmp_path, capsys, monkeypatch):
    rows, run_folder, other, slow = (tmp_path / name for name in ("rows", "run", "other", "slow"))
    prepare(text, rows)
    train_tokenizer(["something else"] * 9, vocab_size=60, show_progress=False).save_pretrained(
        other
    )
    CanineTokenizer().save_pretrained(slow)
    for arguments, message in (
        (
            ["--seq_length", 64],
            "seq_length: 64, but the rows in .* were prepared with 48; leave it out, or prepare",
        ),
        (["--packing", "padded"], "packing: 'padded', but the rows in .* prepared with 'packed'"),
        (["--validation_size", 0.5], "validation_size: 0.5, but the rows in .* prepared with 0.05"),
        (["--tokenizer", other], "tokenizer: '.*other' is not the one that the rows in"),
        (
            ["--config_overrides", "max_position_embeddings=32"],
            "seq_length: 48 is beyond max_position_embeddings=32",
        ),
        (
            ["--objective", "mlm+nsp", "--model", "bert"],
            "holds prepared rows; objective mlm\\+nsp needs text",
        ),
        (
            ["--tokenizer", slow],
            "tokenizer: '.*slow' is a slow CanineTokenizer; use a fast tokenizer",
        ),
        (["--data", rows, text], "data: '.*rows' holds prepared rows; give no other data"),
    ):
        given = [] if "--data" in arguments else ["--data", rows]
        said = refusal(capsys, "pretrain", *given, "--output_dir", run_folder, *arguments)
        assert re.search(message, said), said
    assert re.search(
        "holds prepared rows, but text is needed", refusal(capsys, "tokenizer", "--data", rows)
    )
    for arguments, message in (
        (["--output_dir", rows], "exists already, and nothing is overwritten; give a new folder"),
        (["--streaming"], "unknown option --streaming"),
        (
            ["--tokenizer", slow],
            "tokenizer: '.*slow' is a slow CanineTokenizer; use a fast tokenizer",
        ),
    ):
        given = [] if "--output_dir" in arguments else ["--output_dir", run_folder]
        assert re.search(message, refusal(capsys, "prepare", "--data", text, *given, *arguments))
    assert not run_folder.exists()
    shard = rows / "train-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-1])
    said = refusal(capsys, "pretrain", "--data", rows, "--output_dir", run_folder)
    assert "train-00001.parquet' is missing or has changed; prepare the rows again" in said


@pytest.mark.parametrize(
    "changed",
    [
        "[]", "{", "null", "[" * 100_000, {"train": []}, {"train": {"../a.parquet": {"rows": 1, "bytes": 1}}},
        {"arguments": {"data": 3}}, {"arguments": None}, {"seq_length": "48"}, {"validation": {"a": 1}},
        {"tokenizer_sha256": 5}, {"packing": None},
    ],
)  # fmt: skip
def test_a_manifest_of_another_shape_is_refused(tmp_path, changed):
    manifest = {
        "validation_size": 0.05, "seq_length": 48, "packing": "packed", "tokenizer_sha256": "0", "arguments": {},
        "train": {}, "validation": {},
    }  # fmt: skip
    path = tmp_path / "minibert_rows.json"
    path.write_text(json.dumps(manifest))
    assert PreparedRows(tmp_path).settings["seq_length"] == 48
    path.write_text(changed if isinstance(changed, str) else json.dumps(manifest | changed))
    with pytest.raises(ValueError, match="is not what minibert prepare writes; prepare the rows"):
        PreparedRows(tmp_path)
