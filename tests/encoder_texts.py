"""Texts, every way to put them into a batch, and what a model makes of a batch and of each text alone."""

import inspect
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

LENGTHS = (13, 1, 7, 5)
CLASSES, CHOICES = 3, 2


class Texts:
    """Texts, each with everything that any head may want to know about it.

    Args:
        vocab_size, first: token ids are drawn from [first, vocab_size).
    """

    def __init__(self, vocab_size: int, first: int = 1, lengths: Sequence[int] = LENGTHS):
        generator = torch.Generator().manual_seed(0)

        def draw(high, *shape):
            return torch.randint(high, shape, generator=generator)

        self.lengths = list(lengths)
        self.ids = [draw(vocab_size - first, n) + first for n in lengths]
        self.segments = [draw(2, n) for n in lengths]
        self.tokens = [
            torch.where(draw(2, n) > 0, draw(CLASSES, n), -100) for n in lengths
        ]  # token classes
        self.tokens[0][1], self.tokens[2][3] = 1, 2  # some of them are there
        self.one = draw(2, len(lengths))  # a class a text
        self.answers = [(n // 3, n // 2) for n in lengths]

    def cells(self, text: int) -> list[tuple[int, int]]:
        return [(text, i) for i in range(self.lengths[text])]


class Layout:
    """Places for the tokens of texts.

    Args:
        rows: for each row its columns: (text, token), or None for padding.
        how: what says which token belongs to which text: "mask" (a row is a text), "position_ids", "seq_idx",
            "cu_seq_lens", or "pairs", a mask of who sees whom.
    """

    def __init__(self, rows: list[list[tuple[int, int] | None]], how: str = "mask"):
        length = max(map(len, rows))
        self.rows = [row + [None] * (length - len(row)) for row in rows]
        self.shape, self.how = (len(rows), length), how
        self.place = {
            cell: (b, s) for b, row in enumerate(self.rows) for s, cell in enumerate(row) if cell
        }
        self.texts = sorted({text for text, _ in self.place})
        self.lengths = [sum(each == text for each, _ in self.place) for text in self.texts]
        # of every token of all texts, one after the other
        self.index = torch.tensor([self.place[cell] for cell in sorted(self.place)]).unbind(1)

    def grid(self, values: Sequence[Tensor], padding: int) -> Tensor:
        out = torch.full(self.shape, padding)
        out[self.index] = torch.cat(list(values)).to(out.dtype)
        return out

    def read(self, x: Tensor) -> list[Tensor]:
        """[batch, length, …] → for each text [tokens, …]"""
        return x[self.index].split(self.lengths)

    def inputs(
        self, texts: Texts, segments: bool, start: int = 0, pad: int = 0
    ) -> dict[str, Tensor]:
        """What a model is given; `start` is the first of a text's `position_ids`, `pad` the padding's token."""
        out = {"input_ids": self.grid([texts.ids[i] for i in self.texts], pad)}
        if segments:
            out["token_type_ids"] = self.grid([texts.segments[i] for i in self.texts], 0)
        mask = self.grid([torch.ones(n) for n in self.lengths], 0)
        if not mask.all():
            out["attention_mask"] = mask
        if self.how in ("position_ids", "pairs"):
            out["position_ids"] = self.grid([torch.arange(n) + start for n in self.lengths], start)
        numbers = self.grid([torch.full((n,), i) for i, n in enumerate(self.lengths)], -1)
        if self.how == "seq_idx":
            out["seq_idx"] = numbers
        elif self.how == "pairs":
            out["attention_mask"] = (numbers.unsqueeze(1) == numbers.unsqueeze(2)).unsqueeze(1)
        elif self.how == "cu_seq_lens":
            bounds = torch.tensor([0, *itertools.accumulate(self.lengths)], dtype=torch.int32)
            out |= dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), bounds)
            out |= dict.fromkeys(("max_length_q", "max_length_k"), max(self.lengths))
        return out


def make_layouts(texts: Texts) -> dict[str, Layout]:
    """Of four texts."""
    pad, alone = [None], [texts.cells(i) for i in range(4)]
    longest = max(texts.lengths)
    holes = [
        [c for i, cell in enumerate(row) for c in ([None] * (i % 3 == text % 3) + [cell])]
        for text, row in enumerate(alone)
    ]
    packed = [alone[0] + alone[1], alone[2] + alone[3]]
    padding_between = [pad + alone[0] + pad * 2 + alone[1], alone[2] + pad + alone[3]]
    in_one_row = [list(itertools.chain(*alone))]
    return {
        "right": Layout(alone),
        "left": Layout([pad * (longest - len(row)) + row for row in alone]),
        "holes": Layout(holes),
        "packed by position_ids": Layout(packed, "position_ids"),
        "packed by position_ids, one row": Layout(in_one_row, "position_ids"),
        "packed by seq_idx, padding between": Layout(padding_between, "seq_idx"),
        "packed by cu_seq_lens": Layout(in_one_row, "cu_seq_lens"),
        "packed by a mask of pairs": Layout(in_one_row, "pairs"),
    }


# --- heads, their labels, and their losses as the field defines them ---

TOKEN_KINDS = ("MaskedLM", "PreTraining", "CausalLM", "TokenClassification", "Detection")
ROW_KINDS = ("SequenceClassification", "NextSentencePrediction", "MultipleChoice")
OUTPUTS = ("last_hidden_state", "logits", "prediction_logits", "start_logits", "end_logits", "pooler_output",
           "seq_relationship_logits")  # fmt: skip


class NotApplicable(Exception):
    """Why a check says nothing about a model."""


def kind_of(model: PreTrainedModel) -> str:
    """What a model's head does: the end of its class's name; "Detection" where tokens are told from replaced ones."""
    kind = type(model).__name__.rpartition("For")[2]
    if kind == "ReplacedTokenDetection" or (
        kind == "PreTraining" and not takes(model, "next_sentence_label")
    ):
        return "Detection"
    return kind if kind in (*TOKEN_KINDS, *ROW_KINDS, "QuestionAnswering") else "Model"


def takes(model: nn.Module, name: str) -> bool:
    """Whether an argument of `forward` has this name."""
    return name in inspect.signature(model.forward).parameters


def labels_for(kind: str, texts: Texts, layout: Layout) -> dict[str, Tensor]:
    if kind in TOKEN_KINDS:
        labels = {"labels": layout.grid([texts.tokens[i] for i in layout.texts], -100)}
        if kind == "Detection":
            labels["labels"].clamp_(max=1)
        return labels | (
            dict(next_sentence_label=texts.one[layout.texts]) if kind == "PreTraining" else {}
        )
    if kind == "QuestionAnswering":
        columns = [[layout.place[i, at][1] for at in texts.answers[i]] for i in layout.texts]
        return dict(zip(("start_positions", "end_positions"), torch.tensor(columns).unbind(1)))
    if kind == "MultipleChoice":
        return {"labels": texts.one[: len(layout.texts) // CHOICES]}
    return {"labels": texts.one[layout.texts]} if kind in ROW_KINDS else {}


def loss_by_formula(kind: str, outputs: Sequence[Any], texts: Texts) -> Tensor:
    """The loss of texts from the outputs of each text alone: a mean over everything that has a label."""

    def joined(name: str) -> Tensor:
        return torch.cat([output[name].flatten(0, 1) for output in outputs])

    tokens = torch.cat(texts.tokens)
    if kind == "PreTraining":
        following = torch.cat([output.seq_relationship_logits for output in outputs])
        return F.cross_entropy(joined("prediction_logits"), tokens) + F.cross_entropy(
            following, texts.one
        )
    if kind == "QuestionAnswering":
        sides = zip(("start_logits", "end_logits"), zip(*texts.answers))
        losses = [F.cross_entropy(each[name], torch.tensor([at])) for name, places in sides
                  for each, at in zip(outputs, places)]  # fmt: skip
        return torch.stack(losses).mean()
    if kind == "CausalLM":
        predictions = torch.cat([output.logits[0, :-1] for output in outputs])
        return F.cross_entropy(predictions, torch.cat([labels[1:] for labels in texts.tokens]))
    if kind == "Detection":
        counted = tokens != -100
        return F.binary_cross_entropy_with_logits(
            joined("logits")[counted], tokens[counted].clamp(max=1).float()
        )
    if kind == "MultipleChoice":
        return F.cross_entropy(
            joined("logits").view(-1, CHOICES), texts.one[: len(outputs) // CHOICES]
        )
    if kind in ROW_KINDS:
        logits = torch.cat([output.logits for output in outputs])
        if not texts.one.is_floating_point():
            return F.cross_entropy(logits, texts.one)
        if logits.shape[1] == 1:
            return F.mse_loss(logits.squeeze(1), texts.one)
        return F.binary_cross_entropy_with_logits(logits, texts.one)
    if kind == "Model":  # some number that everything changes
        return sum(
            torch.cat([x.flatten() for x in column]).pow(3).mean()
            for column in zip(*map(values, outputs))
        )
    return F.cross_entropy(joined("logits"), tokens)


def values(outputs: Any) -> list[Tensor]:
    return [value for name, value in outputs.items() if name in OUTPUTS]


# --- a batch against each of its texts alone ---


def texts_for(model: PreTrainedModel, **options: Any) -> Texts:
    ids = [
        getattr(model.config, f"{name}_token_id", None)
        for name in ("pad", "bos", "eos", "cls", "sep", "mask")
    ]
    low = [i for i in ids if isinstance(i, int) and i < 16]
    config, kind = model.config, kind_of(model)
    texts = Texts(config.vocab_size, max(low, default=0) + 1, **options)
    if kind == "TokenClassification":
        texts.tokens = [labels.clamp(max=config.num_labels - 1) for labels in texts.tokens]
    elif (
        kind == "Detection" and "minibert" not in type(model).__module__
    ):  # ELECTRA's labels are 0 or 1, no other
        texts.tokens = [labels.clamp(0, 1) for labels in texts.tokens]
    elif kind == "SequenceClassification" and config.problem_type == "multi_label_classification":
        texts.one = torch.stack([texts.one.roll(i) for i in range(config.num_labels)], 1).float()
    elif kind == "SequenceClassification" and config.num_labels == 1:
        texts.one = texts.one.float()
    return texts


def inputs_for(model: PreTrainedModel, texts: Texts, layout: Layout) -> dict[str, Any]:
    segments = (
        takes(model, "token_type_ids") and (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    )
    inputs = layout.inputs(
        texts, segments, first_position(model), getattr(model.config, "pad_token_id", 0) or 0
    )
    if kind_of(model) == "MultipleChoice":
        choices = CHOICES if len(layout.texts) > 1 else 1
        return {name: x.unflatten(0, (-1, choices)) if torch.is_tensor(x) and x.dim() == 2 else x
                for name, x in inputs.items()}  # fmt: skip
    return inputs


def first_position(model: PreTrainedModel) -> int:
    """RoBERTa's positions begin behind that of the padding, where the position table has a row for padding."""
    tables = [
        m for name, m in model.named_modules() if isinstance(m, nn.Embedding) and "position" in name
    ]
    padding = tables[0].padding_idx if tables else None
    return 0 if padding is None else padding + 1


def gradients(model: nn.Module) -> Tensor:
    """All of them, as one vector."""
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()]
    )


def from_texts_alone(model: PreTrainedModel, texts: Texts) -> dict[str, Tensor]:
    """Outputs by text, the loss by its formula, and its gradients."""
    kind, alone = kind_of(model), [Layout([texts.cells(i)]) for i in range(len(texts.lengths))]
    model.eval().zero_grad()
    outputs = [model(**inputs_for(model, texts, layout)) for layout in alone]
    parts = [by_text(kind, output, layout) for output, layout in zip(outputs, alone)]
    loss = loss_by_formula(kind, outputs, texts)
    loss.backward()
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return found | {"loss": loss.detach(), "gradients": gradients(model)}


def from_batch(
    model: PreTrainedModel, texts: Texts, layout: Layout, **keywords: Any
) -> dict[str, Tensor]:
    """The same from one batch: the outputs in evaluation, loss and gradients in training."""
    kind, inputs = kind_of(model), inputs_for(model, texts, layout)
    labels = labels_for(kind, texts, layout)
    model.eval().zero_grad()
    with torch.no_grad():
        found = by_text(kind, model(**inputs, **keywords), layout)
        if any(len(x) not in (sum(layout.lengths), len(layout.texts)) for x in found.values()):
            raise NotApplicable("one answer a row, however many documents it holds")
        evaluated = model(**inputs, **keywords, **labels).loss if labels else None
    model.train()
    outputs = model(**inputs, **keywords, **labels)
    loss = (
        outputs.loss
        if labels
        else sum(x.pow(3).mean() for x in by_text(kind, outputs, layout).values())
    )
    loss.backward()
    found |= {"loss": loss.detach(), "gradients": gradients(model)}
    model.eval().zero_grad()
    return found if evaluated is None else found | {"loss in evaluation": evaluated}


def by_text(kind: str, outputs: Any, layout: Layout) -> dict[str, Tensor]:
    """What a head gives for each text, whatever the layout."""
    found = {}
    for name, value in outputs.items():
        if name == "logits" and kind == "MultipleChoice":
            found[name] = value.reshape(-1, 1)
        elif name in ("pooler_output", "seq_relationship_logits") or (
            name == "logits" and kind in ROW_KINDS
        ):
            found[name] = value
        elif name in OUTPUTS:
            found[name] = torch.cat(layout.read(value))
    return found


def difference(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """The largest absolute difference by name, over the largest value where that is above 1 (of gradients: always)."""
    found = {}
    for name, value in actual.items():
        wanted = expected["loss" if name == "loss in evaluation" else name]
        scale = (
            wanted.abs().max().item()
            if name == "gradients"
            else max(1.0, wanted.abs().max().item())
        )
        found[name] = (value - wanted).abs().max().item() / scale
    return found


def worst(found: dict[str, float]) -> tuple[float, str]:
    name = max(found, key=lambda name: (math.isnan(found[name]), found[name]))
    return found[name], name
