"""What a saved model is shown on at the end of a pretraining."""

import types

import pytest
from helpers import run, save_model, sentences

from minibert.tokenization import train_tokenizer
from minibert.training.pretraining.objectives.masked_lm import (
    MaskedLM,
    choose_sentences,
    find_content_word,
)

DOCUMENTS = [
    "shutil - files\n====\n\nThis module offers operations on files and on collections of files. x = 3",
    ">>> a = b[1:2]\n>>> print(a)\n42",
    "1.2 | 3.4 | 5.6\n\nThe answer was given by an old woman who lived near the river. Ok.",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(DOCUMENTS * 20, "bpe", vocab_size=400)


def test_sentences_come_from_the_body_of_documents(tokenizer):
    assert set(choose_sentences(DOCUMENTS, tokenizer)[:2]) == {
        "This module offers operations on files and on collections of files.",
        "The answer was given by an old woman who lived near the river.",
    }


@pytest.mark.parametrize(
    "text",
    ["42", "x = 3", "ka lo mi " * 300, "今日は良い天気ですから公園を散歩しました", "€" * 900],
)
def test_any_text_is_shown(text, tokenizer):
    for sentence in choose_sentences([text], tokenizer) or pytest.fail("nothing is shown"):
        place = find_content_word(sentence, tokenizer)
        assert sentence[place] and len(sentence) <= 200


ESCAPE = "\x1b]0;title\x07"  # sets the title of a terminal


def test_examples_have_no_terminal_escapes(tokenizer, tmp_path):
    folder = save_model(tmp_path, tokenizer, "bert", "ForMaskedLM")
    text = f"The answer was given {ESCAPE} by an old woman who lived near the river."
    lines = MaskedLM.demo_lines(types.SimpleNamespace(), folder, [text], tokenizer)
    shown = "\n".join(lines)
    assert "by an old [MASK]" in shown and r"\x1b]0;title\x07" in shown
    assert "\x1b" not in shown


def test_a_new_tokenizer_is_shown_without_terminal_escapes(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join([f"{ESCAPE} the first text", *sentences(60)]))
    options = ["--vocab_size", 90, "--max_lost_text", 1]
    printed = run(
        "tokenizer", "--data", text, *options, "--output_dir", tmp_path / "out", capsys=capsys
    )
    assert r"\x1b]0;title\x07 the first text" in printed
    assert "\x1b" not in printed
