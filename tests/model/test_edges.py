"""What must not go wrong silently: steps without targets, labels on padding, precision, explicit positions."""

import copy
import math

import pytest
import torch
from datasets import Dataset
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments, default_data_collator

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import MiniBertConfig

SIZES = dict(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    initializer_range=0.3, local_attention=4, num_labels=3,
)  # fmt: skip
TOKEN_HEADS = ["ForMaskedLM", "ForPreTraining", "ForCausalLM", "ForTokenClassification", "ForReplacedTokenDetection"]


def build(head: str, **fields):
    torch.manual_seed(0)
    return getattr(modeling, f"MiniBert{head}")(MiniBertConfig(**SIZES | fields))


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(1, 64, shape, generator=torch.Generator().manual_seed(1))


# --- nothing to predict ---


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForTokenClassification", "ForReplacedTokenDetection", "BERT's own"])
def test_a_step_without_targets_under_trainer_leaves_finite_weights(head, tmp_path):
    sizes = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    model = BertForTokenClassification(BertConfig(**sizes)) if head == "BERT's own" else build(head)
    rows = Dataset.from_dict({"input_ids": ids(8, 9).tolist(), "labels": [[-100] * 9] * 8})
    arguments = TrainingArguments(tmp_path, max_steps=2, per_device_train_batch_size=4, report_to="none", use_cpu=True)
    Trainer(model, arguments, train_dataset=rows, data_collator=default_data_collator).train()
    assert all(p.isfinite().all() for p in model.parameters())


# --- padding ---


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("head", TOKEN_HEADS)
def test_a_batch_of_nothing_but_padding_says_nothing(head, implementation):
    """No state, no prediction that depends on the token below, nothing learned from its labels."""
    model = build(head, attn_implementation=implementation)
    mask = torch.zeros(2, 9)
    assert not model.model.eval()(ids(2, 9), attention_mask=mask).last_hidden_state.any()
    outputs = model.train()(ids(2, 9), attention_mask=mask, labels=torch.ones(2, 9, dtype=torch.long))
    outputs.loss.backward()
    assert outputs.loss == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_answers_on_padding_are_not_learned_from():
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
    below, first = (model(text, start_positions=starts.clamp(max=x), end_positions=ends).loss for x in (-1, 0))
    assert_close(below, first)


def test_the_loss_of_a_detector_is_the_mean_over_labelled_tokens():
    model = build("ForReplacedTokenDetection").eval()
    labels = torch.tensor([[-100, 0, 1, 0, -100], [1, -100, -100, 0, 0]])
    outputs, counted = model(ids(2, 5), labels=labels), labels >= 0
    assert_close(outputs.loss, F.binary_cross_entropy_with_logits(outputs.logits[counted], labels[counted].float()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "implementation, lowest", [("eager", -math.inf), ("eager", "min"), ("sdpa", "min"), ("eager", None), ("sdpa", None)]
)
def test_a_row_of_a_mask_that_sees_nothing_makes_no_nan(implementation, lowest, dtype):
    """A boolean mask (None) or a floating one, forward and backward; the other rows see what they would without it."""
    seen = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    seen[..., 2, :] = False
    fields = dict(attn_implementation=implementation, num_hidden_layers=1, layer_types=["full_attention"])
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
        "ForQuestionAnswering": dict(start_positions=torch.tensor([1, 2]), end_positions=torch.tensor([3, 4])),
    }
    mask = torch.ones(2, 9)
    mask[0, 6:] = 0
    for head, targets in labels.items():
        model = build(head, classifier_pooling=pooling).double().eval()
        outputs = model(ids(2, 9), attention_mask=mask, **targets)
        assert outputs.loss.dtype == torch.float64, head
        model.config._attn_implementation = "eager"
        assert_close(outputs.loss, model(ids(2, 9), attention_mask=mask, **targets).loss, rtol=1e-13, atol=1e-13)


# --- explicit positions inside documents ---

POSITIONS = {
    "repeated": lambda n: torch.arange(n) // 3,
    "falling": lambda n: n - torch.arange(n),
    "gaps": lambda n: torch.arange(n) * 3,
    "any": lambda n: torch.randint(0, n, (n,), generator=torch.Generator().manual_seed(0)),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("form", ["seq_idx", "cu_seq_lens_q"])
def test_positions_decide_who_sees_whom(form, positions, causal):
    """|position_i - position_j| <= window, and position_j <= position_i in a causal model, whatever the order of the
    tokens and however long their document: as eager attention has it, from the same masks as a formula."""
    lengths = [70, 230]
    model = build("Model", is_causal=causal, layer_types=["sliding_attention", "full_attention"]).double().eval()
    position_ids = torch.cat([POSITIONS[positions](n) for n in lengths]).unsqueeze(0)
    numbers = torch.repeat_interleave(torch.arange(2), torch.tensor(lengths)).unsqueeze(0)
    where = dict(seq_idx=numbers) if form == "seq_idx" else dict(cu_seq_lens_q=torch.tensor([0, 70, 300]))
    distance = position_ids[0].unsqueeze(1) - position_ids[0]
    seen = (numbers[0].unsqueeze(1) == numbers[0]) & ((distance >= 0) | torch.tensor(not causal))
    eager = copy.deepcopy(model)
    eager.config._attn_implementation = "eager"
    with torch.no_grad():
        actual = model(ids(1, 300), position_ids=position_ids, **where).last_hidden_state
        expected = eager(ids(1, 300), position_ids=position_ids, **where).last_hidden_state
        assert_close(actual, expected, rtol=1e-9, atol=1e-9)
        if not causal:  # the same by a mask of pairs, of which eager attention knows nothing but its numbers
            by_mask = eager(ids(1, 300), position_ids=position_ids, attention_mask=seen[None, None], seq_idx=numbers)
            assert_close(actual, by_mask.last_hidden_state, rtol=1e-9, atol=1e-9)


# --- label smoothing under plain Trainer ---


def test_label_smoothing_of_a_decoder_predicts_the_next_token(tmp_path):
    """`Trainer` computes that loss itself: (1 - ε) · cross-entropy of the next token + ε · mean over the vocabulary."""
    model = build("ForCausalLM").eval()
    tokens = ids(2, 9)
    arguments = TrainingArguments(tmp_path, label_smoothing_factor=0.1, report_to="none", use_cpu=True)
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
        ("multi_label_classification", (3, 2), r"labels: torch.float32, of the shape \(3, 2\), .*; use \(2, 3\)"),
    ],
)
def test_unknown_problems_and_labels_of_another_shape_have_no_loss(kind, shape, message):
    model = build("ForSequenceClassification", problem_type=kind)
    with pytest.raises(ValueError, match=message):
        model(ids(2, 9), labels=torch.ones(shape))
