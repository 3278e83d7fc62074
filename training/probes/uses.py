"""What the probes read: words in their contexts, labelled or found in a corpus; and how they begin and end."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from ..arguments import check_least
from ..arguments.pretraining import CorpusArguments
from ..arguments.probes import ProbeArguments
from ..data.sentences import sentences
from ..data.tables import to_number
from ..embeddings.data import blank, read_table
from ..files import check_folder

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
    table = read_table(file, field)
    columns = [table.column(name, blank) for name in ("tokens", "target_index", "lemma", "sense")]
    for number, (tokens, given, lemma, sense) in enumerate(zip(*columns), 1):
        tokens = tokens.split() if isinstance(tokens, str) else tokens
        target = to_number(given)
        if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
            raise table.error(number, f"tokens {tokens!r}; use a list of words, or words between spaces")
        if not target.is_integer() or not 0 <= target < len(tokens):
            raise table.error(number, f"target_index {given!r}; use 0 to {len(tokens) - 1}, one of the tokens")
        start = sum(len(token) + 1 for token in tokens[: int(target)])
        stop = start + len(tokens[int(target)])
        name = f"{field}: {file}, row {number}"
        uses.append(Use(" ".join(tokens), start, stop, str(lemma), str(sense), name))
    return uses


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
