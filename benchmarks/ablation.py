"""What each hand-made optimisation brings: steps with it and with the plain call in its place, on the same batches.

    python benchmarks/ablation.py [--rounds 15] [--cells WORDS …] [--checkout FOLDER]

Run it with a Python that has the package. Prints a Markdown table: median time with it, and the ratios of the time
without it to that, of medians and of minima. With `--checkout`, a folder that holds another state of the project under
the name `minibert`, both states run in turn instead, each round in processes of their own.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from unittest import mock

import torch
from torch.nn import functional as F


def packed(vocab_size: int, tokens: int, seed: int) -> dict[str, torch.Tensor]:
    """Documents of 120 tokens in the middle, packed into one row without padding; 15 % labelled."""
    chance, generator, lengths = random.Random(seed), torch.Generator().manual_seed(seed), []
    while sum(lengths) < tokens:
        lengths.append(
            min(512, tokens - sum(lengths), max(3, int(chance.lognormvariate(0, 0.8) * 120)))
        )
    ids = torch.randint(5, vocab_size, (1, tokens), generator=generator)
    positions = torch.cat([torch.arange(n) for n in lengths]).unsqueeze(0)
    labels = torch.where(torch.rand(1, tokens, generator=generator) < 0.15, ids, -100)
    return dict(input_ids=ids, position_ids=positions, labels=labels)


def sentences(vocab_size: int, seed: int) -> dict[str, torch.Tensor]:
    """32 sentences of 30 tokens in the middle, padded."""
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    lengths = [min(128, max(4, int(chance.lognormvariate(0, 0.5) * 30))) for _ in range(32)]
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    ids = torch.randint(5, vocab_size, mask.shape, generator=generator) * mask
    return dict(
        input_ids=ids, attention_mask=mask, labels=torch.randint(0, 2, (32,), generator=generator)
    )


def rows_of(vocab_size: int, tokens: int):
    """The packed batch of a number, of seven lengths in turn."""
    return lambda number: packed(vocab_size, tokens - 37 * (number % 7), number)


# family, head, vocabulary, the batch of a number, bf16
CELLS = {
    "pretrain modernbert-mini 8192 bf16": ("modernbert", "MaskedLM", 8192, rows_of(8192, 4096), True),
    "pretrain minibert-mini 8192 bf16": ("minibert", "MaskedLM", 8192, rows_of(8192, 4096), True),
    "pretrain modernbert-mini 50368 bf16": ("modernbert", "MaskedLM", 50368, rows_of(50368, 4096), True),
    "pretrain bert-mini 30522 bf16": ("bert", "MaskedLM", 30522, rows_of(30522, 4096), True),
    "pretrain modernbert-mini 8192 fp32": ("modernbert", "MaskedLM", 8192, rows_of(8192, 2048), False),
    "finetune bert-mini 30522 bf16": ("bert", "SequenceClassification", 30522, partial(sentences, 30522), True),
    "finetune modernbert-mini 50368 bf16": (
        "modernbert", "SequenceClassification", 50368, partial(sentences, 50368), True,
    ),
}  # fmt: skip


def plain_calls() -> dict[str, list]:
    """For each optimisation, what puts the plain call in its place."""
    from minibert import cpu_minibert as cpu
    from minibert import losses_minibert as losses
    from minibert.dispatch_minibert import sdpa

    def sum_cross_entropy(logits, labels, ignore_index):
        return F.cross_entropy(logits.float(), labels, ignore_index=ignore_index, reduction="sum")

    def sdpa_alone(*arguments):
        return sdpa

    return {
        "cross-entropy by rows": [
            mock.patch.object(losses, "sum_cross_entropy", sum_cross_entropy)
        ],
        "shape buckets": [mock.patch.object(cpu, "num_filler_tokens", lambda *arguments: 0)],
        "short documents packed": [mock.patch.object(cpu, "PackedDispatch", cpu.DocumentsDispatch)],
        "unfused attention": [mock.patch.object(cpu, "choose_cpu_kernel", sdpa_alone)],
        "cheap dropout": [
            mock.patch.object(cpu.MiniBertDropout, "forward", torch.nn.Dropout.forward),
            mock.patch.object(
                cpu, "random_keep", lambda like, rate: torch.empty_like(like).bernoulli_(1 - rate)
            ),
        ],
    }


def build(name: str):
    """A step of a cell: takes the number of its batch, gives seconds."""
    import minibert

    family, head, vocab_size, make_batch, bf16 = CELLS[name]
    torch.manual_seed(0)
    config = getattr(minibert.MiniBertConfig, family)("mini", vocab_size=vocab_size)
    model = getattr(minibert, f"MiniBertFor{head}")(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(number: int) -> float:
        batch, start = make_batch(number), time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    for number in range(7):  # every length once
        step(number)
    return step


def line(cell: str, what: str, ours: list[float], theirs: list[float]) -> str:
    medians, minima = (pick(theirs) / pick(ours) for pick in (statistics.median, min))
    return f"| {cell} | {what} | {1000 * statistics.median(ours):.0f} ms | {medians:.2f} ({minima:.2f}) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--cells", nargs="*", default=[], help="words of which a cell's name has one; default: all"
    )
    parser.add_argument("--checkout", help="another state of the project, as FOLDER/minibert")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cells = [
        name
        for name in CELLS
        if not arguments.cells or any(word in name for word in arguments.cells)
    ]
    if arguments.json:  # one state, for the one that compares two
        times = {}
        for name in cells:
            step = build(name)
            times[name] = [step(100 + number) for number in range(8)]
        print(json.dumps(times))
        return
    print(
        "| cell | optimisation | with it | time without it: ratio of medians (minima) |\n|---|---|---|---|"
    )
    if arguments.checkout:
        times = {side: {name: [] for name in cells} for side in (True, False)}
        for number in range(arguments.rounds):
            for ours in (True, False) if number % 2 else (False, True):
                environment = os.environ | ({} if ours else {"PYTHONPATH": arguments.checkout})
                command = [sys.executable, __file__, "--json", "--cells", *cells]
                output = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                ).stdout
                for name, found in json.loads(output.splitlines()[-1]).items():
                    times[ours][name] += found
        for name in cells:
            print(
                line(
                    name,
                    f"this state beside {arguments.checkout}",
                    times[True][name],
                    times[False][name],
                )
            )
        return
    for name in cells:
        step, plain = build(name), plain_calls()
        times = {what: ([], []) for what in plain}
        for number in range(arguments.rounds):
            for what, patches in plain.items():
                for with_it in (True, False) if number % 2 else (False, True):
                    for patch in [] if with_it else patches:
                        patch.start()
                    times[what][not with_it].append(step(100 + number))
                    for patch in [] if with_it else patches:
                        patch.stop()
        for what, (ours, theirs) in times.items():
            print(line(name, what, ours, theirs), flush=True)


if __name__ == "__main__":
    main()
