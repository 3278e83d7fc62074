"""Streams: the same documents and rows as from disk, shared out without overlap, and the same batches after a kill."""

import hashlib
import json
import math
import shutil
from collections import Counter, defaultdict
from itertools import islice

import numpy as np
import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from safetensors.torch import load_file
from torch.utils.data import DataLoader

from minibert.tokenization import train_tokenizer
from minibert.training import cli
from minibert.training.data import mixtures
from minibert.training.data.collators import EVALUATION_RATE, MaskedLMCollator
from minibert.training.data.corpus import Corpus
from minibert.training.data.documents import load_documents, load_sources
from minibert.training.data.mixtures import first_rows, split_corpus
from minibert.training.data.packing import pack_documents
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.data.validation_documents import held_out_mask, split_stream
from minibert.training.loop.checkpoints import write_manifest

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def folder(tmp_path):
    """Four files of numbered documents of several lengths, one to a line."""
    for file in range(4):
        lines = (
            f"document {number} of file {file}" + " and on" * (number % 7)
            for number in range(100 + file)
        )
        (tmp_path / f"{file}.txt").write_text("\n".join(lines))
    return tmp_path


def texts(stream, count=None):
    return [row["text"] for row in islice(stream, count)]


def prepare(data, weights=(), sampling_alpha=None, validation_size=0.1, seed=0, **options):
    corpus = Corpus(data, weights=weights, sampling_alpha=sampling_alpha, streaming=True, **options)
    return split_corpus(corpus, validation_size=validation_size, seed=seed)


# --- the same as from disk ---


@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_rows_are_those_from_disk(folder, packing):
    documents = load_documents([str(folder)])
    tokenizer = train_tokenizer(documents["text"], vocab_size=200, show_progress=False)
    (stream,) = load_sources([str(folder)], streaming=True)

    def rows(documents):
        made = pack_documents(tokenize_documents(documents, tokenizer), tokenizer, 48, packing)
        return Counter((tuple(row["input_ids"]), tuple(row["position_ids"])) for row in made)

    found = rows(stream)
    assert found == rows(documents) and found.total() > 50


def test_the_split_is_that_from_disk(folder, share=0.3):
    """Documents are held out by the order of their hashes: one way's are all among the other's."""
    (stream,) = load_sources([str(folder)], streaming=True)
    for seed in range(2):
        train, validation = (texts(part) for part in split_stream(stream, share, seed))
        assert not set(train) & set(validation)
        assert Counter(train + validation) == Counter(texts(stream))
        n = len(train) + len(validation)
        assert abs(len(validation) - share * n) < 5 * math.sqrt(n * share * (1 - share))
        documents = load_documents([str(folder)])
        from_disk = set(
            documents.select(np.flatnonzero(held_out_mask(documents, share, seed)))["text"]
        )
        assert from_disk <= set(validation) or set(validation) <= from_disk
        for text in validation:
            digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode()).digest()
            assert int.from_bytes(digest, "little") < share * 2**64


def test_what_is_held_out_is_never_trained_on(folder, monkeypatch):
    monkeypatch.setattr(mixtures, "VALIDATION_DOCUMENTS", 10)
    documents = prepare([folder], validation_size=0.3, shuffle_buffer=50)
    (stream,) = load_sources([str(folder)], streaming=True)
    held_out = set(texts(split_stream(stream, 0.3, 0)[1]))
    assert set(documents.validation["text"]) < held_out and len(documents.validation) == 10
    assert (
        not set(texts(documents.train, 1000)) & held_out
        and not set(texts(documents.tokenizer_sample)) & held_out
    )
    assert len(first_rows(split_stream(stream, 0.3, 0)[1], count=10)) == 10


# --- order ---


def test_each_pass_has_another_order(folder):
    train = prepare([folder], shuffle_buffer=64).train
    once = len(texts(prepare([folder], shuffle_buffer=0).tokenizer_sample))
    seen = texts(train, 3 * once)
    assert (
        seen
        == texts(train, 3 * once)
        == texts(prepare([folder], shuffle_buffer=64).train, 3 * once)
    )
    assert seen != texts(prepare([folder], shuffle_buffer=64, seed=1).train, 3 * once)
    assert seen[:once] != seen[once : 2 * once]
    # A document is at most a buffer away from its place: after two passes each has come once at least.
    counts = Counter(seen)
    assert len(counts) == once and max(counts.values()) <= 5


@pytest.mark.parametrize("buffer", [0, 40])
def test_documents_of_small_files_come_no_more_often(tmp_path, buffer):
    """A buffer that takes from several files at a time would run through the small ones again and again."""
    sizes = {"a": 300, "b": 60, "c": 12}
    for name, size in sizes.items():
        (tmp_path / f"{name}.txt").write_text(
            "".join(f"{name} document {i}\n" for i in range(size))
        )
    train = prepare([tmp_path], shuffle_buffer=buffer).train
    kept = Counter(
        text[0] for text in texts(prepare([tmp_path], shuffle_buffer=0).tokenizer_sample)
    )
    seen = Counter(texts(train, 4 * kept.total() - buffer))
    assert max(seen.values()) <= 4
    counts = Counter(text[0] for text in seen.elements())
    for name, size in kept.items():
        assert 3 * size - buffer <= counts[name] <= 4 * size, counts


# --- mixtures ---


@pytest.mark.parametrize("weights, alpha", [([5, 3, 2], None), ([900, 40, 6], 0.3)])
def test_mixture_rates(folder, weights, alpha):
    data = [
        f"{name}={folder / file}"
        for name, file in (("aa", "0.txt"), ("bb", "1.txt"), ("cc", "2.txt"))
    ]
    drawn = texts(
        prepare(data, weights=weights, sampling_alpha=alpha, shuffle_buffer=0).train, 1500
    )
    powers = [weight ** (1 if alpha is None else alpha) for weight in weights]
    for source, power in enumerate(powers):
        p = power / sum(powers)
        observed = np.mean([f"of file {source}" in text for text in drawn])
        assert abs(observed - p) < 5 * math.sqrt(p * (1 - p) / len(drawn))


# --- ranks and workers ---


def rows_of(folder, seq_length=48):
    documents = load_documents([str(folder)])
    tokenizer = train_tokenizer(documents["text"], vocab_size=200, show_progress=False)
    (stream,) = load_sources([str(folder)], streaming=True)
    return pack_documents(
        tokenize_documents(stream, tokenizer), tokenizer, seq_length, "padded"
    ), tokenizer


def read(loader, tokenizer):
    return Counter(
        text
        for batch in loader
        for text in tokenizer.batch_decode([row["input_ids"] for row in batch])
    )


@pytest.mark.parametrize("files", [4, 1])
def test_two_ranks_under_accelerate_see_other_documents(folder, files):
    """As `Trainer` prepares its loader after `set_up_stream`: by files, or by batches where there are too few files."""
    for file in range(files, 4):
        (folder / f"{file}.txt").unlink()
    rows, tokenizer = rows_of(folder)
    whole = read([list(rows)], tokenizer)
    parts = []
    for rank in range(2):
        loader = DataLoader(rows, batch_size=5, collate_fn=list)
        options = dict(
            num_processes=2, process_index=rank, put_on_device=False, dispatch_batches=False
        )
        parts.append(read(prepare_data_loader(loader, **options), tokenizer))
    assert set(parts[0]) | set(parts[1]) == set(whole)
    if files == 4:
        assert not set(parts[0]) & set(parts[1]) and parts[0] + parts[1] == whole
    else:  # the last batch is filled up with the first rows, so that the ranks make as many steps
        assert (
            len(set(parts[0]) & set(parts[1])) <= 10
            and (parts[0] + parts[1]).total() <= whole.total() + 10
        )
    workers = DataLoader(rows, batch_size=5, collate_fn=list, num_workers=min(2, files))
    assert read(workers, tokenizer) == whole


# --- minibert pretrain ---

QUICK = [
    "--streaming", "true", "--size", "tiny", "--config_overrides", "num_hidden_layers=2", "--vocab_size", "150",
    "--seq_length", "32", "--per_device_train_batch_size", "8", "--disable_tqdm", "true", "--bf16", "false",
    "--shuffle_buffer", "60",
]  # fmt: skip


def pretrain(data, output, *arguments):
    return cli.main(
        ["pretrain", "--data", *map(str, data), "--output_dir", str(output), *QUICK, *arguments]
    )


@pytest.mark.slow  # test_kills.py resumes a stream too
def test_resuming_gives_the_uninterrupted_run_bit_for_bit(folder, tmp_path, monkeypatch, capsys):
    """Also when the data has been read more than once."""
    monkeypatch.setattr("minibert.training.pretraining.training_data.SAMPLE_ROWS", 10)
    data = [folder / "0.txt", folder / "1.txt"]
    arguments = ["--max_steps", "12", "--save_strategy", "steps", "--save_steps", "8", "--save_total_limit", "9",
                 "--weights", "2", "1", "--gradient_accumulation_steps", "2", "--config_overrides",
                 "num_hidden_layers=2,hidden_dropout=0.1",
                 "--eval_strategy", "no"]  # fmt: skip
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert pretrain(data, whole, *arguments) == 0
    report = json.loads((whole / "report.json").read_text())
    words = sum(len(path.read_text().split()) for path in data)
    assert report["steps"] == 12 and report["training_tokens"] * 8 / 12 > 1.2 * words
    assert report["epochs"] is None and "- steps: 12\n" in (whole / "README.md").read_text()
    shutil.copytree(whole / "checkpoint-8", broken / "checkpoint-8")  # what a kill leaves
    assert pretrain(data, broken, *arguments, "--resume_from_checkpoint", "true") == 0
    first, second = load_file(whole / "model.safetensors"), load_file(broken / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert "A stream of documents to train on" in capsys.readouterr().out


@pytest.mark.slow
def test_stream_is_not_resumed_with_other_workers_or_ranks(folder, tmp_path, capsys):
    """Each has read a part of its own: rows would be lost, and others come twice."""
    arguments = ["--max_steps", "2", "--save_strategy", "steps", "--save_steps", "1", "--save_total_limit", "9",
                 "--eval_strategy", "no", "--resume_from_checkpoint", str(tmp_path / "run/checkpoint-1")]  # fmt: skip
    data = [folder / "[01].txt"]
    assert pretrain(data, tmp_path / "run", *arguments[:-2]) == 0
    assert pretrain(data, tmp_path / "a", *arguments, "--dataloader_num_workers", "2") == 2
    assert "dataloader_num_workers: 2, but the checkpoint" in capsys.readouterr().err
    path = tmp_path / "run" / "checkpoint-1" / "trainer_state.json"
    state = json.loads(path.read_text())
    settings = state["stateful_callbacks"]["ResumeGuardCallback"]["args"]["settings"]
    assert settings["processes"] == 1
    settings["processes"] = 2
    path.write_text(json.dumps(state))
    write_manifest(path.parent)
    assert pretrain(data, tmp_path / "b", *arguments) == 2
    assert "processes: 1, but the checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, message", [
    ([], "max_steps: a stream has no end"),
    (["--max_steps", "5", "--validation_size", "20"], "validation_size of a stream must be a share"),
    (["--max_steps", "5", "--validation_size", "1e-9"], "validation_size: 1e-09 holds out no document"),
    (["--max_steps", "5", "--model", "bert", "--objective", "mlm+nsp"], "streaming: objective mlm+nsp cannot"),
])  # fmt: skip
def test_refused_before_any_work(folder, tmp_path, capsys, arguments, message):
    assert pretrain([folder / "0.txt"], tmp_path / "run", *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_masks_of_a_stream_change_when_it_begins_again(folder, tmp_path, monkeypatch):
    """Here every document is a row, and the stream is read about four times."""
    masks = defaultdict(set)
    plain = MaskedLMCollator.numpy_call

    def numpy_call(collator, examples):
        batch = plain(collator, examples)
        if collator.mlm_probability != EVALUATION_RATE:
            ends = np.cumsum([len(row["input_ids"]) for row in examples])
            for row, labels in zip(examples, np.split(batch["labels"][0], ends[:-1])):
                masks[tuple(row["input_ids"])].add(tuple(np.flatnonzero(labels != -100)))
        return batch

    monkeypatch.setattr(MaskedLMCollator, "numpy_call", numpy_call)
    arguments = [
        "--max_steps",
        "40",
        "--packing",
        "padded",
        "--mlm_probability",
        "0.5",
        "--eval_strategy",
        "no",
    ]
    assert pretrain([folder / "0.txt"], tmp_path / "run", *arguments) == 0
    assert 80 <= len(masks) <= 110 and np.mean([len(found) for found in masks.values()]) > 3


@pytest.mark.parametrize("workers", [0, 2])
def test_rate_schedule_counts_the_batches_of_all_workers(folder, workers):
    stream = load_sources([str(folder)], streaming=True)[0]
    tokenizer = train_tokenizer(texts(stream), vocab_size=80)
    rows = pack_documents(tokenize_documents(stream.repeat(None), tokenizer), tokenizer, 64)
    options = dict(mlm_probability=0.0, last_mlm_probability=1.0, at_least_one_target=False, seed=0)
    collator = MaskedLMCollator(tokenizer, **options)
    collator.set_progress(epoch=0, step=0, total_steps=20)
    batches = islice(DataLoader(rows, batch_size=2, collate_fn=collator, num_workers=workers), 20)
    shares = [
        float((batch["labels"] != -100).sum() / batch["attention_mask"].sum()) for batch in batches
    ]
    assert shares[0] == 0 and np.mean(shares[:5]) < 0.2 and np.mean(shares[-5:]) > 0.6


def test_bad_sources_are_refused(folder):
    (folder / "blank.txt").write_text("\n \n\t\n")
    (folder / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    (folder / "numbers.csv").write_text("a,b\n1,2\n")
    good = folder / "0.txt"
    for data, arguments, message in (
        ([], {}, "data: an empty list"),
        ([good, folder], {}, "weights: needed to stream 2 entries of data"),
        (
            [good, folder / "blank.txt"],
            {"weights": [1.0, 1.0]},
            "no document of '.*blank.txt' is left to train on",
        ),
        ([folder / "broken.jsonl"], {}, "broken.jsonl"),
        ([folder / "numbers.csv"], {}, "text_column: the column of the text is not clear"),
        ([folder / "missing.txt"], {}, "missing.txt' does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(data, **arguments)
