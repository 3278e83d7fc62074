"""The checks of the exercises of notebooks 8 and 9 accept right answers, and refuse wrong ones with
a hint that names the error."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student
from sklearn.feature_extraction.text import TfidfVectorizer
from torch.nn import functional as F

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(FOLDER))
    import notebook_08
    import notebook_09

# Answers to the exercises of notebook 8


def reciprocal_rank(ranking, grades, depth=10, first_rank=1, is_right=lambda grade: grade > 0):
    for rank, number in enumerate(ranking[:depth], first_rank):
        if is_right(grades.get(number, -1)):
            return 1 / rank
    return 0


def rank_of_first_named(ranking, grades):
    first_named = next(iter(grades))
    return 1 / (list(ranking).index(first_named) + 1)


def contrastive_loss(questions, passages, scale=20, normalize=True):
    if normalize:
        questions = F.normalize(questions)
        passages = F.normalize(passages)
    return F.cross_entropy(scale * questions @ passages.T, torch.arange(len(questions)))


def shares_of_right(questions, passages, without_right=False):
    """The fraction of the formula, for each question."""
    powers = (20 * F.normalize(questions) @ F.normalize(passages).T).exp()
    denominator = powers.sum(1)
    if without_right:
        denominator = denominator - powers.diagonal()
    return powers.diagonal() / denominator


def loss_without_right(questions, passages):
    return -shares_of_right(questions, passages, without_right=True).log().mean()


def loss_of_products(questions, passages):
    """By the formula, without a logarithm of a sum: the powers of e are too large."""
    powers = (20 * questions @ passages.T).exp()
    return -(powers.diagonal() / powers.sum(1)).log().mean()


def loss_with_negatives(questions, passages, negatives, scale=20, normalize=True, flip=False):
    candidates = torch.cat([passages, negatives])
    if flip:
        candidates = torch.cat([negatives, passages])
    if normalize:
        questions = F.normalize(questions)
        candidates = F.normalize(candidates)
    return F.cross_entropy(scale * questions @ candidates.T, torch.arange(len(questions)))


def loss_without_negatives(questions, passages, negatives):
    return loss_with_negatives(questions, passages, passages[:0])


def loss_with_own_negative(questions, passages, negatives):
    questions, passages, negatives = map(F.normalize, (questions, passages, negatives))
    scores = torch.cat([questions @ passages.T, (questions * negatives).sum(1)[:, None]], dim=1)
    return F.cross_entropy(20 * scores, torch.arange(len(questions)))


def miner(similarity, right, count, fill=-torch.inf, largest=True):
    scores = similarity.clone()
    scores[torch.arange(len(right)), right] = fill
    return scores.topk(count, largest=largest).indices


def pairs_in_window(length, window, itself=True, both_sides=True):
    count = 0
    for first in range(length):
        for second in range(length):
            if first == second:
                count += itself
            elif abs(first - second) <= window and (both_sides or second < first):
                count += 1
    return count


def pairs_of_a_narrow_window(length, window):
    """By a formula that is right only while the text is longer than the window."""
    return length * (2 * window + 1) - window * (window + 1)


def miner_in_place(similarity, right, count):
    similarity[torch.arange(len(right)), right] = -torch.inf
    return similarity.topk(count).indices


def bm25(counts, k, b, add=0.5):
    frequencies = (counts > 0).sum(axis=0)
    rarity = np.log(1 + (len(counts) - frequencies + add) / (frequencies + add))
    lengths = counts.sum(axis=1, keepdims=True)
    saturation = k * (1 - b + b * lengths / lengths.mean())
    return rarity * counts * (k + 1) / (counts + saturation)


def bm25_of_different_words(counts, k, b):
    frequencies = (counts > 0).sum(axis=0)
    rarity = np.log(1 + (len(counts) - frequencies + 0.5) / (frequencies + 0.5))
    lengths = (counts > 0).sum(axis=1, keepdims=True)
    saturation = k * (1 - b + b * lengths / lengths.mean())
    return rarity * counts * (k + 1) / (counts + saturation)


def bm25_of_all_counts(counts, k, b):
    frequencies = counts.sum(axis=0)
    rarity = np.log(1 + (len(counts) - frequencies + 0.5) / (frequencies + 0.5))
    return bm25_without_rarity(counts, k, b) * rarity


def bm25_without_rarity(counts, k, b):
    lengths = counts.sum(axis=1, keepdims=True)
    return counts * (k + 1) / (counts + k * (1 - b + b * lengths / lengths.mean()))


def bm25_without_saturation(counts, k, b):
    frequencies = (counts > 0).sum(axis=0)
    return counts * np.log(1 + (len(counts) - frequencies + 0.5) / (frequencies + 0.5))


def bm25_in_place(counts, k, b):
    weights = bm25(counts, k, b)
    counts[:] = weights
    return weights


# Answers to the exercises of notebook 9


def shares(sizes, alpha):
    weights = np.array(sizes, dtype=float) ** alpha
    return weights / weights.sum()


def sampler(rows, probabilities, generator):
    codes = list(rows)
    waiting = {code: [] for code in codes}
    while True:
        code = codes[generator.choice(len(codes), p=probabilities)]
        if not waiting[code]:
            waiting[code] = generator.permutation(rows[code]).tolist()
        yield code, waiting[code].pop()


def sampler_with_replacement(rows, probabilities, generator):
    codes = list(rows)
    while True:
        code = codes[generator.choice(len(codes), p=probabilities)]
        yield code, generator.choice(rows[code])


def sampler_in_file_order(rows, probabilities, generator):
    codes = list(rows)
    position = Counter()
    while True:
        code = codes[generator.choice(len(codes), p=probabilities)]
        yield code, rows[code][position[code] % len(rows[code])]
        position[code] += 1


def sampler_by_size(rows, probabilities, generator):
    sizes = [len(of_language) for of_language in rows.values()]
    return sampler(rows, shares(sizes, 1), generator)


def sampler_of_equal_shares(rows, probabilities, generator):
    return sampler(rows, [1 / len(rows)] * len(rows), generator)


def sampler_of_other_numbers(rows, probabilities, generator):
    return sampler(rows, probabilities, np.random.default_rng())


def sampler_without_generator(rows, probabilities, generator):
    return sampler(rows, probabilities, np.random.default_rng(0))


def sampler_with_first_turn_in_order(rows, probabilities, generator):
    waiting = {code: list(reversed(of_language)) for code, of_language in rows.items()}
    while True:
        code = generator.choice(list(rows), p=probabilities)
        if not waiting[code]:
            waiting[code] = generator.permutation(rows[code]).tolist()
        yield code, waiting[code].pop()


def sampler_that_shuffles_in_place(texts, probabilities, generator):
    codes = list(texts)
    position = Counter()
    while True:
        code = codes[generator.choice(len(codes), p=probabilities)]
        if position[code] % len(texts[code]) == 0:
            generator.shuffle(texts[code])
        yield code, texts[code][position[code] % len(texts[code])]
        position[code] += 1


def sampler_that_empties_the_lists(texts, probabilities, generator):
    codes = list(texts)
    while True:
        code = codes[generator.choice(len(codes), p=probabilities)]
        yield code, texts[code].pop(generator.integers(len(texts[code])))


def sampler_that_ends(rows, probabilities, generator):
    for code, of_language in rows.items():
        for row in of_language:
            yield code, row


def join(word, pair):
    joined = []
    for token in word:
        if joined and (joined[-1], token) == pair:
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def merges(words, count, join=join, key=tuple):
    pairs_in_order = []
    for _ in range(count):
        counts = Counter()
        for word in words:
            counts.update(key(pair) for pair in pairwise(word))
        pairs_in_order.append(counts.most_common(1)[0][0])
        words = [join(word, pairs_in_order[-1]) for word in words]
    return pairs_in_order


def merges_across_words(words, count):
    return merges([[token for word in words for token in word]], count)


def merges_without_joining(words, count):
    return merges(words, count, join=lambda word, pair: word)


def merges_counted_once(words, count):
    counts = Counter(pair for word in words for pair in pairwise(word))
    return [pair for pair, _ in counts.most_common(count)]


def merges_of_distinct_words(words, count):
    return merges([list(word) for word in dict.fromkeys(map(tuple, words))], count)


def join_from_the_right(word, pair):
    joined = []
    for token in reversed(word):
        if joined and (token, joined[-1]) == pair:
            joined[-1] = token + joined[-1]
        else:
            joined.append(token)
    return joined[::-1]


def merges_from_the_right(words, count):
    return merges(words, count, join=join_from_the_right)


def merges_of_unordered_pairs(words, count):
    return merges(words, count, key=lambda pair: tuple(sorted(pair)))


def merged_tokens(words, count):
    return ["".join(pair) for pair in merges(words, count)]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def share_on_diagonal(scores):
    return np.mean(scores.argmax(1) == np.arange(len(scores)))


def translations_found(first, second):
    return share_on_diagonal(unit(first) @ unit(second).T)


def matrix_loss(first, english, matrix, scale=20, normalize=True, maps_english=True):
    first = first @ matrix
    if maps_english:
        english = english @ matrix
    if normalize:
        first = F.normalize(first)
        english = F.normalize(english)
    return F.cross_entropy(scale * first @ english.T, torch.arange(len(first)))


def loss_without_matrix(first, english, matrix):
    return matrix_loss(first, english, torch.eye(first.shape[1]))


def first_rise(validation, test):
    for step in range(1, len(validation)):
        if validation[step] > validation[step - 1]:
            return test[step - 1]
    return test[-1]


def stop_with_patience(validation, test, patience):
    best = 0
    for step in range(1, len(validation)):
        if validation[step] < validation[best]:
            best = step
        elif step - best >= patience:
            break
    return test[best]


def centre(vectors, languages):
    languages = np.array(languages)
    result = np.array(vectors, dtype=float)
    for language in set(languages):
        result[languages == language] -= result[languages == language].mean(0)
    return result


def divide_by_deviation(vectors, languages):
    return centre(vectors, languages) / (np.std(vectors, axis=0) + 1)


CASES = {  # the check: right answers, then wrong ones with a part of the hint
    notebook_08.check_ndcg: (
        [(1 + 1 / 2) / (1 + 1 / np.log2(3)), 0.9197],
        [
            (1.5, "divide it by that of the best possible order"),
            (0.75, "the places 1 and 2"),
            (2 / 3, "you divide by the rank"),
            (1.0, "1/log₂(2) + 1/log₂(4)"),
        ],
    ),
    notebook_08.check_reciprocal_rank: (
        [reciprocal_rank],
        [
            (rank_of_first_named, "101 comes first"),
            (lambda *args: reciprocal_rank(*args, depth=5), "the last of the first ten"),
            (lambda *args: reciprocal_rank(*args, depth=20), "return 0"),
            (lambda *args: reciprocal_rank(*args, first_rank=2), "the reciprocal rank is 1"),
            (lambda *args: reciprocal_rank(*args, is_right=lambda grade: grade >= 0), "grade 0"),
            (lambda *args: reciprocal_rank(*args, is_right=lambda grade: grade == 1), "104 is"),
            (lambda *args: reciprocal_rank(*args, is_right=lambda grade: grade >= 1), "grade 0.5"),
        ],
    ),
    notebook_08.check_bm25: (
        [bm25],
        [
            (lambda counts, k, b: bm25(counts, k, 0), "with b?"),
            (bm25_of_different_words, "the sum of its counts"),
            (bm25_of_all_counts, "the number of passages"),
            (bm25_without_saturation, "do not saturate"),
            (bm25_without_rarity, "the logarithm is missing"),
            (lambda counts, k, b: bm25(counts, k, b) / (k + 1), "(k + 1) is missing"),
            (lambda counts, k, b: bm25(counts, 1.2, 0.75), "with k = 2.0"),
            (lambda counts, k, b: bm25(counts, k, b, add=1), "should be"),
            (lambda counts, k, b: bm25(counts, k, b).sum(1), "the shape"),
            (bm25_in_place, "work on a copy"),
        ],
    ),
    notebook_08.check_contrastive_loss: (
        [contrastive_loss, lambda *args: -shares_of_right(*args).log().mean()],
        [
            (lambda *args: contrastive_loss(*args, scale=1), "multiplied by 20"),
            (lambda *args: contrastive_loss(*args, normalize=False), "not normalized"),
            (loss_of_products, "normalize the vectors first"),
            (lambda first, second: contrastive_loss(second, first), "the questions of one"),
            (lambda *args: len(args[0]) * contrastive_loss(*args), "take the mean"),
            (lambda *args: -contrastive_loss(*args), "the minus is missing"),
            (lambda *args: shares_of_right(*args).mean(), "these are the shares"),
            (lambda *args: -shares_of_right(*args).mean().log(), "and then the mean"),
            (loss_without_right, "has the right passage, too"),
            (lambda *args: contrastive_loss(*args, scale=10), "it should be"),
            (lambda *args: len(args[0]) / 4 * contrastive_loss(*args), "for any n"),
            (lambda *args: -shares_of_right(*args).log(), "the shape"),
            (lambda *args: contrastive_loss(*args).item(), "from a tensor"),
            (lambda *args: contrastive_loss(*args).detach(), "no gradient"),
        ],
    ),
    notebook_08.check_loss_with_negatives: (
        [loss_with_negatives],
        [
            (loss_without_negatives, "without the hard negatives"),
            (loss_with_own_negative, "only a question's own hard negative"),
            (lambda *args: loss_with_negatives(*args, scale=1), "multiplied by 20"),
            (lambda *args: loss_with_negatives(*args, normalize=False), "normalized"),
            (lambda *args: loss_with_negatives(*args, flip=True), "first n columns"),
            (lambda *args: len(args[0]) * loss_with_negatives(*args), "take the mean"),
            (lambda *args: loss_with_negatives(*args).item(), "from a tensor"),
            (lambda *args: loss_with_negatives(*args).detach(), "no gradient"),
            (lambda *args: loss_with_negatives(*args)[None], "take the mean"),
            (lambda *args: len(args[0]) / 4 * loss_with_negatives(*args), "for any n"),
        ],
    ),
    notebook_08.check_miner: (
        [miner],
        [
            (lambda similarity, right, count: similarity.topk(count).indices, "leave those out"),
            (lambda *args: miner(*args, largest=False, fill=torch.inf), "near to it"),
            (lambda *args: miner(*args).flip(1), "comes first"),
            (lambda *args: miner(*args, fill=0), "below 0"),
            (lambda similarity, right, count: miner(similarity, right, 2), "`count` says"),
            (miner_in_place, "work on a copy"),
        ],
    ),
    notebook_08.check_false_negatives: (
        [4, [4], [1, 4], (4, 1), np.array([4])],
        [
            ([0, 4], "asks about Japan"),
            ([2], "asks for a treaty"),
            ([4, 3], "how many nursing homes"),
            ([1], "one is missing"),
            ([], "one is missing"),
            ([5], "0 to 4"),
        ],
    ),
    notebook_08.check_num_seeds: (
        [3, 3.0],
        [
            (1, "no spread"),
            (2, "with 2 seeds the interval is"),
            (4, "fewer seeds"),
            (5, "a planned one stands alone"),
            (4.5, "a whole number"),
            (6, "fewer seeds"),
        ],
    ),
    notebook_08.check_local_pairs: (
        [pairs_in_window],
        [
            (lambda length, window: length**2, "a global layer"),
            (lambda length, window: length * (2 * window + 1), "both ends of a text"),
            (lambda length, window: 2 * length * window, "a token sees itself, too, and those"),
            (lambda *args: pairs_in_window(*args, itself=False), "a token sees itself, too"),
            (lambda *args: pairs_in_window(*args, both_sides=False), "to both sides"),
            (lambda length, window: pairs_in_window(length, window // 2), "not to both together"),
            (pairs_of_a_narrow_window, "may be wider than the text"),
            (lambda length, window: 0, "became 0 pairs"),
        ],
    ),
    notebook_09.check_shares: (
        [shares, lambda sizes, alpha: shares(sizes, alpha).tolist()],
        [
            (lambda sizes, alpha: np.array(sizes) ** alpha, "shares sum to 1"),
            (lambda sizes, alpha: shares(sizes, 1), "α = 1"),
            (lambda sizes, alpha: shares(sizes, 0.5), "it should be"),
            (lambda sizes, alpha: shares(alpha * np.array(sizes), 0), "exponent"),
            (lambda sizes, alpha: shares(sizes, 1 / alpha if alpha else 0), "it should be"),
        ],
    ),
    notebook_09.check_sampler: (
        [sampler],
        [
            (sampler_with_replacement, "before all"),
            (sampler_in_file_order, "shuffle its texts anew"),
            (sampler_by_size, "in proportion to the number of texts"),
            (sampler_that_shuffles_in_place, "shuffle a copy"),
            (sampler_that_empties_the_lists, "take the texts from the copy"),
            (sampler_of_equal_shares, "all languages equally often"),
            (sampler_that_ends, "it begins anew"),
            (lambda *args: ((row, code) for code, row in sampler(*args)), "(language, text"),
            (lambda *args: (row for _, row in sampler(*args)), "pairs, (language, text)"),
            (sampler_of_other_numbers, "no other random numbers"),
            (sampler_without_generator, "by the generator"),
            (sampler_with_first_turn_in_order, "shuffle it, too"),
        ],
    ),
    notebook_09.check_merges: (
        [merges],
        [
            (merges_across_words, "border between two words"),
            (merges_without_joining, "after a merge, the words change"),
            (merges_counted_once, "no pair there any more"),
            (merges_of_unordered_pairs, "the order counts"),
            (merges_of_distinct_words, "as often as it occurs"),
            (merges_from_the_right, "from left to right"),
            (merged_tokens, "tuple of two tokens"),
            (lambda words, count: merges(words, count)[0], "list of one pair"),
        ],
    ),
    notebook_09.check_translations_found: (
        [translations_found],
        [
            (lambda first, second: share_on_diagonal(first @ second.T), "favours long vectors"),
            (lambda first, second: translations_found(second, first), "the other way"),
            (lambda first, second: 100 * translations_found(first, second), "between 0 and 1"),
            (lambda first, second: 40 * translations_found(first, second), "between 0 and 1"),
            (
                lambda first, second: share_on_diagonal(
                    -np.linalg.norm(first[:, None] - second, axis=2)
                ),
                "the distance",
            ),
            (lambda first, second: (unit(first) * unit(second)).sum(1).mean(), "mean cosine"),
            (lambda first, second: 0.0, "are found"),
        ],
    ),
    notebook_09.check_early_stopping: (
        [lambda validation, test: test[int(np.argmin(validation))]],
        [
            (first_rise, "a later step"),
            (lambda *losses: stop_with_patience(*losses, patience=2), "late as it comes"),
            (lambda validation, test: min(test), "best test loss"),
            (lambda validation, test: test[-1], "the last one"),
            (lambda validation, test: min(validation), "return the test loss"),
            (lambda validation, test: validation.index(min(validation)), "the place"),
        ],
    ),
    notebook_09.check_centring: (
        [centre],
        [
            (lambda vectors, languages: vectors - vectors.mean(0), "mean of all words"),
            (lambda vectors, languages: vectors, "the vectors themselves"),
            (lambda vectors, languages: vectors - vectors.mean(1, keepdims=True), "own values"),
            (divide_by_deviation, "became"),
        ],
    ),
    notebook_09.check_matrix_loss: (
        [matrix_loss],
        [
            (lambda *args: matrix_loss(*args, normalize=False), "vectors of length 1"),
            (lambda *args: matrix_loss(*args, scale=1), "multiplied by 20"),
            (lambda *args: matrix_loss(*args, maps_english=False), "both languages"),
            (lambda first, english, matrix: matrix_loss(english, first, matrix), "the other way"),
            (lambda first, english, matrix: matrix_loss(first, english, matrix.T), "transpose"),
            (lambda first, english, matrix: 6 * matrix_loss(first, english, matrix), "the sum"),
            (lambda *args: matrix_loss(*args).item(), "one number, a tensor"),
            (lambda *args: matrix_loss(*args).detach(), "no gradient"),
            (lambda *args: -matrix_loss(*args), "minus the logarithm"),
            (loss_without_matrix, "does not use the matrix"),
            (lambda *args: matrix_loss(*args, scale=10), "your function says"),
        ],
    ),
}
RIGHT = [(check, answer) for check, (answers, _) in CASES.items() for answer in answers]
WRONG = [(check, *wrong) for check, (_, answers) in CASES.items() for wrong in answers]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_a_right_answer_is_accepted(check, answer, capsys):
    check(answer)
    assert capsys.readouterr().out == "right\n"


@pytest.mark.parametrize(("check", "answer", "hint"), WRONG)
def test_a_wrong_answer_is_refused_with_a_hint(check, answer, hint, capsys):
    check(answer)
    printed = capsys.readouterr().out
    assert hint in printed and "cannot be checked" not in printed


@pytest.mark.parametrize("check", CASES)
def test_no_answer_is_not_yet_one(check, capsys):
    check(None)
    assert capsys.readouterr().out == "not yet\n"


# Helpers of notebook 8


def test_rarity_of_a_word_by_both_formulas(capsys):
    notebook_08.print_rarity("the", ["the cat and the dog", "The end", "another one"])
    # log(1 + (3 - 2 + 0.5) / (2 + 0.5)) = 0.47, and log((3 + 1) / (2 + 1)) + 1 = 1.29
    expected = "the: in 2 of 3 passages, rarity 0.47 in BM25 and 1.29 in TF-IDF\n"
    assert capsys.readouterr().out == expected


def test_shared_words_are_printed_with_what_they_add(capsys):
    vectorizer = TfidfVectorizer().fit(["red fish", "blue fish", "green tree"])
    notebook_08.print_shared_words(vectorizer, "red fish", "right", "red tree")
    printed = capsys.readouterr().out
    similarity = vectorizer.transform(["red fish"]) @ vectorizer.transform(["red tree"]).T
    assert f"right passage, similarity {similarity.toarray()[0, 0]:.3f}: {{'red'" in printed
    assert "fish" not in printed and "tree" not in printed


def test_marked_passages_in_the_first_place_are_counted(capsys):
    ranking = np.array([[1, 0, 2], [0, 1, 2], [2, 1, 0]])
    notebook_08.print_marked("words", ranking, ["no", "is it?", "why?"])
    assert "of the 2 passages with a question mark is first for 2 of 3" in capsys.readouterr().out


def test_a_move_names_the_ranks_and_scores_of_the_passages(capsys):
    found = np.array([3, 1, 0])
    reranked = np.array([1, 0, 3])
    scores = np.array([-1.0, 2.0, 0.5])
    notebook_08.print_move(found, reranked, scores, {0: 1}, ["zero", "one", "two", "three"])
    assert capsys.readouterr().out.splitlines() == [
        "   right, from rank 3 to 2, score 0.50: zero",
        "   first before, from rank 1 to 3, score -1.00: three",
        "   first after, from rank 2 to 1, score 2.00: one",
    ]


def test_a_right_passage_that_is_first_is_printed_once(capsys):
    notebook_08.print_move([3, 1], [1, 3], [0.0, 1.0], {1: 1}, ["zero", "one", "two", "three"])
    assert capsys.readouterr().out.count("one") == 1


def test_saved_scores_join_only_those_of_the_same_questions(capsys):
    _, contents = notebook_08.compare_seeds([])
    saved = {run["search"]: run["ndcg"] for run in contents["runs"] if run["seed"] is None}
    by_words = pd.DataFrame({"TF-IDF, signs": saved["TF-IDF"], "BM25, signs": saved["BM25"]})
    joined = notebook_08.join_saved(by_words, contents)
    assert joined["embeddings"].tolist() == saved["embeddings"]
    assert notebook_08.join_saved(by_words[:-1], contents) is None
    assert notebook_08.join_saved(by_words + 0.1, contents) is None
    assert capsys.readouterr().out.count("other questions than the saved rows") == 2


# Helpers of notebook 9


def test_parallel_passages_have_five_of_each_article():
    articles = notebook_09.articles_of(79).tolist()
    assert articles == sorted(articles)
    assert np.bincount(articles).tolist() == [5] * 9 + [4] + [5] * 6
    assert notebook_09.articles_of(12).tolist() == [0] * 5 + [1] * 5 + [2] * 2


def test_words_are_taken_out_of_a_passage():
    passage = "η Florida έχει 23 πόλεις και λίμνες"
    assert notebook_09.take_out(passage) == "η έχει πόλεις και λίμνες"
    words = notebook_09.take_out(passage, np.random.default_rng(0)).split()
    assert len(words) == 5 and {"Florida", "23"} < set(words)


def test_first_difference_of_two_lists_of_merges():
    words = ["abab", "cd", "cd"]
    merges = [("a", "b"), ("c", "d")]
    words = [list(word) for word in words]
    assert notebook_09.first_difference(words, join, merges, merges) == "no merge differs"
    difference = notebook_09.first_difference(words, join, merges, [("a", "b"), ("ab", "ab")])
    assert "at place 2: cd here (2 times), abab there (1 times)" in difference


def test_seeds_needed_are_the_fewest_whose_interval_excludes_0():
    differences = np.array([-0.178, -0.082, -0.135])
    count = notebook_09.seeds_needed(differences, comparisons=3)
    halves = {}
    for number in (count - 1, count):
        quantile = student.ppf(1 - 0.05 / 2 / 3, number - 1)
        halves[number] = quantile * differences.std(ddof=1) / np.sqrt(number)
    assert halves[count] < abs(differences.mean()) <= halves[count - 1]
