"""Masking: what is chosen, what becomes of it and how often, words and spans, whole batches, bad input."""

import copy
import functools
import math

import datasets
import numpy as np
import pytest
import torch
from helpers import TEXTS, batches, packed_rows, padded_rows, same
from transformers import DataCollatorForLanguageModeling, DataCollatorWithFlattening

from minibert.tokenization import train_tokenizer, word_start_table
from minibert.training.data.collators import MaskedLMCollator
from minibert.training.data.masking import MASKING_KINDS
from minibert.training.data.packing import unigram_counts
from minibert.training.pretraining.data_parallel import halve

ALGORITHMS = ("wordpiece", "bpe", "unigram")
STANDARD_ERRORS = 5


@pytest.fixture(scope="module")
def tokenizers():
    return {
        name: train_tokenizer(TEXTS, algorithm=name, vocab_size=500, show_progress=False)
        for name in ALGORITHMS
    }


@pytest.fixture(scope="module")
def tokenizer(tokenizers):
    return tokenizers["wordpiece"]


def outcome(row, batch_row, special):
    """What became of the tokens of one row, in plain Python: (candidates, targets, masked, random, kept) positions."""
    ids = row["input_ids"]
    read, labels = batch_row["input_ids"].tolist(), batch_row["labels"].tolist()
    candidates = {i for i, token in enumerate(ids) if token not in special}
    targets = {i for i, label in enumerate(labels) if label != -100}
    masked = {i for i in targets if read[i] == special["mask"]}
    kept = {i for i in targets if read[i] == ids[i]}
    assert all(labels[i] == ids[i] for i in targets)
    assert all(read[i] == ids[i] for i in range(len(ids)) if i not in targets)
    return candidates, targets, masked, targets - masked - kept, kept


class Special(dict):
    """The special ids of a tokenizer, with the mask's under "mask"."""

    def __init__(self, tokenizer):
        super().__init__(
            dict.fromkeys(tokenizer.all_special_ids, True), mask=tokenizer.mask_token_id
        )


def outcomes(collator, rows, epochs=1):
    """(row, batch row, outcome) of every row in every epoch."""
    special = Special(collator.tokenizer)
    for epoch in range(epochs):
        collator.set_progress(epoch)
        for examples in batches(rows):
            batch = collator(examples)
            for number, row in enumerate(examples):
                batch_row = {name: column[number] for name, column in batch.items()}
                yield row, batch_row, outcome(row, batch_row, special)


def assert_share(parts, wholes, expected):
    """Σ parts / Σ wholes is `expected`, within 5 standard errors of clusters that are independent of one another."""
    parts, wholes = np.asarray(parts, float), np.asarray(wholes, float)
    error = math.sqrt(((parts - expected * wholes) ** 2).sum()) / wholes.sum()
    assert wholes.sum() > 1000
    assert error < 0.05, "too few tokens to tell"
    assert abs(parts.sum() / wholes.sum() - expected) <= STANDARD_ERRORS * error


def assert_distributed(observed, weights):
    """Counts fit the weights: Pearson's chi-square, made normal by Wilson and Hilferty's cube root."""
    expected = weights / weights.sum() * observed.sum()
    assert expected.min() > 5, "too few to tell"
    degrees = len(observed) - 1
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert (statistic / degrees) ** (1 / 3) - (
        1 - 2 / (9 * degrees)
    ) <= STANDARD_ERRORS * math.sqrt(2 / (9 * degrees))


# --- Rates ---------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(5)
@pytest.mark.parametrize("rate", [pytest.param(0.15, marks=pytest.mark.slow), 0.4])
@pytest.mark.parametrize("make_rows", [padded_rows, packed_rows])
@pytest.mark.parametrize("masking", MASKING_KINDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_masking_rates(tokenizers, algorithm, masking, make_rows, rate):
    tokenizer = tokenizers[algorithm]
    collator = MaskedLMCollator(
        tokenizer, masking=masking, mlm_probability=rate, seed=1, at_least_one_target=False
    )
    found = outcomes(collator, make_rows(tokenizer), epochs=2)
    counts = np.array([[len(part) for part in parts] for _, _, parts in found])
    candidates, targets, masked, other, kept = counts.T
    assert_share(targets, candidates, rate)
    assert_share(masked, targets, 0.8)
    assert_share(other, targets, 0.1)
    assert_share(kept, targets, 0.1)


def test_evaluation_keeps_its_masks_and_its_rate(tokenizer):
    rows = padded_rows(tokenizer)
    collator = MaskedLMCollator(
        tokenizer, mlm_probability=0.5, seed=9, last_mlm_probability=0.3, masking="whole_word"
    )
    evaluation = collator.for_evaluation()
    first = [evaluation(examples) for examples in batches(rows)]
    collator.set_progress(3, 5, 10)
    collator(rows[:5])
    assert same(first, [evaluation(examples) for examples in batches(rows)])
    counts = np.array([[len(part) for part in found] for *_, found in outcomes(evaluation, rows)])
    assert_share(counts[:, 1], counts[:, 0], 0.15)
    assert evaluation.masking == "whole_word"


# --- Words and spans -----------------------------------------------------------------------------------------------


def words_of(row, begins, special):
    """The words of a row as lists of positions, by walking over it: a new one at a token that begins a word, after a
    special token, and at the beginning of a document."""
    positions = row.get("position_ids", range(len(row["input_ids"])))
    words, running = [], False
    for i, token in enumerate(row["input_ids"]):
        if token in special:
            running = False
            continue
        if running and not begins[token] and positions[i] != 0:
            words[-1].append(i)
        else:
            words.append([i])
        running = True
    return words


def fates(word, found):
    masked, other, kept = found[2:]
    return {
        next((n for n, part in enumerate((masked, other, kept)) if i in part), None) for i in word
    }


@pytest.mark.parametrize("make_rows", [padded_rows, packed_rows])
@pytest.mark.parametrize("masking", ["whole_word", "span", "ngram"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_words_are_masked_whole(tokenizers, algorithm, masking, make_rows):
    tokenizer = tokenizers[algorithm]
    collator = MaskedLMCollator(tokenizer, masking=masking, mlm_probability=0.3, seed=0)
    begins, special = word_start_table(tokenizer), tokenizer.all_special_ids
    lengths, chosen = [], []
    for row, _, found in outcomes(collator, make_rows(tokenizer)):
        for word in words_of(row, begins, special):
            assert len(fates(word, found)) == 1, (
                "a word is split, or has more than one 80/10/10 draw"
            )
            lengths.append(len(word))
            chosen.append(word[0] in found[1])
    assert max(lengths) > 2 and any(chosen) and not all(chosen)


def test_whole_words_share_one_replacement_draw(tokenizer):
    """80/10/10 holds for words counted once, and whether a word is chosen does not depend on its length."""
    collator = MaskedLMCollator(tokenizer, whole_word_mask=True, seed=0, at_least_one_target=False)
    assert collator.masking == "whole_word"
    begins, special = word_start_table(tokenizer), tokenizer.all_special_ids
    found_fates, single, several = [], [], []
    for row, _, found in outcomes(collator, packed_rows(tokenizer), epochs=2):
        for word in words_of(row, begins, special):
            (fate,) = fates(word, found)
            (single if len(word) == 1 else several).append(fate is not None)
            if fate is not None:
                found_fates.append(fate)
    for number, expected in enumerate((0.8, 0.1, 0.1)):
        assert_share([fate == number for fate in found_fates], np.ones(len(found_fates)), expected)
    assert_share(single, np.ones(len(single)), 0.15)
    assert_share(several, np.ones(len(several)), 0.15)


@functools.cache
def word_starts(tokenizer):
    starts = np.flatnonzero(word_start_table(tokenizer))
    return starts[~np.isin(starts, tokenizer.all_special_ids)]


def word_row(rng, tokenizer, words):
    """A row of `words` single-token words."""
    starts = word_starts(tokenizer)
    return {
        "input_ids": [
            tokenizer.cls_token_id,
            *rng.choice(starts, words).tolist(),
            tokenizer.sep_token_id,
        ]
    }


@pytest.mark.parametrize(
    ("masking", "weights", "mean_length"),
    [
        ("span", [0.2 * 0.8 ** (length - 1) for length in range(1, 11)], 3.8),  # SpanBERT 3.1
        ("ngram", [1, 1 / 2, 1 / 3], 18 / 11),  # ALBERT 4.1
    ],
)
def test_lengths_of_spans(tokenizer, masking, weights, mean_length):
    """At a low rate spans seldom touch, so runs of targets are spans."""
    rng = np.random.default_rng(0)
    collator = MaskedLMCollator(
        tokenizer, masking=masking, mlm_probability=0.005, seed=0, at_least_one_target=False
    )
    runs = np.zeros(40)
    for _ in range(45):
        labels = collator([word_row(rng, tokenizer, 20_000)])["labels"][0].tolist()
        length = 0
        for label in labels:
            if label != -100:
                length += 1
            elif length:
                runs[length] += 1
                length = 0
    expected = np.array(weights) / sum(weights)
    longest = len(weights)
    assert runs.sum() > 1000
    error = np.sqrt(expected * (1 - expected) / runs.sum())
    # Two spans touch once in about 750 spans, which the tolerance allows for.
    assert (
        np.abs(runs[1 : longest + 1] / runs.sum() - expected) <= STANDARD_ERRORS * error + 1 / 500
    ).all()
    assert runs[longest + 1 :].sum() <= runs.sum() / 100
    mean = (np.arange(40) * runs).sum() / runs.sum()
    assert mean == pytest.approx(mean_length, abs=0.3)


def test_spans_are_as_frequent_at_the_edges_of_a_row(tokenizer):
    rng = np.random.default_rng(0)
    collator = MaskedLMCollator(tokenizer, masking="span", seed=0)
    rows = [word_row(rng, tokenizer, 30)["input_ids"] for _ in range(4000)]
    chosen = collator(rows)["labels"].numpy()[:, 1:31] != -100
    error = math.sqrt(0.15 * 0.85 / len(rows))
    assert (np.abs(chosen.mean(axis=0) - 0.15) <= STANDARD_ERRORS * error).all()
    # A row begins amid a span of length l as often as such spans have words, and in any of these alike.
    lengths = np.arange(1, 11)
    p = 0.8**lengths / (0.8**lengths).sum()
    mean = p @ lengths
    touches = 0.15 / (0.15 + mean * 0.85)  # the next span
    expected = p @ (lengths * (lengths + 1) / 2) / mean + mean * touches / (1 - touches)
    runs = chosen[chosen[:, 0] & ~chosen.all(axis=1)].argmin(axis=1)
    assert abs(runs.mean() - expected) <= STANDARD_ERRORS * runs.std() / math.sqrt(len(runs))


# --- Random replacements -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_random_tokens_are_other_ordinary_tokens(tokenizers, algorithm):
    tokenizer = tokenizers[algorithm]
    original = len(tokenizer) - 7
    rates = dict(mlm_probability=1.0, mask_replace_prob=0.0, random_replace_prob=1.0)
    collator = MaskedLMCollator(tokenizer, seed=0, **rates)
    found = collator([{"input_ids": [original] * 100_000}])["input_ids"][0].numpy()
    legal = np.setdiff1d(np.arange(len(tokenizer)), [original, *tokenizer.all_special_ids])
    observed = np.bincount(found, minlength=len(tokenizer))
    assert observed[legal].sum() == len(found)
    assert_distributed(observed[legal], np.ones(len(legal)))


def test_unigram_counts(tokenizer):
    rows = padded_rows(tokenizer)
    counts = unigram_counts(datasets.Dataset.from_list(rows), len(tokenizer))
    assert counts.tolist() == [
        sum(row["input_ids"].count(token) for row in rows) for token in range(len(tokenizer))
    ]


# --- At least one target -------------------------------------------------------------------------------------------


def short_documents(tokenizer, lengths, repeats):
    """Packed rows of documents with 1, 2, 3 … ordinary tokens, different in every row."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(repeats):
        row = {"input_ids": [], "position_ids": []}
        for length in lengths:
            row["input_ids"] += [2, *rng.integers(5, len(tokenizer), length).tolist(), 3]
            row["position_ids"] += range(length + 2)
        rows.append(row)
    return rows


@pytest.mark.parametrize("masking", MASKING_KINDS)
def test_every_packed_document_has_a_target(tokenizer, masking):
    collator = MaskedLMCollator(tokenizer, masking=masking, seed=0)
    starts = word_start_table(tokenizer)
    places = []
    for row, batch_row, _ in outcomes(collator, short_documents(tokenizer, (1, 2, 3, 8), 300)):
        begins = [i for i, position in enumerate(row["position_ids"]) if position == 0]
        for begin, end in zip(begins, [*begins[1:], len(row["input_ids"])]):
            targets = [i for i in range(begin, end) if batch_row["labels"][i] != -100]
            assert targets
            if end - begin == 10 and masking == "token" and len(targets) == 1:
                places.append(targets[0] - begin - 1)
            assert masking == "token" or all(
                batch_row["labels"][i + 1] != -100
                for i in targets
                if i + 2 < end and not starts[row["input_ids"][i + 1]]
            )
    if masking == "token":  # a single target is equally likely everywhere
        assert_distributed(np.bincount(places, minlength=8), np.ones(8))


def test_at_least_one_target_adds_no_more_than_it_must(tokenizer):
    """n tokens have n·r targets on average, and (1 − r)^n more for those documents that chance left without."""
    rows = [{"input_ids": row["input_ids"]} for row in short_documents(tokenizer, (3,), 4000)]
    for forced, expected in ((True, (3 * 0.15 + 0.85**3) / 3), (False, 0.15), (None, 0.15)):
        collator = MaskedLMCollator(tokenizer, seed=0, at_least_one_target=forced)
        counts = [len(found[1]) for *_, found in outcomes(collator, rows)]
        assert_share(counts, np.full(len(counts), 3), expected)


# --- Evaluation, copies --------------------------------------------------------------------------------------------


def test_an_evaluation_set_is_masked_once(tokenizer):
    """As the docstring says, for a plain Trainer, which evaluates with the collator of the training."""
    rows = packed_rows(tokenizer)[:30]
    collator = MaskedLMCollator(tokenizer, mlm_probability=0.4, seed=5)
    evaluation = collator.for_evaluation()
    masked = datasets.Dataset.from_list(rows).map(
        lambda row: {
            name: column[0] for name, column in evaluation([row], return_tensors="np").items()
        }
    )
    for epoch in range(2):
        collator.set_progress(epoch)
        assert same([collator(masked.to_list())], [evaluation(rows)])


# --- Batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pad_token_id", [0, 40])
def test_batches_match_the_collator_of_transformers(tokenizer, pad_token_id):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad_token_id)
    rows = [tokenizer(text) for text in TEXTS[:5]]
    for options in ({}, {"pad_to_multiple_of": 16}):
        ours = MaskedLMCollator(tokenizer, seed=0, **options)(rows)
        theirs = DataCollatorForLanguageModeling(tokenizer, seed=0, **options)(
            [dict(row) for row in rows]
        )
        assert ours.keys() == theirs.keys()
        for name, column in theirs.items():
            assert ours[name].shape == column.shape and ours[name].dtype == column.dtype
        for name in ("attention_mask", "token_type_ids"):
            assert torch.equal(ours[name], theirs[name])
        assert (ours["labels"][ours["attention_mask"] == 0] == -100).all()
        assert (ours["input_ids"][ours["attention_mask"] == 0] == pad_token_id).all()


def test_without_mlm_no_first_token_of_a_document_is_a_target(tokenizer):
    """A document begins where a position is not the one before plus 1."""
    row = dict(input_ids=[7, 8, 9, 10, 11, 12], position_ids=[0, 1, 5, 6, 6, 7])
    labels = MaskedLMCollator(tokenizer, mlm=False)([row])["labels"]
    assert labels.tolist() == [[-100, 8, -100, 10, -100, 12]]


def test_without_mlm_and_padding_the_batch_is_the_one_of_transformers(tokenizer):
    """No document predicts the first token of the next one, also under a loss that shifts the labels of a whole row."""
    rows = [{"input_ids": row} for row in tokenizer(TEXTS[:5])["input_ids"]]
    ours = MaskedLMCollator(tokenizer, mlm=False, unpadded=True)(rows)
    theirs = DataCollatorWithFlattening(return_position_ids=False, return_flash_attn_kwargs=True)(
        rows
    )
    assert ours.keys() == theirs.keys()
    for name in ("input_ids", "labels", "cu_seq_lens_q"):
        assert torch.equal(ours[name], torch.as_tensor(theirs[name])), name


def test_padding_on_the_left(tokenizers):
    tokenizer = tokenizers["bpe"]
    rows = packed_rows(tokenizer, 2)[:4]
    right = MaskedLMCollator(tokenizer, seed=0)(rows)
    tokenizer.padding_side = "left"
    try:
        left = MaskedLMCollator(tokenizer, seed=0)(rows)
    finally:
        tokenizer.padding_side = "right"
    for name, column in right.items():
        for i, row in enumerate(rows):
            length = len(row["input_ids"])
            assert torch.equal(column[i, :length], left[name][i, column.shape[1] - length :])
    assert (
        left["position_ids"][0].tolist()[-len(rows[0]["position_ids"]) :] == rows[0]["position_ids"]
    )


def test_row_types(tokenizer):
    row = [2, 7, 8, 3]
    collator = MaskedLMCollator(tokenizer, seed=0, mlm_probability=1.0)
    plain = collator([{"input_ids": row}])
    for other in (
        row,
        torch.tensor(row),
        {"input_ids": np.array(row, dtype=np.int32), "offset_mapping": [(0, 1)] * 4},
    ):
        assert same([plain], [collator([other])])
    assert collator([row], return_tensors="np")["labels"].tolist() == plain["labels"].tolist()
    pair = collator(
        [{"input_ids": row, "next_sentence_label": 1}, {"input_ids": row, "next_sentence_label": 0}]
    )
    assert pair["next_sentence_label"].tolist() == [1, 0]


def test_special_tokens_and_padding_are_never_chosen(tokenizer):
    everything = MaskedLMCollator(tokenizer, seed=0, mlm_probability=1.0)
    special = tokenizer.all_special_ids
    labels = everything([{"input_ids": [*special, 9, *special, 10]}])["labels"][0].tolist()
    assert [label for label in labels if label != -100] == [9, 10]
    row = {
        "input_ids": [2, 9, 10, 11, 3],
        "special_tokens_mask": [1, 0, 1, 0, 1],
        "attention_mask": [1, 1, 1, 0, 0],
    }
    batch = everything([row])
    assert batch["labels"][0].tolist() == [-100, 9, -100, -100, -100]
    assert "special_tokens_mask" not in batch
    assert batch["attention_mask"][0].tolist() == [1, 1, 1, 0, 0]


# --- Batches without padding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_rows", [padded_rows, packed_rows])
@pytest.mark.parametrize("masking", MASKING_KINDS)
def test_an_unpadded_batch_is_the_padded_one_without_padding(tokenizer, masking, make_rows):
    rows = make_rows(tokenizer)[:40]
    options = dict(masking=masking, seed=3, last_mlm_probability=0.5)
    padded, unpadded = (
        MaskedLMCollator(tokenizer, **options),
        MaskedLMCollator(tokenizer, **options, unpadded=True),
    )
    for epoch in range(2):
        padded.set_progress(epoch, 3, 10)
        unpadded.set_progress(epoch, 3, 10)
        for ours, theirs in (
            (unpadded, padded),
            (unpadded.for_evaluation(), padded.for_evaluation()),
        ):
            batch, expected = ours(rows), theirs(rows)
            real = expected.pop("attention_mask") == 1
            positions = expected.pop("position_ids", None)
            bounds, longest = batch.pop("cu_seq_lens_q"), batch.pop("max_length_q")
            assert torch.equal(batch.pop("cu_seq_lens_k"), bounds) and bounds.dtype == torch.int32
            assert torch.equal(
                batch.pop("masked_lm_positions"), (batch["labels"][0] != -100).nonzero()[:, 0]
            )
            assert (
                type(longest) is int and longest == batch.pop("max_length_k") == bounds.diff().max()
            )
            assert same([batch], [{name: column[real][None] for name, column in expected.items()}])
            counted = torch.cat([torch.arange(length) for length in bounds.diff()])
            if positions is None:
                assert bounds.diff().tolist() == [len(row["input_ids"]) for row in rows]
            else:
                assert torch.equal(counted, positions[real])


@pytest.mark.parametrize("mlm", [True, False])
def test_halves_of_an_unpadded_batch(tokenizer, mlm):
    """Cut between documents, near the middle; what is mostly one document, and padded rows, stay whole."""
    rows = packed_rows(tokenizer)
    batch = MaskedLMCollator(tokenizer, mlm=mlm, seed=0, unpadded=True, target_draws=mlm)(rows) | {
        "items": 7
    }
    halves = halve(batch)
    tokens = [half["input_ids"].shape[1] for half in halves]
    lengths = [half["cu_seq_lens_q"].diff() for half in halves]
    assert len(halves) == 2 and torch.equal(torch.cat(lengths), batch["cu_seq_lens_q"].diff())
    assert abs(tokens[0] - tokens[1]) <= batch["max_length_q"] and [
        each["items"] for each in halves
    ] == [7, 7]
    for name in ("input_ids", "labels", *(["target_draws"] if mlm else [])):
        assert torch.equal(torch.cat([half[name] for half in halves], 1), batch[name])
    for half, length in zip(halves, lengths):
        assert (
            half["max_length_q"] == half["max_length_k"] == length.max()
            and half["cu_seq_lens_k"][0] == 0
        )
    if mlm:
        places = [halves[0]["masked_lm_positions"], halves[1]["masked_lm_positions"] + tokens[0]]
        assert torch.equal(torch.cat(places), batch["masked_lm_positions"])
    else:
        assert "masked_lm_positions" not in halves[0]
    collator, ids = (
        MaskedLMCollator(tokenizer, seed=0, unpadded=True),
        batch["input_ids"][0].tolist(),
    )
    alone, mostly = (
        collator([{"input_ids": ids[:length]} for length in lengths])
        for lengths in ((30,), (60, 29))
    )
    padded = MaskedLMCollator(tokenizer, seed=0)(rows)
    assert all(halve(each) == [each] for each in (alone, mostly, padded))
    assert len(halve(collator([{"input_ids": ids[:length]} for length in (60, 31)]))) == 2


# --- Bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mlm_probability": 1.5}, "mlm_probability must be from 0 to 1, got 1.5"),
        ({"mlm_probability": float("nan")}, "mlm_probability must be from 0 to 1, got nan"),
        (
            {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
            "random_replace_prob must be from 0 to 1, got 1.1",
        ),
        ({"masking": "words"}, "masking: 'words' .* use one of token, whole_word, span"),
        ({"last_mlm_probability": 1.2}, "last_mlm_probability must be from 0 to 1, got 1.2"),
    ],
)
def test_bad_arguments_are_refused(tokenizer, kwargs, message):
    with pytest.raises(ValueError, match=message):
        MaskedLMCollator(tokenizer, **kwargs)


@pytest.mark.parametrize("unpadded", [False, True])
def test_the_end_of_a_document_is_predicted_where_padding_has_its_id(tokenizer, unpadded):
    other = copy.deepcopy(tokenizer)
    other.pad_token = other.sep_token
    cls, sep = other.cls_token_id, other.sep_token_id
    rows = [{"input_ids": [cls, 7, 8, sep, cls, 9, sep], "position_ids": [0, 1, 2, 3, 0, 1, 2]}]
    rows.append({"input_ids": [cls, 7, sep], "position_ids": [0, 1, 2]})
    labels = MaskedLMCollator(other, mlm=False, unpadded=unpadded)(rows)["labels"]
    expected = [-100, 7, 8, sep, -100, 9, sep, -100, 7, sep, *[-100] * (0 if unpadded else 4)]
    assert labels.flatten().tolist() == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"input_ids": [2, 9, 3], "position_ids": [0, 1]}],
            "position_ids: a row has more or fewer values",
        ),
        ([{"input_ids": [2, 9], "labels": 1}], "labels: a row has more or fewer values"),
        (
            [{"input_ids": [2, 9], "position_ids": [0, 1]}, {"input_ids": [2, 9]}],
            "position_ids: some rows",
        ),
        (
            [{"input_ids": [2, 9]}, {"input_ids": [2, 9], "next_sentence_label": 1}],
            "next_sentence_label: the collator",
        ),
        ([{"input_ids": [2, 9], "text": "abc"}], "text: the collator cannot batch this column"),
        ([{"input_ids": [2, 7, 3], "labels": [2, 7, 3]}], "labels"),  # which repeat the input
    ],
)
def test_bad_rows_are_refused(tokenizer, rows, message):
    with pytest.raises(ValueError, match=message):
        MaskedLMCollator(tokenizer, seed=0)(rows)
    with pytest.raises(
        ValueError, match="next_sentence_label: one number a row does not fit unpadded=True"
    ):
        MaskedLMCollator(tokenizer, seed=0, unpadded=True)(
            [{"input_ids": [2, 9, 3], "next_sentence_label": 1}]
        )
