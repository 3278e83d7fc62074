"""The model: one result for every way to hand over a text, losses that know no micro-batches, positions, edges.

References are computed here: a text alone in its batch, losses from dense logits with `torch.nn.functional`.
"""

import copy
import inspect
import itertools
import math

import pytest
import torch
from helpers import BERT, DETECTOR, FAMILIES, HEADS, LABELS, VOCAB, build
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments

from minibert.attention_minibert import rotary_angles, rotary_frequencies, rotate
from minibert.modeling_minibert import sinusoidal_positions

CHOICES, PAD = 2, 0
CLOSE = dict(rtol=1e-5, atol=1e-5)
TOKEN_HEADS = ("ForMaskedLM", "ForPreTraining", "ForCausalLM", "ForTokenClassification", DETECTOR)


# --- texts, and every way to put them into a batch ---

LENGTHS = [13, 1, 7, 5]


class Texts:
    """Texts, each with everything that any head may want to know about it."""

    def __init__(self, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)

        def draw(high, *shape):
            return torch.randint(high, shape, generator=generator)

        self.ids = [draw(VOCAB - 1, n) + 1 for n in LENGTHS]
        self.segments = [draw(2, n) for n in LENGTHS]
        self.tokens = [torch.where(draw(2, n) > 0, draw(LABELS, n), -100) for n in LENGTHS]  # token classes
        self.tokens[0][1], self.tokens[2][3] = 1, 2  # some of them are there
        self.one = draw(2, len(LENGTHS))  # a class a text
        self.answers = [(n // 3, n // 2) for n in LENGTHS]


class Layout:
    """Places for the tokens of all texts.

    Args:
        rows: for each row its columns: (text, token), or None for padding.
    """

    def __init__(self, rows: list[list[tuple[int, int] | None]], how: str = "mask"):
        length = max(map(len, rows))
        self.rows = [row + [None] * (length - len(row)) for row in rows]
        self.shape = len(rows), length
        self.place = {cell: (b, s) for b, row in enumerate(self.rows) for s, cell in enumerate(row) if cell}
        # of every token of all texts, one after the other
        self.index = torch.tensor([self.place[cell] for text in range(len(LENGTHS)) for cell in cells(text)]).unbind(1)
        self.how = how

    def grid(self, values: list[torch.Tensor], padding: int) -> torch.Tensor:
        out = torch.full(self.shape, padding)
        out[self.index] = torch.cat(values).to(out.dtype)
        return out

    def read(self, x: torch.Tensor) -> list[torch.Tensor]:
        """[batch, length, …] → for each text [tokens, …]"""
        return x[self.index].split(LENGTHS)

    def inputs(self, texts: Texts, segments: bool) -> dict[str, torch.Tensor]:
        out = {"input_ids": self.grid(texts.ids, PAD)}
        if segments:
            out["token_type_ids"] = self.grid(texts.segments, 0)
        mask = self.grid([torch.ones(n) for n in LENGTHS], 0)
        if not mask.all():
            out["attention_mask"] = mask
        if self.how == "position_ids":
            out["position_ids"] = self.grid([torch.arange(n) for n in LENGTHS], 0)
        elif self.how == "seq_idx":
            out["seq_idx"] = self.grid([torch.full((n,), i) for i, n in enumerate(LENGTHS)], -1)
        elif self.how == "cu_seq_lens":
            bounds = torch.tensor([0, *itertools.accumulate(LENGTHS)], dtype=torch.int32)
            out |= dict(
                cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=max(LENGTHS), max_length_k=max(LENGTHS)
            )
        return out


def cells(text: int) -> list[tuple[int, int]]:
    return [(text, i) for i in range(LENGTHS[text])]


def make_layouts() -> dict[str, Layout]:
    longest, pad = max(LENGTHS), [None]
    alone = [cells(text) for text in range(len(LENGTHS))]
    holes = [
        [c for i, cell in enumerate(row) for c in ([None] * (i % 3 == text % 3) + [cell])]
        for text, row in enumerate(alone)
    ]
    return {
        "right": Layout(alone),
        "left": Layout([pad * (longest - len(row)) + row for row in alone]),
        "holes": Layout(holes),
        "packed by positions": Layout([alone[0] + alone[1], alone[2] + alone[3]], "position_ids"),
        "packed by seq_idx, padding between": Layout(
            [pad + alone[0] + pad * 2 + alone[1], alone[2] + pad + alone[3]], "seq_idx"
        ),
        "packed by cu_seq_lens": Layout([list(itertools.chain(*alone))], "cu_seq_lens"),
    }


LAYOUTS = make_layouts()
PADDED, PACKED = ("right", "left", "holes"), tuple(name for name in LAYOUTS if "packed" in name)
# Every implementation that runs here: padding-free, the padded path of the same, and without SDPA.
WAYS = {"sdpa": {}, "sdpa, padded rows": dict(output_hidden_states=True), "eager": {}}


def set_way(model, way: str):
    model.set_attn_implementation(way.split(",")[0])
    return WAYS[way]


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def check_all(actual, expected, where: str):
    """The same by name: in one comparison, and where that fails name by name."""
    if not torch.allclose(*(torch.cat([x[name].flatten() for name in expected]) for x in (actual, expected)), **CLOSE):
        for name in expected:
            assert_close(actual[name], expected[name], **CLOSE, msg=lambda text, at=name: f"{where}, {at}: {text}")
        raise AssertionError(where)


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


@pytest.mark.parametrize("fields", switches())
def test_every_way_gives_what_a_text_gives_alone(fields):
    """Hidden states, logits, loss and gradients to 1e-5; layers with and without a window."""
    model, texts = build("ForMaskedLM", **fields), Texts()
    segments = bool(fields["type_vocab_size"])
    count = sum((labels != -100).sum() for labels in texts.tokens)
    model.set_attn_implementation("eager")
    alone, logits = [], []
    for i, ids in enumerate(texts.ids):
        single = dict(input_ids=ids[None], **(dict(token_type_ids=texts.segments[i][None]) if segments else {}))
        alone.append(model.model(**single).last_hidden_state[0].detach())
        logits.append(model(**single).logits[0].detach())
        model(**single, labels=texts.tokens[i][None], num_items_in_batch=count).loss.backward()
    expected_gradients = gradients(model)
    dense = torch.cat(logits), torch.cat(texts.tokens)
    expected_loss = F.cross_entropy(*dense)

    for (name, layout), way in itertools.product(LAYOUTS.items(), WAYS):
        where = f"{name}, {way}"
        wanted = set_way(model, way)
        inputs = layout.inputs(texts, segments)
        with torch.no_grad():
            hidden = model.model(**inputs, **wanted).last_hidden_state
            outputs = model(**inputs, **wanted)
        for actual, expected in ((hidden, alone), (outputs.logits, logits)):
            check_all(*(dict(enumerate(texts)) for texts in (layout.read(actual), expected)), where)
        model.zero_grad()
        loss = model(**inputs, **wanted, labels=layout.grid(texts.tokens, -100)).loss
        assert_close(loss, expected_loss, **CLOSE)
        loss.backward()
        check_all(gradients(model), expected_gradients, f"{where}, gradients")


# --- every head ---


def labels_for(head: str, texts: Texts, layout: Layout) -> dict[str, torch.Tensor]:
    if head in TOKEN_HEADS:
        labels = {"labels": layout.grid(texts.tokens, -100).clamp(max=1 if head == DETECTOR else LABELS)}
        return labels | (dict(next_sentence_label=texts.one) if head == "ForPreTraining" else {})
    if head == "ForQuestionAnswering":
        columns = [[layout.place[i, at][1] for at in answer] for i, answer in enumerate(texts.answers)]
        return dict(zip(("start_positions", "end_positions"), torch.tensor(columns).unbind(1)))
    if head == "ForMultipleChoice":
        return {"labels": texts.one[: len(LENGTHS) // CHOICES]}
    return {} if head == "Model" else {"labels": texts.one}


def loss_by_hand(head: str, outputs, labels: dict[str, torch.Tensor], real: torch.Tensor) -> torch.Tensor:
    """The loss as the field defines it, from dense logits: a mean over everything that has a label."""
    if head == "ForPreTraining":
        masked = F.cross_entropy(outputs.prediction_logits.flatten(0, 1), labels["labels"].flatten())
        return masked + F.cross_entropy(outputs.seq_relationship_logits, labels["next_sentence_label"])
    if head == "ForQuestionAnswering":
        sides = (outputs.start_logits, labels["start_positions"]), (outputs.end_logits, labels["end_positions"])
        # padding is no answer
        return sum(F.cross_entropy(x.masked_fill(~real, float("-inf")), y) for x, y in sides) / 2
    if head == "ForCausalLM":
        following = labels["labels"][:, 1:]
        return F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), following.flatten())
    if head == DETECTOR:
        counted = labels["labels"] != -100
        return F.binary_cross_entropy_with_logits(outputs.logits[counted], labels["labels"][counted].float())
    if head == "ForSequenceClassification" and labels["labels"].is_floating_point():
        if outputs.logits.shape[1] == 1:
            return F.mse_loss(outputs.logits.squeeze(1), labels["labels"])
        return F.binary_cross_entropy_with_logits(outputs.logits, labels["labels"])
    logits = outputs.logits.flatten(0, 1) if outputs.logits.dim() == 3 else outputs.logits
    return F.cross_entropy(logits, labels["labels"].flatten())


def results(head: str, outputs, layout: Layout) -> dict[str, torch.Tensor]:
    """What a head gives for each text, whatever the layout."""
    out = {}
    for name, value in outputs.items():
        if name in ("last_hidden_state", "logits", "prediction_logits", "start_logits", "end_logits", "pooler_output",
                    "seq_relationship_logits"):  # fmt: skip
            by_token = value.shape[:2] == layout.shape
            out[name] = torch.cat(layout.read(value)) if by_token else value
    return out


def as_choices(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: x.unflatten(0, (-1, CHOICES)) if x.dim() == 2 else x for name, x in inputs.items()}


@pytest.mark.parametrize(
    "family", ["bert", "modernbert", "causal", pytest.param("modernbert cls", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("head", HEADS)
def test_heads_do_not_see_padding_nor_other_documents(head, family):
    """Left, right, holes, packed: results, loss and gradients of every head."""
    model, texts = build(head, **FAMILIES[family]), Texts()
    names = list(PADDED)
    if head not in ("ForQuestionAnswering", "ForMultipleChoice"):  # one answer a row; a row is a choice
        names += PACKED
    reference = None
    for name, way in itertools.product(names, WAYS):
        layout, where = LAYOUTS[name], f"{name}, {way}"
        wanted = set_way(model, way)
        inputs = layout.inputs(texts, segments=family == "bert")
        real = layout.grid([torch.ones(n, dtype=torch.bool) for n in LENGTHS], False)
        if head == "ForMultipleChoice":
            inputs = as_choices(inputs)
        labels = labels_for(head, texts, layout)
        model.eval().zero_grad()
        outputs = model(**inputs, **wanted, **labels)
        found = results(head, outputs, layout)
        loss = outputs.loss if labels else sum(x.pow(3).mean() for x in found.values())
        model.train()  # where the vocabulary is computed at the labels alone
        training = model(**inputs, **wanted, **labels)
        (training.loss if labels else loss).backward()
        if reference is None:
            reference = found, loss, gradients(model)
            if labels and head != "ForCausalLM":
                assert_close(loss, loss_by_hand(head, outputs, labels, real), **CLOSE)
        assert found.keys() == reference[0].keys() and found
        for key in found:
            assert_close(found[key], reference[0][key], **CLOSE, msg=lambda text, at=f"{where}, {key}": f"{at}: {text}")
        assert_close(loss, reference[1], **CLOSE)
        if labels:
            assert_close(training.loss, loss, **CLOSE)
        check_all(gradients(model), reference[2], f"{where}, gradients")
    assert any(x.any() for x in reference[2].values())


def test_the_decoder_of_a_causal_model_makes_logits_of_the_last_states():
    """What TRL, vLLM and fused losses take for granted."""
    model = build("ForCausalLM").eval()
    ids = torch.randint(1, VOCAB, (2, 9))
    assert_close(model.decoder(model.model(ids).last_hidden_state), model(ids).logits, **CLOSE)
    assert_close(copy.deepcopy(model).model(ids).last_hidden_state, model.model(ids).last_hidden_state)


def test_a_causal_model_is_trained_on_the_next_token_of_its_own_text():
    model, texts = build("ForCausalLM"), Texts()
    with torch.no_grad():
        logits = [model(ids[None]).logits[0] for ids in texts.ids]
    predictions, targets = torch.cat([x[:-1] for x in logits]), torch.cat([ids[1:] for ids in texts.ids])
    for layout in LAYOUTS.values():
        for model.training in (False, True):
            loss = model(**layout.inputs(texts, False), labels=layout.grid(texts.ids, -100)).loss
            assert_close(loss, F.cross_entropy(predictions, targets), **CLOSE)


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
        said = dict(attention_mask=mask, token_type_ids=segments, position_ids=torch.arange(9).expand(shape))
        assert {"input_ids", "inputs_embeds", "seq_idx", *said, "kwargs"} <= set(parameters)
        with torch.no_grad():
            expected = model(ids, attention_mask=mask, token_type_ids=segments)[0]
            assert_close(model(ids, **said, a_keyword_of_somebody=1)[0], expected)
            assert_close(model(inputs_embeds=model.get_input_embeddings()(ids), **said)[0], expected)
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
        (dict(classifier_pooling="cls", is_causal=True), lambda x: x[-1]),  # a causal model's first token saw nothing
        (dict(classifier_pooling="mean", is_causal=True), lambda x: x[-1]),
    ],
)
def test_which_token_stands_for_a_text(fields, pooled):
    model, texts = build("Model", add_pooling_layer=True, **fields).eval(), Texts()
    with torch.no_grad():
        for layout in LAYOUTS.values():
            outputs = model(**layout.inputs(texts, False))
            expected = torch.stack([pooled(x) for x in layout.read(outputs.last_hidden_state)])
            assert_close(outputs.pooler_output, torch.tanh(model.pooler.dense(expected)), **CLOSE)


def test_positions_that_are_said_are_used():
    for kind in ("absolute", "sinusoidal"):
        model = build("Model", position_embedding_type=kind).eval()
        ids = torch.randint(1, VOCAB, (1, 6))
        with torch.no_grad():
            counted, moved = (model(ids, position_ids=torch.arange(6)[None] + k).last_hidden_state for k in (0, 3))
        assert not torch.allclose(counted, moved, atol=1e-3), kind
    model = build("Model").eval()  # rotary positions are relative
    with torch.no_grad():
        counted, moved = (model(ids, position_ids=torch.arange(6)[None] + k).last_hidden_state for k in (0, 3))
    assert_close(counted, moved, **CLOSE)


# --- sparse predictions ---


@pytest.mark.parametrize(
    "head, name", [("ForMaskedLM", "logits"), ("ForPreTraining", "prediction_logits"), ("ForCausalLM", "logits")]
)
def test_training_predicts_labelled_positions_alone(head, name):
    model, texts, layout = build(head), Texts(), LAYOUTS["left"]
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
    assert_close(model(**inputs, labels=labels, sparse_prediction=True)[name], dense[chosen], **CLOSE)
    assert (
        model(**inputs, sparse_prediction=True)[name].shape == dense.shape
    )  # without labels there is nothing to choose


@pytest.mark.parametrize("head", [head for head in HEADS if head != "Model"])
def test_a_batch_without_targets_costs_nothing(head):
    """A loss of 0 with gradients, not NaN."""
    model, layout, texts = build(head, **BERT), LAYOUTS["right"], Texts()
    inputs, labels = layout.inputs(texts, True), labels_for(head, texts, layout)
    if head == "ForQuestionAnswering":
        labels = {name: torch.full_like(value, 10_000) for name, value in labels.items()}
    else:
        labels = {name: torch.full_like(value, -100) for name, value in labels.items()}
    loss = model.train()(**(as_choices(inputs) if head == "ForMultipleChoice" else inputs), **labels).loss
    assert loss == 0
    loss.backward()
    assert not any(g.isnan().any() or g.any() for g in gradients(model).values())


# --- losses and micro-batches ---

ROWS, LENGTH, RATE = 8, 12, 0.5


def training_rows(head: str, kind: str) -> list[dict[str, torch.Tensor]]:
    """Rows with unequal numbers of targets."""
    torch.manual_seed(1)
    rows = []
    for i in range(ROWS):
        length = LENGTH - i // 2
        shape = (CHOICES, LENGTH) if head == "ForMultipleChoice" else (LENGTH,)
        row = dict(
            input_ids=torch.randint(1, VOCAB, shape),
            attention_mask=(torch.arange(LENGTH) < length).long().expand(shape),
        )
        if head in TOKEN_HEADS:
            classes = 2 if head == DETECTOR else LABELS
            row["labels"] = torch.where(torch.arange(LENGTH) % (i + 2) == 1, torch.randint(classes, (LENGTH,)), -100)
            row["labels"][length:] = -100
        if head == "ForPreTraining":
            row["next_sentence_label"] = torch.tensor(i % 2)
        elif head == "ForQuestionAnswering":
            row |= dict(start_positions=torch.tensor(i % 3), end_positions=torch.tensor(3 + i % 4))
        elif head not in TOKEN_HEADS:
            row["labels"] = {"regression": torch.randn(()), "multi_label": torch.randint(2, (LABELS,)).float()}.get(
                kind, torch.tensor(i % 2)
            )
        rows.append(row)
    return rows


def collate(rows) -> dict[str, torch.Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def one_step(model, rows, collator, per_batch: int, tmp_path) -> dict[str, torch.Tensor]:
    """The parameters after one optimizer step of plain SGD over all rows."""
    model = copy.deepcopy(model)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, optim="sgd", learning_rate=RATE, lr_scheduler_type="constant",
        max_steps=1, max_grad_norm=0.0, per_device_train_batch_size=per_batch,
        gradient_accumulation_steps=ROWS // per_batch, save_strategy="no", report_to="none",
        disable_tqdm=True, remove_unused_columns=False, seed=3,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=Rows(rows), data_collator=collator).train()
    return dict(model.named_parameters())


STEPS = [(head, "") for head in HEADS if head not in ("Model", "ForPreTraining", "ForSequenceClassification")]
STEPS += [("ForSequenceClassification", kind) for kind in ("single_label", "multi_label", "regression")]


@pytest.mark.parametrize("family", [pytest.param("bert", marks=pytest.mark.slow), "modernbert"])
@pytest.mark.parametrize("head, kind", STEPS)
def test_gradient_accumulation_changes_nothing(head, kind, family, tmp_path):
    """The parameters after one step are those of p - rate · gradient of the mean over the whole batch."""
    model, rows = (
        build(head, **FAMILIES[family] | dict(num_labels=1 if kind == "regression" else LABELS)),
        training_rows(head, kind),
    )
    if head == "ForQuestionAnswering":
        model = build(head, **FAMILIES[family])
    check_one_step(model, rows, head, collate, tmp_path)


def check_one_step(model, rows, head: str, collator, tmp_path):
    batch = collate(rows)
    labels = {name: batch.pop(name) for name in list(batch) if "label" in name or "_positions" in name}
    real = batch["attention_mask"].bool()
    loss_by_hand(head, model.eval()(**batch), labels, real).backward()
    expected = {name: p.detach() - RATE * (0 if p.grad is None else p.grad) for name, p in model.named_parameters()}
    assert any(not torch.equal(expected[name], p) for name, p in model.named_parameters())
    for per_batch in (2, 1):
        check_all(one_step(model, rows, collator, per_batch, tmp_path), expected, f"{ROWS // per_batch} steps")


@pytest.mark.parametrize("told", [True, False])
def test_gradient_accumulation_with_two_objectives(told, tmp_path):
    """Masked tokens and rows are counted apart: exact when the step's number of rows is said, and, without it, when
    all micro-batches hold equally many masked tokens."""
    rows = training_rows("ForPreTraining", "")
    if not told:
        for row in rows:
            row["labels"] = torch.where(torch.arange(LENGTH) % 4 == 1, torch.randint(VOCAB, (LENGTH,)), -100)
            row["labels"][8:] = -100

    def collator(some):
        return collate(some) | (dict(num_rows_in_batch=ROWS) if told else {})

    check_one_step(build("ForPreTraining", **BERT), rows, "ForPreTraining", collator, tmp_path)


def test_pretraining_takes_either_label():
    model, texts, layout = build("ForPreTraining", **BERT).eval(), Texts(), LAYOUTS["right"]
    inputs, labels = layout.inputs(texts, True), labels_for("ForPreTraining", texts, layout)
    both = model(**inputs, **labels)
    masked, following = (model(**inputs, **{name: labels[name]}) for name in ("labels", "next_sentence_label"))
    assert_close(masked.loss, both.mlm_loss)
    assert_close(following.loss, both.nsp_loss)
    assert_close(both.loss, both.mlm_loss + both.nsp_loss)
    assert masked.nsp_loss is None and following.mlm_loss is None and model(**inputs).loss is None


# --- positions ---


def test_rotary_angles_and_rotation_against_complex_numbers():
    """A pair is a complex number that is multiplied by exp(i · position · θ^(-2k/d)); the angles are in fp32."""
    positions, width, theta = torch.tensor([[0, 1, 255, 8191]]), 16, 160_000.0
    cos, sin = rotary_angles(positions, rotary_frequencies(width, theta, positions.device))
    assert cos.dtype == torch.float32
    frequency = theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = positions.double()[..., None] * frequency
    turn = torch.polar(torch.ones_like(angle), angle)
    # fp32 has 24 bits, of which 13 go to the whole part of the largest angle
    assert_close(cos.double().flatten(2), turn.real, rtol=0, atol=2e-3)
    assert_close(sin.double().flatten(2), turn.imag, rtol=0, atol=2e-3)
    x = torch.randn(1, 4, 2, 3, width, dtype=torch.float64)
    turned = (
        torch.complex(x[..., : width // 2], x[..., width // 2 :])
        * torch.polar(torch.ones_like(angle), angle)[:, :, None, None]
    )
    expected = torch.cat([turned.real, turned.imag], -1)
    cos, sin = (f(angle)[:, :, None, None] for f in (torch.cos, torch.sin))
    assert_close(rotate(x, torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), expected)


def test_each_kind_of_layer_has_its_own_rotary_base():
    ids = torch.randint(1, VOCAB, (1, 9))
    outputs = []
    for full, local in ((100.0, 7.0), (100.0, 100.0), (7.0, 7.0)):
        parameters = {"full_attention": {"rope_theta": full}, "sliding_attention": {"rope_theta": local}}
        with torch.no_grad():
            outputs.append(build("Model", rope_parameters=parameters).eval()(ids).last_hidden_state)
    for a, b in itertools.combinations(outputs, 2):
        assert not torch.allclose(a, b, atol=1e-3)


def test_sinusoidal_positions_against_the_formula():
    table = sinusoidal_positions(torch.arange(50)[None], 8)[0]
    for position, i in itertools.product(range(50), range(4)):
        angle = position / 10_000 ** (2 * i / 8)
        assert_close(table[position, 2 * i : 2 * i + 2], torch.tensor([math.sin(angle), math.cos(angle)]), **CLOSE)


# --- edges ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_of_padding_harms_nobody(family, way, dtype):
    """No NaN, forward and backward, and the other rows as without it; padding left, right and everywhere."""
    model = build("ForMaskedLM", **FAMILIES[family]).to(dtype)
    wanted = set_way(model, way)
    ids = torch.randint(1, VOCAB, (3, 10))
    mask = torch.stack([torch.zeros(10), torch.arange(10) < 6, torch.arange(10) >= 7]).long()
    labels = torch.where(mask > 0, ids, -100)
    outputs = model(ids, attention_mask=mask, labels=labels, **wanted)
    outputs.loss.backward()
    assert outputs.loss.isfinite() and not any(g.isnan().any() for g in gradients(model).values())
    model.eval()
    with torch.no_grad():
        logits = model(ids, attention_mask=mask, **wanted).logits
        fewer = model(ids[1:], attention_mask=mask[1:], **wanted).logits
        nothing = model(ids, attention_mask=torch.zeros(3, 10), **wanted).logits
    assert not logits.isnan().any() and not nothing.isnan().any() and nothing.shape == (3, 10, VOCAB)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing_gives_the_same_gradients(family):
    texts, found = Texts(), []
    for checkpointing in (False, True):
        model = build("ForMaskedLM", **FAMILIES[family]).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        layout = LAYOUTS["left"]
        model(**layout.inputs(texts, False), labels=layout.grid(texts.tokens, -100)).loss.backward()
        found.append(gradients(model))
    check_all(*found, "checkpointing")


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


def test_bad_input_is_refused():
    model = build("ForMaskedLM", **BERT)
    ids = torch.randint(1, VOCAB, (2, 9))
    embeds = torch.randn(2, 9, 16)
    for inputs in ({}, dict(input_ids=ids, inputs_embeds=embeds)):
        with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
            model(**inputs)
    for shape in ((2, 8), (9, 2), (1, 9), (2, 9, 9), (9,)):
        with pytest.raises(ValueError, match=r"attention_mask has the shape \(.*give"):
            model(ids, attention_mask=torch.ones(shape))
    long = torch.randint(1, VOCAB, (1, 41))
    for inputs in (dict(input_ids=long), dict(input_ids=ids, position_ids=torch.arange(32, 41)[None])):
        with pytest.raises(ValueError, match="position 40 is beyond max_position_embeddings=40: truncate"):
            model(**inputs)
    model(long, attention_mask=(torch.arange(41) > 0).long()[None])  # it is real tokens that count
    build("ForMaskedLM")(long)  # rotary positions have no table
