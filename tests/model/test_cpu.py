"""What only CPUs need: kernels, fused linears, dropout with fewer random numbers, shape buckets."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers.activations import ACT2FN

from minibert import (
    MiniBertConfig,
    MiniBertForMaskedLM,
    MiniBertModel,
    cpu_minibert,
)
from minibert.attention_minibert import choose_dispatch
from minibert.cpu_minibert import FUSED_DTYPES, FUSED_LINEAR, MiniBertDropout, project, random_keep
from minibert.sequences_minibert import BatchDocuments

BF16 = torch.bfloat16
needs_fused = pytest.mark.skipif(
    not FUSED_DTYPES, reason="this torch, or this processor, has no oneDNN in bf16"
)


@pytest.fixture
def fused(monkeypatch):
    """The shapes of what went through the fused operator."""
    shapes = []

    def counting(x, *rest):
        shapes.append(tuple(x.shape))
        return FUSED_LINEAR(x, *rest)

    monkeypatch.setattr(cpu_minibert, "FUSED_LINEAR", counting)
    monkeypatch.setattr(cpu_minibert, "FUSED_DTYPES", {BF16})  # whatever the processor
    return shapes


@needs_fused
@pytest.mark.parametrize(
    "hidden_act", [None, "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "relu2"]
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_fused_linear_and_activation(hidden_act, bias, gated, dtype, fused, monkeypatch):
    """Against the formula in float64; an activation that oneDNN does not have is applied all the same. In fp32, where
    it is taken on AMD's processors, as exact as torch's own."""
    torch.manual_seed(0)
    monkeypatch.setattr(cpu_minibert, "FUSED_DTYPES", {dtype})
    act = None if hidden_act is None else ACT2FN[hidden_act]
    linear, x = nn.Linear(64, 48, bias=bias).to(dtype), torch.randn(3, 20, 64, dtype=dtype)
    expected = x.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0)
    expected, *gate = expected.chunk(2, dim=-1) if gated else [expected]
    expected = expected if act is None else act(expected)
    expected = expected * gate[0] if gated else expected
    with torch.inference_mode():
        out = project(linear, x, act, gated)
    exact = dict(atol=2e-2, rtol=1e-2) if dtype == BF16 else dict(atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(out.double(), expected, **exact)
    assert len(fused) == (hidden_act != "relu2") * (1 + gated) and out.dtype == dtype


@needs_fused
def test_autocast_overrides_fused_fp32(fused, monkeypatch):
    monkeypatch.setattr(cpu_minibert, "FUSED_DTYPES", {torch.float32})
    with torch.no_grad(), torch.autocast("cpu", BF16):
        assert project(nn.Linear(8, 8), torch.randn(2, 8)).dtype == BF16 and not fused


@needs_fused
def test_hooked_or_replaced_modules_are_not_bypassed(fused):
    """Hooks see their inputs, offloading moves its weights, a linear of another kind computes what it computes."""
    x, calls = torch.randn(2, 8, dtype=BF16), []

    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    doubled, hooked, patched, plain = (
        kind(8, 8).to(BF16) for kind in (Doubled, nn.Linear, nn.Linear, nn.Linear)
    )
    hooked.register_forward_hook(lambda *args: calls.append("hook"))
    patched.forward = lambda x: calls.append("patch") or torch.zeros_like(x)
    watched = ACT2FN["gelu"]
    watched.register_forward_pre_hook(lambda *args: calls.append("activation"))
    with torch.no_grad():
        torch.testing.assert_close(project(doubled, x), doubled(x))
        project(hooked, x)
        assert not project(patched, x).any()
        project(plain, x, watched)
        assert calls == ["hook", "patch", "activation"] and not fused
        project(plain, x)
        project(plain.float(), x.float())  # fp32 stays what it is
    assert fused == [(2, 8)]
    project(plain.to(BF16), x).sum().backward()
    assert plain.weight.grad is not None and len(fused) == 1


@needs_fused
@pytest.mark.parametrize("preset", ["bert", "modernbert"])
def test_bf16_inference_is_as_near_to_fp32_as_unfused(preset, fused, monkeypatch):
    torch.manual_seed(0)
    config = getattr(MiniBertConfig, preset)(
        "tiny", vocab_size=50, pad_token_id=0, initializer_range=0.1
    )
    model = MiniBertModel(config).eval()
    ids = torch.randint(1, 50, (5, 37))
    mask = (torch.arange(37) < torch.tensor([[37], [30], [30], [5], [1]])).long()
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        model.to(BF16)
        ours = model(input_ids=ids, attention_mask=mask).last_hidden_state
        assert len(fused) == (4 + config.gated_mlp) * config.num_hidden_layers
        monkeypatch.setattr(cpu_minibert, "FUSED_DTYPES", set())
        unfused = model(input_ids=ids, attention_mask=mask).last_hidden_state
    error, before = ((x - expected).pow(2).mean().sqrt() for x in (ours, unfused))
    assert error <= 1.2 * before and error < 0.05


@pytest.mark.parametrize("lengths", [[20, 1, 33, 16, 17, 16, 200], [16, 16, 16]])
def test_documents_of_like_length_share_a_call(lengths):
    """In inference, and if there are several; nothing of other documents stands behind a short one."""
    ids = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).unsqueeze(0)
    tokens = BatchDocuments(1, sum(lengths), torch.device("cpu"), seq_idx=ids).find_tokens()
    given = (None, False, 0.0, torch.float32, 8)
    assert choose_dispatch(tokens, *given).name == "one call a document"
    with torch.no_grad():
        plan = choose_dispatch(tokens, *given)
        assert plan.name == "documents of similar length together"
        assert len(plan.biases) == len({-(-length // 16) for length in lengths})
        assert [bias is None for bias in plan.biases].count(True) == (lengths == [16, 16, 16])
        q, k, v = torch.randn(3, sum(lengths), 2, 8)
        before = plan.attend(q, k, v)
        v[sum(lengths[:-1]) :] = k[sum(lengths[:-1]) :] = float("nan")  # the last document's
        assert torch.equal(plan.attend(q, k, v)[: sum(lengths[:-1])], before[: sum(lengths[:-1])])
        alone = BatchDocuments(1, 5, torch.device("cpu")).find_tokens()
        assert choose_dispatch(alone, *given).name == "one call a document"


@pytest.mark.parametrize(
    "lengths, name",
    [([20, 9, 33], "documents of similar length together"), ([20, 300], "one call a document")],
)
def test_short_documents_in_bf16_without_amx(lengths, name, monkeypatch):
    """Products of plain matrices are taken there: long documents one by one, so that their scores stay in the cache."""
    monkeypatch.setattr(cpu_minibert, "BF16_WITHOUT_AMX", True)
    ids = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).unsqueeze(0)
    tokens = BatchDocuments(1, sum(lengths), torch.device("cpu"), seq_idx=ids).find_tokens()
    with torch.no_grad():
        plan = choose_dispatch(tokens, None, False, 0.0, BF16, 8)
        assert plan.name == name and "unfused_attention" in plan.description
        qkv = torch.randn(3, sum(lengths), 2, 8).to(BF16)
        found = plan.attend(*qkv).split(lengths)
    for out, *part in zip(found, *(x.split(lengths) for x in qkv)):
        q, k, v = (x.transpose(0, 1).double() for x in part)
        expected = ((q @ k.mT / 8**0.5).softmax(-1) @ v).transpose(0, 1)
        torch.testing.assert_close(out.double(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtypes", [set(), {torch.float32}])
@pytest.mark.parametrize("preset, lengths", [("bert", [5, 9, 40]), ("modernbert", [300, 20])])
def test_dropout_is_the_same_with_and_without_gradients(preset, lengths, dtypes, monkeypatch):
    """GradCache embeds without them, and again with them from the same random numbers: what is learned from one draw
    belongs to the other."""
    monkeypatch.setattr(cpu_minibert, "FUSED_DTYPES", dtypes)
    torch.manual_seed(0)
    switches = dict(vocab_size=64, hidden_dropout=0.1, attention_dropout=0.1)
    model = MiniBertModel(getattr(MiniBertConfig, preset)("tiny", **switches)).train()
    ids = torch.randint(1, 64, (len(lengths), max(lengths)))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    found = []
    for with_gradients in (True, False):
        torch.manual_seed(1)
        with torch.set_grad_enabled(with_gradients):
            found.append(model(input_ids=ids, attention_mask=mask).last_hidden_state.detach())
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


# --- dropout, shape buckets ---


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5, 0.9])
def test_random_keep_has_the_rate(rate):
    """Within five standard errors; each of the four decisions that share a draw, and every pair of neighbours."""
    torch.manual_seed(0)
    keep = random_keep(torch.empty(250_000, 4), rate).double()

    def check(values, p):
        assert abs(values.mean().item() - p) < 5 * (p * (1 - p) / values.numel()) ** 0.5 + 1 / 65536

    check(keep, 1 - rate)
    for i in range(4):
        check(keep[:, i], 1 - rate)
        check(keep[:, i] * keep[:, (i + 1) % 4], (1 - rate) ** 2)
    check(keep[1:, 0] * keep[:-1, 0], (1 - rate) ** 2)


def test_dropout_module():
    """As `nn.Dropout`: nothing in evaluation, expectation kept in training, the same mask in the backward pass."""
    torch.manual_seed(0)
    dropout = MiniBertDropout(0.2)
    x = torch.ones(500_000, requires_grad=True)
    y = dropout(x)
    kept = y != 0
    assert_close(y[kept], torch.full_like(y[kept], 1.25))
    assert abs(kept.double().mean().item() - 0.8) < 5 * (0.16 / x.numel()) ** 0.5 + 1 / 65536
    y.sum().backward()
    assert_close(x.grad, y.detach())
    assert torch.equal(dropout.eval()(x), x)
    assert torch.equal(MiniBertDropout(0.0)(x), x)


def test_few_shapes_in_half_precision():
    for tokens in range(1, 3000, 7):
        assert (
            0
            <= cpu_minibert.num_filler_tokens(torch.empty(tokens, 1, dtype=BF16))
            < max(16, tokens / 16)
        )
        assert cpu_minibert.num_filler_tokens(torch.empty(tokens, 1)) == 0
    half = torch.float16
    lengths = {
        n + cpu_minibert.num_filler_tokens(torch.empty(n, 1, dtype=half)) for n in range(1024, 2048)
    }
    assert len(lengths) <= 17


@pytest.mark.parametrize(
    "switches", [{}, {"position_embedding_type": "absolute", "norm_placement": "post"}], ids=str
)
def test_shape_buckets_change_nothing(switches, monkeypatch):
    """Outputs, pooled vectors, loss and gradients are those of the tokens as they are."""
    config = MiniBertConfig.modernbert(
        "tiny", vocab_size=64, local_attention=4, attention_dropout=0.0, **switches
    )
    torch.manual_seed(0)
    model = MiniBertForMaskedLM(config).train()
    ids = torch.randint(5, 60, (3, 37))
    mask = torch.ones_like(ids)
    mask[0, 20:] = mask[2, :11] = 0
    labels = torch.where((torch.rand(ids.shape) < 0.3) & mask.bool(), ids, -100)
    used, found = [], []
    original = cpu_minibert.num_filler_tokens
    for rows in (lambda *args: used.append(original(*args)) or used[-1], lambda *args: 0):
        monkeypatch.setattr(cpu_minibert, "num_filler_tokens", rows)
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            hidden = model.model(ids, mask).last_hidden_state
        loss.backward()
        found.append([loss.detach(), hidden.detach(), *(p.grad for p in model.parameters())])
    assert used[0] > 0
    for bucketed, plain in zip(*found):
        assert_close(
            bucketed.float(), plain.float(), rtol=0.02, atol=0.02 * float(plain.abs().max()) + 1e-7
        )
