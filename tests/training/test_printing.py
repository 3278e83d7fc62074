"""What commands print last, and where it points."""

from pathlib import Path

import pytest
from helpers import build, run, sentences

from minibert.training.common.printing import print_next_step

ROOT = Path(__file__).parents[2]


def test_the_next_step_can_be_pasted_into_a_shell(capsys):
    print_next_step("minibert", "embed", "TEXT", "--model", Path("runs/my model\n"))
    assert capsys.readouterr().out == "Next: minibert embed TEXT --model 'runs/my model\\n'\n"


def test_a_warning_comes_before_the_next_command(capsys):
    print_next_step("minibert", "embed", warning="worse than guessing")
    assert capsys.readouterr().out == "Next: read the WARNING above before you use the model\n"


@pytest.mark.parametrize("folder", ["training", "tokenization"])
def test_nothing_that_is_printed_points_into_the_checkout(folder):
    """Who installed a wheel has no docs/. Docstrings count: they are the help of commands."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for name in ("docs/", "dev/LOG.md", "RESULTS.md"):
            assert name not in text, file.name


def test_commands_end_with_the_next_one(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences(60)))
    other_text = tmp_path / "other.txt"
    other_text.write_text("\n".join(sentence[::-1] for sentence in sentences(60)))
    tokenizer = tmp_path / "tokenizer"
    extend = ["--extend", tokenizer, "--extend_vocabulary", "3", "--max_lost_text", "1"]
    rows = tmp_path / "rows"
    build("ForMaskedLM").save_pretrained(tmp_path / "model")
    for words, expected in (
        (
            ["tokenizer", "--data", text, "--vocab_size", "100", "--output_dir", tokenizer],
            f"Next: minibert pretrain --data FOLDER --tokenizer {tokenizer}",
        ),
        (
            ["tokenizer", "--data", other_text, *extend, "--output_dir", tmp_path / "extended"],
            f"Next: minibert pretrain --data FOLDER --model_name_or_path {tokenizer}"
            " --extend_vocabulary 3",
        ),
        (
            ["prepare", "--data", text, "--tokenizer", tokenizer, "--output_dir", rows],
            f"Next: minibert pretrain --data {rows}",
        ),
        (
            ["convert", tmp_path / "model", tmp_path / "deeper", "--set", "num_hidden_layers=3"],
            f"Next: minibert finetune classify --model {tmp_path / 'deeper'} --data FOLDER",
        ),
    ):
        assert run(*words, capsys=capsys).splitlines()[-1] == expected
