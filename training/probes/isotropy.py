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
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.preprocessing import StandardScaler

from ..arguments.pretraining import CorpusArguments
from ..arguments.probes import IsotropyArguments, ProbeArguments
from ..data.documents import load_documents
from ..report import format_table, plot_isotropy
from .uses import check, draw_sentences, read_pairs, save_results
from .vectors import Row, encode_texts, hidden_states, load_model, unit, word_vectors

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
    mean, contribution = float(given.sum()), float(given[top].sum())
    share = contribution / mean if mean > 0.01 else None
    return {"mean_cosine": mean, "top": top.tolist(), "contribution": contribution, "share": share}


def corpus_moments(model, rows: Sequence[Row], batch_tokens: int) -> list[StandardScaler]:
    """Mean and standard deviation of all tokens but special ones, in fp64: a scaler for every state."""
    scalers = [StandardScaler() for _ in range(model.config.num_hidden_layers + 1)]
    for batch, states in hidden_states(model, rows, batch_tokens, "Corpus"):
        inside = np.zeros(states.shape[1:3], dtype=bool)
        for number, row in enumerate(batch):
            inside[number, rows[row].start : rows[row].stop] = True
        for scaler, tokens in zip(scalers, states.double().cpu().numpy()[:, inside]):
            scaler.partial_fit(tokens)
    return scalers


def sts_spearman(first: np.ndarray, second: np.ndarray, scores: np.ndarray) -> float:
    """Spearman correlation of the cosines of pairs, [n, width] each, with people's scores."""
    return float(spearmanr((unit(first) * unit(second)).sum(-1), scores).statistic)


def isotropy(corpus: CorpusArguments, probe: ProbeArguments, arguments: IsotropyArguments) -> dict[str, Any]:
    """Measure every state; print a table; write `results.json` and `isotropy.png`.

    Returns:
        what is written to `results.json`: "states" has the figures of every state, "raw" and "z_scored".

    Raises:
        ValueError: bad arguments, files or rows, or no MiniBERT at the path, before any work.
    """
    check(probe, batch_tokens=1)
    check(arguments, tokens=2, seed=0)
    pairs = read_pairs(arguments.sts, "sts") if arguments.sts else []
    rng = np.random.default_rng(arguments.seed)
    texts = draw_sentences(load_documents(**asdict(corpus)), 2 * arguments.tokens, rng)
    model, tokenizer = load_model(probe.model)
    rows = encode_texts(tokenizer, texts)
    if len(rows) < 4:
        raise ValueError(f"data: {len(rows)} sentences; at least 4 are needed")
    sides = []
    for side in (0, 1):
        names = [f"sts: {arguments.sts}, row {number}: sentence{side + 1}" for number in range(1, len(pairs) + 1)]
        sides.append(encode_texts(tokenizer, [pair[side] for pair in pairs], names))

    # means and deviations come from other sentences than the tokens that are compared
    half = len(rows) // 2
    rows, others = rows[:half], rows[half:]
    scalers = corpus_moments(model, others, probe.batch_tokens)
    places = [int(rng.integers(row.start, row.stop)) for row in rows]
    drawn = [replace(row, start=place, stop=place + 1) for row, place in zip(rows, places)]
    tokens = word_vectors(model, drawn, probe.batch_tokens, desc="Random tokens")
    sides = [word_vectors(model, side, probe.batch_tokens, desc="STS") for side in sides if side]
    scores = np.array([pair[2] for pair in pairs])

    states, table = [], []
    for state, scaler in enumerate(scalers):
        raw = [x[:, state] for x in (tokens, *sides)]
        # z-scoring is linear: that of a sentence, which is a mean, is the mean of its z-scored tokens
        scaled = [scaler.transform(x.astype(np.float64)) for x in raw]
        states.append({"state": state})
        for name, (drawn, *both) in (("raw", raw), ("z_scored", scaled)):
            states[-1][name] = rogue_dimensions(drawn)
            if pairs:
                states[-1][name]["sts_spearman"] = sts_spearman(*both, scores)
        found, z_scored = states[-1]["raw"], states[-1]["z_scored"]
        share = "" if found["share"] is None else f"{found['share']:.1%}"
        top = " ".join(map(str, found["top"]))
        table.append([state, found["mean_cosine"], top, share, z_scored["mean_cosine"], z_scored["contribution"]])
        table[-1] += [x["sts_spearman"] for x in (found, z_scored) if pairs]

    header = ["state", "mean cosine", f"top {ROGUE}", "share", "z-scored: mean cosine", f"top {ROGUE} give"]
    print(format_table(header + (["STS", "z-scored: STS"] if pairs else []), table, digits=3))
    print(
        f"\nMean cosine over all pairs of {half:,} random tokens, each of another sentence; the {ROGUE} dimensions that"
        f" give most to it\nand their share; z-scored with the means and deviations of {len(others):,} other"
        " sentences."
    )
    if pairs:
        print(f"STS: Spearman over {len(pairs):,} pairs, sentences as the mean of their tokens without special ones.")
    results = {
        "model": probe.model,
        "data": corpus.data or ["built-in corpus"],
        "arguments": asdict(arguments),
        "tokens": half,
        "sentences_for_moments": len(others),
        "sts_pairs": len(pairs),
        "states": states,
    }
    save_results(arguments.output_dir, results, isotropy=lambda path: plot_isotropy(path, states, ROGUE))
    return results
