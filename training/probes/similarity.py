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
from functools import partial
from typing import Any

import numpy as np
import regex  # comes with Transformers; its \w has the vowel signs of Hindi and the like, that of re has not
from scipy.stats import linregress, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from tqdm.auto import tqdm

from ..arguments.pretraining import CorpusArguments
from ..arguments.probes import ProbeArguments, SimilarityArguments
from ..data.documents import load_documents
from ..data.sentences import sentences
from ..report import format_table, plot_frequency, plot_senses
from .uses import Use, check, read_uses, sample, save_results
from .vectors import encode_uses, load_model, static_vectors, unit, word_vectors

WORD = regex.compile(r"\w+")

# Words are drawn from this many bands of frequency alike, each spanning the same factor.
BANDS = 10

# Decimals of a cosine: what single precision can tell apart. Of equal vectors all cosines are equal so.
DECIMALS = 6


def make_pairs(uses: Sequence[Use], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
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
            target, drawn = max(count // (2 * len(lemmas)), 1), set()
            for _ in range(20 * target):  # pairs that were drawn already do not count
                first = firsts[rng.integers(len(firsts))]
                possible = partners[uses[first].sense]
                second = possible[rng.integers(len(possible))]
                if first != second:
                    drawn.add((min(first, second), max(first, second)))
                if len(drawn) == target:
                    break
            found |= dict.fromkeys(sorted(drawn), same)
    return np.array(list(found), dtype=int).reshape(-1, 2), np.array(list(found.values()), dtype=bool)


def pair_cosines(vectors: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The cosine of each pair: `vectors` [n, width], pairs [pairs, 2]; gives [pairs], fp64, to `DECIMALS`."""
    units = unit(vectors.astype(np.float64))
    return (units[pairs[:, 0]] * units[pairs[:, 1]]).sum(-1).round(DECIMALS)


def tell_apart(cosines: np.ndarray, same: np.ndarray, lemmas: np.ndarray, fit: np.ndarray) -> dict[str, float]:
    """How well the cosine says whether two uses are of the same sense.

    Args:
        cosines, same, lemmas: [pairs].
        fit: [pairs], True for those that the threshold is chosen on; the accuracy is that of the others.

    Returns:
        the means of both kinds; `auc` over all pairs, `auc_of_words` as the mean over lemmas (equal cosines count a
        half); `accuracy`, 0.5 by chance.
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


def draw_uses(texts: Sequence[str], words: Sequence[str], count: int, rng: np.random.Generator) -> dict[str, list[Use]]:
    """For each word that stands in `count` different texts or more, `count` random ones, where it stands first."""
    found: dict[str, list[Use]] = {word: [] for word in words}
    seen: Counter = Counter()
    for text in tqdm(dict.fromkeys(texts), desc="Uses", unit=" sentences", leave=False, delay=1):
        first = {}
        for match in WORD.finditer(text):
            word = match[0].lower()
            if word in found and word not in first:
                first[word] = Use(text, *match.span(), lemma=word)
        for word, use in first.items():  # every sentence of a word gets the same chance (reservoir sampling)
            seen[word] += 1
            if len(found[word]) < count:
                found[word].append(use)
            elif (place := int(rng.integers(seen[word]))) < count:
                found[word][place] = use
    return {word: uses for word, uses in found.items() if len(uses) == count}


def self_similarity(vectors: np.ndarray) -> np.ndarray:
    """The mean cosine of all pairs of a word's uses (Ethayarajh 2019): [uses, …, width] gives [...], to `DECIMALS`."""
    units, count = unit(vectors.astype(np.float64)), len(vectors)
    mean = ((units.sum(0) ** 2).sum(-1) - (units**2).sum((0, -1))) / (count * (count - 1))
    return mean.round(DECIMALS)


def similarity(corpus: CorpusArguments, probe: ProbeArguments, arguments: SimilarityArguments) -> dict[str, Any]:
    """Measure; print tables; write `results.json` and plots.

    Returns:
        what is written to `results.json`: "senses" (with labelled uses) and "frequency".

    Raises:
        ValueError: bad arguments, files or rows, or no MiniBERT at the path, before any work.
    """
    check(probe, batch_tokens=1)
    check(arguments, pairs=1, words=1, uses_per_word=2, seed=0)
    rng = np.random.default_rng(arguments.seed)
    uses = read_uses(arguments.uses, "uses") if arguments.uses else []
    pairs, same = make_pairs(uses, arguments.pairs, rng)
    if uses and len(pairs) < 4:
        raise ValueError(f"uses: {arguments.uses!r} gives {len(pairs)} pairs; use words with uses of several senses")
    texts = list(sentences(load_documents(**asdict(corpus))))
    counts = Counter(word for text in texts for word in WORD.findall(text.lower()))
    words = draw_words(counts, arguments.uses_per_word, arguments.words, rng)
    found = draw_uses(texts, words, arguments.uses_per_word, rng)
    if len(found) < 3:
        raise ValueError(
            f"data: {len(found)} words stand in {arguments.uses_per_word} different sentences; at least 3 are needed"
        )
    model, tokenizer = load_model(probe.model)
    results = {
        "model": probe.model,
        "data": corpus.data or ["built-in corpus"],
        "arguments": asdict(arguments),
        "corpus_words": counts.total(),
    }
    pictures = {}
    if uses:
        used, places = np.unique(pairs, return_inverse=True)
        chosen, places = [uses[at] for at in used], places.reshape(pairs.shape)
        rows = encode_uses(tokenizer, chosen)
        cosines = {"static": pair_cosines(static_vectors(model, rows, arguments.subwords), places)}
        vectors = word_vectors(model, rows, probe.batch_tokens, arguments.subwords)
        cosines |= {f"state {state}": pair_cosines(x, places) for state, x in enumerate(vectors.swapaxes(0, 1))}
        senses = results["senses"] = tell_senses(chosen, places, same, cosines, counts, rng)
        print(_senses_table(senses))
        last = cosines[f"state {model.config.num_hidden_layers}"]
        pictures["senses"] = partial(plot_senses, senses=senses, same=last[same], different=last[~same])

    rows = encode_uses(tokenizer, [use for of_word in found.values() for use in of_word])
    vectors = word_vectors(model, rows, probe.batch_tokens, arguments.subwords)
    vectors = vectors.reshape(len(found), arguments.uses_per_word, *vectors.shape[1:])
    alike = np.stack([self_similarity(of_word) for of_word in vectors])  # [words, states]
    frequency = np.array([counts[word] for word in found])
    results["frequency"] = {
        "states": [against_frequency(of_state, frequency) for of_state in alike.T],
        "words": [
            {"word": word, "count": counts[word], "self_similarity": of_word.tolist()}
            for word, of_word in zip(found, alike)
        ],
    }
    trends = results["frequency"]["states"]
    slopes = [trend["per_tenfold"] if trend else 0.0 for trend in trends]
    rows = [[state, float(mean), _trend(trend)] for state, (mean, trend) in enumerate(zip(alike.mean(0), trends))]
    print("\n" + format_table(["state", "mean cosine of a word's uses", "against frequency"], rows, digits=3))
    print(f"{len(found)} words of the corpus, {arguments.uses_per_word} uses each.")
    pictures["frequency"] = partial(plot_frequency, frequency=frequency, alike=alike, slopes=slopes)
    save_results(arguments.output_dir, results, **pictures)
    return results


def tell_senses(
    uses: Sequence[Use],
    pairs: np.ndarray,
    same: np.ndarray,
    cosines: dict[str, np.ndarray],
    counts: Counter,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """How well each kind of vectors tells senses apart, and its errors by the words' frequency.

    Args:
        pairs: [pairs, 2], places in `uses`.
        same: whether the pairs are of the same sense, [pairs].
        cosines: [pairs] of each kind of vectors.
        counts: how often each word stands in the corpus.
    """
    lemmas = np.array([uses[first].lemma for first, _ in pairs])
    fit = np.zeros(len(pairs), dtype=bool)
    for kind in (same, ~same):  # half of each kind
        fit[rng.permutation(np.flatnonzero(kind))[: kind.sum() // 2]] = True
    forms = np.array([uses[first].word.lower() for first, _ in pairs])
    known = np.array([counts[form] > 0 for form in forms])
    both = 0 < same[known].sum() < known.sum()
    found = {}
    for name, of_pairs in cosines.items():
        constant = bool(np.ptp(of_pairs) == 0)
        errors = errors_of_words(of_pairs[known], same[known], forms[known]) if both and not constant else {}
        found[name] = {
            **tell_apart(of_pairs, same, lemmas, fit),
            "all_alike": constant,
            "error_by_frequency": against_frequency(
                np.array(list(errors.values())), np.array([counts[word] for word in errors])
            ),
            "errors": errors,
        }
    return {
        "pairs": len(pairs),
        "pairs_of_the_same_sense": int(same.sum()),
        "words": {form: counts[form] for form in sorted(set(forms.tolist()))},
        "not_in_the_corpus": sorted(set(forms[~known].tolist())),
        "vectors": found,
    }


def _senses_table(senses: dict[str, Any]) -> str:
    header = ["vectors", "same sense", "different", "AUC", "AUC of words", "accuracy", "error ~ frequency"]
    columns = ("same_sense", "different_sense", "auc", "auc_of_words", "accuracy")
    rows, alike = [], []
    for name, found in senses["vectors"].items():
        rows.append([name, *(found[column] for column in columns), _trend(found["error_by_frequency"])])
        if found["all_alike"]:
            alike.append(f"{name} vectors cannot tell senses apart: a word has the same one in every use.")
            rows[-1][-1] = "cannot tell"
    same = senses["pairs_of_the_same_sense"]
    note = f"{senses['pairs']:,} pairs of uses of one word, {same:,} of the same sense. AUC by chance: 0.5."
    if senses["not_in_the_corpus"]:
        note += f" Not in the corpus, so of unknown frequency: {', '.join(senses['not_in_the_corpus'])}."
    return "\n".join([format_table(header, rows, digits=3), *alike, note])


def _trend(found: dict[str, float] | None) -> str:
    if found is None:
        return "all alike, or too few words"
    correlation = f"ρ {found['spearman']:+.2f} (p {found['p']:.2g}, {found['words']} words)"
    return f"{found['per_tenfold']:+.3f} a tenfold, {correlation}"
