"""Tagging: schemes, subwords, long sentences, decoding; and training from end to end."""

import inspect
import itertools
import warnings

import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from minibert.tokenization import train_tokenizer
from minibert.training.tasks.tagging import (
    PREFIXES,
    Decoder,
    align_labels,
    convert_tags,
    cut_into_windows,
    detect_scheme,
    find_illegal,
    labels_of,
    spans_to_tags,
    tags_to_spans,
)

SCHEMES = ("bio", "io", "bioes")
SEQEVAL = {"bio": seqeval.scheme.IOB2, "bioes": seqeval.scheme.IOBES}
TYPES = ("PER", "creative-work")


def alphabet(scheme):
    return ["O", *(f"{prefix}-{kind}" for kind in TYPES for prefix in PREFIXES[scheme])]


@st.composite
def spans(draw):
    """A sentence's length and entities that do not overlap."""
    length = draw(st.integers(0, 9))
    borders = sorted(draw(st.sets(st.integers(0, length), max_size=6)))
    pieces = list(itertools.pairwise(borders))
    kinds = [draw(st.sampled_from([None, *TYPES])) for _ in pieces]
    return length, [(kind, first, last - 1) for kind, (first, last) in zip(kinds, pieces) if kind]


class TestSchemes:
    @given(spans(), st.sampled_from(SCHEMES))
    def test_there_and_back(self, sentence, scheme):
        length, entities = sentence
        tags = spans_to_tags(entities, length, scheme)
        assert len(tags) == length and find_illegal(tags, scheme) is None
        neighbours = any(a[0] == b[0] and a[2] + 1 == b[1] for a, b in itertools.pairwise(entities))
        if scheme != "io" or not neighbours:
            assert tags_to_spans(tags) == entities
        else:  # one entity instead of several, over the same words
            assert {w for _, a, b in tags_to_spans(tags) for w in range(a, b + 1)} == {
                w for _, a, b in entities for w in range(a, b + 1)
            }

    @given(spans())
    def test_bio_and_bioes_say_the_same(self, sentence):
        length, entities = sentence
        bio, bioes = (spans_to_tags(entities, length, scheme) for scheme in ("bio", "bioes"))
        assert convert_tags(bio, "bioes") == bioes and convert_tags(bioes, "bio") == bio

    @pytest.mark.parametrize("scheme", ["bio", "bioes"])
    @given(data=st.data())
    def test_legal_is_what_strict_and_lenient_seqeval_read_alike(self, scheme, data):
        tags = data.draw(st.lists(st.sampled_from(alphabet(scheme)), min_size=1, max_size=7))
        strict = {
            (entity.tag, entity.start, entity.end - 1)
            for entity in seqeval.scheme.Entities([tags], SEQEVAL[scheme]).entities[0]
        }
        words = sum(last - first + 1 for _, first, last in strict)
        legal = words == sum(tag != "O" for tag in tags)  # every tag belongs to an entity that is legal
        assert (find_illegal(tags, scheme) is None) == legal

    @pytest.mark.parametrize("scheme", SCHEMES)
    @given(data=st.data())
    @settings(deadline=None)
    def test_repair_is_seqevals(self, scheme, data):
        tags = data.draw(st.lists(st.sampled_from(alphabet(scheme)), min_size=1, max_size=7))
        repaired = convert_tags(tags, scheme)
        assert find_illegal(repaired, scheme) is None
        assert get_entities(repaired) == get_entities(tags) or scheme == "io"
        assert convert_tags(repaired, scheme) == repaired
        true = data.draw(st.lists(st.sampled_from(alphabet("bio")), min_size=len(tags), max_size=len(tags)))
        true = convert_tags(true, "bio")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lenient = seqeval.metrics.f1_score([true], [tags])
            strict = seqeval.metrics.f1_score(
                [true], [convert_tags(tags, "bio")], mode="strict", scheme=seqeval.scheme.IOB2
            )
        assert lenient == strict

    @pytest.mark.parametrize(
        "tags, scheme, word",
        [
            (["O", "I-PER"], "bio", 1),
            (["B-PER", "I-LOC"], "bio", 1),
            (["B-PER", "I-PER", "B-PER"], "bio", None),
            (["B-PER", "O"], "bioes", 1),
            (["O", "B-PER"], "bioes", 2),  # the end is reached inside an entity
            (["S-PER", "E-PER"], "bioes", 1),
            (["I-PER", "I-LOC"], "io", None),
            (["B-PER"], "io", 0),
            (["PER"], "bio", 0),
            (["B-"], "bio", 0),
            (["NN", "VB"], "none", None),
        ],
    )
    def test_where_tags_are_not_legal(self, tags, scheme, word):
        assert find_illegal(tags, scheme) == word

    @pytest.mark.parametrize(
        "tags, scheme",
        [
            ({"O", "B-PER"}, "bio"),
            ({"O", "I-PER", "B-PER"}, "bio"),
            ({"O", "I-PER"}, "io"),
            ({"O", "B-PER", "E-PER", "S-PER"}, "bioes"),
            ({"S-PER", "O"}, "bioes"),
            ({"NN", "VB", "O"}, "none"),
            ({"O", "B-PER", "LOC"}, "bio"),  # which is then not legal
        ],
    )
    def test_detection(self, tags, scheme):
        assert detect_scheme(tags) == scheme

    def test_labels(self):
        assert labels_of(["O", "I-B", "B-A"], "bio") == ["O", "B-A", "I-A", "B-B", "I-B"]
        assert labels_of(["B-A"], "bioes") == ["O", "B-A", "I-A", "E-A", "S-A"]
        assert labels_of(["VB", "NN", "VB"], "none") == ["NN", "VB"]
        for scheme in SCHEMES:
            assert detect_scheme(labels_of(["B-A"], scheme)) == scheme


ALGORITHMS = ("wordpiece", "bpe", "unigram")


@pytest.fixture(scope="module")
def tokenizers():
    documents = [doc for value in vars(inspect).values() if (doc := inspect.getdoc(value))]
    return {name: train_tokenizer(documents, name, 500, show_progress=False) for name in ALGORITHMS}


def brute_force(scores, labels, scheme):
    paths = [
        path
        for path in itertools.product(range(len(labels)), repeat=len(scores))
        if find_illegal([labels[i] for i in path], scheme) is None
    ]
    best = max(paths, key=lambda path: sum(row[i] for row, i in zip(scores, path)))
    return [labels[i] for i in best]


class TestSubwords:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @given(words=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8))
    @settings(max_examples=60, deadline=None)
    def test_every_word_with_a_subword_carries_its_label_once(self, tokenizers, algorithm, words):
        word_ids = tokenizers[algorithm](words, is_split_into_words=True).word_ids()
        labels = list(range(len(words)))
        aligned = align_labels(word_ids, labels, "first")
        assert len(aligned) == len(word_ids)
        assert [label for label in aligned if label != -100] == sorted({w for w in word_ids if w is not None})
        everywhere = align_labels(word_ids, labels, "all")
        assert everywhere == [-100 if word is None else word for word in word_ids]

    def test_worked_by_hand(self):
        word_ids = [None, 0, 0, 1, 2, 2, 2, None]
        assert align_labels(word_ids, [5, -100, 7], "first") == [-100, 5, -100, -100, 7, -100, -100, -100]
        assert align_labels(word_ids, [5, -100, 7], "all") == [-100, 5, 5, -100, 7, 7, 7, -100]


class TestWindows:
    @given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 15), st.integers(0, 20))
    @settings(max_examples=300)
    def test_no_word_is_lost_and_all_fit(self, lengths, room, stride):
        windows = cut_into_windows(lengths, room, stride)
        assert [w for window in windows for w in range(window.keep_first, window.keep_last)] == list(
            range(len(lengths))
        )
        for window in windows:
            assert window.first <= window.keep_first <= window.keep_last <= window.last
            assert sum(min(length, room) for length in lengths[window.first : window.last]) <= room
        for one, other in itertools.pairwise(windows):
            assert sum(min(length, room) for length in lengths[other.first : one.last]) <= stride

    def test_what_fits_is_not_cut(self):
        assert len(cut_into_windows([3, 4, 3], 10, 5)) == 1
        assert len(cut_into_windows([3, 4, 4], 10, 5)) == 2

    def test_words_at_a_border_have_context_on_both_sides(self):
        windows = cut_into_windows([1] * 100, room=20, stride=10)
        assert all(window.keep_first - window.first == 5 for window in windows[1:])
        assert all(window.last - window.keep_last == 5 for window in windows[:-1])


class TestDecoding:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @given(data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_viterbi_is_the_best_legal_sequence(self, scheme, data):
        labels = labels_of(["B-PER"] if scheme == "bioes" else ["B-PER", "B-LOC"], scheme)
        length = data.draw(st.integers(1, 4))
        seed = data.draw(st.integers(0, 10_000))
        scores = np.log(np.random.default_rng(seed).dirichlet(np.full(len(labels), 0.3), size=length))
        assert Decoder(labels, "viterbi")(scores) == brute_force(scores, labels, scheme)

    def test_greedy_takes_the_best_label_and_repairs(self):
        labels = labels_of(["B-A"], "bio")
        scores = np.log([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.1, 0.2, 0.7]])
        assert Decoder(labels, "greedy")(scores) == ["O", "B-A", "I-A"]
        assert Decoder(labels, "viterbi")(scores) == ["O", "B-A", "I-A"]

    def test_classes_of_words_have_no_rules(self):
        scores = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
        assert Decoder(["NN", "VB"], "viterbi")(scores) == ["VB", "VB", "NN"]

    def test_nothing_to_decode(self):
        assert Decoder(["O", "B-A", "I-A"], "viterbi")(np.zeros((0, 3))) == []
