"""benchmarks/gpu.py without a GPU: its batches and variants compute what the plain step does, and a
run ends in time."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import gpu
import gpu_learning
import gpu_measure
import gpu_models
import numpy as np
import pytest
import torch
from gpu_variants import VARIANTS, Step, capturing_allowed, prepare_batch
from transformers.utils import import_utils

from minibert import train_tokenizer

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
LENGTHS = [7, 30, 12, 32]
# The loss of a variant may differ from the plain step's by this much; bf16 states change the
# numbers.
TOLERANCE = {"bf16 residual": 2e-2, "graph, head, bf16": 2e-2}
# These need kernels that only a GPU has.
GPU_ONLY = ("FA3", "FA4")


@pytest.fixture(scope="module")
def plain():
    """Loss and gradients of the library's own step."""
    step = Step("MiniBERT", "tiny", VARIANTS["not compiled"], CPU)
    batch = gpu_models.build_batch("MiniBERT", LENGTHS, 30592)
    loss = step.forward_and_backward(batch)
    return batch, loss, gradients(step.model)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in GPU_ONLY])
def test_a_variant_computes_the_same(name, plain):
    torch._dynamo.reset()
    batch, loss, expected = plain
    step = Step("MiniBERT", "tiny", VARIANTS[name], CPU)
    tolerance = TOLERANCE.get(name, 1e-5)
    for _ in range(2):  # a graph is made, then used
        actual = step.forward_and_backward(prepare_batch(step, batch))
        torch.testing.assert_close(actual, loss, atol=tolerance, rtol=tolerance)
        for parameter_name, gradient in gradients(step.model).items():
            difference = (gradient - expected[parameter_name]).norm()
            assert difference <= 10 * tolerance * expected[parameter_name].norm() + 1e-7
        step.optimizer.zero_grad()


@pytest.mark.parametrize("name", GPU_ONLY)
def test_missing_kernels_are_refused(name):
    with pytest.raises((ImportError, RuntimeError)):
        Step("MiniBERT", "tiny", VARIANTS[name], CPU)


def test_fixed_shapes_fill_row_documents_and_targets():
    batch = gpu_models.build_batch("MiniBERT", LENGTHS, 100)
    fixed = gpu_models.fix_shapes(batch, tokens=128, documents=16, targets=60, longest=32)
    assert fixed["input_ids"].shape == fixed["labels"].shape == (1, 128)
    assert fixed["cu_seq_lens_q"].tolist() == [0, 7, 37, 49, 81, 113] + [128] * 11
    positions = fixed["masked_lm_positions"]
    assert len(positions) == 60
    used = fixed["labels"][0, positions] != -100
    assert torch.equal(positions[used], batch["masked_lm_positions"])
    with pytest.raises(ValueError, match="the graph takes 128, 3 and 60"):
        gpu_models.fix_shapes(batch, tokens=128, documents=3, targets=60, longest=32)


@pytest.mark.parametrize("name", ["ModernBERT, packed", "ModernBERT, masks"])
def test_packed_modernbert_keeps_documents_apart(name):
    """Its loss is that of padded rows, where each document is alone."""
    torch.manual_seed(0)
    padded = gpu_models.build_model("ModernBERT", "tiny").eval()
    packed = gpu_models.build_model(name, "tiny").eval()
    packed.load_state_dict(padded.state_dict())
    lengths = [*LENGTHS, 100]  # longer than the window
    with torch.no_grad():
        expected = padded(**gpu_models.build_batch("ModernBERT", lengths, 30592)).loss
        actual = packed(**gpu_models.build_batch(name, lengths, 30592)).loss
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_a_captured_graph_takes_the_unpadded_way(plain, monkeypatch):
    """Transformers says "traced" while a CUDA graph is captured; MiniBERT would compute padded rows
    then."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    step = Step("MiniBERT", "tiny", VARIANTS["not compiled"], CPU)
    assert import_utils.is_tracing()
    with capturing_allowed(), torch.no_grad():
        assert not import_utils.is_tracing()
        batch, loss, _ = plain
        torch.testing.assert_close(step.loss(batch), loss)


def test_kernels_are_grouped_by_name():
    groups = {
        "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTN": "matrix products",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>": "matrix products",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>": "attention",
        "triton_red_fused_native_layer_norm_0": "other kernels",
    }
    assert {name: gpu_measure.kernel_group(name) for name in groups} == groups


def test_plans_fit_into_their_time():
    for name, measurements in gpu.PLANS.items():
        assert sum(m.seconds for m in measurements) <= gpu.RUN_SECONDS[name] <= 600
    # `.ci/gpu` runs facts, 100 seconds of tests, and speed.
    assert gpu.RUN_SECONDS["facts"] + 100 + gpu.RUN_SECONDS["speed"] <= 600
    measured = {m.variant for m in gpu.PLANS["speed"]}
    assert measured <= VARIANTS.keys()


def test_seconds_to_a_loss():
    rows = [dict(seconds=10, loss=8.0), dict(seconds=20, loss=6.0), dict(seconds=30, loss=5.0)]
    assert gpu_learning.seconds_to_loss(rows, 7.0) == 15
    assert gpu_learning.seconds_to_loss(rows, 4.0) is None


def test_what_takes_too_long_is_stopped_and_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "START", gpu.time.monotonic())
    options = gpu.Options(device="cpu", tiny=True, output=str(tmp_path))
    run = gpu.Run(options)
    run.measure(
        [
            gpu.Measurement("training", 0.1, "MiniBERT", batches=("8 x 1,024",)),
            gpu.Measurement("training", 200, "MiniBERT", "FA3", batches=("8 x 1,024",)),
        ]
    )
    stopped, refused = run.rows()
    assert stopped["failed"] == "stopped after 0 seconds"
    assert "flash_attn" in refused["failed"] and "FA3" in refused["what"]
    assert all(process.poll() is not None for process in run.processes)


def test_learning_rehearsal(tmp_path):
    """All recipes, on a text of a few words; each writes its losses as it goes."""
    words = [f"word{number} and text {number % 7}" for number in range(300)]
    tokenizer = train_tokenizer(words, vocab_size=80, show_progress=False)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    bodies = np.random.default_rng(0).integers(5, len(tokenizer), (800, 58))
    ids = np.concatenate([[cls, *body, sep] for body in bodies])
    np.save(tmp_path / "ids.npy", ids.astype(np.uint16))
    for name in gpu_learning.RECIPES:
        rows = list(gpu_learning.measure_learning(name, tmp_path, "graph and head", 3, CPU, True))
        assert rows[-1]["seconds"] == 3 and rows[-1]["steps"] > 0
        assert rows[-1]["loss"] < np.log(30592) + 0.2


def test_terminating_a_run_ends_its_processes(tmp_path):
    command = [sys.executable, gpu.__file__, "--device", "cpu", "--tiny", "true"]
    run = subprocess.Popen(
        [*command, "--output", str(tmp_path), "--slower", "10"], stdout=subprocess.PIPE, text=True
    )
    assert "MiniBERT" in run.stdout.readline()
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=60) == 143
    assert children and not any(Path(f"/proc/{child}").exists() for child in children)
    assert json.loads((tmp_path / "speed.jsonl").read_text().splitlines()[0])
