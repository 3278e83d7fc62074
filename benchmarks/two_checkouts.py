"""Is one checkout as fast as another? Embedding and training steps of both, in turn, each in a process of its own.

    PYTHONPATH=parent-of-new python benchmarks/two_checkouts.py OLD       # OLD: the other's folder named minibert

The times of the other by those of this one are printed; below 0.97 this one has become slower. Where other programs
run, compare processor seconds on one core (`taskset -c 0 python …`).
"""

import argparse
import contextlib
import io
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from equality import PACKAGE, make_texts

import minibert
from minibert import MiniBertConfig, train_tokenizer

WORK = ("embed", "packed step", "padded step")
WORKER = "-"  # in the place of the other checkout: be one of the two processes


def work() -> None:
    """Do what standard input asks for, line by line, and say how many seconds it took."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    config = MiniBertConfig.minibert("mini", vocab_size=8192)
    model = minibert.MiniBertForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    lengths = np.random.default_rng(0).integers(20, 500, 16)
    lengths = [*lengths[lengths.cumsum() < 4000], 4096 - lengths[lengths.cumsum() < 4000].sum()]
    bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    sequences = dict(
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
        max_length_q=max(lengths),
        max_length_k=max(lengths),
    )
    batches = {}
    for kind, shape, more in (
        ("packed step", (1, 4096), sequences),
        ("padded step", (32, 128), {}),
    ):
        ids = torch.randint(10, 8192, shape)
        batches[kind] = dict(
            input_ids=ids, labels=torch.where(torch.rand(shape) < 0.3, ids, -100), **more
        )
    batches["padded step"]["attention_mask"] = (
        torch.arange(128) < torch.randint(20, 129, (32, 1))
    ).long()
    texts = make_texts(400, 3)
    tokenizer = train_tokenizer(texts[:500], vocab_size=500, show_progress=False)
    with tempfile.TemporaryDirectory() as name:
        minibert.MiniBertModel(MiniBertConfig.minibert("mini", vocab_size=8192)).save_pretrained(
            name
        )
        tokenizer.save_pretrained(name)
        for line in sys.stdin:
            start = time.perf_counter(), time.process_time()
            if line.strip() == "embed":
                with contextlib.redirect_stdout(io.StringIO()):
                    minibert.embed(texts, model=name)
            else:
                for _ in range(2):
                    model(**batches[line.strip()]).loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            print(
                "SECONDS",
                time.perf_counter() - start[0],
                time.process_time() - start[1],
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if str(given.other) == WORKER:
        return work()
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | dict(PYTHONPATH=str(package.resolve().parent), TQDM_DISABLE="1"),
        )
        for package in (PACKAGE, given.other)
    ]  # fmt: skip
    seconds = {
        kind: ([], []) for kind in WORK
    }  # [rounds, 2] of this and of the other: by the clock, of the processor
    for turn, kind in itertools.product(range(given.rounds + 1), WORK):
        for i in (0, 1) if turn % 2 else (1, 0):
            print(kind, file=workers[i].stdin, flush=True)
            said = next(line for line in workers[i].stdout if line.startswith("SECONDS"))
            if turn:  # the first is not timed
                seconds[kind][i].append([float(word) for word in said.split()[1:]])
    for worker in workers:
        worker.stdin.close()
        worker.wait()
    print(
        f"{'time of the other / of this':<28}{'':<11}{'median':>8}{'of minima':>11}{'seconds':>9}"
    )
    for kind, (measure, name) in itertools.product(WORK, enumerate(("clock", "processor"))):
        ours, theirs = np.array(seconds[kind])[:, :, measure]
        median, least = np.median(theirs / ours), theirs.min() / ours.min()
        print(f"{kind:<28}{name:<11}{median:>8.3f}{least:>11.3f}{ours.min():>9.2f}")


if __name__ == "__main__":
    main()
