"""Tag the words of sentences: entities (NER), parts of speech (POS)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score
from tokenizers import pre_tokenizers
from transformers import (
    DataCollatorForTokenClassification,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from ....modeling_minibert import MiniBertForTokenClassification
from ....tokenization import plain_tokenizer
from ...evaluation.metrics import EntityScores, class_scores
from ..data import FILE, as_list, bad_value, check_column, each_row
from ..imbalance import class_weights
from . import label_schemes as schemes
from .base import CUT, LABEL, Labels, Predictions, Scores, Task, saved_labels, shortened

IGNORED = -100  # the label that no loss counts
EXAMPLE = 'a line of JSON for each sentence, as {"tokens": ["Anna", "Berg", "sang"], "ner_tags": ["B-PER", "I-PER", "O"]}'


@dataclass(eq=False)
class Tag(Task):
    """A tagger of words: entities, parts of speech. Its labels stand for the tags of whole words.

    Args:
        tokens_column: The column of the words, a list in each row; by default guessed by its name.
        tags_column: The column of their tags, a list in each row; by default guessed by its name.
        max_length: Longest sentence, in tokens; words beyond it are cut and count as untagged. By default that of the
            model.
        class_weights: Weights of the tags in the loss: balanced, a number for each tag, or TAG=NUMBER.
    """

    name = "tag"
    model_class = MiniBertForTokenClassification
    collator_class = DataCollatorForTokenClassification
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
    baseline = "memorised entities"

    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    tokens_column: str | None = None
    tags_column: str | None = None
    max_length: int | None = None
    class_weights: Sequence[str] | None = None

    def __post_init__(self):
        self.tokenizer = with_spaces_before_words(self.tokenizer)
        self.tokenizer.padding_side = "right"  # `decode` finds tokens by their column

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        """As `Task.read`, without sentences that have no word."""
        (column,) = self.find_texts(next(iter(splits.values())))
        with_words = datasets.DatasetDict()
        for name, split in splits.items():
            check_column(split, column)
            filled = [i for i, words in enumerate(split[column]) if words != []]
            with_words[name] = split.select(filled) if len(filled) < len(split) else split
        return super().read(with_words, config)

    def check_inputs(self, split: datasets.Dataset) -> None:
        each_row(split, self._check_words, split[self.text_columns[0]])

    def _check_words(self, words: Any) -> None:
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise bad_value(self.text_columns[0], words, f"a list of words, {EXAMPLE}")

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        return [set(map(str, as_list(tags))) for tags in split[self.find_labels(split)]]

    def read_labels(self, split: datasets.Dataset) -> list[list[str]]:
        names = getattr(getattr(split.features[self.label_column], "feature", None), "names", [])
        return each_row(
            split,
            partial(self._named, names),
            split[self.text_columns[0]],
            split[self.label_column],
        )

    def _named(self, names: list[str], words: list[str], tags: Any) -> list[str]:
        if not isinstance(tags, list) or len(tags) != len(words):
            raise bad_value(self.label_column, tags, f"a list of {len(words)}, one tag a word")
        for word, tag in enumerate(tags):
            if not isinstance(tag, str) and tag not in range(len(names)):
                raise bad_value(
                    f"{self.label_column}[{word}]", tag, "the name of a tag, such as B-PER"
                )
        return [tag if isinstance(tag, str) else names[tag] for tag in tags]

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        known, first = saved_labels(config), next(iter(labels))
        seen = Counter(tag for row in labels[first] for tag in row)
        self.entities = schemes.are_entities(known or seen)
        prefixes = {schemes.split_tag(tag)[0] for tag in known or ()} | {"O"}
        if config is not None and (
            known is None or (self.entities and not {"O", "B"} <= prefixes <= {*"OBI"})
        ):
            raise ValueError(
                "model: its labels are not tags of the scheme BIO; start from another model"
            )
        if not self.entities and schemes.are_misspelled(seen):
            said = f"has {max(seen.keys() - {'O', 'o'})!r}, which looks like a tag of an entity"
            raise ValueError(
                f"{self.label_column}: {splits[first][0][FILE]!r} {said}; write B-PER, I-PER and O"
            )
        if self.entities:
            labels = {
                name: each_row(splits[name], self._bio, rows) for name, rows in labels.items()
            }
        types = sorted({schemes.split_tag(tag)[1] for tag in seen} - {""})
        of_types = [schemes.OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI")]
        self.labels = known or (
            of_types if self.entities else [tag for tag, _ in seen.most_common()]
        )
        if self.labels == [schemes.OUTSIDE]:
            raise ValueError(
                f"{self.label_column}: the rows to train on have no tag but O; there is nothing to learn"
            )
        self.fallback = self.labels.index(schemes.OUTSIDE) if schemes.OUTSIDE in self.labels else 0
        self.allowed = schemes.may_follow(self.labels) if self.entities else None
        self.metric_for_best_model = "f1" if self.entities else "accuracy"
        for name, rows in labels.items():
            self._check_known(
                name, Counter(tag for row in rows for tag in row if tag not in self.labels)
            )
        if self.class_weights and "train" in labels:
            counts = Counter(tag for row in labels["train"] for tag in row)
            self.label_weights = class_weights(self.class_weights, self.labels, counts)
            self.metric_for_best_model = "f1" if self.entities else "f1_macro"
        return labels

    def _bio(self, tags: list[str]) -> list[str]:
        for word, tag in enumerate(tags):
            if not schemes.split_tag(tag)[0]:
                raise bad_value(
                    f"{self.label_column}[{word}]",
                    tag,
                    "O, B-TYPE or I-TYPE, as other rows have them",
                )
        return schemes.to_bio(tags)

    def _check_known(self, split: str, missed: Counter[str]) -> None:
        """Refuse tags to train on that the model has no label for; say which of other splits count as misses."""
        shown = ", ".join(f"{tag!r} ({count:,} words)" for tag, count in missed.most_common(10))
        if missed and split == "train":
            raise ValueError(
                f"model: it has no label for {shown}; start from a model without such a head"
            )
        if missed:
            as_other = repr(self.labels[self.fallback])
            print(
                f"{split}: the model has no label for {shown}; they count as misses (in the loss as {as_other})"
            )

    def class_of(self, label: str) -> str:
        return schemes.split_tag(label)[1] or label

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(
            split, [*self.text_columns, LABEL], encode_sentences, labels=self.labels
        )

    def preprocess_logits(
        self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """The label of each word at its first subword, -100 elsewhere, [batch, length]: of entities the likeliest ones
        that may follow each other, else the likeliest."""
        if not self.entities:
            return super().preprocess_logits(logits, inputs)
        scores, starts = (
            logits.float().log_softmax(-1).cpu().numpy(),
            (inputs["labels"] != IGNORED).cpu().numpy(),
        )
        ids = np.full(starts.shape, IGNORED)
        for row, of_row, first in zip(ids, scores, starts):
            row[first] = schemes.best_path(of_row[first], self.allowed)
        return torch.from_numpy(ids).to(logits.device)

    def decode(self, predictions: Predictions) -> list[list[str]]:
        """The tags of every sentence, one a word. A word without any subword, or behind the longest input, is outside
        of entities (of classes of words, in the most frequent one)."""
        decoded = []
        words_of = zip(
            predictions.examples[self.text_columns[0]],
            predictions.encoded["words"],
            predictions.outputs,
        )
        for sentence, words, predicted in words_of:
            tags, words = [self.labels[self.fallback]] * len(sentence), np.array(words)
            for word, label in zip(words[words >= 0], predicted[: len(words)][words >= 0]):
                tags[word] = self.labels[label]
            decoded.append(schemes.to_bio(tags) if self.entities else tags)
        return decoded

    def score(self, predictions: Sequence[list[str]], references: Sequence[list[str]]) -> Scores:
        """precision, recall, f1 of entities, and accuracy of words; of classes of words accuracy, and f1_macro over
        those in `references`. None: no entity is there."""
        if self.entities:
            scores = EntityScores().compute(predictions=predictions, references=references)
            return {name: score for name, score in scores.items() if name != "per_type"}
        predicted, true = flat(predictions), flat(references)
        f1 = f1_score(true, predicted, labels=sorted({*true}), average="macro", zero_division=0)
        return {"accuracy": accuracy_score(true, predicted), "f1_macro": f1}

    def guesses(self, known: datasets.Dataset, examples: datasets.Dataset) -> list[list[list[str]]]:
        """The entities of the `known` rows, wherever the same words occur again. If these are the measured rows, each
        half of them uses the entities of the other half."""
        if known is examples:
            halves, guess = (
                [examples.select(range(i, len(examples), 2)) for i in (0, 1)],
                [[]] * len(examples),
            )
            guess[::2], guess[1::2] = (self.guesses(*pair)[0] for pair in (halves[::-1], halves))
            return [guess]
        words, sentences = (split[self.text_columns[0]] for split in (known, examples))
        return [
            schemes.tag_by_heart(
                words, known[LABEL], sentences, self.labels[self.fallback], self.entities
            )
        ]

    def by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        if self.entities:
            per_type = EntityScores().compute(predictions=predictions, references=references)[
                "per_type"
            ]
            return {kind: row for kind, row in per_type.items() if row["support"]}
        true = flat(references)
        return class_scores(flat(predictions), true, {tag: tag for tag in sorted({*true})})

    def confidence(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Of the word that is least sure."""
        return (
            super()
            .confidence(logits, inputs)
            .masked_fill(inputs["labels"] == IGNORED, 1.0)
            .amin(-1)
        )

    def show_input(self, row: Mapping[str, Any]) -> str:
        return shortened(" ".join(row[self.text_columns[0]]))

    def show_label(self, row: Mapping[str, Any], label: list[str]) -> str:
        words = row[self.text_columns[0]]
        spans = (
            schemes.get_entities(label)
            if self.entities
            else [(tag, i, i) for i, tag in enumerate(label)]
        )
        return (
            shortened(", ".join(f"{' '.join(words[a : b + 1])} [{kind}]" for kind, a, b in spans))
            or "none"
        )


def flat(rows: Sequence[list[str]]) -> list[str]:
    return [tag for tags in rows for tag in tags]


def with_spaces_before_words(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, or one of its vocabulary, that reads every word of a sentence, the first one too, as behind a
    space, if words carry theirs. ModernBERT's own would read the words of a list as if they were parts of one."""
    steps = tokenizer.backend_tokenizer.pre_tokenizer
    steps = list(steps) if isinstance(steps, pre_tokenizers.Sequence) else [steps]
    if isinstance(steps[0], pre_tokenizers.ByteLevel):
        steps[0].add_prefix_space = tokenizer.add_prefix_space = (
            True  # what RobertaTokenizer saves is the latter
        )
        return tokenizer
    text, words = (
        tokenizer.tokenize("a the"),
        tokenizer.tokenize(["a", "the"], is_split_into_words=True),
    )
    if text == words or len(text) > len(
        words
    ):  # words do not carry their spaces, which are no tokens, or are
        return tokenizer
    # Behind another step that splits, ByteLevel would put the space before every piece.
    mark = (
        " "
        if any(isinstance(step, pre_tokenizers.ByteLevel) for step in steps)
        else "\N{LOWER ONE EIGHTH BLOCK}"
    )
    before = pre_tokenizers.Metaspace(mark, prepend_scheme="always", split=False)
    adapted = plain_tokenizer(tokenizer)
    adapted.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [before, *filter(None, steps)]
    )
    return adapted


def encode_sentences(tokenizer, sentences, tags, *, labels: Sequence[str]) -> dict[str, list]:
    """Sentences (lists of words) and their tags, cut to `model_max_length`: the model's inputs; `labels`, the tags' ids
    at first subwords, -100 elsewhere (Devlin et al. 2019, section 5.3); `words`, the word that begins with each token,
    -1 where none does; and whether the sentence was `cut`."""
    encoded = tokenizer(sentences, is_split_into_words=True, truncation=True)
    id_of = {label: i for i, label in enumerate(labels)}
    other = id_of.get(schemes.OUTSIDE, 0)  # for a tag that the model does not know
    rows = {"labels": [], "words": [], CUT: [bool(each.overflowing) for each in encoded.encodings]}
    for i, of_row in enumerate(tags):
        words = [-1 if word is None else word for word in encoded.word_ids(i)]
        words = [-1 if word == before else word for before, word in zip([-1, *words], words)]
        rows["words"].append(words)
        rows["labels"].append(
            [IGNORED if word < 0 else id_of.get(of_row[word], other) for word in words]
        )
    return {**encoded, **rows}
