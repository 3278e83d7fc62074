"""Tags of words: the schemes, what is legal in them, subwords, long sentences, and decoding. Pure functions.

Schemes of entity tags, for an entity of type X over several words / one word:

    bio    B-X I-X … I-X / B-X          (IOB2)
    io     I-X I-X … I-X / I-X          (neighbours of one type run together)
    bioes  B-X I-X … E-X / S-X
    none   tags are classes of words, such as parts of speech; there are no entities

What is not legal is read as seqeval reads it (and conlleval before it): a tag that cannot continue the entity before
it begins a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from seqeval.metrics.sequence_labeling import get_entities

PREFIXES = {"bio": "BI", "io": "I", "bioes": "BIES"}
OUTSIDE = "O"
IGNORED = -100  # the label that no loss counts

Span = tuple[str, int, int]  # type, first word, last word


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


def may_follow(previous: str, tag: str, scheme: str) -> bool:
    """Whether `tag` may stand after `previous`; before the first word and after the last one stands O."""
    if scheme == "none":
        return True
    (before, before_type), (prefix, kind) = split_tag(previous), split_tag(tag)
    if prefix not in (OUTSIDE, *PREFIXES[scheme]):
        return False
    if scheme == "io":
        return True
    inside = before in ("B", "I") and kind == before_type
    if scheme == "bio":
        return prefix != "I" or inside
    return inside if prefix in ("I", "E") else before not in ("B", "I")


def find_illegal(tags: Sequence[str], scheme: str) -> int | None:
    """The first word whose tag is not legal where it stands; len(tags) if the sequence may not end; None if all is
    legal."""
    for i, (previous, tag) in enumerate(zip([OUTSIDE, *tags], [*tags, OUTSIDE])):
        if not may_follow(previous, tag, scheme):
            return i
    return None


def tags_to_spans(tags: Sequence[str]) -> list[Span]:
    """The entities of tags in any scheme, read as seqeval reads them."""
    return get_entities(list(tags))


def spans_to_tags(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Tags of `length` words in an entity scheme."""
    tags = [OUTSIDE] * length
    for kind, first, last in spans:
        prefixes = ["I"] * (last - first + 1)
        if scheme != "io":
            prefixes[0] = "B"
        if scheme == "bioes":
            prefixes[-1] = "S" if first == last else "E"
        tags[first : last + 1] = [f"{prefix}-{kind}" for prefix in prefixes]
    return tags


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """The same entities in `scheme`; to the scheme that tags are in already, this repairs them."""
    return list(tags) if scheme == "none" else spans_to_tags(tags_to_spans(tags), len(tags), scheme)


def labels_of(tags: Iterable[str], scheme: str) -> list[str]:
    """All labels a model needs that has learned from `tags`, in order: O, then those of each type by name. In scheme
    "none": the tags, the most frequent one first."""
    if scheme == "none":
        return [tag for tag, _ in sorted(Counter(tags).items(), key=lambda item: (-item[1], item[0]))]
    types = sorted({split_tag(tag)[1] for tag in tags} - {""})
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in PREFIXES[scheme])]


# --- Subwords --------------------------------------------------------------------------------------------------------


def align_labels(word_ids: Sequence[int | None], labels: Sequence[int], align: str) -> list[int]:
    """Labels of subwords from labels of words.

    Args:
        word_ids: the word each token belongs to, None at special tokens (`encoding.word_ids()`).
        labels: one label a word; -100 for a word that is not learned.
        align: "first": the first subword carries the label of its word, the others -100 (Devlin et al. 2019, section
            5.3); "all": every subword carries it.
    """
    aligned, previous = [], None
    for word in word_ids:
        carries = word is not None and (align == "all" or word != previous)
        aligned.append(labels[word] if carries else IGNORED)
        previous = word
    return aligned


def mean_of_words(values: torch.Tensor, first: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The mean of each word's tokens, at its first token; elsewhere it means nothing.

    Args:
        values: of tokens, [batch, length, n].
        first: where a word begins, [batch, length], boolean. It ends where the next one begins.
        ends: behind the last word's last token, [batch].
    """
    words = first.cumsum(1)  # from 1; 0: tokens of no word
    words = words.masked_fill(torch.arange(words.shape[1], device=words.device) >= ends[:, None], 0)
    index = words[..., None].expand_as(values)
    means = values.new_zeros(values.shape[0], values.shape[1] + 1, values.shape[2])
    means = means.scatter_reduce(1, index, values, "mean", include_self=False)
    return means.gather(1, index)


@dataclass(frozen=True)
class Window:
    """A part of a sentence: words `first` to `last - 1` are seen, `keep_first` to `keep_last - 1` are its own."""

    first: int
    last: int
    keep_first: int
    keep_last: int


def cut_into_windows(lengths: Sequence[int], room: int, stride: int) -> list[Window]:
    """Cut a sentence between words so that each part fits; every word is one window's own, in order.

    Args:
        lengths: tokens of each word (0 is possible).
        room: tokens a window may hold; a word that is longer stands alone and loses its end.
        stride: tokens, at most, that neighbouring windows share; in the middle of those words one's own end and the
            other's begin.
    """
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


# --- Decoding --------------------------------------------------------------------------------------------------------


class Decoder:
    """From scores of the labels of each word to the tags of a sentence.

    Args:
        labels: the model's labels by number.
        decoding: "greedy": the best label of each word; what then is not legal is repaired. "viterbi": the legal
            sequence whose scores have the highest sum (with log-probabilities: the most probable one).
    """

    def __init__(self, labels: Sequence[str], decoding: str = "greedy"):
        self.labels = list(labels)
        self.scheme = detect_scheme(labels)
        self.viterbi = decoding == "viterbi" and self.scheme != "none"
        if self.viterbi:
            table = [[may_follow(a, b, self.scheme) for b in (*self.labels, OUTSIDE)] for a in (*self.labels, OUTSIDE)]
            penalty = np.where(np.array(table), 0.0, -np.inf)
            self.begin, self.step, self.end = penalty[-1, :-1], penalty[:-1, :-1], penalty[:-1, -1]

    def path(self, scores: np.ndarray) -> np.ndarray:
        """Labels by number of the words whose scores are [words, labels]."""
        return self._best_path(scores) if self.viterbi else np.argmax(scores, axis=-1)

    def tags(self, path: Iterable[int]) -> list[str]:
        """The tags of a sentence from the labels of its words, repaired where they are not legal."""
        return convert_tags([self.labels[i] for i in path], self.scheme)

    def _best_path(self, scores: np.ndarray) -> np.ndarray:
        if not len(scores):
            return np.zeros(0, dtype=int)
        best, came_from = self.begin + scores[0], []
        for score in scores[1:]:
            candidates = best[:, None] + self.step
            came_from.append(candidates.argmax(axis=0))
            best = candidates.max(axis=0) + score
        path = [int((best + self.end).argmax())]
        for back in reversed(came_from):
            path.append(int(back[path[-1]]))
        return np.array(path[::-1])
