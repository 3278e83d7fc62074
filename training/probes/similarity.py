"""`minibert probe similarity`: the same word in two contexts, and what the cosine of its two vectors is worth.

With labelled uses, pairs of the same and of different senses are told apart by the cosine: of static vectors (the
embedding matrix, where a word is always the same), and of contextual ones. Then two questions of Zhou et al. 2022
("Problems with cosine as a measure of embedding similarity for high frequency words") are asked: do the uses of a
frequent word lie further apart, and does the cosine therefore err in one direction?
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import datasets
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import linregress, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from tqdm.auto import tqdm

from ..arguments.pretraining import CorpusArguments
from ..arguments.probes import ProbeArguments, SimilarityArguments
from ..data.documents import load_documents
from .data import WORD, LabelledUse, check_positive, each_text, read_uses, sample, save, sentences, table
from .vectors import (
    load_model,
    max_length,
    static_vectors,
    unit,
    uses_in_text,
    uses_in_words,
    word_vectors,
)

# Words that a plot names at most.
NAMED = 60

# Words are drawn from this many bands of frequency alike, each spanning the same factor.
BANDS = 10


def count_words(documents: datasets.Dataset) -> Counter:
    """How often each word stands in the corpus, in lower case."""
    counts: Counter = Counter()
    for text in each_text(documents):
        counts.update(WORD.findall(text.lower()))
    return counts


def make_pairs(uses: Sequence[LabelledUse], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of uses of one lemma, as many of the same sense as of different ones, each lemma as often as any other; of
    more lemmas than `count` has room for, some drawn at random.

    A pair's first use is drawn from all uses of the lemma, the second from those that it may be paired with. Lemmas
    with one sense, and uses that are alone in their sense, make no pair.

    Returns:
        pairs [pairs, 2] of places in `uses`, none twice, and whether each pair is of the same sense [pairs]. They are
        fewer than `count` where the uses do not give so many.
    """
    of_sense: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, use in enumerate(uses):
        of_sense[use.lemma][use.sense].append(place)
    lemmas = [senses for senses in of_sense.values() if len(senses) > 1 and max(map(len, senses.values())) > 1]
    lemmas = sample(lemmas, max(count // 2, 1), rng)
    found: dict[tuple[int, int], bool] = {}
    for senses in tqdm(lemmas, desc="Pairs", unit=" lemmas", leave=False, delay=1):
        everything = [place for places in senses.values() for place in places]
        repeated = [place for places in senses.values() if len(places) > 1 for place in places]
        others = {sense: [place for place in everything if uses[place].sense != sense] for sense in senses}
        for firsts, partners, same in ((repeated, senses, True), (everything, others, False)):
            wanted, drawn = max(count // (2 * len(lemmas)), 1), set()
            for _ in range(20 * wanted):  # pairs that were drawn already do not count
                first = firsts[rng.integers(len(firsts))]
                possible = partners[uses[first].sense]
                second = possible[rng.integers(len(possible))]
                if first != second:
                    drawn.add((min(first, second), max(first, second)))
                if len(drawn) == wanted:
                    break
            found |= dict.fromkeys(sorted(drawn), same)
    return np.array(list(found), dtype=int).reshape(-1, 2), np.array(list(found.values()), dtype=bool)


def pair_cosines(vectors: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The cosine of each pair: `vectors` [n, …, width], pairs [pairs, 2]; gives [pairs, …]."""
    units = unit(vectors)
    return (units[pairs[:, 0]] * units[pairs[:, 1]]).sum(-1)


def tell_apart(cosines: np.ndarray, same: np.ndarray, lemmas: np.ndarray, fit: np.ndarray) -> dict[str, float]:
    """How well the cosine says whether two uses are of the same sense.

    Args:
        cosines, same, lemmas: [pairs].
        fit: [pairs], True for those that the threshold is chosen on; the accuracy is that of the others.

    Returns:
        the means of both kinds; `auc` over all pairs, `auc_of_words` as the mean over lemmas; `accuracy`, 0.5 by
        chance.
    """
    false_rate, true_rate, thresholds = roc_curve(same[fit], cosines[fit])
    threshold = thresholds[np.argmax(true_rate - false_rate)]
    words = [roc_auc_score(same[lemmas == lemma], cosines[lemmas == lemma]) for lemma in np.unique(lemmas)]
    return {
        "same_sense": float(cosines[same].mean()),
        "different_sense": float(cosines[~same].mean()),
        "auc": float(roc_auc_score(same, cosines)),
        "auc_of_words": float(np.mean(words)),
        "accuracy": float(((cosines >= threshold) == same)[~fit].mean()),
    }


def against_frequency(values: np.ndarray, frequency: np.ndarray) -> dict[str, float] | None:
    """Values of words against the logarithm of their frequency: Spearman correlation with its p-value, and the change
    for a word ten times as frequent (least squares). None if all values or all frequencies are alike."""
    if len(values) < 3 or np.ptp(values) < 1e-6 or np.ptp(frequency) == 0:
        return None
    rank = spearmanr(frequency, values)
    return {
        "words": len(values),
        "spearman": float(rank.statistic),
        "p": float(rank.pvalue),
        "per_tenfold": float(linregress(np.log10(frequency), values).slope),
    }


def errors_of_words(cosines: np.ndarray, same: np.ndarray, words: Sequence[str]) -> dict[str, float]:
    """The cosine's error, by word: 1 for the same sense or 0, less the chance of it that the cosine gives (logistic
    regression over all pairs). Positive: the cosine finds the word's uses less alike than they are."""
    chance = LogisticRegression(C=np.inf).fit(cosines[:, None], same).predict_proba(cosines[:, None])[:, 1]
    errors = defaultdict(list)
    for word, error in zip(words, same - chance):
        errors[word].append(error)
    return {word: float(np.mean(of_word)) for word, of_word in errors.items()}


def draw_words(counts: Counter, minimum: int, count: int, rng: np.random.Generator) -> list[str]:
    """Words that occur at least `minimum` times, spread evenly over bands of frequency; numbers are no words."""
    frequent = [(word, times) for word, times in sorted(counts.items()) if times >= minimum and not word.isnumeric()]
    if not frequent:
        return []
    logarithms = np.log([times for _, times in frequent])
    bands = np.digitize(logarithms, np.linspace(logarithms.min(), logarithms.max(), BANDS + 1)[1:-1])
    words = []
    for band in range(BANDS):
        members = [word for (word, _), of_band in zip(frequent, bands) if of_band == band]
        words += sample(members, -(-count // BANDS), rng)
    return sample(words, count, rng)


def find_uses(documents: datasets.Dataset, words: Sequence[str], count: int, rng: np.random.Generator):
    """For each word at most `count` random sentences and where it stands there first: {word: [(text, span)]}."""
    wanted = set(words)
    found: dict[str, list[tuple[str, tuple[int, int]]]] = {word: [] for word in words}
    seen: Counter = Counter()
    for text in dict.fromkeys(sentences(documents)):
        first = {}
        for match in WORD.finditer(text):
            word = match[0].lower()
            if word in wanted and word not in first:
                first[word] = match.span()
        for word, span in first.items():  # every sentence of a word gets the same chance (reservoir sampling)
            seen[word] += 1
            if len(found[word]) < count:
                found[word].append((text, span))
            elif (place := int(rng.integers(seen[word]))) < count:
                found[word][place] = (text, span)
    return found


def self_similarity(vectors: np.ndarray) -> np.ndarray:
    """The mean cosine of all pairs of a word's uses (Ethayarajh 2019): [uses, …, width] gives [...]."""
    units, count = unit(vectors), len(vectors)
    return ((units.sum(0) ** 2).sum(-1) - (units**2).sum((0, -1))) / (count * (count - 1))


def similarity(corpus: CorpusArguments, probe: ProbeArguments, arguments: SimilarityArguments) -> None:
    """Measure; print tables; write `results.json` and plots.

    Raises:
        ValueError: bad arguments, files or rows, or no MiniBERT at the path, before any work.
    """
    check_positive(probe, "batch_tokens")
    check_positive(arguments, "pairs", "words")
    if arguments.uses_per_word < 2:
        raise ValueError(f"uses_per_word: {arguments.uses_per_word}; legal: 2 and more, since uses are compared")
    rng = np.random.default_rng(arguments.seed)
    uses = read_uses(arguments.uses, "uses") if arguments.uses else []
    pairs, same = make_pairs(uses, arguments.pairs, rng)
    if uses and len(pairs) < 4:
        raise ValueError(f"uses: {arguments.uses!r} gives {len(pairs)} pairs; legal: words with uses of several senses")
    documents = load_documents(**asdict(corpus))
    counts = count_words(documents)
    words = draw_words(counts, arguments.uses_per_word, arguments.words, rng)
    found = find_uses(documents, words, arguments.uses_per_word, rng)
    found = {word: of_word for word, of_word in found.items() if len(of_word) == arguments.uses_per_word}
    if len(found) < 3:
        raise ValueError(
            f"data: {len(found)} words stand in {arguments.uses_per_word} different sentences; at least 3 are needed"
        )
    model, tokenizer = load_model(probe.model)
    limit = max_length(model, tokenizer)
    results = {
        "model": probe.model,
        "data": corpus.data or ["built-in corpus"],
        "arguments": asdict(arguments),
        "corpus_words": counts.total(),
    }
    figures = {}
    if uses:
        used, places = np.unique(pairs, return_inverse=True)
        chosen, places = [uses[at] for at in used], places.reshape(pairs.shape)
        rows = uses_in_words(
            tokenizer,
            [use.tokens for use in chosen],
            [use.target_index for use in chosen],
            limit,
            [use.name for use in chosen],
        )
        static = pair_cosines(static_vectors(model, rows, arguments.subwords), places)
        contextual = pair_cosines(word_vectors(model, rows, probe.batch_tokens, arguments.subwords), places)
        results["senses"] = _senses(chosen, places, same, static, contextual, counts, rng)
        print(_senses_table(results["senses"]))
        figures["senses"] = _draw_senses(results["senses"], contextual[:, -1], same)

    texts = [use for of_word in found.values() for use in of_word]
    rows = uses_in_text(tokenizer, [text for text, _ in texts], [span for _, span in texts], limit)
    vectors = word_vectors(model, rows, probe.batch_tokens, arguments.subwords)
    vectors = vectors.reshape(len(found), arguments.uses_per_word, *vectors.shape[1:])
    alike = np.stack([self_similarity(of_word) for of_word in vectors])  # [words, states]
    frequency = np.array([counts[word] for word in found])
    results["frequency"] = {
        "states": [against_frequency(of_state, frequency) for of_state in alike.T],
        "words": [
            {"word": word, "count": int(count), "self_similarity": of_word.tolist()}
            for word, count, of_word in zip(found, frequency, alike)
        ],
    }
    print(_frequency_table(results["frequency"], arguments.uses_per_word))
    figures["frequency"] = _draw_frequency(frequency, alike, results["frequency"])
    save(arguments.output_dir, results, **figures)


def _senses(chosen, pairs, same, static, contextual, counts, rng) -> dict[str, Any]:
    lemmas = np.array([chosen[first].lemma for first, _ in pairs])
    fit = np.zeros(len(pairs), dtype=bool)
    for kind in (same, ~same):  # half of each kind
        fit[rng.permutation(np.flatnonzero(kind))[: kind.sum() // 2]] = True
    forms = [chosen[first].tokens[chosen[first].target_index].lower() for first, _ in pairs]
    known = np.array([counts[form] > 0 for form in forms])
    rows = {"static": static, **{f"state {number}": cosines for number, cosines in enumerate(contextual.T)}}
    found = {}
    for name, cosines in rows.items():
        errors = errors_of_words(cosines[known], same[known], np.array(forms)[known]) if _both(same[known]) else {}
        by_word = np.array(list(errors.values())), np.array([counts[word] for word in errors])
        found[name] = {
            **tell_apart(cosines, same, lemmas, fit),
            "error_by_frequency": against_frequency(*by_word),
            "errors": errors,
        }
    unknown = sorted({form for form, is_known in zip(forms, known) if not is_known})
    return {
        "pairs": len(pairs),
        "pairs_of_the_same_sense": int(same.sum()),
        "words": {form: counts[form] for form in sorted(set(forms))},
        "not_in_the_corpus": unknown,
        "vectors": found,
    }


def _both(labels: np.ndarray) -> bool:
    return labels.any() and not labels.all()


def _senses_table(senses: dict[str, Any]) -> str:
    header = ["vectors", "same sense", "different", "AUC", "AUC of words", "accuracy", "error ~ frequency"]
    lines = [header]
    for name, found in senses["vectors"].items():
        columns = ("same_sense", "different_sense", "auc", "auc_of_words", "accuracy")
        lines.append([name, *(found[column] for column in columns), _trend(found["error_by_frequency"])])
    same = senses["pairs_of_the_same_sense"]
    note = f"{senses['pairs']:,} pairs of uses of one word, {same:,} of the same sense. AUC by chance: 0.5."
    if senses["not_in_the_corpus"]:
        note += f" Not in the corpus, so of unknown frequency: {', '.join(senses['not_in_the_corpus'])}."
    return f"{table(lines)}\n{note}"


def _frequency_table(frequency: dict[str, Any], uses: int) -> str:
    lines = [["state", "mean cosine of a word's uses", "against frequency"]]
    means = np.mean([word["self_similarity"] for word in frequency["words"]], axis=0)
    for state, (mean, found) in enumerate(zip(means, frequency["states"])):
        lines.append([state, float(mean), _trend(found)])
    return f"\n{table(lines)}\n{len(frequency['words'])} words of the corpus, {uses} uses each."


def _trend(found: dict[str, float] | None) -> str:
    if found is None:
        return "all alike, or too few words"
    correlation = f"ρ {found['spearman']:+.2f} (p {found['p']:.2g}, {found['words']} words)"
    return f"{found['per_tenfold']:+.3f} a tenfold, {correlation}"


def _draw_senses(senses: dict[str, Any], last: np.ndarray, same: np.ndarray) -> Figure:
    figure = Figure(figsize=(14, 4.5), layout="constrained")
    panels = figure.subplots(1, 3)
    names = list(senses["vectors"])
    for key, label in (("auc", "AUC"), ("auc_of_words", "AUC, mean of words"), ("accuracy", "accuracy")):
        panels[0].plot(names, [senses["vectors"][name][key] for name in names], "o-", label=label)
    panels[0].axhline(0.5, color="gray", linestyle="--", linewidth=1, label="chance")
    panels[0].tick_params(axis="x", rotation=45)
    panels[0].set_title("Same sense or another?")
    edges = np.linspace(last.min(), last.max(), 40)
    for kind, label in ((same, "same sense"), (~same, "different senses")):
        panels[1].hist(last[kind], edges, alpha=0.5, label=label)
    panels[1].set(xlabel="cosine at the last state", ylabel="pairs", title="Two uses of a word")
    errors = senses["vectors"][names[-1]]["errors"]
    for word, error in errors.items():
        panels[2].plot(senses["words"][word], error, "o", color="C0", markersize=4)
        if len(errors) <= NAMED:
            panels[2].annotate(word, (senses["words"][word], error), fontsize=7)
    panels[2].axhline(0, color="gray", linewidth=1)
    panels[2].set(xscale="log", xlabel="times in the corpus", ylabel="error (above 0: seen as too different)",
                  title="The cosine's error by frequency, last state")  # fmt: skip
    for panel in panels:
        panel.grid(alpha=0.3)
    for panel in panels[:2]:
        panel.legend(fontsize=8)
    return figure


def _draw_frequency(frequency: np.ndarray, alike: np.ndarray, found: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, 2)
    for state, name in ((1, "state 1"), (alike.shape[1] - 1, "last state")):
        panels[0].plot(frequency, alike[:, state], ".", alpha=0.6, label=name)
    panels[0].set(xscale="log", xlabel="times in the corpus", ylabel="mean cosine of the word's uses")
    slopes = [0.0 if entry is None else entry["per_tenfold"] for entry in found["states"]]
    panels[1].bar(range(len(slopes)), slopes)
    panels[1].axhline(0, color="black", linewidth=0.8)
    panels[1].set(xlabel="state (0: embeddings)", ylabel="change for a word ten times as frequent")
    for panel in panels:
        panel.grid(alpha=0.3)
    panels[0].legend()
    return figure
