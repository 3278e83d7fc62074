"""Parity with Transformers' encoders (see `parity`): outputs, losses and gradients of every family and head."""

import copy

import pytest
import torch
import transformers
from parity import EVERY_HEAD, LAYOUTS, LENGTH, TOLERANCE, Batch, check_parity, make_native

import minibert.modeling_minibert as minibert
from minibert.training.conversion import from_native


def is_slow(name: str, layout: str) -> bool:
    """What the other rows show too: the code of RoBERTa; of later families, rows but those padded on the right."""
    return name in ("xlm-roberta", "camembert") or (
        layout != "right" and name not in ("bert", "modernbert", "roberta")
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "architecture, shape, layout, head",
    [
        pytest.param(name, shape, layout, head, marks=[pytest.mark.slow] * is_slow(name, layout))
        for name, shape, head in EVERY_HEAD
        for layout in LAYOUTS[shape]
    ],
)
def test_parity(architecture, shape, layout, head):
    native = make_native(architecture, shape, head)
    ours = from_native(native)
    assert type(ours) is getattr(minibert, f"MiniBert{head}")
    both = layout == "full" and ours.config.type_vocab_size > 1
    for segments in (False, True) if both else (ours.config.type_vocab_size > 1,):
        check_parity(native, ours, head, layout, segments)


def test_parity_inputs_are_longer_than_the_windows():
    """A window that saw everything would give other logits: the parity above does test windows."""
    native = make_native("modernbert", "plain", "ForMaskedLM")
    batch = Batch("ForMaskedLM", "right", segments=False)
    wide = copy.deepcopy(native.config)
    wide.local_attention = 2 * LENGTH
    other = transformers.ModernBertForMaskedLM(wide).eval()
    other.load_state_dict(native.state_dict())
    with torch.no_grad():
        difference = (native(**batch.native).logits - other(**batch.native).logits).abs().max()
    assert difference > 0.1


@pytest.mark.parametrize("layout", ["right", "left", "holes"])
def test_bert_with_explicit_position_ids(layout):
    native = make_native("bert", "plain", "ForMaskedLM")
    batch = Batch("ForMaskedLM", layout, segments=True)
    mask = batch.ours["attention_mask"]
    counted = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        theirs = native(**batch.ours, position_ids=counted)
        mine = from_native(native)(**batch.ours)
    torch.testing.assert_close(mine.logits[batch.real], theirs.logits[batch.real], **TOLERANCE)
    torch.testing.assert_close(mine.loss, theirs.loss, **TOLERANCE)
