"""Notebook 9, all that is none of its ideas: the data, the checks of its exercises (which give the
answers away), the reading of its files, words and passages as tokens, and its pictures.
"""

import copy
import json
import re
import tempfile
import unicodedata
from collections import Counter, defaultdict
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from course import draw_seeds, exercise
from scipy.stats import t as student
from torch.nn import functional as F
from transformers.convert_slow_tokenizer import bytes_to_unicode

PIECE_CHARACTERS = 200
PUNCTUATION = ".,;:!?()[]{}\"'«»“”„‘’…–—-।،؛؟·%"  # at the ends of words
BYTE_OF_CHARACTER = {character: byte for byte, character in bytes_to_unicode().items()}
# English words and their translations, all spelled in another way, in forms that the parallel
# passages have.
WORD_PAIRS = {
    "de": (
        "the die, of von, and und, to zu, a eine, is ist, that dass, as als, for für, on auf, are"
        " sind, was war, with mit, it es, or oder, from aus, not nicht, has hat, other anderen,"
        " this diese, were waren, have haben, more mehr, also auch, most meisten, government"
        " regierung, many viele, all alle, they sie, can kann, years jahre, time zeit, number zahl,"
        " first ersten, while während, between zwischen, only nur, because weil, two zwei, no"
        " keine, after nach, since seit, both beiden, species arten, members mitglieder, people"
        " menschen, if wenn, example beispiel, within innerhalb, city stadt"
    ),
    "ru": (
        "in в, and и, that что, as как, not не, for для, on на, with с, also также, or или, to к,"
        " time времени, is является, were были, but но, they они, it это, years лет, more более,"
        " was был, he он, are являются, between между, be быть, so так, other других, under под,"
        " than чем, example например, however однако, only только, after после, can может, usually"
        " обычно, numbers чисел, number число, all всех, species видов, because поскольку, which"
        " которые, government правительства, civil гражданское, his его, their их, where где, many"
        " многие, if если, one один, school школа, animals животных"
    ),
}


def made_up_texts(codes):
    """For the quick mode of the tests: a folder with passages of random words."""
    folder = Path(tempfile.mkdtemp())
    generator = np.random.default_rng(0)
    for code in codes:
        words = ["".join(generator.choice(list("abcdefghij"), 4)) for _ in range(100)]
        for name, count in ((f"{code}/train.txt", 60), (f"parallel/{code}.txt", 20)):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            passages = [" ".join(generator.choice(words, 30)) for _ in range(count)]
            path.write_text("\n".join(passages), "utf-8")
    return folder


def set_style():
    plt.rcParams |= {"figure.dpi": 90, "font.size": 9, "figure.constrained_layout.use": True}


def read_lines(path, count=None):
    return path.read_text("utf-8").splitlines()[:count]


def read_pieces(folder, codes, small, num_passages):
    """{language: its text in pieces of 200 characters}, the largest language first. Of the small
    languages only the first passages are taken."""
    pieces = {}
    for code in codes:
        count = num_passages if code in small else None
        text = "\n".join(read_lines(folder / code / "train.txt", count))
        starts = range(0, len(text), PIECE_CHARACTERS)
        pieces[code] = [text[start : start + PIECE_CHARACTERS] for start in starts]
    return dict(sorted(pieces.items(), key=lambda item: -len(item[1])))


def read_parallel(folder, codes):
    """{language: its passages}: the n-th passage says the same in all languages."""
    passages = {}
    for code in codes:
        path = folder / "parallel" / f"{code}.txt"
        if path.exists():
            passages[code] = read_lines(path)
    return passages


def articles_of(num_passages):
    """[passages]: the number of the article of Wikipedia that a parallel passage is from. They
    stand together, five of each. The text of the saved outputs has 79 passages: its tenth article
    lacks one."""
    numbers = np.arange(num_passages)
    if num_passages == 79:
        numbers[49:] += 1
    return numbers // 5


def token_text(token):
    """A byte-level token as text, with _ for a space. One that begins or ends inside a letter
    stands as its bytes."""
    token_bytes = bytes(BYTE_OF_CHARACTER[character] for character in token)
    try:
        return token_bytes.decode().replace(" ", "_")
    except UnicodeDecodeError:
        return f"<{' '.join(map(str, token_bytes))}>"


def tokens_in_text(tokenizer, word):
    """The tokens of a word, as it stands in a text. A tokenizer puts a space before a text, so a
    bracket is put before the word, and then left out."""
    encoding = tokenizer("(" + word, add_special_tokens=False, return_offsets_mapping=True)
    tokens = tokenizer.convert_ids_to_tokens(encoding["input_ids"])
    starts = [start for start, _ in encoding["offset_mapping"]]
    return [token_text(token) for token, start in zip(tokens, starts) if start > 0]


def learned_merges(tokenizer):
    """The pairs that a byte-level BPE of the library merged, in their order."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    return [tuple(pair) for pair in model["merges"]]


def first_difference(words, join, merges, other_merges):
    """Where two lists of merges differ first: how often the two pairs stood in the words then."""
    frequencies = Counter(map(tuple, words))
    for number, (pair, other) in enumerate(zip(merges, other_merges)):
        if pair == other:
            frequencies = {tuple(join(word, pair)): count for word, count in frequencies.items()}
            continue
        counts = Counter()
        for word, count in frequencies.items():
            for neighbours in pairwise(word):
                counts[neighbours] += count
        return (
            f"the first difference is at place {number + 1}: {token_text(''.join(pair))} here"
            f" ({counts[pair]} times), {token_text(''.join(other))} there ({counts[other]} times)"
        )
    return "no merge differs"


def draw_costs(costs, file_name):
    """Draw {α: {language: (cost, lower end, upper end)}}, and save the picture."""
    figure, axes = plt.subplots(figsize=(7, 2.8))
    for number, (alpha, by_language) in enumerate(costs.items()):
        middle, low, high = np.array(list(by_language.values())).T
        positions = np.arange(len(middle)) + 0.2 * number - 0.2
        bars = [middle - low, high - middle]
        label = f"α = {alpha}"
        axes.errorbar(positions, middle, bars, fmt="o", capsize=3, markersize=4, label=label)
    axes.axhline(1, color="0.6", linewidth=1)
    axes.set_xticks(range(len(by_language)), by_language)
    axes.set(xlabel="language")
    axes.set(ylabel="tokens of a passage\n/ of its English version")
    axes.legend()
    figure.savefig(file_name)
    plt.show()


def read_losses(name):
    """{(α, language): its losses by seed}, the rows of each language, and the file's contents."""
    contents = json.loads(Path(name).read_text())
    losses = defaultdict(list)
    for run in sorted(contents["runs"], key=lambda run: run["seed"]):
        for code, loss in run["losses"].items():
            losses[run["mixture"], code].append(loss)
    by_size = sorted(contents["runs"][0]["rows"].items(), key=lambda item: -item[1])
    arrays = {key: np.array(values) for key, values in losses.items()}
    return arrays, dict(by_size), contents


def draw_losses(differences_by_language):
    """Draw the differences of the loss by seed: dots, above 0 if it is worse than with α = 1."""
    _, axes = plt.subplots(figsize=(7, 2.6))
    for position, differences in enumerate(differences_by_language.values()):
        axes.plot([position] * len(differences), differences, "o", color="C1", ms=4)
    axes.axhline(0, color="0.6", linewidth=1)
    axes.set_xticks(range(len(differences_by_language)), differences_by_language)
    axes.set(xlabel="language, that with most rows first")
    axes.set(ylabel="held-out loss:\nα = 0.3 − α = 1")
    plt.show()


def read_company(name):
    """{(language, alone or not): its runs by seed}, and the file's contents."""
    contents = json.loads(Path(name).read_text())
    runs = defaultdict(list)
    for run in sorted(contents["runs"], key=lambda run: run["seed"]):
        for code in run["test"]:
            runs[code, len(run["company"]) == 1].append(run)
    return runs, contents


def draw_company(runs, codes, num_rows):
    """Draw the test losses while the models train, with a dot at the best validation loss."""
    _, panels = plt.subplots(1, 2, figsize=(8, 2.8))
    for code, panel in zip(codes, panels):
        for alone, color in ((True, "C0"), (False, "C1")):
            name = "alone" if alone else "in company"
            for run in runs[code, alone]:
                label = name if run["seed"] == 0 else None
                panel.plot(run["steps"], run["test"][code], color=color, alpha=0.7, label=label)
                best = int(np.argmin(run["validation"][code]))
                panel.plot(run["steps"][best], run["test"][code][best], "o", color=color, ms=4)
        panel.set(xlabel="step (dots: best on validation rows)", ylabel="loss on test rows")
        panel.set_title(f"{code}: {num_rows[code]:,} rows")
        panel.legend()
    plt.show()


def seeds_needed(differences, comparisons):
    """The number of seeds whose interval, widened for so many comparisons, excludes 0, if they
    have the mean and the deviation of these differences (notebook 4)."""
    mean = abs(np.mean(differences))
    deviation = np.std(differences, ddof=1)
    for count in range(2, 1000):
        quantile = student.ppf(1 - 0.025 / comparisons, count - 1)
        if quantile * deviation / count**0.5 < mean:
            return count
    return 1000


class Encoded(NamedTuple):
    """The passages of a language in windows that a model reads. Of a token, −1 says: none."""

    inputs: dict  # what the model takes, [windows, tokens]
    passage_of_token: torch.Tensor  # [windows, tokens]
    words: list  # the most frequent ones, then others that were asked for
    word_of_token: torch.Tensor  # [windows, tokens]: its place in `words`


def find_words(text):
    """(first character, end, word) of each word: what stands between spaces, in lower case and
    without punctuation at its ends, if it has letters only. A vowel sign of Hindi is a mark of
    Unicode, and belongs to a letter."""
    for match in re.finditer(r"\S+", text):
        word = match.group().strip(PUNCTUATION)
        if word and all(unicodedata.category(character)[0] in "LM" for character in word):
            start = match.start() + match.group().index(word)
            yield start, start + len(word), word.lower()


def paired_words(code):
    """The words of a language that stand in `WORD_PAIRS`."""
    words = []
    for other, pairs in WORD_PAIRS.items():
        for pair in pairs.split(", "):
            english, translation = pair.split()
            if code == "en":
                words.append(english)
            elif code == other:
                words.append(translation)
    return words


def take_out(passage, generator=None):
    """The passage without the words that have a Latin letter or a digit. With a generator, these
    stay, and as many of the other words are taken out."""
    words = passage.split()
    is_latin = np.array([bool(re.search(r"[A-Za-z\d]", word)) for word in words])
    is_out = is_latin
    if generator is not None:
        others = generator.permutation(np.flatnonzero(~is_latin))
        is_out = np.isin(np.arange(len(words)), others[: is_latin.sum()])
    return " ".join(word for word, out in zip(words, is_out) if not out)


def find_pairs(code, encoded):
    """[pairs, 2]: the places of an English word and of its translation in `Encoded.words`. Made-up
    texts have none of them: there, the first words are paired."""
    ours = encoded["en"].words
    theirs = encoded[code].words
    places = []
    for pair in WORD_PAIRS[code].split(", "):
        english, translation = pair.split()
        if english in ours and translation in theirs:
            places.append((ours.index(english), theirs.index(translation)))
    return np.array(places or [(number, number) for number in range(5)])


def encode(tokenizer, passages, length, num_words, more_words=()):
    """Cut whole passages into windows of so many tokens, and say which token belongs to what. Its
    words are the most frequent ones, and behind them those of `more_words` that occur."""
    words_by_passage = [list(find_words(passage)) for passage in passages]
    counts = Counter(word for words in words_by_passage for _, _, word in words)
    words = [word for word, _ in counts.most_common(num_words)]
    words += [word for word in dict.fromkeys(more_words) if word in counts and word not in words]
    numbers = {word: number for number, word in enumerate(words)}
    word_of_character = []  # of each passage
    for passage, words_of_passage in zip(passages, words_by_passage):
        by_character = [-1] * len(passage)
        for start, end, word in words_of_passage:
            by_character[start:end] = [numbers.get(word, -1)] * (end - start)
        word_of_character.append(by_character)

    encoding = tokenizer(
        passages,
        truncation=True,
        max_length=length,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="pt",
    )
    shape = encoding["input_ids"].shape
    passage_of_token = torch.full(shape, -1)
    word_of_token = torch.full(shape, -1)
    for window, passage in enumerate(encoding["overflow_to_sample_mapping"].tolist()):
        for position in range(shape[1]):
            span = encoding.token_to_chars(window, position)
            if span is None:
                continue  # a special token, or padding
            passage_of_token[window, position] = passage
            if span.start < span.end:
                last_character = span.end - 1  # a token may begin with the space before a word
                word_of_token[window, position] = word_of_character[passage][last_character]
    inputs = {name: encoding[name] for name in ("input_ids", "attention_mask")}
    return Encoded(inputs, passage_of_token, words, word_of_token)


def draw_neighbours(shares_by_title, codes, num_seeds):
    """Draw [language, language of the nearest word] for each title."""
    figure, panels = plt.subplots(1, len(shares_by_title), figsize=(9, 2.8), sharey=True)
    for (title, shares), panel in zip(shares_by_title.items(), panels):
        drawn = panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        panel.set(title=title, xlabel="language of\nthe nearest word")
        panel.set_xticks(range(len(codes)), codes)
    panels[0].set_yticks(range(len(codes)), codes)
    panels[0].set_ylabel("language of a word")
    figure.colorbar(drawn, ax=panels, label=f"share (mean of {num_seeds} seeds)")
    plt.show()


def draw_matrix_losses(losses_by_stage, interval_steps, guesses):
    """Draw the losses of the matrix while it learns, a line for each seed, and a dot at the best
    validation loss.

    Args:
        losses_by_stage: {stage: [{part: [losses]}]}, a dictionary for each seed.
        interval_steps: the steps between two losses.
        guesses: {part: the loss of a guess}, each drawn as a grey line.
    """
    figure, panels = plt.subplots(1, len(losses_by_stage), figsize=(9, 2.8), sharey=True)
    for (stage, by_seed), panel in zip(losses_by_stage.items(), panels):
        for seed, losses in enumerate(by_seed):
            for part, color in (("training", "C0"), ("validation", "C1")):
                steps = interval_steps * np.arange(len(losses[part]))
                label = part if seed == 0 else None
                panel.plot(steps, losses[part], color=color, alpha=0.6, label=label)
            best = int(np.argmin(losses["validation"]))
            panel.plot(steps[best], losses["validation"][best], "o", color="C1", ms=4)
        for (part, loss), style in zip(guesses.items(), ("--", ":")):
            panel.axhline(loss, color="0.6", linewidth=1, linestyle=style, label=f"guess, {part}")
        panel.set(title=stage, xlabel="step")
    panels[0].set_ylabel("contrastive loss")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    plt.show()


def draw_shares_found(shares_by_stage, codes, of_tokens, chance):
    """Draw the shares of passages whose translation is found, a panel for each stage: points are
    seeds, with the interval of their mean.

    Args:
        shares_by_stage: {stage: {name: [seeds, languages]}}.
        codes: the languages.
        of_tokens: the shares that tokens alone find.
        chance: the share that chance finds.
    """
    figure, panels = plt.subplots(1, len(shares_by_stage), figsize=(9, 2.8), sharey=True)
    positions = np.arange(len(codes))
    for (stage, by_name), panel in zip(shares_by_stage.items(), panels):
        panel.axhline(chance, color="0.6", linewidth=1, label="chance")
        panel.plot(positions, of_tokens, "x", color="black", ms=5, label="tokens alone, no matrix")
        for number, (name, shares) in enumerate(by_name.items()):
            label = name
            for position, by_seed in zip(positions - 0.15 + 0.3 * number, shares.T):
                draw_seeds(panel, position, by_seed, color=f"C{number}", label=label)
                label = None  # once in the legend
        panel.set(title=stage, xlabel="language")
        panel.set_xticks(positions, codes)
    panels[0].set_ylabel("translations found, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    plt.show()


def is_near(value, expected, tolerance=1e-3):
    return abs(value - expected) < tolerance


@exercise
def check_shares(shares):
    """The shares of languages by temperature."""
    first = np.array(shares([16, 1], 0.5), dtype=float)
    if not is_near(first.sum(), 1, 1e-6):
        return f"shares sum to 1; those of [16, 1] at α = 0.5 sum to {first.sum():.3f}"
    if is_near(first[0], 16 / 17, 1e-6):
        return "these are the shares at α = 1"
    if is_near(first[0], 0.5, 1e-6):
        return "α is an exponent of the sizes"
    cases = (
        ([16, 1], 0.5, [4, 1]),
        ([16, 1], 1, [16, 1]),
        ([3, 5, 2], 0, [1, 1, 1]),
        ([8, 27, 1], 1 / 3, [2, 3, 1]),
    )
    for sizes, alpha, weights in cases:
        result = np.array(shares(sizes, alpha), dtype=float)
        expected = np.array(weights) / sum(weights)
        if result.shape != expected.shape or not np.allclose(result, expected):
            return (
                f"{sizes} at α = {alpha:.2g} became {result.round(3).tolist()}; it should be"
                f" {expected.round(3).tolist()}"
            )


@exercise
def check_sampler(sampler):
    """An endless sampler of languages, which reads the rows of a language in turns."""
    texts = {"a": [f"a{number}" for number in range(12)], "b": ["b0", "b1", "b2"]}
    probabilities = [0.3, 0.7]

    def draw(seed, count):
        copied = copy.deepcopy(texts)
        drawn = list(islice(sampler(copied, probabilities, np.random.default_rng(seed)), count))
        return drawn, copied == texts

    changes = (
        "your sampler changes the texts that it is given: shuffle a copy of the list, and take the"
        " texts from the copy"
    )
    _, is_unchanged = draw(0, 3)  # so few that it does not yet empty a list
    if not is_unchanged:
        return changes
    rows, is_unchanged = draw(0, 6_000)
    if len(rows) < 6_000:
        return f"your sampler ended after {len(rows)} texts: where a language ends, it begins anew"
    for row in rows[:100]:
        if not isinstance(row, tuple):
            return f"it yields pairs, (language, text); one was {row!r}"
        code, text = row
        if text not in texts.get(code, ()):
            return f"it yields (language, text of this language); one was {(code, text)!r}"
    share = sum(code == "a" for code, _ in rows) / len(rows)
    if abs(share - 12 / 15) < 0.03:
        return "this draws in proportion to the number of texts: draw the language by `shares`"
    if abs(share - 0.5) < 0.03:
        return "this draws all languages equally often: draw the language by `shares`"
    if abs(share - 0.3) > 0.03:
        return f"language a has the share 0.3, and it was {share:.2f} of 6,000 texts"
    if not is_unchanged:
        return changes
    if draw(0, 60)[0] != rows[:60]:
        return (
            "a generator of the same seed should give the same texts: use no other random numbers"
        )
    languages = [code for code, _ in rows[:60]]
    if languages == [code for code, _ in draw(1, 60)[0]]:
        return "a generator of another seed gives the same languages: draw them by the generator"
    for code in texts:
        problem = problem_of_turns([text for name, text in rows if name == code], texts[code], code)
        if problem:
            return problem


def problem_of_turns(drawn, texts, code):
    """What is wrong with the order in which the texts of a language were drawn, or None."""
    count = len(texts)
    turns = [drawn[start : start + count] for start in range(0, len(drawn) - count + 1, count)]
    if any(len(set(turn)) < count for turn in turns):
        return (
            f"a text of {code} came again before all {count} of its texts were read: go through them"
            " in turns"
        )
    if all(turn == turns[0] for turn in turns):
        return "each turn through a language has the same order: shuffle its texts anew each time"
    if count > 5 and turns[0] == texts:
        return "the first turn through a language has the order of the list: shuffle it, too"


@exercise
def check_merges(learn_merges):
    """The loop of BPE: the pairs that are merged, in their order."""
    words = ["abc", "bca", "xbc", "abc", *"ppppppp"]
    result = learn_merges([list(word) for word in words], 1)
    if result is None or isinstance(result, str) or len(result) != 1:
        return f"with `count` 1, return a list of one pair; your function returns {result!r}"
    if isinstance(result[0], str):
        return "return the pairs: each is a tuple of two tokens"
    if tuple(result[0]) in {("c", "b"), ("c", "a"), ("c", "x"), ("p", "p")}:
        return "pairs do not cross the border between two words"
    if tuple(result[0]) != ("b", "c"):
        return f"in {words}, ('b', 'c') stands four times; your function merges {result[0]!r} first"
    pairs = [tuple(pair) for pair in learn_merges([list(word) for word in words], 2)]
    if pairs == [("b", "c")] * 2:
        return "after a merge, the words change: join the pair in each of them, then count anew"
    if pairs[1] == ("a", "b"):
        return "where b and c are joined, a stands before bc: (a, b) is no pair there any more"
    if pairs != [("b", "c"), ("a", "bc")]:
        return f"in {words}, ('b', 'c') is merged, then ('a', 'bc'); yours are {pairs}"
    words = ["ba", "ba", "ab", "ba"]
    if tuple(learn_merges([list(word) for word in words], 1)[0]) != ("b", "a"):
        return "('a', 'b') and ('b', 'a') are two pairs: the order counts"
    words = ["aaaa", "aaaa", "aaaab"]
    pairs = [tuple(pair) for pair in learn_merges([list(word) for word in words], 2)]
    if pairs != [("a", "a"), ("aa", "aa")]:
        return f"of {words}, aa is merged, and then aa with aa; yours are {pairs}"
    words = ["no", "no", "no", "in", "pin"]
    if tuple(learn_merges([list(word) for word in words], 1)[0]) != ("n", "o"):
        return f"in {words}, ('n', 'o') stands three times: a word counts as often as it occurs"
    pairs = [tuple(pair) for pair in learn_merges([list("aaa")] * 2, 2)]
    if pairs != [("a", "a"), ("aa", "a")]:
        return f"aaa becomes aa and a: join from left to right; your pairs are {pairs}"


@exercise
def check_early_stopping(loss_at_best):
    """The test loss at the best validation loss."""
    validation = [3.0, 2.4, 2.5, 2.0, 2.6]
    test = [3.2, 2.8, 2.2, 2.3, 2.7]
    result = loss_at_best(list(validation), list(test))
    hints = {
        2.8: "this stops where the loss first rises; a later step has a better validation loss",
        2.2: "this is the best test loss: who chooses by the test rows, cannot measure on them",
        2.7: "this is the last one",
        2.0: "this is the validation loss: return the test loss of that step",
        3: "this is the place of the best step: return its test loss",
        3.2: "this is the test loss of the worst validation loss: the lowest one is the best",
    }
    if result in hints:
        return hints[result]
    if result != 2.3:
        return f"validation {validation} and test {test} became {result}; it should be 2.3"
    validation = [3.0, 2.0, 2.5, 2.6, 2.7, 2.8, 1.9, 2.2]
    if loss_at_best(validation, [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]) != 0.2:
        return f"of the validation losses {validation}, 1.9 is the best, late as it comes"


@exercise
def check_centring(centre):
    """Vectors less the mean of their language."""
    x = np.array([[1.0, 2.0], [10.0, 0.0], [3.0, 2.0]])
    result = np.array(centre(x.copy(), ["de", "el", "de"]))  # a copy: the answer may change it
    if result.shape != x.shape:
        return f"the result should have the shape {x.shape}; it has {result.shape}"
    if np.allclose(result, x):
        return "these are the vectors themselves: subtract the means, and return the result"
    if np.allclose(result, x - x.mean(0)):
        return "this subtracts the mean of all words: take the mean of each language"
    if np.allclose(result, x - x.mean(1, keepdims=True)):
        return "this subtracts the mean of each vector's own values: take the mean over words"
    if not np.allclose(result, [[-1, 0], [0, 0], [1, 0]]):
        return f"the vectors {x.tolist()} of de, el, de became {result.tolist()}"
    other = np.array([[2.0], [4.0], [9.0], [5.0]])
    if not np.allclose(centre(other.copy(), ["tr", "tr", "ru", "ru"]), [[-1], [1], [2], [-2]]):
        return "[[2], [4], [9], [5]] of tr, tr, ru, ru should become [[-1], [1], [2], [-2]]"


@exercise
def check_translations_found(translations_found):
    """The share of vectors whose nearest vector, by the cosine, is their translation."""
    generator = np.random.default_rng(4)
    first = generator.normal(size=(40, 3))
    second = first + 0.5 * generator.normal(size=(40, 3))
    second *= generator.uniform(0.2, 5, size=(40, 1))

    def share(scores):
        return np.mean(scores.argmax(1) == np.arange(len(scores)))

    first_unit = first / np.linalg.norm(first, axis=1, keepdims=True)
    second_unit = second / np.linalg.norm(second, axis=1, keepdims=True)
    cosines = first_unit @ second_unit.T
    distances = np.linalg.norm(first[:, None] - second[None], axis=2)
    expected = share(cosines)
    result = float(translations_found(first.copy(), second.copy()))
    if is_near(result, expected):
        return None
    if is_near(result, 100 * expected) or is_near(result, 40 * expected):
        return f"return a share between 0 and 1; yours is {result:.3g}"
    hints = (
        (share(first @ second.T), "this is the dot product, which favours long vectors"),
        (share(cosines.T), "this looks for the nearest row of `first`: it is the other way"),
        (share(-distances), "this is the distance, not the cosine"),
        (np.diagonal(cosines).mean(), "this is the mean cosine of the translations, not a share"),
    )
    for value, hint in hints:
        if is_near(result, value):
            return hint
    return (
        f"of 40 pairs of random vectors, {expected:.3f} are found; your function says {result:.3f}"
    )


@exercise
def check_matrix_loss(matrix_loss):
    """The contrastive loss of the matrix that brings translations together."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(6, 4, generator=generator)
    english = first + torch.randn(6, 4, generator=generator)
    matrix = torch.randn(4, 4, generator=generator, requires_grad=True)
    result = matrix_loss(first.clone(), english.clone(), matrix)
    if not isinstance(result, torch.Tensor) or result.dim() > 0:
        return "return one number, a tensor without dimensions: the mean over the passages"

    def cross_entropy(scores):
        return float(F.cross_entropy(scores, torch.arange(6)))

    def cosines(vectors, others):
        return F.normalize(vectors) @ F.normalize(others).T

    if is_near(result.item(), cross_entropy(20 * cosines(first, english))):
        return "your function does not use the matrix"
    if not result.requires_grad:
        return "no gradient reaches the matrix: compute with torch, without `detach` or `no_grad`"
    matrix = matrix.detach()
    mapped = first @ matrix
    mapped_english = english @ matrix
    expected = cross_entropy(20 * cosines(mapped, mapped_english))
    if is_near(result.item(), expected):
        return None
    both = "multiply the vectors of both languages by the matrix"
    dot_product = "these are dot products: the cosine is that of vectors of length 1"
    hints = (
        (cross_entropy(20 * mapped @ mapped_english.T), dot_product),
        (cross_entropy(mapped @ mapped_english.T), dot_product),
        (cross_entropy(cosines(mapped, mapped_english)), "the cosines are multiplied by 20"),
        (cross_entropy(20 * cosines(mapped, english)), both),
        (cross_entropy(20 * cosines(first, mapped_english)), both),
        (
            cross_entropy(20 * cosines(first @ matrix.T, english @ matrix.T)),
            "a vector is a row: multiply it by the matrix, not by its transpose",
        ),
        (
            cross_entropy(20 * cosines(mapped_english, mapped)),
            "this looks for the translation of each English passage: it is the other way",
        ),
        (6 * expected, "this is the sum over the passages: take their mean"),
        (-expected, "the loss is minus the logarithm: yours has the other sign"),
    )
    for value, hint in hints:
        if is_near(result.item(), value):
            return hint
    return f"the loss of 6 passages is {expected:.3f}; your function says {result.item():.3f}"
