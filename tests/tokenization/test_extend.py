"""Words added to a trained tokenizer: they are whole, the rest is cut as it was, and the figures are true."""

import copy
import hashlib
import random
import string
from collections import Counter

import pytest
from datasets import Dataset
from helpers import make_texts, run
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    BertTokenizer,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from minibert.tokenization import extend_tokenizer, train_tokenizer

ALGORITHMS = ("wordpiece", "bpe", "unigram")
GENERAL = make_texts(300, seed=1)
ALPHABET = [" ".join(string.ascii_lowercase), string.ascii_lowercase]
# A domain: some words of its own, and derived from them longer ones, which are none of the most frequent.
OWN = ["hypersonicity", "aeroelastic", "viscometer"]
OWN_TEXTS = [" ".join(random.Random(i).choices(OWN, k=6)) for i in range(60)]
DOMAIN = [f"{own}, viscometers: {text}" for own, text in zip(OWN_TEXTS, GENERAL)]


@pytest.fixture(scope="module", params=ALGORITHMS)
def tokenizer(request):
    return train_tokenizer([*GENERAL, *ALPHABET], request.param, 600, show_progress=False)


@pytest.fixture(scope="module")
def extension(tokenizer):
    return extend_tokenizer(tokenizer, DOMAIN, 3)


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def kind_of(tokenizer):
    return type(tokenizer.backend_tokenizer.model).__name__


def test_most_expensive_words_become_whole_tokens(tokenizer, extension):
    """Counted by hand: the tokens of each word by itself, times how often it stands in the text."""
    counts = Counter(word.strip(",.:") for text in DOMAIN for word in text.split())
    cost = {word: count * (len(ids_of(tokenizer, f"a {word}")) - len(ids_of(tokenizer, "a")) - 1)
            for word, count in counts.items()}  # fmt: skip
    expected = sorted(cost, key=lambda word: -cost[word])[:3]
    new = extension.tokenizer.convert_ids_to_tokens(list(extension.pieces))
    assert [token.strip("Ġ▁") for token in new] == expected
    assert list(extension.pieces) == [len(tokenizer), len(tokenizer) + 1, len(tokenizer) + 2]
    for token, word in zip(extension.pieces, expected):
        assert ids_of(extension.tokenizer, f"a {word}") == [*ids_of(tokenizer, "a"), token]
        assert (
            extension.pieces[token] == ids_of(tokenizer, f"a {word}")[len(ids_of(tokenizer, "a")) :]
        )
    assert extension.tokenizer.decode(ids_of(extension.tokenizer, "a viscometer")) == "a viscometer"


def test_other_text_is_tokenized_as_before(tokenizer, extension):
    """To the id; and of BPE and Unigram what is new is made of the old pieces, wherever it stands."""
    texts = ["naïve CAFÉ 27 x-y 中文 \U0001f600", "[MASK] and [CLS]", *GENERAL]
    for text in texts:
        assert ids_of(extension.tokenizer, text) == ids_of(tokenizer, text)
    if kind_of(tokenizer) != "WordPiece":
        for text in [*DOMAIN, "viscometers aeroelasticity hypersonicities"]:
            new = ids_of(extension.tokenizer, text)
            assert [old for i in new for old in extension.pieces.get(i, [i])] == ids_of(
                tokenizer, text
            )


def test_special_tokens_and_settings_stay(tokenizer, extension, tmp_path):
    extended = extension.tokenizer
    assert extended.special_tokens_map == tokenizer.special_tokens_map
    assert extended.all_special_ids == tokenizer.all_special_ids
    assert extended.model_max_length == tokenizer.model_max_length
    assert extended.model_input_names == tokenizer.model_input_names
    pair = extended("a b", "c")
    assert pair["input_ids"] == tokenizer("a b", "c")["input_ids"]
    assert len(tokenizer) == 600 and len(extended) == 603  # the one given is as it was
    extended.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in DOMAIN[:5]:
        assert again(text)["input_ids"] == extended(text)["input_ids"]


def test_the_gain_is_that_of_held_out_text(tokenizer, extension):
    """A tenth of the texts, whose words were not counted, cut by both tokenizers."""
    held_out = [
        text for text in DOMAIN if hashlib.blake2b(text.encode(), digest_size=1).digest()[0] < 25.6
    ]
    assert 0 < len(held_out) < 20
    words = sum(len(text.split()) for text in held_out)
    for side, value in zip((tokenizer, extension.tokenizer), extension.fertility):
        assert value == pytest.approx(sum(len(ids_of(side, text)) for text in held_out) / words)
    used = {i for text in held_out for i in ids_of(extension.tokenizer, text)} & set(
        extension.pieces
    )
    assert extension.used == len(used) == 3
    metrics = extension.metrics()
    assert (
        metrics["fertility_before"],
        metrics["fertility_after"],
    ) == extension.fertility and metrics["added"] == 3
    alone = extend_tokenizer(tokenizer, DOMAIN[:1], 3, min_count=1)
    assert alone.metrics()["fertility_before"] is None


def test_clauses_and_rare_words_are_not_added():
    """In scripts without spaces the split leaves clauses, which hardly ever come again."""
    thai = [
        "ภาษา",
        "ไทย",
        "เรียน",
        "รู้",
        "บ้าน",
        "เมือง",
        "น้ำ",
        "ใจ",
        "คน",
        "งาน",
        "ดี",
        "มาก",
        "ไป",
        "มา",
        "กิน",
    ]
    draw = random.Random(0)
    clauses = [" ".join("".join(draw.choices(thai, k=12)) for _ in range(4)) for _ in range(200)]
    for algorithm in ALGORITHMS:
        base = train_tokenizer(
            [*GENERAL, "".join(thai), *ALPHABET], algorithm, 700, show_progress=False
        )
        with pytest.raises(
            ValueError, match="cuts no word that occurs 3 times.*scripts without spaces"
        ):
            extend_tokenizer(base, clauses, 60)
        texts = [*clauses, *DOMAIN, "xylophone xylophone", "中文文文 zebrafish zebrafish zebrafish"]
        new = extend_tokenizer(base, texts, 100).tokenizer
        new = [token.strip("Ġ▁") for token in new.convert_ids_to_tokens(range(len(base), len(new)))]
        assert {*OWN} < {*new} and "xylophone" not in new and all(token.isascii() for token in new)


def test_new_words_within_new_words():
    """Of two, one the beginning of the other: each is whole by itself, whichever was worth more."""
    for algorithm in ALGORITHMS:
        tokenizer = train_tokenizer(
            [*GENERAL, " ".join("abcdefghijklmnopqrstuvwxyz")], algorithm, 600
        )
        extended = extend_tokenizer(tokenizer, ["a visco viscometer viscometric visco"] * 3, 3)
        assert len(extended.pieces) == 3
        for word in ("visco", "viscometer", "viscometric"):
            assert len(ids_of(extended.tokenizer, f"a {word}")) == len(ids_of(tokenizer, "a")) + 1


def test_added_tokens_keep_their_ids(tokenizer, tmp_path):
    """Those behind the vocabulary, as ModernBERT's special ones are: a model has trained on them."""
    given = copy.deepcopy(tokenizer)
    given.add_tokens(["viscometer"])
    given.add_special_tokens({"additional_special_tokens": ["[DOC]"]})
    text = "a viscometer [DOC] hypersonicity [MASK]"
    extension = extend_tokenizer(given, DOMAIN, 2)
    assert list(extension.pieces) == [602, 603]
    new = [token.strip("Ġ▁") for token in extension.tokenizer.convert_ids_to_tokens([602, 603])]
    assert set(new) == {"hypersonicity", "aeroelastic"}  # viscometer is whole already
    assert [
        extension.tokenizer.convert_tokens_to_ids(token) for token in ("viscometer", "[DOC]")
    ] == [600, 601]
    extension.tokenizer.save_pretrained(tmp_path)
    for extended in (extension.tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        ids = ids_of(extended, text)
        assert {600, 601} < {*ids} and [
            old for i in ids for old in extension.pieces.get(i, [i])
        ] == ids_of(given, text)


def test_a_tokenizer_that_pads(tokenizer):
    """As those of sentence-transformers are saved."""
    given = copy.deepcopy(tokenizer)
    given.backend_tokenizer.enable_padding(
        length=128, pad_id=given.pad_token_id, pad_token=given.pad_token
    )
    padded, plain = (extend_tokenizer(each, DOMAIN, 3) for each in (given, tokenizer))
    assert padded.pieces == plain.pieces and padded.metrics() == plain.metrics()
    assert padded.tokenizer.backend_tokenizer.padding["length"] == 128


@pytest.mark.parametrize("stock", [BertTokenizer, RobertaTokenizer, XLMRobertaTokenizer])
def test_stock_classes(stock, tmp_path):
    """Whose own way to read a vocabulary would lose `ignore_merges`; XLM-R's mask stands behind its vocabulary."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    if stock is BertTokenizer:
        specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        vocab = {
            token: i
            for i, token in enumerate([*specials, *letters, *(f"##{x}" for x in letters), "##ic"])
        }
        given = stock(vocab=vocab)
    elif stock is RobertaTokenizer:
        pieces = [
            "<s>",
            "<pad>",
            "</s>",
            "<unk>",
            "<mask>",
            *sorted(pre_tokenizers.ByteLevel.alphabet()),
            "ic",
        ]
        given = stock(vocab={token: i for i, token in enumerate(pieces)}, merges=[("i", "c")])
    else:
        scored = [*((x, -5.0) for x in letters), ("ic", -6.0), ("▁", -3.0)]
        given = stock(vocab=[("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scored])
    before = [ids_of(given, text) for text in ("tonic water", f"ton {given.mask_token} ic")]
    extended = extend_tokenizer(given, ["a tonic , a tonic , a tonic"], 1)
    assert list(extended.pieces) == [len(given)]
    extended.tokenizer.save_pretrained(tmp_path)
    for tokenizer in (extended.tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        after = [ids_of(tokenizer, text) for text in ("tonic water", f"ton {given.mask_token} ic")]
        assert after[1] == before[1]
        assert [old for i in after[0] for old in extended.pieces.get(i, [i])] == before[0]
        assert tokenizer.mask_token_id == given.mask_token_id
        assert ids_of(tokenizer, "a tonic")[-1] == len(given)
        assert tokenizer.model_input_names == given.model_input_names


def test_refusals():
    words = models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")
    backend = Tokenizer(words)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(
        ValueError, match="this WordLevel cannot be extended; use one of WordPiece, BPE, Unigram"
    ):
        extend_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend), ["a"], 1)
    tokenizer = train_tokenizer(["a ba"] * 9, vocab_size=40)
    pieces = models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")
    with pytest.raises(ValueError, match="with a pre-tokenizer that splits text"):
        extend_tokenizer(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(pieces)), ["ab"], 1)
    for texts, message in (
        ("one text", "texts: a single str"),
        ([{"text": "a row"}], r"texts\[0\]: of type dict"),
        (Dataset.from_list([{"text": "a row"}]), "texts: a Dataset is a table"),
    ):
        with pytest.raises(ValueError, match=message):
            extend_tokenizer(tokenizer, texts, 3)
    with pytest.raises(ValueError, match="extend_vocabulary: 0 words"):
        extend_tokenizer(tokenizer, ["abab"], 0)
    with pytest.raises(ValueError, match="the tokenizer cuts no word"):
        extend_tokenizer(tokenizer, ["a ba 中", "!?"], 5)


def test_the_command(tmp_path, capsys):
    text = tmp_path / "domain.txt"
    text.write_text("\n\n".join(DOMAIN), encoding="utf-8")
    train_tokenizer([*GENERAL, *ALPHABET], vocab_size=600).save_pretrained(tmp_path / "general")
    given = [
        "tokenizer",
        "--data",
        text,
        "--extend",
        tmp_path / "general",
        "--output_dir",
        tmp_path / "out",
    ]
    said = run(*given, "--extend_vocabulary", 2, capsys=capsys)
    assert "2 words added to the vocabulary (" in said and "tokens a word before" in said
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == 602
