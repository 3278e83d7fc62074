"""Tag the words of sentences: entities (NER), parts of speech (POS)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    EvalPrediction,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    pipeline,
)

from ....modeling_minibert import MiniBertForTokenClassification
from ...arguments.finetuning import TagArguments
from ...metrics import F1, Accuracy, Seqeval
from ...report import plot_per_type, plot_scores
from ..data import FILE, check_columns, find_column, where
from .base import Task, label_fields, map_rows, saved_labels, shortened
from .label_schemes import (
    IGNORED,
    OUTSIDE,
    Decoder,
    align_labels,
    convert_tags,
    cut_into_windows,
    detect_scheme,
    find_illegal,
    labels_of,
    mean_of_words,
    split_tag,
)

TOKENS = ("tokens", "words", "token", "text", "sentence")
TAGS = ("ner_tags", "tags", "ner", "pos_tags", "upos", "pos", "xpos", "chunk_tags", "labels", "label")
READ_TOKENS, READ_TAGS = "_tokens", "_tags"  # the columns that `read` adds: words, and their tags by name


class Tag(Task):
    """A token classifier whose labels stand for the tags of whole words."""

    name = "tag"
    model_class = MiniBertForTokenClassification

    def __init__(self, arguments: TagArguments, tokenizer: PreTrainedTokenizerBase):
        super().__init__(arguments, tokenizer)
        spaces_before_words(tokenizer)
        special = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        self.special_tokens_behind = special[::-1].index(0)

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        if self.arguments.stride < 0:
            raise ValueError(f"stride: {self.arguments.stride} is not legal: 0 or more")
        first = next(iter(splits.values()))
        (self.tokens_column,) = self.group_columns(first)
        self.tags_column = self.find_labels(first)
        tags = {name: self._tags_of(split) for name, split in splits.items()}

        seen = {tag for rows in tags.values() for row in rows for tag in row}
        data_scheme = self.arguments.data_scheme
        data_scheme = detect_scheme(seen) if data_scheme == "auto" else data_scheme
        for name, split in splits.items():
            self._check_scheme(split, tags[name], data_scheme)

        known = saved_labels(config) if config is not None else None
        if known is None:
            if config is not None:
                raise ValueError("model: its labels have no names (LABEL_0, …), so its tags are not known")
            scheme = data_scheme if self.arguments.scheme == "auto" else self.arguments.scheme
            self.labels = labels_of((tag for row in tags["train"] for tag in row), scheme)
        else:
            self.labels, scheme = known, detect_scheme(known)
            if self.arguments.scheme not in ("auto", scheme):
                raise ValueError(f"scheme: {self.arguments.scheme!r} is asked for, but the model tags in {scheme!r}")
        if (scheme == "none") != (data_scheme == "none"):
            raise ValueError(
                f"scheme: the tags in {first[0][FILE]!r} ({', '.join(sorted(seen)[:5])}, …) are of scheme "
                f"{data_scheme!r}, which a model of scheme {scheme!r} ({', '.join(self.labels[:5])}, …) cannot tell"
            )
        self.scheme = scheme
        self.decoder = Decoder(self.labels, self.arguments.decoding)
        self.fallback = self.labels.index(OUTSIDE) if OUTSIDE in self.labels else 0
        self.metric_for_best_model = "accuracy" if scheme == "none" else "f1"
        for name, split in splits.items():
            self._check_seen(split, tags[name])
        return datasets.DatasetDict({name: self._with_tags(split, tags[name]) for name, split in splits.items()})

    def find_labels(self, split: datasets.Dataset) -> str:
        return find_column(split, self.arguments.tags_column, TAGS, "tags_column", "the tags")

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        check_columns(split, [self.tokens_column], "tokens_column")
        for row in split:
            self._check_tokens(row)
        tags = [[self.labels[self.fallback]] * len(tokens) for tokens in split[self.tokens_column]]
        return self._with_tags(split, tags)

    def group_columns(self, split: datasets.Dataset) -> list[str]:
        return [find_column(split, self.arguments.tokens_column, TOKENS, "tokens_column", "the words")]

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        column = self.find_labels(split)
        return [{str(tag) for tag in tags} if isinstance(tags, list) else set() for tags in split[column]]

    def config_fields(self) -> dict[str, Any]:
        return label_fields(self.labels)

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        return map_rows(
            split.select_columns([READ_TOKENS, READ_TAGS]),
            encode_sentences,
            self.tokenizer,
            labels=self.labels,
            align=self.arguments.align,
            training=training,
            stride=self.arguments.stride,
            desc="Tokenizing",
        )

    def collator(self) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
        self.tokenizer.padding_side = "right"  # `predict` finds tokens by their column
        return DataCollatorForTokenClassification(self.tokenizer)

    def preprocess_logits(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The label of each word at its first subword, -100 elsewhere: [batch, length]."""
        labels = inputs["labels"].to(logits.device)
        first = labels != IGNORED
        scores = logits.float().log_softmax(-1)
        if self.arguments.subwords == "mean":
            mask = inputs["attention_mask"].to(logits.device)
            scores = mean_of_words(scores.exp(), first, mask.sum(1) - self.special_tokens_behind)
            scores = scores.clamp_min(torch.finfo(scores.dtype).tiny).log()
        ids = torch.full_like(labels, IGNORED)
        for row, of_row, words in zip(ids, scores, first):
            row[words] = torch.tensor(
                self.decoder.path(of_row[words].cpu().numpy()), dtype=ids.dtype, device=ids.device
            )
        return ids

    def predict(self, prediction: EvalPrediction, examples: datasets.Dataset) -> Iterator[list[str]]:
        """The tags of every sentence, one a word, legal in the model's scheme. Windows of long sentences are joined; a
        word without any subword is outside of entities (in scheme "none": of the most frequent class)."""
        windows = self.encode(examples, training=False).select_columns(["words", "own", "is_last"])
        rows = zip(windows, prediction.predictions)
        for tokens in examples[READ_TOKENS]:
            ids = np.full(len(tokens), self.fallback)
            done = not tokens
            while not done:
                window, predicted = next(rows)
                words, columns = _own_words(window)
                words, first = np.unique(words, return_index=True)
                ids[words] = predicted[columns[first]]
                done = window["is_last"]
            yield self.decoder.tags(ids)

    def compute_metrics(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, float]:
        """precision, recall, f1 of entities, over all and for each type (f1_PER, …), and the accuracy of words. Scheme
        "none": accuracy and the mean F1 of the classes (f1_macro)."""
        if self.scheme == "none":
            given = self._word_ids(prediction, examples)
            return Accuracy().compute(**given) | {"f1_macro": F1().compute(**given, average="macro")["f1"]}
        scores = self._entity_scores(prediction, examples)
        per_type = scores.pop("per_type")
        return scores | {
            f"{name}_{kind}": per_type[kind][name] if kind in per_type else 0.0
            for kind in self._types()
            for name in ("precision", "recall", "f1")
        }

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        if self.scheme == "none":
            return ["accuracy", "f1_macro"]
        scores = ("precision", "recall", "f1")
        return [*scores, "accuracy", *(f"{name}_{kind}" for kind in self._types() for name in scores)]

    def predicted(self, prediction: EvalPrediction, examples: datasets.Dataset) -> list[list[str]]:
        return list(self.predict(prediction, examples))

    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        if self.scheme != "none":
            plot_per_type(self._entity_scores(prediction, examples)["per_type"], path)
            return
        given = self._word_ids(prediction, examples)
        there = sorted(set(given["references"]))
        scores = {self.labels[i]: F1().compute(**given, average="macro", labels=[i])["f1"] for i in there}
        plot_scores(scores, "F1", path)

    def show(self, folder: Path, examples: datasets.Dataset) -> list[str]:
        model = AutoModelForTokenClassification.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        strategy = "average" if self.arguments.subwords == "mean" else "first"
        tagger = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
        lines = []
        for row in examples.select(range(min(3, len(examples)))):
            text = " ".join(row[READ_TOKENS])
            found = [(text[group["start"] : group["end"]].strip(), group["entity_group"]) for group in tagger(text)]
            if self.scheme == "none":  # the pipeline runs neighbours of one class together
                found = [(word, kind) for part, kind in found for word in part.split()]
            said = ", ".join(f"{part} [{kind}]" for part, kind in found) or "nothing found"
            lines += [f"  {shortened(text)}", f"    {shortened(said)}"]
        return lines

    # --- rows ---

    def _tags_of(self, split: datasets.Dataset) -> list[list[str]]:
        """The tags of every row by name, after a look at words and tags."""
        check_columns(split, [self.tokens_column], "tokens_column")
        check_columns(split, [self.tags_column], "tags_column")
        feature = getattr(split.features[self.tags_column], "feature", None)
        if self.arguments.tag_names and getattr(feature, "dtype", None) == "string":
            raise ValueError(f"tag_names: the tags of {split[0][FILE]!r} have names ({self.tags_column} holds texts)")
        names = self.arguments.tag_names or getattr(feature, "names", [])
        named = []
        for row in split:
            tokens, tags = self._check_tokens(row), row[self.tags_column]
            if not isinstance(tags, list) or len(tags) != len(tokens):
                given = f"{len(tags)} tags for {len(tokens)} words" if isinstance(tags, list) else repr(tags)
                raise ValueError(f"{where(row)}: {self.tags_column!r} is {given}; legal: a list, one tag a word")
            for word, tag in enumerate(tags):
                if isinstance(tag, str) or (isinstance(tag, int) and 0 <= tag < len(names)):
                    continue
                legal = f"a number below {len(names)}" if names else "a text, or a number whose name --tag_names tells"
                raise ValueError(
                    f"{where(row)}: word {word + 1} ({tokens[word]!r}) has the tag {tag!r}; legal: {legal}"
                )
            named.append([tag if isinstance(tag, str) else names[tag] for tag in tags])
        return named

    def _check_tokens(self, row: dict[str, Any]) -> list[str]:
        tokens = row[self.tokens_column]
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"{where(row)}: {self.tokens_column!r} is {tokens!r}; legal: a list of words")
        return tokens

    def _with_tags(self, split: datasets.Dataset, tags: list[list[str]]) -> datasets.Dataset:
        split = split.remove_columns([c for c in (READ_TOKENS, READ_TAGS) if c in split.column_names])
        split = split.add_column(READ_TOKENS, split[self.tokens_column][:])
        return split.add_column(READ_TAGS, tags, feature=datasets.List(datasets.Value("string")))

    def _check_scheme(self, split: datasets.Dataset, tags: list[list[str]], scheme: str) -> None:
        """Refuse what is not legal in `scheme`, or put it right in `tags` itself."""
        for index, of_row in enumerate(tags):
            word = find_illegal(of_row, scheme)
            if word is None:
                continue
            no_tag = next((i for i, tag in enumerate(of_row) if not split_tag(tag)[0]), None)
            if self.arguments.repair_tags and no_tag is None:
                tags[index] = convert_tags(of_row, scheme)
                continue
            row = split[index]
            word = word if no_tag is None else no_tag
            before = f"after {of_row[word - 1]!r}" if word else "at the beginning"
            if word == len(of_row):
                what = f"the sentence ends {before}"
            else:
                what = f"word {word + 1} ({row[self.tokens_column][word]!r}) has the tag {of_row[word]!r} {before}"
            hint = (
                "--repair_tags true reads such tags as seqeval does"
                if no_tag is None
                else "legal: O, B-TYPE, I-TYPE, …"
            )
            raise ValueError(f"{where(row)}: {what}, which is not legal in scheme {scheme!r}; {hint}")

    def _check_seen(self, split: datasets.Dataset, tags: list[list[str]]) -> None:
        for index, of_row in enumerate(tags):
            for tag, label in zip(of_row, convert_tags(of_row, self.scheme)):
                if label not in self.labels:
                    raise ValueError(
                        f"{where(split[index])}: the tag {tag!r} in {self.tags_column!r} was never seen in training; "
                        f"legal: {', '.join(self.labels)}"
                    )

    # --- scores ---

    def _types(self) -> list[str]:
        return sorted({split_tag(label)[1] for label in self.labels} - {""})

    def _entity_scores(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, Any]:
        # as BIO, which can tell whatever the other schemes can
        predictions = [convert_tags(tags, "bio") for tags in self.predict(prediction, examples)]
        references = [convert_tags(tags, "bio") for tags in examples[READ_TAGS]]
        return Seqeval().compute(predictions=predictions, references=references)

    def _word_ids(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, list[int]]:
        rows = (self.predict(prediction, examples), examples[READ_TAGS])
        ids = ([self.labels.index(tag) for tags in side for tag in tags] for side in rows)
        return dict(zip(("predictions", "references"), ids))


def spaces_before_words(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a byte-level `tokenizer` read every word of a sentence, the first one too, as it stands in running text:
    behind a space. ModernBERT's own would read the words of a list as if they were parts of one."""
    steps = tokenizer.backend_tokenizer.pre_tokenizer
    for step in steps if isinstance(steps, pre_tokenizers.Sequence) else [steps]:
        if isinstance(step, pre_tokenizers.ByteLevel):
            step.add_prefix_space = tokenizer.add_prefix_space = True  # what RobertaTokenizer saves is the latter


def encode_sentences(
    batch: dict[str, list], tokenizer, *, labels: list[str], align: str, stride: int, training: bool
) -> dict[str, list]:
    """Sentences as windows of at most `tokenizer.model_max_length` tokens, one row each, in order; none of a sentence
    without words. Beside the model's inputs: `words`, for each token its word in the sentence, -1 at special tokens;
    `own`, the first and last + 1 of the words that are this window's own; `is_last`, whether the sentence ends here.
    And `labels`: in training of the window's own words, at the subwords that `align` says; else at the first subword of
    all its words, for decoding them together.
    """
    scheme, id_of = detect_scheme(labels), {label: i for i, label in enumerate(labels)}
    rows = {"labels": [], "words": [], "own": [], "is_last": []}
    sentences = [pair for pair in zip(batch[READ_TOKENS], batch[READ_TAGS]) if pair[0]]
    if not sentences:
        return {**{name: [] for name in tokenizer.model_input_names}, **rows}
    room = tokenizer.model_max_length - tokenizer.num_special_tokens_to_add()
    whole = tokenizer([tokens for tokens, _ in sentences], is_split_into_words=True, add_special_tokens=False,
                      verbose=False)  # fmt: skip
    cuts = []
    for i, (tokens, tags) in enumerate(sentences):
        lengths = np.bincount([word for word in whole.word_ids(i) if word is not None], minlength=len(tokens))
        ids = [id_of[tag] for tag in convert_tags(tags, scheme)]
        cuts += [(tokens, ids, window) for window in cut_into_windows(lengths, room, stride)]
    encoded = tokenizer([tokens[window.first : window.last] for tokens, _, window in cuts], is_split_into_words=True,
                        truncation=True)  # fmt: skip
    for i, (tokens, ids, window) in enumerate(cuts):
        words = [None if word is None else word + window.first for word in encoded.word_ids(i)]
        if training:
            own = range(window.keep_first, window.keep_last)
            learned = [label if word in own else IGNORED for word, label in enumerate(ids)]
            rows["labels"].append(align_labels(words, learned, align))
        else:
            rows["labels"].append(align_labels(words, ids, "first"))
        rows["words"].append([-1 if word is None else word for word in words])
        rows["own"].append([window.keep_first, window.keep_last])
        rows["is_last"].append(window.keep_last == len(tokens))
    return {**encoded, **rows}


def _own_words(window: dict[str, list]) -> tuple[np.ndarray, np.ndarray]:
    """The words of a window's own, token by token, and the columns of those tokens."""
    words, (first, end) = np.asarray(window["words"]), window["own"]
    columns = np.flatnonzero((words >= first) & (words < end))
    return words[columns], columns
