"""`minibert bench`: equal work on all sides, honest arithmetic, resumption, and nothing started on bad input."""

import itertools
import json
import os
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from minibert.configuration_minibert import MiniBertConfig
from minibert.modeling_minibert import MiniBertForMaskedLM, MiniBertModel
from minibert.training import report
from minibert.training.arguments.pretraining import CorpusArguments
from minibert.training.arguments.tools import BenchArguments
from minibert.training.bench import benchmarks, measure, work
from minibert.training.bench import run as bench_run
from minibert.training.bench.work import Text
from minibert.training.cli import main as cli

CPU = torch.device("cpu")
WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """60 documents of 1 to 120 words."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    lengths = np.geomspace(1, 120, 60).astype(int)
    path.write_text("\n".join(" ".join(rng.choice(WORDS, length)) for length in lengths) + "\n", encoding="utf-8")
    return CorpusArguments(data=[str(path)], sample_by="line")


@pytest.fixture(scope="module")
def run(corpus):
    return work.Run(CPU, quick=True, compile=False, corpus=corpus)


# --- equal work ---


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_language_models_compute_the_same_loss(run, family):
    config = run.config(f"{family}-tiny", hidden_dropout=0.0, attention_dropout=0.0)
    batches = run.text.natural(2, 4, 64)
    losses = {}
    for name, build in {
        "ours": MiniBertForMaskedLM,
        "native": benchmarks.native_masked_lm,
        "sparse": benchmarks.sparse_masked_lm,
    }.items():
        step = work.ModelStep(build, config, batches, CPU, torch.float32, training=True, compiled=False)
        losses[name] = torch.stack([step(number) for number in (0, 1, 0)])
    assert losses["ours"][2] < losses["ours"][0]  # it learns
    torch.testing.assert_close(losses["native"], losses["ours"], atol=2e-4, rtol=0)
    torch.testing.assert_close(losses["sparse"], losses["native"], atol=2e-4, rtol=0)


@pytest.mark.parametrize("name", ["infer-mixed/bert-base/fp32", "infer-mixed/modernbert-base/fp32"])
def test_encoders_compute_the_same(run, name):
    built = benchmarks.BENCHMARKS[name].build(run)
    ours, theirs = (build()(0) for build in built.steps.values())
    lengths = torch.linspace(16, 512, 32).int() // 32
    lengths = lengths.clamp(min=1)
    assert built.tokens == lengths.sum() and built.places == len(lengths) * lengths.max()
    for ours_s, theirs_s, length in zip(ours, theirs, lengths):
        torch.testing.assert_close(ours_s[:length], theirs_s[:length], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", ["forward", "forward-backward"])
def test_local_attention_computes_the_same(run, shape):
    built = benchmarks.BENCHMARKS[f"local-attention/{shape}/fp32"].build(run)
    ours, theirs = (build()(0) for build in built.steps.values())
    for ours_t, theirs_t in zip(ours, theirs):
        torch.testing.assert_close(ours_t, theirs_t, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_peers_have_as_many_parameters(family):
    config = getattr(MiniBertConfig, family)("tiny", vocab_size=100, pad_token_id=0)
    for ours, peer in ((MiniBertModel, benchmarks.native_encoder), (MiniBertForMaskedLM, benchmarks.sparse_masked_lm)):
        assert peer(config).num_parameters() == ours(config).num_parameters()


def test_deberta_has_the_same_shape():
    config = MiniBertConfig.modernbert("tiny", vocab_size=100, pad_token_id=0, add_pooling_layer=False)
    ours, theirs = MiniBertModel(config), benchmarks.deberta_encoder(config)
    assert theirs.config.relative_attention and len(theirs.encoder.layer) == len(ours.layers)
    layer = theirs.encoder.layer[0]
    mlp = [layer.intermediate.dense.weight, layer.output.dense.weight]
    mlp_ours = [ours.layers[0].mlp.Wi.weight, ours.layers[0].mlp.Wo.weight]
    assert sum(map(torch.numel, mlp)) == sum(map(torch.numel, mlp_ours))


def test_a_backend_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(benchmarks.INSTALLED, "flash_attention_2", lambda: False)
    config = MiniBertConfig.modernbert("tiny", add_pooling_layer=False)
    with pytest.raises(ImportError, match="not installed"):
        benchmarks.with_attention(benchmarks.native_encoder, "flash_attention_2", config)


# --- the text ---


def test_natural_batches_are_padded_to_their_longest(run):
    batches = run.text.natural(2, 4, 64)
    assert len(batches) == 2
    for batch in batches:
        mask, labels = batch["attention_mask"], batch["labels"]
        assert set(batch) == {"input_ids", "attention_mask", "labels"}
        assert mask.shape == (4, mask.sum(1).max())
        assert mask.shape[1] <= 64 and (labels != -100).any() and not (labels != -100)[mask == 0].any()
        assert work.document_lengths(batch) == mask.sum(1).tolist()
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
        assert work.document_lengths(batch) == lengths
        restarts = (positions == 0) & (batch["labels"] == -100)
        assert (ids[restarts] == run.text.tokenizer.cls_token_id).all()


def test_a_small_corpus_is_read_again(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text(" ".join(WORDS) + "\n", encoding="utf-8")
    text = Text(CorpusArguments(data=[str(path)]), quick=True)
    assert text.packed(2, 3, 100)[1]["input_ids"].shape == (3, 100)
    assert text.natural(2, 3, 100)[1]["input_ids"].shape[0] == 3


# --- the attention that runs ---


def test_attention_of_a_model_as_it_runs(run):
    """By type of layer, for the batch, the mode and the precision that are timed; a peer has none of ours."""
    config = run.config("modernbert-tiny", attention_dropout=0.1)
    batches = run.text.natural(1, 4, 64)
    found = {}
    for training in (True, False):
        step = work.ModelStep(MiniBertForMaskedLM, config, batches, CPU, torch.float32, training, compiled=False)
        found[training] = step.attention()
        assert set(found[training]) == {"full_attention", "sliding_attention"}
        assert all(found[training].values())
    assert "dropout" in found[True]["full_attention"] and "dropout" not in found[False]["full_attention"]
    peer = work.ModelStep(benchmarks.native_masked_lm, config, batches, CPU, torch.float32, True, compiled=False)
    assert peer.attention() == {}


@pytest.fixture
def light_compiler(monkeypatch):
    """Graphs are captured as ever, but not turned into machine code."""
    compiled = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model: compiled(model, backend="eager"))


@pytest.mark.parametrize("model", [MiniBertForMaskedLM, MiniBertModel])
def test_attention_of_a_compiled_model(run, light_compiler, model):
    """A compiled graph on CPU computes padded rows, which the model that was not compiled does not."""
    config = run.config("modernbert-tiny", add_pooling_layer=False)
    batches = run.text.natural(1, 4, 64)
    if model is MiniBertModel:
        batches = [{name: x for name, x in batches[0].items() if name != "labels"}]
    training = model is MiniBertForMaskedLM
    plain, compiled = (
        work.ModelStep(model, config, batches, CPU, torch.float32, training, each).attention().values()
        for each in (False, True)
    )
    assert all("padded rows" in reason for reason in compiled)
    assert not any("padded rows" in reason for reason in plain)


def test_compiling_is_not_timed(run, light_compiler):
    """Of a step that has been built every batch has its graph."""
    config, batches = run.config("bert-tiny"), run.text.natural(3, 4, 64)
    step = work.ModelStep(MiniBertForMaskedLM, config, batches, CPU, torch.float32, training=True, compiled=True)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert all(step(number).isfinite() for number in range(3))


def test_what_compiling_gains_is_against_a_model_that_is_not_compiled(run, light_compiler):
    """Also with --compile."""
    compiling = work.Run(CPU, quick=True, compile=True, corpus=run.corpus)
    built = benchmarks.BENCHMARKS["train-compiled/bert-small/fp32"].build(compiling)
    assert [build().compiled for build in built.steps.values()] == [False, True]


# --- FLOPs ---


@pytest.mark.parametrize("training", [False, True])
def test_model_flops_against_counted_ones(training):
    """Torch counts the products of Transformers' own BERT, one full-length document, a logit for every token."""
    length = 24
    config = MiniBertConfig.bert("tiny", vocab_size=100, hidden_dropout=0.0, attention_dropout=0.0)
    model = benchmarks.native_masked_lm(config)
    model.set_attn_implementation("eager")
    ids = torch.randint(5, 100, (1, length))
    with FlopCounterMode(display=False) as counter:
        loss = model(ids, labels=ids).loss
        if training:
            loss.backward()
    assert work.model_flops(config, [length], length, training) == counter.get_total_flops()


def test_tokens_seen():
    for length, window in itertools.product((1, 2, 5, 9, 20), (1, 4, 8, None)):
        i = np.arange(length)
        near = np.abs(i - i[:, None]) <= (length if window is None else window)
        assert work.tokens_seen(length, window) == near.sum()


def test_padding_and_windows_in_model_flops():
    config = MiniBertConfig.modernbert("tiny", vocab_size=100, pad_token_id=0)
    one, several = work.model_flops(config, [400], 0, False), work.model_flops(config, [100] * 4, 0, False)
    local, full = config.layer_types.count("sliding_attention"), config.layer_types.count("full_attention")
    window = config.sliding_window
    seen = [full * n * n + local * (n * (2 * window + 1) - window * (window + 1)) for n in (400, 100)]
    assert one - several == 4 * config.hidden_size * (seen[0] - 4 * seen[1])
    head = config.hidden_size * (config.hidden_size + config.vocab_size)
    assert work.model_flops(config, [400], 7, False) - one == 2 * 7 * head


# --- rounds ---


@pytest.fixture
def clock(monkeypatch):
    """A clock that only steps move."""
    clock = types.SimpleNamespace(now=0.0, log=[])
    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock.now)

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
    times, failed, _ = measure.interleave(builders, 2, 2, CPU, limit=1e9)
    assert times == {"a": [3.0, 7.0], "b": [30.0, 70.0]} and not failed
    warm_up = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    first = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    second = [("b", 0), ("a", 0), ("b", 1), ("a", 1)]  # the other one begins
    assert clock.log == warm_up + first + second


def test_short_calls_are_repeated(clock):
    builders = {"short": clock.builder("short", itertools.repeat(0.03)), "long": clock.builder("long", [9.0, 5.0])}
    times, *_ = measure.interleave(builders, 1, 1, CPU, limit=1e9, shortest=0.1)
    assert times["long"] == [5.0] and times["short"] == [pytest.approx(0.03)]
    assert clock.log.count(("short", 0)) == 2 + 4  # twice to warm up, then as often as 0.1 s takes


def test_no_round_begins_after_the_limit(clock):
    builders = {"a": clock.builder("a", itertools.repeat(10.0))}
    times, *_ = measure.interleave(builders, 1, 9, CPU, limit=25.0)
    assert times == {"a": [10.0, 10.0]}
    times, *_ = measure.interleave(builders, 1, 9, CPU, limit=1.0)
    assert times == {"a": [10.0]}


def test_what_fails_does_not_stop_the_others(clock):
    def broken():
        raise MemoryError("too large\nand more")

    times, failed, _ = measure.interleave({"broken": broken, "a": clock.builder("a", [1.0, 2.0])}, 1, 1, CPU, 1e9)
    assert times == {"a": [2.0]} and failed == {"broken": "MemoryError: too large"}
    assert measure.interleave({"broken": broken}, 1, 3, CPU, 1e9)[:2] == ({}, {"broken": "MemoryError: too large"})


# --- the arithmetic of a result ---


def hand_made(measure="seconds", **changes):
    fields = dict(steps={}, calls=1, dtype=torch.float32, tokens=600, flops=1e9)
    ratios = [work.Ratio("peer", "ours", 3.0)]
    samples = {"ours": [1.0, 3.0, 2.0], "peer": [8.0, 5.0, 7.0]}
    made = work.Benchmark("made/by/hand", "", lambda run: None, measure)
    return bench_run.describe(made, work.Work(**fields | {"ratios": ratios} | changes), samples, {}, rate=2e9)


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


@pytest.mark.parametrize(
    ("bounds", "reached"),
    [((3.6,), False), ((3.5, True), True), ((3.4, True), False), ((), None)],
)
def test_bounds(bounds, reached):
    (ratio,) = hand_made(ratios=[work.Ratio("peer", "ours", *bounds)])["ratios"]
    assert ratio["reached"] is reached


def test_no_ratio_without_both_sides():
    assert hand_made(ratios=[work.Ratio("absent", "ours", 1.0)])["ratios"] == []


def test_table():
    results = [
        hand_made(),
        {"benchmark": "broken/one", "what": "", "measured": {}, "failed": {"MiniBERT": "ValueError: a"}},
    ]
    results[0]["failed"] = {"third": "MemoryError"}
    lines = report.bench_table(results).splitlines()
    assert len(lines) == 1 + 3 + 1
    assert "3.50× (5.00×) ours" in lines[2] and "≥ 3× reached" in lines[2] and "25.0%" in lines[1]
    assert "third: FAILED: MemoryError" in lines[3] and "MiniBERT: FAILED: ValueError: a" in lines[4]


# --- memory, and processes of their own ---


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is measured on Linux")
def test_peak_memory_is_what_the_call_needs():
    size = 64 << 20
    del (earlier := [torch.ones(size, dtype=torch.uint8) for _ in range(4)])[:]

    def call():
        for _ in range(3):  # one after the other: the peak is that of one
            torch.ones(size, dtype=torch.uint8)

    assert size * 0.95 < measure.peak_memory(call, CPU) < size * 1.3
    assert not earlier


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is measured on Linux")
def test_memory_in_a_process_of_its_own(run):
    outcome = measure.probe("memory-8192/modernbert-base/fp32", "ModernBertModel", run, limit=300.0)
    # at least the hidden states of a layer, 256 tokens × 128 × 4 bytes; at most nowhere near the process itself
    assert 256 * 128 * 4 <= outcome["bytes"] < 100 << 20


def test_memory_benchmark(run, monkeypatch):
    used = {"MiniBertModel": 100, "ModernBertModel": 400}
    monkeypatch.setattr(bench_run, "probe", lambda benchmark, name, run, limit: {"bytes": used[name]})
    chosen = benchmarks.BENCHMARKS["memory-8192/modernbert-base/fp32"]
    (ratio,) = bench_run.measure_benchmark(chosen, run, rounds=3, limit=1.0)["ratios"]
    assert (ratio["numerator"], ratio["median"]) == ("MiniBertModel", 0.25)


@pytest.mark.parametrize(
    ("status", "stderr", "reason"),
    [
        (-9, "", "killed by the system: out of memory"),
        (1, "Traceback …\nRuntimeError: can't allocate memory\n", "RuntimeError: can't allocate memory"),
        (-11, "", "exit status -11"),
    ],
)
def test_a_process_that_fails(run, monkeypatch, status, stderr, reason):
    done = types.SimpleNamespace(returncode=status, stdout="", stderr=stderr)
    monkeypatch.setattr(measure.subprocess, "run", lambda *arguments, **keywords: done)
    assert measure.probe(NAMES[0], "MiniBertModel", run, limit=1.0) == {"failed": reason}


def test_a_process_that_takes_too_long(run):
    assert measure.probe(NAMES[0], "MiniBertModel", run, limit=0.01) == {"failed": "not done within 0.01 s"}


def test_guarded_steps_run_in_their_own_process_first(run, clock, monkeypatch):
    def build(run):
        steps = {"ours": clock.builder("ours", itertools.repeat(1.0)), "peer": lambda: pytest.fail("it was started")}
        return work.Work(steps, 1, torch.float32, [work.Ratio("peer", "ours")], guarded=("peer",))

    monkeypatch.setattr(bench_run, "probe", lambda benchmark, name, run, limit: {"failed": f"{name} is stuck"})
    full = work.Run(CPU, quick=False, compile=False, corpus=run.corpus)
    result = bench_run.measure_benchmark(work.Benchmark("x/y/z", "", build), full, rounds=2, limit=1e9)
    assert result["failed"] == {"peer": "peer is stuck"} and result["ratios"] == []
    assert result["measured"]["ours"]["samples"] == [1.0, 1.0]


# --- every benchmark ---


@pytest.mark.parametrize("name", benchmarks.BENCHMARKS)
def test_every_benchmark_can_be_built(run, name):
    """With MiniBERT first, and ratios between models that are there."""
    built = benchmarks.BENCHMARKS[name].build(run)
    assert next(iter(built.steps)).startswith("MiniB")
    assert {entry for ratio in built.ratios for entry in (ratio.numerator, ratio.denominator)} <= set(built.steps)
    assert built.ratios


@pytest.mark.slow
def test_gpu_benchmark_without_gpu(run):
    """Its models run on CPU too, but for the backends that this machine does not have."""
    with torch.compiler.set_stance("force_eager"):
        chosen = benchmarks.BENCHMARKS["train-packed-1024/modernbert-mini/bf16"]
        result = bench_run.measure_benchmark(chosen, run, rounds=1, limit=60.0)
    missing = {name for name in result["failed"] if "flash" in name or "flex" in name}
    assert set(result["failed"]) == missing
    assert {"MiniBertForMaskedLM", "ModernBertForMaskedLM"} <= set(result["measured"])
    assert "ModernBertForMaskedLM, sparse_prediction, sdpa" in result["measured"]


# --- the command ---

NAMES = ["infer-length-128/modernbert-small/fp32", "infer-length-256/modernbert-small/fp32"]


@pytest.fixture
def bench(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["--quick", "--rounds", "1", "--data", *corpus.data, "--sample_by", "line", "--device", "cpu"]
    return lambda *words: cli.main(["bench", *argv, *words])


def test_results_are_kept_shown_and_drawn(bench, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    assert bench("infer-length-128/modernbert-small/fp", NAMES[1], "--output", str(out)) == 0
    shown = capsys.readouterr().out
    assert "  sliding_attention: " in shown and "ratio of medians" in shown and "MFU = " in shown
    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")
    files = sorted(path.name for path in out.glob("*.json"))
    assert files == [name.replace("/", ".") + ".json" for name in NAMES]
    saved = [json.loads((out / name).read_text()) for name in files]

    # a finished benchmark is not run again
    with monkeypatch.context() as patch:
        patch.setattr(bench_run, "measure_benchmark", lambda *arguments: pytest.fail("it ran again"))
        assert bench(*NAMES, "--output", str(out)) == 0
    assert NAMES[0] in capsys.readouterr().out
    for result in saved:
        for ratio in result["ratios"]:
            over, under = (result["measured"][ratio[side]] for side in ("numerator", "denominator"))
            assert ratio["median"] == np.median(over["samples"]) / np.median(under["samples"])
            assert ratio["min"] == min(over["samples"]) / min(under["samples"])
            assert ratio["target"] is None  # quick

    # what was measured otherwise is not shown as if it were this
    assert bench(*NAMES, "--output", str(out), "--rounds", "2") == 2 and "rounds: " in capsys.readouterr().err

    # unless that is wished
    again = types.SimpleNamespace(count=0)

    def counted(benchmark, *arguments):
        again.count += 1
        return saved[NAMES.index(benchmark.name)]

    monkeypatch.setattr(bench_run, "measure_benchmark", counted)
    assert bench(*NAMES, "--output", str(out), "--overwrite") == 0 and again.count == 2


def test_bench_returns_its_results(corpus, tmp_path):
    arguments = BenchArguments(
        ["local-attention/forward/fp32"], output=str(tmp_path), device="cpu", rounds=1, quick=True
    )
    (result,) = bench_run.bench(corpus, arguments)
    assert result["benchmark"] == "local-attention/forward/fp32" and len(result["measured"]) == 2
    assert result == json.loads((tmp_path / "local-attention.forward.fp32.json").read_text())
    listed = bench_run.bench(corpus, BenchArguments(device="cpu", list_benchmarks=True))
    assert {"benchmark": result["benchmark"], "what": result["what"]} in listed


@pytest.mark.parametrize("fast", [True, False])
def test_bf16_where_it_is_slow_is_measured_only_by_name(fast, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "fast_bf16", lambda device: (fast, "no bf16 here"))
    tried = []
    monkeypatch.setattr(bench_run, "measure_benchmark", lambda benchmark, *given: tried.append(benchmark.name) or 1 / 0)
    for names in ([], ["train-natural/bert-mini/bf16"]):
        with pytest.raises(ValueError, match="failed: "):
            bench_run.bench(corpus, BenchArguments(names, device="cpu", output=str(tmp_path)))
        assert any(name.endswith("bf16") for name in tried) == (fast or bool(names))
        assert ("no bf16 here" in capsys.readouterr().out) == (not fast and not names)


def test_training_benchmark(bench, tmp_path):
    assert bench("train-natural/bert-mini/bf16") == 0
    result = json.loads((tmp_path / "runs/bench/train-natural.bert-mini.bf16.json").read_text())
    assert result["dtype"] == "bfloat16" and not result["failed"]
    assert list(result["measured"]) == ["MiniBertForMaskedLM", "BertForMaskedLM", "BertForMaskedLM, sparse head"]
    assert 0 < result["tokens"] < result["places"] and result["matrix_flops_per_second"] > 0
    assert all(entry["mfu"] > 0 for entry in result["measured"].values())
    assert [ratio["numerator"] for ratio in result["ratios"]] == list(result["measured"])[1:]


@pytest.mark.parametrize("alone", [True, False], ids=["MiniBERT alone", "all of it"])
def test_a_benchmark_that_fails_is_named_and_left_for_the_next_time(bench, tmp_path, capsys, monkeypatch, alone):
    def measure_benchmark(benchmark, *arguments):
        if benchmark.name == NAMES[0] and alone:
            return hand_made() | {"benchmark": benchmark.name, "failed": {"MiniBertModel": said}}
        if benchmark.name == NAMES[0]:
            raise RuntimeError("no such luck")
        return hand_made() | {"benchmark": benchmark.name}

    said = "RuntimeError: no such luck"
    monkeypatch.setattr(bench_run, "measure_benchmark", measure_benchmark)
    assert bench(*NAMES, "--output", "out") == 2
    shown = capsys.readouterr()
    assert "FAILED: RuntimeError: no such luck" in shown.out and f"failed: {NAMES[0]}; see above" in shown.err
    assert [path.name for path in (tmp_path / "out").glob("*.json")] == [NAMES[1].replace("/", ".") + ".json"]


def test_list_benchmarks(bench, capsys):
    assert bench("--list_benchmarks") == 0
    shown = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in shown} == {b.name for b in benchmarks.BENCHMARKS.values() if "cpu" in b.devices}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["infer-9999"], "benchmarks: 'infer-9999' begins no name; use train-natural, "),
        (["train-packed-1024"], "benchmarks: 'train-packed-1024' begins no name"),
        (["local-attention", "--rounds=0"], "rounds: 0"),
        (["local-attention", "--benchmark_seconds=0"], "benchmark_seconds: 0"),
        (["local-attention", "--output=file"], "File exists: 'file'"),
        (["local-attention", "--output=other"], "was measured with False; use another output, or --overwrite"),
        (["local-attention", "--output=garbage"], "is no result of this command"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_refused_before_any_work(bench, tmp_path, capsys, monkeypatch, words, message):
    name = "local-attention.forward.fp32.json"
    (tmp_path / "file").write_text("")
    assert bench("local-attention/forward/fp32", "--output=other") == 0
    settings = json.loads((tmp_path / "other" / name).read_text())["settings"]
    capsys.readouterr()
    for folder, content in (("other", json.dumps({"settings": settings | {"quick": False}})), ("garbage", "{")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(content)
    before = sorted(os.walk(tmp_path))
    monkeypatch.setattr(bench_run, "measure_benchmark", lambda *arguments: pytest.fail("work began"))
    assert bench(*words) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1 and not shown.out
    assert sorted(os.walk(tmp_path)) == before


def test_text_that_is_not_there_is_refused_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench_run, "measure_benchmark", lambda *arguments: pytest.fail("work began"))
    assert cli.main(["bench", "--quick", "--data", "nowhere.txt", "--output", str(tmp_path / "out")]) == 2
    assert "data: 'nowhere.txt'" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_results_of_other_settings_are_refused(bench, capsys, monkeypatch):
    monkeypatch.setattr(
        bench_run, "measure_benchmark", lambda benchmark, *arguments: hand_made() | {"benchmark": benchmark.name}
    )
    assert bench("local-attention", "--output", "out") == 0
    capsys.readouterr()
    assert bench("local-attention", "--output", "out", "--compile") == 2
    assert "compile: True, but 'out/local-attention." in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_that_is_not_there():
    with pytest.raises(ValueError, match="device: 'cuda' is not there"):
        bench_run.choose_device("cuda")
    assert bench_run.choose_device("auto") == CPU
