"""Contextual vectors of words: from the hidden states of their subwords, at every layer at once.

The states of a model with L layers are numbered as Transformers does: 0 is what the embeddings give, 1 to L are the
layers' outputs; the last is what `last_hidden_state` holds, in a pre-norm model after the final norm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ...modeling_minibert import MiniBertForMaskedLM, MiniBertModel, MiniBertPreTrainedModel
from ..loading import minibert_config, quietly

LAYERS = "last, last_four_mean, last_four_sum, the number of a state (0 is the embeddings), or a range of them as 2-5"


def load_model(path: str, masked_lm: bool = False) -> tuple[MiniBertPreTrainedModel, PreTrainedTokenizerFast]:
    """A saved MiniBERT, ready for inference on the GPU if there is one, and its tokenizer.

    Args:
        path: a folder or a name on the Hub.
        masked_lm: with the head that predicts masked tokens (`MiniBertForMaskedLM`) instead of the encoder alone.

    Raises:
        ValueError: no MiniBERT at the path, or one without that head.
    """
    config = minibert_config(path)
    with quietly():
        if masked_lm:
            model, report = MiniBertForMaskedLM.from_pretrained(path, output_loading_info=True)
        else:
            model, report = MiniBertModel.from_pretrained(path, add_pooling_layer=False, output_loading_info=True)
    if report["missing_keys"]:
        missing = "head that predicts masked tokens" if masked_lm else "complete encoder"
        raise ValueError(f"model: {path!r} has no {missing} ({', '.join(config.architectures or ['no architecture'])})")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.eval().to(device), AutoTokenizer.from_pretrained(path, trust_remote_code=False)


@dataclass(frozen=True)
class Layers:
    """Which states make one vector: those from `first` to `last`, averaged or summed."""

    name: str
    first: int
    last: int
    summed: bool = False

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """[..., states, width] to [..., width]."""
        chosen = states[..., self.first : self.last + 1, :]
        return chosen.sum(-2) if self.summed else chosen.mean(-2)


def parse_layers(name: str, num_layers: int) -> Layers:
    """`last`, `last_four_mean`, `last_four_sum` (of all layers, where there are fewer than four), a state's number,
    or a range as `2-5` (its mean).

    Raises:
        ValueError: anything else, or states that a model of `num_layers` layers does not have.
    """
    if name == "last":
        return Layers(name, num_layers, num_layers)
    if name in ("last_four_mean", "last_four_sum"):
        return Layers(name, max(num_layers - 3, 1), num_layers, summed=name.endswith("sum"))
    numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", name)
    if not numbers:
        raise ValueError(f"layers: {name!r} is not known; legal: {LAYERS}")
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if not first <= last <= num_layers:
        raise ValueError(f"layers: {name!r} is no range of states; legal: 0 to {num_layers}, the smaller number first")
    return Layers(name, first, last)


@dataclass(frozen=True)
class Use:
    """A word in its context: token ids with special tokens, and where the word's tokens lie, [start, stop)."""

    input_ids: list[int]
    start: int
    stop: int

    def word(self, subwords: str = "mean") -> tuple[int, int]:
        """The tokens that the word's vector is the mean of: all, or the "first"."""
        return self.start, self.stop if subwords == "mean" else self.start + 1

    @property
    def sentence(self) -> tuple[int, int]:
        """All tokens of the row, special ones too, which is what sentence-transformers averages."""
        return 0, len(self.input_ids)


def max_length(model: MiniBertPreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    """The longest row, in tokens: the smaller of what the model and the tokenizer were made for."""
    return min(model.config.max_position_embeddings, tokenizer.model_max_length)


def uses_in_words(
    tokenizer: PreTrainedTokenizerFast,
    sentences: Sequence[Sequence[str]],
    targets: Sequence[int],
    limit: int,
    names: Sequence[str] | None = None,
) -> list[Use]:
    """The word number `targets[i]` of every sentence, which is a list of words; otherwise as `uses_in_text`.

    The words are read as running text, with spaces between them: a byte-level tokenizer such as ModernBERT's would read
    the words of a list as if they were parts of one.
    """
    texts, spans = [], []
    for words, target in zip(sentences, targets):
        start = sum(len(word) + 1 for word in words[:target])
        texts.append(" ".join(words))
        spans.append((start, start + len(words[target])))
    return uses_in_text(tokenizer, texts, spans, limit, names)


def whole_rows(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], limit: int, names: Sequence[str] | None = None
) -> list[Use]:
    """Texts as rows cut at `limit` tokens; the "word" is everything between the special tokens.

    Args:
        names: what the texts are called in an error; without names, texts that the tokenizer leaves nothing of are left
            out.

    Raises:
        ValueError: a text with a name that the tokenizer leaves nothing of.
    """
    if not texts:  # which a tokenizer takes no batch of
        return []
    uses = []
    for number, encoding in enumerate(tokenizer(list(texts), truncation=True, max_length=limit).encodings):
        tokens = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
        if tokens:
            uses.append(Use(encoding.ids, tokens[0], tokens[-1] + 1))
        elif names:
            raise ValueError(f"{names[number]}: the text {texts[number]!r} has no token")
    return uses


def uses_in_text(
    tokenizer: PreTrainedTokenizerFast,
    texts: Sequence[str],
    spans: Sequence[tuple[int, int]],
    limit: int,
    names: Sequence[str] | None = None,
) -> list[Use]:
    """The word at the characters [start, stop) of every text.

    Args:
        limit: longest row in tokens; of a longer text what stands around the word is taken.
        names: what the texts are called in an error.

    Raises:
        ValueError: a word that the tokenizer leaves nothing of, or one longer than a row.
    """
    uses = []
    encodings = tokenizer(list(texts), verbose=False).encodings  # not verbose: that a text is longer is no news
    for number, (text, encoding, (start, stop)) in enumerate(zip(texts, encodings, spans)):
        tokens = [
            place
            for place, (begin, end) in enumerate(encoding.offsets)
            if max(begin, start) < min(end, stop) and not encoding.special_tokens_mask[place]
        ]
        name = names[number] if names else f"the text {text!r}"
        uses.append(_use(encoding, tokens, limit, f"{name}: the word {text[start:stop]!r}"))
    return uses


def _use(encoding, tokens: list[int], limit: int, name: str) -> Use:
    if not tokens:
        raise ValueError(f"{name} has no token")
    ids, start, stop = encoding.ids, tokens[0], tokens[-1] + 1
    content = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
    first, end = content[0], content[-1] + 1
    room = limit - (len(ids) - (end - first))
    if stop - start > room:
        raise ValueError(f"{name} has {stop - start} tokens; there is room for {room}")
    begin = int(np.clip((start + stop - room) // 2, first, max(end - room, first)))
    cut = ids[:first] + ids[begin : min(begin + room, end)] + ids[end:]
    return Use(cut, start - begin + first, stop - begin + first)


def hidden_states(
    model: MiniBertPreTrainedModel, rows: Sequence[Sequence[int]], batch_tokens: int, desc: str = "Encoding"
) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
    """All states of rows of token ids, rows of like length together, the longest first.

    Args:
        model: a `MiniBertModel`.
        batch_tokens: tokens in a batch, padding included (a longer row is a batch by itself).
        desc: what the progress bar says.

    Yields:
        the numbers of the batch's rows, their states [L + 1, batch, length, width] in fp32, and the padding mask
        [batch, length], True at real tokens.
    """
    order = sorted(range(len(rows)), key=lambda number: -len(rows[number]))
    with tqdm(total=len(rows), desc=desc, unit=" rows", leave=False) as bar, torch.inference_mode():
        while order:
            longest = len(rows[order[0]])
            count = max(1, batch_tokens // longest)
            batch, order = order[:count], order[count:]
            input_ids = torch.full((len(batch), longest), model.config.pad_token_id or 0)
            mask = torch.arange(longest) < torch.tensor([[len(rows[number])] for number in batch])
            input_ids[mask] = torch.tensor([token for number in batch for token in rows[number]])
            input_ids, mask = input_ids.to(model.device), mask.to(model.device)
            output = model(input_ids=input_ids, attention_mask=mask.long(), output_hidden_states=True)
            yield batch, torch.stack(output.hidden_states).float(), mask
            bar.update(len(batch))


def span_vectors(
    model: MiniBertPreTrainedModel,
    rows: Sequence[Sequence[int]],
    spans: Sequence[Sequence[tuple[int, int]]],
    batch_tokens: int,
    desc: str = "Encoding",
) -> np.ndarray:
    """The mean state of spans of tokens, at every state of the model.

    Args:
        model: a `MiniBertModel`.
        rows: token ids, special tokens included.
        spans: of every row the same number of spans, as tokens [start, stop).
        batch_tokens: tokens in a batch, padding included.

    Returns:
        [rows, spans of a row, L + 1, width], fp32.
    """
    spans = np.asarray(spans)
    vectors = np.empty((*spans.shape[:2], model.config.num_hidden_layers + 1, model.config.hidden_size), np.float32)
    for batch, states, mask in hidden_states(model, rows, batch_tokens, desc):
        start, stop = torch.from_numpy(spans[batch]).to(states.device).unsqueeze(-1).unbind(2)  # [b, spans, 1] each
        column = torch.arange(mask.shape[1], device=states.device)
        weights = ((start <= column) & (column < stop)) / (stop - start)
        vectors[batch] = torch.einsum("lbsd,bks->bkld", states, weights).cpu().numpy()
    return vectors


def word_vectors(
    model: MiniBertPreTrainedModel, uses: Sequence[Use], batch_tokens: int, subwords: str = "mean"
) -> np.ndarray:
    """The vectors of words in their contexts at every state, [uses, L + 1, width], fp32.

    Args:
        model: a `MiniBertModel`.
        uses: the words, from `uses_in_words` or `uses_in_text`.
        batch_tokens: tokens in a batch, padding included.
        subwords: a word of several tokens is their "mean", or the "first" of them.
    """
    spans = [[use.word(subwords)] for use in uses]
    return span_vectors(model, [use.input_ids for use in uses], spans, batch_tokens, "Word vectors")[:, 0]


def static_vectors(model: MiniBertPreTrainedModel, uses: Sequence[Use], subwords: str = "mean") -> np.ndarray:
    """The same words without their contexts: their tokens' rows of the embedding matrix, [uses, width], fp32."""
    table = model.get_input_embeddings().weight.detach().float().cpu().numpy()
    return np.stack([table[use.input_ids[slice(*use.word(subwords))]].mean(0) for use in uses])


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors divided by their length (a zero vector stays zero), so that a product of two is their cosine."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
