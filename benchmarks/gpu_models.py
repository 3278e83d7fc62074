"""Models and batches of benchmarks/gpu.py: MiniBERT, ModernBERT and BERT on the same documents.

A batch of documents comes in three forms: one packed row for MiniBERT, one packed row for
ModernBERT with an attention function or masks that keep the documents apart, and padded rows for
models that take nothing else.

Shape suffixes: t tokens of a packed row, h heads, d head width, n documents.
"""

import itertools
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from minibert import MiniBertConfig, MiniBertForMaskedLM

MASKED = 0.3
# The longest document of a batch, and the longest of the rows that only tests see.
DOCUMENT_LENGTH = 1024
TINY_DOCUMENT_LENGTH = 32
# Google's base and large, and a size for the rehearsal: width, layers, heads, inner width.
BERT_SHAPES = {
    "base": (768, 12, 12, 3072),
    "large": (1024, 24, 16, 4096),
    "tiny": (128, 2, 2, 512),
}
MODEL_NAMES = ("MiniBERT", "ModernBERT", "ModernBERT, packed", "ModernBERT, masks", "BERT")


# --- models ---


def minibert_config(size: str) -> MiniBertConfig:
    """The vocabulary is a multiple of 64."""
    return MiniBertConfig.minibert(size, vocab_size=30592)


def build_model(name: str, size: str) -> Any:
    """A model with random weights.

    Args:
        name: one of `MODEL_NAMES`.
        size: "base", "large" or "tiny".
    """
    if name == "MiniBERT":
        return MiniBertForMaskedLM(minibert_config(size))
    if name == "BERT":
        return build_bert(size)
    model = build_modernbert(size)
    if name == "ModernBERT, packed":
        model.set_attn_implementation(VARLEN)
    return model


def build_modernbert(size: str) -> ModernBertForMaskedLM:
    """MiniBERT's shape. The logits are computed at masked tokens alone, which is its fastest
    setting."""
    ours = minibert_config(size)
    config = ModernBertConfig(
        vocab_size=ours.vocab_size,
        hidden_size=ours.hidden_size,
        num_hidden_layers=ours.num_hidden_layers,
        num_attention_heads=ours.num_attention_heads,
        intermediate_size=ours.intermediate_size,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        cls_token_id=2,
        sep_token_id=3,
        sparse_prediction=True,
    )
    return ModernBertForMaskedLM(config)


def build_bert(size: str) -> BertForMaskedLM:
    width, layers, heads, inner = BERT_SHAPES[size]
    config = BertConfig(
        vocab_size=minibert_config(size).vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=8192,
    )
    return BertForMaskedLM(config)


# --- attention for ModernBERT on packed rows ---

VARLEN = "benchmark_varlen"


def attend_documents(
    module, query, key, value, attention_mask, cu_seq_lens_q, max_length_q, sliding_window=None, **_
):
    """Attention within each document of one packed row: torch's flash attention on a GPU, as
    MiniBERT calls it. On a CPU, for the rehearsal, it is one call of SDPA for each document.

    Args:
        query, key, value: [1, h, t, d].
        cu_seq_lens_q: int32 [n + 1], where the documents start.
        sliding_window: the tokens seen on one side, the token itself included (Transformers' own
            count).

    Returns:
        [1, t, h, d], and None in place of probabilities.
    """
    window = -1 if sliding_window is None else sliding_window - 1
    if query.device.type == "cuda":
        q_thd, k_thd, v_thd = (x[0].transpose(0, 1) for x in (query, key, value))
        bounds = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
        outputs = torch.ops.aten._flash_attention_forward(
            q_thd,
            k_thd,
            v_thd,
            *bounds,
            0.0,
            False,
            False,
            window_size_left=window,
            window_size_right=window,
        )
        return outputs[0].unsqueeze(0), None
    lengths = cu_seq_lens_q.diff().tolist()
    outputs = []
    for q, k, v in zip(*(x.split(lengths, dim=2) for x in (query, key, value))):
        position = torch.arange(q.shape[2])
        distance = (position[:, None] - position).abs()
        mask = None if window < 0 else distance <= window
        outputs.append(F.scaled_dot_product_attention(q, k, v, mask))
    return torch.cat(outputs, dim=2).transpose(1, 2), None


AttentionInterface.register(VARLEN, attend_documents)
AttentionMaskInterface.register(VARLEN, lambda *args, **kwargs: None)


# --- batches ---


def natural_lengths(tokens: int, longest: int) -> list[int]:
    """The lengths of documents as they come, with this sum: a median of 300 tokens, and some very
    long ones."""
    generator = np.random.default_rng(0)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        length = int(np.clip(generator.lognormal(5.7, 0.8), 8, longest))
        lengths.append(min(length, tokens - sum(lengths)))
    return lengths


def batch_lengths(name: str, tiny: bool) -> list[int]:
    """The lengths of the documents of one of `BATCH_NAMES`."""
    unit = TINY_DOCUMENT_LENGTH if tiny else DOCUMENT_LENGTH
    return {
        "8 x 1,024": [unit] * 8,
        "1 x 8,192": [8 * unit],
        "natural, 8,192": natural_lengths(8 * unit, unit),
        "32 x 1,024": [unit] * 32,
        "natural, 32,768": natural_lengths(32 * unit, unit),
    }[name]


BATCH_NAMES = ("8 x 1,024", "1 x 8,192", "natural, 8,192", "32 x 1,024", "natural, 32,768")


def build_batch(name: str, lengths: list[int], vocab_size: int) -> dict[str, Any]:
    """The documents in the form that a model takes, with random tokens and labels at 30 % of them.

    Args:
        name: one of `MODEL_NAMES`.
        lengths: of the documents.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = sum(lengths)
    ids_t = torch.randint(5, vocab_size, (tokens,), generator=generator)
    masked_t = torch.rand(tokens, generator=generator) < MASKED
    labels_t = torch.where(masked_t, ids_t, -100)
    labels_t[0] = -100  # `fix_shapes` needs a token without a label
    if name in ("ModernBERT", "BERT"):
        return padded_rows(ids_t, labels_t, lengths)
    batch = packed_row(ids_t, labels_t, lengths)
    if name == "MiniBERT":
        return batch
    if name == "ModernBERT, packed":
        return for_varlen(batch)
    return for_masks(batch)


def packed_row(ids_t: torch.Tensor, labels_t: torch.Tensor, lengths: list[int]) -> dict[str, Any]:
    """One row, as MiniBERT's collator makes it."""
    bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    return dict(
        input_ids=ids_t.unsqueeze(0),
        labels=labels_t.unsqueeze(0),
        masked_lm_positions=(labels_t != -100).nonzero().squeeze(1),
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
        max_length_q=max(lengths),
        max_length_k=max(lengths),
    )


def padded_rows(ids_t: torch.Tensor, labels_t: torch.Tensor, lengths: list[int]) -> dict[str, Any]:
    """One row for each document, as other models need it."""
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    batch = dict(
        input_ids=torch.zeros(real.shape, dtype=torch.long).masked_scatter(real, ids_t),
        labels=torch.full(real.shape, -100).masked_scatter(real, labels_t),
    )
    if not real.all():
        batch["attention_mask"] = real.long()
    return batch


def positions_in_documents(bounds: torch.Tensor) -> torch.Tensor:
    """[1, t], the positions that restart at each document."""
    return torch.cat([torch.arange(length) for length in bounds.diff().tolist()]).unsqueeze(0)


def for_varlen(batch: dict[str, Any]) -> dict[str, Any]:
    """MiniBERT's packed row for ModernBERT with `attend_documents`, which needs no masks."""
    return dict(
        input_ids=batch["input_ids"],
        labels=batch["labels"],
        position_ids=positions_in_documents(batch["cu_seq_lens_q"]),
        attention_mask=dict(full_attention=None, sliding_attention=None),
        cu_seq_lens_q=batch["cu_seq_lens_q"],
        max_length_q=batch["max_length_q"],
    )


def for_masks(batch: dict[str, Any], window: int = 64) -> dict[str, Any]:
    """MiniBERT's packed row for ModernBERT with SDPA, in rows of whole documents that are as long
    as the longest.

    Args:
        window: half of ModernBERT's `local_attention`.
    """
    lengths = batch["cu_seq_lens_q"].diff().tolist()
    rows = fill_rows(lengths)
    starts = batch["cu_seq_lens_q"].tolist()
    width = batch["max_length_q"]
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    positions = torch.arange(width).repeat(len(rows), 1)
    document = torch.full((len(rows), width), -1)
    for row, members in enumerate(rows):
        offset = 0
        for member in members:
            source = slice(starts[member], starts[member] + lengths[member])
            target = slice(offset, offset + lengths[member])
            ids[row, target] = batch["input_ids"][0, source]
            labels[row, target] = batch["labels"][0, source]
            positions[row, target] = torch.arange(lengths[member])
            document[row, target] = member
            offset = target.stop
    same = (document[:, :, None] == document[:, None, :]).unsqueeze(1)
    distance = (positions[:, :, None] - positions[:, None, :]).abs().unsqueeze(1)
    masks = dict(full_attention=same, sliding_attention=same & (distance <= window))
    return dict(input_ids=ids, labels=labels, position_ids=positions, attention_mask=masks)


def fill_rows(lengths: list[int]) -> list[list[int]]:
    """Put documents into rows as long as the longest of them: longest first, each into the first
    row with room."""
    width = max(lengths)
    rows: list[list[int]] = []
    used: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        for row, tokens in enumerate(used):
            if tokens + lengths[number] <= width:
                rows[row].append(number)
                used[row] += lengths[number]
                break
        else:
            rows.append([number])
            used.append(lengths[number])
    return rows


def to_device(value: Any, device: torch.device) -> Any:
    """A batch, or a part of it, on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: to_device(part, device) for name, part in value.items()}
    return value


def fix_shapes(
    batch: dict[str, Any], tokens: int, documents: int, targets: int, longest: int
) -> dict[str, Any]:
    """MiniBERT's packed row with shapes that do not depend on its contents, for one graph that
    serves all batches.

    The row is filled with padding, in documents of its own; documents without tokens follow.
    Targets are filled with the position of a token whose label is -100, which the loss ignores.

    Raises:
        ValueError: the row has more tokens, documents or targets.
    """
    bounds = batch["cu_seq_lens_q"].tolist()
    while bounds[-1] < tokens:
        bounds.append(min(bounds[-1] + longest, tokens))
    positions = batch["masked_lm_positions"]
    if bounds[-1] > tokens or len(bounds) > documents + 1 or len(positions) > targets:
        raise ValueError(
            f"the row has {bounds[-1]} tokens, {len(bounds) - 1} documents and {len(positions)} "
            f"targets: the graph takes {tokens}, {documents} and {targets}"
        )
    bounds += [tokens] * (documents + 1 - len(bounds))
    bounds = torch.tensor(bounds, dtype=torch.int32)
    padding = tokens - batch["input_ids"].shape[1]
    labels = F.pad(batch["labels"], (0, padding), value=-100)
    ignored = int((labels[0] == -100).nonzero()[0])
    return dict(
        input_ids=F.pad(batch["input_ids"], (0, padding)),
        labels=labels,
        masked_lm_positions=F.pad(positions, (0, targets - len(positions)), value=ignored),
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
        max_length_q=longest,
        max_length_k=longest,
    )


def without_empty_documents(batch: dict[str, Any]) -> dict[str, Any]:
    """What `fix_shapes` made, for a CPU, where the model refuses documents without tokens."""
    bounds = batch["cu_seq_lens_q"].unique_consecutive()
    return batch | dict(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds)


def step_flops(config: Any, lengths: list[int]) -> float:
    """FLOPs of a training step: 6 for each weight of a matrix and token (those of the vocabulary at
    masked tokens alone), and 12 · width for each pair of tokens that see each other, in every
    layer."""
    width = config.hidden_size
    layer_weights = 4 * width**2 + 3 * width * config.intermediate_size
    head_weights = MASKED * (width**2 + width * config.vocab_size)
    pairs = 0
    for layer_type in config.layer_types:
        window = max(lengths)
        if layer_type == "sliding_attention":
            window = config.sliding_window * 2 + 1
        pairs += sum(length * min(length, window) for length in lengths)
    weights = config.num_hidden_layers * layer_weights + head_weights
    return 6 * sum(lengths) * weights + 12 * width * pairs
