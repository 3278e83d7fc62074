"""The model: one result for every way to hand over a text, losses that know no micro-batches, positions, edges.

References are computed here: a text alone in its batch, losses from dense logits with `torch.nn.functional`.
"""

import copy
import inspect
import itertools

import pytest
import torch
from encoder_checks import check_accumulation, check_no_target, check_positions, check_precision
from encoder_texts import (
    CHOICES,
    Texts,
    difference,
    from_batch,
    from_texts_alone,
    gradients,
    labels_for,
    make_layouts,
    worst,
)
from helpers import BERT, FAMILIES, HEADS, LABELS, VOCAB, build
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import DynamicCache, default_data_collator

CLOSE = dict(rtol=1e-5, atol=1e-5)


LAYOUTS = make_layouts(Texts(VOCAB))
PADDED, PACKED = ("right", "left", "holes"), tuple(name for name in LAYOUTS if "packed" in name)
# Every implementation that runs here: padding-free, the padded path of the same, and without SDPA.
WAYS = {"sdpa": {}, "sdpa, padded rows": dict(output_hidden_states=True), "eager": {}}


def set_way(model, way: str):
    model.set_attn_implementation(way.split(",")[0])
    return WAYS[way]


def check_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], where: str):
    found = difference(actual, expected)
    assert worst(found)[0] <= 1e-5, f"{where}: {found}"


# --- padded = packed = single, eager = sdpa, in every combination of switches ---


def switches():
    """32 combinations of six switches, chosen such that every three of them meet in every combination of values; the
    16 that are not slow, such that every two do."""
    for bits in itertools.product([0, 1], repeat=5):
        position, placement, causal, norm = 2 * bits[0] + bits[1], *bits[2:]
        fields = dict(
            position_embedding_type=["absolute", "sinusoidal", "rope", "none"][position],
            norm_placement=["pre", "post"][placement],
            is_causal=bool(causal),
            norm_type=["layernorm", "rmsnorm"][norm],
            gated_mlp=bool((bits[0] + placement + norm) % 2),
            type_vocab_size=2 * ((bits[1] + causal + norm) % 2),
            norm_bias=bool(placement),
            embedding_size=[None, 12][causal],
            embedding_norm=not (bits[0] + norm) % 2,
            prediction_transform=bool(causal or placement),
        )
        name = "-".join(map(str, fields.values()))
        yield pytest.param(fields, id=name, marks=[pytest.mark.slow] if sum(bits) % 2 else [])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fields", list(switches()))
def test_batching_and_attention_do_not_change_results(fields):
    """Logits, loss and gradients; layers with and without a window."""
    model, texts = build("ForMaskedLM", **fields), Texts(VOCAB)
    model.set_attn_implementation("eager")
    expected = from_texts_alone(model, texts)
    for (name, layout), way in itertools.product(LAYOUTS.items(), WAYS):
        check_same(
            from_batch(model, texts, layout, **set_way(model, way)), expected, f"{name}, {way}"
        )


# --- every head ---


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "family",
    ["bert", "modernbert", "causal", pytest.param("modernbert cls", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("head", HEADS)
def test_heads_do_not_see_padding_nor_other_documents(head, family):
    """Left, right, holes, packed: results, loss and gradients of every head."""
    model, texts = build(head, **FAMILIES[family]), Texts(VOCAB)
    names = list(PADDED)
    if head not in (
        "ForQuestionAnswering",
        "ForMultipleChoice",
    ):  # one answer a row; a row is a choice
        names += PACKED
    expected = from_texts_alone(model, texts)
    assert expected["gradients"].any()
    for name, way in itertools.product(names, WAYS):
        check_same(
            from_batch(model, texts, LAYOUTS[name], **set_way(model, way)),
            expected,
            f"{name}, {way}",
        )


def test_the_decoder_of_a_causal_model_makes_logits_of_the_last_states():
    """What TRL, vLLM and fused losses take for granted."""
    model = build("ForCausalLM").eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    assert model.get_decoder() is model.model
    for states in (model.model(ids).last_hidden_state, model.model(ids, return_dict=False)[0]):
        assert_close(model.decoder(states), model(ids).logits, **CLOSE)
    assert_close(
        copy.deepcopy(model).model(ids).last_hidden_state, model.model(ids).last_hidden_state
    )


def test_a_causal_model_is_trained_on_the_next_token_of_its_own_text():
    model, texts = build("ForCausalLM"), Texts(VOCAB)
    with torch.no_grad():
        logits = [model(ids[None]).logits[0] for ids in texts.ids]
    predictions, targets = (
        torch.cat([x[:-1] for x in logits]),
        torch.cat([ids[1:] for ids in texts.ids]),
    )
    for layout in LAYOUTS.values():
        for model.training in (False, True):
            loss = model(**layout.inputs(texts, False), labels=layout.grid(texts.ids, -100)).loss
            assert_close(loss, F.cross_entropy(predictions, targets), **CLOSE)


def test_labels_that_are_shifted_already_take_precedence():
    model = build("ForCausalLM").eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    mask = (torch.arange(9) < torch.tensor([[9], [5]])).long()
    shifted = torch.randint(VOCAB, (2, 9))
    inputs = dict(input_ids=ids, attention_mask=mask, shift_labels=shifted)
    logits = model(ids, attention_mask=mask).logits
    expected = F.cross_entropy(logits[mask == 1], shifted[mask == 1])
    assert_close(model(**inputs).loss, expected, **CLOSE)
    assert_close(model(**inputs, labels=ids).loss, expected, **CLOSE)
    # `Trainer` has counted the labels at padding too.
    assert_close(model(**inputs, num_items_in_batch=18).loss, expected, **CLOSE)


@pytest.mark.parametrize("head", HEADS)
def test_heads_take_the_same_inputs(head):
    """Words or their vectors, segments that the model has or has not, positions said or counted, unknown keywords."""
    for family in ("bert", "modernbert"):
        model = build(head, **FAMILIES[family]).eval()
        parameters = inspect.signature(model.forward).parameters
        shape = (2, CHOICES, 9) if head == "ForMultipleChoice" else (4, 9)
        ids = torch.randint(1, VOCAB, shape)
        mask = (torch.arange(9) < 6).long().expand(shape)
        segments = torch.randint(2, shape)
        said = dict(
            attention_mask=mask, token_type_ids=segments, position_ids=torch.arange(9).expand(shape)
        )
        assert {"input_ids", "inputs_embeds", "seq_idx", *said, "kwargs"} <= set(parameters)
        with torch.no_grad():
            expected = model(ids, attention_mask=mask, token_type_ids=segments)[0]
            assert_close(model(ids, **said, a_keyword_of_somebody=1)[0], expected)
            assert_close(
                model(inputs_embeds=model.get_input_embeddings()(ids), **said)[0], expected
            )
            assert_close(model(ids, mask, segments, said["position_ids"])[0], expected)
            without = model(ids, attention_mask=mask)[0]
            zeros = model(ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids))[0]
        assert_close(without, zeros)
        assert torch.equal(without, expected) == (family == "modernbert")  # it has no segments


@pytest.mark.parametrize(
    "fields, pooled",
    [
        (dict(classifier_pooling="cls"), lambda x: x[0]),
        (dict(classifier_pooling="mean"), lambda x: x.mean(0)),
        (
            dict(classifier_pooling="cls", is_causal=True),
            lambda x: x[-1],
        ),  # a causal model's first token saw nothing
        (dict(classifier_pooling="mean", is_causal=True), lambda x: x[-1]),
    ],
)
def test_pooling(fields, pooled):
    model, texts = build("Model", add_pooling_layer=True, **fields).eval(), Texts(VOCAB)
    with torch.no_grad():
        for layout in LAYOUTS.values():
            outputs = model(**layout.inputs(texts, False))
            expected = torch.stack([pooled(x) for x in layout.read(outputs.last_hidden_state)])
            assert_close(outputs.pooler_output, torch.tanh(model.pooler.dense(expected)), **CLOSE)


def test_position_ids_are_used():
    for kind in ("absolute", "sinusoidal"):
        model = build("Model", position_embedding_type=kind).eval()
        ids = torch.randint(1, VOCAB, (1, 6))
        with torch.no_grad():
            counted, moved = (
                model(ids, position_ids=torch.arange(6)[None] + k).last_hidden_state for k in (0, 3)
            )
        assert not torch.allclose(counted, moved, atol=1e-3), kind
    model = build("Model").eval()  # rotary positions are relative
    assert check_positions(model, 3)[0] <= 1e-5


# --- sparse predictions ---


@pytest.mark.parametrize(
    "head, name",
    [("ForMaskedLM", "logits"), ("ForPreTraining", "prediction_logits"), ("ForCausalLM", "logits")],
)
def test_training_predicts_labelled_positions_alone(head, name):
    model, texts, layout = build(head), Texts(VOCAB), LAYOUTS["left"]
    inputs, labels = layout.inputs(texts, False), layout.grid(texts.tokens, -100)
    model.train()
    dense = model(**inputs)[name]
    assert dense.shape == (*layout.shape, VOCAB)
    chosen = labels != -100
    if head == "ForCausalLM":
        chosen = F.pad(labels[:, 1:] != -100, (0, 1)) & (inputs["attention_mask"] > 0)
    asked = {"sparse_prediction": True} if head == "ForCausalLM" else {}
    sparse = model(**inputs, labels=labels, **asked)
    assert_close(sparse[name], dense[chosen], **CLOSE)
    full = model(**inputs, labels=labels, sparse_prediction=False)
    assert full[name].shape == dense.shape
    assert_close(sparse.loss, full.loss, **CLOSE)
    model.eval()
    assert model(**inputs, labels=labels)[name].shape == dense.shape
    assert_close(
        model(**inputs, labels=labels, sparse_prediction=True)[name], dense[chosen], **CLOSE
    )
    # without labels there is nothing to choose, but by places
    assert model(**inputs, sparse_prediction=True)[name].shape == dense.shape
    if head == "ForMaskedLM":
        places = (labels[inputs["attention_mask"] > 0] != -100).nonzero().squeeze(1)
        found = model(**inputs, sparse_prediction=True, masked_lm_positions=places)
        assert found.loss is None
        assert_close(found.logits, dense[chosen], **CLOSE)


@pytest.mark.parametrize("count", [None, 0, torch.tensor(0)], ids=str)
@pytest.mark.parametrize("head", [head for head in HEADS if head != "Model"])
def test_batch_without_targets_has_no_loss_and_no_gradients(head, count):
    """A loss of 0 and gradients of 0, also where `Trainer` counts no target over all micro-batches and ranks."""
    assert check_no_target(build(head, **BERT), num_items_in_batch=count)[0] == 0


# --- losses and micro-batches ---

STEPS = [
    (head, "")
    for head in HEADS
    if head not in ("Model", "ForPreTraining", "ForSequenceClassification")
]
STEPS += [
    ("ForSequenceClassification", kind) for kind in ("single_label", "multi_label", "regression")
]


@pytest.mark.parametrize("family", [pytest.param("bert", marks=pytest.mark.slow), "modernbert"])
@pytest.mark.parametrize("head, kind", STEPS)
def test_gradient_accumulation_changes_nothing(head, kind, family):
    """The parameters after one step are those of p - rate · gradient of the mean over the whole batch."""
    model = build(head, **FAMILIES[family] | dict(num_labels=1 if kind == "regression" else LABELS))
    texts = Texts(VOCAB, lengths=[12] * 8)
    if kind == "regression":
        texts.one = torch.randn(8)
    elif kind == "multi_label":
        texts.one = torch.randint(2, (8, LABELS)).float()
    assert check_accumulation(model, texts, sizes=(2, 1))[0] <= 1e-5


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "head",
    [
        "ForMaskedLM",
        "ForPreTraining",
        "ForCausalLM",
        "ForTokenClassification",
        "ForReplacedTokenDetection",
    ],
)
def test_labels_at_padding_are_no_targets(head, attention):
    """Not even where `Trainer` has counted them, over one or more micro-batches like this one."""
    model = build(head, attn_implementation=attention).eval()
    ids, mask = torch.randint(1, VOCAB, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[1, 5:] = 0
    labels = torch.randint(2, (2, 12))
    inputs = dict(input_ids=ids, attention_mask=mask)
    expected = model(**inputs, labels=labels.masked_fill(mask == 0, -100)).loss
    counted = labels[:, 1:].numel() if head == "ForCausalLM" else labels.numel()
    for count, steps in ((counted, 1), (torch.tensor(counted), 1), (3 * counted, 3)):
        assert_close(
            model(**inputs, labels=labels, num_items_in_batch=count).loss * steps, expected, **CLOSE
        )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("documents", ["padding left", "packed"])
def test_causal_loss_with_labels_at_first_tokens(documents, attention):
    """With labels at the first tokens of documents, the loss of a decoder is the mean over next tokens."""
    model, ids = (
        build("ForCausalLM", attn_implementation=attention).eval(),
        torch.randint(1, VOCAB, (2, 12)),
    )
    labels, lengths = ids.clone(), [(12,), (4, 8)]
    if documents == "packed":
        inputs = dict(position_ids=torch.tensor([[*range(12)], [*range(4), *range(8)]]))
    else:
        inputs, lengths = dict(attention_mask=torch.ones_like(ids)), [(12,), (8,)]
        inputs["attention_mask"][1, :4] = 0
        labels[1, :4] = -100
    losses = []
    for row, of_row in zip(ids, lengths):
        for document in row[-sum(of_row) :].split(of_row):
            logits = model(document[None]).logits[0, :-1].double()
            losses.append(F.cross_entropy(logits, document[1:], reduction="none"))
    counted = (labels[:, 1:] != -100).sum()
    loss = model(ids, labels=labels, num_items_in_batch=counted, **inputs).loss
    assert counted > len(torch.cat(losses))
    assert_close(loss.double(), torch.cat(losses).mean(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("told", [True, False])
def test_gradient_accumulation_with_two_objectives(told):
    """Masked tokens and rows are counted apart: exact when the step's number of rows is said, and, without it, when
    all micro-batches hold equally many masked tokens."""
    model, texts, collator = build("ForPreTraining", **BERT), Texts(VOCAB, lengths=[12] * 8), None
    if told:
        collator = lambda rows: default_data_collator(rows) | dict(num_rows_in_batch=8)  # noqa: E731
    else:
        texts.tokens = [torch.where(torch.arange(12) % 4 == 1, ids, -100) for ids in texts.ids]
    assert check_accumulation(model, texts, sizes=(2, 1), collator=collator)[0] <= 1e-5


def test_pretraining_takes_either_label():
    model, texts, layout = build("ForPreTraining", **BERT).eval(), Texts(VOCAB), LAYOUTS["right"]
    inputs, labels = layout.inputs(texts, True), labels_for("PreTraining", texts, layout)
    both = model(**inputs, **labels)
    masked, following = (
        model(**inputs, **{name: labels[name]}) for name in ("labels", "next_sentence_label")
    )
    assert_close(masked.loss, both.mlm_loss)
    assert_close(following.loss, both.nsp_loss)
    assert_close(both.loss, both.mlm_loss + both.nsp_loss)
    assert masked.nsp_loss is None and following.mlm_loss is None and model(**inputs).loss is None


# --- edges ---


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "wanted", [{}, dict(output_hidden_states=True)], ids=["unpadded", "padded rows"]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_row_of_padding_gives_no_nan(family, wanted, dtype):
    """No NaN, forward and backward, and the other rows as without it; padding left, right and everywhere."""
    model = build("ForMaskedLM", **FAMILIES[family])
    assert check_precision(model, large=False, dtypes=[dtype], **wanted)[0] == 0
    ids = torch.randint(1, VOCAB, (3, 10))
    mask = torch.stack([torch.zeros(10), torch.arange(10) < 6, torch.arange(10) >= 7]).long()
    model.to(dtype).eval()
    with torch.no_grad():
        logits = model(ids, attention_mask=mask, **wanted).logits
        fewer = model(ids[1:], attention_mask=mask[1:], **wanted).logits
        nothing = model(ids, attention_mask=torch.zeros(3, 10), **wanted).logits
    assert nothing.isfinite().all() and nothing.shape == (3, 10, VOCAB)
    tolerance = CLOSE if dtype == torch.float32 else dict(rtol=0.02, atol=0.1)
    assert_close(logits[1:][mask[1:] > 0], fewer[mask[1:] > 0], **tolerance)


@pytest.mark.parametrize("head", HEADS)
def test_a_batch_of_one_token(head):
    for family, way in itertools.product(FAMILIES, WAYS):
        model = build(head, **FAMILIES[family]).train()
        shape = (1, 1, 1) if head == "ForMultipleChoice" else (1, 1)
        outputs = model(torch.full(shape, 5), **set_way(model, way))
        assert outputs[0].isfinite().all()
        outputs[0].sum().backward()


@pytest.mark.parametrize(
    "wanted, kept", [([0, 2], {0, 2}), ([-1], {2}), (1, {1}), (0, {0}), ([9, -9], set())], ids=str
)
@torch.no_grad()
def test_some_hidden_states_are_returned_without_the_others(wanted, kept):
    """As by newer versions of Transformers: None stands in the places of the others."""
    model = build("ForMaskedLM").eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    states = model(ids, output_hidden_states=True).hidden_states
    selected = model(ids, output_hidden_states=wanted).hidden_states
    assert {index for index, state in enumerate(selected) if state is not None} == kept
    assert len(selected) == len(states) == 3
    for index in kept:
        assert torch.equal(selected[index], states[index])
    assert model(ids, output_hidden_states=[]).hidden_states is None
    assert model(ids, output_hidden_states=False).hidden_states is None


@torch.no_grad()
def test_none_asks_for_what_the_config_says():
    """As in Transformers; wrappers pass on `output_hidden_states=None`."""
    model = build("ForMaskedLM", attn_implementation="eager").eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    for is_wanted in (True, False):
        model.config.output_hidden_states = is_wanted
        model.config.output_attentions = is_wanted
        outputs = model(ids, output_hidden_states=None, output_attentions=None)
        assert (outputs.hidden_states is not None) == is_wanted
        assert (outputs.attentions is not None) == is_wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing_gives_the_same_gradients(family):
    texts, found = Texts(VOCAB), []
    for checkpointing in (False, True):
        model = build("ForMaskedLM", **FAMILIES[family]).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        layout = LAYOUTS["left"]
        model(**layout.inputs(texts, False), labels=layout.grid(texts.tokens, -100)).loss.backward()
        found.append(gradients(model))
    assert_close(*found, **CLOSE)


def test_a_mask_of_pairs_adds_to_the_windows():
    """[batch, 1, length, length], boolean or added to the scores, on both implementations."""
    ids = torch.randint(1, VOCAB, (2, 11))
    seen = torch.rand(2, 1, 11, 11) < 0.5
    seen |= torch.eye(11, dtype=torch.bool)
    outputs = []
    for way in ("sdpa", "eager"):
        model = build("Model", add_pooling_layer=False).eval()
        set_way(model, way)
        added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        outputs += [model(ids, attention_mask=mask).last_hidden_state for mask in (seen, added)]
    for other in outputs[1:]:
        assert_close(other, outputs[0], **CLOSE)
    # one layer that sees everything and one of two neighbours: nothing crosses a mask that is block-diagonal
    blocks = (torch.arange(11) < 5).unsqueeze(1) == (torch.arange(11) < 5)
    split = model(
        ids, attention_mask=blocks.expand(2, 1, 11, 11), position_ids=torch.arange(11)[None]
    ).last_hidden_state
    assert_close(split[:, :5], model(ids[:, :5]).last_hidden_state, **CLOSE)


def test_a_decoder_refuses_to_see_what_it_must_predict():
    decoder = build("ForCausalLM").eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    with pytest.raises(
        ValueError, match="is_causal=False: every token would see .*use MiniBertForMaskedLM"
    ):
        decoder(ids, labels=ids, is_causal=False)
    expected = decoder(ids).logits
    for is_causal in (None, True):
        assert_close(decoder(ids, is_causal=is_causal).logits, expected, **CLOSE)


@pytest.mark.parametrize("shape", [(3, 1, 9, 9), (2, 1, 9, 8), (2, 1, 9, 1), (2, 1, 8, 9)], ids=str)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_mask_of_pairs_of_another_shape_is_refused(attention, shape):
    model = build("Model", attn_implementation=attention).eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    with pytest.raises(ValueError, match=r"attention_mask has the shape .*, the inputs \(2, 9\)"):
        model(ids, attention_mask=torch.ones(shape, dtype=torch.bool))


@torch.no_grad()
def test_a_mask_of_pairs_may_be_the_same_for_rows_or_queries():
    model = build("Model").eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    sees_key = torch.arange(9) < 6
    masks = [sees_key.expand(2, 1, 9, 9), sees_key.expand(1, 1, 9, 9), sees_key.expand(2, 1, 1, 9)]
    expected, *others = (model(ids, attention_mask=mask).last_hidden_state for mask in masks)
    for states in others:
        assert_close(states, expected, **CLOSE)


def test_choices_take_the_shapes_that_they_ask_for():
    model = build("ForMultipleChoice").eval()
    ids = torch.randint(1, VOCAB, (2, CHOICES, 9))
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model(attention_mask=torch.ones_like(ids))
    with pytest.raises(ValueError, match=r"shape \(2, 9\): use \[batch, choices, length\]"):
        model(ids[:, 0])
    with pytest.raises(ValueError, match=r"use \[batch, choices, length, \d+\]"):
        model(inputs_embeds=torch.zeros(2, 9, 16))
    pooled = model.run_encoder(input_ids=ids).pooler_output
    assert_close(pooled, model.encode(ids).pooler_output)  # its former name
    labels = torch.tensor([0, CHOICES - 1])
    assert_close(model(ids, labels=labels[:, None]).loss, model(ids, labels=labels).loss)


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_the_encoder_runs_without_padding_its_output(head):
    """Of the encoder alone, too."""
    model = build(head).eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    outputs = model.run_encoder(ids, mask)
    assert outputs.last_hidden_state is None
    expected = model.base_model(ids, attention_mask=mask).last_hidden_state
    assert_close(outputs.unpadded, expected[mask.bool()])
    assert_close(outputs.tokens.pad(outputs.unpadded), expected)


def test_bad_input_is_refused():
    model = build("ForMaskedLM", **BERT)
    ids = torch.randint(1, VOCAB, (2, 9))
    embeds = torch.randn(2, 9, 16)
    for inputs in ({}, dict(input_ids=ids, inputs_embeds=embeds)):
        with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
            model(**inputs)
    for shape in ((2, 8), (9, 2), (1, 9), (2, 9, 9), (9,)):
        with pytest.raises(ValueError, match=r"attention_mask has the shape \("):
            model(ids, attention_mask=torch.ones(shape))
    with pytest.raises(
        ValueError,
        match="attention_mask is torch.int64: a 4D mask holds booleans, or floats to add",
    ):
        model(ids, attention_mask=torch.ones(2, 1, 9, 9, dtype=torch.long))
    long = torch.randint(1, VOCAB, (1, 41))
    for inputs in (
        dict(input_ids=long),
        dict(input_ids=ids, position_ids=torch.arange(32, 41)[None]),
    ):
        with pytest.raises(
            ValueError, match="position 40 is beyond max_position_embeddings=40: truncate"
        ):
            model(**inputs)
    model(long, attention_mask=(torch.arange(41) > 0).long()[None])  # it is real tokens that count
    build("ForMaskedLM")(long)  # rotary positions have no table
    decoder, settings = (
        build("ForCausalLM"),
        dict(max_new_tokens=2, do_sample=False, pad_token_id=0),
    )
    generated = decoder.generate(ids, **settings)
    for name in ("past_key_values", "cache"):
        with pytest.raises(ValueError, match=f"^{name}: there is no cache"):
            decoder(ids[:, -1:], **{name: DynamicCache()})
        assert torch.equal(decoder.generate(ids, **{name: DynamicCache()}, **settings), generated)
    with pytest.raises(ValueError, match="^encoder_hidden_states: there is .* no cross-attention"):
        decoder(ids, encoder_hidden_states=torch.zeros(1, 3, 32))
