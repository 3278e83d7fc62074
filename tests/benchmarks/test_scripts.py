"""Every script of benchmarks/ answers, and what probes share is right."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer
from uses import Use
from vectors import encode_uses, load_model, word_vectors

from minibert import MiniBertConfig, MiniBertModel, train_tokenizer

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [path for path in sorted(FOLDER.rglob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help(script):
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--" in done.stdout, done.stderr


def test_audit(capsys):
    from audit import Arguments, main

    found = main(Arguments(["MiniBertForMaskedLM", "BertForMaskedLM"], checks=["no target", "padding left"]))
    verdicts = {name: [each.verdict for each in findings] for name, findings in found.items()}
    assert verdicts == {"MiniBertForMaskedLM": ["pass", "pass"], "BertForMaskedLM": ["fail", "fail"]}
    assert "no target" in capsys.readouterr().out


@torch.no_grad()
def test_vectors_of_words(tmp_path):
    """Means over a word's tokens of Transformers' own hidden states."""
    tokenizer = train_tokenizer(["the cats sleep", "a dog"] * 9, vocab_size=40, show_progress=False)
    MiniBertModel(MiniBertConfig.from_tokenizer(tokenizer, size="tiny")).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, _ = load_model(str(tmp_path))
    uses = [Use("the cats sleep", 4, 8), Use("a doglike cat", 2, 9)]
    found = word_vectors(model, encode_uses(AutoTokenizer.from_pretrained(tmp_path), uses), batch_tokens=64)
    for use, vectors in zip(uses, found):
        encoding = tokenizer(use.text, return_offsets_mapping=True, return_tensors="pt")
        offsets = encoding.pop("offset_mapping")[0]
        inside = (offsets[:, 0] >= use.start) & (offsets[:, 1] <= use.stop) & (offsets[:, 1] > 0)
        states = torch.stack(model(**encoding, output_hidden_states=True).hidden_states)[:, 0]
        np.testing.assert_allclose(vectors, states[:, inside].mean(1), atol=1e-5)
