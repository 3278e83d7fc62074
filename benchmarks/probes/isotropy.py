"""How alike the vectors of random tokens are, which dimensions make them so, and what
z-scoring changes.

Random vectors have a mean cosine near 0 in an isotropic space, and far above in a contextual one (Ethayarajh 2019). It
is a sum over dimensions, of which a few "rogue" ones give most; z-scoring takes their part away (Timkey and van
Schijndel 2021, sections 3 and 4). Special tokens, whose states are nearly the same in every sentence, are run with the
others but left out of what is measured: so the STS correlation is not quite that of sentence-transformers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from pictures import plot_isotropy
from scipy.stats import spearmanr
from sklearn.preprocessing import StandardScaler
from uses import Corpus, Probe, draw_sentences, option, parse, read_table, save_results
from vectors import Row, contributions, encode_texts, hidden_states, load_model, unit, word_vectors

from minibert.training.report import format_table

ROGUE = 3


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


@dataclass
class Arguments:
    tokens: int = option(2000, "Random tokens compared, one a sentence; as many more give means and deviations.")
    sts: str | None = option(None, "Sentence pairs (columns sentence1, sentence2, score) to measure the effect on.")
    seed: int = option(0, "Seed of the sentences and tokens that are drawn.")
    output_dir: str = option("runs/probe-isotropy", "Folder for the results and plots.")


def main(corpus: Corpus, probe: Probe, arguments: Arguments) -> dict[str, Any]:
    """Measure every state; print a table; write `isotropy.png` and `results.json`, which is returned: "states" has the
    figures of every state, "raw" and "z_scored"."""
    sts = read_table(arguments.sts) if arguments.sts else []
    pairs = {name: [row[name] for row in sts] for name in ("sentence1", "sentence2")} if sts else {}
    scores = [float(row["score"]) for row in sts]
    rng = np.random.default_rng(arguments.seed)
    texts = draw_sentences(corpus.documents(), 2 * arguments.tokens, rng)
    model, tokenizer = load_model(probe.model)
    rows = [row for row in encode_texts(tokenizer, texts) if row]
    if len(rows) < 4:
        raise ValueError(f"data: {len(rows)} sentences; at least 4 are needed")
    sides = [encode_texts(tokenizer, texts) for texts in pairs.values()]
    # means and deviations come from other sentences than the tokens that are compared
    half = len(rows) // 2
    rows, others = rows[:half], rows[half:]
    scalers = corpus_moments(model, others, probe.batch_tokens)
    places = [int(rng.integers(row.start, row.stop)) for row in rows]
    drawn = [replace(row, start=place, stop=place + 1) for row, place in zip(rows, places)]
    vectors = [word_vectors(model, each, probe.batch_tokens) for each in (drawn, *sides)]

    states, table = [], []
    for state, scaler in enumerate(scalers):
        raw = [x[:, state] for x in vectors]
        # z-scoring is linear: that of a sentence, which is a mean, is the mean of its z-scored tokens
        scaled = [scaler.transform(x.astype(np.float64)) for x in raw]
        before, after = rogue_dimensions(raw[0]), rogue_dimensions(scaled[0])
        share = "" if before["share"] is None else f"{before['share']:.1%}"
        top = " ".join(map(str, before["top"]))
        table.append([state, before["mean_cosine"], top, share, after["mean_cosine"], after["contribution"]])
        if pairs:
            for figures, (_, first, second) in ((before, raw), (after, scaled)):
                cosines = (unit(first) * unit(second)).sum(-1)
                figures["sts_spearman"] = float(spearmanr(cosines, scores).statistic)
                table[-1].append(figures["sts_spearman"])
        states.append({"state": state, "raw": before, "z_scored": after})

    header = ["state", "mean cosine", f"top {ROGUE}", "share", "z-scored: mean cosine", f"top {ROGUE} give"]
    print(format_table(header + (["STS", "z-scored: STS"] if pairs else []), table, digits=3))
    print(f"\nMean cosine over all pairs of {half:,} random tokens, each of another sentence; the {ROGUE} dimensions")
    print(f"that give most to it and their share; z-scored with the moments of {len(others):,} other sentences.")
    if pairs:
        print(f"STS: Spearman over {len(scores):,} pairs, sentences as the mean of their tokens without special ones.")
    found = {"tokens": half, "sentences_for_moments": len(others), "sts_pairs": len(scores), "states": states}
    return save_results(found, probe, arguments, corpus, isotropy=partial(plot_isotropy, states=states, rogue=ROGUE))


if __name__ == "__main__":
    main(*parse(__doc__, Corpus, Probe, Arguments))
