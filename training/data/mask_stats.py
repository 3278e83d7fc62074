"""`minibert mask-stats`: what share of real tokens the collator masks, replaces and keeps, against what it should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from ...tokenization import train_tokenizer
from ...tokenization.train import ALGORITHMS
from ..arguments.pretraining import CorpusArguments, MaskStatsArguments
from .collators import MaskedLMCollator
from .documents import load_documents, tokenize_documents
from .masking import IGNORE_INDEX, MASKING_KINDS
from .packing import pack_documents

# A rate this many standard errors from its expected value is wrong rather than unlucky (chance: 6 in 10 million).
TOLERANCE = 5.0

VOCAB_SIZE = 8192
SEQ_LENGTH = 128
BATCH_SIZE = 64


@dataclass
class Rate:
    """A share observed over many rows, beside its expected value."""

    name: str
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
class Measurement:
    """The rates of one tokenizer and one kind of masking over about `wanted` tokens, to be exact over `tokens`."""

    tokenizer: str
    masking: str
    wanted: int
    tokens: int
    rates: list[Rate]

    @property
    def label(self) -> str:
        return f"{self.tokenizer}, {self.masking}"


def mask_stats(corpus: CorpusArguments, arguments: MaskStatsArguments) -> int:
    """Print and draw the rates for each tokenizer, kind of masking and number of tokens.

    A tokenizer of each algorithm is trained on the corpus, the corpus is packed into rows, and batches of rows are
    masked as in training. Table and plot go to `arguments.output_dir` as `mask-stats.txt` and `mask-stats.png`.

    Returns:
        The process's exit status: 1 when a rate lies more than `TOLERANCE` standard errors off, else 0.

    Raises:
        ValueError: bad arguments, or no text, before anything is trained or masked.
    """
    _check(arguments)
    documents = load_documents(**vars(corpus))
    measurements = []
    for algorithm in arguments.algorithms:
        tokenizer = train_tokenizer(documents["text"], algorithm=algorithm, vocab_size=VOCAB_SIZE)
        rows = pack_documents(tokenize_documents(documents, tokenizer), tokenizer, SEQ_LENGTH).with_format("numpy")
        for kind in arguments.kinds:
            collator = MaskedLMCollator(
                tokenizer,
                mlm_probability=arguments.mlm_probability,
                masking=kind,
                seed=arguments.seed,
                at_least_one_target=False,  # it lifts the rate of short documents
            )
            counts = count_outcomes(collator, rows, max(arguments.tokens), f"{algorithm}, {kind}")
            totals = np.cumsum(counts[:, 0])
            for tokens in sorted(arguments.tokens):
                taken = counts[: np.searchsorted(totals, tokens) + 1]
                found = rates(collator, taken)
                measurements.append(Measurement(algorithm, kind, tokens, int(taken[:, 0].sum()), found))

    checked = [rate for measurement in measurements for rate in measurement.rates]
    wrong = sum(rate.deviation > TOLERANCE for rate in checked)
    report = (
        f"{table(measurements)}\n{wrong} of {len(checked)} rates lie more than {TOLERANCE:g} standard errors (SE) off."
    )
    print(report)
    folder = Path(arguments.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mask-stats.txt").write_text(report + "\n", encoding="utf-8")
    draw(measurements, folder / "mask-stats.png")
    print(f"Written: {folder / 'mask-stats.txt'}, {folder / 'mask-stats.png'}")
    return 1 if wrong else 0


def count_outcomes(collator: MaskedLMCollator, rows: Sequence, tokens: int, title: str = "") -> np.ndarray:
    """Mask rows, in as many epochs as it takes, until `tokens` tokens could have been chosen.

    Returns:
        int64 [rows, 5]: of each row the tokens that could be chosen, the targets, and the targets that became [MASK],
        a random token, or stayed.
    """
    special = collator.tokenizer.all_special_ids
    counts, seen, epoch = [], 0, 0
    with tqdm(total=tokens, desc=title or "Masking", unit=" tokens", unit_scale=True, leave=False) as progress:
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


def rates(collator: MaskedLMCollator, counts: np.ndarray) -> list[Rate]:
    """The shares of targets among tokens, and of the three outcomes among targets.

    The tokens of a word or span share their fate, those of different rows do not: so the standard error of a share
    comes from the rows' deviations from the expected value (a ratio estimator clustered by row).

    Args:
        counts: [rows, 5], see `count_outcomes`.
    """
    kept = 1 - collator.mask_replace_prob - collator.random_replace_prob
    shares = (
        ("chosen", collator.mlm_probability, 1, 0),
        ("[MASK]", collator.mask_replace_prob, 2, 1),
        ("random", collator.random_replace_prob, 3, 1),
        ("kept", kept, 4, 1),
    )
    found = []
    for name, expected, part, whole in shares:
        total = max(counts[:, whole].sum(), 1)
        deviations = counts[:, part] - expected * counts[:, whole]
        found.append(Rate(name, expected, counts[:, part].sum() / total, np.sqrt((deviations**2).sum()) / total))
    return found


def table(measurements: Sequence[Measurement]) -> str:
    """One line per measurement: the shares in percent with their 95 % intervals."""
    names = [f"{rate.name} {rate.expected:.1%}" for rate in measurements[0].rates]
    lines = [("tokenizer", "masking", "tokens", *names, "furthest off")]
    for measurement in measurements:
        shares = [f"{100 * rate.observed:.2f} ± {100 * rate.half_interval:.2f} %" for rate in measurement.rates]
        furthest = max(rate.deviation for rate in measurement.rates)
        mark = "  WRONG" if furthest > TOLERANCE else ""
        lines.append(
            (
                measurement.tokenizer,
                measurement.masking,
                f"{measurement.tokens:,}",
                *shares,
                f"{furthest:.1f} SE{mark}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def draw(measurements: Sequence[Measurement], path: Path) -> None:
    """One panel per share: observed values with 95 % intervals against the expected one, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(measurement.label for measurement in measurements))
    sizes = sorted({measurement.wanted for measurement in measurements})
    figure = Figure(figsize=(12, 1.5 + 0.3 * len(labels)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(measurements[0].rates), sharey=True, squeeze=False)[0]
    for number, panel in enumerate(panels):
        wanted = measurements[0].rates[number]
        panel.axvline(100 * wanted.expected, color="0.6", linewidth=1, zorder=0)
        for place, size in enumerate(sizes):
            shown = [measurement for measurement in measurements if measurement.wanted == size]
            panel.errorbar(
                [100 * measurement.rates[number].observed for measurement in shown],
                [labels.index(measurement.label) + 0.3 * (place / len(sizes) - 0.25) for measurement in shown],
                xerr=[100 * measurement.rates[number].half_interval for measurement in shown],
                fmt="o",
                markersize=3,
                capsize=2,
                label=f"{size:,} tokens",
            )
        panel.set_title(f"{wanted.name}: expected {wanted.expected:.1%}", fontsize=10)
        panel.set_xlabel("% of tokens" if number == 0 else "% of chosen tokens")
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(sizes), frameon=False)
    figure.savefig(path, dpi=150)


def _check(arguments: MaskStatsArguments) -> None:
    """All that can be wrong with the arguments, before any work."""
    legal = {"algorithms": ALGORITHMS, "kinds": MASKING_KINDS}
    for name in ("tokens", *legal):
        if not getattr(arguments, name):
            raise ValueError(f"{name}: empty; legal: one or more")
    for tokens in arguments.tokens:
        if tokens < 1:
            raise ValueError(f"tokens: {tokens} is no number of tokens; legal: 1 and more")
    for name, names in legal.items():
        for given in getattr(arguments, name):
            if given not in names:
                raise ValueError(f"{name}: {given!r} is not known; legal: {', '.join(names)}")
    if not 0 <= arguments.mlm_probability <= 1:
        raise ValueError(f"mlm_probability: {arguments.mlm_probability} is no rate; legal: 0 to 1")
    if Path(arguments.output_dir).is_file():
        raise ValueError(f"output_dir: {arguments.output_dir!r} is a file; legal: a folder, existing or new")
