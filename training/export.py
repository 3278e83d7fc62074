"""`minibert export`: a saved MiniBERT for other runtimes.

ONNX graphs are traced by `torch.onnx` from the padded path of the model (`sequences_minibert.py:is_captured`), and
compared with its usual, unpadded one in onnxruntime before anything is in its place. (The exporter of Transformers,
`transformers.exporters`, gives the same outputs for every head; it takes a hundred times as long, and onnxscript.)
"""

import io
import logging
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from os import PathLike
from pathlib import Path
from typing import Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.onnx import symbolic_helper
from transformers import PreTrainedModel

from .. import modeling_minibert
from .conversion import convert, to_native
from .conversion.checkpoints import load
from .conversion.folders import modules_of, save_rest, tokenizer_of
from .loading import check_new, minibert_config, new_folder, quietly

GRAPH, GRAPH_INT8 = "onnx/model.onnx", "onnx/model_quantized.onnx"  # the names that all three engines look for
ENCODER = "Model"
OPSET = 17
LARGEST_FILE = 2**31 - 2**20  # bytes, of protobuf; the weights of a larger graph stand in a file beside it
TOLERANCE = 1e-3  # of the largest output
BATCHES = ((2, 9), (3, 200), (1, 4), (1, 1))  # rows and columns of what is compared


def export(
    source: str | PathLike,
    target: str | PathLike,
    *,
    format: Literal["onnx", "native", "sentence-transformers"] = "onnx",
    head: str | None = None,
    int8: bool = True,
    pooling: Literal["mean", "cls"] | None = None,
    normalize: bool | None = None,
) -> Path:
    """Write a saved MiniBERT for other runtimes; nothing is left in the folder after an error.

    Args:
        source: A MiniBERT: a folder or a Hub name.
        target: The folder to write, new or empty.
        format: onnx: graphs in fp32 and int8, as sentence-transformers, text-embeddings-inference and transformers.js
            look for them; native: weights for Transformers' own class (BERT, ModernBERT, …), from which other
            converters go on; sentence-transformers: what SentenceTransformer opens.
        head: onnx: Model for the encoder alone, instead of the head that is saved (ForMaskedLM, …); by default the
            encoder where sentence-transformers pools its tokens.
        int8: onnx: Write a graph in int8, too.
        pooling: sentence-transformers: The pooling; by default as saved, else mean.
        normalize: sentence-transformers: Vectors of length 1; by default as saved, else not.

    Returns:
        The target.

    Raises:
        ValueError: no MiniBERT, a target that holds something, a head that is not saved, no native class for these
            switches; or the graph gives other outputs than the model.
        ModuleNotFoundError: onnx or onnxruntime is missing.
    """
    source, target = str(source), Path(target)
    check_new(target)
    if format == "onnx":
        import onnx  # noqa: F401 - missing it is told before any work
        import onnxruntime  # noqa: F401
    minibert_config(source)
    if format == "native":
        return convert(source, target)
    with new_folder(target) as written:
        if format == "onnx":
            said = _write_onnx(source, written, head, int8)
        else:
            said = _write_sentence_transformer(source, written, pooling, normalize)
    print(f"{source} → {target}: {said}")
    return target


def _write_sentence_transformer(source: str, written: Path, pooling: str | None, normalize: bool | None) -> str:
    from .embeddings.encoders import Embedder

    embedder = Embedder.from_pretrained(source, pooling, normalize, dtype="auto", keep_pooler=True)
    with quietly():
        embedder.model.save_pretrained(str(written), create_model_card=False)  # `push` writes one that pins the code
    scaled = "normalised" if embedder.normalize else "not normalised"
    return f"a SentenceTransformer ({embedder.pooling}, {scaled}); it brings its code (trust_remote_code=True)"


# --- ONNX ---


def _write_onnx(source: str, written: Path, head: str | None, int8: bool) -> str:
    saved = (minibert_config(source).architectures or [ENCODER])[0].removeprefix("MiniBert")
    modules = {module["type"].rpartition(".")[2] for module in modules_of(source)}
    if head is None:  # none must stand in the way where sentence-transformers makes vectors of tokens
        head = ENCODER if "Pooling" in modules else saved
    if head not in (saved, ENCODER):
        use = " or ".join(sorted({saved, ENCODER}))
        raise ValueError(f"head={head!r}: {source!r} holds a MiniBert{saved}; use {use}")
    tokenizer = tokenizer_of(source)
    model = load(source, tokenizer)
    model.config.update({"output_hidden_states": False, "output_attentions": False})  # no outputs of the graph
    if head != saved:
        model = model.base_model
        model._forward_hooks.clear()  # by which a decoder has its head finish the states
    model.float().cpu().eval()
    (written / GRAPH).parent.mkdir()
    large = 4 * model.num_parameters() > LARGEST_FILE
    with tempfile.TemporaryDirectory(dir=written) as folder:
        traced = Path(folder, "model.onnx")
        trace(model, traced)
        _move(traced, written / GRAPH, large)
        if int8:
            quantized = Path(folder, "int8.onnx")
            quantize(written / GRAPH, quantized, large)
            _move(quantized, written / GRAPH_INT8, large)
    difference, _ = compare(model, written / GRAPH)
    print(f"{GRAPH}: outputs as torch gives them, to {difference:.1e} (padding on either side, several lengths)")
    if int8:
        _, cosine = compare(model, written / GRAPH_INT8, tolerance=float("inf"))
        print(f"{GRAPH_INT8}: cosine of the outputs for random tokens to those in fp32, {cosine:.4f} at least")
    named = model  # by the config that most engines know: of Transformers' own class, if there is one of this model
    with suppress(ValueError, StrictDataclassError), quietly():  # the second: of an id that the native config wants
        named = to_native(model)
    named.config.architectures = [type(named).__name__]
    named.config.save_pretrained(written)
    save_rest(source, tokenizer, written)
    return f"{type(model).__name__} as ONNX, for engines that know {named.config.model_type}"


def graph_inputs(model: PreTrainedModel) -> dict[str, dict[int, str]]:
    """The names of the graph's inputs, and of their dimensions, all of which can have any size."""
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (getattr(model.config, "type_vocab_size", 0) > 1)
    choices = ["choices"] if isinstance(model, modeling_minibert.MiniBertForMultipleChoice) else []
    return {name: dict(enumerate(["batch", *choices, "length"])) for name in names}


class _Outputs(nn.Module):
    """What torch.onnx can follow: tensors in, tensors out."""

    def __init__(self, model: PreTrainedModel, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.model(**dict(zip(self.names, inputs))).to_tuple()


@symbolic_helper.parse_args("v", "is", "v", "f")
def _rms_norm(g, x, shape, weight, eps):
    """By operators that there are in ONNX, which has none of its own before opset 23."""
    mean = g.op("ReduceMean", g.op("Mul", x, x), axes_i=[-1])
    norm = g.op("Sqrt", g.op("Add", mean, g.op("Constant", value_t=torch.tensor(eps))))
    return g.op("Mul", g.op("Div", x, norm), weight)


@torch.no_grad()
def trace(model: PreTrainedModel, path: Path) -> None:
    """Write the graph of a model in evaluation mode, with the names that its outputs have in Transformers; a ValueError
    for an operator that ONNX does not have."""
    axes = graph_inputs(model)
    _, inputs = next(_samples(model))
    options = dict(input_names=list(axes), output_names=list(model(**inputs)), opset_version=OPSET)
    options["dynamic_axes"] = axes
    if isinstance(model, modeling_minibert.MiniBertForMultipleChoice):  # whose shape is else taken for fixed
        options["dynamic_axes"] = axes | {"logits": {0: "batch", 1: "choices"}}
    outputs = _Outputs(model, list(axes)).eval()  # what is in training mode would be left so
    torch.onnx.register_custom_op_symbolic("aten::rms_norm", _rms_norm, OPSET)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of tracing; what comes out is compared
        try:
            torch.onnx.export(outputs, tuple(inputs.values()), str(path), dynamo=False, **options)
        except torch.onnx.OnnxExporterError as error:
            raise ValueError(f"torch.onnx cannot follow this model: {str(error).splitlines()[0]}") from error


def quantize(path: Path, target: Path, large: bool = False) -> None:
    """Quantize a graph dynamically by onnxruntime: weights in int8, a scale for each output channel. Weights take 7 of
    the 8 bits (`reduce_range`): processors without VNNI add two products in 16 bits, which those of 8 bits overflow."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    uses = Counter(name for node in model.graph.node for name in node.input)
    for node in model.graph.node:
        if node.op_type == "Gemm" and uses[node.input[1]] > 1:  # a tied decoder, whose weights it transposes in place
            copied = model.graph.initializer.add()
            copied.CopyFrom(weights[node.input[1]])
            copied.name = node.input[1] = f"{node.input[1]}.decoder"
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it asks for another tool of its own before
    try:
        options = dict(per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
        quantize_dynamic(model, target, use_external_data_format=large, **options)
    finally:
        logging.disable(before)


def _move(graph: Path, target: Path, large: bool) -> None:
    import onnx

    data = dict(save_as_external_data=True, location=f"{target.name}_data") if large else {}
    onnx.save(onnx.load(graph), target, **data)


def _samples(model: PreTrainedModel) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Random tokens with padding on either side: the side, and what the model is called with."""
    axes, generator = graph_inputs(model), torch.Generator().manual_seed(0)
    for rows, columns in BATCHES:
        columns = min(columns, model.config.max_position_embeddings)
        for side in ("right", "left"):
            shape = [{"batch": rows, "choices": 2, "length": columns}[name] for name in axes["input_ids"].values()]
            ids = torch.randint(model.config.vocab_size, shape, generator=generator)
            lengths = torch.randint(1, columns + 1, shape[:-1], generator=generator)
            lengths.view(-1)[0] = columns  # one row is as long as the batch
            place = torch.arange(columns) if side == "right" else torch.arange(columns).flip(0)
            mask = (place < lengths.unsqueeze(-1)).long()
            given = dict(input_ids=ids, attention_mask=mask, token_type_ids=ids % 2)
            yield side, {name: given[name] for name in axes}


@torch.no_grad()
def compare(model: PreTrainedModel, graph: Path, tolerance: float = TOLERANCE) -> tuple[float, float]:
    """The largest difference of outputs that onnxruntime computes to those of the model, and their smallest cosine: of
    one token's vector, or of a batch where tokens have none.

    Raises:
        ValueError: a difference above `tolerance` times the largest output.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    largest, smallest = 0.0, 1.0
    for side, inputs in _samples(model):
        outputs, given = model(**inputs), {name: tensor.numpy() for name, tensor in inputs.items()}
        for name, actual in zip(names, session.run(None, given)):
            actual, expected = torch.from_numpy(actual), outputs[name]
            if expected.dim() == 3:  # vectors of tokens
                real = inputs["attention_mask"].bool()
            else:  # padding that no answer begins in is the lowest number
                real = expected > torch.finfo(expected.dtype).min
            off = (actual - expected).abs().max().item()
            actual, expected = actual[real].double(), expected[real].double()
            if not off <= tolerance * max(1.0, expected.abs().max().item()):
                raise ValueError(f"{graph.name}: {name} differs by {off:.1e} from the model's, padding {side}")
            largest = max(largest, off)
            smallest = min(smallest, torch.cosine_similarity(actual, expected, dim=-1).min().item())
    return largest, smallest
