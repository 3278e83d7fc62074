"""The benchmark of speed: equal work on all sides, and honest arithmetic."""

import itertools
import types

import numpy as np
import pytest
import speed
import torch
import workloads
from common import Corpus
from torch.utils.flop_counter import FlopCounterMode

from minibert import MiniBertConfig, MiniBertForMaskedLM, MiniBertModel

CPU = torch.device("cpu")
WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """60 documents of 1 to 120 words."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    lengths = np.geomspace(1, 120, 60).astype(int)
    path.write_text("\n".join(" ".join(rng.choice(WORDS, length)) for length in lengths) + "\n", encoding="utf-8")
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
        step = workloads.ModelStep(build, config, batches, CPU, torch.float32, training=True, compiled=False)
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


@pytest.mark.parametrize("shape", ["forward", "forward-backward"])
def test_local_attention_computes_the_same(run, shape):
    built = workloads.BENCHMARKS[f"local-attention/{shape}/fp32"].build(run)
    ours, theirs = (build()(0) for build in built.steps.values())
    for ours_t, theirs_t in zip(ours, theirs):
        torch.testing.assert_close(ours_t, theirs_t, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_peers_have_as_many_parameters(family):
    config = getattr(MiniBertConfig, family)("tiny", vocab_size=100, pad_token_id=0)
    for ours, peer in ((MiniBertModel, workloads.native_encoder), (MiniBertForMaskedLM, workloads.sparse_masked_lm)):
        assert peer(config).num_parameters() == ours(config).num_parameters()


def test_deberta_has_the_same_shape():
    config = MiniBertConfig.modernbert("tiny", vocab_size=100, pad_token_id=0, add_pooling_layer=False)
    ours, theirs = MiniBertModel(config), workloads.deberta_encoder(config)
    assert theirs.config.relative_attention and len(theirs.encoder.layer) == len(ours.layers)
    layer = theirs.encoder.layer[0]
    mlp = [layer.intermediate.dense.weight, layer.output.dense.weight]
    mlp_ours = [ours.layers[0].mlp.Wi.weight, ours.layers[0].mlp.Wo.weight]
    assert sum(map(torch.numel, mlp)) == sum(map(torch.numel, mlp_ours))


# --- the text ---


def test_natural_batches_are_padded_to_their_longest(run):
    batches = run.text.natural(2, 4, 64)
    assert len(batches) == 2
    for batch in batches:
        mask, labels = batch["attention_mask"], batch["labels"]
        assert set(batch) == {"input_ids", "attention_mask", "labels"}
        assert mask.shape == (4, mask.sum(1).max())
        assert mask.shape[1] <= 64 and (labels != -100).any() and not (labels != -100)[mask == 0].any()
        assert workloads.document_lengths(batch) == mask.sum(1).tolist()
        cls, sep = run.text.tokenizer.cls_token_id, run.text.tokenizer.sep_token_id
        assert (batch["input_ids"][:, 0] == cls).all()
        assert (batch["input_ids"][range(4), mask.sum(1) - 1] == sep).all()


def test_packed_batches_have_no_padding(run):
    for batch in run.text.packed(2, 4, 64):
        ids, positions = batch["input_ids"], batch["position_ids"]
        assert ids.shape == positions.shape == (4, 64) and batch["attention_mask"].all()
        lengths = []
        for row in positions.tolist():
            starts = [i for i in range(64) if i == 0 or row[i] != row[i - 1] + 1]
            lengths += [end - start for start, end in itertools.pairwise([*starts, 64])]
            assert all(row[start] == 0 for start in starts[1:])
        assert workloads.document_lengths(batch) == lengths
        restarts = (positions == 0) & (batch["labels"] == -100)
        assert (ids[restarts] == run.text.tokenizer.cls_token_id).all()


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


def test_tokens_seen():
    for length, window in itertools.product((1, 2, 5, 9, 20), (1, 4, 8, None)):
        i = np.arange(length)
        near = np.abs(i - i[:, None]) <= (length if window is None else window)
        assert workloads.tokens_seen(length, window) == near.sum()


def test_padding_and_windows_in_model_flops():
    config = MiniBertConfig.modernbert("tiny", vocab_size=100, pad_token_id=0)
    one, several = workloads.model_flops(config, [400], 0, False), workloads.model_flops(config, [100] * 4, 0, False)
    local, full = config.layer_types.count("sliding_attention"), config.layer_types.count("full_attention")
    window = config.sliding_window
    seen = [full * n * n + local * (n * (2 * window + 1) - window * (window + 1)) for n in (400, 100)]
    assert one - several == 4 * config.hidden_size * (seen[0] - 4 * seen[1])
    head = config.hidden_size * (config.hidden_size + config.vocab_size)
    assert workloads.model_flops(config, [400], 7, False) - one == 2 * 7 * head


# --- rounds ---


@pytest.fixture
def clock(monkeypatch):
    """A clock that only steps move."""
    clock = types.SimpleNamespace(now=0.0, log=[])
    monkeypatch.setattr(speed.time, "perf_counter", lambda: clock.now)

    def builder(name, durations):
        durations = iter(durations)

        def step(number):
            clock.log.append((name, number))
            clock.now += next(durations)

        return lambda: step

    clock.builder = builder
    return clock


def test_rounds_interleave_and_the_first_is_discarded(clock):
    builders = {
        "a": clock.builder("a", [100.0, 100.0, 1.0, 2.0, 3.0, 4.0]),
        "b": clock.builder("b", [100.0, 100.0, 10.0, 20.0, 30.0, 40.0]),
    }
    times, failed, _ = speed.interleave(builders, 2, 2, CPU, limit=1e9)
    assert times == {"a": [3.0, 7.0], "b": [30.0, 70.0]} and not failed
    warm_up = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    first = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    second = [("b", 0), ("a", 0), ("b", 1), ("a", 1)]  # the other one begins
    assert clock.log == warm_up + first + second


def test_short_calls_are_repeated(clock):
    builders = {"short": clock.builder("short", itertools.repeat(0.03)), "long": clock.builder("long", [9.0, 5.0])}
    times, *_ = speed.interleave(builders, 1, 1, CPU, limit=1e9, shortest=0.1)
    assert times["long"] == [5.0] and times["short"] == [pytest.approx(0.03)]
    assert clock.log.count(("short", 0)) == 2 + 4  # twice to warm up, then as often as 0.1 s takes


# --- the arithmetic of a result ---


def hand_made(measure="seconds", **changes):
    fields = dict(steps={}, calls=1, dtype=torch.float32, tokens=600, flops=1e9)
    ratios = [workloads.Ratio("peer", "ours", 3.0)]
    samples = {"ours": [1.0, 3.0, 2.0], "peer": [8.0, 5.0, 7.0]}
    made = workloads.Benchmark("made/by/hand", "", lambda run: None, measure)
    return speed.describe(made, workloads.Work(**fields | {"ratios": ratios} | changes), samples, {}, rate=2e9)


def test_ratios_are_of_medians_and_of_minima():
    result = hand_made()
    assert {name: (entry["median"], entry["min"]) for name, entry in result["measured"].items()} == {
        "ours": (2.0, 1.0),
        "peer": (7.0, 5.0),
    }
    (ratio,) = result["ratios"]
    assert (ratio["median"], ratio["min"], ratio["reached"]) == (3.5, 5.0, True)
    assert result["measured"]["ours"]["tokens_per_second"] == 300.0
    assert result["measured"]["ours"]["mfu"] == 0.25  # 1e9 operations in 2 s at 2e9 a second


def test_work_is_counted_of_one_architecture():
    """Those that are guarded are of another one, which computes more."""
    measured = hand_made(guarded=("peer",))["measured"]
    assert "mfu" in measured["ours"] and "mfu" not in measured["peer"]


# --- every benchmark ---


@pytest.mark.parametrize("name", workloads.BENCHMARKS)
def test_every_benchmark_can_be_built(run, name):
    """With MiniBERT first, and ratios between models that are there."""
    built = workloads.BENCHMARKS[name].build(run)
    assert next(iter(built.steps)).startswith("MiniB")
    assert {entry for ratio in built.ratios for entry in (ratio.numerator, ratio.denominator)} <= set(built.steps)
    assert built.ratios


def test_a_training_benchmark_from_end_to_end(run, tmp_path):
    arguments = speed.Arguments(
        ["train-natural/bert-mini/fp32"], output=str(tmp_path / "speed.json"), device="cpu", rounds=1, quick=True
    )
    (result,) = speed.main(run.corpus, arguments)
    assert not result["failed"] and (tmp_path / "speed.json").exists()
    assert list(result["measured"]) == ["MiniBertForMaskedLM", "BertForMaskedLM", "BertForMaskedLM, sparse head"]
    assert 0 < result["tokens"] < result["places"]
    for ratio in result["ratios"]:
        over, under = (result["measured"][ratio[side]]["samples"] for side in ("numerator", "denominator"))
        assert ratio["median"] == np.median(over) / np.median(under)
