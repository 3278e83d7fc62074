"""What the probes read: words in their contexts, labelled or found in a corpus; and how they begin and end."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Corpus, option, parse, read_table  # noqa: F401 (for the probes, which cannot see `common`)

from minibert.training.data.sentences import sentences

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


@dataclass
class Probe:
    model: str = option("runs/minibert", "A saved MiniBERT: a folder or a Hub name.")
    batch_tokens: int = option(4096, "Tokens in a batch, padding included.")


def read_uses(file: str) -> list[Use]:
    """The rows of a file with the columns tokens (a list, or words between spaces), target_index (counted from 0),
    lemma and sense.

    The words become running text, with spaces between them: a byte-level tokenizer such as ModernBERT's would read the
    words of a list as if they were parts of one."""
    uses = []
    for number, row in enumerate(read_table(file), 1):
        tokens = row["tokens"].split() if isinstance(row["tokens"], str) else row["tokens"]
        target = int(row["target_index"])
        if not 0 <= target < len(tokens):
            raise ValueError(f"{file}, row {number}: target_index {target} is not one of {len(tokens)} tokens")
        start = sum(len(token) + 1 for token in tokens[:target])
        name = f"{file}, row {number}"
        uses.append(Use(" ".join(tokens), start, start + len(tokens[target]), row["lemma"], str(row["sense"]), name))
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


def save_results(
    found: dict[str, Any], probe: Probe, arguments: Any, corpus: Corpus | None, **pictures: Callable
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
