"""Tags of words. Those of entities are of scheme BIO: an entity of type X is B-X I-X … I-X, other
words are O. Other schemes (IO, IOB1, BIOES) become it as seqeval reads them, and conlleval before
it: a tag that cannot continue the entity before it begins a new one."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np

OUTSIDE = "O"
ENTITY_PREFIXES = {"B", "I", "E", "S"}
# Other ways to write B-PER.
MISSPELLED_TAG = re.compile(r"[BI][-_:/. ].+|.+[-_:/. ][BI]|[BI]", re.IGNORECASE)


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type: ("B", "PER") of B-PER, ("O", "") of O, ("", tag) of what is no tag of an
    entity."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, _, entity_type = tag.partition("-")
    if entity_type and prefix in ENTITY_PREFIXES:
        return prefix, entity_type
    return "", tag


def are_entities(tags: Iterable[str]) -> bool:
    """Whether tags are those of entities; else they are classes of words, such as parts of
    speech."""
    prefixes = {split_tag(tag)[0] for tag in tags}
    return bool(prefixes & {"B", "I"}) or ("S" in prefixes and prefixes <= {"O", "S"})


def are_misspelled(tags: Collection[str]) -> bool:
    """Whether tags that are none of entities look like them: B_PER, b-per, PER-B, or B alone."""
    other_tags = set(tags) - {"O", "o"}
    has_outside = len(other_tags) < len(set(tags))
    look_like_entities = all(MISSPELLED_TAG.fullmatch(tag) for tag in other_tags)
    has_beginning = any("B" in tag.upper() for tag in other_tags)
    return has_outside and look_like_entities and has_beginning


def entities_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The type, the first and the last word of each entity, as seqeval reads them."""
    from seqeval.metrics.sequence_labeling import get_entities  # it imports scikit-learn

    return get_entities(list(tags))


def to_bio(tags: Sequence[str]) -> list[str]:
    """The same entities in scheme BIO."""
    converted = [OUTSIDE] * len(tags)
    for entity_type, first, last in entities_of(tags):
        converted[first : last + 1] = entity_tags(entity_type, last + 1 - first)
    return converted


def entity_tags(entity_type: str, num_words: int) -> list[str]:
    """The tags of one entity: B-X I-X … I-X."""
    return [f"B-{entity_type}"] + [f"I-{entity_type}"] * (num_words - 1)


def may_follow(labels: Sequence[str]) -> np.ndarray:
    """Whether a label (column) may follow another (row) in BIO: bool [labels + 1, labels]. The last
    row is for the first word of a sentence."""
    allowed = np.ones((len(labels) + 1, len(labels)), dtype=bool)
    for row, label_before in enumerate([*labels, OUTSIDE]):
        for column, label in enumerate(labels):
            prefix, entity_type = split_tag(label)
            if prefix == "I":
                continues = [("B", entity_type), ("I", entity_type)]
                allowed[row, column] = split_tag(label_before) in continues
    return allowed


def best_path(scores: np.ndarray, allowed: np.ndarray) -> list[int]:
    """The sequence of labels with the highest sum of scores, of which each may follow the one
    before (Viterbi).

    Args:
        scores: [words, labels].
        allowed: [labels + 1, labels], see `may_follow`.
    """
    if not len(scores):
        return []
    best_scores = np.where(allowed[-1], scores[0], -np.inf)  # of paths that end in each label
    labels_before = []  # of each further word: the best label before each label
    for word_scores in scores[1:]:
        candidates = np.where(allowed[:-1], best_scores[:, None], -np.inf)
        labels_before.append(candidates.argmax(axis=0))
        best_scores = candidates.max(axis=0) + word_scores
    path = [int(best_scores.argmax())]
    for label_before in reversed(labels_before):
        path.append(int(label_before[path[-1]]))
    path.reverse()
    return path


def tag_by_heart(
    training_sentences: Iterable[Sequence[str]],
    training_tags: Iterable[Sequence[str]],
    sentences: Iterable[Sequence[str]],
    fallback: str,
    entities: bool,
) -> list[list[str]]:
    """Tag sentences with what the same words are most often in training: the longest of `entities`
    first, else word by word. What is new is tagged `fallback`."""
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for words, tags in zip(training_sentences, training_tags):
        for tag, first, last in spans_of(tags, entities):
            counts[tuple(words[first : last + 1])][tag] += 1
    tag_of = {span: tags.most_common(1)[0][0] for span, tags in counts.items()}
    max_words = max(map(len, tag_of), default=1)
    return [_tag_sentence(words, tag_of, max_words, fallback, entities) for words in sentences]


def spans_of(tags: Sequence[str], entities: bool) -> list[tuple[str, int, int]]:
    """The type (or the tag), the first and the last word of each entity, and of each word outside
    of them; of classes of words, of each word."""
    spans = entities_of(tags) if entities else []
    for word, tag in enumerate(tags):
        if not entities or tag == OUTSIDE:
            spans.append((tag, word, word))
    return spans


def _tag_sentence(
    words: Sequence[str],
    tag_of: dict[tuple[str, ...], str],
    max_words: int,
    fallback: str,
    entities: bool,
) -> list[str]:
    """Tag a sentence from left to right, with the longest span of words that has a tag at each
    place."""
    tags: list[str] = []
    while len(tags) < len(words):
        first = len(tags)
        num_words = min(max_words, len(words) - first)
        while num_words > 1 and tuple(words[first : first + num_words]) not in tag_of:
            num_words -= 1
        tag = tag_of.get(tuple(words[first : first + num_words]), fallback)
        if entities and tag != OUTSIDE:
            tags += entity_tags(tag, num_words)
        else:
            tags.append(tag)
    return tags
