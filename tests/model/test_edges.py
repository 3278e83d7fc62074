"""What must not go wrong silently: labels on padding, masks that see nothing, precision."""

import math

import pytest
import torch
from helpers import VOCAB, build
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(1, VOCAB, shape, generator=torch.Generator().manual_seed(1))


# --- padding ---


def test_answer_positions_on_padding_are_ignored():
    """As those behind the row: the loss is that of the answers on real tokens."""
    model = build("ForQuestionAnswering").eval()
    mask = torch.ones(3, 9)
    mask[1:, 5:] = 0
    starts, ends = torch.tensor([2, 7, 3]), torch.tensor([4, 8, 6])
    outputs = model(ids(3, 9), attention_mask=mask, start_positions=starts, end_positions=ends)
    expected = (
        F.cross_entropy(outputs.start_logits[[0, 2]], starts[[0, 2]])
        + F.cross_entropy(outputs.end_logits[:1], ends[:1])
    ) / 2
    assert_close(outputs.loss, expected)
    text = ids(3, 9)  # a position below 0 is the first, as in Transformers
    below, first = (
        model(text, start_positions=starts.clamp(max=x), end_positions=ends).loss for x in (-1, 0)
    )
    assert_close(below, first)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
@pytest.mark.parametrize(
    "implementation, lowest",
    [("eager", -math.inf), ("eager", "min"), ("sdpa", "min"), ("eager", None), ("sdpa", None)],
)
def test_a_row_of_a_mask_that_sees_nothing_makes_no_nan(implementation, lowest, dtype):
    """A boolean mask (None) or a floating one, forward and backward; the other rows see what they would without it."""
    seen = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    seen[..., 2, :] = False
    fields = dict(
        attn_implementation=implementation, num_hidden_layers=1, layer_types=["full_attention"]
    )
    model = build("Model", **fields).to(dtype)
    states = []
    for visible in (seen, torch.ones_like(seen)):
        mask = visible
        if lowest is not None:
            number = torch.finfo(dtype).min if lowest == "min" else lowest
            mask = torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, number)
        states.append(model(ids(1, 6), attention_mask=mask).last_hidden_state)
    states[0].float().pow(2).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    others = [0, 1, 3, 4, 5]
    assert_close(states[0][:, others], states[1][:, others])


# --- precision ---


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_float64_model_computes_in_float64(pooling):
    labels = {
        "ForSequenceClassification": dict(labels=torch.tensor([0, 2])),
        "ForMaskedLM": dict(labels=ids(2, 9)),
        "ForReplacedTokenDetection": dict(labels=ids(2, 9) % 2),
        "ForQuestionAnswering": dict(
            start_positions=torch.tensor([1, 2]), end_positions=torch.tensor([3, 4])
        ),
    }
    mask = torch.ones(2, 9)
    mask[0, 6:] = 0
    for head, targets in labels.items():
        model = build(head, classifier_pooling=pooling).double().eval()
        outputs = model(ids(2, 9), attention_mask=mask, **targets)
        assert outputs.loss.dtype == torch.float64, head
        model.config._attn_implementation = "eager"
        assert_close(
            outputs.loss,
            model(ids(2, 9), attention_mask=mask, **targets).loss,
            rtol=1e-13,
            atol=1e-13,
        )


# --- label smoothing under plain Trainer ---


def test_label_smoothing_of_a_decoder_predicts_the_next_token(tmp_path):
    """`Trainer` computes that loss itself: (1 - ε) · cross-entropy of the next token + ε · mean over the vocabulary."""
    model = build("ForCausalLM").eval()
    tokens = ids(2, 9)
    arguments = TrainingArguments(
        tmp_path, label_smoothing_factor=0.1, report_to="none", use_cpu=True
    )
    trainer = Trainer(model, arguments)
    loss = trainer.compute_loss(model, {"input_ids": tokens, "labels": tokens.clone()})
    log_probs = model(tokens).logits[:, :-1].log_softmax(-1).flatten(0, 1)
    expected = 0.9 * F.nll_loss(log_probs, tokens[:, 1:].flatten()) - 0.1 * log_probs.mean()
    assert_close(loss, expected)


# --- kinds of problems ---


@pytest.mark.parametrize(
    "kind, shape, message",
    [
        ("multi_label", (2, 3), "problem_type='multi_label': use .*multi_label_classification"),
        (
            "multi_label_classification",
            (3, 2),
            r"labels: torch.float32, of the shape \(3, 2\), .*; use \(2, 3\)",
        ),
    ],
)
def test_unknown_problems_and_labels_of_another_shape_have_no_loss(kind, shape, message):
    model = build("ForSequenceClassification", problem_type=kind)
    with pytest.raises(ValueError, match=message):
        model(ids(2, 9), labels=torch.ones(shape))
