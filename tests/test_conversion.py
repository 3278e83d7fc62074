"""Parity with Transformers' BERT and ModernBERT, and that nothing changes on the way there and back.

The reference is always a model of Transformers with random weights, norms and biases included. BERT and ModernBERT
count columns where MiniBERT counts real tokens, so the native model is handed the same rows with their real tokens
moved to the left; what it gives is compared with what MiniBERT gives at the real positions of the rows as they were.
"""

import copy
import json
import logging
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from tokenizers import Tokenizer, models
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, ModernBertConfig, PreTrainedTokenizerFast

import minibert.modeling_minibert as minibert
from minibert.configuration_minibert import MiniBertConfig
from minibert.training.arguments.pretraining import ConvertArguments
from minibert.training.conversion import ARCHITECTURES, convert, from_native, to_native

BATCH, LENGTH, VOCAB, CHOICES, LABELS = 4, 64, 97, 2, 3
TOLERANCE = dict(rtol=0, atol=1e-5)

HEADS = {name: list(architecture.classes) for name, architecture in ARCHITECTURES.items()}
SEQUENCE_HEADS = ("ForSequenceClassification", "ForMultipleChoice", "ForNextSentencePrediction")

QUIET = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BERT_SHAPES = {
    "plain": dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64),
    "deep": dict(hidden_size=24, num_hidden_layers=5, num_attention_heads=2, intermediate_size=56,
                 hidden_act="gelu_new", type_vocab_size=3, layer_norm_eps=1e-6),
    "untied": dict(hidden_size=40, num_hidden_layers=3, num_attention_heads=5, intermediate_size=32, hidden_act="silu",
                   tie_word_embeddings=False, pad_token_id=7),
}  # fmt: skip
MODERN_SHAPES = {
    "plain": dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48, local_attention=8),
    "biased": dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=40, local_attention=7,
                   attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True, classifier_pooling="mean",
                   hidden_activation="gelu_new", classifier_activation="silu",
                   rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
    "local": dict(hidden_size=40, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, local_attention=4,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"], decoder_bias=False,
                  tie_word_embeddings=False, norm_eps=1e-3, classifier_pooling="mean"),
}  # fmt: skip
SHAPES = {"bert": BERT_SHAPES, "modernbert": MODERN_SHAPES}


def make_native(architecture: str, shape: str, head: str, seed: int = 0, **fields):
    """A native model in which every parameter is random and large enough for differences to show."""
    common = dict(vocab_size=VOCAB, max_position_embeddings=80, initializer_range=0.1)
    labels = {} if head in ("Model", "ForQuestionAnswering") else dict(num_labels=LABELS)
    if architecture == "bert":
        decoder = dict(is_decoder=head == "ForCausalLM")
        config = BertConfig(**common | QUIET | labels | decoder | SHAPES["bert"][shape] | fields)
    else:
        ids = dict(pad_token_id=0, bos_token_id=None, eos_token_id=3, cls_token_id=2, sep_token_id=3)
        config = ModernBertConfig(**common | labels | ids | SHAPES["modernbert"][shape] | fields)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = getattr(transformers, ARCHITECTURES[architecture].classes[head])(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter) * (2 if parameter.ndim == 1 else 1)
    return model


def make_rows(layout: str, rows: int) -> torch.Tensor:
    """A padding mask, [rows, LENGTH]; windows are much shorter than its rows."""
    lengths = torch.tensor([LENGTH, 37, 12, 50] * (rows // BATCH)).unsqueeze(1)
    columns = torch.arange(LENGTH)
    if layout == "full":
        return torch.ones(rows, LENGTH, dtype=torch.long)
    if layout == "right":
        return (columns < lengths).long()
    if layout == "left":
        return (columns >= LENGTH - lengths).long()
    return (torch.rand(rows, LENGTH) < 0.7).long()


class Batch:
    """One batch as MiniBERT sees it (`ours`), and with its real tokens moved to the left (`native`)."""

    def __init__(self, head: str, layout: str, segments: bool):
        torch.manual_seed(hash((layout, segments)) % 1000)
        rows = BATCH * CHOICES if head == "ForMultipleChoice" else BATCH
        self.choices = CHOICES if head == "ForMultipleChoice" else None
        mask = make_rows(layout, rows)
        self.real = mask.bool()
        self.order = torch.argsort(~self.real, dim=1, stable=True)
        self.inverse = torch.argsort(self.order, dim=1)
        counts = mask.sum(1, keepdim=True)

        inputs = dict(input_ids=torch.randint(8, VOCAB, (rows, LENGTH)), attention_mask=mask)
        if segments:
            inputs["token_type_ids"] = (mask.cumsum(1) > counts // 3).long()
        labels = {}
        if head in ("ForMaskedLM", "ForPreTraining", "ForTokenClassification", "ForCausalLM"):
            high = LABELS if head == "ForTokenClassification" else VOCAB
            labelled = self.real & (torch.rand(rows, LENGTH) < 0.5)
            labelled &= mask.cumsum(1) > 1  # in a causal model nothing predicts the first token
            labels["labels"] = torch.where(labelled, torch.randint(high, (rows, LENGTH)), -100)
        if head in SEQUENCE_HEADS:
            labels["labels"] = torch.randint(CHOICES, (BATCH,))
        if head == "ForPreTraining":
            labels["next_sentence_label"] = torch.randint(2, (BATCH,))
        self.ours = inputs | labels
        self.native = {name: self.compact(value) for name, value in self.ours.items()}
        if head == "ForQuestionAnswering":
            place = (torch.rand(2, rows) * counts.squeeze(1)).long()  # among the real tokens
            for name, at in zip(("start_positions", "end_positions"), place):
                self.ours[name] = self.order.gather(1, at.unsqueeze(1)).squeeze(1)
                self.native[name] = at
        if layout == "full":
            del self.ours["attention_mask"]
        if self.choices:
            for side in (self.ours, self.native):
                for name, value in side.items():
                    if value.ndim == 2:
                        side[name] = value.view(BATCH, CHOICES, LENGTH)

    def compact(self, value: torch.Tensor) -> torch.Tensor:
        """[rows, LENGTH, …] with the real tokens of each row moved to the left; anything else as it is."""
        if value.ndim < 2 or value.shape[1] != LENGTH:
            return value
        index = self.order.view(*self.order.shape, *[1] * (value.ndim - 2)).expand_as(value)
        return value.gather(1, index)

    def compact_attentions(self, value: torch.Tensor) -> torch.Tensor:
        """[rows, heads, LENGTH, LENGTH] likewise, at pairs of real tokens; zero elsewhere."""
        value = value.gather(2, self.order[:, None, :, None].expand_as(value))
        value = value.gather(3, self.order[:, None, None, :].expand_as(value))
        real = self.compact(self.real)
        return value * (real[:, None, :, None] & real[:, None, None, :])


def native_loss(head: str, outputs, batch: Batch) -> torch.Tensor:
    """The loss from the native model's outputs."""
    if head == "Model":
        return probe(outputs, batch.compact(batch.real))
    if head == "ForQuestionAnswering":  # MiniBERT's softmax over positions leaves out the padding
        padding = ~batch.compact(batch.real)
        logits = (outputs.start_logits, outputs.end_logits)
        targets = (batch.native["start_positions"], batch.native["end_positions"])
        return sum(F.cross_entropy(x.masked_fill(padding, float("-inf")), y) for x, y in zip(logits, targets)) / 2
    return outputs.loss


def our_loss(head: str, outputs, batch: Batch) -> torch.Tensor:
    return probe(outputs, batch.real) if head == "Model" else outputs.loss


def probe(outputs, real: torch.Tensor) -> torch.Tensor:
    """Some scalar of a base model's outputs that any real position changes."""
    loss = outputs.last_hidden_state[real].pow(3).mean()
    pooled = getattr(outputs, "pooler_output", None)
    return loss if pooled is None else loss + pooled.pow(3).mean()


def gradients_as_weights(model):
    """A copy of `model` whose weights are the gradients of `model`."""
    result = copy.deepcopy(model)
    for parameter, original in zip(result.parameters(), model.parameters(), strict=True):
        parameter.data = torch.zeros_like(original) if original.grad is None else original.grad.clone()
    return result


def assert_close(name: str, actual: torch.Tensor, expected: torch.Tensor):
    torch.testing.assert_close(actual, expected, **TOLERANCE, msg=lambda text: f"{name}: {text}")


def check_outputs(theirs, mine, head: str, batch: Batch):
    """Logits, hidden states, attentions and loss, as far as both have them."""

    def close(name, actual, expected):
        if actual.shape[:2] == batch.real.shape:
            actual, expected = batch.compact(actual)[real], expected[real]
        assert_close(name, actual, expected)

    real = batch.compact(batch.real)
    names = [name for name in theirs if "logits" in name or name in ("last_hidden_state", "pooler_output")]
    assert names
    for name in names:
        close(name, mine[name], theirs[name])
    for layer, (actual, expected) in enumerate(zip(mine.hidden_states or (), theirs.hidden_states or (), strict=True)):
        close(f"hidden state {layer}", actual, expected)
    seen = real[:, None, :, None] & real[:, None, None, :]
    for layer, (actual, expected) in enumerate(zip(mine.attentions or (), theirs.attentions or (), strict=True)):
        close(f"attention {layer}", batch.compact_attentions(actual), expected * seen)
    close("loss", our_loss(head, mine, batch), native_loss(head, theirs, batch))


def check_gradients(native, ours, head: str, batch: Batch):
    """The loss in training mode, where MiniBERT's vocabulary meets labelled positions only, and its gradients."""
    losses = []
    for model, loss_of, inputs in ((native, native_loss, batch.native), (ours, our_loss, batch.ours)):
        model.train().zero_grad()
        losses.append(loss_of(head, model(**inputs), batch))
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0], **TOLERANCE)
    expected = dict(from_native(gradients_as_weights(native)).named_parameters())
    for name, parameter in ours.named_parameters():
        actual = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_close(f"gradient of {name}", actual, expected[name].data)
    assert any(parameter.any() for parameter in expected.values())


def check_parity(native, ours, head: str, layout: str, segments: bool):
    batch = Batch(head, layout, segments)
    layers = dict(output_hidden_states=True, output_attentions=True)
    with torch.no_grad():
        theirs = native.eval()(**batch.native, **layers)
        plain = native(**batch.native)
        for attention, wanted, expected in (
            ("sdpa", {}, plain),  # without padding
            ("sdpa", dict(output_hidden_states=True), native(**batch.native, output_hidden_states=True)),
            ("eager", layers, theirs),
        ):
            ours.set_attn_implementation(attention)
            check_outputs(expected, ours.eval()(**batch.ours, **wanted), head, batch)
    for attention in ("sdpa", "eager"):
        ours.set_attn_implementation(attention)
        check_gradients(native, ours, head, batch)


# every layout and every shape once with every head
LAYOUTS = {"plain": ["full", "right"], "deep": ["left"], "untied": ["holes"], "biased": ["left"], "local": ["holes"]}


def shapes_and_layouts(shapes):
    return pytest.mark.parametrize("shape, layout", [(shape, layout) for shape in shapes for layout in LAYOUTS[shape]])


@shapes_and_layouts(BERT_SHAPES)
@pytest.mark.parametrize("head", HEADS["bert"])
def test_bert_parity(head, shape, layout):
    native = make_native("bert", shape, head)
    ours = from_native(native)
    assert type(ours) is getattr(minibert, f"MiniBert{head}")
    for segments in (False, True) if layout == "full" else (True,):
        check_parity(native, ours, head, layout, segments)


@shapes_and_layouts(MODERN_SHAPES)
@pytest.mark.parametrize("head", HEADS["modernbert"])
def test_modernbert_parity_with_windows_that_bite(head, shape, layout):
    native = make_native("modernbert", shape, head)
    ours = from_native(native)
    assert type(ours) is getattr(minibert, f"MiniBert{head}")
    check_parity(native, ours, head, layout, segments=False)


def test_the_windows_of_these_tests_bite():
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
def test_bert_agrees_on_the_same_rows_when_it_is_told_the_positions(layout):
    native = make_native("bert", "plain", "ForMaskedLM")
    batch = Batch("ForMaskedLM", layout, segments=True)
    mask = batch.ours["attention_mask"]
    counted = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        theirs = native(**batch.ours, position_ids=counted)
        mine = from_native(native)(**batch.ours)
    torch.testing.assert_close(mine.logits[batch.real], theirs.logits[batch.real], **TOLERANCE)
    torch.testing.assert_close(mine.loss, theirs.loss, **TOLERANCE)


@pytest.mark.parametrize("problem_type, labels", [
    ("regression", torch.randn(BATCH, 3)),
    ("multi_label_classification", torch.randint(2, (BATCH, 3)).float()),
    ("single_label_classification", torch.randint(3, (BATCH,))),
])  # fmt: skip
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_problem_type_is_kept(architecture, problem_type, labels):
    native = make_native(architecture, "plain", "ForSequenceClassification", problem_type=problem_type)
    ours = from_native(native)
    assert ours.config.problem_type == problem_type
    batch = Batch("ForSequenceClassification", "right", segments=False)
    with torch.no_grad():
        theirs, mine = native(**batch.native | dict(labels=labels)), ours(**batch.ours | dict(labels=labels))
    torch.testing.assert_close(mine.loss, theirs.loss, **TOLERANCE)


# --- the way back ---


def assert_same_weights(actual, expected):
    actual, expected = actual.state_dict(), expected.state_dict()
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype and torch.equal(actual[name], tensor), name


EVERY_HEAD = [(name, shape, head) for name in HEADS for shape in SHAPES[name] for head in HEADS[name]]


@pytest.mark.parametrize("architecture, shape, head", EVERY_HEAD)
def test_round_trip_is_bit_identical(architecture, shape, head):
    native = make_native(architecture, shape, head)
    if hasattr(native, "cls") and not native.config.tie_word_embeddings and hasattr(native.cls, "predictions"):
        native.cls.predictions.bias.data = native.cls.predictions.decoder.bias.data.clone()  # the former is never used
    ours = from_native(native)
    again = to_native(ours)
    assert type(again) is type(native)
    assert_same_weights(again, native)
    fields = native.config.to_dict().keys() - {"transformers_version", "architectures"}
    if (architecture, head) == ("bert", "ForQuestionAnswering"):
        fields -= {"classifier_dropout"}  # without effect there: BERT drops nothing before the answer
    for name in fields:
        assert getattr(again.config, name) == getattr(native.config, name), name
    inputs = Batch(head, "right", segments=False).native
    with torch.no_grad():
        again.config._attn_implementation = native.config._attn_implementation
        for actual, expected in zip(again(**inputs).to_tuple(), native(**inputs).to_tuple()):
            if isinstance(expected, torch.Tensor):
                assert torch.equal(actual, expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForTokenClassification"])
def test_round_trip_through_files(architecture, head, tmp_path, monkeypatch, caplog):
    native = make_native(architecture, "plain", head)
    native.save_pretrained(tmp_path / "native")
    from_native(tmp_path / "native").save_pretrained(tmp_path / "ours")
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        ours = getattr(minibert, f"MiniBert{head}").from_pretrained(tmp_path / "ours")
    assert not caplog.records
    assert ours.config.converted_from == architecture
    again = to_native(ours)
    assert type(again) is type(native)
    assert_same_weights(again, native)
    again.save_pretrained(tmp_path / "again")
    assert_same_weights(type(native).from_pretrained(tmp_path / "again"), native)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtype_mode_and_labels_are_kept(architecture, dtype):
    names = {0: "no", 1: "perhaps", 2: "yes"}
    numbers = {name: number for number, name in names.items()}
    native = make_native(architecture, "plain", "ForSequenceClassification", id2label=names, label2id=numbers)
    native.to(dtype).train()
    ours = from_native(native)
    again = to_native(ours)
    for model in (ours, again):
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}
        assert model.training
        assert model.config.id2label == names and model.config.label2id == numbers
        assert model.config.num_labels == 3
    # Rotary frequencies must not be rounded with the weights.
    assert all(buffer.dtype in (torch.float32, torch.long) for buffer in again.buffers())
    assert_same_weights(again, native)


def test_weights_are_copies():
    native = make_native("bert", "plain", "ForMaskedLM")
    ours = from_native(native)
    again = to_native(ours)
    before = copy.deepcopy(ours.state_dict())
    for model in (native, again):
        for parameter in model.parameters():
            parameter.data.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    assert all(tensor.is_contiguous() for tensor in to_native(ours).state_dict().values())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_tying_is_kept(architecture, tied):
    native = make_native(architecture, "plain", "ForMaskedLM", tie_word_embeddings=tied)
    for model in (from_native(native), to_native(from_native(native))):
        shared = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        assert shared == tied == model.config.tie_word_embeddings


def test_bert_without_a_pooler(tmp_path):
    torch.manual_seed(0)
    native = transformers.BertModel(BertConfig(vocab_size=VOCAB, **BERT_SHAPES["plain"]), add_pooling_layer=False)
    native.save_pretrained(tmp_path)
    for ours in (from_native(native), from_native(tmp_path)):
        assert ours.pooler is None
        again = to_native(ours)
        assert again.pooler is None
        assert_same_weights(again, native)


def test_a_causal_bert_keeps_its_mask_in_every_class():
    native = make_native("bert", "plain", "ForTokenClassification", is_decoder=True)
    ours = from_native(native)
    assert ours.config.is_causal
    check_parity(native, ours, "ForTokenClassification", "right", segments=True)
    assert to_native(ours).config.is_decoder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_model_that_was_never_converted_gets_the_architecture_of_its_switches(architecture):
    for head in HEADS[architecture]:
        labels = {} if head in ("Model", "ForQuestionAnswering") else dict(num_labels=LABELS)
        torch.manual_seed(0)
        config = getattr(MiniBertConfig, architecture)(
            "tiny",
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=3,
            local_attention=8,
            attn_implementation="eager",
            **labels,
        )
        ours = getattr(minibert, f"MiniBert{head}")(config).eval()
        native = to_native(ours)
        assert type(native).__name__ == ARCHITECTURES[architecture].classes[head]
        native.set_attn_implementation("eager")
        batch = Batch(head, "right", segments=architecture == "bert")
        with torch.no_grad():
            check_outputs(native(**batch.native), ours(**batch.ours), head, batch)
        assert_same_weights(to_native(from_native(native)), native)


def test_biases_that_only_the_original_has_are_zero():
    torch.manual_seed(0)
    without = ("norm_bias", "attention_bias", "mlp_bias", "head_bias", "decoder_bias")
    config = MiniBertConfig.bert("tiny", vocab_size=VOCAB, **dict.fromkeys(without, False))
    ours = minibert.MiniBertForMaskedLM(config).eval()
    native = to_native(ours, "bert")
    assert not any(tensor.any() for name, tensor in native.state_dict().items() if name.endswith("bias"))
    batch = Batch("ForMaskedLM", "right", segments=True)
    with torch.no_grad():
        check_outputs(native(**batch.native), ours(**batch.ours), "ForMaskedLM", batch)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_answer_has_a_start_and_an_end_whatever_the_labels_say(architecture, tmp_path):
    """MiniBERT's head takes no number of labels; the native ones do, and work with two only."""
    config = getattr(MiniBertConfig, architecture)("tiny", **TINY, num_labels=3)
    ours = minibert.MiniBertForQuestionAnswering(config).eval()
    native = to_native(ours)
    assert native.config.num_labels == 2
    batch = Batch("ForQuestionAnswering", "right", segments=False)
    with torch.no_grad():
        check_outputs(native(**batch.native), ours(**batch.ours), "ForQuestionAnswering", batch)
    native.save_pretrained(tmp_path)
    assert_same_weights(type(native).from_pretrained(tmp_path), native)


# --- what cannot be converted ---

TINY = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)


@pytest.mark.parametrize(
    "preset, head, fields, named",
    [
        ("bert", "ForMaskedLM", dict(norm_type="rmsnorm"), ["norm_type='layernorm' (it is 'rmsnorm')"]),
        ("bert", "ForMaskedLM", dict(norm_placement="pre"), ["norm_placement='post'"]),
        ("bert", "ForMaskedLM", dict(position_embedding_type="sinusoidal"), ["position_embedding_type='absolute'"]),
        ("bert", "ForMaskedLM", dict(gated_mlp=True), ["gated_mlp=False"]),
        ("bert", "ForMaskedLM", dict(global_attn_every_n_layers=2), ["layer_types"]),
        ("bert", "ForMaskedLM", dict(type_vocab_size=0), ["type_vocab_size"]),
        ("bert", "ForMaskedLM", dict(classifier_activation="relu"), ["classifier_activation='gelu' (it is 'relu')"]),
        ("bert", "ForSequenceClassification", dict(add_pooling_layer=False), ["add_pooling_layer=True"]),
        ("bert", "ForSequenceClassification", dict(classifier_pooling="mean"), ["classifier_pooling='cls'"]),
        ("bert", "ForSequenceClassification", dict(is_causal=True), ["is_causal=False"]),
        ("bert", "Model", dict(classifier_pooling="mean"), ["classifier_pooling='cls'"]),
        ("modernbert", "ForMaskedLM", dict(norm_type="rmsnorm"), ["norm_type='layernorm' (it is 'rmsnorm')"]),
        ("modernbert", "ForMaskedLM", dict(norm_placement="post"), ["norm_placement='pre'"]),
        ("modernbert", "ForMaskedLM", dict(position_embedding_type="none"), ["position_embedding_type='rope'"]),
        ("modernbert", "ForMaskedLM", dict(gated_mlp=False), ["gated_mlp=True"]),
        ("modernbert", "ForMaskedLM", dict(type_vocab_size=2), ["type_vocab_size=0"]),
        ("modernbert", "ForMaskedLM", dict(is_causal=True), ["is_causal=False"]),
        ("modernbert", "ForTokenClassification", dict(add_pooling_layer=True), ["add_pooling_layer=False"]),
        ("modernbert", "ForPreTraining", {}, ["modernbert", "none for ForPreTraining"]),
        ("modernbert", "ForMaskedLM", dict(norm_type="rmsnorm", gated_mlp=False, type_vocab_size=2),
         ["norm_type='layernorm'", "gated_mlp=True", "type_vocab_size=0"]),
    ],
)  # fmt: skip
def test_every_switch_in_the_way_is_named(preset, head, fields, named):
    model = getattr(minibert, f"MiniBert{head}")(getattr(MiniBertConfig, preset)("tiny", **TINY | fields))
    for architecture in (preset, None):
        with pytest.raises(ValueError, match=f"MiniBert{head}") as refusal:
            to_native(model, architecture)
        assert all(words in str(refusal.value) for words in named)
    assert "bert needs" in str(refusal.value) and "modernbert needs" in str(refusal.value)


def test_the_recorded_architecture_is_the_one_given_back():
    """Switches that were changed since are refused, not turned into another architecture."""
    ours = from_native(make_native("bert", "plain", "ForMaskedLM"))
    ours.config.norm_type = "rmsnorm"
    with pytest.raises(ValueError, match="bert needs norm_type") as refusal:
        to_native(ours)
    assert "modernbert" not in str(refusal.value)


def test_to_native_refuses_other_models_and_architectures():
    native = make_native("bert", "plain", "ForMaskedLM")
    with pytest.raises(ValueError, match="BertForMaskedLM"):
        to_native(native)
    with pytest.raises(ValueError, match="architecture='gpt2'.*bert or modernbert"):
        to_native(from_native(native), "gpt2")


def test_from_native_refuses_what_it_does_not_know(tmp_path):
    electra = transformers.ElectraModel(transformers.ElectraConfig(**TINY, embedding_size=32))
    with pytest.raises(ValueError, match="ElectraModel.*BertForMaskedLM.*ModernBertForMaskedLM"):
        from_native(electra)
    electra.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="ElectraModel.*BertForMaskedLM.*ModernBertForMaskedLM"):
        from_native(tmp_path)


@pytest.mark.parametrize(
    "model_class, fields, message",
    [
        ("BertModel", dict(is_decoder=True, add_cross_attention=True), "add_cross_attention=True"),
        ("BertModel", dict(is_decoder=True), "is_decoder=True"),
        ("BertForSequenceClassification", dict(is_decoder=True), "is_decoder=True"),
        ("BertLMHeadModel", dict(is_decoder=False), "is_decoder=False.*BertForMaskedLM"),
        ("ModernBertModel", dict(pad_token_id=0, rope_parameters={"full_attention": {
            "rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}), "rope_parameters"),
    ],
)  # fmt: skip
def test_functions_that_minibert_does_not_have_are_refused(model_class, fields, message):
    native_class = getattr(transformers, model_class)
    native = native_class(native_class.config_class(**TINY | fields))
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        from_native(native)


def test_checkpoints_that_lack_a_class_or_weights_are_refused(tmp_path):
    base = transformers.BertModel(BertConfig(**TINY))
    base.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(ValueError, match="lacks weights of BertForMaskedLM: .*cls.predictions"):
        from_native(tmp_path)
    del saved["architectures"]
    path.write_text(json.dumps(saved))
    with pytest.raises(ValueError, match="names the classes"):
        from_native(tmp_path)


def test_dropout_is_carried_over_and_other_places_are_said(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    rates = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2, classifier_dropout=0.3)
    with caplog.at_level(logging.WARNING):
        ours = from_native(make_native("bert", "plain", "ForTokenClassification", **rates))
        again = to_native(ours)
        answers = from_native(make_native("bert", "plain", "ForQuestionAnswering", **rates))
        to_native(answers)
    assert not caplog.records
    for name, rate in rates.items():
        assert getattr(ours.config, name) == getattr(again.config, name) == rate
    assert answers.dropout.p == 0  # BERT has no dropout there
    ours.config.embedding_dropout = 0.4
    with caplog.at_level(logging.WARNING):
        to_native(ours)
    assert "embedding_dropout=0.4" in caplog.text

    caplog.clear()
    rates = dict(embedding_dropout=0.1, attention_dropout=0.2, mlp_dropout=0.3, classifier_dropout=0.4)
    with caplog.at_level(logging.WARNING):
        ours = from_native(make_native("modernbert", "plain", "ForTokenClassification", **rates))
    assert "mlp_dropout=0.3" in caplog.text and "attention_dropout=0.2" in caplog.text
    again = to_native(ours)
    assert all(getattr(again.config, name) == rate for name, rate in rates.items())
    assert ours.config.hidden_dropout == 0.3


# --- the command ---


def save_tokenizer(folder):
    special = dict(unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", pad_token="[PAD]")
    words = {word: i for i, word in enumerate([*special.values(), "a", "cat"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return words


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_convert_there_and_back(architecture, tmp_path, capsys):
    native = make_native(architecture, "plain", "ForMaskedLM")
    source, ours, back = (str(tmp_path / name) for name in ("source", "ours", "back"))
    native.save_pretrained(source)
    words = save_tokenizer(source)
    assert convert(ConvertArguments(paths=[source, ours])) == Path(ours)
    convert(ConvertArguments(paths=[ours, back]))
    assert "MiniBertForMaskedLM" in capsys.readouterr().out
    assert_same_weights(type(native).from_pretrained(back), native)
    for folder in (ours, back):
        assert AutoTokenizer.from_pretrained(folder).get_vocab() == words
    assert isinstance(AutoModelForMaskedLM.from_pretrained(ours), minibert.MiniBertForMaskedLM)


def test_convert_refuses_before_it_writes(tmp_path):
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    make_native("bert", "plain", "ForMaskedLM").save_pretrained(source)
    with pytest.raises(ValueError, match="give a source and a target"):
        convert(ConvertArguments(paths=[source]))
    with pytest.raises(ValueError, match="architecture='bert' is for a MiniBERT source"):
        convert(ConvertArguments(paths=[source, target], architecture="bert"))
    with pytest.raises(OSError, match="nowhere"):
        convert(ConvertArguments(paths=[str(tmp_path / "nowhere"), target]))
    assert not (tmp_path / "target").exists()
    with pytest.raises(ValueError, match="exists already"):
        convert(ConvertArguments(paths=[source, source]))
