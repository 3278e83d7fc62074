"""What the README shows, runs."""

import re
import shlex
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from minibert import MiniBertConfig, MiniBertForMaskedLM, train_tokenizer
from minibert.training.cli import main as cli
from minibert.training.cli import parsing

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BASH = "\n".join(re.findall(r"```bash\n(.*?)```", README, re.DOTALL))
COMMANDS = [line for line in BASH.splitlines() if line.startswith("minibert ")]
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


@pytest.mark.parametrize("line", COMMANDS)
def test_command_is_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no output folder is in use
    name, arguments = cli.split_command(shlex.split(line, comments=True)[1:])
    parsing.parse(name, arguments)


def test_there_are_snippets():
    assert len(SNIPPETS) >= 5 and len(COMMANDS) > 30
