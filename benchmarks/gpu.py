"""MiniBERT against Transformers' BERT and ModernBERT on one GPU.

    python benchmarks/gpu.py --work speed --output runs/gpu                   # five minutes
    python benchmarks/gpu.py --work learning --data .gpu --output runs/gpu    # two minutes for each of three trainings
    python benchmarks/gpu.py --work speed --device cpu --tiny true            # does the script work

It needs torch and Transformers alone. `.ci/gpu-pack` makes the folder of `--data`: `ids.npy` (uint16, documents one
after the other, each `[CLS] … [SEP]`) and a tokenizer. Peak rates are those of dense bf16 products on an H100 or H200.
"""

import itertools
import json
import operator
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    HfArgumentParser,
    ModernBertConfig,
    ModernBertForMaskedLM,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from minibert import MaskedLMCollator, MiniBertConfig, MiniBertForMaskedLM

PEAK = 989e12  # FLOP/s
MASKED = 0.3


@dataclass
class Options:
    work: Literal["speed", "learning"] = "speed"
    device: str = "cuda"
    tiny: bool = False
    output: str = "runs/gpu"
    data: str = ".gpu"
    repeats: int = 5
    seconds: float = 120.0


# --- models and batches ---


def minibert_config(size: str, tiny: bool, **fields: Any) -> MiniBertConfig:
    """The vocabulary is a multiple of 64."""
    return MiniBertConfig.minibert("tiny" if tiny else size, vocab_size=30592, **fields)


def modernbert(size: str, tiny: bool) -> ModernBertForMaskedLM:
    """The same shape, with a vocabulary computed at masked tokens alone, its fastest setting."""
    ours = minibert_config(size, tiny)
    names = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    )
    special = dict(
        pad_token_id=0, bos_token_id=None, eos_token_id=None, cls_token_id=2, sep_token_id=3
    )
    shape = {name: getattr(ours, name) for name in names}
    return ModernBertForMaskedLM(ModernBertConfig(**shape, **special, sparse_prediction=True))


def bert(size: str, tiny: bool) -> BertForMaskedLM:
    shape = (
        {"large": (1024, 24, 16, 4096), "base": (768, 12, 12, 3072)}[size]
        if not tiny
        else (128, 2, 2, 512)
    )
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    vocabulary = minibert_config(size, tiny).vocab_size
    return BertForMaskedLM(
        BertConfig(**dict(zip(names, shape)), vocab_size=vocabulary, max_position_embeddings=8192)
    )


MODELS: dict[str, Callable[[str, bool], Any]] = {
    "MiniBERT": lambda size, tiny: MiniBertForMaskedLM(minibert_config(size, tiny)),
    "ModernBERT": modernbert,
    "BERT": bert,
}


def random_lengths(tokens: int, longest: int) -> list[int]:
    """Of documents as they come: a median of 300 tokens, a few very long ones."""
    chance, lengths = np.random.default_rng(0), []
    while sum(lengths) < tokens:
        lengths.append(int(np.clip(chance.lognormal(5.7, 0.8), 8, longest)))
    lengths[-1] -= sum(lengths) - tokens
    return [length for length in lengths if length]


def packed(lengths: list[int], vocabulary: int, device: torch.device) -> dict[str, Any]:
    """One row, as MiniBERT's collator makes it."""
    bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    ids = torch.randint(5, vocabulary, (1, sum(lengths)))
    labels = torch.where(torch.rand(ids.shape) < MASKED, ids, -100)
    places = (labels[0] != -100).nonzero().squeeze(1)
    batch = dict(
        input_ids=ids,
        labels=labels,
        masked_lm_positions=places,
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
    )
    longest = dict(max_length_q=max(lengths), max_length_k=max(lengths))
    return {name: x.to(device) for name, x in batch.items()} | longest


def padded(lengths: list[int], vocabulary: int, device: torch.device) -> dict[str, Any]:
    """A row for each document, as other models need it."""
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, vocabulary, real.shape) * real
    batch = dict(
        input_ids=ids, labels=torch.where((torch.rand(real.shape) < MASKED) & real, ids, -100)
    )
    batch |= {} if real.all() else dict(attention_mask=real.long())
    return {name: x.to(device) for name, x in batch.items()}


def step_flops(config: MiniBertConfig, lengths: list[int]) -> float:
    """Of a training step: 6 for each weight of a matrix and token (those of the vocabulary at masked tokens alone), and
    12 · width for each pair of tokens that see each other, in every layer."""
    width, tokens = config.hidden_size, sum(lengths)
    layer = 4 * width**2 + 3 * width * config.intermediate_size
    head = MASKED * (width**2 + width * config.vocab_size)
    pairs = 0
    for kind in config.layer_types:
        window = config.sliding_window * 2 + 1 if kind == "sliding_attention" else max(lengths)
        pairs += sum(length * min(length, window) for length in lengths)
    return 6 * tokens * (config.num_hidden_layers * layer + head) + 12 * width * pairs


# --- timing ---


def wait(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def compile_layers(model: torch.nn.Module, device: torch.device) -> None:
    """Compile one layer, for any number of tokens, and use its code for all layers alike."""
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.compile(
                dynamic=True, backend="inductor" if device.type == "cuda" else "aot_eager"
            )


class Step:
    """A training step in bf16 with fused AdamW, with compiled layers or without."""

    def __init__(self, name: str, size: str, options: Options, compiled: bool = False):
        torch.manual_seed(0)
        self.device = torch.device(options.device)
        with self.device:
            self.model = MODELS[name](size, options.tiny).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        if compiled:
            compile_layers(self.model, self.device)

    def __call__(self, batch: dict[str, Any]) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
            loss = self.model(**batch).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(
    what: str, works: dict[str, Callable[[], Any]], tokens: int, options: Options
) -> list[dict[str, Any]]:
    """Median seconds of each, and those of the first call; all run in every round. What fails is left out, as is what
    needs more memory than there is."""
    device, found, first = torch.device(options.device), {name: [] for name in works}, {}
    for turn in range(-2, 1 if options.tiny else options.repeats):
        for name in list(found):
            try:
                start = wait(device)
                works[name]()
                seconds = wait(device) - start
            except Exception as error:
                print(f"{what}, {name}: {type(error).__name__}: {str(error)[:1000]}")
                del found[name]
                continue
            first.setdefault(name, seconds)
            found[name] += [seconds] if turn >= 0 else []  # the first two are not timed
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    ours = min(
        (x for name, x in medians.items() if name.startswith("MiniBERT")), default=float("nan")
    )
    return [
        dict(
            what=what,
            model=name,
            seconds=seconds,
            first=first[name],
            tokens=tokens / seconds,
            times=seconds / ours,
        )
        for name, seconds in medians.items()
    ]


def training_rows(size: str, options: Options) -> Iterator[dict[str, Any]]:
    device, config = torch.device(options.device), minibert_config(size, options.tiny)
    unit = 32 if options.tiny else 1024
    kinds = {
        f"8 documents of {unit}": [unit] * 8,
        f"one document of {8 * unit}": [8 * unit],
        f"{8 * unit} tokens, natural lengths": random_lengths(8 * unit, unit),
        f"32 documents of {unit}": [unit] * 32,
        f"{32 * unit} tokens, natural lengths": random_lengths(32 * unit, unit),
    }
    steps = {name: Step(name, size, options) for name in MODELS} if size == "base" else {}
    for name in ("MiniBERT", "ModernBERT") if size == "base" else ("MiniBERT",):
        steps[f"{name}, compiled"] = Step(name, size, options, compiled=True)
    for kind, lengths in kinds.items():
        works = {
            name: partial(
                step,
                (packed if name.startswith("MiniBERT") else padded)(
                    lengths, config.vocab_size, device
                ),
            )
            for name, step in steps.items()
        }
        for row in measure(f"training, {size}, {kind}", works, sum(lengths), options):
            share = step_flops(config, lengths) / row["seconds"] / PEAK
            yield row | (dict(mfu=share) if row["model"].startswith("MiniBERT") else {})


def inference_rows(options: Options) -> Iterator[dict[str, Any]]:
    device = torch.device(options.device)
    mixed = random_lengths(512 if options.tiny else 64 * 300, 64 if options.tiny else 512)
    models = {}
    for name in MODELS:
        torch.manual_seed(0)
        with device:
            model = MODELS[name]("base", options.tiny).base_model.eval()
        models[name] = model.to(torch.bfloat16 if device.type == "cuda" else None)
    for kind, lengths in (
        ("mixed lengths to 512", mixed),
        ("one text of 8,192", [256 if options.tiny else 8192]),
    ):
        batch = padded(lengths, 250, device)
        batch.pop("labels")
        works = {
            name: partial(torch.inference_mode()(model), **batch) for name, model in models.items()
        }
        yield from measure(f"inference, base, {kind}", works, sum(lengths), options)


def profile_rows(options: Options, compiled: bool = False) -> Iterator[dict[str, Any]]:
    """The ten dearest kernels of a step, and the share of its time in which no kernel runs."""
    device, step = torch.device(options.device), Step("MiniBERT", "base", options, compiled)
    batch = packed(
        random_lengths(256 if options.tiny else 8192, 1024), step.model.config.vocab_size, device
    )
    for _ in range(4):
        start = wait(device)
        step(batch)
        seconds = wait(device) - start
    with torch.profiler.profile() as profile:
        step(batch)
        wait(device)
    kind = (
        torch.autograd.DeviceType.CUDA if device.type == "cuda" else torch.autograd.DeviceType.CPU
    )
    cost = operator.attrgetter(
        "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    )
    events = [
        event
        for event in profile.key_averages()
        if event.device_type == kind and not event.is_user_annotation
    ]
    total = sum(map(cost, events))
    what = f"profile of a step, {'compiled' if compiled else 'not compiled'}"
    yield dict(
        what=what,
        model="no kernel runs",
        share=max(0.0, 1 - total / 1e6 / seconds),
        seconds=seconds,
    )
    for event in sorted(events, key=cost, reverse=True)[:10]:
        yield dict(what=what, model=event.key[:90], share=cost(event) / total, calls=event.count)


# --- learning ---


def read_rows(folder: Path, length: int) -> list[dict[str, list[int]]]:
    """Documents packed one after the other into rows of about `length` tokens, longer ones cut."""
    ids = np.load(folder / "ids.npy").astype(np.int64)
    bounds = [*np.flatnonzero(ids == ids[0]), len(ids)]
    rows, row, positions = [], [], []
    for start, stop in itertools.pairwise(bounds):
        for piece in range(start, stop, length):
            tokens = ids[piece : min(piece + length, stop)].tolist()
            if len(row) + len(tokens) > length:
                rows.append(dict(input_ids=row, position_ids=positions))
                row, positions = [], []
            row, positions = row + tokens, positions + list(range(len(tokens)))
    return [*rows, dict(input_ids=row, position_ids=positions)]


def learning_rows(options: Options) -> Iterator[dict[str, Any]]:
    """Held-out loss against seconds: MiniBERT with Muon on packed rows, ModernBERT with AdamW at two rates."""
    from transformers import AutoTokenizer

    from minibert.training.optimization.muon import muon_optimizer

    tokenizer = AutoTokenizer.from_pretrained(Path(options.data) / "tokenizer")
    rows = read_rows(Path(options.data), 128 if options.tiny else 1024)
    held, rows = (
        rows[:: 4 if options.tiny else 50][:64],
        [row for i, row in enumerate(rows) if i % 50],
    )
    for name, rate in (("MiniBERT", 2e-3), ("ModernBERT", 5e-4), ("ModernBERT", 1e-3)):
        torch.manual_seed(0)
        ours, device = name == "MiniBERT", torch.device(options.device)
        with device:
            model = MODELS[name]("base", options.tiny)
        collate = MaskedLMCollator(tokenizer, mlm_probability=MASKED, seed=0, unpadded=ours)
        fixed = collate.for_evaluation()
        if ours:
            decayed = [key for key, p in model.named_parameters() if p.dim() > 1]
            optimizer = muon_optimizer(
                model,
                decayed,
                learning_rate=rate,
                muon_learning_rate=3.5e-3,
                weight_decay=0.3,
                betas=(0.9, 0.98),
            )
        else:
            optimizer = torch.optim.AdamW(
                model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98), fused=True
            )
        compile_layers(model, device)
        rates = [group["lr"] for group in optimizer.param_groups]

        def loss_of(rows, collate, model=model, device=device, ours=ours):
            batch = {
                key: x.to(device) if isinstance(x, torch.Tensor) else x
                for key, x in collate(rows).items()
            }
            batch = batch if ours else {key: x for key, x in batch.items() if key != "position_ids"}
            with torch.autocast(device.type, torch.bfloat16, device.type == "cuda"):
                return model(**batch).loss

        start, evaluating, step, losses = wait(device), 0.0, 0, []
        while (share := (time.perf_counter() - start - evaluating) / options.seconds) < 1:
            for group, full in zip(optimizer.param_groups, rates):  # linear, by the clock
                group["lr"] = full * min(share / 0.05, (1 - share) / 0.95)
            first = step * 16 % max(len(rows) - 16, 1)
            collate.set_progress(epoch=step * 16 // len(rows))
            loss_of(model.train() and rows[first : first + 16], collate).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if share > (len(losses) + 1) / 12:
                begin = wait(device)
                losses.append((share * options.seconds, evaluate(model, held, fixed, loss_of)))
                evaluating += wait(device) - begin
        losses.append((options.seconds, evaluate(model, held, fixed, loss_of)))
        yield dict(
            what="learning, base",
            model=f"{name}, {rate:g}",
            steps=step,
            losses=losses,
            loss=losses[-1][1],
        )


def evaluate(model, rows, collate, loss_of) -> float:
    model.eval()
    with torch.no_grad():
        found = [float(loss_of(rows[i : i + 16], collate)) for i in range(0, len(rows), 16)]
    return statistics.mean(found)


# --- the whole ---


def main() -> None:
    (options,) = HfArgumentParser(Options).parse_args_into_dataclasses()
    device = torch.device(options.device)
    torch._dynamo.config.recompile_limit = (
        64  # all kinds of layers of all models share one function
    )
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    machine = dict(
        device=name,
        torch=torch.__version__,
        cuda=torch.version.cuda,
        transformers=transformers.__version__,
    )
    speed = [training_rows("base", options), inference_rows(options), profile_rows(options)]
    speed += [profile_rows(options, compiled=True), training_rows("large", options)]
    parts = [learning_rows(options)] if options.work == "learning" else speed
    rows, path = [], Path(options.output) / f"{options.work}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    print(machine | dict(date=time.strftime("%Y-%m-%d")))
    for row in itertools.chain.from_iterable(parts):
        rows.append(row)
        path.write_text(
            json.dumps(dict(machine=machine, rows=rows), indent=1)
        )  # what is measured by now is kept
        numbers = {key: f"{x:.4g}" for key, x in row.items() if isinstance(x, float | int)}
        print(
            f"{row['what']:<52} {row['model']:<24}",
            *(f"{key} {x}" for key, x in numbers.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
