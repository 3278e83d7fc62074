"""What the probes read: words in their contexts, labelled or found in a corpus, and scored pairs of sentences; and how
they begin and end."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from ..arguments import check_least
from ..arguments.pretraining import CorpusArguments
from ..arguments.probes import ProbeArguments
from ..checkpoints import check_folder
from ..data.sentences import sentences
from ..data.tables import load_table, to_number

DOCUMENTS = 5000  # which random sentences come from (or as many as sentences asked for), however large the corpus is
CONTEXT = 50  # characters shown of a text on either side of the word


@dataclass(frozen=True)
class Use:
    """A word at the characters [start, stop) of a text."""

    text: str
    start: int
    stop: int
    lemma: str = ""
    sense: str = ""  # where it is labelled
    name: str = ""  # of the place where it stands, for errors

    @property
    def word(self) -> str:
        return self.text[self.start : self.stop]

    def __str__(self) -> str:
        before, after = self.text[: self.start], self.text[self.stop :]
        before = before if len(before) <= CONTEXT else "…" + before[1 - CONTEXT :]
        after = after if len(after) <= CONTEXT else after[: CONTEXT - 1] + "…"
        return f"{before}[{self.word}]{after}"


def read_uses(file: str, field: str) -> list[Use]:
    """The rows of a file with the columns tokens (a list, or words between spaces), target_index (counted from 0),
    lemma and sense; `field` is the argument that names the file. A ValueError says which file, column or row is bad.

    The words become running text, with spaces between them: a byte-level tokenizer such as ModernBERT's would read the
    words of a list as if they were parts of one."""
    uses = []
    for name, row in table_rows(file, field, "tokens", "target_index", "lemma", "sense"):
        tokens, target = row["tokens"], to_number(row["target_index"])
        tokens = tokens.split() if isinstance(tokens, str) else tokens
        if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"{name}: tokens {tokens!r}; use a list of words, or words between spaces")
        if not target.is_integer() or not 0 <= target < len(tokens):
            given = row["target_index"]
            raise ValueError(f"{name}: target_index {given!r}; use 0 to {len(tokens) - 1}, one of the tokens")
        for column in ("lemma", "sense"):
            if row[column] is None or not str(row[column]).strip():
                raise ValueError(f"{name}: no {column}")
        start = sum(len(token) + 1 for token in tokens[: int(target)])
        stop = start + len(tokens[int(target)])
        uses.append(Use(" ".join(tokens), start, stop, str(row["lemma"]), str(row["sense"]), name))
    return uses


def read_pairs(file: str, field: str) -> list[tuple[str, str, float]]:
    """The rows of a file with the columns sentence1, sentence2 and score; errors as in `read_uses`."""
    pairs = []
    for name, row in table_rows(file, field, "score", texts=("sentence1", "sentence2")):
        score = to_number(row["score"])
        if not np.isfinite(score):
            raise ValueError(f"{name}: score {row['score']!r}; use a number")
        pairs.append((row["sentence1"], row["sentence2"], score))
    return pairs


def table_rows(file: str, field: str, *columns: str, texts: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table that has to have these columns, and text in `texts`, each with its name for errors."""
    rows = load_table(file, field)
    if missing := [column for column in (*texts, *columns) if column not in rows.column_names]:
        there = ", ".join(rows.column_names)
        raise ValueError(f"{field}: {file!r} has no column {', '.join(missing)}; its columns: {there}")
    for number, row in enumerate(rows, 1):
        name = f"{field}: {file}, row {number}"
        for column in texts:
            if not isinstance(row[column], str) or not row[column].strip():
                raise ValueError(f"{name}: {column} {row[column]!r}; use text")
        yield name, row


def draw_sentences(documents: datasets.Dataset, count: int, rng: np.random.Generator) -> list[str]:
    """At most `count` different sentences of two words or more, in random order."""
    chosen = documents.select(np.sort(rng.permutation(len(documents))[: max(DOCUMENTS, count)]))
    found = [text for text in dict.fromkeys(sentences(chosen)) if " " in text or len(text) > 20]
    found = sample(found, count, rng)
    return [found[place] for place in rng.permutation(len(found))]


def sample(items: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """At most `count` of the items, each drawn once, in their order."""
    if len(items) <= count:
        return list(items)
    return [items[place] for place in np.sort(rng.choice(len(items), count, replace=False))]


def check(probe: ProbeArguments, arguments: Any, **least: int) -> None:
    """`check_least` of both, and `check_folder`."""
    check_least(probe, batch_tokens=1)
    check_least(arguments, **least)
    check_folder(Path(arguments.output_dir))


def save_results(
    found: dict[str, Any], probe: ProbeArguments, arguments: Any, corpus: CorpusArguments | None, **pictures: Callable
) -> dict[str, Any]:
    """Write what was found and from what as `results.json`, every picture (a function of the path) as a PNG of its
    name, say where, and return the results."""
    data = {"data": corpus.data or ["built-in corpus"]} if corpus else {}
    results = {"model": probe.model, **data, "arguments": asdict(arguments), **found}
    folder = Path(arguments.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    for name, draw in pictures.items():
        draw(folder / f"{name}.png")
    print(f"\nSaved to {folder}: {', '.join(['results.json', *(f'{name}.png' for name in pictures)])}")
    return results
