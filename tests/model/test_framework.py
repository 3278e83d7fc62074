"""What PyTorch and its neighbours do with a model from outside: hooks, offloading, pruning, functional transformations,
gradients of gradients, torch.compile."""

import copy

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import MiniBertConfig
from minibert.dispatch_minibert import BlocksDispatch

FAMILIES = {"bert": MiniBertConfig.bert, "modernbert": MiniBertConfig.modernbert}
IDS = torch.randint(1, 64, (2, 12), generator=torch.Generator().manual_seed(0))
LABELS = torch.where(torch.rand(2, 12, generator=torch.Generator().manual_seed(1)) < 0.4, IDS, -100)
TARGETS = {
    "ForMaskedLM": dict(labels=LABELS),
    "ForCausalLM": dict(labels=IDS),
    "ForTokenClassification": dict(labels=IDS % 2),
    "ForReplacedTokenDetection": dict(labels=IDS % 2),
    "ForSequenceClassification": dict(labels=torch.tensor([0, 1])),
    "ForQuestionAnswering": dict(
        start_positions=torch.tensor([2, 3]), end_positions=torch.tensor([4, 5])
    ),
}


def build(head: str, family: str = "modernbert", **fields):
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=64,
        num_hidden_layers=2,
        local_attention=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    if family == "modernbert":
        sizes["layer_types"] = ["full_attention", "sliding_attention"]
    return getattr(modeling, f"MiniBert{head}")(FAMILIES[family]("tiny", **sizes | fields))


def test_every_hook_of_the_tied_embedding_runs():
    model, ran = build("ForMaskedLM").train(), []
    times = ("before", "after", "backward")
    for name, module in (
        ("words", model.model.embeddings.tok_embeddings),
        ("decoder", model.decoder),
    ):
        module.register_forward_pre_hook(lambda *_, name=name: ran.append(f"{name} before"))
        module.register_forward_hook(lambda *_, name=name: ran.append(f"{name} after"))
        module.register_full_backward_hook(lambda *_, name=name: ran.append(f"{name} backward"))
    model(IDS, labels=LABELS).loss.backward()
    assert sorted(ran) == sorted(
        f"{name} {when}" for name in ("words", "decoder") for when in times
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flop_counter_and_global_hooks_see_every_product(family, dtype):
    """A mode that counts operations, a hook of all modules: in inference as with gradients."""
    model, counts, called = build("Model", family).to(dtype).eval(), [], []
    ids = torch.ones(2, 16, dtype=torch.long)  # a length that needs no filling up
    for with_gradients in (True, False):
        with torch.set_grad_enabled(with_gradients):
            with FlopCounterMode(display=False) as counter:
                model(ids)
            flops = counter.get_flop_counts()["Global"]
            counts.append(
                sum(flops.get(name, 0) for name in (torch.ops.aten.mm, torch.ops.aten.addmm))
            )
            hook = register_module_forward_hook(lambda module, *_: called.append(type(module)))
            model(ids)
            hook.remove()
    assert counts[0] == counts[1] > 0 and called[: len(called) // 2] == called[len(called) // 2 :]


@pytest.mark.parametrize("head", TARGETS)
def test_functional_gradients(head):
    """`torch.func.grad` gives what `backward` gives."""
    model = build(head).train()
    given = dict(model.named_parameters())
    functional = torch.func.grad(
        lambda p: torch.func.functional_call(model, p, (IDS,), TARGETS[head]).loss
    )(given)
    model(IDS, **TARGETS[head]).loss.backward()
    for name, parameter in given.items():
        assert_close(
            functional[name],
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad,
        )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "head", ["ForMaskedLM", "ForTokenClassification", "ForSequenceClassification"]
)
def test_gradients_of_each_text(head, family):
    """`vmap` over `grad`, as for differentially private training, gives what `backward` gives for each text alone."""
    model = build(head, family).train()
    given, mask = (
        dict(model.named_parameters()),
        torch.ones_like(IDS).index_fill(1, torch.tensor([10, 11]), 0),
    )

    def loss_of(parameters, ids, mask, labels):
        return torch.func.functional_call(
            model, parameters, (ids[None], mask[None]), dict(labels=labels[None])
        ).loss

    labels = TARGETS[head]["labels"]
    each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0, 0))(
        given, IDS, mask, labels
    )
    for i in range(len(IDS)):
        model.zero_grad()
        loss_of(given, IDS[i], mask[i], labels[i]).backward()
        for name, parameter in given.items():
            alone = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            assert_close(each[name][i], alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("with_gradients", [True, False])
@pytest.mark.parametrize("length", [12, pytest.param(600, marks=pytest.mark.slow)])
def test_derivatives_in_forward_mode(length, with_gradients, family):
    """Of logits and loss, against differences in float64; in fp32, where operators of oneDNN may multiply."""
    model = build(
        "ForMaskedLM", family, max_position_embeddings=600, attn_implementation="eager"
    ).eval()
    ids = torch.randint(1, 64, (2, length))
    words = model.get_input_embeddings()(ids).detach()
    direction = torch.randn_like(words)

    def outputs(x, model=model):
        out = model(inputs_embeds=x, labels=ids)
        return torch.cat((out.logits.flatten(), out.loss[None]))

    double = copy.deepcopy(model).double()
    with torch.no_grad():
        ends = [
            outputs(words.double() + sign * 1e-4 * direction.double(), double) for sign in (1, -1)
        ]
    expected = (ends[0] - ends[1]) / 2e-4
    with torch.set_grad_enabled(with_gradients):
        tangents = [torch.func.jvp(outputs, (words,), (direction,))[1]]
        with forward_ad.dual_level():
            tangents.append(
                forward_ad.unpack_dual(outputs(forward_ad.make_dual(words, direction))).tangent
            )
    for tangent in tangents:
        assert_close(tangent[-1].double(), expected[-1], rtol=1e-3, atol=1e-3)
        assert (tangent - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize("head", TARGETS)
def test_gradients_of_gradients(head, monkeypatch):
    """Against differences of gradients, in float64. (SDPA's fast kernel on CPU has no second derivative; its plain one
    has. Blocks small enough that local layers really use them.)"""
    monkeypatch.setattr(BlocksDispatch, "MIN_BLOCK", 1)
    model = build(head, local_attention=2).double().train()
    table = model.get_input_embeddings().weight

    def squared_gradient(weight, create_graph):
        weights = {"model.embeddings.tok_embeddings.weight": weight}
        loss = torch.func.functional_call(model, weights, (IDS,), TARGETS[head]).loss
        return torch.autograd.grad(loss, weight, create_graph=create_graph)[0].pow(2).sum()

    with sdpa_kernel(SDPBackend.MATH):
        (second,) = torch.autograd.grad(squared_gradient(table, True), table)
        step = torch.randn_like(table) * 1e-5
        ends = [
            squared_gradient((table + sign * step).detach().requires_grad_(), False)
            for sign in (1, -1)
        ]
    assert_close((second * step).sum(), (ends[0] - ends[1]) / 2, rtol=1e-4, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_into_one_graph(family):
    """Rows without padding, rows with padding on CPU, and one unpadded row with `cu_seq_lens_q`, loss included; with no
    new graph for the third length."""
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    model = build("ForMaskedLM", family).train()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    mask = torch.ones_like(IDS)
    mask[0, 7:] = 0
    places = (LABELS.view(-1) != -100).nonzero()[:, 0]
    flat = dict(cu_seq_lens_q=torch.tensor([0, 5, 12, 24]), masked_lm_positions=places)
    for inputs in (
        dict(input_ids=IDS, labels=LABELS),
        dict(input_ids=IDS, labels=LABELS, attention_mask=mask),
        dict(input_ids=IDS.view(1, -1), labels=LABELS.view(1, -1), **flat),
    ):
        graphs.clear()
        assert_close(compiled(**inputs).loss, model(**inputs).loss, rtol=1e-4, atol=1e-5)
        assert len(graphs) == 1
    graphs.clear()
    with torch.no_grad():
        assert_close(compiled.eval()(IDS).logits, model(IDS).logits, rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1
    compiled.train()
    graphs.clear()
    for length in (11, 10, 9):
        compiled(input_ids=IDS[:, :length], labels=LABELS[:, :length])
    assert len(graphs) <= 1


@pytest.mark.slow
def test_compiled_graph_refuses_several_documents_per_row():
    """It cannot know how many there are; eager gives a vector for each."""
    torch.compiler.reset()
    model = build("ForSequenceClassification").eval()
    compiled = torch.compile(model, backend="eager")
    ids, number = IDS[:, :6], torch.tensor([[0, 0, 0, 1, 1, 1]]).expand(len(IDS), 6)
    assert len(model(ids, seq_idx=number).logits) == 2 * len(IDS)
    with pytest.raises(
        Exception, match="a captured graph pools one vector a row; use one row without padding"
    ):
        compiled(ids, seq_idx=number)
    assert_close(compiled(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)


def test_labels_of_32_bits_are_labels_on_every_device(monkeypatch):
    """torch's own loss, which other devices take, knows 64 bits only."""
    model = build("ForMaskedLM").eval()
    expected = model(IDS, labels=LABELS).loss
    assert model(IDS, labels=LABELS.int()).loss == expected
    monkeypatch.setattr(modeling, "needs_traceable_ops", lambda x: True)
    assert_close(model(IDS, labels=LABELS.int()).loss, expected)
