"""Reproducible masks: seed, epoch and row decide on them, whatever the workers, ranks, streams and checkpoints."""

import math
from types import SimpleNamespace

import datasets
import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from helpers import TEXTS, batches, packed_rows, padded_rows, same
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

from minibert.tokenization import train_tokenizer
from minibert.training.data.collators import MaskedLMCollator
from minibert.training.data.masking_progress import MaskingProgress


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, algorithm="wordpiece", vocab_size=500, show_progress=False)


def passes(collator, rows, epochs, **loader):
    """The batches of some epochs through a shuffling data loader; the shuffle depends on the epoch only."""
    generator = torch.Generator()
    sampler = RandomSampler(rows, generator=generator)
    data = DataLoader(rows, batch_size=8, sampler=sampler, collate_fn=collator, **loader)
    for epoch in range(epochs):
        generator.manual_seed(epoch)
        steps = math.ceil(len(rows) / 8)
        collator.set_progress(epoch, step=epoch * steps, total_steps=epochs * steps)
        yield list(data)


SCHEDULES = ({}, {"last_mlm_probability": 0.0, "mlm_probability": 1.0})


@pytest.mark.parametrize(
    ("kwargs", "persistent"), [*zip(SCHEDULES, (False, True))], ids=["constant", "linear"]
)
def test_masks_do_not_depend_on_workers(tokenizer, kwargs, persistent):
    rows = packed_rows(tokenizer, 10)
    alone = list(passes(MaskedLMCollator(tokenizer, seed=3, **kwargs), rows, 3))
    workers = dict(num_workers=2, persistent_workers=persistent)
    helped = list(passes(MaskedLMCollator(tokenizer, seed=3, **kwargs), rows, 3, **workers))
    assert len(alone) == len(helped) == 3
    assert all(same(a, b) for a, b in zip(alone, helped))


def original(batch, i):
    row = torch.where(batch["labels"][i] != -100, batch["labels"][i], batch["input_ids"][i])
    return row[batch["attention_mask"][i] == 1].tolist()


@pytest.mark.parametrize("kwargs", SCHEDULES, ids=["constant", "linear"])
def test_masks_do_not_depend_on_ranks(tokenizer, kwargs):
    """Two ranks (accelerate's own sharding) with batches of 4 see the rows of one rank with batches of 8."""
    rows = [{"input_ids": row["input_ids"]} for row in padded_rows(tokenizer)[:160]]

    def by_row(ranks):
        found = {}
        for rank in range(ranks):
            collator = MaskedLMCollator(tokenizer, seed=0, **kwargs)
            loader = DataLoader(rows, batch_size=8 // ranks, collate_fn=collator)
            loader = prepare_data_loader(
                loader, num_processes=ranks, process_index=rank, put_on_device=False
            )
            collator.set_progress(1, step=20, total_steps=40)
            for batch in loader:
                for i in range(len(batch["labels"])):
                    real = batch["attention_mask"][i] == 1
                    found[tuple(original(batch, i))] = batch["labels"][i][real].tolist()
        return found

    assert by_row(1) == by_row(2)


def test_the_masks_of_a_row_depend_on_seed_epoch_and_row_alone(tokenizer):
    rows = sorted(padded_rows(tokenizer)[:20], key=lambda row: len(row["input_ids"]))

    def labels(seed, epoch, row, batch):
        collator = MaskedLMCollator(tokenizer, seed=seed)
        collator.set_progress(epoch)
        return collator(batch)["labels"][batch.index(row)][: len(row["input_ids"])].tolist()

    row = rows[-1]
    assert labels(0, 0, row, rows) == labels(0, 0, row, [row]) == labels(0, 0, row, rows[::-1])
    assert labels(0, 0, row, rows) != labels(0, 1, row, rows)
    assert labels(0, 0, row, rows) != labels(1, 0, row, rows)


@pytest.mark.parametrize("options", [{"seed": 0}, {"last_mlm_probability": 0.1}])
def test_collator_without_epoch_warns_once(tokenizer, monkeypatch, options):
    """Its masks would come again, or its rate would not move."""
    said = []
    monkeypatch.setattr("minibert.training.data.collators.logger.warning_once", said.append)
    rows = padded_rows(tokenizer)[:40]
    collator = MaskedLMCollator(tokenizer, **options)
    collator(rows)
    assert len(said) == 1 and "MaskingProgress" in said[0]
    told = MaskedLMCollator(tokenizer, **options)
    told.set_progress(0)
    will_be_told = MaskedLMCollator(tokenizer, **options)  # an evaluation may come first
    MaskingProgress(will_be_told)
    for silent in (told, will_be_told, collator.for_evaluation(), MaskedLMCollator(tokenizer)):
        silent(rows)
    assert len(said) == 1


class Recorder(BertForMaskedLM):
    """Keeps the batches that reach the model."""

    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        if self.training:
            self.seen.append(
                {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
            )
        return super().forward(
            input_ids=input_ids, attention_mask=attention_mask, labels=labels, **kwargs
        )


class Stream(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def train(tokenizer, folder, data, resume=None, evaluation=None, masking=SCHEDULES[1], **kwargs):
    """The batches that a plain Trainer feeds to a model, over 12 steps; by default at a rate that falls from 1 to 0."""
    torch.manual_seed(0)
    shape = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    model = Recorder(BertConfig(vocab_size=len(tokenizer), **shape))
    model.seen = []
    collator = MaskedLMCollator(tokenizer, seed=5, **masking)
    arguments = dict(output_dir=str(folder), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=12,
                     save_steps=7, report_to="none", disable_tqdm=True, use_cpu=True, seed=0)  # fmt: skip
    arguments, callbacks = TrainingArguments(**arguments | kwargs), [MaskingProgress(collator)]
    trainer = Trainer(model, arguments, collator, data, evaluation, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return model.seen


def expected_batches(tokenizer, seen, batches_an_epoch, streamed=False):
    """What each batch has to be, by a collator of a constant rate: 2 batches a step, 1 − step/12 the rate."""
    steps_an_epoch = math.ceil(batches_an_epoch / 2)
    for number, batch in enumerate(seen):
        epoch, place = divmod(number, batches_an_epoch)
        rate = 1 - (epoch * steps_an_epoch + place // 2) / 12
        collator = MaskedLMCollator(tokenizer, mlm_probability=rate, seed=5)
        collator.set_progress(epoch, step=number, streamed=streamed)
        rows = [{"input_ids": original(batch, i)} for i in range(len(batch["labels"]))]
        yield collator(rows)


@pytest.fixture(scope="module")
def small_data(tokenizer):
    """36 rows: 9 batches of 4, so that an epoch ends with half a step."""
    return datasets.Dataset.from_list(padded_rows(tokenizer)[:36])


def test_plain_trainer_sets_epoch_and_rate(tokenizer, tmp_path, small_data):
    seen = train(tokenizer, tmp_path, small_data)
    assert len(seen) == 9 + 9 + 4  # 5 + 5 + 2 steps
    assert same(seen, list(expected_batches(tokenizer, seen, 9)))


def test_plain_trainer_with_workers(tokenizer, tmp_path, small_data):
    plain = train(tokenizer, tmp_path / "0", small_data)
    options = {
        "dataloader_num_workers": 2,
        "dataloader_persistent_workers": True,
        "dataloader_prefetch_factor": 4,
    }
    assert same(plain, train(tokenizer, tmp_path / "2", small_data, **options))


@pytest.mark.parametrize("kind", ["map", "stream"])
def test_resumed_run_has_the_same_batches(tokenizer, tmp_path, small_data, kind):
    """From the checkpoint at step 7: in the second epoch of 5 steps, or in the midst of a stream of unknown length."""
    data = small_data if kind == "map" else Stream(padded_rows(tokenizer)[:200])
    whole = train(tokenizer, tmp_path, data)
    rest = train(tokenizer, tmp_path, data, resume=str(tmp_path / "checkpoint-7"))
    assert len(rest) == (9 if kind == "map" else 10)
    assert same(whole[-len(rest) :], rest)
    if kind == "stream":
        assert same(whole, list(expected_batches(tokenizer, whole, 24, streamed=True)))


def test_a_row_that_a_stream_has_again_gets_other_masks(tokenizer, tmp_path):
    """The same four rows in all 24 batches of one epoch."""
    data = Stream(padded_rows(tokenizer)[:4] * 30)
    seen = train(tokenizer, tmp_path, data, dataloader_num_workers=1)
    assert same(seen, list(expected_batches(tokenizer, seen, 24, streamed=True)))
    masks = {
        tuple((batch["labels"][0] != -100).tolist()) for batch in seen[:16]
    }  # where the rate is 1/3 and more
    assert len(masks) > 10


@pytest.mark.parametrize("files", [1, 2])
def test_workers_without_a_file_do_not_count(tokenizer, tmp_path, files):
    """A stream of fewer files than workers: the rate falls with the steps, not with the workers."""
    shards = [list(range(part, 160, files)) for part in range(files)]

    def rows(shards):
        for shard in shards:
            yield from (padded_rows(tokenizer)[number] for number in shard)

    options = dict(gen_kwargs={"shards": shards})
    stream = datasets.IterableDataset.from_generator(rows, **options)
    seen = train(tokenizer, tmp_path, stream, dataloader_num_workers=3)
    assert len(seen) == 24
    assert same(seen, list(expected_batches(tokenizer, seen, 24, streamed=True)))


def test_rate_schedule_follows_a_corrected_number_of_steps(tokenizer):
    collator, corrected = (MaskedLMCollator(tokenizer, seed=0, **SCHEDULES[1]) for _ in range(2))
    callback = MaskingProgress(collator)
    callback.on_step_end(None, SimpleNamespace(max_steps=4), None)
    corrected.set_progress(0, total_steps=4)
    rows = batches(padded_rows(tokenizer)[:40], 10)
    assert same(
        [collator(examples) for examples in rows], [corrected(examples) for examples in rows]
    )


@pytest.mark.parametrize(
    ("last", "expected"), [(None, [0.4, 0.4, 0.4, 0.4, 0.4]), (0.2, [0.4, 0.35, 0.3, 0.25, 0.2])]
)
def test_rate_schedule_is_piecewise_linear(tokenizer, last, expected):
    rows = padded_rows(tokenizer)[:50]
    collator = MaskedLMCollator(tokenizer, mlm_probability=0.4, seed=0, last_mlm_probability=last)
    for step, rate in zip(range(0, 101, 25), expected):
        collator.set_progress(epoch=2, step=step, total_steps=100)
        constant = MaskedLMCollator(tokenizer, mlm_probability=rate, seed=0)
        constant.set_progress(epoch=2)
        assert same([collator(rows)], [constant(rows)])


def test_evaluation_does_not_change_the_schedule(tokenizer, small_data, tmp_path):
    kwargs = dict(save_strategy="no", eval_strategy="steps", eval_steps=1)
    with_evaluations = train(tokenizer, tmp_path / "a", small_data, evaluation=small_data, **kwargs)
    plain = train(tokenizer, tmp_path / "b", small_data, save_strategy="no")
    assert same(with_evaluations, plain)
