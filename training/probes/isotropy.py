"""`minibert probe isotropy`: how alike the vectors of random tokens are, which dimensions make them so, and what
z-scoring changes.

In an isotropic space random vectors have a mean cosine near 0; that of contextual vectors is far above (Ethayarajh
2019). The mean cosine is a sum over dimensions, of which a few "rogue" ones give most; subtracting the corpus mean and
dividing by the deviation takes their part away (Timkey and van Schijndel 2021, sections 3 and 4).

Special tokens are run with the others but left out of everything that is measured: their states are nearly the same in
every sentence. So the STS correlation is not quite that of sentence-transformers, which averages them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from ..arguments.pretraining import CorpusArguments
from ..arguments.probes import IsotropyArguments, ProbeArguments
from ..data.documents import load_documents
from .data import check_positive, draw_sentences, read_pairs, save, table
from .vectors import Use, hidden_states, load_model, max_length, span_vectors, unit, whole_rows

ROGUE = 3


def contributions(vectors: np.ndarray) -> np.ndarray:
    """What each dimension gives to the mean cosine of all pairs of different vectors; the sum is that mean cosine.

    For a pair (u, v) dimension i gives u_i v_i / (|u| |v|) (Timkey and van Schijndel 2021, equation 3).

    Args:
        vectors: [n, width], at least two.

    Returns:
        [width], fp64.
    """
    units = unit(vectors.astype(np.float64))
    count = len(units)
    return (units.sum(0) ** 2 - (units**2).sum(0)) / (count * (count - 1))


def rogue_dimensions(vectors: np.ndarray) -> dict[str, Any]:
    """The mean cosine of random pairs, the dimensions that give most to it, and their share of it (None where the
    mean cosine is too near to 0 for shares to say anything)."""
    given = contributions(vectors)
    top = np.argsort(-given)[:ROGUE]
    mean = float(given.sum())
    share = float(given[top].sum()) / mean if mean > 0.01 else None
    return {"mean_cosine": mean, "top": top.tolist(), "contribution": float(given[top].sum()), "share": share}


def corpus_moments(model, rows: Sequence[Use], batch_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of all tokens but special ones, at every state: [L + 1, width] each, fp64."""
    total, squares, count = 0.0, 0.0, 0
    for batch, states, mask in hidden_states(model, [row.input_ids for row in rows], batch_tokens, "Corpus"):
        inside = mask.new_zeros(mask.shape)
        for number, row in enumerate(batch):
            inside[number, rows[row].start : rows[row].stop] = True
        tokens = states[:, inside].double()
        total += tokens.sum(1)
        squares += (tokens**2).sum(1)
        count += tokens.shape[1]
    mean = total / count
    deviation = (squares / count - mean**2).clamp(min=0).sqrt()
    return mean.cpu().numpy(), deviation.cpu().numpy()


def z_score(vectors: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Vectors [n, width] as deviations from the mean; a dimension that never varies becomes 0."""
    return np.where(deviation > 0, (vectors - mean) / np.where(deviation > 0, deviation, 1), 0)


def sts_spearman(first: np.ndarray, second: np.ndarray, scores: np.ndarray) -> float:
    """Spearman correlation of the cosines of pairs, [n, width] each, with people's scores."""
    return float(spearmanr((unit(first) * unit(second)).sum(-1), scores).statistic)


def isotropy(corpus: CorpusArguments, probe: ProbeArguments, arguments: IsotropyArguments) -> None:
    """Measure every state; print a table; write `results.json` and `isotropy.png`.

    Raises:
        ValueError: bad arguments, files or rows, or no MiniBERT at the path, before any work.
    """
    check_positive(probe, "batch_tokens")
    check_positive(arguments, "tokens")
    if arguments.tokens < 2:
        raise ValueError(f"tokens: {arguments.tokens}; legal: 2 and more, since pairs are compared")
    pairs = read_pairs(arguments.sts, "sts") if arguments.sts else []
    rng = np.random.default_rng(arguments.seed)
    texts = draw_sentences(load_documents(**asdict(corpus)), 2 * arguments.tokens, rng)
    model, tokenizer = load_model(probe.model)
    limit = max_length(model, tokenizer)
    rows = whole_rows(tokenizer, texts, limit)
    if len(rows) < 4:
        raise ValueError(f"data: {len(rows)} sentences; at least 4 are needed")
    pair_rows = []
    for side in (0, 1):
        names = [f"sts: {arguments.sts}, row {number}: sentence{side + 1}" for number in range(1, len(pairs) + 1)]
        pair_rows.append(whole_rows(tokenizer, [pair[side] for pair in pairs], limit, names))

    # means and deviations come from other sentences than the tokens that are compared
    half = len(rows) // 2
    mean, deviation = corpus_moments(model, rows[half:], probe.batch_tokens)
    places = [int(rng.integers(row.start, row.stop)) for row in rows[:half]]
    spans = [[(place, place + 1)] for place in places]
    tokens = span_vectors(model, [row.input_ids for row in rows[:half]], spans, probe.batch_tokens, "Random tokens")[
        :, 0
    ]
    sides = [
        span_vectors(model, [row.input_ids for row in side], [[row.word()] for row in side], probe.batch_tokens, "STS")[
            :, 0
        ]
        for side in pair_rows
        if side
    ]
    scores = np.array([pair[2] for pair in pairs])

    states = []
    for state in range(tokens.shape[1]):
        moments = mean[state], deviation[state]
        found = {
            "state": state,
            "raw": rogue_dimensions(tokens[:, state]),
            "z_scored": rogue_dimensions(z_score(tokens[:, state], *moments)),
        }
        if sides:
            # z-scoring is linear: that of a mean is the mean of the z-scored tokens
            found["raw"]["sts_spearman"] = sts_spearman(*(side[:, state] for side in sides), scores)
            scored = (z_score(side[:, state], *moments) for side in sides)
            found["z_scored"]["sts_spearman"] = sts_spearman(*scored, scores)
        states.append(found)

    print(_table(states, bool(sides)))
    print(
        f"\nMean cosine over all pairs of {half:,} random tokens, each of another sentence; the {ROGUE} dimensions that"
        f" give most to it\nand their share; z-scored with the means and deviations of {len(rows) - half:,} other"
        " sentences."
        + (
            f"\nSTS: Spearman over {len(pairs):,} pairs, sentences as the mean of their tokens without special ones."
            if sides
            else ""
        )
    )
    results = {
        "model": probe.model,
        "data": corpus.data or ["built-in corpus"],
        "arguments": asdict(arguments),
        "tokens": half,
        "sentences_for_moments": len(rows) - half,
        "sts_pairs": len(pairs),
        "states": states,
    }
    save(arguments.output_dir, results, isotropy=_draw(states, bool(sides)))


def _table(states: Sequence[dict[str, Any]], sts: bool) -> str:
    header = ["state", "mean cosine", f"top {ROGUE}", "share", "z-scored: mean cosine", f"top {ROGUE} give"]
    lines = [header + (["STS", "z-scored: STS"] if sts else [])]
    for found in states:
        raw, scored = found["raw"], found["z_scored"]
        top = " ".join(map(str, raw["top"]))
        share = "" if raw["share"] is None else f"{raw['share']:.1%}"
        line = [found["state"], raw["mean_cosine"], top, share, scored["mean_cosine"], scored["contribution"]]
        lines.append(line + ([raw["sts_spearman"], scored["sts_spearman"]] if sts else []))
    return table(lines)


def _draw(states: Sequence[dict[str, Any]], sts: bool) -> Figure:
    figure = Figure(figsize=(12 if sts else 8, 4.5), layout="constrained")
    panels = figure.subplots(1, 2 if sts else 1, squeeze=False)[0]
    numbers = [found["state"] for found in states]
    for shift, key, label, color in ((-0.2, "raw", "raw", "C0"), (0.2, "z_scored", "z-scored", "C1")):
        places = [number + shift for number in numbers]
        means = [found[key]["mean_cosine"] for found in states]
        panels[0].bar(places, means, width=0.38, color=color, label=label)
        given = [found[key]["contribution"] for found in states]
        hatched = f"of this the top {ROGUE} dimensions" if key == "z_scored" else None
        panels[0].bar(
            places, given, width=0.38, fill=False, hatch="////", edgecolor="black", linewidth=0, label=hatched
        )
        if sts:
            panels[1].plot(numbers, [found[key]["sts_spearman"] for found in states], "o-", color=color, label=label)
    panels[0].axhline(0, color="black", linewidth=0.8)
    panels[0].set(xlabel="state (0: embeddings)", ylabel="mean cosine of random tokens", xticks=numbers)
    if sts:
        panels[1].set(xlabel="state (0: embeddings)", ylabel="Spearman correlation on STS", xticks=numbers)
    for panel in panels:
        panel.grid(alpha=0.3, axis="y")
        panel.legend(fontsize=8)
    return figure
