"""Tags of words. Those of entities are of scheme BIO: an entity of type X is B-X I-X … I-X, other words are O. Other
schemes (IO, IOB1, BIOES) become it as seqeval reads them, and conlleval before it: a tag that cannot continue the
entity before it begins a new one."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

OUTSIDE = "O"
# Other ways to write B-PER.
OTHERWISE = re.compile(r"[BI][-_:/. ].+|.+[-_:/. ][BI]|[BI]", re.IGNORECASE)


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type: ("B", "PER") of B-PER, ("O", "") of O, ("", tag) of what is no tag of an entity."""
    prefix, dash, kind = tag.partition("-")
    if tag == OUTSIDE:
        return OUTSIDE, ""
    return (prefix, kind) if dash and kind and prefix in {"B", "I", "E", "S"} else ("", tag)


def are_entities(tags: Iterable[str]) -> bool:
    """Whether tags are those of entities; else they are classes of words, such as parts of speech."""
    prefixes = {split_tag(tag)[0] for tag in tags}
    return bool(prefixes & {"B", "I"}) or ("S" in prefixes and prefixes <= {"O", "S"})


def are_misspelled(tags: Collection[str]) -> bool:
    """Whether tags that are none of entities look like them: B_PER, b-per, PER-B, or B alone."""
    others = {*tags} - {"O", "o"}
    return (
        others < {*tags}
        and all(map(OTHERWISE.fullmatch, others))
        and any("B" in tag.upper() for tag in others)
    )


def to_bio(tags: Sequence[str]) -> list[str]:
    """The same entities in scheme BIO."""
    converted = [OUTSIDE] * len(tags)
    for kind, first, last in get_entities(list(tags)):
        converted[first : last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
    return converted


def may_follow(labels: Sequence[str]) -> np.ndarray:
    """Whether a label (column) may follow another (row) in BIO: bool [labels + 1, labels]. The last row is for the
    first word of a sentence."""
    tags = [*map(split_tag, [*labels, OUTSIDE])]
    return np.array(
        [
            [prefix != "I" or before in (("B", kind), ("I", kind)) for prefix, kind in tags[:-1]]
            for before in tags
        ]
    )


def best_path(scores: np.ndarray, allowed: np.ndarray) -> list[int]:
    """The sequence of labels with the highest sum of scores, [words, labels], of which each may follow the one before
    (Viterbi); `allowed`: see `may_follow`."""
    if not len(scores):
        return []
    best, came_from = np.where(allowed[-1], scores[0], -np.inf), []
    for score in scores[1:]:
        candidates = np.where(allowed[:-1], best[:, None], -np.inf)
        came_from.append(candidates.argmax(axis=0))
        best = candidates.max(axis=0) + score
    path = [int(best.argmax())]
    for back in reversed(came_from):
        path.append(int(back[path[-1]]))
    return path[::-1]


def tag_by_heart(
    known: Iterable[Sequence[str]],
    tags: Iterable[Sequence[str]],
    sentences: Iterable[Sequence[str]],
    other: str,
    entities: bool,
) -> list[list[str]]:
    """Tag sentences with what the same words are most often in known sentences: the longest of `entities` first, else
    word by word. What is new is tagged `other`."""
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for words, of_row in zip(known, tags):
        spans = get_entities(list(of_row)) if entities else []
        spans += [(tag, i, i) for i, tag in enumerate(of_row) if not entities or tag == OUTSIDE]
        for kind, first, last in spans:
            counts[tuple(words[first : last + 1])][kind] += 1
    best, longest = (
        {words: of.most_common(1)[0][0] for words, of in counts.items()},
        max(map(len, counts), default=1),
    )
    tagged: list[list[str]] = [[] for _ in sentences]
    for found, words in zip(tagged, sentences):
        while (place := len(found)) < len(words):
            sizes = range(min(longest, len(words) - place), 0, -1)
            size = next((size for size in sizes if tuple(words[place : place + size]) in best), 1)
            kind = best.get(tuple(words[place : place + size]), other)
            is_tag = not entities or kind == OUTSIDE
            found += [kind] if is_tag else [f"B-{kind}", *[f"I-{kind}"] * (size - 1)]
    return tagged
