"""Masked language modelling on pairs of segments, with next-sentence prediction (BERT, arXiv
1810.04805, A.2) or sentence-order prediction (ALBERT, arXiv 1909.11942, 3.1)."""

import zlib
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForPreTraining
from ....tokenization import special_ids, tokenizer_json
from ...data.dataset_calls import map_tables
from ...data.masking import IGNORE_INDEX
from ...data.sentences import sentences_by_line
from ...data.tokenized import tokenize_table
from .base import UnigramBaseline, mean_metrics, token_sums
from .masked_lm import MaskedLM

# Random pairs are made of segments of this many neighbouring documents.
DOCUMENTS_PER_WINDOW = 2048

MIN_PAIR_LENGTH = 5
# Values of `next_sentence_label`.
IS_NEXT = 0
IS_RANDOM = 1
IS_SWAPPED = 1


class MaskedLMWithNextSentence(MaskedLM):
    """Predict masked tokens, and whether segment B follows segment A in the text."""

    name = "mlm+nsp"
    model_class = MiniBertForPreTraining
    masking_defaults = MaskedLM.masking_defaults | {"mlm_probability": 0.15}
    packs_documents = False
    pair_task = "nsp"
    pair_task_name = "next sentence"
    supports_label_smoothing = False
    can_halve_batches = False
    swaps_segments = False

    def check(self, config: MiniBertConfig, streaming: bool = False) -> None:
        super().check(config, streaming)
        if config.type_vocab_size < 2:
            raise ValueError(
                f"type_vocab_size: objective {self.name} needs 2 or more, for pairs of segments"
                f" (--preset bert has 2), got {config.type_vocab_size}"
            )
        if self.args.seq_length < MIN_PAIR_LENGTH:
            raise ValueError(
                f"seq_length: objective {self.name} needs {MIN_PAIR_LENGTH} or more ([CLS], a"
                f" token, [SEP], a token, [SEP]), got {self.args.seq_length}"
            )

    def make_pairs(
        self, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase
    ) -> datasets.Dataset:
        args = self.args
        return make_sentence_pairs(
            documents,
            tokenizer,
            args.seq_length,
            args.short_seq_prob,
            args.seed,
            self.swaps_segments,
        )

    def loss_name(self, output_name: str) -> str:
        if output_name == "nsp_loss":
            return f"{self.pair_task}_loss"
        return output_name

    def count_targets(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"num_rows_in_batch": (batch["next_sentence_label"] != IGNORE_INDEX).sum()}

    def batch_sums(
        self, outputs: Any, batch: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        labels = batch["next_sentence_label"]
        sums = token_sums(outputs["prediction_logits"], batch["labels"])
        for name, value in token_sums(outputs["seq_relationship_logits"], labels).items():
            sums[f"pair_{name}"] = value
        return sums

    def metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
        pair_means = {
            f"{self.pair_task}_loss": sums["pair_loss"],
            f"{self.pair_task}_accuracy": sums["pair_right"],
        }
        return super().metrics(sums) | mean_metrics(sums["pair_targets"], **pair_means)

    def total_loss(self, metrics: Mapping[str, float]) -> float | None:
        masked_loss = super().total_loss(metrics)
        if masked_loss is None:
            return None
        return masked_loss + metrics.get(f"{self.pair_task}_loss", 0.0)

    def make_report(self, metrics: Mapping[str, float], unigram: UnigramBaseline) -> dict[str, Any]:
        report = super().make_report(metrics, unigram)
        for name in (f"{self.pair_task}_loss", f"{self.pair_task}_accuracy"):
            report[name] = metrics.get(f"eval_{name}")
        return report


class MaskedLMWithSentenceOrder(MaskedLMWithNextSentence):
    """Predict masked tokens, and whether two segments that follow each other have been swapped."""

    name = "mlm+sop"
    pair_task = "sop"
    pair_task_name = "sentence order"
    swaps_segments = True


def make_sentence_pairs(
    documents: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    seq_length: int,
    short_seq_prob: float,
    seed: int,
    swaps_segments: bool = False,
) -> datasets.Dataset:
    """Make rows of pairs, `[CLS] A [SEP] B [SEP]`: `input_ids`, `token_type_ids` (0 up to the first
    [SEP], then 1) and `next_sentence_label` (0: B follows A in the text, 1: B begins at a random
    place of another document). Both segments are of one language, so that the language does not
    give the label away.

    As in BERT, segments of a document are gathered until they fill a row (or, for the share
    `short_seq_prob` of the pairs, a random shorter length), and a random number of them is A. With
    probability 1/2, B is random text of the same length from another document, and the text that it
    replaces begins the next pair. Too long pairs are cut at random at either end. Unlike in BERT, a
    text of a single segment makes no pair (but may be a random B). A ValueError if there are no two
    different documents, or none with two segments.

    With `swaps_segments`, both segments follow each other in the text, and half of the pairs are
    swapped, as in ALBERT (`next_sentence_label` 1: A follows B).

    Args:
        documents: a column `text`, whose segments are its sentences; if there are several
            languages, a column `source`.
        seq_length: longest row, in tokens.
    """
    options = dict(
        desc="Making pairs",
        serialized_tokenizer=tokenizer_json(tokenizer),
        seq_length=seq_length,
        short_seq_prob=short_seq_prob,
        seed=seed,
        swaps_segments=swaps_segments,
        **special_ids(tokenizer),
    )
    pairs = []
    for part in _split_languages(documents):
        num_windows = -(-len(part) // DOCUMENTS_PER_WINDOW)
        # of equal size, so that none has a single document
        window_size = -(-len(part) // num_windows)
        pairs.append(map_tables(part, pair_table, batch_size=window_size, **options))
    rows = datasets.concatenate_datasets(pairs)
    if not len(rows):
        raise ValueError(
            f"data: {len(documents):,} documents make no pair of segments; give different ones of"
            " several sentences (for the held-out documents: a larger validation_size)"
        )
    return rows


def _split_languages(documents: datasets.Dataset) -> list[datasets.Dataset]:
    """The documents of each language; all of them if there is no column `source`."""
    if "source" not in documents.column_names:
        return [documents]
    source = documents.with_format("numpy")["source"][:]
    parts = []
    for language in np.unique(source):
        parts.append(documents.select(np.flatnonzero(source == language)))
    return parts


def pair_table(
    table: pa.Table,
    serialized_tokenizer: str,
    seq_length: int,
    short_seq_prob: float,
    seed: int,
    swaps_segments: bool,
    cls_token_id: int,
    sep_token_id: int,
) -> pa.Table:
    """Make the pairs of one window of documents (column `text`); see `make_sentence_pairs`."""
    texts = table["text"].to_pylist()
    sentences = [sentences_by_line(text) for text in texts]
    all_sentences = list(chain(*sentences))
    generator = np.random.default_rng([seed, zlib.crc32("".join(all_sentences).encode())])
    text_table = pa.table({"text": pa.array(all_sentences, pa.string())})
    tokenized = tokenize_table(text_table, serialized_tokenizer)
    segments = iter(tokenized["input_ids"].to_pylist())
    documents = []
    for text, text_sentences in zip(texts, sentences):
        document = [ids for ids in islice(segments, len(text_sentences)) if ids]
        if document:
            documents.append(SegmentedText(text, document))
    if len({document.text for document in documents}) < 2 and not swaps_segments:
        documents = []  # there is no other text to take a random segment of

    input_ids = []
    token_type_ids = []
    labels = []
    maker = PairMaker(documents, seq_length - 3, short_seq_prob, swaps_segments, generator)
    for number in range(len(documents)):
        for a, b, label in maker.pairs_of(number):
            input_ids.append([cls_token_id, *a, sep_token_id, *b, sep_token_id])
            token_type_ids.append([0] * (len(a) + 2) + [1] * (len(b) + 1))
            labels.append(label)
    return pa.table(
        {
            "input_ids": pa.array(input_ids, tokenized["input_ids"].type),
            "token_type_ids": pa.array(token_type_ids, pa.list_(pa.int8())),
            "next_sentence_label": pa.array(labels, pa.int64()),
        }
    )


class SegmentedText:
    """A text, and the token ids of its segments."""

    def __init__(self, text: str, segments: list[list[int]]):
        self.text = text
        self.segments = segments
        lengths = np.array([len(segment) for segment in segments])
        # The tokens from each segment to the end of the document.
        self.tokens_to_end = lengths[::-1].cumsum()[::-1]


class PairMaker:
    """Makes pairs (A, B, label) of the segments of documents.

    Args:
        max_tokens: the most tokens of A and B together.
    """

    def __init__(
        self,
        documents: list[SegmentedText],
        max_tokens: int,
        short_seq_prob: float,
        swaps_segments: bool,
        generator: np.random.Generator,
    ):
        self.documents = documents
        self.max_tokens = max_tokens
        self.short_seq_prob = short_seq_prob
        self.swaps_segments = swaps_segments
        self.generator = generator

    def pairs_of(self, number: int) -> Iterator[tuple[list[int], list[int], int]]:
        """Yield the pairs that begin in one document."""
        segments = self.documents[number].segments
        position = 0
        while position < len(segments):
            target_length = self._draw_length()
            end = self._gather(segments, position, target_length)
            if end > len(segments):
                return  # the last segment of the document has no next one
            middle = int(self.generator.integers(position + 1, end))
            a = list(chain(*segments[position:middle]))
            b = list(chain(*segments[middle:end]))
            is_changed = self.generator.random() < 0.5
            if not is_changed:
                label = IS_NEXT
            elif self.swaps_segments:
                label = IS_SWAPPED
            else:
                label = IS_RANDOM
                end = middle  # what B was begins the next pair
                b = self._random_segment(number, min(len(b), target_length - len(a)))
            self._truncate(a, b, target_length)
            if is_changed and self.swaps_segments:
                a, b = b, a
            yield a, b, label
            position = end

    def _draw_length(self) -> int:
        """The most tokens of the next pair."""
        if self.generator.random() < self.short_seq_prob:
            return int(self.generator.integers(2, self.max_tokens + 1))
        return self.max_tokens

    def _gather(self, segments: list[list[int]], position: int, target_length: int) -> int:
        """Where a pair ends that begins at `position`: once its segments have `target_length`
        tokens, but not before it has two segments, even if the document has only one more."""
        end = position
        gathered = 0
        while end < len(segments) and gathered < target_length:
            gathered += len(segments[end])
            end += 1
        return max(end, position + 2)

    def _random_segment(self, number: int, min_length: int) -> list[int]:
        """Whole segments of another text, together at least as long as B was, if they can be:
        neither lengths nor ends give the label away."""
        text = self.documents[number].text
        other = self.documents[number]
        while other.text == text:  # a mixture may repeat the documents of small sources
            other = self.documents[int(self.generator.integers(len(self.documents)))]
        num_starts = max(np.count_nonzero(other.tokens_to_end >= min_length), 1)
        start = self.generator.integers(num_starts)
        b: list[int] = []
        for segment in other.segments[start:]:
            b += segment
            if len(b) >= min_length:
                break
        return b

    def _truncate(self, a: list[int], b: list[int], target_length: int) -> None:
        """Cut tokens at random at either end of the longer segment, in place."""
        while len(a) + len(b) > target_length:
            longer = a if len(a) > len(b) else b
            longer.pop(0 if self.generator.random() < 0.5 else -1)
