"""What several tests use."""

import json
import random

from minibert.training import cli

WORDS = [a + b for a in ("ka", "lo", "mi", "nu", "pe", "ri") for b in ("tan", "ver", "zol", "ben", "duk")]


def sentences(count: int, seed: int = 0, longest: int = 20) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, longest))) for _ in range(count)]


def run(*arguments, capsys=None) -> str:
    """The command ends well; what it prints."""
    assert cli.main(list(map(str, arguments))) == 0
    return capsys.readouterr().out if capsys else ""


def refusal(capsys, *arguments) -> str:
    """The command refuses its arguments; what it says."""
    capsys.readouterr()
    assert cli.main(list(map(str, arguments))) == 2
    return capsys.readouterr().err


def write_rows(path, rows) -> str:
    """Write jsonl, and give the name of the file back."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
