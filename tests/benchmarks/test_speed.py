"""The benchmark of speed: equal work on all sides, and honest arithmetic."""

import numpy as np
import pytest
import speed
import torch
import workloads
from common import Corpus
from torch.utils.flop_counter import FlopCounterMode

from minibert import MiniBertConfig, MiniBertForMaskedLM

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """60 documents of 1 to 120 words."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    lengths = np.geomspace(1, 120, 60).astype(int)
    path.write_text(
        "\n".join(" ".join(rng.choice(WORDS, length)) for length in lengths) + "\n",
        encoding="utf-8",
    )
    return workloads.Run(CPU, quick=True, compile=False, corpus=Corpus([str(path)]))


# --- equal work ---


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_language_models_compute_the_same_loss(run, family):
    config = run.config(f"{family}-tiny", hidden_dropout=0.0, attention_dropout=0.0)
    batches = run.text.natural(2, 4, 64)
    losses = {}
    for name, build in {
        "ours": MiniBertForMaskedLM,
        "native": workloads.native_masked_lm,
        "sparse": workloads.sparse_masked_lm,
    }.items():
        step = workloads.ModelStep(
            build, config, batches, CPU, torch.float32, training=True, compiled=False
        )
        losses[name] = torch.stack([step(number) for number in (0, 1, 0)])
    assert losses["ours"][2] < losses["ours"][0]  # it learns
    torch.testing.assert_close(losses["native"], losses["ours"], atol=2e-4, rtol=0)
    torch.testing.assert_close(losses["sparse"], losses["native"], atol=2e-4, rtol=0)


@pytest.mark.parametrize("name", ["infer-mixed/bert-base/fp32", "infer-mixed/modernbert-base/fp32"])
def test_encoders_compute_the_same(run, name):
    built = workloads.BENCHMARKS[name].build(run)
    ours, theirs = (build()(0) for build in built.steps.values())
    lengths = torch.linspace(16, 512, 32).int() // 32
    lengths = lengths.clamp(min=1)
    assert built.tokens == lengths.sum() and built.places == len(lengths) * lengths.max()
    for ours_s, theirs_s, length in zip(ours, theirs, lengths):
        torch.testing.assert_close(ours_s[:length], theirs_s[:length], atol=1e-4, rtol=1e-4)


# --- FLOPs ---


@pytest.mark.parametrize("training", [False, True])
def test_model_flops_against_counted_ones(training):
    """Torch counts the products of Transformers' own BERT, one full-length document, a logit for every token."""
    length = 24
    config = MiniBertConfig.bert("tiny", vocab_size=100, hidden_dropout=0.0, attention_dropout=0.0)
    model = workloads.native_masked_lm(config)
    model.set_attn_implementation("eager")
    ids = torch.randint(5, 100, (1, length))
    with FlopCounterMode(display=False) as counter:
        loss = model(ids, labels=ids).loss
        if training:
            loss.backward()
    assert workloads.model_flops(config, [length], length, training) == counter.get_total_flops()


# --- every benchmark ---


@pytest.mark.parametrize("name", workloads.BENCHMARKS)
def test_every_benchmark_can_be_built(run, name):
    """With MiniBERT first, and ratios between models that are there."""
    built = workloads.BENCHMARKS[name].build(run)
    assert next(iter(built.steps)).startswith("MiniB")
    assert {
        entry for ratio in built.ratios for entry in (ratio.numerator, ratio.denominator)
    } <= set(built.steps)
    assert built.ratios


def test_a_training_benchmark_from_end_to_end(run, tmp_path):
    arguments = speed.Arguments(
        ["train-natural/bert-mini/fp32"],
        output=str(tmp_path / "speed.json"),
        device="cpu",
        rounds=1,
        quick=True,
    )
    (result,) = speed.main(run.corpus, arguments)
    assert not result["failed"] and (tmp_path / "speed.json").exists()
    assert list(result["measured"]) == [
        "MiniBertForMaskedLM",
        "BertForMaskedLM",
        "BertForMaskedLM, sparse head",
    ]
    assert 0 < result["tokens"] < result["places"]
    for ratio in result["ratios"]:
        over, under = (
            result["measured"][ratio[side]]["samples"] for side in ("numerator", "denominator")
        )
        assert ratio["median"] == np.median(over) / np.median(under)
