"""`minibert mask-stats`: what share of real tokens the collator masks, replaces and keeps, against what it should."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from ...tokenization import train_tokenizer
from ...tokenization.train import ALGORITHMS
from ..arguments import check_least, names_that_begin
from ..arguments.pretraining import CorpusArguments, MaskStatsArguments
from ..files import check_folder
from ..report import format_table, plot_rates
from .collators import MaskedLMCollator
from .documents import load_documents, tokenize_documents
from .masking import IGNORE_INDEX, MASKING_KINDS
from .packing import pack_documents

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


def mask_stats(corpus: CorpusArguments, arguments: MaskStatsArguments) -> int:
    """Print and draw the rates for each tokenizer (trained on the corpus), kind of masking and number of tokens; table
    and plot go to `arguments.output_dir` as `mask-stats.txt` and `mask-stats.png`.

    Returns:
        The process's exit status: 1 when a rate lies more than `TOLERANCE` standard errors off, else 0.

    Raises:
        ValueError: bad arguments, or no text, before anything is trained or masked.
    """
    algorithms = names_that_begin("algorithms", arguments.algorithms, ALGORITHMS)
    kinds = names_that_begin("kinds", arguments.kinds, MASKING_KINDS)
    check_least(arguments, tokens=1)
    if not 0 <= arguments.mlm_probability <= 1:
        raise ValueError(f"mlm_probability: {arguments.mlm_probability} is no rate; use a number from 0 to 1")
    folder = Path(arguments.output_dir)
    check_folder(folder)
    documents = load_documents(**vars(corpus))
    folder.mkdir(parents=True, exist_ok=True)

    # at_least_one_target would lift the rate of short documents
    options = dict(mlm_probability=arguments.mlm_probability, seed=arguments.seed, at_least_one_target=False)
    lines, drawn = [], {}
    for algorithm in algorithms:
        tokenizer = train_tokenizer(documents["text"], algorithm=algorithm, vocab_size=VOCAB_SIZE)
        rows = pack_documents(tokenize_documents(documents, tokenizer), tokenizer, SEQ_LENGTH).with_format("numpy")
        for kind in kinds:
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
