"""Tags of words: the schemes, what is valid in them, long sentences, and decoding.

An entity of type X over several words / one word is in scheme bio (IOB2) B-X I-X … I-X / B-X; in io I-X … I-X / I-X
(neighbours of one type run together); in bioes B-X I-X … E-X / S-X. In scheme none, tags are classes of words, such as
parts of speech. What is not valid is read as seqeval reads it (and conlleval before it): a tag that cannot continue the
entity before it begins a new one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

PREFIXES = {"bio": "BI", "io": "I", "bioes": "BIES"}
OUTSIDE = "O"
# Other ways to write B-PER.
OTHERWISE = re.compile(r"([BIESLU])[-_:/. ](.+)|(.+)[-_:/. ]([BIESLU])", re.IGNORECASE)


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type: ("B", "PER") of B-PER, ("O", "") of O, ("", tag) of what is no tag of an entity."""
    prefix, dash, kind = tag.partition("-")
    if tag == OUTSIDE:
        return OUTSIDE, ""
    return (prefix, kind) if dash and kind and prefix in {"B", "I", "E", "S"} else ("", tag)


def detect_scheme(tags: Iterable[str]) -> str:
    """The scheme of a set of tags: of entities if some tag has the prefix B- or I-, else "none"."""
    prefixes = {split_tag(tag)[0] for tag in tags}
    if not prefixes & {"B", "I"}:
        return "bioes" if "S" in prefixes and prefixes <= {"O", "S"} else "none"
    if prefixes & {"E", "S"}:
        return "bioes"
    return "bio" if "B" in prefixes else "io"


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """The same entities in `scheme`. To the scheme that tags are in already, this repairs them: what is valid stays."""
    if scheme == "none":
        return list(tags)
    converted = [OUTSIDE] * len(tags)
    for kind, first, last in get_entities(list(tags)):
        prefixes = ["I"] * (last - first + 1)
        if scheme != "io":
            prefixes[0] = "B"
        if scheme == "bioes":
            prefixes[-1] = "S" if first == last else "E"
        converted[first : last + 1] = [f"{prefix}-{kind}" for prefix in prefixes]
    return converted


def labels_of(tags: Iterable[str], scheme: str) -> list[str]:
    """All labels of a model that learns from `tags`: O, then those of each type by name; in scheme "none" the tags,
    the most frequent one first."""
    if scheme == "none":
        return [tag for tag, _ in sorted(Counter(tags).items(), key=lambda item: (-item[1], item[0]))]
    types = sorted({split_tag(tag)[1] for tag in tags} - {""})
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in PREFIXES[scheme])]


def tag_by_heart(
    known: Iterable[Sequence[str]],
    tags: Iterable[Sequence[str]],
    sentences: Iterable[Sequence[str]],
    other: str,
    scheme: str,
) -> list[list[str]]:
    """Tag sentences (in scheme bio, or none) with what the same words are most often in known sentences: the longest
    entity first; in scheme none word by word. What is new is tagged `other`."""
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for words, of_row in zip(known, tags):
        spans = [] if scheme == "none" else get_entities(list(of_row))
        spans += [(tag, i, i) for i, tag in enumerate(of_row) if scheme == "none" or tag == OUTSIDE]
        for kind, first, last in spans:
            counts[tuple(words[first : last + 1])][kind] += 1
    best, longest = {words: of.most_common(1)[0][0] for words, of in counts.items()}, max(map(len, counts))
    tagged: list[list[str]] = [[] for _ in sentences]
    for found, words in zip(tagged, sentences):
        while (place := len(found)) < len(words):
            sizes = range(min(longest, len(words) - place), 0, -1)
            size = next((size for size in sizes if tuple(words[place : place + size]) in best), 1)
            kind = best.get(tuple(words[place : place + size]), other)
            is_tag = scheme == "none" or kind == OUTSIDE
            found += [kind] if is_tag else [f"B-{kind}", *[f"I-{kind}"] * (size - 1)]
    return tagged


def find_misspelled(tags: Collection[str]) -> tuple[str, str] | None:
    """A tag and how it is written in scheme bio, if the tags look like those of entities (B_PER, b-per, PER-B, or B
    alone) and none is written so; None otherwise."""
    others = sorted({*tags} - {"O", "o"})
    if not others or detect_scheme(tags) != "none":
        return None
    if {"B", "I"} <= {*others} <= {*"BIESLU"}:
        return "B", "B-X with the type of the entity"
    found = [OTHERWISE.fullmatch(tag) for tag in others]
    prefixes = {(match[1] or match[4]).upper() for match in found if match}
    if not all(found) or "B" not in prefixes or not (len(others) < len(tags) or "I" in prefixes):
        return None
    first = next(match for match in found if (match[1] or match[4]).upper() == "B")
    return first[0], f"B-{first[2] or first[3]}"


class Window(NamedTuple):
    """A part of a sentence: words `first` to `last - 1` are seen, `own_first` to `own_last - 1` are its own."""

    first: int
    last: int
    own_first: int
    own_last: int


def cut_into_windows(lengths: Sequence[int], room: int, stride: int) -> list[Window]:
    """Cut a sentence of words with these lengths in tokens (0 is possible) into parts of `room` tokens at most; a word
    that is longer stands alone and loses its end. Every word is one window's own, in order; neighbours share up to
    `stride` tokens, half of whose words are one's own."""
    sums = np.concatenate([[0], np.cumsum(np.minimum(lengths, room))]).astype(int)
    windows, first, own = [], 0, 0
    while True:
        last = int(np.searchsorted(sums, sums[first] + room, side="right")) - 1
        if last >= len(lengths):
            return [*windows, Window(first, len(lengths), own, len(lengths))]
        shared = min(stride, room - (sums[last + 1] - sums[last]))  # the next word must fit behind what is shared
        following = max(int(np.searchsorted(sums, sums[last] - shared, side="left")), first + 1)
        border = (following + last + 1) // 2
        windows.append(Window(first, last, own, border))
        first, own = following, border


def _may_follow(previous: str, tag: str, scheme: str) -> bool:
    """Whether `tag` may stand after `previous`; before the first word and after the last one stands O."""
    (before, before_type), (prefix, kind) = split_tag(previous), split_tag(tag)
    if prefix not in (OUTSIDE, *PREFIXES[scheme]):
        return False
    inside = before in ("B", "I") and kind == before_type
    if scheme == "bio":
        return prefix != "I" or inside
    return scheme == "io" or (inside if prefix in ("I", "E") else before not in ("B", "I"))


def transitions(labels: Sequence[str]) -> np.ndarray:
    """What a step from one label to another adds to a sequence's score, [labels + 1, labels + 1]: 0, or -inf where it
    is not valid; the last row and column stand for the sentence's ends."""
    scheme, tags = detect_scheme(labels), [*labels, OUTSIDE]
    return np.array([[0.0 if _may_follow(a, b, scheme) else -np.inf for b in tags] for a in tags])


def best_path(scores: np.ndarray, transitions: np.ndarray) -> list[int]:
    """The valid sequence of labels with the highest sum of scores, [words, labels] (Viterbi)."""
    if not len(scores):
        return []
    best, came_from = transitions[-1, :-1] + scores[0], []
    for score in scores[1:]:
        candidates = best[:, None] + transitions[:-1, :-1]
        came_from.append(candidates.argmax(axis=0))
        best = candidates.max(axis=0) + score
    path = [int((best + transitions[:-1, -1]).argmax())]
    for back in reversed(came_from):
        path.append(int(back[path[-1]]))
    return path[::-1]
