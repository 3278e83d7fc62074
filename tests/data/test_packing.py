"""Packing: nothing is lost, nothing is cut that need not be, and positions mark the documents."""

import inspect
import itertools

import datasets
import numpy as np
import pytest
from foreign_tokenizers import KINDS, foreign_tokenizer
from helpers import TEXTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertTokenizer

from minibert.tokenization import adapt_tokenizer, train_tokenizer
from minibert.training.data import packing
from minibert.training.data.documents import load_documents
from minibert.training.data.packing import best_fit_decreasing, fill_rate, pack_documents
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.pretraining.config import PretrainingConfig
from minibert.training.pretraining.objectives.causal_lm import CausalLM
from minibert.training.pretraining.objectives.masked_lm import MaskedLM
from minibert.training.pretraining.training_data import make_rows

CLS, SEP, FIRST = 1, 2, 3
BERT = {
    name: i for i, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "king"])
}


class Ids:
    """All that packing asks of a tokenizer."""

    cls_token_id, sep_token_id, cls_token, sep_token, is_fast = CLS, SEP, "[CLS]", "[SEP]", True


def numbered(lengths, dtype="int32"):
    """Documents of the given lengths, in which no token occurs twice."""
    ids = itertools.count(FIRST)
    documents = [list(itertools.islice(ids, length)) for length in lengths]
    features = datasets.Features({"input_ids": datasets.List(datasets.Value(dtype))})
    return documents, datasets.Dataset.from_dict({"input_ids": documents}, features=features)


def pieces_of(row):
    """The pieces of a row, cut where positions say so."""
    assert len(row["input_ids"]) == len(row["position_ids"])
    begins = [i for i, position in enumerate(row["position_ids"]) if position == 0] + [
        len(row["input_ids"])
    ]
    assert begins[0] == 0
    for begin, end in itertools.pairwise(begins):
        assert row["position_ids"][begin:end] == list(range(end - begin))
        assert row["input_ids"][begin] == CLS and row["input_ids"][end - 1] == SEP
        yield row["input_ids"][begin + 1 : end - 1]


def naive_best_fit(lengths, capacity):
    """The space used in every row, by the textbook: walk over all the rows for every piece."""
    rows = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if sum(row) + length <= capacity]
        if fitting:
            max(fitting, key=sum).append(length)
        else:
            rows.append([length])
    return sorted(map(sum, rows))


lengths_of_documents = st.lists(st.integers(0, 40), min_size=1, max_size=40).filter(any)


@pytest.mark.parametrize("mode", ["packed", "padded"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lengths=lengths_of_documents,
    seq_length=st.integers(3, 24),
    window=st.sampled_from([1, 7, 1000]),
)
def test_every_document_comes_back(monkeypatch, mode, lengths, seq_length, window):
    monkeypatch.setattr(packing, "DOCUMENTS_PER_WINDOW", window)
    documents, dataset = numbered(lengths)
    rows = list(pack_documents(dataset, Ids, seq_length, mode))
    assert all(0 < len(row["input_ids"]) <= seq_length for row in rows)
    pieces = [piece for row in rows for piece in pieces_of(row)]
    if mode == "padded":
        assert len(rows) == len(pieces)
    assert all(pieces)
    pieces.sort()
    # No token is lost or repeated: sorted by their first token, the pieces are the documents again, in order.
    assert list(itertools.chain(*pieces)) == list(itertools.chain(*documents))
    # Cut at the ends of documents, and within a document only when it is longer than a row, as few times as possible.
    expected = [
        document[start : start + seq_length - 2]
        for document in documents
        for start in range(0, len(document), seq_length - 2)
    ]
    assert pieces == expected


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 70).flatmap(
        lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), min_size=1, max_size=80))
    )
)
def test_best_fit_decreasing_is_the_textbook_one(case):
    capacity, lengths = case
    rows = best_fit_decreasing(np.array(lengths), capacity)
    used = np.bincount(rows, weights=lengths).astype(int).tolist()
    assert sorted(used) == naive_best_fit(lengths, capacity)
    firsts = [rows.tolist().index(row) for row in range(len(used))]
    assert firsts == sorted(firsts)  # rows are numbered in the order of the corpus


def test_order_of_the_corpus_is_kept():
    _, dataset = numbered([3, 8, 2, 5])
    # Rows of 10 hold, with [CLS] and [SEP], 5 + 4 | 10 | 7: the first row is the first document's.
    rows = pack_documents(dataset, Ids, 10)["input_ids"][:]
    assert rows == [
        [CLS, 3, 4, 5, SEP, CLS, 14, 15, SEP],
        [CLS, 6, 7, 8, 9, 10, 11, 12, 13, SEP],
        [CLS, 16, 17, 18, 19, 20, SEP],
    ]
    pairs = best_fit_decreasing(np.array([3, 2, 4] * 40), 4)[1::3]  # of one length: neighbours
    assert pairs[::2].tolist() == pairs[1::2].tolist()


@pytest.mark.parametrize("mode", packing.PACKING_MODES)
def test_fill_rate(mode):
    _, dataset = numbered([5, 17, 3, 3, 8])
    rows = pack_documents(dataset, Ids, 9, mode)
    held = sum(token is not None for row in rows["input_ids"] for token in row)
    assert fill_rate(rows, 9) == held / (9 * len(rows))
    part = rows.select([0])
    assert fill_rate(part, 9) == len(part[0]["input_ids"]) / 9


def test_rows_do_not_depend_on_the_processes(cache, tmp_path):
    """Not even where other processes have left rows in the cache: documents on disk, more than a window of them."""
    texts = [
        f"{'the list ' * (i % 7)}number {i}" for i in range(packing.DOCUMENTS_PER_WINDOW + 500)
    ]
    tokenizer = train_tokenizer(texts[:50], vocab_size=200)
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(tmp_path / "texts")
    documents = datasets.load_from_disk(tmp_path / "texts")
    for num_proc in (2, None):
        args = PretrainingConfig(
            "unused", seq_length=32, packing="packed", num_proc=num_proc, use_cpu=True
        )
        rows = make_rows(documents, tokenizer, MaskedLM(args))
        expected = pack_documents(tokenize_documents(documents, tokenizer), tokenizer, 32)
        assert rows["input_ids"][:] == expected["input_ids"][:]


class NoSep(Ids):
    sep_token, name_or_path = None, "mine"


class Slow(Ids):
    is_fast, name_or_path = False, "mine"


@pytest.mark.parametrize("tokenizer, seq_length, mode, message", [
    (Ids, 8, "pack", "packing: 'pack' is unknown; use one of packed, padded"),
    (Ids, 2, "packed", "seq_length must be at least 3"),
    (NoSep, 8, "packed", "tokenizer: 'mine' has no sep_token, but rows need"),
    (Slow, 8, "packed", "tokenizer: 'mine' is a slow type; use a fast tokenizer"),
])  # fmt: skip
def test_bad_packing_arguments_are_refused(tokenizer, seq_length, mode, message):
    _, dataset = numbered([4])
    with pytest.raises(ValueError, match=message):
        pack_documents(dataset, tokenizer, seq_length, mode)


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory):
    """Documents of 3 to 60 words, their tokenizer, and their tokens in a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        file = tmp_path_factory.mktemp("corpus") / "text.txt"
        file.write_text("\n".join(TEXTS))
        documents = load_documents([str(file)])
        tokenizer = train_tokenizer(TEXTS, vocab_size=500, show_progress=False)
        yield documents, tokenizer, tokenize_documents(documents, tokenizer)


def test_packing_cache(tokenized, monkeypatch):
    _, tokenizer, tokens = tokenized
    first = pack_documents(tokens, tokenizer, 256)
    again = pack_documents(tokens, tokenizer, 256)
    assert first.cache_files and first.cache_files == again.cache_files
    assert pack_documents(tokens, tokenizer, 255).cache_files != first.cache_files
    # Rows of an older version of the code are not served.
    getsource = inspect.getsource
    monkeypatch.setattr(inspect, "getsource", lambda thing: getsource(thing) + "# another version")
    assert pack_documents(tokens, tokenizer, 256).cache_files != first.cache_files


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_adapted_tokenizers_frame_texts_like_packed_rows(kind, pairs, tmp_path):
    raw = foreign_tokenizer(kind)
    a, b = (raw(text, add_special_tokens=False)["input_ids"] for text in ("the king", "the cat"))
    tokenizer = adapt_tokenizer(raw, pairs)
    tokenizer.save_pretrained(tmp_path)
    cls, sep, mask = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id
    assert len({cls, sep, mask}) == 3
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert each("the king")["input_ids"] == [cls, *a, sep]
        masked = each("the king [MASK]")["input_ids"]
        assert masked == [
            cls,
            *a,
            *raw(" ", add_special_tokens=False)["input_ids"] * (kind == "characters"),
            mask,
            sep,
        ]
        if pairs:
            both = each("the king", "the cat")
            assert both["input_ids"] == [cls, *a, sep, *b, sep]
            assert both["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        if kind in ("gpt2", "llama3"):
            offsets = each("the king", return_offsets_mapping=True)["offset_mapping"]
            assert [start for start, _ in offsets[1:-1]].count(
                3
            ) == 0  # no token takes in the space


@pytest.mark.parametrize("kind", ["bert", "T5Tokenizer", "gpt2"])
def test_decoder_tokenizer_adds_no_sep_to_prompts(kind, tmp_path):
    tokenizer = foreign_tokenizer(kind) if kind != "bert" else BertTokenizer(vocab=BERT)
    objective = CausalLM(PretrainingConfig("unused", objective="clm", use_cpu=True))
    tokenizer = objective.prepare_tokenizer(tokenizer)
    assert tokenizer("the king")["input_ids"][-1] == tokenizer.sep_token_id
    objective.tokenizer_to_save(tokenizer).save_pretrained(tmp_path)
    ids = AutoTokenizer.from_pretrained(tmp_path)("the king")["input_ids"]
    assert ids[0] == tokenizer.cls_token_id and tokenizer.sep_token_id not in ids and len(ids) > 1
