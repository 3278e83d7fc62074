"""The same word in two contexts, and what the cosine of its two vectors is worth.

With labelled uses, pairs of the same and of different senses are told apart by the cosine: of static vectors (the
embedding matrix), and of contextual ones. Then two questions of Zhou et al. 2022 ("Problems with cosine as a measure of
embedding similarity for high frequency words"): do the uses of a frequent word lie further apart, and does the cosine
therefore err in one direction?
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import regex  # comes with Transformers; its \w has the vowel signs of Hindi and the like, that of re has not
from pictures import plot_frequency, plot_senses
from scipy.stats import linregress, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.preprocessing import scale
from tqdm.auto import tqdm
from uses import Corpus, Probe, Use, option, parse, read_uses, sample, save_results
from vectors import SUBWORDS_HELP, contributions, encode_uses, load_model, static_vectors, unit, word_vectors

from minibert.training.data.sentences import sentences
from minibert.training.report import format_table

WORD = regex.compile(r"\w+")
BANDS = 10  # of frequency, each spanning the same factor, which words are drawn from alike
DECIMALS = 6  # of a cosine: what single precision can tell apart, so that of equal vectors all cosines are equal


def make_pairs(uses: Sequence[Use], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of uses of one lemma ([pairs, 2] places in `uses`, no pair twice), and whether they are of the same sense
    ([pairs]): as many that are as that are not, each lemma as often as any other; of more lemmas than `count` has room
    for, some drawn at random. Where the uses do not give so many, they are fewer than `count`.

    A pair's first use is drawn from all uses of the lemma, the second from those that it may be paired with. Lemmas
    with one sense, and uses that are alone in their sense, make no pair.
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
    """How well the cosine says whether two uses are of the same sense, all arguments [pairs]. The threshold of the
    accuracy is chosen where `fit` is True and measured elsewhere. `auc_of_words` is the mean over lemmas."""
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
    correlation, p = map(float, spearmanr(frequency, values))
    slope = float(linregress(np.log10(frequency), values).slope)
    return {"words": len(values), "spearman": correlation, "p": p, "per_tenfold": slope}


def show_trend(found: dict[str, float] | None) -> str:
    if found is None:
        return "all alike, or too few words"
    return "{per_tenfold:+.3f} a tenfold, ρ {spearman:+.2f} (p {p:.2g}, {words} words)".format(**found)


def errors_of_words(cosines: np.ndarray, same: np.ndarray, words: np.ndarray) -> dict[str, float]:
    """The cosine's error, by word: 1 for the same sense or 0, less the chance of it that the cosine gives (logistic
    regression over all pairs). Positive: the cosine finds the word's uses less alike than they are."""
    spread = scale(cosines)[:, None]  # cosines that lie close together would end the fit before it begins
    chance = LogisticRegression(C=np.inf).fit(spread, same).predict_proba(spread)[:, 1]
    return {str(word): float((same - chance)[words == word].mean()) for word in np.unique(words)}


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
        first: dict[str, Use] = {}
        for match in WORD.finditer(text):
            if (word := match[0].lower()) in found:
                first.setdefault(word, Use(text, *match.span(), lemma=word))
        for word, use in first.items():  # every sentence of a word gets the same chance (reservoir sampling)
            seen[word] += 1
            if len(found[word]) < count:
                found[word].append(use)
            elif (place := int(rng.integers(seen[word]))) < count:
                found[word][place] = use
    return {word: uses for word, uses in found.items() if len(uses) == count}


def tell_senses(
    uses: Sequence[Use], pairs: np.ndarray, cosines: dict[str, np.ndarray], counts: Counter, rng: np.random.Generator
) -> dict[str, Any]:
    """Print and return how well the cosines [pairs] of each kind of vectors tell the senses of pairs (places in `uses`,
    [pairs, 2]) apart, and their errors by the words' frequency, that is their `counts` in the corpus."""
    same = np.array([uses[first].sense == uses[second].sense for first, second in pairs])
    lemmas, forms = (np.array(x) for x in zip(*[(uses[at].lemma, uses[at].word.lower()) for at in pairs[:, 0]]))
    fit = np.zeros(len(pairs), dtype=bool)
    for kind in (same, ~same):  # half of each kind
        fit[rng.permutation(np.flatnonzero(kind))[: kind.sum() // 2]] = True
    known = np.array([counts[form] > 0 for form in forms])
    both = 0 < same[known].sum() < known.sum()
    found, table, notes = {}, [], []
    for name, of_pairs in cosines.items():
        figures = tell_apart(of_pairs, same, lemmas, fit)
        constant = bool(np.ptp(of_pairs) == 0)
        errors = errors_of_words(of_pairs[known], same[known], forms[known]) if both and not constant else {}
        trend = against_frequency(np.array(list(errors.values())), np.array([counts[word] for word in errors]))
        found[name] = figures | {"all_alike": constant, "error_by_frequency": trend, "errors": errors}
        table.append([name, *figures.values(), "cannot tell" if constant else show_trend(trend)])
        if constant:
            notes.append(f"{name} vectors cannot tell senses apart: a word has the same one in every use.")
    notes.append(f"{len(pairs):,} pairs of uses of one word, {same.sum():,} of the same sense. AUC by chance: 0.5.")
    if unknown := sorted({*forms[~known].tolist()}):
        notes[-1] += f" Not in the corpus, so of unknown frequency: {', '.join(unknown)}."
    header = ["vectors", "same sense", "different", "AUC", "AUC of words", "accuracy", "error ~ frequency"]
    print("\n".join([format_table(header, table, digits=3), *notes]))
    return {
        "pairs": len(pairs),
        "pairs_of_the_same_sense": int(same.sum()),
        "words": {form: counts[form] for form in sorted({*forms.tolist()})},
        "not_in_the_corpus": unknown,
        "vectors": found,
    }


@dataclass
class Arguments:
    uses: str | None = option(None, "Labelled uses (columns tokens, target_index, lemma, sense), paired at random.")
    pairs: int = option(4000, "Pairs of uses, half of them of the same sense.")
    subwords: Literal["mean", "first"] = option("mean", SUBWORDS_HELP)
    words: int = option(300, "Words of the corpus, spread over the frequencies, whose uses are compared.")
    uses_per_word: int = option(10, "Uses of each of these words.")
    seed: int = option(0, "Seed of the pairs, words and uses that are drawn.")
    output_dir: str = option("runs/probe-similarity", "Folder for the results and plots.")


def main(corpus: Corpus, probe: Probe, arguments: Arguments) -> dict[str, Any]:
    """Measure; print tables; write plots and `results.json`, which is returned: "senses" (with labelled uses) and
    "frequency"."""
    rng = np.random.default_rng(arguments.seed)
    uses = read_uses(arguments.uses) if arguments.uses else []
    pairs, same = make_pairs(uses, arguments.pairs, rng)
    kinds = np.bincount(same, minlength=2)
    if uses and kinds.min() < 2:  # the threshold of the accuracy is chosen on half of each kind
        given = f"{kinds[1]} pairs of uses of the same sense and {kinds[0]} of different ones"
        raise ValueError(f"uses: {arguments.uses!r} gives {given}; use words with several uses of several senses")
    texts = list(sentences(corpus.documents()))
    counts = Counter(word for text in texts for word in WORD.findall(text.lower()))
    words = draw_words(counts, arguments.uses_per_word, arguments.words, rng)
    found = draw_uses(texts, words, arguments.uses_per_word, rng)
    if len(found) < 3:
        given = f"{len(found)} words stand in {arguments.uses_per_word} different sentences"
        raise ValueError(f"data: {given}; at least 3 are needed")
    model, tokenizer = load_model(probe.model)
    results, pictures = {"corpus_words": counts.total()}, {}
    if uses:
        used, places = np.unique(pairs, return_inverse=True)
        chosen, places = [uses[at] for at in used], places.reshape(pairs.shape)
        rows = encode_uses(tokenizer, chosen, arguments.subwords)
        cosines = {"static": pair_cosines(static_vectors(model, rows), places)}
        vectors = word_vectors(model, rows, probe.batch_tokens)
        cosines |= {f"state {state}": pair_cosines(x, places) for state, x in enumerate(vectors.swapaxes(0, 1))}
        senses = results["senses"] = tell_senses(chosen, places, cosines, counts, rng)
        last = cosines[f"state {model.config.num_hidden_layers}"]
        pictures["senses"] = partial(plot_senses, senses=senses, same=last[same], different=last[~same])

    rows = encode_uses(tokenizer, [use for of_word in found.values() for use in of_word], arguments.subwords)
    vectors = np.split(word_vectors(model, rows, probe.batch_tokens), len(found))
    # [words, states]: the mean cosine of all pairs of a word's uses (Ethayarajh 2019)
    alike = np.stack([contributions(of_word).sum(-1) for of_word in vectors]).round(DECIMALS)
    frequency = np.array([counts[word] for word in found])
    trends = [against_frequency(of_state, frequency) for of_state in alike.T]
    entries = [{"word": w, "count": counts[w], "self_similarity": row.tolist()} for w, row in zip(found, alike)]
    results["frequency"] = {"states": trends, "words": entries}
    slopes = [trend["per_tenfold"] if trend else 0.0 for trend in trends]
    table = [[state, float(mean), show_trend(trend)] for state, (mean, trend) in enumerate(zip(alike.mean(0), trends))]
    print("\n" + format_table(["state", "mean cosine of a word's uses", "against frequency"], table, digits=3))
    print(f"{len(found)} words of the corpus, {arguments.uses_per_word} uses each.")
    pictures["frequency"] = partial(plot_frequency, frequency=frequency, alike=alike, slopes=slopes)
    return save_results(results, probe, arguments, corpus, **pictures)


if __name__ == "__main__":
    main(*parse(__doc__, Corpus, Probe, Arguments))
