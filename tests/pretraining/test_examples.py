"""What a saved model is shown on at the end of a pretraining."""

import pytest

from minibert.tokenization import train_tokenizer
from minibert.training.pretraining.objectives.masked_lm import choose_sentences, find_content_word

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
