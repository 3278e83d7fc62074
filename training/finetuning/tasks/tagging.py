"""Tag the words of sentences: entities (NER), parts of speech (POS)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score
from tokenizers import pre_tokenizers
from transformers import DataCollatorForTokenClassification, PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertForTokenClassification
from ....tokenization import plain_tokenizer
from ... import metrics
from ...metrics import class_scores
from ...report import plot_scores
from ..data import FILE, BadRow, as_list, bad_value, each_row
from ..imbalance import Weights, class_weights
from . import label_schemes as schemes
from .base import LABEL, Labels, Predictions, Scores, Task, saved_labels, shortened

IGNORED = -100  # the label that no loss counts
EXAMPLE = (
    'a line of JSON for each sentence, as {"tokens": ["Anna", "Berg", "sang"], "ner_tags": ["B-PER", "I-PER", "O"]}'
)


class Tag(Task):
    """A tagger of words: entities, parts of speech. Its labels stand for the tags of whole words.

    Args:
        tokens_column: The column of the words, a list; guessed by its name.
        tags_column: The column of their tags, a list; guessed by its name.
        tag_names: Names of the tags where these are numbers that the data gives no names.
        scheme: none: tags are classes of words, whatever they look like; auto: told from the tags.
        repair_tags: Read tags that break their scheme as seqeval does, no error.
        max_length: Longest part of a sentence, in tokens: longer ones are read in parts; by default the model's.
        stride: Tokens that neighbouring parts of a sentence share that is longer than that.
        class_weights: Weights of the tags in the loss: balanced, a number for each, or TAG=NUMBER.
    """

    name = "tag"
    model_class = MiniBertForTokenClassification
    collator_class = DataCollatorForTokenClassification
    columns = {
        "tokens_column": ("tokens", "words", "token", "text", "sentence"),
        "tags_column": ("ner_tags", "tags", "ner", "pos_tags", "upos", "pos", "xpos", "chunk_tags", "labels", "label"),
    }
    label_feature = datasets.List(datasets.Value("string"))  # tags by name
    baseline = "memorised entities"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        tokens_column: str | None = None,
        tags_column: str | None = None,
        tag_names: Sequence[str] = (),
        scheme: Literal["auto", "none"] = "auto",
        repair_tags: bool = False,
        max_length: int | None = None,
        stride: int = 32,
        class_weights: Weights = None,
    ):
        tokenizer = with_spaces_before_words(tokenizer)
        super().__init__(tokenizer, tokens_column=tokens_column, tags_column=tags_column)
        if stride < 0:
            raise ValueError(f"stride: {stride} is too small; use 0 or more")
        self.tag_names, self.asked_scheme, self.repair_tags, self.stride = tag_names, scheme, repair_tags, stride
        self.asked_weights = class_weights
        tokenizer.padding_side = "right"  # `decode` finds tokens by their column

    def check_inputs(self, split: datasets.Dataset) -> None:
        for row, tokens in enumerate(split[self.text_columns[0]]):
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise BadRow(split[row], bad_value(self.text_columns[0], tokens, f"a list of words, {EXAMPLE}"))

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        return [set(map(str, as_list(tags))) for tags in split[self.find_labels(split)]]

    def read_labels(self, split: datasets.Dataset) -> list[list[str]]:
        feature = getattr(split.features[self.label_column], "feature", None)
        if self.tag_names and getattr(feature, "dtype", None) == "string":
            raise ValueError(f"tag_names: the tags of {split[0][FILE]!r} have names ({self.label_column} holds texts)")
        names = list(self.tag_names) or getattr(feature, "names", [])
        return each_row(split, partial(self._named, names), split[self.text_columns[0]], split[self.label_column])

    def _named(self, names: list[str], tokens: list[str], tags: Any) -> list[str]:
        if not isinstance(tags, list) or len(tags) != len(tokens):
            raise bad_value(self.label_column, tags, f"a list of {len(tokens)}, one tag a word")
        for word, tag in enumerate(tags):
            if not isinstance(tag, str) and tag not in range(len(names)):
                use = f"a number below {len(names)}" if names else "a text, or a number whose name --tag_names tells"
                raise bad_value(f"{self.label_column}[{word}]", tag, use)
        return [tag if isinstance(tag, str) else names[tag] for tag in tags]

    def learn_labels(self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None) -> Labels:
        known = saved_labels(config)
        if config is not None and known is None:
            raise ValueError("model: its labels have no names (LABEL_0, …), so its tags are not known")
        split_schemes, words = self._schemes(splits, labels, known), self.text_columns[0]
        tags = {
            name: each_row(splits[name], partial(self._valid, split_schemes[name]), rows, splits[name][words])
            for name, rows in labels.items()
        }
        first = next(iter(split_schemes))
        self.scheme = schemes.detect_scheme(known) if known else split_schemes[first]
        self.labels = known or schemes.labels_of((tag for row in tags[first] for tag in row), self.scheme)
        if self.labels == [schemes.OUTSIDE]:
            raise ValueError(f"{self.label_column}: the rows to train on have no tag but O; there is nothing to learn")
        for name, scheme in split_schemes.items():
            if (scheme == "none") != (self.scheme == "none"):
                few = ", ".join(sorted({tag for row in labels[name] for tag in row})[:5])
                file, labels_of = splits[name][0][FILE], ", ".join(self.labels[:5])
                raise ValueError(
                    f"scheme: the tags in {file!r} ({few}, …) are of scheme {scheme!r}, which a model of scheme "
                    f"{self.scheme!r} ({labels_of}, …) cannot tell"
                )
        self.fallback = self.labels.index(schemes.OUTSIDE) if schemes.OUTSIDE in self.labels else 0
        for name, rows in tags.items():
            self._check_known(splits, name, rows)
        self.transitions = None if self.scheme == "none" else schemes.transitions(self.labels)
        self.metric_for_best_model = "accuracy" if self.scheme == "none" else "f1"
        if self.asked_weights and "train" in tags:
            counts = Counter(tag for row in tags["train"] for tag in schemes.convert_tags(row, self.scheme))
            self.label_weights = class_weights(self.asked_weights, self.labels, counts)
            self.metric_for_best_model = "f1_macro" if self.scheme == "none" else "f1"
        return tags

    def _schemes(self, splits: datasets.DatasetDict, labels: Labels, known: list[str] | None) -> dict[str, str]:
        """The scheme of the tags of each split."""
        found: dict[str, str] = {}
        reference = schemes.detect_scheme(known) if known else None
        for name, rows in labels.items():
            seen = {tag for row in rows for tag in row}
            if self.asked_scheme == "none" or (known and seen <= {*known}):
                found[name] = self.asked_scheme if self.asked_scheme == "none" else reference
                continue
            if misspelled := schemes.find_misspelled(seen):
                file, (given, use) = splits[name][0][FILE], misspelled
                raise ValueError(
                    f"{self.label_column}: {file!r} has {given!r}, which looks like a tag of an entity; write {use!r}, "
                    "and O for words outside, or give --scheme none for classes of words"
                )
            found[name] = schemes.detect_scheme(seen)
            # A few rows may be without an entity, or without all prefixes.
            prefixes = {schemes.OUTSIDE, *schemes.PREFIXES.get(reference, ())}
            if reference not in (None, "none") and {schemes.split_tag(tag)[0] for tag in seen} <= prefixes:
                found[name] = reference
            reference = reference or found[name]
        return found

    def _valid(self, scheme: str, tags: list[str], words: list[str]) -> list[str]:
        """The tags, if they are valid in `scheme`, or as they are repaired."""
        no_tags = [] if scheme == "none" else [word for word, tag in enumerate(tags) if not schemes.split_tag(tag)[0]]
        valid = tags if no_tags else schemes.convert_tags(tags, scheme)
        if not no_tags and (valid == tags or self.repair_tags):
            return valid
        word = no_tags[0] if no_tags else [a == b for a, b in zip(tags, valid)].index(False)
        use = "O, B-TYPE, I-TYPE, …" if no_tags else f"{valid[word]!r}, or --repair_tags true to read it as that"
        before = f"after {tags[word - 1]!r}" if word else "at the beginning"
        why = f" of {words[word]!r} {before} is not valid in scheme {scheme!r}"
        raise bad_value(f"{self.label_column}[{word}]", tags[word], use, why)

    def _check_known(self, splits: datasets.DatasetDict, name: str, rows: list[list[str]]) -> None:
        """Refuse tags to train on that the model has no label for; say which of other splits count as misses."""
        known = {*self.labels}
        missed = Counter(tag for row in rows for tag in schemes.convert_tags(row, self.scheme) if tag not in known)
        if not missed:
            return
        shown = ", ".join(f"{tag!r} ({count:,} words)" for tag, count in missed.most_common(10))
        if name == "train":
            use = "start from a model without such a head"
            raise ValueError(f"model: it has no label for {shown} of {splits[name][0][FILE]!r}; {use}")
        as_other = repr(self.labels[self.fallback])
        print(f"{name}: the model has no label for {shown}; they count as misses (in the loss as {as_other})")

    def class_of(self, label: str) -> str:
        return schemes.split_tag(label)[1] or label

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        columns = [*self.text_columns, LABEL]
        options = {"labels": self.labels, "stride": self.stride, "training": training}
        return self.map_columns(split, columns, encode_sentences, **options)

    def preprocess_logits(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The label of each word at its first subword, -100 elsewhere, [batch, length]: the likeliest labels that are
        valid together (Viterbi)."""
        scores, labels = logits.float().log_softmax(-1).cpu().numpy(), inputs["labels"].cpu().numpy()
        ids = np.full_like(labels, IGNORED)
        for row, of_row, starts in zip(ids, scores, labels != IGNORED):
            of_words = of_row[starts]
            valid = self.transitions is not None
            row[starts] = schemes.best_path(of_words, self.transitions) if valid else of_words.argmax(-1)
        return torch.from_numpy(ids).to(logits.device)

    def decode(self, predictions: Predictions) -> list[list[str]]:
        """The tags of every sentence, one a word, valid in the model's scheme. A word without any subword is outside of
        entities (in scheme "none": of the most frequent class)."""
        rows = zip(predictions.encoded.select_columns(["words", "is_last"]), predictions.outputs)
        decoded = []
        for tokens in predictions.examples[self.text_columns[0]]:
            ids = np.full(len(tokens), self.fallback)
            done = not tokens
            while not done:
                window, predicted = next(rows)
                words = np.array(window["words"])
                ids[words[words >= 0]] = predicted[: len(words)][words >= 0]
                done = window["is_last"]
            decoded.append(schemes.convert_tags([self.labels[i] for i in ids], self.scheme))
        return decoded

    def score(self, predictions: Sequence[list[str]], references: Sequence[list[str]]) -> Scores:
        """precision, recall, f1 of entities, and accuracy of words; in scheme "none" accuracy and f1_macro over the
        classes in `references`. None: no entity is there."""
        if self.scheme == "none":
            predicted, true = ([tag for tags in rows for tag in tags] for rows in (predictions, references))
            there = sorted(set(true))
            f1 = f1_score(true, predicted, labels=there, average="macro", zero_division=0) if there else None
            return {"accuracy": accuracy_score(true, predicted) if there else None, "f1_macro": f1}
        scores = entity_scores(predictions, references)
        del scores["per_type"]
        return scores

    def guess(self, train: datasets.Dataset, examples: datasets.Dataset) -> list[list[str]]:
        """The entities of the training rows, wherever their words stand again."""
        column = self.text_columns[0]
        return schemes.tag_by_heart(
            train[column], train[LABEL], examples[column], self.labels[self.fallback], self.scheme
        )

    def by_class(self, predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, dict[str, float]]:
        if self.scheme != "none":
            return {k: row for k, row in entity_scores(predictions, references)["per_type"].items() if row["support"]}
        predicted, true = ([tag for tags in rows for tag in tags] for rows in (predictions, references))
        return class_scores(predicted, true, {tag: tag for tag in sorted({*true})})

    def confidence(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Of the word that is least sure."""
        return super().confidence(logits, inputs).masked_fill(inputs["labels"] == IGNORED, 1.0).amin(-1)

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        decoded, references = self.decode(predictions), predictions.examples[LABEL][:]
        if self.scheme != "none":
            by_type = entity_scores(decoded, references)["per_type"]
            by_type = sorted(by_type.items(), key=lambda item: -item[1]["support"])
            return plot_scores({f"{kind} ({row['support']:,})": row["f1"] for kind, row in by_type}, "F1", path, note)
        predicted, true = ([tag for tags in rows for tag in tags] for rows in (decoded, references))
        there = [label for label in self.labels if label in {*true}]
        f1 = f1_score(true, predicted, labels=there, average=None, zero_division=0) if there else []
        plot_scores(dict(zip(there, f1)), "F1", path, note)

    def show_input(self, row: Mapping[str, Any]) -> str:
        return shortened(" ".join(row[self.text_columns[0]]))

    def show_label(self, row: Mapping[str, Any], label: list[str]) -> str:
        words = row[self.text_columns[0]]
        if self.scheme == "none":
            return shortened(" ".join(f"{word} [{tag}]" for word, tag in zip(words, label)))
        entities = schemes.get_entities(label)
        return shortened(", ".join(f"{' '.join(words[a : b + 1])} [{kind}]" for kind, a, b in entities)) or "none"


def entity_scores(predictions: Sequence[list[str]], references: Sequence[list[str]]) -> dict[str, Any]:
    """The scores of tags in scheme bio, which can express whatever the other schemes can."""
    predictions, references = ([schemes.convert_tags(t, "bio") for t in rows] for rows in (predictions, references))
    return metrics.entity_scores(predictions, references)


def with_spaces_before_words(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, or one of its vocabulary, that reads every word of a sentence, the first one too, as behind a
    space, if words carry theirs. ModernBERT's own would read the words of a list as if they were parts of one."""
    steps = tokenizer.backend_tokenizer.pre_tokenizer
    steps = list(steps) if isinstance(steps, pre_tokenizers.Sequence) else [steps]
    if isinstance(steps[0], pre_tokenizers.ByteLevel):
        steps[0].add_prefix_space = tokenizer.add_prefix_space = True  # what RobertaTokenizer saves is the latter
        return tokenizer
    text, words = tokenizer.tokenize("a the"), tokenizer.tokenize(["a", "the"], is_split_into_words=True)
    if text == words or len(text) > len(words):  # words do not carry their spaces, which are no tokens, or are
        return tokenizer
    # Behind another step that splits, ByteLevel would put the space before every piece.
    mark = " " if any(isinstance(step, pre_tokenizers.ByteLevel) for step in steps) else "\N{LOWER ONE EIGHTH BLOCK}"
    before = pre_tokenizers.Metaspace(mark, prepend_scheme="always", split=False)
    adapted = plain_tokenizer(tokenizer)
    adapted.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([before, *filter(None, steps)])
    return adapted


def encode_sentences(tokenizer, sentences, tags, *, labels, stride, training) -> dict[str, list]:
    """Sentences (lists of words) and their tags as windows of `model_max_length` tokens at most, a row each, in order;
    none of a sentence without words. Beside the model's inputs: `words`, the word in the sentence that begins with each
    token, -1 where none does that is this window's own; `is_last`, whether the sentence ends here; and `labels`, ids of
    the tags at first subwords, -100 elsewhere (Devlin et al. 2019, section 5.3), in training only of the window's own
    words, and only windows that have such."""
    scheme, id_of = schemes.detect_scheme(labels), {label: i for i, label in enumerate(labels)}
    other = id_of.get(schemes.OUTSIDE, 0)  # for a tag that the model does not know
    rows = {"labels": [], "words": [], "is_last": []}
    pairs = [(words, schemes.convert_tags(of_row, scheme)) for words, of_row in zip(sentences, tags) if words]
    if not pairs:
        return {name: [] for name in (*tokenizer.model_input_names, *rows)}
    room = tokenizer.model_max_length - tokenizer.num_special_tokens_to_add()
    whole = tokenizer([words for words, _ in pairs], is_split_into_words=True, add_special_tokens=False, verbose=False)
    cuts = []
    for i, (words, of_row) in enumerate(pairs):
        lengths = np.bincount([word for word in whole.word_ids(i) if word is not None], minlength=len(words))
        cuts += [(words, of_row, window) for window in schemes.cut_into_windows(lengths, room, stride)]
    parts = [words[window.first : window.last] for words, _, window in cuts]
    encoded = tokenizer(parts, is_split_into_words=True, truncation=True)
    for i, (sentence, of_row, window) in enumerate(cuts):
        words = np.array([-1 if word is None else word + window.first for word in encoded.word_ids(i)])
        own = (words >= window.own_first) & (words < window.own_last)
        begins = (words >= 0) & (np.diff(words, prepend=-1) != 0)
        labelled = own & begins if training else begins
        ids = np.array([id_of.get(tag, other) for tag in of_row])
        rows["labels"].append(np.where(labelled, ids[words], IGNORED).tolist())
        rows["words"].append(np.where(own & begins, words, -1).tolist())
        rows["is_last"].append(window.own_last == len(sentence))
    # a batch of nothing but windows without a label has no mean loss
    kept = [i for i, of_window in enumerate(rows["labels"]) if not training or max(of_window) >= 0]
    return {name: [values[i] for i in kept] for name, values in {**encoded, **rows}.items()}
