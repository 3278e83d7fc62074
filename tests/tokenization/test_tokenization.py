import ast
import copy
import importlib
import inspect
import json
import re
import string
from collections import Counter

import numpy as np
import pandas
import pytest
from datasets import Dataset
from foreign_tokenizers import foreign_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import Python
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BertTokenizer,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from minibert import MiniBertConfig
from minibert.tokenization import train_tokenizer, word_start_table

ALGORITHMS = ("wordpiece", "bpe", "unigram")
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB_SIZE = 1200
MULTILINGUAL = [
    "The naïve café owner's well-known cats (3 of 27) can't read §5.2!",
    "Быстрая коричневая лиса прыгает через ленивую собаку.", "这是一个测试,中文没有空格。",
    "日本語のテキストです。", "한국어 문장입니다.",
    "नमस्ते दुनिया, यह एक परीक्षण है।", "ภาษาไทยไม่มีช่องว่าง", "مرحبا بالعالم", "👩‍👩‍👧 emoji 🎉🎉 and \U0001f600",
    "tabs\tand\n\nnewlines\r\n    four spaces, trailing  ",
]  # fmt: skip


def docstrings(*names):
    for module in map(importlib.import_module, names):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (
                doc := ast.get_docstring(node)
            ):
                yield doc


@pytest.fixture(scope="module")
def texts():
    return list(docstrings("argparse", "fractions", "inspect", "subprocess", "typing", "ast"))


@pytest.fixture(scope="module")
def held_out():
    return list(docstrings("logging", "threading"))


@pytest.fixture(scope="module")
def trained(texts):
    return {
        name: train_tokenizer(texts, name, VOCAB_SIZE, show_progress=False) for name in ALGORITHMS
    }


def plain_ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
class TestEveryAlgorithm:
    def test_vocabulary_and_special_tokens(self, trained, algorithm):
        tokenizer = trained[algorithm]
        assert isinstance(tokenizer, PreTrainedTokenizerFast)
        assert len(tokenizer) == VOCAB_SIZE == len(set(tokenizer.get_vocab().values()))
        assert tokenizer.convert_ids_to_tokens(range(5)) == SPECIAL_TOKENS
        names = ("pad", "unk", "cls", "sep", "mask")
        assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [0, 1, 2, 3, 4]
        assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
        assert (
            tokenizer.bos_token_id == tokenizer.cls_token_id
            and tokenizer.eos_token_id == tokenizer.sep_token_id
        )
        config = MiniBertConfig.from_tokenizer(tokenizer, size="tiny")
        assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (2, 3, 0)
        assert tokenizer.model_max_length == 512
        assert tokenizer.model_input_names == ["input_ids", "token_type_ids", "attention_mask"]

    def test_template(self, trained, algorithm):
        tokenizer = trained[algorithm]
        a, b = "One string", "and another one"
        ids_a, ids_b = plain_ids(tokenizer, a), plain_ids(tokenizer, b)
        single, pair = tokenizer(a), tokenizer(a, b)
        assert single["input_ids"] == [2, *ids_a, 3]
        assert single["token_type_ids"] == [0] * (len(ids_a) + 2)
        assert pair["input_ids"] == [2, *ids_a, 3, *ids_b, 3]
        assert pair["token_type_ids"] == [0] * (len(ids_a) + 2) + [1] * (len(ids_b) + 1)
        assert tokenizer.num_special_tokens_to_add(pair=True) == 3
        padded = tokenizer([a, a + " " + b], padding=True)
        assert padded["input_ids"][0][-1] == 0 == padded["attention_mask"][0][-1]

    def test_segments_are_settable(self, texts, algorithm):
        tokenizer = train_tokenizer(
            texts[:60], algorithm, 600, token_type_ids=False, show_progress=False
        )
        encoded = tokenizer("a", "b")
        assert set(encoded) == {"input_ids", "attention_mask"}
        assert [index for index in encoded["input_ids"] if index < 5] == [2, 3, 3]

    def test_training_is_deterministic(self, texts, trained, algorithm):
        mixed = texts[:150] + MULTILINGUAL
        first, second, third = (
            train_tokenizer(source, algorithm, 700, show_progress=False).backend_tokenizer.to_str()
            for source in (mixed, mixed, iter(mixed))
        )
        assert first == second == third

    def test_mask_leaves_its_neighbours_alone(self, trained, algorithm):
        tokenizer = trained[algorithm]
        masked = plain_ids(tokenizer, "return the [MASK] of the list")
        before, after = (
            plain_ids(tokenizer, "return the"),
            plain_ids(tokenizer, "return of the list"),
        )
        assert masked == [*before, 4, *after[len(plain_ids(tokenizer, "return")) :]]
        stop = plain_ids(tokenizer, "the list.")[len(plain_ids(tokenizer, "the list")) :]
        assert plain_ids(tokenizer, "return the [MASK].") == [
            *before,
            4,
            *stop,
        ]  # no space that training does not have

    def test_words_alone_and_split_agree(self, trained, algorithm, held_out):
        tokenizer = trained[algorithm]
        for text in held_out[:100] + MULTILINGUAL[:9]:
            words = text.split()
            together = tokenizer(" ".join(words))["input_ids"]
            assert tokenizer(words, is_split_into_words=True)["input_ids"] == together
            assert together == [2, *(i for word in words for i in plain_ids(tokenizer, word)), 3]

    def test_smallest_vocabulary_is_the_one_it_says(self, texts, algorithm):
        with pytest.raises(
            ValueError, match=r"vocab_size: 6 is too small; use at least \d+"
        ) as error:
            train_tokenizer(texts[:60], algorithm, 6)
        smallest = int(re.search(r"at least (\d+)", str(error.value))[1])
        with pytest.raises(ValueError, match=f"use at least {smallest}"):
            train_tokenizer(texts[:60], algorithm, smallest - 1)
        assert (
            len(train_tokenizer(texts[:60], algorithm, smallest, show_progress=False)) == smallest
        )

    def test_a_vocabulary_smaller_than_asked_is_reported(self, algorithm):
        with pytest.warns(
            UserWarning, match=r"vocabulary of \d+ tokens, fewer than vocab_size=900"
        ):
            assert (
                len(
                    train_tokenizer(
                        ["few words, few words"] * 3, algorithm, 900, show_progress=False
                    )
                )
                < 900
            )


@pytest.mark.slow  # a process of its own; AutoTokenizer reloads tokenizers in many tests
def test_reload_without_our_code(trained, tmp_path):
    for name, tokenizer in trained.items():
        tokenizer.save_pretrained(tmp_path / name)
        assert not list(tmp_path.rglob("*.py"))
        assert json.loads((tmp_path / name / "tokenizer_config.json").read_text())[
            "tokenizer_class"
        ] in (
            "TokenizersBackend",  # the two names of one class in every Transformers 5
            "PreTrainedTokenizerFast",
        )
    with Python(tmp_path, with_package=False) as python:
        loaded = python.run(f"""
            from transformers import AutoTokenizer
            result, texts = [], {MULTILINGUAL!r}
            for name in {list(trained)!r}:
                tokenizer = AutoTokenizer.from_pretrained(name)
                outputs = tokenizer(texts).data, tokenizer.tokenize("the [MASK] is"), tokenizer.model_max_length
                result.append((outputs, tokenizer.backend_tokenizer.to_str()))
        """)
    for tokenizer, (outputs, backend) in zip(trained.values(), loaded, strict=True):
        assert outputs == (tokenizer(MULTILINGUAL).data, tokenizer.tokenize("the [MASK] is"), 512)
        assert json.loads(backend) == json.loads(tokenizer.backend_tokenizer.to_str())


@pytest.mark.parametrize(("change", "message"), [
    ({"algorithm": "wordpeice"}, "algorithm: 'wordpeice' is unknown; use wordpiece, bpe or unigram"),
    ({"texts": "a string"}, "texts: a single str; use a list"), ({"texts": []}, "texts: empty"),
    ({"texts": iter(())}, "texts: empty"), ({"texts": ["", " \n"]}, "texts: empty"),
    ({"texts": ["fine", None]}, r"texts\[1\]: of type NoneType"),
    ({"texts": iter(["fine", "fine", ["batched"]])}, r"texts\[2\]: of type list"),
    ({"texts": pandas.DataFrame({"text": ["fine"] * 9})}, "a DataFrame is a table; give its column"),
    ({"texts": Dataset.from_dict({"text": ["fine"] * 9})}, "a Dataset is a table; give its column"),
    ({"vocab_size": 0}, "vocab_size: 0 is too small"),
    ({"vocab_size": 260}, "vocab_size: 260 is too small; use at least 261, for 5 special tokens, 256 bytes"),
])  # fmt: skip
def test_bad_input_is_refused_before_training(change, message, monkeypatch):
    monkeypatch.setattr(
        "minibert.tokenization.train.copy.deepcopy", lambda _: pytest.fail("training was started")
    )
    with pytest.raises(ValueError, match=message):
        train_tokenizer(**{"texts": ["some text"], "algorithm": "bpe", "vocab_size": 300, **change})


class TestWordPiece:
    @pytest.mark.parametrize("lowercase", [True, False])
    def test_ids_are_those_of_bert(self, texts, held_out, lowercase, tmp_path):
        options = dict(lowercase=lowercase, strip_accents=lowercase, show_progress=False)
        ours = train_tokenizer(texts + MULTILINGUAL * 20, "wordpiece", 900, **options)
        vocab = ours.get_vocab()
        fast = BertTokenizer(vocab=vocab, do_lower_case=lowercase)
        path = tmp_path / "vocab.txt"
        path.write_text("\n".join(sorted(vocab, key=vocab.get)), encoding="utf-8")
        slow = BertTokenizerLegacy(str(path), do_lower_case=lowercase)  # in plain Python
        tricky = [
            "Ünïcödé\u00ad \u200bzero\x00width\ufffd",
            "中文abc中",
            "don't-stop ... (ok)",
            "x" * 101,
            "",
            "İŞ",
        ]
        for text in held_out + MULTILINGUAL + tricky:
            assert ours(text, text).data == fast(text, text).data
            assert plain_ids(ours, text) == slow.convert_tokens_to_ids(slow.tokenize(text))

    def test_lower_cases_by_default(self, trained, texts):
        assert trained["wordpiece"].tokenize("The RETURN") == trained["wordpiece"].tokenize(
            "the return"
        )
        cased = train_tokenizer(
            texts, "wordpiece", VOCAB_SIZE, lowercase=False, show_progress=False
        )
        assert plain_ids(cased, "Return") != plain_ids(cased, "return")

    def test_chinese_characters_are_words_of_their_own(self, texts):
        tokenizer = train_tokenizer(
            texts + MULTILINGUAL * 50, "wordpiece", VOCAB_SIZE, show_progress=False
        )
        assert tokenizer.tokenize("中文是the测试") == ["中", "文", "是", "the", "测", "试"]
        assert "##文" not in tokenizer.get_vocab()


# Everything but lone surrogates, which are no text, and the documented exceptions: "▁" and special tokens spelled out.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"))
SPACES = st.text(" \n\t\r\f\v\u00a0\u2003\u3000\u200b\u2028aé1.'<")
ANY_TEXT = (ANY_TEXT | SPACES).filter(lambda text: not any(name in text for name in SPECIAL_TOKENS))


class TestLossless:
    @pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
    @settings(max_examples=150, deadline=None)
    @given(text=ANY_TEXT)
    def test_any_text_comes_back(self, trained, algorithm, text):
        tokenizer = trained[algorithm]
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == text.removeprefix(" ")

    @pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
    def test_scripts_and_literal_byte_pieces_come_back(self, trained, algorithm, held_out):
        tokenizer = trained[algorithm]
        for text in [
            *held_out,
            *MULTILINGUAL,
            "<0x0A> and <0xE4><0xB8>",
            "Ġ Ċ",
            "e\u0301 \u00e9 ﬁ ①",
            "\ufffd",
        ]:
            assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text

    @pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
    def test_lower_casing_is_a_switch(self, texts, algorithm):
        tokenizer = train_tokenizer(texts, algorithm, 600, lowercase=True, show_progress=False)
        assert tokenizer.decode(plain_ids(tokenizer, "Ab ÉÇ")) == "ab éç"
        words = [
            token for token in tokenizer.get_vocab() if re.fullmatch("[Ġ▁]?[A-Za-z]{2,}", token)
        ]
        assert len(words) > 100 and all(word[1:].islower() for word in words)

    def test_bpe_reads_text_without_marks_as_gpt2_with_a_space_before_it(self, trained, held_out):
        backend = trained["bpe"].backend_tokenizer
        gpt2 = copy.deepcopy(backend)
        gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        edges = ["", " ", "  two  spaces ", "\nline", "it's we'll IT'S", "☎️ 1️⃣a", "²½ x_y"]
        multilingual = [text for text in MULTILINGUAL if not re.search("[ऀ-ॿ฀-๿]", text)]
        for text in [*held_out[:100], *multilingual, *edges]:
            encoding = backend.encode(text)
            expected = gpt2.encode(text)
            assert encoding.ids == expected.ids
            assert encoding.offsets == expected.offsets

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("भाषा की", [" भाषा", " की"]),
            ("ที่นี่ 3", [" ที่นี่", " 3"]),
            ("cafe\u0301s, க்", [" cafe\u0301s", ",", " க்"]),
            ("☎\ufe0fa 1\ufe0f\u20e3b", [" ☎\ufe0f", "a", " 1", "\ufe0f\u20e3", "b"]),
        ],
    )
    def test_bpe_keeps_marks_with_their_letters(self, texts, text, words):
        tokenizer = train_tokenizer([*texts, *[text] * 20], "bpe", 1200, show_progress=False)
        split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
        byte_level = decoders.ByteLevel()
        assert [byte_level.decode([piece]) for piece, _ in split] == words
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == len(words)  # so merges cross the vowel signs
        assert tokenizer.decode(ids) == text

    def test_bpe_offsets_leave_out_the_space_before_a_word(self, trained):
        text = "return the list, please"
        encoded = trained["bpe"](text, add_special_tokens=False, return_offsets_mapping=True)
        pieces = [text[begin:end] for begin, end in encoded["offset_mapping"]]
        assert [piece.strip() for piece in pieces] == pieces and "".join(pieces) == text.replace(
            " ", ""
        )

    def test_unigram_falls_back_on_bytes(self, trained):
        tokenizer = trained["unigram"]
        assert [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in range(256)] == list(
            range(5, 261)
        )
        assert tokenizer.tokenize("ж") == ["▁", "<0xD0>", "<0xB6>"]


class TestUnigramPieces:
    def test_no_piece_crosses_the_border_of_a_word(self, trained):
        pieces = trained["unigram"].convert_ids_to_tokens(range(261, VOCAB_SIZE))
        assert not [piece for piece in pieces if "▁" in piece.lstrip("▁\n")]
        mixed = [
            p
            for p in pieces
            if any(map(str.isalpha, p)) and any(c in string.punctuation for c in p)
        ]
        assert set(mixed) <= {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

    def test_rare_characters_leave_the_vocabulary_to_frequent_ones(self):
        text = "the quick brown fox jumps over the lazy dog " * 9000
        rare = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))
        with pytest.warns(UserWarning, match="fewer"):
            tokenizer = train_tokenizer([text, *rare[:100]], "unigram", 420, show_progress=False)
        # An eighth of 420 - 5 - 256 is 19, which the text's own letters fill: more than cover 99.95 % are not needed.
        assert {"e", "z"} <= set(tokenizer.get_vocab())
        assert not set(rare[:100]) & set(tokenizer.get_vocab())
        assert tokenizer.decode(plain_ids(tokenizer, rare)) == rare


class TestWordStartTable:
    def test_wordpiece_words_are_word_ids(self, trained, held_out):
        tokenizer = trained["wordpiece"]
        table = word_start_table(tokenizer)
        assert table.dtype == np.bool_ and table.shape == (len(tokenizer),)
        for text in held_out + MULTILINGUAL:
            encoding = tokenizer(text, add_special_tokens=False)
            words = encoding.word_ids()
            new = [i == 0 or words[i] != words[i - 1] for i in range(len(words))]
            assert table[encoding["input_ids"]].tolist() == new

    @pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
    def test_words_with_a_letter_are_whole_and_begin_at_their_mark(
        self, trained, algorithm, held_out
    ):
        tokenizer = trained[algorithm]
        table = word_start_table(tokenizer)
        checked = Counter()
        for text in held_out + MULTILINGUAL:
            encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            starts = table[encoding["input_ids"]]
            words = encoding.word_ids()
            spans = {}
            for i, (word, (begin, end)) in enumerate(zip(words, encoding["offset_mapping"])):
                first, (low, high) = spans.get(word, (i, (begin, end)))
                spans[word] = first, (min(low, begin), max(high, end))
            for word, (first, (low, high)) in spans.items():
                content = text[low:high].strip(" ")
                low = text.index(content, low) if content else low
                inside = [i for i in range(first + 1, len(words)) if words[i] == word]
                if any(char.isalnum() for char in content):
                    assert not starts[inside].any(), content
                # A mark of its own, or a split that no letter and no digit would cross.
                spaced = low == 0 or text[low - 1] == " "
                if content and content[0].isalnum() and not spaced:
                    assert not starts[first], content
                    checked["unmarked"] += 1
                elif content and (content[0].isalnum() or content[0] in string.punctuation):
                    assert starts[first], content
                    checked["marked"] += 1
        assert checked["marked"] > 5000
        assert checked["unmarked"] > 100

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_special_and_added_tokens_begin_words(self, texts, algorithm):
        tokenizer = train_tokenizer(texts[:60], algorithm, 600, show_progress=False)
        tokenizer.add_tokens(["##added", "plain"])
        table = word_start_table(tokenizer)
        assert len(table) == 602 and table[:5].all() and table[-2:].all()
        assert not table.all()

    def test_roberta(self):
        expected = {
            "Ġplay": True,
            "ing": False,
            ",": True,
            '."': True,
            "Ġ(": True,
            "'s": True,
            "12": False,
        }
        expected |= {
            "Ġ12": True,
            "Ċ": True,
            "ĠĠ": True,
            "Ã©": False,
            "Ã": False,
            "©": False,
            "ĠÃ": True,
            "'": True,
        }
        vocab = {
            token: i
            for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *expected])
        }
        tokenizer = RobertaTokenizer(vocab=vocab, merges=[])
        assert dict(zip(expected, word_start_table(tokenizer)[5:].tolist())) == expected

    def test_xlm_roberta_words_are_word_ids(self, held_out):
        pieces = [
            "▁",
            "▁play",
            "ing",
            ",",
            "▁(",
            *string.ascii_letters,
            *string.punctuation.replace(",", ""),
        ]
        vocab = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")] + [
            (p, -len(p) / 9) for p in pieces
        ]
        tokenizer = XLMRobertaTokenizer(vocab=[*vocab, ("<mask>", 0.0)])
        table = word_start_table(tokenizer)
        assert table[4:9].tolist() == [True, True, False, False, True]
        assert not table[9:-1].any() and table[-1]
        for text in held_out:
            encoding = tokenizer(text, add_special_tokens=False)
            words, ids = encoding.word_ids(), encoding["input_ids"]
            new = [i == 0 or words[i] != words[i - 1] for i in range(len(words))]
            unknown = [i == tokenizer.unk_token_id for i in ids]
            assert [got for got, unk in zip(table[ids].tolist(), unknown) if not unk] == [
                is_new for is_new, unk in zip(new, unknown) if not unk
            ]

    def test_digits_split_one_by_one(self):
        backend = Tokenizer(models.BPE({"Ġ": 0, "1": 1, "a": 2}, []))
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel()])
        assert word_start_table(PreTrainedTokenizerFast(tokenizer_object=backend)).tolist() == [
            True,
            True,
            False,
        ]

    def test_refuses_what_it_cannot_tell(self):
        clip = Tokenizer(models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>"))
        with pytest.raises(ValueError, match="does not mark where words begin"):
            word_start_table(PreTrainedTokenizerFast(tokenizer_object=clip))
        unmarked = Tokenizer(models.BPE({"a": 0}, []))
        unmarked.pre_tokenizer = pre_tokenizers.Whitespace()
        unmarked.decoder = decoders.BPEDecoder()
        with pytest.raises(ValueError, match="does not mark where words begin"):
            word_start_table(PreTrainedTokenizerFast(tokenizer_object=unmarked))


def test_words_of_a_tokenizer_that_splits_no_text():
    """Llama's: the mark of a space alone says where a word begins."""
    tokenizer = foreign_tokenizer("LlamaTokenizer")
    starts = word_start_table(tokenizer)
    text = tokenizer.convert_ids_to_tokens(
        tokenizer("the old king's cat", add_special_tokens=False)["input_ids"]
    )
    marked = [piece for piece in text if piece.startswith("\u2581")]
    assert len(marked) == 4
    for piece in text:
        assert starts[tokenizer.convert_tokens_to_ids(piece)] == (piece in marked)
