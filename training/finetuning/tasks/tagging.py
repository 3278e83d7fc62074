"""Tag the words of sentences: entities (NER), parts of speech (POS)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
from transformers import (
    DataCollatorForTokenClassification,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from ....modeling_minibert import MiniBertForTokenClassification
from ....option_checks import checked_class
from ...data.sentences import split_words
from ...evaluation.intervals import Interval
from ...evaluation.tag_metrics import flatten, intervals_of_tags, score_tags, scores_by_tag
from ..class_weights import class_weights, describe_weights
from ..reading.columns import (
    FILE,
    as_list,
    bad_value,
    check_column,
    map_examples,
    plain_text_columns,
    with_column,
)
from . import label_schemes as schemes
from .base import Learned, Task
from .display import shortened
from .label_names import saved_labels
from .predictions import LABEL, SCORE_FEATURE, STRING_FEATURE, Labels, Predictions, Scores
from .subwords import IGNORED_LABEL_ID, encode_sentences, with_spaces_before_words

# Columns of examples without tags: their texts, and the first and last + 1 character of each word.
SENTENCE_TEXT = "_text"
WORD_SPANS = "_spans"
SENTENCE_EXAMPLE = (
    'a line of JSON for each sentence, as {"tokens": ["Anna", "Berg", "sang"],'
    ' "ner_tags": ["B-PER", "I-PER", "O"]}'
)


@dataclass
class LearnedTags(Learned):
    """What `Tag` has learned."""

    has_entities: bool = False  # else classes of words
    # The id of the tag of words that the model does not see, and of tags that it does not know.
    fallback_id: int = 0
    # Of entities, which tags may follow each other, see `may_follow`.
    allowed_transitions: np.ndarray | None = None
    metric_for_best_model: str = ""
    # Whether the rows to predict for are texts, not lists of words.
    reads_text: bool = True


@checked_class
@dataclass(eq=False)
class Tag(Task):
    """A tagger of words: entities, parts of speech. Its labels stand for the tags of whole words.

    Args:
        tokens_column: The column of the words, a list in each row; by default guessed by its name.
        tags_column: The column of their tags, a list in each row; by default guessed by its name.
        max_length: Longest sentence, in tokens; words beyond it are cut and count as untagged. By
            default that of the model.
        class_weights: Weights of the tags in the loss: balanced, a number for each tag, or
            TAG=NUMBER.
    """

    name = "tag"
    model_class = MiniBertForTokenClassification
    collator_class = DataCollatorForTokenClassification
    learned_class = LearnedTags
    columns = {
        "tokens_column": ("tokens", "words", "token", "text", "sentence"),
        "tags_column": (
            "ner_tags",
            "tags",
            "ner",
            "pos_tags",
            "upos",
            "pos",
            "xpos",
            "chunk_tags",
            "labels",
            "label",
        ),
    }
    label_feature = datasets.List(datasets.Value("string"))  # tags by name
    baseline_name = "memorised entities"

    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    tokens_column: str | None = None
    tags_column: str | None = None
    max_length: int | None = None
    class_weights: Sequence[str] | None = None

    def __post_init__(self):
        super().__post_init__()
        self.tokenizer = with_spaces_before_words(self.tokenizer)
        self.tokenizer.padding_side = "right"  # `decode` finds tokens by their column

    @property
    def metric_for_best_model(self) -> str:
        return self.learned.metric_for_best_model

    # --- columns ---

    def check_inputs(self, split: datasets.Dataset) -> None:
        map_examples(split, self._check_words, split[self.text_columns[0]])

    def _check_words(self, words: Any) -> None:
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise bad_value(self.text_columns[0], words, f"a list of words, {SENTENCE_EXAMPLE}")

    # --- labelled examples ---

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        """As `Task.read`, without sentences that have no word."""
        (column,) = self.find_text_columns(next(iter(splits.values())))
        with_words = datasets.DatasetDict()
        for name, split in splits.items():
            check_column(split, column)
            filled = [index for index, words in enumerate(split[column]) if words != []]
            if len(filled) < len(split):
                split = split.select(filled)
            with_words[name] = split
        return super().read(with_words, config)

    def read_labels(self, split: datasets.Dataset) -> list[list[str]]:
        feature = split.features[self.learned.label_column]
        names = getattr(getattr(feature, "feature", None), "names", [])
        return map_examples(
            split,
            partial(self._named_tags, names),
            split[self.text_columns[0]],
            split[self.learned.label_column],
        )

    def _named_tags(self, names: list[str], words: list[str], tags: Any) -> list[str]:
        """The tags of a sentence by name; `names` are those of the column's numbers."""
        column = self.learned.label_column
        if not isinstance(tags, list) or len(tags) != len(words):
            raise bad_value(column, tags, f"a list of {len(words)}, one tag a word")
        named_tags = []
        for word, tag in enumerate(tags):
            if isinstance(tag, str):
                named_tags.append(tag)
            elif tag in range(len(names)):
                named_tags.append(names[tag])
            else:
                raise bad_value(f"{column}[{word}]", tag, "the name of a tag, such as B-PER")
        return named_tags

    def classes_by_example(self, split: datasets.Dataset) -> list[set[str]]:
        return [set(map(str, as_list(tags))) for tags in split[self.find_label_column(split)]]

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        first_split = next(iter(labels))
        counts = Counter(flatten(labels[first_split]))
        model_labels = saved_labels(config)
        self.learned.has_entities = schemes.are_entities(model_labels or counts)
        if config is not None:
            self._check_model_labels(model_labels)
        if self.learned.has_entities:
            labels = {
                name: map_examples(splits[name], self._to_bio, labels[name]) for name in labels
            }
        else:
            self._check_spelling(counts, splits[first_split][0][FILE])
        self.learned.label_names = model_labels or self._labels_of(counts)
        if self.label_names == [schemes.OUTSIDE]:
            raise ValueError(
                f"{self.learned.label_column}: the rows to train on have no tag but O;"
                " there is nothing to learn"
            )
        self._prepare_decoding()
        self.learned.metric_for_best_model = "f1" if self.learned.has_entities else "accuracy"
        for name in labels:
            self._check_unknown_tags(name, labels[name])
        if self.class_weights and "train" in labels:
            self._balance(labels["train"])
        return labels

    def _check_model_labels(self, model_labels: list[str] | None) -> None:
        """Refuse a model whose labels are not named, or not those of BIO where they are of
        entities."""
        prefixes = {schemes.split_tag(tag)[0] for tag in model_labels or ()} | {"O"}
        is_bio = "B" in prefixes and prefixes <= {"O", "B", "I"}
        if model_labels is None or (self.learned.has_entities and not is_bio):
            raise ValueError(
                "model: its labels are not tags of the scheme BIO; start from another model"
            )

    def _check_spelling(self, tags: Collection[str], file: str) -> None:
        """Refuse tags that are none of entities, but look like them."""
        if schemes.are_misspelled(tags):
            example = max(set(tags) - {"O", "o"})
            raise ValueError(
                f"{self.learned.label_column}: {file!r} has {example!r},"
                " which looks like a tag of an entity; write B-PER, I-PER and O"
            )

    def _to_bio(self, tags: list[str]) -> list[str]:
        """The tags of a sentence in scheme BIO; a ValueError for one that is none of an entity."""
        for word, tag in enumerate(tags):
            prefix, _ = schemes.split_tag(tag)
            if not prefix:
                raise bad_value(
                    f"{self.learned.label_column}[{word}]",
                    tag,
                    "O, B-TYPE or I-TYPE, as other rows have them",
                )
        return schemes.to_bio(tags)

    def _labels_of(self, counts: Counter[str]) -> list[str]:
        """The labels to learn: of entities O, and B and I of each type; else the tags, the most
        frequent first."""
        if not self.learned.has_entities:
            return [tag for tag, _ in counts.most_common()]
        entity_types = set()
        for tag in counts:
            _, entity_type = schemes.split_tag(tag)
            entity_types.add(entity_type)
        labels = [schemes.OUTSIDE]
        for entity_type in sorted(entity_types - {""}):
            labels += [f"B-{entity_type}", f"I-{entity_type}"]
        return labels

    def _balance(self, training_tags: Sequence[list[str]]) -> None:
        """Choose the weights of the loss, and a metric in which all tags count alike."""
        counts = Counter(flatten(training_tags))
        weights = class_weights(self.class_weights, self.label_names, counts)
        self.learned.label_weights = weights
        print(describe_weights(self.label_names, weights))
        if not self.learned.has_entities:
            self.learned.metric_for_best_model = "f1_macro"

    def _prepare_decoding(self) -> None:
        """What `decode` needs of the labels: which may follow each other, and the tag of words that
        the model does not see, and of tags that it does not know."""
        self.learned.fallback_id = 0
        if schemes.OUTSIDE in self.label_names:
            self.learned.fallback_id = self.label_names.index(schemes.OUTSIDE)
        self.learned.allowed_transitions = None
        if self.learned.has_entities:
            self.learned.allowed_transitions = schemes.may_follow(self.label_names)

    def _check_unknown_tags(self, split: str, tags_of_sentences: Sequence[list[str]]) -> None:
        """Refuse tags to train on that the model has no label for; say which of other splits count
        as misses."""
        unknown: Counter[str] = Counter()
        for tag in flatten(tags_of_sentences):
            if tag not in self.label_names:
                unknown[tag] += 1
        if not unknown:
            return
        tags_with_counts = []
        for tag, count in unknown.most_common(10):
            tags_with_counts.append(f"{tag!r} ({count:,} words)")
        listed = ", ".join(tags_with_counts)
        if split == "train":
            raise ValueError(
                f"model: it has no label for {listed}; start from a model without such a head"
            )
        print(
            f"{split}: the model has no label for {listed}; they count as misses"
            f" (in the loss as {self.label_names[self.learned.fallback_id]!r})"
        )

    # --- examples without labels, for `predict` ---

    def use_labels_of(self, config: PreTrainedConfig) -> None:
        model_labels = saved_labels(config)
        self.learned.has_entities = schemes.are_entities(model_labels or ())
        self._check_model_labels(model_labels)
        self.learned.label_names = model_labels
        self._prepare_decoding()

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        """As `Task.read_unlabelled`, of texts, which `split_words` cuts, or of lists of words,
        which are texts with a space between two words."""
        (column,) = self.text_columns
        self.learned.reads_text = column in plain_text_columns(split)
        if not self.learned.reads_text:
            self.check_inputs(split)
        texts = []
        sentences = []
        spans = []
        for cell in split[column]:
            if self.learned.reads_text:
                texts.append(cell)
                words_and_spans = split_words(cell)
            else:
                texts.append(" ".join(cell))
                words_and_spans = join_words(cell)
            sentences.append([word for word, _ in words_and_spans])
            spans.append([span for _, span in words_and_spans])
        split = with_column(split, column, sentences, datasets.List(STRING_FEATURE))
        split = with_column(split, SENTENCE_TEXT, texts, STRING_FEATURE)
        split = with_column(split, WORD_SPANS, spans)
        return super().read_unlabelled(split)

    def placeholders(self, split: datasets.Dataset) -> list[list[str]]:
        tag = self.label_names[self.learned.fallback_id]
        return [[tag] * len(words) for words in split[self.text_columns[0]]]

    # --- the model's inputs and outputs ---

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(
            split, [*self.text_columns, LABEL], encode_sentences, labels=self.label_names
        )

    def preprocess_logits(
        self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """The likeliest label of each word at its first subword, [batch, length]. Of entities two
        of them, -100 elsewhere, [batch, length, 2]: that of the likeliest sequence in which each
        may follow the one before, and the likeliest by itself."""
        likeliest = super().preprocess_logits(logits, inputs)
        if not self.learned.has_entities:
            return likeliest
        scores = logits.float().log_softmax(-1).cpu().numpy()
        is_first_subword = (inputs["labels"] != IGNORED_LABEL_ID).cpu().numpy()
        label_ids = np.full(is_first_subword.shape, IGNORED_LABEL_ID)
        for row, is_first in enumerate(is_first_subword):
            label_ids[row, is_first] = schemes.best_path(
                scores[row, is_first], self.learned.allowed_transitions
            )
        in_sequence = torch.from_numpy(label_ids).to(logits.device)
        by_itself = torch.where(inputs["labels"] != IGNORED_LABEL_ID, likeliest, IGNORED_LABEL_ID)
        return torch.stack([in_sequence, by_itself], -1)

    def confidence(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Of the word that is least sure."""
        of_tokens = super().confidence(logits, inputs)
        is_no_word = inputs["labels"] == IGNORED_LABEL_ID
        return of_tokens.masked_fill(is_no_word, 1.0).amin(-1)

    def decode(self, predictions: Predictions) -> list[list[str]]:
        """The tags of every sentence, one a word. A word without any subword, or behind the longest
        input, is outside of entities (of classes of words, in the most frequent one)."""
        if self.learned.has_entities:
            predictions = predictions._replace(outputs=predictions.outputs[..., 0])
        return self._tags_of(predictions)

    def _tags_of(self, predictions: Predictions) -> list[list[str]]:
        """The tags of every sentence. `predictions.outputs`: label ids, [rows, length]."""
        decoded = []
        sentences = predictions.examples[self.text_columns[0]]
        words_of_tokens = predictions.encoded["words"]
        for sentence, word_of_token, label_of_token in zip(
            sentences, words_of_tokens, predictions.outputs
        ):
            tags = [self.label_names[self.learned.fallback_id]] * len(sentence)
            for word, label in zip(word_of_token, label_of_token):  # the latter is padded
                if word >= 0:
                    tags[word] = self.label_names[label]
            if self.learned.has_entities:
                tags = schemes.to_bio(tags)
            decoded.append(tags)
        return decoded

    # --- metrics ---

    def score(self, predictions: Sequence[list[str]], references: Sequence[list[str]]) -> Scores:
        """See `score_tags`."""
        return score_tags(predictions, references, self.learned.has_entities)

    # --- what the predictions are worth ---

    def guesses(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> list[list[list[str]]]:
        """The entities of the training examples, wherever the same words occur again. If these are
        the measured examples, each half of them uses the entities of the other half."""
        if training_examples is not examples:
            return [self._tags_by_heart(training_examples, examples)]
        even_examples = examples.select(range(0, len(examples), 2))
        odd_examples = examples.select(range(1, len(examples), 2))
        tags: list[list[str]] = [[]] * len(examples)
        tags[::2] = self._tags_by_heart(odd_examples, even_examples)
        tags[1::2] = self._tags_by_heart(even_examples, odd_examples)
        return [tags]

    def _tags_by_heart(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> list[list[str]]:
        return schemes.tag_by_heart(
            training_examples[self.text_columns[0]],
            training_examples[LABEL],
            examples[self.text_columns[0]],
            self.label_names[self.learned.fallback_id],
            self.learned.has_entities,
        )

    def pipeline_scores(self, predictions: Predictions) -> Scores:
        if not self.learned.has_entities:
            return {}
        by_itself = predictions._replace(outputs=predictions.outputs[..., 1])
        return self.score(self._tags_of(by_itself), predictions.examples[LABEL][:])

    def intervals(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, Interval]:
        """Whole sentences are drawn."""
        return intervals_of_tags(predictions, references, self.learned.has_entities)

    def class_of_label(self, label: str) -> str:
        return schemes.split_tag(label)[1] or label

    def scores_by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        return scores_by_tag(predictions, references, self.learned.has_entities)

    def count_labels(self, examples: datasets.Dataset) -> Counter[str]:
        if len(self.label_names) < 2:
            return Counter()
        return Counter(flatten(examples[LABEL]))

    def count_labelled(self, examples: datasets.Dataset) -> int:
        """The words."""
        return sum(map(len, examples[LABEL]))

    def counts_by_class(self, label_counts: Mapping[str, int]) -> dict[str, int]:
        """Of entities, how many there are of each type."""
        if not self.learned.has_entities:
            return dict(label_counts)
        counts = {}
        for label, count in label_counts.items():
            prefix, entity_type = schemes.split_tag(label)
            if prefix == "B":
                counts[entity_type] = count
        return counts

    # --- how they are shown ---

    @property
    def prediction_features(self) -> datasets.Features:
        """Of texts their entities, or else their words and tags; of words their tags, and their
        entities."""
        number = datasets.Value("int64")
        entity = {"type": STRING_FEATURE, "text": STRING_FEATURE, "start": number, "end": number}
        features = {}
        if self.learned.has_entities:
            features["entities"] = datasets.List(entity)
        if self.learned.reads_text and not self.learned.has_entities:
            features["words"] = datasets.List(STRING_FEATURE)
        if not (self.learned.reads_text and self.learned.has_entities):
            features["tags"] = datasets.List(STRING_FEATURE)
        features["score"] = SCORE_FEATURE
        return datasets.Features(features)

    def describe_predictions(self, predictions: Predictions) -> dict[str, list[Any]]:
        """Entities with their characters, tags of words, and the probability of the word that is
        least sure."""
        examples = predictions.examples
        tags_of_sentences = self.decode(predictions)
        described = {
            "words": examples[self.text_columns[0]][:],
            "tags": tags_of_sentences,
            "score": self.confidence_of_examples(predictions),
        }
        if self.learned.has_entities:
            described["entities"] = []
            texts = examples[SENTENCE_TEXT]
            for text, spans, tags in zip(texts, examples[WORD_SPANS], tags_of_sentences):
                described["entities"].append(entities_in(text, spans, tags))
        return {name: described[name] for name in self.prediction_features}

    def show_input(self, example: Mapping[str, Any]) -> str:
        return shortened(" ".join(example[self.text_columns[0]]))

    def show_label(self, example: Mapping[str, Any], label: list[str]) -> str:
        words = example[self.text_columns[0]]
        if self.learned.has_entities:
            spans = schemes.entities_of(label)
        else:
            spans = [(tag, word, word) for word, tag in enumerate(label)]
        named_spans = []
        for name, first, last in spans:
            text = " ".join(words[first : last + 1])
            named_spans.append(f"{text} [{name}]")
        return shortened(", ".join(named_spans)) or "none"

    def example_inputs(self, example: Mapping[str, Any]) -> dict[str, Any]:
        return {"text": " ".join(example[self.text_columns[0]])}


def join_words(words: Sequence[str]) -> list[tuple[str, tuple[int, int]]]:
    """The words of a sentence, as `split_words` gives them, where a space stands between two."""
    words_and_spans = []
    start = 0
    for word in words:
        end = start + len(word)
        words_and_spans.append((word, (start, end)))
        start = end + 1
    return words_and_spans


def entities_in(
    text: str, spans: Sequence[tuple[int, int]], tags: Sequence[str]
) -> list[dict[str, Any]]:
    """The entities of a text whose words have these characters and tags."""
    entities = []
    for entity_type, first, last in schemes.entities_of(tags):
        start, _ = spans[first]
        _, end = spans[last]
        entity = {"type": entity_type, "text": text[start:end], "start": start, "end": end}
        entities.append(entity)
    return entities
