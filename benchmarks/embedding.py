"""Texts to vectors by MiniBERT and by other engines: the same weights, texts and tokenizer.

    python benchmarks/embedding.py --model sentence-transformers/all-MiniLM-L6-v2

Each engine lives in a process of its own, so that start-up and memory are its own; they take turns, so that what else
the machine does hits all of them. Where an engine computes last states only, sentence-transformers tokenizes, makes
batches and pools for it as it does for itself; start-up and memory of onnxruntime and OpenVINO hold its model besides.
"""

import importlib.metadata
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import (
    Corpus,
    device_name,
    first_line,
    memory_of_process,
    names_beginning_with,
    option,
    parse,
    run_facts,
    slow_in_bf16,
)
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim
from tqdm.auto import trange
from transformers.modeling_outputs import BaseModelOutput
from workloads import SEED

from minibert import MiniBertConfig, convert
from minibert.training.common.files import write_json
from minibert.training.common.printing import format_table
from minibert.training.conversion.export import graph_inputs, write_graph, write_int8_graph
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.inference import encode
from minibert.training.loading.load_errors import suppress_logging

# The words of a text are log-normal: many short texts, a few long ones.
MEAN_WORDS = 60
SPREAD = 0.8
LONGEST = 400
ORIGINAL = "sentence-transformers"

Encode = Callable[[Sequence[str]], np.ndarray]


# --- engines: (folder with "native", "minibert" and the graphs, longest text in tokens) → texts → [texts, width] ---


def minibert(folder: Path, max_length: int, dtype: str, by_library: bool = False) -> Encode:
    """MiniBERT's class, in the batches of `minibert embed`; `by_library`, in those of
    `SentenceTransformer.encode`."""
    encoder = open_encoder(str(folder / "minibert"), "dense", max_length=max_length, dtype=dtype)
    encoder = encoder.to("cpu")  # where all others are
    return encoder.encode if by_library else partial(encode, encoder)


def original(folder: Path, max_length: int, **model_kwargs: Any) -> SentenceTransformer:
    with suppress_logging():
        model = SentenceTransformer(str(folder / "native"), device="cpu", model_kwargs=model_kwargs)
    model.max_seq_length = max_length
    return model


def sentence_transformers(
    folder: Path, max_length: int, dtype: str, by_library: bool = True
) -> Encode:
    """The original class in batches of the library; not `by_library`, in those of `minibert
    embed`."""
    model = original(folder, max_length, dtype=dtype)
    return model.encode if by_library else partial(encode, model)


def onnxruntime(folder: Path, max_length: int, graph: str) -> Encode:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = ort.InferenceSession(str(folder / graph), options, providers=["CPUExecutionProvider"])
    return _with_states(original(folder, max_length), lambda inputs: session.run(None, inputs)[0])


def openvino(folder: Path, max_length: int) -> Encode:
    import openvino as ov

    threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = ov.Core().compile_model(str(folder / "model.onnx"), "CPU", threads)
    return _with_states(original(folder, max_length), lambda inputs: compiled(inputs)[0])


def _with_states(
    model: SentenceTransformer, compute: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> Encode:
    """`encode` of a model whose last states another engine computes."""
    encoder = model[0].auto_model
    names = [*graph_inputs(encoder)]

    def forward(
        input_ids=None, attention_mask=None, token_type_ids=None, **kwargs
    ) -> BaseModelOutput:
        given = dict(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return BaseModelOutput(
            torch.from_numpy(compute({name: given[name].numpy() for name in names}))
        )

    encoder.forward = forward
    return model.encode


# What opens each engine, and the packages that it needs beside MiniBERT's own.
ENGINES: dict[str, tuple[Callable[[Path, int], Encode], tuple[str, ...]]] = {
    ORIGINAL: (partial(sentence_transformers, dtype="float32"), ()),
    f"{ORIGINAL} bf16": (partial(sentence_transformers, dtype="bfloat16"), ()),
    "onnxruntime fp32": (partial(onnxruntime, graph="model.onnx"), ("onnx", "onnxruntime")),
    "onnxruntime int8": (partial(onnxruntime, graph="int8.onnx"), ("onnx", "onnxruntime")),
    "OpenVINO": (openvino, ("onnx", "openvino")),
    "MiniBERT fp32": (partial(minibert, dtype="float32"), ()),
    "MiniBERT bf16": (partial(minibert, dtype="bfloat16"), ()),
    # What the class brings, and what the batches do
    "MiniBERT, SentenceTransformer.encode, fp32": (
        partial(minibert, dtype="float32", by_library=True),
        (),
    ),
    "MiniBERT, SentenceTransformer.encode, bf16": (
        partial(minibert, dtype="bfloat16", by_library=True),
        (),
    ),
    f"{ORIGINAL}, minibert embed, fp32": (
        partial(sentence_transformers, dtype="float32", by_library=False),
        (),
    ),
    f"{ORIGINAL}, minibert embed, bf16": (
        partial(sentence_transformers, dtype="bfloat16", by_library=False),
        (),
    ),
}


def export_graphs(folder: Path, engines: Sequence[str]) -> None:
    """`model.onnx`, fp32, and `int8.onnx` of the native model, as `minibert export` makes them."""
    if any("onnx" in package for name in engines for package in ENGINES[name][1]):
        write_graph(
            original(folder, 64, attn_implementation="eager")[0].auto_model.eval(),
            folder / "model.onnx",
        )
    if "onnxruntime int8" in engines:
        write_int8_graph(folder / "model.onnx", folder / "int8.onnx")


# --- the process of an engine ---

# There, by the engine's name: what encodes and the texts, and the vectors of the last round.
opened: dict[str, tuple[Encode, Sequence[str]]] = {}
embedded: dict[str, np.ndarray] = {}


def silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def open_engine(name: str, folder: Path, max_length: int, texts: Sequence[str]) -> None:
    """Done when the first text is embedded."""
    opened[name] = ENGINES[name][0](folder, max_length), texts
    opened[name][0](texts[:1])


def embed_texts(name: str) -> float:
    """How many seconds all texts take."""
    encode, texts = opened[name]
    begin = time.perf_counter()
    embedded[name] = encode(texts)
    return time.perf_counter() - begin


def results(name: str) -> tuple[int, np.ndarray]:
    """The peak memory of the process in bytes (0 where the system does not say), and the vectors."""
    return memory_of_process("VmHWM"), embedded[name]


# --- the comparison ---


@dataclass
class Arguments:
    model: str = option(
        "", "A BERT or ModernBERT as sentence-transformers saves it: a folder or a Hub name."
    )
    texts: int = option(1000, "Number of texts: pieces of the data, 60 words on average.")
    max_length: int = option(256, "Cut texts off after this many tokens.")
    engines: list[str] = option(
        [], "Names or their beginnings; by default all, none in bf16 where that is slow."
    )
    rounds: int = option(
        5, "Rounds, in each of which all engines embed all texts; median and best are shown."
    )
    output: str = option("runs/embedding.json", "JSON file of the results.")


def main(corpus: Corpus, arguments: Arguments) -> dict[str, Any]:
    """Measure the engines that are installed, and show what each gives.

    Returns:
        "engines": by name, texts per second of each round ("rates"), "startup" in seconds up to the first vector, peak
        "memory" of the process in bytes (0 where the system does not say) and the smallest "cosine" to the vectors of
        the original; "skipped": why, by name; "settings".

    Raises:
        RuntimeError: no engine embedded the texts.
    """
    native = open_native(arguments.model, arguments.max_length)
    texts = pieces(corpus.documents()["text"], arguments.texts)
    chosen, skipped = choose_engines(arguments.engines)
    settings = versions(chosen)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with suppress_logging():
            native.save(str(folder / "native"))
        convert(folder / "native", folder / "minibert")
        export_graphs(folder, chosen)
        measured = measure(chosen, skipped, folder, texts, arguments)
    print(", ".join(f"{name} {value}" for name, value in settings.items()))
    print(show(measured))
    if any(ENGINES[name][1] for name in measured):
        print(
            "onnxruntime and OpenVINO: start-up and memory with the model of sentence-transformers, which tokenizes"
        )
    for name, why in skipped.items():
        print(f"{name}: left out ({why})")
    if not measured:
        raise RuntimeError("no engine embedded the texts; see above")
    result = run_facts() | {"texts": len(texts), "settings": settings}
    result |= {"engines": measured, "skipped": skipped}
    write_json(Path(arguments.output), result)
    return result


def open_native(model: str, max_length: int) -> SentenceTransformer:
    """The model that all engines compute, in its original class; a ValueError for a MiniBERT, and
    for what is no Transformer."""
    with suppress_logging():
        native = SentenceTransformer(model, device="cpu")
    encoder = native.transformers_model
    if encoder is None or isinstance(encoder.config, MiniBertConfig):
        raise ValueError(f"{model!r} is no BERT or ModernBERT as sentence-transformers saves it")
    native.max_seq_length = max_length
    return native


def choose_engines(beginnings: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The engines to measure, and why others are skipped, by name."""
    chosen = names_beginning_with(beginnings, ENGINES)
    skipped = {}
    if not beginnings:
        slow, why = slow_in_bf16(chosen, "cpu")
        skipped = dict.fromkeys(slow, f"{why}; --engines takes its name")
    for name in chosen:
        lacking = []
        for package in ENGINES[name][1]:
            if importlib.util.find_spec(package) is None:
                lacking.append(package)
        if lacking:
            skipped[name] = f"{', '.join(lacking)} not installed"
    return [name for name in chosen if name not in skipped], skipped


def versions(engines: Sequence[str]) -> dict[str, Any]:
    """The packages of the engines, the device, and the number of threads."""
    packages = {"torch", "transformers", ORIGINAL}
    for name in engines:
        packages.update(ENGINES[name][1])
    settings: dict[str, Any] = {}
    for package in sorted(packages):
        settings[package] = importlib.metadata.version(package)
    settings["device"] = device_name(torch.device("cpu"))
    settings["threads"] = torch.get_num_threads()
    return settings


def measure(
    engines: Sequence[str],
    skipped: dict[str, str],
    folder: Path,
    texts: Sequence[str],
    arguments: Arguments,
) -> dict[str, dict[str, Any]]:
    """What the engines give, by name. One that fails is added to `skipped`."""
    with ExitStack() as stack:
        pools = {}
        for name in engines:
            pool = ProcessPoolExecutor(1, get_context("spawn"), silence)
            pools[name] = stack.enter_context(pool)
        seconds_of_start = {}
        for name in engines:
            begin = time.perf_counter()
            of_each({name: pools[name]}, skipped, open_engine, folder, arguments.max_length, texts)
            seconds_of_start[name] = time.perf_counter() - begin
        of_each(pools, skipped, embed_texts)  # warms up
        rounds = []
        for _ in trange(arguments.rounds, desc="Rounds", unit="", disable=None):
            rounds.append(of_each(pools, skipped, embed_texts))
        closed = of_each(pools, skipped, results)
    measured = {}
    vectors = {}
    for name, (memory, found) in closed.items():
        vectors[name] = found.astype(float)  # rounding alone moves a cosine of fp32 vectors by 1e-7
        rates = [len(texts) / seconds[name] for seconds in rounds]
        measured[name] = {"startup": seconds_of_start[name], "rates": rates, "memory": memory}
    if ORIGINAL in measured:
        for name, entry in measured.items():
            entry["cosine"] = pairwise_cos_sim(vectors[name], vectors[ORIGINAL]).min().item()
    return measured


def of_each(
    pools: Mapping[str, ProcessPoolExecutor],
    skipped: dict[str, str],
    function: Callable[..., Any],
    *given: Any,
) -> dict[str, Any]:
    """What a function gives in the process of each engine that is not skipped, one after the other.
    An engine that fails is added to `skipped`."""
    found = {}
    for name, pool in pools.items():
        if name not in skipped:
            try:
                found[name] = pool.submit(function, name, *given).result()
            except Exception as error:  # the others go on
                skipped[name] = first_line(error)
    return found


def pieces(documents: Sequence[str], number: int) -> list[str]:
    """So many runs of words at random places, `MEAN_WORDS` long on average."""
    words: list[str] = []
    for text in documents:
        words += text.split()
        if len(words) > 200_000:
            break
    if len(words) < LONGEST:
        raise ValueError(f"{len(words)} words are too few for texts of {LONGEST}; give more text")
    rng = np.random.default_rng(SEED)
    lengths = rng.lognormal(np.log(MEAN_WORDS) - SPREAD**2 / 2, SPREAD, number)
    texts = []
    for length in lengths.round().clip(3, LONGEST).astype(int):
        start = rng.integers(len(words) - length + 1)
        texts.append(" ".join(words[start : start + length]))
    return texts


def show(measured: dict[str, dict[str, Any]]) -> str:
    """The table; how many times as fast speaks of medians."""
    medians = {name: statistics.median(entry["rates"]) for name, entry in measured.items()}
    header = (
        "engine",
        "texts/s, median",
        "best",
        f"× {ORIGINAL}",
        "start-up, s",
        "memory, MiB",
        "smallest cosine",
    )
    rows = []
    for name, entry in measured.items():
        speeds = [f"{rate:.1f}" for rate in (medians[name], max(entry["rates"]))]
        relative = f"{medians[name] / medians[ORIGINAL]:.2f}" if ORIGINAL in medians else None
        cosine = f"{entry['cosine']:.5f}" if "cosine" in entry else None
        rows.append(
            (
                name,
                *speeds,
                relative,
                f"{entry['startup']:.1f}",
                f"{entry['memory'] / 2**20:.0f}",
                cosine,
            )
        )
    return format_table(header, rows)


if __name__ == "__main__":
    main(*parse(__doc__, Corpus, Arguments))
