"""Threads that share one model: each gets what it would get alone, to the bit."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers import FAMILIES, VOCAB, build

from minibert import MiniBertForMaskedLM


@pytest.mark.one_in(3)
@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_four_threads_on_one_model(family, backend):
    """Texts of other lengths in every call, so that plans and masks are made anew all the time."""
    model: MiniBertForMaskedLM = build("ForMaskedLM", **FAMILIES[family]).eval()
    model.set_attn_implementation(backend)
    draw, batches = torch.Generator().manual_seed(0), []
    for _ in range(20):
        rows, length = torch.randint(1, 5, (2,), generator=draw).tolist()
        ids = torch.randint(1, VOCAB, (rows, 6 * length), generator=draw)
        kept = torch.randint(1, 6 * length + 1, (rows, 1), generator=draw)
        batches.append(dict(input_ids=ids, attention_mask=(torch.arange(6 * length) < kept).long()))

    @torch.no_grad()
    def logits(batch):
        return model(**batch).logits

    alone = [logits(batch) for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(logits, batches))
    assert all(torch.equal(found, expected) for found, expected in zip(together, alone))
