"""The first word embeddings: against counts made in loops and a dense decomposition."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from helpers import build, refusal, sentences

import minibert
from minibert.training.pretraining import cooccurrence
from minibert.training.pretraining.cooccurrence import begin_with_word_vectors, word_vectors

SPECIAL, WORDS = (0, 1), 12


@pytest.fixture(scope="module")
def rows():
    rng = random.Random(0)
    return [[0, *(rng.choice([n, n, 2 + n % 10]) for n in rng.choices(range(2, WORDS), k=20)), 1] for _ in range(30)]


def by_loops(rows, most):
    """Neighbours up to two places away, each place a column of its own; only the `most` frequent words are some."""
    counts, frequent = Counter(), Counter(word for row in rows for word in row if word not in SPECIAL)
    neighbours = {word for word, _ in sorted(frequent.items(), key=lambda item: (-item[1], item[0]))[:most]}
    for row in rows:
        for i, word in enumerate(row):
            for place in (-2, -1, 1, 2):
                if 0 <= i + place < len(row) and word not in SPECIAL and row[i + place] in neighbours:
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
    monkeypatch.setattr(cooccurrence, "NEIGHBOURS", most)
    left, scale, _ = np.linalg.svd(by_loops(rows, most), full_matrices=False)
    for width in (4, WORDS, 20):
        expected = left[:, :width] * np.sqrt(scale[:width])
        products = expected @ expected.T * WORDS * width / np.square(expected).sum()
        found = word_vectors(rows, WORDS, width, SPECIAL).double().numpy()
        assert found.shape == (WORDS, width) and np.allclose(found @ found.T, products, atol=1e-5)
        assert not found[[*SPECIAL]].any()


def test_words_in_like_places_begin_alike():
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


def test_pretraining_begins_with_them_unless_told_otherwise(tmp_path, cache, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(sentences(60)))

    def table(name, **more):
        still = dict(learning_rate=0.0, max_steps=1, size="tiny", vocab_size=100, seq_length=32, disable_tqdm=True)
        run = minibert.pretrain(data=[str(text)], output_dir=str(tmp_path / name), optimizer="adamw", **still, **more)
        return run.model.get_input_embeddings().weight.detach(), run.tokenizer

    counted, tokenizer = table("counted")
    plain, _ = table("random", embedding_init="random")
    changed = (counted != plain).any(1)
    assert changed.sum() > 20 and not changed[tokenizer.all_special_ids].any()
    given, _ = table("modernbert", model="modernbert")  # which stays what it is
    asked, _ = table("modernbert random", model="modernbert", embedding_init="random")
    assert torch.equal(given, asked)
    said = refusal(capsys, "pretrain", "--data", text, "--model_name_or_path", tmp_path / "counted", "--embedding_init",
                   "cooccurrence", "--output_dir", tmp_path / "new")  # fmt: skip
    assert "embedding_init" in said and not (tmp_path / "new").exists()
