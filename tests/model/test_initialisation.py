"""Initialisation: every weight of a new model and of what a checkpoint lacks starts as its architecture says.

References are standard deviations from the normal distribution, and Transformers' own models.
"""

import math

import pytest
import torch
from encoder_checks import deviation, load_without
from helpers import BERT, FAMILIES, HEADS, VOCAB, build

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import MiniBertConfig
from minibert.modeling_minibert import MiniBertForMaskedLM
from minibert.training.conversion import to_native


def truncated_std(std: float, cutoff: float | None) -> float:
    """Standard deviation of a normal distribution that is cut off at ± cutoff of its own."""
    if cutoff is None:
        return std
    density = math.exp(-(cutoff**2) / 2) / math.sqrt(2 * math.pi)
    return std * math.sqrt(1 - 2 * cutoff * density / math.erf(cutoff / math.sqrt(2)))


# 4 layers × 192: enough weights in a matrix for tight bounds
WIDTH, DEPTH = 192, 4
PRESETS = {"bert": MiniBertConfig.bert, "modernbert": MiniBertConfig.modernbert}


def preset(family: str, **fields) -> MiniBertConfig:
    shape = dict(hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=4, intermediate_size=256,
                 vocab_size=1000, max_position_embeddings=300, num_labels=5)  # fmt: skip
    return PRESETS[family]("tiny", **shape | fields)


def expected_std(family: str, name: str) -> float:
    """BERT: 0.02 everywhere. ModernBERT: a normal distribution that is cut off at two standard deviations: 0.02, for
    projections into the residual stream and for heads 0.02 / √(2 · layers), for classifiers 1 / √width."""
    if family == "bert":
        return 0.02
    std = 0.02
    if name.endswith((".Wo.weight", "head.dense.weight", "decoder.weight")):
        std /= math.sqrt(2 * DEPTH)
    elif name.startswith("classifier."):
        std = WIDTH**-0.5
    return truncated_std(std, 2.0)


def check_initialisation(model, family: str, names=None):
    """Standard deviations within five standard errors, means of zero; biases 0, norms 1, the row of the padding 0."""
    checked = 0
    for name, parameter in model.named_parameters():
        if names is not None and name not in names:
            continue
        checked += 1
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif parameter.dim() == 1:
            assert (parameter == 1).all(), name
        else:
            values = parameter
            if name.endswith("tok_embeddings.weight"):
                assert not parameter[0].any()
                values = parameter[1:]
            std = expected_std(family, name)
            assert deviation(values, std) < 5, f"{name}: std {values.std().item()}, expected {std}"
            cutoff = model.config.initializer_cutoff_factor
            if cutoff is None:
                assert values.abs().max() > 2.5 * std, f"{name} is cut off"
            else:
                assert values.abs().max() <= cutoff * std / truncated_std(1.0, cutoff) * 1.001, (
                    f"{name} is not cut off"
                )
    assert checked


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", PRESETS)
@pytest.mark.parametrize("head", HEADS)
def test_initialisation_of_a_new_model(head, family, tied):
    torch.manual_seed(0)
    check_initialisation(
        getattr(modeling, f"MiniBert{head}")(preset(family, tie_word_embeddings=tied)), family
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", PRESETS)
@pytest.mark.parametrize("head", HEADS)
def test_initialisation_of_what_a_checkpoint_lacks(head, family, tied, tmp_path):
    """`from_pretrained` builds on the meta device and initialises what is missing: here all but one layer. What is
    there stays bit for bit."""
    torch.manual_seed(0)
    new = getattr(modeling, f"MiniBert{head}")(preset(family, tie_word_embeddings=tied))
    layer = "layers.1." if head == "Model" else "model.layers.1."
    kept = {name: x.data.fill_(0.5) for name, x in new.named_parameters() if name.startswith(layer)}
    model = load_without(new, tmp_path, lambda name: name not in kept)
    for name, x in model.named_parameters():
        assert name not in kept or torch.equal(x, kept[name]), name
    check_initialisation(
        model, family, {name for name, _ in model.named_parameters() if name not in kept}
    )


@pytest.mark.parametrize("family", PRESETS)
@pytest.mark.parametrize(
    "head",
    ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"],
)
def test_initialisation_is_that_of_transformers_own_models(head, family):
    """BERT's and ModernBERT's own classes start at the same standard deviations, matrix by matrix."""
    torch.manual_seed(0)
    native = to_native(getattr(modeling, f"MiniBert{head}")(preset(family, num_labels=2)))
    theirs = dict(type(native)(native.config).named_parameters())
    for name, ours in native.named_parameters():
        if ours.dim() > 1:
            ratio = (ours.std() / theirs[name].std()).item()
            assert abs(ratio - 1) < 7 / math.sqrt(2 * ours.numel()), f"{name}: {ratio}"


def test_building_on_the_meta_device_loses_nothing():
    """No buffer and no plain tensor that would be left without a value."""
    model = build("ForMaskedLM", **BERT).eval()
    with torch.device("meta"):
        empty = MiniBertForMaskedLM(model.config)
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(model.state_dict())
    ids = torch.randint(1, VOCAB, (2, 9))
    with torch.no_grad():
        assert torch.equal(empty(ids).logits, model(ids).logits)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", HEADS)
def test_the_state_is_parameters_alone(head, family):
    model = build(head, **FAMILIES[family])
    assert not list(model.named_buffers())
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert set(model.state_dict()) == names


def test_the_row_of_the_padding_is_zero_where_the_memory_had_the_same_weights_before():
    """Memory that is used again may hold a table that was drawn with the same seed."""
    model = MiniBertForMaskedLM(preset("modernbert", pad_token_id=3))
    table = model.get_input_embeddings()
    with torch.no_grad():
        std = model.config.initializer_range
        torch.manual_seed(0)
        torch.nn.init.trunc_normal_(table.weight, 0.0, std, -2 * std, 2 * std)
    assert table.weight[3].any()
    torch.manual_seed(0)
    model._init_weights(table)
    assert not table.weight[3].any() and table.weight[2].any()
