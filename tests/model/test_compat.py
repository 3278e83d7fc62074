"""Each private name of torch and Transformers may go in any release: without it, the same comes out.

A name that is asked for in every forward is set to None in this process. What is chosen when the
files are imported is tried in a fresh process in which the names are hidden meanwhile. (The net of
flash attention is in tests/on_gpu.)
"""

import textwrap
from pathlib import Path

import pytest
import torch
from processes import Python
from torch.autograd import forward_ad
from torch.testing import assert_close

import minibert.modeling_minibert as modeling
from minibert import MiniBertConfig
from minibert import compat_minibert as compat

RUNTIME = [
    "IS_TRACING",
    "FUNCTORCH_LEVEL",
    "FORWARD_AD",
    "COUNT_DISPATCH_MODES",
    "HAS_GLOBAL_HOOKS",
]
FAMILIES = {"bert": MiniBertConfig.bert, "modernbert": MiniBertConfig.modernbert}
IDS = torch.randint(1, 64, (2, 40), generator=torch.Generator().manual_seed(0))
MASK = (torch.arange(40) < torch.tensor([[40], [23]])).long()
LABELS = torch.where((IDS % 3 == 0) & MASK.bool(), IDS, -100)


def build(family: str, **fields) -> modeling.MiniBertForMaskedLM:
    torch.manual_seed(0)
    sizes = dict(vocab_size=64, num_hidden_layers=2, local_attention=4)
    return modeling.MiniBertForMaskedLM(FAMILIES[family]("tiny", **sizes | fields))


def compute(family: str) -> list[torch.Tensor]:
    """Logits and pooled states in inference, in fp32 and bf16; a loss and its gradients."""
    model = build(family).eval()
    results = []
    with torch.no_grad():
        results.append(model(IDS, attention_mask=MASK).logits)
        half = build(family).eval().to(torch.bfloat16)
        results.append(half(IDS, attention_mask=MASK).logits)
    torch.manual_seed(1)
    loss = model.train()(IDS, attention_mask=MASK, labels=LABELS).loss
    loss.backward()
    return [*results, loss.detach(), *(parameter.grad for parameter in model.parameters())]


def compare(actual: list[torch.Tensor], expected: list[torch.Tensor]):
    for result, reference in zip(actual, expected, strict=True):
        tolerance = 1e-5 if reference.dtype == torch.float32 else 2e-2
        assert_close(result, reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", RUNTIME)
def test_outputs_and_gradients_are_the_same_without_it(name, family, monkeypatch):
    assert getattr(compat, name) is not None, "this version lacks it already"
    expected = compute(family)
    monkeypatch.setattr(compat, name, None)
    compare(compute(family), expected)


def test_values_of_transformed_tensors_are_not_read_without_the_name(monkeypatch):
    """`torch.func` over the whole model, and over each text."""
    model = build("modernbert", hidden_dropout=0.0)
    parameters = dict(model.named_parameters())

    def loss_of(parameters, ids, labels):
        inputs = dict(labels=labels[None])
        return torch.func.functional_call(model, parameters, (ids[None],), inputs).loss

    gradients_of_each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))
    expected = gradients_of_each(parameters, IDS, LABELS)
    monkeypatch.setattr(compat, "FUNCTORCH_LEVEL", None)
    actual = gradients_of_each(parameters, IDS, LABELS)
    for name, gradient in expected.items():
        assert_close(actual[name], gradient)


@pytest.mark.parametrize("with_gradients", [True, False])
def test_derivatives_in_forward_mode_without_the_name(with_gradients, monkeypatch):
    model = build("bert", attn_implementation="eager").eval()
    words = model.get_input_embeddings()(IDS).detach()
    direction = torch.ones_like(words)

    def tangent() -> torch.Tensor:
        with torch.set_grad_enabled(with_gradients), forward_ad.dual_level():
            dual = forward_ad.make_dual(words, direction)
            return forward_ad.unpack_dual(model(inputs_embeds=dual).logits).tangent

    expected = tangent()
    monkeypatch.setattr(compat, "FORWARD_AD", None)
    assert_close(tangent(), expected)


def test_a_graph_is_noticed_without_the_name(monkeypatch):
    model = build("modernbert").eval().requires_grad_(False)
    monkeypatch.setattr(compat, "IS_TRACING", None)
    expected = model(IDS).logits
    exported = torch.export.export(model, (IDS,)).module()
    assert_close(exported(IDS).logits, expected, rtol=1e-4, atol=1e-5)
    traced = torch.jit.trace(lambda ids: model(ids).logits, (IDS,), check_trace=False)
    assert_close(traced(IDS[:, :30]), model(IDS[:, :30]).logits, rtol=1e-4, atol=1e-5)


# In a fresh process: hide the names, import the model, and bring the names back.
WITHOUT_NAMES = """
    import sys
    from types import SimpleNamespace
    import torch, transformers
    import transformers.modeling_utils, transformers.masking_utils, transformers.generation
    import huggingface_hub.dataclasses
    import transformers.models.auto.modeling_auto as modeling_auto
    from torch.autograd import forward_ad
    from torch.nn.modules import module
    from transformers.activations import ACT2FN
    from transformers.utils import import_utils

    class WithoutFlashAttention:
        def __getattr__(self, name):
            if name == "_flash_attention_forward":
                raise AttributeError(name)
            return getattr(aten, name)

    aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
    torch.ops.aten, torch.ops.mkldnn = WithoutFlashAttention(), SimpleNamespace()
    hidden = [
        (import_utils, "is_tracing"),
        (torch._C._functorch, "maybe_current_level"),
        (forward_ad, "_current_level"),
        (torch._C, "_len_torch_dispatch_stack"),
        (module, "_has_any_global_hook"),
        (modeling_auto, "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
        (huggingface_hub.dataclasses, "strict"),
    ]
    activations = {name: ACT2FN.pop(name) for name in ("gelu_new", "gelu_pytorch_tanh", "swish")}
    values = [getattr(owner, name) for owner, name in hidden]
    for owner, name in hidden:
        delattr(owner, name)
    import minibert
    from minibert import attention_minibert, compat_minibert, cpu_minibert, modeling_minibert
    for (owner, name), value in zip(hidden, values):
        setattr(owner, name, value)
    torch.ops.aten, torch.ops.mkldnn = aten, mkldnn
    ACT2FN.update(activations)

    try:
        minibert.MiniBertConfig(vocab_size="many")
    except Exception as error:
        assert "vocab_size" in str(error)
    else:
        raise AssertionError("the types of fields are not checked")
    bindings = {name: x for name, x in vars(compat_minibert).items() if name.isupper()}
    assert bindings and set(bindings.values()) == {None}, bindings
    assert not cpu_minibert.FUSED_DTYPES
    sys.path.insert(0, %r)
    import test_compat
    result = {family: test_compat.compute(family) for family in test_compat.FAMILIES}
    torch.save(result, %r)
"""


def test_without_any_of_the_names_it_imports_and_computes_the_same(tmp_path):
    code = textwrap.dedent(
        WITHOUT_NAMES % (str(Path(__file__).parent), str(tmp_path / "results.pt"))
    )
    with Python(tmp_path) as python:
        python.run(code)
    results = torch.load(tmp_path / "results.pt")
    for family in FAMILIES:
        compare(results[family], compute(family))


def test_a_name_that_is_not_there_is_none():
    assert compat.look_up_name(torch.ops, "aten._no_such_operator") is None
    assert compat.look_up_name(torch, "_C._no_such_module.name") is None
    assert compat.look_up_name(torch, "nn.Linear") is torch.nn.Linear
