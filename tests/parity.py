"""Models of Transformers with random weights, norms and biases included, and their comparison with MiniBERTs.

Most of them count columns where MiniBERT counts real tokens, so the native model is handed the same rows with their
real tokens moved to the left; what it gives is compared with what MiniBERT gives at the real positions of the rows as
they were.
"""

import copy

import torch
import transformers
from torch.nn import functional as F

from minibert.training.conversion import ARCHITECTURES, from_native
from minibert.training.conversion.compare import OUTPUT_NAMES

BATCH, LENGTH, VOCAB, CHOICES, LABELS = 4, 64, 97, 2, 3
TOLERANCE = dict(rtol=0, atol=1e-5)

SEQUENCE_HEADS = ("ForSequenceClassification", "ForMultipleChoice", "ForNextSentencePrediction")

QUIET = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SHAPES = {
    "bert": {
        "plain": dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64),
        "deep": dict(hidden_size=24, num_hidden_layers=5, num_attention_heads=2, intermediate_size=56,
                     hidden_act="gelu_new", type_vocab_size=3, layer_norm_eps=1e-6),
        "untied": dict(hidden_size=40, num_hidden_layers=3, num_attention_heads=5, intermediate_size=32,
                       hidden_act="silu", tie_word_embeddings=False, pad_token_id=7),
    },
    "modernbert": {
        "plain": dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48,
                      local_attention=8),
        "biased": dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=40,
                       local_attention=7, attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True,
                       classifier_pooling="mean", hidden_activation="gelu_new", classifier_activation="silu",
                       rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
        "local": dict(hidden_size=40, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
                      local_attention=4, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                      decoder_bias=False, tie_word_embeddings=False, norm_eps=1e-3, classifier_pooling="mean"),
    },
    "roberta": {
        "plain": dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                      type_vocab_size=1, layer_norm_eps=1e-5),
        "deep": dict(hidden_size=24, num_hidden_layers=5, num_attention_heads=2, intermediate_size=56,
                     type_vocab_size=2, hidden_act="silu", tie_word_embeddings=False, pad_token_id=4),
    },
    "distilbert": {
        "plain": dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64),
        "deep": dict(dim=24, n_layers=5, n_heads=2, hidden_dim=56, activation="silu", tie_word_embeddings=False),
    },
    "electra": {
        "plain": dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                      embedding_size=32, summary_last_dropout=0.0),
        "deep": dict(hidden_size=24, num_hidden_layers=4, num_attention_heads=2, intermediate_size=56,
                     hidden_act="relu", embedding_size=16, summary_last_dropout=0.0, summary_activation="tanh",
                     pad_token_id=7),
    },
    "albert": {
        "plain": dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
                      embedding_size=16),
        "deep": dict(hidden_size=24, num_hidden_layers=5, num_attention_heads=2, intermediate_size=56,
                     hidden_act="gelu_new", embedding_size=8, type_vocab_size=3, layer_norm_eps=1e-6,
                     tie_word_embeddings=False, pad_token_id=7),
    },
    "nomic_bert": {
        "plain": dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48),
        "deep": dict(hidden_size=24, num_hidden_layers=4, num_attention_heads=2, intermediate_size=40,
                     rope_parameters=dict(rope_type="yarn", rope_theta=500.0, factor=2.0,
                                          original_max_position_embeddings=40), tie_word_embeddings=False),
    },
    "jina_embeddings_v3": {
        "plain": dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48),
        "deep": dict(hidden_size=24, num_hidden_layers=4, num_attention_heads=2, intermediate_size=40,
                     rope_parameters=dict(rope_type="default", rope_theta=30.0), type_vocab_size=2, pad_token_id=5),
    },
    "eurobert": {
        "plain": dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
                      classifier_pooling="bos"),
        "biased": dict(hidden_size=24, num_hidden_layers=4, num_attention_heads=2, intermediate_size=40,
                       rope_parameters=dict(rope_type="default", rope_theta=30.0), attention_bias=True, mlp_bias=True,
                       classifier_pooling="mean", tie_word_embeddings=True, rms_norm_eps=1e-3),
    },
}  # fmt: skip
SHAPES["xlm-roberta"] = SHAPES["camembert"] = {"plain": SHAPES["roberta"]["plain"]}
FIELDS = {  # of every model of the architecture
    "eurobert": dict(pad_token_id=0, bos_token_id=2, eos_token_id=3, mask_token_id=4),
    "albert": QUIET | dict(classifier_dropout_prob=0.0),
    "distilbert": dict(dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, qa_dropout=0.0),
    "modernbert": dict(
        pad_token_id=0, bos_token_id=None, eos_token_id=3, cls_token_id=2, sep_token_id=3
    ),
}
# every layout and every shape once with every head
LAYOUTS = {
    "plain": ["full", "right"],
    "deep": ["left"],
    "untied": ["holes"],
    "biased": ["left"],
    "local": ["holes"],
}
HEADS = {name: list(architecture.classes) for name, architecture in ARCHITECTURES.items()}
EVERY_HEAD = [
    (name, shape, head) for name in HEADS for shape in SHAPES[name] for head in HEADS[name]
]


def make_native(architecture: str, shape: str, head: str, seed: int = 0, **fields):
    """A native model in which every parameter is random and large enough for differences to show."""
    found = ARCHITECTURES[architecture]
    given = dict(vocab_size=VOCAB, max_position_embeddings=80, initializer_range=0.1)
    no_labels = ("Model", "ForQuestionAnswering", "ForPreTraining")
    given |= {} if head in no_labels else dict(num_labels=LABELS)
    given |= dict(is_decoder=True) if head == "ForCausalLM" else {}
    given |= FIELDS.get(architecture, QUIET) | SHAPES[architecture][shape] | fields
    config = found.config_class(**given)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = getattr(transformers, found.classes[head])(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter) * (2 if parameter.ndim == 1 else 1)
    for name, twin in (model._tied_weights_keys or {}).items():
        if name.endswith(".bias"):  # where it is not tied, the twin is never used
            model.get_parameter(twin).data = model.get_parameter(name).data.clone()
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
        torch.manual_seed(
            len(layout) + 10 * segments
        )  # fixed: where ReLU bends, fp32 may go either way
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
        if head == "ForReplacedTokenDetection":
            labels["labels"] = torch.randint(2, (rows, LENGTH))
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
        return (
            sum(
                F.cross_entropy(x.masked_fill(padding, float("-inf")), y)
                for x, y in zip(logits, targets)
            )
            / 2
        )
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
        parameter.data = (
            torch.zeros_like(original) if original.grad is None else original.grad.clone()
        )
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
    names = [
        name
        for name in theirs
        if "logits" in name or name in ("last_hidden_state", "pooler_output")
    ]
    assert names
    for name in names:
        close(name, mine[OUTPUT_NAMES.get(name, name)], theirs[name])
    for layer, (actual, expected) in enumerate(
        zip(mine.hidden_states or (), theirs.hidden_states or (), strict=True)
    ):
        close(f"hidden state {layer}", actual, expected)
    seen = real[:, None, :, None] & real[:, None, None, :]
    for layer, (actual, expected) in enumerate(
        zip(mine.attentions or (), theirs.attentions or (), strict=True)
    ):
        close(f"attention {layer}", batch.compact_attentions(actual), expected * seen)
    close("loss", our_loss(head, mine, batch), native_loss(head, theirs, batch))


def check_gradients(native, ours, head: str, batch: Batch):
    """The loss in training mode, where MiniBERT's vocabulary meets labelled positions only, and its gradients."""
    losses = []
    for model, loss_of, inputs in (
        (native, native_loss, batch.native),
        (ours, our_loss, batch.ours),
    ):
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
    if isinstance(native, transformers.AlbertForPreTraining):
        batch.native["sentence_order_label"] = batch.native.pop("next_sentence_label")
    layers = dict(output_hidden_states=True, output_attentions=True)
    with torch.no_grad():
        theirs = native.eval()(**batch.native, **layers)
        plain = native(**batch.native)
        for attention, wanted, expected in (
            ("sdpa", {}, plain),  # without padding
            (
                "sdpa",
                dict(output_hidden_states=True),
                native(**batch.native, output_hidden_states=True),
            ),
            ("eager", layers, theirs),
        ):
            ours.set_attn_implementation(attention)
            check_outputs(expected, ours.eval()(**batch.ours, **wanted), head, batch)
    for attention in ("sdpa", "eager"):
        ours.set_attn_implementation(attention)
        check_gradients(native, ours, head, batch)


def assert_same_weights(actual, expected):
    actual, expected = actual.state_dict(), expected.state_dict()
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype and torch.equal(actual[name], tensor), name
