"""The first word embeddings: against counts made in loops and a dense decomposition."""

import math
import random
from collections import Counter

import datasets
import numpy as np
import pytest
import torch
from helpers import build, sentences

from minibert import MiniBertConfig, PretrainingConfig, PretrainingTrainer
from minibert.training.pretraining import cooccurrence
from minibert.training.pretraining.config import check_config
from minibert.training.pretraining.cooccurrence import begin_with_word_vectors, word_vectors

SPECIAL, WORDS = (0, 1), 12


@pytest.fixture(scope="module")
def rows():
    rng = random.Random(0)
    return [
        [0, *(rng.choice([n, n, 2 + n % 10]) for n in rng.choices(range(2, WORDS), k=20)), 1]
        for _ in range(30)
    ]


def by_loops(rows, most):
    """Neighbours up to two places away, each place a column of its own; only the `most` frequent words are some."""
    counts, frequent = (
        Counter(),
        Counter(word for row in rows for word in row if word not in SPECIAL),
    )
    neighbours = {
        word for word, _ in sorted(frequent.items(), key=lambda item: (-item[1], item[0]))[:most]
    }
    for row in rows:
        for i, word in enumerate(row):
            for place in (-2, -1, 1, 2):
                if (
                    0 <= i + place < len(row)
                    and word not in SPECIAL
                    and row[i + place] in neighbours
                ):
                    counts[word, (place, row[i + place])] += 1
    of_word, of_context = Counter(), Counter()
    for (word, context), count in counts.items():
        of_word[word] += count
        of_context[context] += count
    smoothed = sum(count**0.75 for count in of_context.values())
    information = np.zeros((WORDS, len(of_context)))
    for column, (context, count) in enumerate(of_context.items()):
        for word in of_word:
            if together := counts[word, context]:
                share = count**0.75 / smoothed
                information[word, column] = max(math.log(together / of_word[word] / share), 0)
    return information


@pytest.mark.parametrize("most", [WORDS, 6])
def test_vectors_are_the_decomposition_of_the_counts(rows, most, monkeypatch):
    monkeypatch.setattr(cooccurrence, "NUM_NEIGHBOURS", most)
    left, scale, _ = np.linalg.svd(by_loops(rows, most), full_matrices=False)
    for width in (4, WORDS, 20):
        expected = left[:, :width] * np.sqrt(scale[:width])
        products = expected @ expected.T * WORDS * width / np.square(expected).sum()
        found = word_vectors(rows, WORDS, width, SPECIAL).double().numpy()
        assert found.shape == (WORDS, width) and np.allclose(found @ found.T, products, atol=1e-5)
        assert not found[[*SPECIAL]].any()


def test_words_with_like_neighbours_have_like_vectors():
    rng = random.Random(0)
    rows = [[2, rng.choice((4, 5)), 3, rng.choice((6, 7))] for _ in range(200)]
    cosines = torch.nn.functional.normalize(word_vectors(rows, 8, 3), dim=1)
    cosines = cosines @ cosines.T
    assert min(cosines[4, 5], cosines[6, 7]) > 0.95 > 0.5 > max(cosines[4, 6], cosines[5, 7])


def test_no_neighbours_give_zeros():
    assert not word_vectors([[2], [0, 3, 1]], WORDS, 4, SPECIAL).any()


def test_a_model_begins_with_them(rows):
    model = build("ForMaskedLM", vocab_size=WORDS)
    table = model.get_input_embeddings().weight
    before = table.detach().clone()
    begin_with_word_vectors(model, rows, SPECIAL, seed=0)
    vectors = word_vectors(rows, WORDS, table.shape[1], SPECIAL)
    assert torch.equal(table[[*SPECIAL]], before[[*SPECIAL]]) and model.decoder.weight is table
    assert torch.allclose(table[2:], model.config.initializer_range * vectors[2:])


def test_pretraining_begins_with_them_unless_told_otherwise(tmp_path):
    text = datasets.Dataset.from_dict({"text": sentences(60)})

    def table(name, **more):
        still = dict(
            learning_rate=0.0,
            max_steps=1,
            vocab_size=100,
            seq_length=32,
            disable_tqdm=True,
            bf16=False,
        )
        args = PretrainingConfig(
            str(tmp_path / name), eval_strategy="no", optimizer="adamw", **still | more
        )
        trainer = PretrainingTrainer(MiniBertConfig.minibert("tiny"), args, train_dataset=text)
        trainer.train()
        return trainer.model.get_input_embeddings().weight.detach(), trainer.processing_class

    counted, tokenizer = table("counted")
    plain, _ = table("random", embedding_init="random")
    changed = (counted != plain).any(1)
    assert changed.sum() > 20 and not changed[tokenizer.all_special_ids].any()
    with pytest.raises(ValueError, match="embedding_init"):
        check_config(PretrainingConfig(str(tmp_path), embedding_init="cooccurrence"), is_new=False)
