"""Mixtures: sources are drawn as their sizes, weights and alpha say, nothing is lost, and bad ones are refused."""

import math

import datasets
import numpy as np
import pytest

import minibert
from minibert.tokenization import train_tokenizer
from minibert.training.data.corpus import Corpus
from minibert.training.data.documents import load_documents
from minibert.training.data.mixtures import load_sample, split_corpus
from minibert.training.data.packing import pack_documents
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.data.validation_documents import held_out_mask

pytestmark = pytest.mark.usefixtures("cache")


SIZES = {"de": 300, "fr": 90, "tr": 12}


@pytest.fixture
def sources(tmp_path):
    """Files of numbered documents that begin with their language, as entries of --data."""
    for language, size in SIZES.items():
        lines = (f"{language} document number {i} of {size}" for i in range(size))
        (tmp_path / f"{language}.txt").write_text("\n".join(lines))
    return [f"{language}={tmp_path / language}.txt" for language in SIZES]


def prepare(data, weights=(), sampling_alpha=None, validation_size=0.1, seed=0, **options):
    corpus = Corpus(data, weights=weights, sampling_alpha=sampling_alpha)
    return split_corpus(corpus, validation_size=validation_size, seed=seed, **options)


def split(data):
    documents = load_documents(data)
    held_out = held_out_mask(documents, 0.1, 0)
    return [documents.select(np.flatnonzero(side)) for side in (~held_out, held_out)]


def counts(documents):
    languages = [text.split()[0] for text in documents["text"]]
    return {language: languages.count(language) for language in SIZES}


def test_plain_sources_are_concatenated(sources):
    plain = [source.partition("=")[2] for source in sources]
    documents = prepare(plain)
    expected = split(plain)
    assert documents.train["text"][:] == expected[0]["text"][:]
    assert documents.validation["text"][:] == expected[1]["text"][:]
    assert documents.tokenizer_sample is documents.train
    assert prepare(sources, sampling_alpha=1.0).train["text"][:] == expected[0]["text"][:]


@pytest.mark.parametrize(
    "arguments, weights, alpha",
    [
        ({}, None, 0.3),  # languages
        ({"sampling_alpha": 0.0}, None, 0.0),
        ({"weights": [1.0, 2.0, 1.0]}, [1, 2, 1], 1.0),  # weights are taken as they are
        ({"weights": [3.0, 9.0, 1.0], "sampling_alpha": 0.5}, [3, 9, 1], 0.5),
    ],
)
def test_sampling_follows_weights_and_alpha(sources, capsys, arguments, weights, alpha):
    """Within 5 standard errors of p ∝ n^α; every document comes, each source in its order and then from its start."""
    documents = prepare(sources, **arguments)
    train, validation = split(sources)  # the split does not depend on the mixture
    assert documents.validation["text"][:] == validation["text"][:]
    for name in SIZES:
        own, drawn = (
            [text for text in part["text"] if text.startswith(name)]
            for part in (train, documents.train)
        )
        assert drawn == [own[i % len(own)] for i in range(len(drawn))] and len(drawn) >= len(own)
    for part in (documents.train, documents.validation):
        assert part.features["source"].int2str(part["source"][:]) == [
            text.split()[0] for text in part["text"]
        ]

    sizes, drawn = counts(train), counts(documents.train)
    powers = {
        name: (n if weights is None else weights[i]) ** alpha
        for i, (name, n) in enumerate(sizes.items())
    }
    total = sum(drawn.values())
    for name, power in powers.items():
        p = power / sum(powers.values())
        assert abs(drawn[name] - total * p) < 5 * math.sqrt(total * p * (1 - p))
    printed = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    for name in SIZES:
        assert printed[name] == [
            f"{sizes[name]:,}",
            f"{drawn[name]:,}",
            f"{drawn[name] / total:.1%}",
        ]


def test_only_languages_keep_their_source(sources):
    assert prepare(sources[:1]).train.column_names == ["text"]
    files = [source.partition("=")[2] for source in sources]  # which may be as many as documents
    assert prepare(files, weights=[1.0, 2.0, 1.0]).train.column_names == ["text"]


def test_a_seed_draws_one_order_and_its_tokens_are_cached(sources):
    first, again, other = (prepare(sources, seed=seed).train for seed in (1, 1, 2))
    assert first["text"][:] == again["text"][:] != other["text"][:]
    tokenizer = train_tokenizer(first["text"], vocab_size=120, show_progress=False)
    tokens = [tokenize_documents(part, tokenizer) for part in (first, again)]
    assert tokens[0].cache_files and tokens[0].cache_files == tokens[1].cache_files
    rows = [pack_documents(part, tokenizer, 64) for part in tokens]
    assert rows[0].cache_files == rows[1].cache_files
    texts = tokenizer.batch_decode(rows[0]["input_ids"][:])
    assert any(
        "de document" in text and "fr document" in text for text in texts
    )  # mixed, then packed


def test_the_tokenizers_sample(sources):
    mixed = load_sample(Corpus(sources))
    drawn = counts(mixed)
    assert drawn["de"] >= SIZES["de"] and drawn["tr"] > 5 * SIZES["tr"]
    plain = load_sample(Corpus(sources, sampling_alpha=1.0))
    assert counts(plain) == SIZES


def test_bad_mixtures_are_refused(sources, tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n\t\n")
    (tmp_path / "one.txt").write_text("only one")
    for data, arguments, message in (
        (
            sources,
            {"weights": [1.0, 2.0]},
            "weights: 1.0, 2.0; give each of the 3 entries of data a number above 0",
        ),
        (sources, {"weights": [1.0, -2.0, 1.0]}, "weights: 1.0, -2.0, 1.0; give each"),
        (sources, {"sampling_alpha": math.nan}, "sampling_alpha must be .*, got nan"),
        (
            sources,
            {"weights": [1.0, 1.0, 1e-6]},
            "weights: an epoch with every document would have about",
        ),
        (
            [*sources, f"uk={tmp_path / 'blank.txt'}"],
            {},
            "all documents of 'uk=.*blank.txt' are blank",
        ),
        ([*sources, f"uk={tmp_path / 'one.txt'}"], {"validation_size": 400}, "is left to train on"),
        ([f"uk={tmp_path / 'one.txt'}"], {}, "data: a training needs 10 documents or more, got 1"),
        ([*sources, str(tmp_path / "one.txt")], {}, "one.txt' names no language but others do"),
        ([*sources, sources[1]], {}, "data: 'fr' names two entries; .* each entry once"),
        ([*sources, f"de={tmp_path / 'one.txt'}"], {}, "data: 'de' names two entries"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(data, **arguments)


def test_data_sets_in_memory_are_mixed():
    """They have no names: their documents are told apart all the same."""
    parts = []
    for language, size in SIZES.items():
        texts = [f"{language} document number {number}" for number in range(size)]
        parts.append(datasets.Dataset.from_dict({"text": texts}))
    corpus = Corpus(parts, weights=[1.0, 1.0, 1.0])
    assert corpus.names == ["data set 1", "data set 2", "data set 3"]
    drawn = counts(load_sample(corpus))
    for language, size in SIZES.items():
        assert drawn[language] >= size and drawn[language] / sum(drawn.values()) > 0.25


def test_a_path_may_have_an_equals_sign(tmp_path, monkeypatch):
    (tmp_path / "lang=de").mkdir()
    (tmp_path / "lang=de" / "a.txt").write_text("eins\nzwei")
    monkeypatch.chdir(tmp_path)
    for item in ("lang=de", "de=lang=de", "lang=de/*.txt", "de=lang=de/*.txt"):
        assert load_documents([item])["text"][:] == ["eins", "zwei"]


@pytest.mark.parametrize("data", [[], ()])
@pytest.mark.parametrize("function", [minibert.Corpus, minibert.pretrain, minibert.prepare])
def test_an_empty_list_is_not_the_builtin_corpus(function, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="^data: an empty list"):
        function(data)
    assert not list(tmp_path.iterdir())
    assert minibert.Corpus().data == []
