"""Masked language modelling on pairs of segments, with next-sentence prediction (BERT, arXiv
1810.04805, A.2) or sentence-order prediction (ALBERT, arXiv 1909.11942, 3.1)."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForPreTraining
from ....tokenization import special_ids, tokenizer_backend
from ...data.masking import IGNORE_INDEX
from ...data.sentences import split_sentences
from ...data.tables import map_tables
from ...data.tokenized import tokenize_table
from .base import means, token_score
from .masked_lm import MaskedLM

# Random pairs are made of segments of this many neighbouring documents.
WINDOW = 2048

IS_NEXT, IS_RANDOM = 0, 1
IS_SWAPPED = 1


class MaskedLMWithNextSentence(MaskedLM):
    """Predict masked tokens, and whether segment B follows segment A in the text."""

    name = "mlm+nsp"
    model_class = MiniBertForPreTraining
    masking_defaults = MaskedLM.masking_defaults | {"mlm_probability": 0.15}
    packs_documents = False
    pair_task = "nsp"  # the name of its loss and its accuracy in logs and reports
    swaps_segments = False

    def check(self, config: MiniBertConfig, streaming: bool = False) -> None:
        super().check(config, streaming)
        if config.type_vocab_size < 2:
            raise ValueError(
                f"type_vocab_size: objective {self.name} needs 2 or more, for pairs of segments"
                f" (--preset bert has 2), got {config.type_vocab_size}"
            )

    def rows(
        self, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase
    ) -> datasets.Dataset:
        args = self.args
        return make_pairs(
            documents,
            tokenizer,
            args.seq_length,
            args.short_seq_prob,
            args.seed,
            swaps_segments=self.swaps_segments,
        )

    def loss_name(self, output_name: str) -> str:
        if output_name == "nsp_loss":
            return f"{self.pair_task}_loss"
        return output_name

    def counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"num_rows_in_batch": (batch["next_sentence_label"] != IGNORE_INDEX).sum()}

    def score(self, outputs: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        labels = batch["next_sentence_label"]
        pairs = token_score(outputs["seq_relationship_logits"], labels)
        return torch.cat([token_score(outputs["prediction_logits"], batch["labels"]), pairs])

    def metrics(self, sums: Sequence[float]) -> dict[str, float]:
        loss, right, pairs = sums[3:]
        pair_sums = {f"{self.pair_task}_loss": loss, f"{self.pair_task}_accuracy": right}
        return super().metrics(sums[:3]) | means(pairs, **pair_sums)

    def report(self, metrics: Mapping[str, float], baseline: tuple[float, float]) -> dict[str, Any]:
        report = super().report(metrics, baseline)
        for name in (f"{self.pair_task}_loss", f"{self.pair_task}_accuracy"):
            report[name] = metrics.get(f"eval_{name}")
        return report


class MaskedLMWithSentenceOrder(MaskedLMWithNextSentence):
    """Predict masked tokens, and whether two segments that follow each other have been swapped."""

    name = "mlm+sop"
    pair_task = "sop"
    swaps_segments = True


def make_pairs(
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
    parts = [documents]
    if "source" in documents.column_names:
        source = documents.with_format("numpy")["source"][:]
        parts = [
            documents.select(np.flatnonzero(source == language)) for language in np.unique(source)
        ]
    options = dict(
        desc="Making pairs",
        seq_length=seq_length,
        short_seq_prob=short_seq_prob,
        seed=seed,
        swaps_segments=swaps_segments,
    )
    options |= special_ids(tokenizer) | dict(backend=tokenizer_backend(tokenizer))
    pairs = []
    for part in parts:
        windows = -(-len(part) // WINDOW)  # of equal size, so that none has a single document
        pairs.append(map_tables(part, _pairs, batch_size=-(-len(part) // windows), **options))
    rows = datasets.concatenate_datasets(pairs)
    if not len(rows):
        raise ValueError(
            f"data: {len(documents):,} documents make no pair of segments; give different ones of"
            " several sentences (for the held-out documents: a larger validation_size)"
        )
    return rows


def _pairs(
    table: pa.Table,
    backend: str,
    seq_length: int,
    short_seq_prob: float,
    seed: int,
    swaps_segments: bool,
    **special: int,
) -> pa.Table:
    cls, sep = special["cls_token_id"], special["sep_token_id"]
    texts = table["text"].to_pylist()
    documents = [split_sentences(text) for text in texts]
    flat = list(chain(*documents))
    tokenized = tokenize_table(pa.table({"text": pa.array(flat, pa.string())}), backend)[
        "input_ids"
    ]
    tokens = iter(tokenized.to_pylist())
    documents = [[ids for ids in (next(tokens) for _ in document) if ids] for document in documents]
    texts = [text for text, document in zip(texts, documents) if document]
    documents = [document for document in documents if document]
    behind = [np.cumsum([*map(len, document)][::-1])[::-1] for document in documents]
    generator = np.random.default_rng([seed, zlib.crc32("".join(flat).encode())])
    ids, segments, labels = [], [], []
    if len(set(texts)) < 2 and not swaps_segments:
        documents = []  # there is no other text to take a random segment of
    for number in range(len(documents)):
        for a, b, label in _pairs_of(
            documents,
            behind,
            texts,
            number,
            seq_length - 3,
            short_seq_prob,
            swaps_segments,
            generator,
        ):
            ids.append([cls, *a, sep, *b, sep])
            segments.append([0] * (len(a) + 2) + [1] * (len(b) + 1))
            labels.append(label)
    types = {
        "input_ids": tokenized.type,
        "token_type_ids": pa.list_(pa.int8()),
        "next_sentence_label": pa.int64(),
    }
    return pa.table(dict(zip(types, (ids, segments, labels))), schema=pa.schema(types))


def _pairs_of(
    documents: list[list[list[int]]],
    behind: list[np.ndarray],
    texts: list[str],
    number: int,
    room: int,
    short_seq_prob: float,
    swaps_segments: bool,
    generator: np.random.Generator,
) -> Iterator[tuple[list[int], list[int], int]]:
    """Yield the pairs (A, B, label) that begin in one document; A and B together have at most
    `room` tokens. `behind`: the number of tokens from each segment to the end of its document."""
    document, position = documents[number], 0
    while position < len(document):
        target = room
        if generator.random() < short_seq_prob:
            target = int(generator.integers(2, room + 1))
        end, gathered = position, 0
        while end < len(document) and gathered < target:
            gathered += len(document[end])
            end += 1
        if end - position < 2:
            # A single segment fills the row, or is the last of the document: take the next one too,
            # if there is one.
            if end == len(document):
                return
            end += 1
        middle = int(generator.integers(position + 1, end))
        a, b = (list(chain(*part)) for part in (document[position:middle], document[middle:end]))
        label, position = IS_NEXT, end
        is_changed = generator.random() < 0.5
        if is_changed and not swaps_segments:
            label, position = IS_RANDOM, middle
            other = number
            while (
                texts[other] == texts[number]
            ):  # a mixture may repeat the documents of small sources
                other = int(generator.integers(len(documents)))
            # Whole segments of the length that B had, so that neither lengths nor ends give the
            # label away.
            needed, b = min(len(b), target - len(a)), []
            start = generator.integers(max(np.count_nonzero(behind[other] >= needed), 1))
            for segment in documents[other][start:]:
                b += segment
                if len(b) >= needed:
                    break
        while len(a) + len(b) > target:
            longer = a if len(a) > len(b) else b
            longer.pop(0 if generator.random() < 0.5 else -1)
        if is_changed and swaps_segments:
            label = IS_SWAPPED
            a, b = b, a
        yield a, b, label
