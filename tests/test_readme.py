"""What the README shows, runs."""

import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from minibert import MiniBertConfig, MiniBertForMaskedLM, train_tokenizer

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place where `minibert pretrain --output_dir runs/minibert` seems to have run."""
    folder = tmp_path_factory.mktemp("readme")
    tokenizer = train_tokenizer(["return the end of the list", "a good book, a dull book"] * 20, vocab_size=80)
    config = MiniBertConfig.from_tokenizer(tokenizer, size="tiny")
    MiniBertForMaskedLM(config).save_pretrained(folder / "runs" / "minibert")
    tokenizer.save_pretrained(folder / "runs" / "minibert")
    assert AutoTokenizer.from_pretrained(folder / "runs" / "minibert").mask_token == "[MASK]"
    return folder


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippet(snippet, folder, monkeypatch):
    monkeypatch.chdir(folder)
    exec(compile(snippet, "README.md", "exec"), {"__name__": "__main__"})


def test_there_are_snippets():
    assert len(SNIPPETS) >= 5
