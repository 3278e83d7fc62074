"""Contextual vectors of words: from the hidden states of their subwords, at every layer at once.

The states of a model with L layers are numbered as in Transformers: 0 is what the embeddings give, 1 to L are the
layers' outputs; the last is `last_hidden_state`, in a pre-norm model after the final norm.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from uses import Use

from minibert import MiniBertForMaskedLM, MiniBertModel, MiniBertPreTrainedModel
from minibert.training.data.packing import group_by_length

LAYERS_HELP = "last, last_four_mean, last_four_sum, a state's number (0: embeddings), or a range's mean (2-5)."
SUBWORDS_HELP = "A word of several tokens is their mean, or the first of them."


def load_model(path: str, masked_lm: bool = False) -> tuple[MiniBertPreTrainedModel, PreTrainedTokenizerFast]:
    """A saved MiniBERT in evaluation mode, on the GPU if there is one: the encoder, or with its MLM head; and its
    tokenizer, whose `model_max_length` is the longest row that both were made for."""
    if masked_lm:
        model = MiniBertForMaskedLM.from_pretrained(path, dtype=torch.float32)
    else:
        model = MiniBertModel.from_pretrained(path, add_pooling_layer=False, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.model_max_length = min(model.config.max_position_embeddings, tokenizer.model_max_length)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


@dataclass(frozen=True)
class Layers:
    """Which states make one vector: those from `first` to `last`, averaged or summed."""

    name: str
    first: int
    last: int

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """[..., states, width] to [..., width]."""
        chosen = states[..., self.first : self.last + 1, :]
        return chosen.sum(-2) if self.name.endswith("sum") else chosen.mean(-2)


def parse_layers(name: str, num_layers: int) -> Layers:
    """`last`, `last_four_mean`, `last_four_sum` (of all layers, where there are fewer than four), a state's number,
    or a range as `2-5` (its mean); a ValueError for anything else, or states beyond `num_layers`."""
    if name in ("last", "last_four_mean", "last_four_sum"):
        return Layers(name, num_layers if name == "last" else max(num_layers - 3, 1), num_layers)
    numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", name)
    first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (1, 0)
    if not first <= last <= num_layers:
        raise ValueError(f"layers: {name!r} names no states of 0 to {num_layers}; use {LAYERS_HELP}")
    return Layers(name, first, last)


@dataclass(frozen=True)
class Row:
    """Token ids with special tokens, and [start, stop) of those that make the vector of the word (or the text)."""

    input_ids: list[int]
    start: int
    stop: int


def encode_texts(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[Row | None]:
    """Texts cut at the tokenizer's `model_max_length`, the "word" being all between the special tokens; None for a text
    that the tokenizer leaves nothing of."""
    encodings = tokenizer(list(texts), truncation=True).encodings if texts else []  # it takes no empty batch
    contents = [(encoding.ids, _content(encoding)) for encoding in encodings]
    return [Row(ids, content[0], content[-1] + 1) if content else None for ids, content in contents]


def encode_uses(tokenizer: PreTrainedTokenizerFast, uses: Sequence[Use], subwords: str = "mean") -> list[Row]:
    """Words in their contexts as rows; of a text longer than `model_max_length`, what stands around the word is taken.
    A word of several tokens is their "mean", or the "first" of them. A ValueError names a word without a token, or with
    more than a row has room for."""
    rows = []
    encodings = tokenizer([use.text for use in uses], verbose=False).encodings  # that a text is longer is no news
    for use, encoding in zip(uses, encodings):
        name = f"{use.name or f'the text {use.text!r}'}: the word {use.word!r}"
        content, offsets, ids = _content(encoding), encoding.offsets, encoding.ids
        word = [place for place in content if max(offsets[place][0], use.start) < min(offsets[place][1], use.stop)]
        if not word:
            raise ValueError(f"{name} has no token")
        start, stop, first, end = word[0], word[-1] + 1, content[0], content[-1] + 1
        room = tokenizer.model_max_length - (len(ids) - (end - first))
        if stop - start > room:
            raise ValueError(f"{name} has {stop - start} tokens; there is room for {room}")
        begin = int(np.clip((start + stop - room) // 2, first, max(end - room, first)))
        cut = ids[:first] + ids[begin : min(begin + room, end)] + ids[end:]
        place, length = start - begin + first, 1 if subwords == "first" else stop - start
        rows.append(Row(cut, place, place + length))
    return rows


def _content(encoding) -> list[int]:
    return [place for place, special in enumerate(encoding.special_tokens_mask) if not special]


def hidden_states(
    model: MiniBertPreTrainedModel, rows: Sequence[Row], batch_tokens: int, desc: str
) -> Iterator[tuple[list[int], torch.Tensor]]:
    """All states of rows by a `MiniBertModel`, with a progress bar that says `desc`: for each batch of
    `group_by_length` the numbers of its rows, and their states [L + 1, batch, length, width] in fp32."""
    with tqdm(total=len(rows), desc=desc, unit=" rows", leave=False) as bar, torch.inference_mode():
        for batch in group_by_length([len(row.input_ids) for row in rows], batch_tokens):
            ids = [torch.tensor(rows[number].input_ids) for number in batch]
            input_ids = pad_sequence(ids, batch_first=True, padding_value=model.config.pad_token_id or 0)
            mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
            output = model(input_ids.to(model.device), mask.to(model.device), output_hidden_states=True)
            yield batch, torch.stack(output.hidden_states).float()
            bar.update(len(batch))


def word_vectors(
    model: MiniBertPreTrainedModel, rows: Sequence[Row], batch_tokens: int, desc: str = "Vectors", sentences=False
) -> np.ndarray:
    """The vectors of the rows' words at every state, [rows, L + 1, width] in fp32; arguments as of `hidden_states`.
    With `sentences` [rows, 2, L + 1, width]: beside the words' the mean of all tokens, special ones too, which is what
    sentence-transformers has."""
    spans = np.array([[(row.start, row.stop), (0, len(row.input_ids))] for row in rows])[:, : 2 if sentences else 1]
    vectors = np.empty((*spans.shape[:2], model.config.num_hidden_layers + 1, model.config.hidden_size), np.float32)
    for batch, states in hidden_states(model, rows, batch_tokens, desc):
        start, stop = torch.from_numpy(spans[batch]).to(states.device).unsqueeze(-1).unbind(2)  # [b, spans, 1] each
        column = torch.arange(states.shape[2], device=states.device)
        weights = ((start <= column) & (column < stop)) / (stop - start)
        vectors[batch] = torch.einsum("lbsd,bks->bkld", states, weights).cpu().numpy()
    return vectors if sentences else vectors[:, 0]


def static_vectors(model: MiniBertPreTrainedModel, rows: Sequence[Row]) -> np.ndarray:
    """The same words without their contexts: their tokens' rows of the embedding matrix, [rows, width], fp32."""
    table = model.get_input_embeddings().weight.detach().float().cpu().numpy()
    return np.stack([table[row.input_ids[row.start : row.stop]].mean(0) for row in rows])


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors divided by their length (a zero vector stays zero), so that a product of two is their cosine."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def contributions(vectors: np.ndarray) -> np.ndarray:
    """What each dimension gives to the mean cosine of all pairs of different vectors, [n, …, width] to […, width] in
    fp64; the sum is that mean cosine. For a pair (u, v) dimension i gives u_i v_i / (|u| |v|) (Timkey and van Schijndel
    2021, equation 3)."""
    units, count = unit(vectors.astype(np.float64)), len(vectors)
    return (units.sum(0) ** 2 - (units**2).sum(0)) / (count * (count - 1))
