"""`minibert export`: a saved MiniBERT for other runtimes.

ONNX graphs are traced by `torch.onnx` from the padded path of the model
(`compat_minibert.py:needs_static_shapes`), and compared with its usual, unpadded one in onnxruntime
before anything is in its place. (The exporter of Transformers, `transformers.exporters`, gives the
same outputs for every head; it takes a hundred times as long, and onnxscript.)
"""

import io
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.onnx import symbolic_helper
from transformers import PreTrainedModel

from ... import modeling_minibert
from ...option_checks import check_choice, checked_keywords
from ..common.files import check_new_folder, new_folder
from ..common.printing import print_next_step
from ..loading.load_errors import suppress_logging
from ..loading.models import minibert_config
from ..loading.saved_files import modules_of
from . import convert, to_native
from .folders import save_tokenizer_and_modules, tokenizer_of
from .load_native import load_checkpoint

FormatName = Literal["onnx", "native", "sentence-transformers"]
# The names that all three engines look for.
GRAPH_FILE = "onnx/model.onnx"
INT8_GRAPH_FILE = "onnx/model_quantized.onnx"
ONNX_OPSET = 17
# Of the largest output.
MAX_RELATIVE_ERROR = 1e-3
# Rows and columns of what is compared.
COMPARED_SHAPES = ((2, 9), (3, 200), (1, 4), (1, 1))


@checked_keywords
def export(
    source: str | PathLike,
    target: str | PathLike,
    *,
    format: FormatName = "onnx",
    pooling: Literal["mean", "cls"] | None = None,
    normalize: bool | None = None,
) -> Path:
    """Write a saved MiniBERT for other runtimes; nothing is left in the folder after an error.

    Args:
        source: A MiniBERT: a folder or a Hub name.
        target: The folder to write, new or empty.
        format: onnx: graphs in fp32 and int8, named as sentence-transformers,
            text-embeddings-inference and transformers.js expect; native: weights for Transformers'
            own class (BERT, ModernBERT, …), which other converters read; sentence-transformers: a
            folder for SentenceTransformer.
        pooling: With sentence-transformers, how the states of the tokens become one vector; by
            default as saved, else mean.
        normalize: With sentence-transformers, scale vectors to length 1; by default as saved, else
            false.

    Returns:
        The target.

    Raises:
        ValueError: no MiniBERT, a target that holds something, no native class for these switches;
            or the target gives other outputs than the model.
        ModuleNotFoundError: onnx or onnxruntime is missing.
    """
    check_choice("format", format, FormatName)
    source = str(source)
    target = Path(target)
    check_new_folder(target)
    if format == "onnx":
        import onnx  # noqa: F401 - missing it is told before any work
        import onnxruntime  # noqa: F401
    minibert_config(source)
    if format == "native":
        return convert(source, target)
    with new_folder(target) as unfinished:
        if format == "onnx":
            description = _write_onnx(source, unfinished)
        else:
            description = _write_sentence_transformer(source, unfinished, pooling, normalize)
    print(f"{source} → {target}: {description}")
    if format == "sentence-transformers":
        print_next_step("minibert", "embed", "TEXT", "--model", target)
    return target


def _write_sentence_transformer(
    source: str, unfinished: Path, pooling: str | None, normalize: bool | None
) -> str:
    """Returns what was written, in words."""
    from ..embeddings.encoders import open_encoder

    model = open_encoder(source, "dense", pooling, normalize, dtype="auto")
    with suppress_logging():
        # `push` writes a card that pins the code
        model.save_pretrained(str(unfinished), create_model_card=False)
    modules = ", ".join(type(module).__name__ for module in model)
    return f"a SentenceTransformer ({modules}); it brings its code (trust_remote_code=True)"


# --- ONNX ---


def _write_onnx(source: str, unfinished: Path) -> str:
    """Write both graphs and what goes along; returns what was written, in words."""
    tokenizer = tokenizer_of(source)
    model = load_checkpoint(source, tokenizer)
    if any(module["type"].endswith(".Pooling") for module in modules_of(source)):
        model = model.base_model
        model._forward_hooks.clear()  # by which a decoder has its head finish the states
    # They are no outputs of the graph.
    model.config.update({"output_hidden_states": False, "output_attentions": False})
    model.float().cpu().eval()
    (unfinished / GRAPH_FILE).parent.mkdir()
    write_graph(model, unfinished / GRAPH_FILE)
    difference = check_graph(model, unfinished / GRAPH_FILE)
    print(
        f"{GRAPH_FILE}: outputs as torch gives them, to {difference:.1e} (padding on either side,"
        " several lengths)"
    )
    write_int8_graph(unfinished / GRAPH_FILE, unfinished / INT8_GRAPH_FILE)
    config_model = _native_if_possible(model)
    config_model.config.architectures = [type(config_model).__name__]
    config_model.config.save_pretrained(unfinished)
    save_tokenizer_and_modules(source, tokenizer, unfinished)
    model_type = config_model.config.model_type
    return f"{type(model).__name__} as ONNX, for engines that know {model_type}"


def _native_if_possible(model: PreTrainedModel) -> PreTrainedModel:
    """The model in Transformers' own class, whose config most engines know, if there is one."""
    # StrictDataclassError: of an id that the native config wants
    with suppress(ValueError, StrictDataclassError), suppress_logging():
        return to_native(model)
    return model


def graph_inputs(model: PreTrainedModel) -> dict[str, dict[int, str]]:
    """The names of the graph's inputs, and of their dimensions, all of which can have any size."""
    names = ["input_ids", "attention_mask"]
    if getattr(model.config, "type_vocab_size", 0) > 1:
        names.append("token_type_ids")
    dimensions = {0: "batch", 1: "length"}
    if isinstance(model, modeling_minibert.MiniBertForMultipleChoice):
        dimensions = {0: "batch", 1: "choices", 2: "length"}
    return {name: dict(dimensions) for name in names}


class _TupleOutputs(nn.Module):
    """What torch.onnx can follow: tensors in, tensors out."""

    def __init__(self, model: PreTrainedModel, names: list[str]):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.model(**dict(zip(self.names, inputs))).to_tuple()


@symbolic_helper.parse_args("v", "is", "v", "f")
def _rms_norm(g, x, shape, weight, eps):
    """By operators that there are in ONNX, which has none of its own before opset 23."""
    mean = g.op("ReduceMean", g.op("Mul", x, x), axes_i=[-1])
    norm = g.op("Sqrt", g.op("Add", mean, g.op("Constant", value_t=torch.tensor(eps))))
    return g.op("Mul", g.op("Div", x, norm), weight)


@torch.no_grad()
def write_graph(model: PreTrainedModel, path: Path) -> None:
    """Write the graph of a model in evaluation mode, with the names that its outputs have in
    Transformers."""
    axes = graph_inputs(model)
    inputs = next(_sample_inputs(model))
    output_names = list(model(**inputs))
    dynamic_axes = dict(axes)
    if isinstance(model, modeling_minibert.MiniBertForMultipleChoice):
        # its shape is else taken for fixed
        dynamic_axes["logits"] = {0: "batch", 1: "choices"}
    outputs = _TupleOutputs(model, list(axes)).eval()  # what is in training mode would be left so
    torch.onnx.register_custom_op_symbolic("aten::rms_norm", _rms_norm, ONNX_OPSET)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of tracing; what comes out is compared
        torch.onnx.export(
            outputs,
            tuple(inputs.values()),
            str(path),
            dynamo=False,
            input_names=list(axes),
            output_names=output_names,
            opset_version=ONNX_OPSET,
            dynamic_axes=dynamic_axes,
        )


def write_int8_graph(path: Path, target: Path) -> None:
    """Quantize a graph dynamically by onnxruntime: weights in int8, a scale for each output
    channel.

    Weights take 7 of the 8 bits (`reduce_range`): processors without VNNI add two products in 16
    bits, which those of 8 bits overflow.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    num_uses = Counter(name for node in model.graph.node for name in node.input)
    for node in model.graph.node:
        if node.op_type != "Gemm" or num_uses[node.input[1]] == 1:
            continue
        # A tied decoder, whose weights it transposes in place, gets its own.
        decoder = model.graph.initializer.add()
        decoder.CopyFrom(weights[node.input[1]])
        decoder.name = f"{node.input[1]}.decoder"
        node.input[1] = decoder.name
    quantize_dynamic(
        model, target, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
    )


def _sample_inputs(model: PreTrainedModel) -> Iterator[dict[str, torch.Tensor]]:
    """Random tokens to call the model with, padded on the right, and on the left."""
    axes = graph_inputs(model)
    generator = torch.Generator().manual_seed(0)
    for rows, columns in COMPARED_SHAPES:
        columns = min(columns, model.config.max_position_embeddings)
        sizes = {"batch": rows, "choices": 2, "length": columns}
        shape = [sizes[dimension] for dimension in axes["input_ids"].values()]
        ids = torch.randint(model.config.vocab_size, shape, generator=generator)
        lengths = torch.randint(1, columns + 1, shape[:-1], generator=generator)
        lengths.view(-1)[0] = columns  # one row is as long as the batch
        mask = (torch.arange(columns) < lengths.unsqueeze(-1)).long()
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
        yield {name: inputs[name] for name in axes}
        yield {name: inputs[name].flip(-1) for name in axes}


@torch.no_grad()
def check_graph(model: PreTrainedModel, graph: Path) -> float:
    """The largest difference of outputs that onnxruntime computes to those of the model; a
    ValueError if it is above `MAX_RELATIVE_ERROR` times the largest output."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    largest = 0.0
    for inputs in _sample_inputs(model):
        outputs = model(**inputs)
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        for name, actual in zip(names, session.run(None, arrays)):
            expected = outputs[name].numpy()
            difference = float(np.abs(actual - expected).max())
            # Padding, where no answer begins, has the lowest number there is.
            real = expected[expected > np.finfo(expected.dtype).min]
            if not difference <= MAX_RELATIVE_ERROR * max(1.0, np.abs(real).max()):
                raise ValueError(
                    f"{graph.name}: {name} differs by {difference:.1e} from the model's"
                )
            largest = max(largest, difference)
    return largest
