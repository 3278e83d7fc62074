"""The metrics of tags: of the entities that they mark, or of the tags as classes of words."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from .classification_metrics import score_classes, scores_by_class
from .intervals import Interval, intervals_of_class_counts, intervals_of_counts

# The tags of sentences, one for each word.
TagsOfSentences = Sequence[list[str]]


def score_tags(
    predictions: TagsOfSentences, references: TagsOfSentences, has_entities: bool
) -> dict[str, float | None]:
    """Of entities precision, recall, f1, and accuracy of words (None: no entity is there). Of
    classes of words accuracy, and f1_macro over those in `references`."""
    if has_entities:
        scores = _score_entities(predictions, references)
        del scores["per_type"]
        return scores
    scores = score_classes(flatten(predictions), flatten(references))
    del scores["matthews_correlation"]
    return scores


def scores_by_tag(
    predictions: TagsOfSentences, references: TagsOfSentences, has_entities: bool
) -> dict[str, dict[str, float]]:
    """precision, recall, f1 and support of each type of entity, or tag, in `references`."""
    if has_entities:
        scores_of_types = _score_entities(predictions, references)["per_type"]
        occurring = {}
        for entity_type, scores in scores_of_types.items():
            if scores["support"]:
                occurring[entity_type] = scores
        return occurring
    true_tags = flatten(references)
    names = {tag: tag for tag in sorted(set(true_tags))}
    return scores_by_class(flatten(predictions), true_tags, names)


def intervals_of_tags(
    predictions: TagsOfSentences, references: TagsOfSentences, has_entities: bool
) -> dict[str, Interval]:
    """The 95 % intervals of metrics of `score_tags`; whole sentences are drawn."""
    if has_entities:
        from .entity_metrics import count_entities  # it imports `evaluate`

        return intervals_of_counts(*count_entities(predictions, references))
    return intervals_of_class_counts(*count_tags(predictions, references))


def _score_entities(predictions: TagsOfSentences, references: TagsOfSentences) -> dict[str, Any]:
    """What `EntityScores` computes."""
    from .entity_metrics import EntityScores  # it imports `evaluate`

    return EntityScores().compute(predictions=predictions, references=references)


def flatten(tags_of_sentences: TagsOfSentences) -> list[str]:
    """The tags of all sentences in one list."""
    return list(chain.from_iterable(tags_of_sentences))


def count_tags(
    predictions: TagsOfSentences, references: TagsOfSentences
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many words of each sentence have each tag, rightly, by prediction, and in truth:
    [sentences, tags] each."""
    tags = sorted({*flatten(predictions), *flatten(references)})
    tag_ids = dict(zip(tags, range(len(tags))))
    hits = np.zeros((len(references), len(tags)))
    num_predicted = np.zeros_like(hits)
    num_true = np.zeros_like(hits)
    for sentence, (predicted_tags, true_tags) in enumerate(zip(predictions, references)):
        for predicted, true in zip(predicted_tags, true_tags):
            num_predicted[sentence, tag_ids[predicted]] += 1
            num_true[sentence, tag_ids[true]] += 1
            if predicted == true:
                hits[sentence, tag_ids[true]] += 1
    return hits, num_predicted, num_true
