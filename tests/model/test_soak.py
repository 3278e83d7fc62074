"""Long runs with lengths that change all the time hold no more memory, files and graphs at their end than early on."""

import os
import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import VOCAB, build, sentences

from minibert import MiniBertConfig, MiniBertModel, train_tokenizer
from minibert.training.common.precision import KERNEL_CACHES
from minibert.training.embeddings.encoders import open_encoder

pytestmark = pytest.mark.slow
MEGABYTE = 2**20


def held() -> tuple[float, int]:
    """Resident memory in MB, and open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MEGABYTE, len(os.listdir("/proc/self/fd"))


def check_flat(seen: list[tuple[float, int]]) -> None:
    """From the first quarter on: 20 MB are less than 15 kB a step."""
    early, late = seen[len(seen) // 4], seen[-1]
    assert late[0] - early[0] < 20 and late[1] <= early[1], seen


def random_batch(draw: torch.Generator) -> dict[str, torch.Tensor]:
    rows, length = torch.randint(1, 9, (2,), generator=draw).tolist()
    ids = torch.randint(1, VOCAB, (rows, 5 * length), generator=draw)
    kept = torch.randint(1, 5 * length + 1, (rows, 1), generator=draw)
    return dict(input_ids=ids, attention_mask=(torch.arange(5 * length) < kept).long())


def train(dtype: torch.dtype) -> list[tuple[float, int]]:
    model, draw, seen = build("ForMaskedLM").train(), torch.Generator().manual_seed(0), []
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2000):
        batch = random_batch(draw)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            model(**batch, labels=batch["input_ids"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            seen.append(held())
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_thousand_steps(dtype, monkeypatch):
    """In a process of its own that keeps as many kernels as a training does: those of other tests would count here."""
    for name, capacity in KERNEL_CACHES.items():
        monkeypatch.setenv(name, capacity)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        check_flat(process.submit(train, dtype).result())


def test_twenty_thousand_embeddings(tmp_path):
    texts, seen = sentences(20_000), []
    tokenizer = train_tokenizer(texts[:500], vocab_size=80)
    MiniBertModel(
        MiniBertConfig.from_tokenizer(tokenizer, size="tiny", num_hidden_layers=1)
    ).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    embedder = open_encoder(str(tmp_path))
    for start in range(0, len(texts), 1000):
        vectors = embedder.encode(texts[start : start + 1000], show_progress_bar=False)
        assert np.isfinite(vectors).all()
        seen.append(held())
    check_flat(seen)
