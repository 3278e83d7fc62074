"""What share of real tokens the collator masks, replaces and keeps, against what it should.

    python benchmarks/probes/mask_stats.py --data my-text/ --tokens 1000000

The exit status is 1 when a rate lies more than `TOLERANCE` standard errors off.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pictures import plot_rates
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from uses import Corpus, option, parse

from minibert import MaskedLMCollator, train_tokenizer
from minibert.training.data.documents import tokenize_documents
from minibert.training.data.masking import IGNORE_INDEX
from minibert.training.data.packing import pack_documents
from minibert.training.report import format_table

# A rate this many standard errors from its expected value is wrong rather than unlucky (chance: 6 in 10 million).
TOLERANCE = 5.0
VOCAB_SIZE = 8192
SEQ_LENGTH = 128
BATCH_SIZE = 64


class Rate(NamedTuple):
    """A share observed over many rows, beside its expected value."""

    expected: float
    observed: float
    standard_error: float

    @property
    def deviation(self) -> float:
        """How many standard errors the observed share lies from the expected one."""
        return abs(self.observed - self.expected) / self.standard_error if self.standard_error else 0.0

    @property
    def half_interval(self) -> float:
        """Half the width of the 95 % interval."""
        return 1.96 * self.standard_error


@dataclass
class Arguments:
    tokens: list[int] = option([10_000, 1_000_000], "Numbers of tokens to observe.")
    algorithms: list[str] = option(["wordpiece", "bpe", "unigram"], "Tokenizers to train and observe.")
    kinds: list[str] = option(["token", "whole_word", "span"], "Kinds of masking to observe.")
    mlm_probability: float = option(0.15, "Expected share of masked tokens.")
    seed: int = option(0, "Seed of the masks.")
    output_dir: str = option("runs/mask-stats", "Folder for the table and the plot.")


def main(corpus: Corpus, arguments: Arguments) -> int:
    """Print and draw the rates for each tokenizer (trained on the corpus), kind of masking and number of tokens."""
    folder = Path(arguments.output_dir)
    documents = corpus.documents()
    folder.mkdir(parents=True, exist_ok=True)

    # at_least_one_target would lift the rate of short documents
    options = dict(mlm_probability=arguments.mlm_probability, seed=arguments.seed, at_least_one_target=False)
    lines, drawn = [], {}
    for algorithm in arguments.algorithms:
        tokenizer = train_tokenizer(documents["text"], algorithm=algorithm, vocab_size=VOCAB_SIZE)
        rows = pack_documents(tokenize_documents(documents, tokenizer), tokenizer, SEQ_LENGTH).with_format("numpy")
        for kind in arguments.kinds:
            collator = MaskedLMCollator(tokenizer, masking=kind, **options)
            counts = count_outcomes(collator, rows, max(arguments.tokens), f"{algorithm}, {kind}")
            totals = np.cumsum(counts[:, 0])
            for tokens in sorted(arguments.tokens):
                taken = np.searchsorted(totals, tokens) + 1
                found = drawn[f"{algorithm}, {kind}", tokens] = rates(collator, counts[:taken])
                furthest = max(rate.deviation for rate in found.values())
                shares = [f"{100 * rate.observed:.2f} ± {100 * rate.half_interval:.2f} %" for rate in found.values()]
                mark = "  WRONG" if furthest > TOLERANCE else ""
                lines.append((algorithm, kind, totals[taken - 1].item(), *shares, f"{furthest:.1f} SE{mark}"))

    deviations = [rate.deviation for found in drawn.values() for rate in found.values()]
    wrong = sum(deviation > TOLERANCE for deviation in deviations)
    names = [f"{name} {rate.expected:.1%}" for name, rate in found.items()]
    table = format_table(("tokenizer", "masking", "tokens", *names, "furthest off"), lines)
    report = f"{table}\n{wrong} of {len(deviations)} rates lie more than {TOLERANCE:g} standard errors (SE) off."
    (folder / "mask-stats.txt").write_text(report + "\n", encoding="utf-8")
    plot_rates(drawn, folder / "mask-stats.png")
    print(f"{report}\nWritten: {folder / 'mask-stats.txt'}, {folder / 'mask-stats.png'}")
    return 1 if wrong else 0


def count_outcomes(collator: MaskedLMCollator, rows: Sequence, tokens: int, title: str = "Masking") -> np.ndarray:
    """Mask rows, in as many epochs as it takes, until `tokens` tokens could have been chosen: int64 [rows, 5], of each
    row the tokens that could be chosen, the targets, and the targets that became [MASK], a random token, or stayed."""
    special = collator.tokenizer.all_special_ids
    counts, seen, epoch = [], 0, 0
    with tqdm(total=tokens, desc=title, unit=" tokens", unit_scale=True, leave=False, delay=1) as progress:
        while seen < tokens:
            collator.set_progress(epoch)
            for batch in DataLoader(rows, batch_size=BATCH_SIZE, collate_fn=collator):
                labels, read = batch["labels"].numpy(), batch["input_ids"].numpy()
                targets = labels != IGNORE_INDEX
                real = batch["attention_mask"].numpy() == 1
                candidates = real & ~np.isin(np.where(targets, labels, read), special)
                masked = targets & (read == collator.tokenizer.mask_token_id)
                kept = targets & (read == labels)
                outcomes = (candidates, targets, masked, targets & ~masked & ~kept, kept)
                counts.append(np.stack([outcome.sum(axis=1) for outcome in outcomes], axis=1))
                progress.update(int(candidates.sum()))
                seen += int(candidates.sum())
                if seen >= tokens:
                    break
            if not seen:
                raise ValueError("data: no document has a token that could be masked")
            epoch += 1
    return np.concatenate(counts)


def rates(collator: MaskedLMCollator, counts: np.ndarray) -> dict[str, Rate]:
    """The shares of targets among tokens, and of the three outcomes among targets, by name; counts as of
    `count_outcomes`.

    The tokens of a word or span share their fate, those of different rows do not: so the standard error of a share
    comes from the rows' deviations from the expected value (a ratio estimator clustered by row).
    """
    masked, random = collator.mask_replace_prob, collator.random_replace_prob
    expected = {"chosen": collator.mlm_probability, "[MASK]": masked, "random": random, "kept": 1 - masked - random}
    found = {}
    for column, (name, share) in enumerate(expected.items(), 1):
        part, whole = counts[:, column], counts[:, min(column - 1, 1)]
        total = max(whole.sum(), 1)
        found[name] = Rate(share, part.sum() / total, np.sqrt(((part - share * whole) ** 2).sum()) / total)
    return found


if __name__ == "__main__":
    sys.exit(main(*parse(__doc__, Corpus, Arguments)))
