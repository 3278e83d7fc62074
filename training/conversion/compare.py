"""Whether a converted model computes what its source computes, and its tokenizer gives the same
ids."""

import copy
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ...tokenization import sample_ids, sample_ids_of_file
from ..loading.load_errors import wrap_load_errors
from ..loading.saved_files import find_file
from .families import count_positions

# Of the largest logit. In fp32, models that are the same differ by 1e-6.
TOLERANCE = 1e-4
NUM_SAMPLES = 10
# ALBERT's name → that of BERT and MiniBERT
OUTPUT_NAMES = {"sop_logits": "seq_relationship_logits"}
MAX_TOKENS = 256


def sample_batch(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> dict[str, torch.Tensor]:
    """Ten texts as inputs of `model`: [texts, tokens], padded on the right; [5, 2, tokens] for
    multiple choice. Without a tokenizer, they are random ids."""
    config = model.config
    longest = min(count_positions(config), MAX_TOKENS)
    padding = 0 if config.pad_token_id is None else config.pad_token_id
    if tokenizer is None:
        rows = _random_ids(config.vocab_size, padding, longest)
    else:
        rows = sample_ids(tokenizer)
    columns = min(longest, max(map(len, rows)))
    batch = {
        "input_ids": torch.full((NUM_SAMPLES, columns), padding),
        "attention_mask": torch.zeros(NUM_SAMPLES, columns, dtype=torch.long),
    }
    if getattr(config, "type_vocab_size", 0) > 1:
        batch["token_type_ids"] = torch.zeros(NUM_SAMPLES, columns, dtype=torch.long)
        batch["token_type_ids"][:, columns // 2 :] = 1
    for index, row in enumerate(rows):
        ids = torch.tensor(row[:columns] or [padding])
        batch["input_ids"][index, : len(ids)] = ids
        batch["attention_mask"][index, : len(ids)] = 1
    if type(model).__name__.endswith("ForMultipleChoice"):
        batch = {name: tensor.unflatten(0, (-1, 2)) for name, tensor in batch.items()}
    return batch


def _random_ids(vocab_size: int, padding: int, longest: int) -> list[list[int]]:
    """Rows of 1/10, 2/10, … of the longest text. Padding is not among their ids: RoBERTa does not
    count it."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(NUM_SAMPLES):
        length = max(1, longest * (index + 1) // NUM_SAMPLES)
        ids = torch.randint(vocab_size, (length,), generator=generator)
        ids[ids == padding] = (padding + 1) % vocab_size
        rows.append(ids.tolist())
    return rows


@torch.no_grad()
def sample_outputs(
    model: PreTrainedModel, batch: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The logits of a model in fp32 (of one without a head, its last hidden states and what is
    pooled of them), zero where there is padding."""
    if model.dtype != torch.float32:
        model = copy.deepcopy(model).float()
    outputs = {}
    for name, tensor in model(**batch).items():
        if "logits" not in name and name not in ("last_hidden_state", "pooler_output"):
            continue
        mask = batch["attention_mask"].bool()
        if tensor.shape[: mask.ndim] == mask.shape:
            mask = mask.view(*mask.shape, *[1] * (tensor.ndim - mask.ndim))
            tensor = tensor.where(mask, 0)
        outputs[OUTPUT_NAMES.get(name, name)] = tensor
    return outputs


def check_outputs(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest difference of outputs, relative to the largest value of the same output. A
    ValueError if it is above `TOLERANCE`, or no number."""
    largest = 0.0
    for name, tensor in expected.items():
        difference = (actual[name] - tensor).abs().max()
        relative = float(difference / tensor.abs().max().clamp(min=1e-30))
        if not relative <= TOLERANCE:
            raise ValueError(
                f"the converted model is another one: its {name} differ from the source's by"
                f" {relative:.1e} of their largest value, more than {TOLERANCE:g}; nothing is"
                " written. Please report this model"
            )
        largest = max(largest, relative)
    return largest


def check_saved_tokenizer(source: str, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Refuse (a ValueError) a tokenizer in `folder` that does not give the ids of the source's
    tokenizer.json, or of `tokenizer`, if the source has no such file."""
    file = find_file(source, "tokenizer.json") if tokenizer.is_fast else None
    with_template = True
    with wrap_load_errors(source):
        if file is None:
            expected = sample_ids(tokenizer)
        else:
            backend = Tokenizer.from_file(str(file))
            with_template = backend.post_processor is not None
            expected = sample_ids_of_file(backend, with_template)
        saved = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        actual = sample_ids(saved, with_template)
    if actual != expected:
        raise ValueError(
            f"the tokenizer of {source!r} gives other ids after it is saved; nothing is written."
            " Please report this model"
        )
