"""Does a changed MiniBERT still compute what it computed? Record one state of the code, compare another with it.

    PYTHONPATH=parent-of-old python benchmarks/equality.py record FOLDER            # a quarter of an hour
    PYTHONPATH=parent-of-new python benchmarks/equality.py compare FOLDER           # a table; status 1 if it differs
    … compare FOLDER --only outputs masks                                           # some sections

Text and tokenizer are made once, by `record`, and kept in FOLDER, so that what is compared is the same computation.
Only public names are used.
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib

if (
    __name__ == "__main__" and "HF_DATASETS_CACHE" not in os.environ
):  # rows cached by another state would be read
    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="equality-")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import pyarrow.parquet as pq
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

import minibert
from minibert import MaskedLMCollator, MiniBertConfig

PACKAGE = Path(minibert.__file__).parent
Value = torch.Tensor | str | float
Facts = Iterator[
    tuple[str, Value]
]  # tensors are compared within TOLERANCE, texts exactly, numbers within LOSS

TOLERANCE = 1e-5  # of a tensor, relative to its largest number
LOSS = 2e-3

# --- inputs ---


def make_texts(count: int, seed: int) -> list[str]:
    """Documents of 3 to 60 invented words, frequent ones and rare ones, in sentences."""
    chance = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(3000)]
    weights = [1 / rank for rank in range(1, 3001)]
    texts = [chance.choices(words, weights, k=chance.randint(3, 60)) for _ in range(count)]
    return [
        ". ".join(" ".join(text[i : i + 9]) for i in range(0, len(text), 9)) + "." for text in texts
    ]


def make_inputs(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, seed in (("train", 0), ("validation", 1)):
        (folder / f"{name}.txt").write_text(
            "\n\n".join(make_texts(1000 if name == "train" else 100, seed))
        )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(make_texts(1000, 0), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special)
    columns = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=128, model_input_names=columns, **dict(names)
    ).save_pretrained(folder / "tokenizer")


def digest(*arrays: Any) -> str:
    result = hashlib.sha256()
    for array in arrays:
        array = (
            array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
        )
        array = array.astype(np.int64) if array.dtype.kind in "iu" else array
        result.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return result.hexdigest()[:16]


# --- outputs and gradients ---

VOCAB, LABELS = 61, 3
COMMON = dict(
    vocab_size=VOCAB, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
    local_attention=4, max_position_embeddings=400, initializer_range=0.2, num_labels=LABELS, hidden_dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
BASES = {
    "bert": lambda **fields: MiniBertConfig.bert("tiny", **COMMON | fields),
    "modernbert": lambda **fields: MiniBertConfig.modernbert("tiny", **COMMON | fields),
}
ROPE = {
    "linear": dict(rope_type="linear", factor=2.0),
    "dynamic": dict(rope_type="dynamic", factor=2.0),
    "yarn": dict(rope_type="yarn", factor=2.0, original_max_position_embeddings=20),
    "longrope": dict(rope_type="longrope", short_factor=[1.0, 2.0, 3.0, 4.0], long_factor=[2.0, 3.0, 4.0, 5.0],
                     original_max_position_embeddings=20),
    "llama3": dict(rope_type="llama3", factor=2.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=20),
    "partial": dict(partial_rotary_factor=0.5),
    "theta": dict(full_attention=dict(rope_theta=100.0)),
}  # fmt: skip
SWITCHES: dict[
    str, list[dict[str, Any]]
] = {  # in either preset, by field; what the preset has anyway costs little
    "embedding_size": [dict(embedding_size=8)],
    "type_vocab_size": [dict(type_vocab_size=0), dict(type_vocab_size=3)],
    "hidden_act": [dict(hidden_act=name) for name in ("relu", "silu", "gelu_new")],
    "gated_mlp": [dict(gated_mlp=value) for value in (False, True)],
    "norm_type": [dict(norm_type="rmsnorm", norm_bias=False)],
    "norm_placement": [dict(norm_placement=value) for value in ("pre", "post")],
    "embedding_norm": [dict(embedding_norm=False)],
    "norm_eps": [dict(norm_eps=1e-3)],
    "norm_bias": [dict(norm_bias=value) for value in (False, True)],
    "attention_bias": [dict(attention_bias=value) for value in (False, True)],
    "mlp_bias": [dict(mlp_bias=value) for value in (False, True)],
    "position_embedding_type": [
        dict(position_embedding_type=kind) for kind in ("absolute", "sinusoidal", "rope", "none")
    ],
    "rope_parameters": [
        dict(position_embedding_type="rope", rope_parameters=given) for given in ROPE.values()
    ],
    "global_attn_every_n_layers": [dict(global_attn_every_n_layers=n) for n in (1, 2, 3)],
    "layer_types": [dict(layer_types=["sliding_attention", "full_attention", "sliding_attention"])],
    "local_attention": [dict(global_attn_every_n_layers=2, local_attention=n) for n in (2, 7, 64)],
    "is_causal": [dict(is_causal=True), dict(is_causal=True, global_attn_every_n_layers=2)],
    "add_pooling_layer": [dict(add_pooling_layer=value) for value in (False, True)],
    "pooler_activation": [dict(add_pooling_layer=True, pooler_activation="relu")],
    "classifier_pooling": [dict(classifier_pooling=value) for value in ("cls", "mean")],
    "classifier_activation": [dict(classifier_activation="silu")],
    "head_bias": [dict(head_bias=value) for value in (False, True)],
    "prediction_transform": [dict(prediction_transform=False)],
    "decoder_bias": [dict(decoder_bias=False)],
    "classifier_bias": [dict(classifier_bias=value) for value in (False, True)],
    "tie_word_embeddings": [dict(tie_word_embeddings=False)],
    "hidden_dropout": [dict(hidden_dropout=0.1)],
    "embedding_dropout": [dict(embedding_dropout=0.2)],
    "attention_dropout": [
        dict(attention_dropout=0.1),
        dict(attention_dropout=0.1, global_attn_every_n_layers=2),
    ],
    "classifier_dropout": [dict(classifier_dropout=0.3)],
    "initializer_range": [dict(initializer_range=0.05)],
    "initializer_cutoff_factor": [dict(initializer_cutoff_factor=value) for value in (None, 1.0)],
    "scaled_output_init": [dict(scaled_output_init=value) for value in (False, True)],
    "pad_token_id": [dict(pad_token_id=None), dict(pad_token_id=7)],
}
NO_SWITCHES = {  # sizes, which the presets and other tests vary, and names
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "unk_token_id", "cls_token_id", "sep_token_id", "mask_token_id", "bos_token_id",
    "eos_token_id", "converted_from", "converted_rest", "thresholds",
    "threshold_shift",
}  # fmt: skip
HEADS = [
    name for name in minibert.__all__ if name == "MiniBertModel" or name.startswith("MiniBertFor")
]
LAYOUTS = ("right", "left", "holes", "packed", "seq_idx", "cu_seq_lens", "long")


def make_batch(head: str, layout: str, segments: bool) -> dict[str, Any]:
    """Inputs and labels; a row of the "long" layout is longer than every window and kernel's block."""
    torch.manual_seed(zlib.crc32(f"{head} {layout}".encode()))
    choices = 2 if head == "MiniBertForMultipleChoice" else 1
    rows, length = (1, 300) if layout in ("cu_seq_lens", "long") else (4 * choices, 40)
    rows *= choices if layout == "long" else 1
    if choices > 1 and layout in ("packed", "seq_idx", "cu_seq_lens"):
        return {}
    batch: dict[str, Any] = dict(input_ids=torch.randint(8, VOCAB, (rows, length)))
    columns, real = torch.arange(length), torch.ones(rows, length, dtype=torch.bool)
    lengths, starts = torch.tensor([40, 25, 7, 1] * choices)[:, None], torch.tensor([0, 11, 13, 30])
    documents = torch.bucketize(columns, starts, right=True)
    if layout in ("right", "left", "holes"):
        holes = torch.rand(rows, length) < 0.7
        real = {"right": columns < lengths, "left": columns >= length - lengths, "holes": holes}[
            layout
        ]
        batch["attention_mask"] = real.long()
    elif layout == "packed":
        batch["position_ids"] = (columns - starts[documents - 1]).expand(rows, length)
    elif layout == "seq_idx":
        batch["seq_idx"] = documents.expand(rows, length)
    elif layout == "cu_seq_lens":
        bounds = torch.tensor([0, 3, 150, 151, 201, 300], dtype=torch.int32)
        batch |= dict(
            cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=147, max_length_k=147
        )
    if segments:
        batch["token_type_ids"] = (columns > 10).long().expand(rows, length).contiguous()
    outputs = rows if layout not in ("packed", "seq_idx") else rows * len(starts)
    outputs = 5 if layout == "cu_seq_lens" else outputs // choices
    if head in ("MiniBertForMaskedLM", "MiniBertForPreTraining", "MiniBertForCausalLM"):
        labels = torch.randint(VOCAB, (rows, length))
        batch["labels"] = torch.where(torch.rand(rows, length) < 0.3, labels, -100)
    elif head in ("MiniBertForTokenClassification", "MiniBertForReplacedTokenDetection"):
        labels = torch.randint(
            LABELS if "Token" in head and "Replaced" not in head else 2, (rows, length)
        )
        batch["labels"] = torch.where(real, labels, -100)
    elif head == "MiniBertForQuestionAnswering":
        batch |= dict(
            start_positions=torch.randint(7, (rows,)), end_positions=torch.randint(40, (rows,))
        )
    elif head != "MiniBertModel":
        batch["labels"] = torch.randint(2, (outputs,))
    if head == "MiniBertForPreTraining":
        batch["next_sentence_label"] = torch.randint(2, (outputs,))
    if choices > 1:
        batch = {
            name: x.view(-1, choices, length) if x.dim() == 2 else x for name, x in batch.items()
        }
    return batch


def build(head: str, config: MiniBertConfig) -> torch.nn.Module:
    """A model whose weights depend on their names and shapes alone, whatever the order in which they are made."""
    model = getattr(minibert, head)(config)
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(
            zlib.crc32(f"{name} {tuple(parameter.shape)}".encode())
        )
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.2 * noise if parameter.dim() > 1 else parameter.data + 0.1 * noise
    return model


def gradients(model: torch.nn.Module) -> torch.Tensor:
    """[parameters in order of their names, 2]: the norm of each gradient, and its product with fixed random numbers."""
    rows = []
    for name, parameter in sorted(model.named_parameters()):
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        rows.append(
            [
                float(gradient.norm()),
                float((gradient * torch.randn(gradient.shape, generator=generator)).sum()),
            ]
        )
    return torch.tensor(rows)


def run_model(key: str, model: torch.nn.Module, batch: dict[str, Any]) -> Facts:
    """What it gives in evaluation; its loss and gradients in training."""
    with torch.no_grad():
        outputs = model.eval()(**batch)
    for name, value in outputs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield f"{key}/{name}", value
    torch.manual_seed(0)
    outputs = model.train()(**batch)
    loss = outputs.loss if "loss" in outputs else outputs.last_hidden_state.pow(3).mean()
    loss.backward()
    yield f"{key}/training loss", loss.detach()
    yield f"{key}/gradients", gradients(model)


def outputs(folder: Path) -> Facts:
    """The released models, and every head under every switch."""
    for released in sorted((PACKAGE / "tests/released").iterdir()):
        expected = load_file(released / "expected.safetensors")
        name = json.loads((released / "config.json").read_text())["architectures"][0]
        model = getattr(minibert, name).from_pretrained(released)
        inputs = {column: expected[column] for column in ("input_ids", "attention_mask")}
        labels = (
            inputs["input_ids"].clamp(max=model.config.num_labels - 1)
            if "Token" in name
            else inputs["input_ids"]
        )
        labels = labels[:, 0] % 2 if "Sequence" in name else labels
        yield from run_model(f"released {released.name}", model, inputs | dict(labels=labels))
    fields = {
        name
        for name, value in MiniBertConfig.__dataclass_fields__.items()
        if name in MiniBertConfig.__annotations__
    }
    yield (
        "fields of MiniBertConfig without a row here",
        ", ".join(sorted(fields - SWITCHES.keys() - NO_SWITCHES)) or "none",
    )
    for head, base in itertools.product(HEADS, BASES):
        cases = [
            (f"{name} {i}", fields)
            for name, rows in SWITCHES.items()
            for i, fields in enumerate(rows)
        ]
        for case, fields in [
            ("as it is", {}),
            ("eager", dict(attn_implementation="eager")),
            *cases,
        ]:
            config = BASES[base](**fields)
            layouts = (
                ("right", "packed")
                if head in ("MiniBertModel", "MiniBertForMaskedLM")
                else ("right",)
            )
            for layout in LAYOUTS if case in ("as it is", "eager", "is_causal 1") else layouts:
                if batch := make_batch(head, layout, config.type_vocab_size > 0):
                    key = f"{base}/{head.removeprefix('MiniBert')}/{case}/{layout}"
                    yield from guarded(key, run_model(key, build(head, config), batch))


def initialisation(folder: Path) -> Facts:
    """New weights for one seed: in the order in which modules are made, too."""
    for head, base in itertools.product(HEADS, BASES):
        torch.manual_seed(0)
        model = getattr(minibert, head)(BASES[base]())
        yield (
            f"{base}/{head}",
            digest(*(tensor for _, tensor in sorted(model.state_dict().items()))),
        )


# --- masks and rows ---

COLLATORS = {
    "token": dict(),
    "token 0.3, 80 10 10": dict(
        mlm_probability=0.3, mask_replace_prob=0.8, random_replace_prob=0.1
    ),
    "all [MASK]": dict(mask_replace_prob=1.0, random_replace_prob=0.0),
    "whole words": dict(masking="whole_word"),
    "whole words 0.4": dict(masking="whole_word", mlm_probability=0.4),
    "spans": dict(masking="span"),
    "spans 0.3": dict(masking="span", mlm_probability=0.3),
    "a target for every document": dict(at_least_one_target=True, mlm_probability=0.02),
    "no target for some documents": dict(at_least_one_target=False, mlm_probability=0.02),
    "seed 5": dict(seed=5),
    "multiple of 8": dict(pad_to_multiple_of=8),
    "no masks": dict(mlm=False),
}


def masks(folder: Path) -> Facts:
    """1,000 rows, padded and packed, under every setting."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "inputs/tokenizer")
    documents = tokenizer((folder / "inputs/train.txt").read_text().split("\n\n"), truncation=True)[
        "input_ids"
    ]
    packed = [
        {"input_ids": [*a, *b], "position_ids": [*range(len(a)), *range(len(b))]}
        for a, b in zip(documents, documents[1:] + documents[:1])
    ]
    for (name, given), unpadded in itertools.product(COLLATORS.items(), (False, True)):
        if unpadded and "pad_to_multiple_of" in given:
            continue
        for kind, rows in (
            ("padded", [{"input_ids": ids} for ids in documents]),
            ("packed", packed),
        ):
            key = f"{name}, {kind}{', unpadded' if unpadded else ''}"
            yield from guarded(
                key, masks_of(key, tokenizer, rows, dict(seed=0) | given | dict(unpadded=unpadded))
            )


def masks_of(key: str, tokenizer, rows: list[dict[str, Any]], settings: dict[str, Any]) -> Facts:
    collator = MaskedLMCollator(tokenizer, **settings)
    for epoch in (0, 1):
        collator.set_progress(epoch)
        batches = [collator(rows[i : i + 32]) for i in range(0, len(rows), 32)]
        names = (
            ("input_ids", "labels", "cu_seq_lens_q")
            if settings["unpadded"]
            else ("input_ids", "labels")
        )
        yield f"{key}, epoch {epoch}", digest(*(batch[name] for batch in batches for name in names))


def rows(folder: Path) -> Facts:
    """The rows that `prepare` makes of 1,000 documents, by packing and length."""
    for packing, length in itertools.product(("packed", "padded"), (32, 128)):
        key = f"{packing} {length}"
        yield from guarded(key, rows_of(key, folder, packing, length))


def rows_of(key: str, folder: Path, packing: str, length: int) -> Facts:
    with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stdout(io.StringIO()):
        output, inputs = Path(temporary) / "rows", folder / "inputs"
        options = dict(
            packing=packing, seq_length=length, validation_size=10, output_dir=str(output)
        )
        minibert.prepare(
            data=[str(inputs / "train.txt")], tokenizer=str(inputs / "tokenizer"), **options
        )
        tables = [pq.read_table(path) for path in sorted(output.rglob("*.parquet"))]
        lists = [
            [table[name].to_pylist() for table in tables] for name in ("input_ids", "position_ids")
        ]
    ids, positions = (list(itertools.chain.from_iterable(column)) for column in lists)
    yield f"{key}: rows", str(len(ids))
    yield f"{key}: in order", digest(*ids, *positions)
    pairs = sorted(zip(map(list, ids), map(list, positions)))
    yield f"{key}: in any order", digest(*itertools.chain.from_iterable(pairs))


# --- trainings ---

SHAPE = "num_hidden_layers=2,hidden_size=32,num_attention_heads=2,intermediate_size=48"
TINY = dict(
    size="tiny", config_overrides=SHAPE, seq_length=64, per_device_train_batch_size=8, disable_tqdm=True, bf16=False,
    learning_rate=2e-3, logging_steps=50, seed=7,
)  # fmt: skip
TRAININGS = {
    "mlm": dict(objective="mlm"),
    "mlm+nsp": dict(objective="mlm+nsp", model="bert"),
    "rtd": dict(objective="rtd"),
    "clm": dict(objective="clm"),
    "mlm, adamw, random": dict(objective="mlm", optimizer="adamw", embedding_init="random"),
    "mlm, bert": dict(objective="mlm", model="bert", embedding_init="random"),
    "mlm, padded": dict(objective="mlm", packing="padded"),
    "mlm, spans": dict(objective="mlm", masking="span"),
    "mlm, accumulated": dict(
        objective="mlm", gradient_accumulation_steps=2, per_device_train_batch_size=4
    ),
}


def losses(folder: Path) -> Facts:
    """Held-out loss after 50 steps of every objective."""
    for name, given in TRAININGS.items():
        yield from guarded(name, loss_of(name, folder, TINY | dict(max_steps=50) | given))


def loss_of(name: str, folder: Path, options: dict[str, Any]) -> Facts:
    with tempfile.TemporaryDirectory() as temporary:
        with contextlib.redirect_stdout(io.StringIO()):
            minibert.pretrain(**corpus(folder), **options, output_dir=f"{temporary}/run")
        report = json.loads(Path(temporary, "run/report.json").read_text())
    found = [key for key in report if key.endswith("validation_loss") or key == "accuracy"]
    for key in found:
        yield f"{name}: {key}", float(report[key])


def corpus(folder: Path) -> dict[str, Any]:
    inputs = folder / "inputs"
    return dict(
        data=str(inputs / "train.txt"), tokenizer=str(inputs / "tokenizer"), validation_size=0.1
    )


def words(options: dict[str, Any]) -> list[str]:
    given = (
        (f"--{name}", str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in options.items()
    )
    return list(itertools.chain.from_iterable(given))


def start_command(package: Path, *arguments: Any, **popen: Any) -> subprocess.Popen:
    """`minibert …` of the checkout `package`, in a process of its own."""
    module, function = tomllib.loads((package / "pyproject.toml").read_text())["project"][
        "scripts"
    ]["minibert"].split(":")
    code = f"import sys; from {module} import {function}; sys.exit({function}())"
    environment = os.environ | dict(PYTHONPATH=str(package.parent))
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment, text=True, **popen
    )


def run_command(package: Path, *arguments: Any) -> str:
    """Run to its end; what it prints."""
    process = start_command(package, *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"minibert {' '.join(map(str, arguments))}: {said[-1500:]}")
    return said


def resumed(folder: Path) -> Facts:
    """A training that is killed and goes on ends with the weights of one that is not; and with those of before."""
    options = TINY | corpus(folder) | dict(max_steps=60, save_strategy="steps", save_steps=10)
    options["config_overrides"] += ",hidden_dropout=0.1"
    with tempfile.TemporaryDirectory() as temporary:
        whole, killed = Path(temporary, "whole"), Path(temporary, "killed")
        run_command(PACKAGE, "pretrain", *words(options | dict(output_dir=whole)))
        command = ["pretrain", *words(options | dict(output_dir=killed))]
        process = start_command(
            PACKAGE, *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and not any(killed.glob("checkpoint-*")):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        finished = (killed / "model.safetensors").exists()
        run_command(PACKAGE, *command, "--resume_from_checkpoint", "true")
        ends = [load_file(path / "model.safetensors") for path in (whole, killed)]
    ends = [digest(*(tensor for _, tensor in sorted(end.items()))) for end in ends]
    yield "killed in the middle", str(not finished)
    yield "killed and resumed as not killed", str(ends[0] == ends[1])
    yield "weights after 60 steps", ends[0]


# --- conversions ---

FAMILIES = {
    "bert": {}, "modernbert": dict(global_attn_every_n_layers=2, local_attention=8), "roberta": dict(type_vocab_size=1),
    "xlm-roberta": dict(type_vocab_size=1), "camembert": dict(type_vocab_size=1), "distilbert": {},
    "electra": dict(embedding_size=16), "nomic_bert": {}, "jina_embeddings_v3": {},
    "eurobert": dict(classifier_pooling="mean"),
}  # fmt: skip
AUTO = ("AutoModel", "AutoModelForMaskedLM", "AutoModelForSequenceClassification", "AutoModelForTokenClassification",
        "AutoModelForQuestionAnswering", "AutoModelForMultipleChoice")  # fmt: skip


def conversions(folder: Path) -> Facts:
    """Weights of every family as a MiniBERT's, to the last bit, and back."""
    from minibert.training.conversion import from_native, to_native

    shape = dict(
        vocab_size=97, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, pad_token_id=1,
        bos_token_id=2, eos_token_id=3, max_position_embeddings=80, initializer_range=0.1,
    )  # fmt: skip
    for (family, fields), auto in itertools.product(FAMILIES.items(), AUTO):
        config = AutoConfig.for_model(family, **shape | fields)
        torch.manual_seed(0)
        try:
            native = getattr(transformers, auto).from_config(config)
        except ValueError:  # no such head
            continue
        for parameter in native.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        native.tie_weights()
        yield from guarded(
            f"{family}/{auto}", conversion(f"{family}/{auto}", native, from_native, to_native)
        )


def conversion(key: str, native, from_native, to_native) -> Facts:
    with contextlib.redirect_stdout(io.StringIO()):
        ours = from_native(native)
        again = to_native(ours)
    yield f"{key}: weights", digest(*(tensor for _, tensor in sorted(ours.state_dict().items())))
    config = {
        name: value
        for name, value in ours.config.to_dict().items()
        if name in MiniBertConfig.__annotations__
    }
    yield f"{key}: config", json.dumps(config, sort_keys=True)
    there, back = native.state_dict(), again.state_dict()
    lost = [
        name
        for name, tensor in there.items()
        if name not in back or not torch.equal(tensor, back[name])
    ]
    yield f"{key}: not the same again", ", ".join(lost) or "none"


# --- record, compare ---

SECTIONS = {
    f.__name__: f for f in (outputs, initialisation, masks, rows, losses, resumed, conversions)
}


def guarded(key: str, facts: Facts) -> Facts:
    """The facts, or why there are none: a case that raises must go on raising."""
    try:
        yield from facts
    except Exception as error:
        if os.environ.get("EQUALITY_DEBUG"):
            traceback.print_exc()
        yield (
            f"{key}: raises",
            type(error).__name__ if len(str(error)) < 300 else str(error)[-1200:],
        )


def collect(
    folder: Path, only: list[str]
) -> tuple[dict[str, torch.Tensor], dict[str, str | float]]:
    torch.set_num_threads(1)
    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, str | float] = {}
    for section in only or SECTIONS:
        start, before = time.perf_counter(), len(tensors) + len(values)
        for name, value in guarded(section, SECTIONS[section](folder)):
            key = f"{section}: {name}"
            if isinstance(value, torch.Tensor):
                tensors[key] = value.detach().float().clone().contiguous()
            else:
                values[key] = value
        count = len(tensors) + len(values) - before
        print(f"{section}: {count:,} facts in {time.perf_counter() - start:.0f} s", flush=True)
    return tensors, values


def record(folder: Path, only: list[str]) -> int:
    """Write what this checkout computes."""
    if not (folder / "inputs").exists():
        make_inputs(folder / "inputs")
    tensors, values = collect(folder, only)
    if only and (folder / "values.json").exists():  # the other sections as they are
        kept = (
            load_file(folder / "tensors.safetensors"),
            json.loads((folder / "values.json").read_text()),
        )
        others = [
            {key: x for key, x in facts.items() if key.split(": ")[0] not in only} for facts in kept
        ]
        tensors, values = others[0] | tensors, others[1] | values
    save_file(tensors, folder / "tensors.safetensors")
    (folder / "values.json").write_text(json.dumps(values, indent=1))
    return 0


def difference(value: Value | None, expected: Value) -> str | None:
    """In words; None if there is none that counts."""
    if value is None:
        return "missing"
    if isinstance(expected, torch.Tensor):
        if value.shape != expected.shape:
            return f"shape {list(value.shape)}, was {list(expected.shape)}"
        scale = float(expected.abs().max()) if expected.numel() else 0.0
        # Logits of padding may be the lowest number there is: what is finite besides is what counts.
        finite = expected.abs() < 1e30
        scale = float(expected[finite].abs().max()) if finite.any() else scale
        worst = float((value - expected)[finite].abs().max()) if finite.any() else 0.0
        return (
            None
            if worst <= TOLERANCE * max(scale, 1e-3)
            else f"differs by {worst:.1e} of {scale:.1e}"
        )
    if isinstance(expected, float) and isinstance(value, float):
        return None if abs(value - expected) <= LOSS else f"{value:.4f}, was {expected:.4f}"
    return None if value == expected else f"{value}, was {expected}"


def is_equal(value: Value, expected: Value) -> bool:
    both = isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor)
    return (
        torch.equal(value, expected)
        if both
        else type(value) is type(expected) and value == expected
    )


def compare(folder: Path, only: list[str]) -> int:
    """A table of what is recorded, and what this checkout computes otherwise."""
    (tensors, values), status = collect(folder, only), 0
    expected = load_file(folder / "tensors.safetensors") | json.loads(
        (folder / "values.json").read_text()
    )
    found: dict[str, Any] = tensors | values
    print(f"\n{'':<16}{'facts':>8}{'to the bit':>12}{'different':>11}")
    for section in only or SECTIONS:
        keys = [key for key in expected if key.startswith(f"{section}: ")]
        exact = sum(key in found and is_equal(found[key], expected[key]) for key in keys)
        different = {key: why for key in keys if (why := difference(found.get(key), expected[key]))}
        different |= {
            key: "new"
            for key in found
            if key.startswith(f"{section}: ") and key not in expected and "raises" in key
        }
        print(f"{section:<16}{len(keys):>8,}{exact:>12,}{len(different):>11,}")
        for key, why in itertools.islice(different.items(), 12):
            print(f"    {key}: {why[:300]}")
        status = status or int(bool(different))
    return status


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[])
    given = parser.parse_args()
    print(f"{PACKAGE}, torch {torch.__version__}, Transformers {transformers.__version__}")
    return (record if given.command == "record" else compare)(given.folder, given.only)


if __name__ == "__main__":
    sys.exit(main())
