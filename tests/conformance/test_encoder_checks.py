"""The checks of `encoder_checks`: a sound model passes every check, and models that break a truth are found."""

import math

import pytest
import torch
from encoder_checks import CHECKS, examine, load
from helpers import BERT, FAMILIES, build
from torch import nn
from transformers import BertConfig, BertForMaskedLM
from transformers import initialization as init
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

from minibert import MiniBertForMaskedLM

# --- models that break one truth each ---


class Forgets(MiniBertForMaskedLM):
    """What tells documents from each other, or padding from text, is taken and not used."""

    forgotten = ()

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, inputs_embeds=None, seq_idx=None,
                labels=None, **kwargs):  # fmt: skip
        given = dict(
            attention_mask=attention_mask, position_ids=position_ids, seq_idx=seq_idx, **kwargs
        )
        given = {name: None if name in self.forgotten else x for name, x in given.items()}
        return super().forward(input_ids, inputs_embeds=inputs_embeds, labels=labels, **given)


def forgets(*names: str) -> type:
    return type("ForgetsForMaskedLM", (Forgets,), {"forgotten": names})


class CountsColumnsForMaskedLM(MiniBertForMaskedLM):
    """Padding on the left moves the positions."""

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, seq_idx=None, **kwargs
    ):
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1]).expand(input_ids.shape)
            seq_idx = torch.zeros_like(position_ids)
        return super().forward(
            input_ids, attention_mask, position_ids=position_ids, seq_idx=seq_idx, **kwargs
        )


class CountsAloneForMaskedLM(MiniBertForMaskedLM):
    """The mean of every micro-batch, whatever `Trainer` counts; not a number where there is no target."""

    def forward(self, input_ids=None, labels=None, num_items_in_batch=None, **kwargs):
        outputs = super().forward(input_ids, labels=labels, sparse_prediction=False, **kwargs)
        if labels is not None:
            outputs.loss = nn.functional.cross_entropy(
                outputs.logits.flatten(0, 1), labels.flatten()
            )
        return outputs


class InitialisesContainersForMaskedLM(BertForMaskedLM):
    """As ModernBERT does it, which Transformers skips in classes that are not its own."""

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, BertPredictionHeadTransform):
            init.normal_(module.dense.weight, std=0.05)


class WiderWindowForMaskedLM(MiniBertForMaskedLM):
    def __init__(self, config):
        super().__init__(config)
        self.model.reach = {name: reach and reach + 1 for name, reach in self.model.reach.items()}


BROKEN = {
    "packed position_ids": forgets("position_ids"), "packed seq_idx": forgets("seq_idx"),
    "packed cu_seq_lens": forgets("cu_seq_lens_q"), "packed mask": forgets("attention_mask", "position_ids"),
    "padding right": forgets("attention_mask"), "padding left": CountsColumnsForMaskedLM,
    "accumulation": CountsAloneForMaskedLM, "no target": CountsAloneForMaskedLM,
    "new weights": InitialisesContainersForMaskedLM, "window": WiderWindowForMaskedLM,
}  # fmt: skip


def broken(check: str):
    kind = BROKEN[check]
    torch.manual_seed(0)
    if issubclass(kind, BertForMaskedLM):
        return kind(BertConfig(vocab_size=61, hidden_size=64, num_hidden_layers=1, num_attention_heads=2,
                               intermediate_size=64))  # fmt: skip
    absolute = BERT if check == "padding left" else {}  # where a position is more than a distance
    return kind(build("ForMaskedLM", **absolute).config).eval()


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_model_is_found(check):
    finding = examine(broken(check), check)
    assert finding.verdict == "fail", finding
    assert not finding.measured <= 5 * finding.limit


# --- models that hold ---


@pytest.mark.one_in(4)
@pytest.mark.parametrize("family", FAMILIES)
def test_minibert_passes(family):
    """New ones, whose biases are 0."""
    findings = [examine(load("MiniBertForMaskedLM", FAMILIES[family]), name) for name in CHECKS]
    assert not [each for each in findings if each.verdict == "fail"]
    absent = {each.check for each in findings if each.verdict == "not applicable"}
    assert absent == ({"positions shifted", "window"} if family == "bert" else set())


@pytest.mark.parametrize(("head", "fields"), [
    ("ForSequenceClassification", dict(num_labels=1)),
    ("ForSequenceClassification", dict(num_labels=3, problem_type="multi_label_classification")),
    ("ForTokenClassification", dict(num_labels=2)),
])  # fmt: skip
def test_what_was_fine_tuned_passes(head, fields, tmp_path):
    """Values, several labels and few classes; whatever precision it was saved in."""
    build(head, **fields).to(torch.bfloat16).save_pretrained(tmp_path)
    model = load(str(tmp_path))
    verdicts = {
        name: examine(model, name).verdict
        for name in ("padding right", "accumulation", "no target")
    }
    values = head == "ForSequenceClassification"  # which no -100 leaves out
    assert verdicts.pop("no target") == ("not applicable" if values else "pass")
    assert set(verdicts.values()) == {"pass"}


def test_checks_that_do_not_apply_say_why():
    """A reason for each, and no verdict."""
    for kind, check, reason in (
        ("BertModel", "accumulation", "no loss"),
        ("BertForMaskedLM", "packed seq_idx", "takes no seq_idx"),
        ("BertForSequenceClassification", "packed mask", "one answer a row"),
        ("BertForMaskedLM", "window", "no local layers"),
        ("BertForMaskedLM", "positions shifted", "absolute"),
    ):
        finding = examine(load(kind), check)
        assert (finding.verdict, finding.measured) == (
            "not applicable",
            None,
        ) and reason in finding.note


def test_a_check_that_breaks_is_a_failure():
    class Broken(MiniBertForMaskedLM):
        def forward(self, input_ids=None, **kwargs):
            raise RuntimeError("no\nway")

    finding = examine(Broken(build("ForMaskedLM").config), "padding right")
    assert (finding.verdict, finding.measured, finding.note) == (
        "fail",
        math.inf,
        "RuntimeError: no way",
    )
