"""`minibert bench embed`: texts to vectors by MiniBERT and by other engines, the same weights, texts and tokenizer.

Each engine lives in a process of its own (`python -m minibert.training.bench.embed` is one), so that start-up and
memory are its own; they take turns, so that what else the machine does hits all of them. Where an engine computes last
states only, sentence-transformers tokenizes, makes batches and pools for it as it does for itself.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim
from transformers.modeling_outputs import BaseModelOutput

from ..arguments import check_least
from ..arguments.embeddings import BenchEmbedArguments
from ..arguments.pretraining import ConvertArguments, CorpusArguments
from ..conversion import convert
from ..data.documents import load_documents
from ..embeddings.encoders import Embedder
from ..embeddings.evaluate import prepare_result, write_result
from ..export import graph_inputs, quantize, trace
from ..loading import quietly
from ..report import format_table
from .measure import _status, first_line
from .run import device_name
from .work import SEED

MEAN_WORDS, SPREAD, LONGEST = 60, 0.8, 400  # lengths of texts are log-normal: many short ones, a few long ones
ORIGINAL = "sentence-transformers"

Encode = Callable[[Sequence[str]], np.ndarray]


# --- engines: (folder with "native", "minibert" and the graphs, longest text in tokens) → texts → [texts, width] ---


def minibert(folder: Path, max_length: int, dtype: str) -> Encode:
    return Embedder.from_pretrained(
        str(folder / "minibert"), max_length=max_length, dtype=dtype, add_pooling_layer=False
    ).embed


def original(folder: Path, max_length: int, **model_kwargs: Any) -> SentenceTransformer:
    with quietly():
        model = SentenceTransformer(str(folder / "native"), device="cpu", model_kwargs=model_kwargs)
    model.max_seq_length = max_length
    return model


def sentence_transformers(folder: Path, max_length: int, dtype: str) -> Encode:
    return original(folder, max_length, dtype=dtype).encode


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


def _with_states(model: SentenceTransformer, compute: Callable[[dict[str, np.ndarray]], np.ndarray]) -> Encode:
    """`encode` of a model whose last states another engine computes."""
    encoder = model[0].auto_model
    names = [*graph_inputs(encoder)]

    def forward(input_ids=None, attention_mask=None, token_type_ids=None, **kwargs) -> BaseModelOutput:
        given = dict(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return BaseModelOutput(torch.from_numpy(compute({name: given[name].numpy() for name in names})))

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
}


def export_graphs(folder: Path, engines: Sequence[str]) -> None:
    """`model.onnx`, fp32, and `int8.onnx` of the native model, as `minibert export` makes them."""
    if any("onnx" in package for name in engines for package in ENGINES[name][1]):
        trace(original(folder, 64, attn_implementation="eager")[0].auto_model.eval(), folder / "model.onnx")
    if "onnxruntime int8" in engines:
        quantize(folder / "model.onnx", folder / "int8.onnx")


# --- the process of an engine ---


class EngineProcess:
    """An engine in a process of its own: started, told to embed all texts once or several times, closed.

    Raises (each method):
        RuntimeError: it failed; says with what.
    """

    def __init__(self, name: str, folder: Path, max_length: int):
        self.vectors, self.errors = folder / f"{name}.npy", folder / f"{name}.stderr"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", __name__, name, str(folder), str(max_length)]
        begin = time.perf_counter()
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        self.answer()
        self.startup = time.perf_counter() - begin

    def answer(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError((self.errors.read_text().strip().splitlines() or ["it ended without a word"])[-1])
        return json.loads(line)

    def seconds(self) -> float:
        """How long all texts take."""
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> tuple[int, np.ndarray]:
        """Its peak memory in bytes, and the vectors."""
        with self.process:
            self.process.stdin.close()
            return self.answer(), np.load(self.vectors, allow_pickle=False)


def serve(name: str, folder: str, max_length: str) -> None:
    """The process: says when its first text is embedded, then, for every line it is sent, how long all texts took."""
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        texts = json.loads((Path(folder) / "texts.json").read_text("utf-8"))
        encode = ENGINES[name][0](Path(folder), int(max_length))
        encode(texts[:1])
        print("true", file=answers, flush=True)
        for _ in sys.stdin:
            begin = time.perf_counter()
            vectors = encode(texts)
            print(json.dumps(time.perf_counter() - begin), file=answers, flush=True)
        np.save(Path(folder) / f"{name}.npy", vectors, allow_pickle=False)
        print(json.dumps(_status("VmHWM") if Path("/proc/self/status").exists() else 0), file=answers, flush=True)


# --- the command ---


def bench_embed(corpus: CorpusArguments, arguments: BenchEmbedArguments) -> dict[str, Any]:
    """Measure the engines that are installed, and show what each gives.

    Returns:
        "engines": by name, texts per second of each round ("rates"), "startup" in seconds up to the first vector, peak
        "memory" of the process in bytes (0 where the system does not say) and the smallest "cosine" to the vectors of
        the original; "skipped": why, by name; "settings".

    Raises:
        ValueError: no model, no or too little text, an unknown engine.
    """
    if not arguments.model:
        raise ValueError("model: none given; give a BERT or ModernBERT as sentence-transformers saves it")
    check_least(arguments, texts=1, rounds=1)
    chosen = choose_engines(arguments.engines)
    prepare_result(arguments.result)
    documents = load_documents(**vars(corpus))
    texts = pieces(documents["text"], arguments.texts)
    skipped = {}
    for name in chosen:
        if lacking := [package for package in ENGINES[name][1] if importlib.util.find_spec(package) is None]:
            skipped[name] = f"{', '.join(lacking)} not installed"
    chosen = [name for name in chosen if name not in skipped]
    packages = ("torch", "transformers", ORIGINAL, *{p for name in chosen for p in ENGINES[name][1]})
    settings = {name: importlib.metadata.version(name) for name in packages}
    settings |= {"device": device_name(torch.device("cpu")), "threads": torch.get_num_threads()}
    measured: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "texts.json").write_text(json.dumps(texts), "utf-8")
        with quietly():
            SentenceTransformer(arguments.model, device="cpu").save(str(folder / "native"))
        convert(ConvertArguments(paths=[str(folder / "native"), str(folder / "minibert")]))
        export_graphs(folder, chosen)
        running: dict[str, EngineProcess] = {}

        def attempt(name: str, do: Callable[[], Any]) -> Any:
            try:
                return do()
            except Exception as error:  # the others go on
                skipped[name] = first_line(error)
                if name in running:
                    running.pop(name).process.kill()

        for name in chosen:
            process = attempt(name, partial(EngineProcess, name, folder, arguments.max_length))
            if process is not None:
                running[name] = process
                measured[name] = {"startup": process.startup, "rates": []}
        for number in range(arguments.rounds + 1):
            for name in [*running]:
                seconds = attempt(name, running[name].seconds)
                if seconds and number:  # the first round warms up
                    measured[name]["rates"].append(len(texts) / seconds)
        vectors = {}
        for name in [*running]:
            closed = attempt(name, running[name].close)
            if closed:
                measured[name]["memory"], vectors[name] = closed
    measured = {name: measured[name] for name in vectors}
    for name in measured if ORIGINAL in vectors else ():
        # in fp64, since rounding alone moves a cosine of fp32 vectors by 1e-7
        cosines = pairwise_cos_sim(vectors[name].astype(float), vectors[ORIGINAL].astype(float))
        measured[name]["cosine"] = cosines.min().item()
    result = {"model": arguments.model, "texts": len(texts), "settings": settings}
    result |= {"engines": measured, "skipped": skipped}
    print(", ".join(f"{name} {value}" for name, value in settings.items()))
    print(show(measured))
    for name, why in skipped.items():
        print(f"{name}: left out ({why})")
    write_result(result, arguments.result)
    return result


def choose_engines(beginnings: Sequence[str]) -> list[str]:
    """Those whose names begin so, without regard to case."""
    for given in beginnings:
        if not any(name.lower().startswith(given.lower()) for name in ENGINES):
            raise ValueError(f"engines: {given!r} is unknown; use {', '.join(ENGINES)}, or their beginnings")
    return [n for n in ENGINES if not beginnings or any(n.lower().startswith(given.lower()) for given in beginnings)]


def pieces(documents: Sequence[str], number: int) -> list[str]:
    """So many runs of words at random places, `MEAN_WORDS` long on average."""
    words: list[str] = []
    for text in documents:
        words += text.split()
        if len(words) > 200_000:
            break
    if len(words) < LONGEST:
        raise ValueError(f"data: {len(words)} words are too few for texts of {LONGEST}; give more text")
    rng = np.random.default_rng(SEED)
    lengths = rng.lognormal(np.log(MEAN_WORDS) - SPREAD**2 / 2, SPREAD, number).round().clip(3, LONGEST).astype(int)
    return [" ".join(words[start : start + n]) for n in lengths for start in [rng.integers(len(words) - n + 1)]]


def show(measured: dict[str, dict[str, Any]]) -> str:
    """The table; how many times as fast speaks of medians."""
    medians = {name: statistics.median(entry["rates"]) for name, entry in measured.items()}
    header = ("engine", "texts/s, median", "best", f"× {ORIGINAL}", "start-up, s", "memory, MiB", "smallest cosine")
    rows = [
        (
            name,
            f"{medians[name]:.1f}",
            f"{max(entry['rates']):.1f}",
            f"{medians[name] / medians[ORIGINAL]:.2f}" if ORIGINAL in medians else None,
            f"{entry['startup']:.1f}",
            f"{entry['memory'] / 2**20:.0f}",
            f"{entry['cosine']:.5f}" if "cosine" in entry else None,
        )
        for name, entry in measured.items()
    ]
    return format_table(header, rows)


if __name__ == "__main__":
    serve(*sys.argv[1:])
