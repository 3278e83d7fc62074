"""Every script of benchmarks/ answers, and its vectors of words are right."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from word_senses import word_vectors

from minibert import MiniBertConfig, MiniBertModel, train_tokenizer

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [
    path for path in sorted(FOLDER.rglob("*.py")) if "__main__" in path.read_text(encoding="utf-8")
]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help(script):
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--" in done.stdout, done.stderr


def test_audit(capsys):
    from audit import Arguments, main

    found = main(
        Arguments(["MiniBertForMaskedLM", "BertForMaskedLM"], checks=["no target", "padding left"])
    )
    verdicts = {name: [each.verdict for each in findings] for name, findings in found.items()}
    assert verdicts == {
        "MiniBertForMaskedLM": ["pass", "pass"],
        "BertForMaskedLM": ["fail", "fail"],
    }
    assert "no target" in capsys.readouterr().out


def test_a_rare_class_is_one_row_in_twenty():
    from class_weights import draw_rows

    phrases = [{"text": str(number), "label": number % 2} for number in range(4000)]
    rows = draw_rows(phrases, seed=0)
    assert sum(row["label"] == 0 for row in rows) == 100
    assert sum(row["label"] == 1 for row in rows) == 1900
    assert len({row["text"] for row in rows}) == 2000
    assert draw_rows(phrases, seed=0) == rows != draw_rows(phrases, seed=1)


@torch.no_grad()
def test_vectors_of_words():
    """Means over a word's tokens of Transformers' own hidden states."""
    tokenizer = train_tokenizer(["the cats sleep", "a dog"] * 9, vocab_size=40, show_progress=False)
    model = MiniBertModel(MiniBertConfig.from_tokenizer(tokenizer, size="tiny")).eval()
    rows = [
        {"tokens": ["the", "cats", "sleep"], "target_index": 1},
        {"tokens": ["a", "doglike", "cat"], "target_index": 1},
    ]
    for row, vectors in zip(rows, word_vectors(model, tokenizer, rows)):
        encoding = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
        inside = [word == 1 for word in encoding.word_ids()]
        states = torch.stack(model(**encoding, output_hidden_states=True).hidden_states)[:, 0]
        np.testing.assert_allclose(vectors, states[:, inside].mean(1), atol=1e-5)
