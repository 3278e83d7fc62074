"""What the probes read (labelled uses, sentence pairs, the sentences of a corpus) and write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import regex  # comes with Transformers; its \w has the vowel signs of Hindi and the like, that of re has not
from tqdm.auto import tqdm

from ..data.sentences import SENTENCE_END
from ..data.tables import load_table

BLANK_LINE = re.compile(r"\n\s*\n")  # a single line break may be nothing but a full line

WORD = regex.compile(r"\w+")

# Random sentences come from this many random documents or as many as sentences are wanted, so that a corpus of any size
# will do.
DOCUMENTS = 5000

WSD_COLUMNS = ("tokens", "target_index", "lemma", "sense")


@dataclass(frozen=True)
class LabelledUse:
    """A word in a sentence, with its lemma and sense; `name` says where it stands."""

    tokens: list[str]
    target_index: int
    lemma: str
    sense: str
    name: str


def read_uses(file: str, field: str) -> list[LabelledUse]:
    """The rows of a file with the columns tokens (a list, or words between spaces), target_index (counted from 0),
    lemma and sense.

    Args:
        field: the argument that the file belongs to, for errors.

    Raises:
        ValueError: no such file, an unreadable or empty one, a missing column, or a row that is not legal.
    """
    return _read(file, field, WSD_COLUMNS, _labelled_use)


def _labelled_use(row: dict[str, Any], name: str) -> LabelledUse:
    tokens, target = row["tokens"], _number(row["target_index"])
    tokens = tokens.split() if isinstance(tokens, str) else tokens
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"{name}: tokens {tokens!r}; legal: a list of words, or words between spaces")
    if target is None or not target.is_integer() or not 0 <= target < len(tokens):
        given = row["target_index"]
        raise ValueError(f"{name}: target_index {given!r}; legal: 0 to {len(tokens) - 1}, one of the tokens")
    for column in ("lemma", "sense"):
        if row[column] is None or not str(row[column]).strip():
            raise ValueError(f"{name}: no {column}")
    return LabelledUse(tokens, int(target), str(row["lemma"]), str(row["sense"]), name)


def read_pairs(file: str, field: str) -> list[tuple[str, str, float]]:
    """The rows of a file with the columns sentence1, sentence2 and score; errors as in `read_uses`."""
    return _read(file, field, ("sentence1", "sentence2", "score"), _scored_pair)


def _scored_pair(row: dict[str, Any], name: str) -> tuple[str, str, float]:
    for column in ("sentence1", "sentence2"):
        if not isinstance(row[column], str) or not row[column].strip():
            raise ValueError(f"{name}: {column} {row[column]!r}; legal: text")
    score = _number(row["score"])
    if score is None or not np.isfinite(score):
        raise ValueError(f"{name}: score {row['score']!r}; legal: a number")
    return row["sentence1"], row["sentence2"], score


def _number(cell: Any) -> float | None:
    """A cell's number, if it is one. One bad cell makes a whole column text, or its whole numbers floats: so these are
    numbers too, and the row with the bad cell is the one that is named."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _read(file: str, field: str, columns: Sequence[str], make: Callable[[dict[str, Any], str], Any]) -> list[Any]:
    rows = load_table(file, field)
    missing = [column for column in columns if column not in rows.column_names]
    if missing:
        raise ValueError(
            f"{field}: {file!r} has no column {', '.join(missing)}; its columns: {', '.join(rows.column_names)}"
        )
    return [make(row, f"{field}: {file}, row {number}") for number, row in enumerate(rows, 1)]


def sentences(documents: datasets.Dataset) -> Iterator[str]:
    """The sentences of all documents in their order, each on one line."""
    for text in each_text(documents):
        for paragraph in BLANK_LINE.split(text):
            yield from filter(None, (" ".join(part.split()) for part in SENTENCE_END.split(paragraph)))


def each_text(documents: datasets.Dataset) -> Iterator[str]:
    """The texts of all documents in their order, with a progress bar."""
    with tqdm(total=len(documents), desc="Reading", unit=" documents", leave=False, delay=1) as bar:
        for batch in documents.iter(1000):
            for text in batch["text"]:
                yield text
                bar.update()


def draw_sentences(documents: datasets.Dataset, count: int, rng: np.random.Generator) -> list[str]:
    """At most `count` different sentences of two words or more, in random order."""
    chosen = documents.select(np.sort(rng.permutation(len(documents))[: max(DOCUMENTS, count)]))
    found = [text for text in dict.fromkeys(sentences(chosen)) if " " in text or len(text) > 20]
    found = sample(found, count, rng)
    return [found[place] for place in rng.permutation(len(found))]


def word_pattern(word: str) -> regex.Pattern:
    """Matches a word as a whole, whatever its case."""
    return regex.compile(rf"(?<!\w){regex.escape(word)}(?!\w)", regex.IGNORECASE)


def sample(items: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """At most `count` of the items, each drawn once, in their order."""
    if len(items) <= count:
        return list(items)
    return [items[place] for place in np.sort(rng.choice(len(items), count, replace=False))]


def check_positive(arguments: Any, *names: str) -> None:
    """Refuse numbers below 1, a negative seed, and an output folder that is a file or would lie in one."""
    for name in names:
        given = getattr(arguments, name)
        for number in given if isinstance(given, list) else [given]:
            if number < 1:
                raise ValueError(f"{name}: {number}; legal: 1 and more")
    if getattr(arguments, "seed", 0) < 0:
        raise ValueError(f"seed: {arguments.seed}; legal: 0 and more")
    folder = Path(getattr(arguments, "output_dir", "."))
    for path in (folder, *folder.parents):
        if path.is_file():
            raise ValueError(f"output_dir: {str(path)!r} is a file; legal: a folder, existing or new")


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as aligned text, the first of them the header; numbers on the right with three decimals."""
    shown = [
        ["" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*shown)]
    left = [all(isinstance(cell, str) for cell in column) for column in zip(*rows)]
    lines = (
        "  ".join(cell.ljust(width) if text else cell.rjust(width) for cell, width, text in zip(row, widths, left))
        for row in shown
    )
    return "\n".join(line.rstrip() for line in lines)


def save(output_dir: str, results: dict[str, Any], **figures: Any) -> None:
    """Write `results.json` and every figure as a PNG of its name, and say where."""
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False, default=lambda number: number.item())
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=120)
    print(f"\nSaved to {folder}: results.json, {', '.join(f'{name}.png' for name in figures)}")
