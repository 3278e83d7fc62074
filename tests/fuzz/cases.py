"""Random bad input, one case a call: a function makes it from a `random.Random` and hands it to a public entry point.

A case ends in a result, or in an exception that `test_fuzz.py` judges.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import math
import random
import shutil
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from helpers import FAMILIES, LABELS, VOCAB, build
from huggingface_hub import ModelCard

from minibert import MiniBertConfig, MiniBertForMaskedLM, MiniBertForSequenceClassification, train_tokenizer
from minibert.training.checkpoints import checkpoint_to_resume, write_manifest
from minibert.training.cli import main as cli
from minibert.training.hub.card import CardFacts, Result, render_card
from minibert.training.loading import minibert_config
from minibert.training.old_cli.commands import COMMANDS

# --- values ---

WORDS = ["", " ", "text", "[MASK]", "a\tb", "a\nb", '"', "\\", "\x00", "\u202e", "é", "𝔘", "\ufeff", "😀" * 40,
         "a" * 5000, "{}", "[1]", "null", "nan", "-1", "1e999", "../../etc/passwd", "<script>", "---", "%s%n",
         "---\nx: y\n---", "{{x}}", "{% raw %}", "&a *a", "!!python/object:x", "NaN", "true", "--", "~"]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 3, 7, 16, 0.5, -0.5, 1e-12, 1e30, 2**31, 2**63, 10**12, math.nan, math.inf, -math.inf]


def value(chance: random.Random, depth: int = 2) -> Any:
    """Something that JSON has a form for."""
    kind = chance.randrange(8 if depth else 6)
    if kind < 2:
        return chance.choice(WORDS)
    if kind < 4:
        return chance.choice(NUMBERS)
    if kind < 6:
        return chance.choice([None, True, False])
    items = [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return items if kind == 6 else {chance.choice(WORDS) or "key": item for item in items}


def mutate(chance: random.Random, content: Any) -> Any:
    """A JSON value with one part replaced, removed or added."""
    if not isinstance(content, (dict, list)) or not content or chance.random() < 0.1:
        return value(chance)
    content = content.copy()
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    key, what = chance.choice(keys), chance.random()
    if what < 0.15:
        content.pop(key)
    elif what < 0.25 and isinstance(content, dict):
        content[chance.choice(WORDS)] = value(chance)
    else:
        content[key] = mutate(chance, content[key])
    return content


def damage(chance: random.Random, content: bytes) -> bytes:
    """Bytes cut off, flipped, overwritten, inserted or all gone."""
    at = chance.randrange(len(content) + 1)
    return chance.choice([
        lambda: b"",
        lambda: content[:at],
        lambda: content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :],
        lambda: content[:at] + chance.randbytes(chance.randrange(1, 9)) + content[at:],
        lambda: chance.randbytes(64),
        lambda: content[:8] + content[at:],
    ])()  # fmt: skip


# --- what all cases read: one small model with its tokenizer, and good files ---


@dataclasses.dataclass
class World:
    folder: Path  # never written to by a case
    work: Path  # of the case alone

    @property
    def model(self) -> Path:
        return self.folder / "model"


def row(i: int) -> dict[str, Any]:
    """One that every command can read."""
    a, b, text = NAMES[i % 7], NAMES[i // 7], f"{NAMES[i % 7]} {NAMES[i // 7]} ka"
    return {
        "text": text, "label": i % 2, "sentence1": text, "sentence2": f"{b} {a}", "score": i / 30, "query": text,
        "positive": f"{b} {a}", "tokens": ["ka", a, b], "tags": ["O", "B-X", "O"], "target_index": 0, "lemma": "ka",
        "sense": "xy"[i % 2], "question": f"{a} ?", "context": text, "ending0": f"{a} {i}", "ending1": b, "sent1": text,
        "answers": {"text": ["ka"], "answer_start": [len(text) - 2]}, "sentence_good": text, "sentence_bad": f"{b} {a}",
    }  # fmt: skip


NAMES = ["lo", "mi", "nu", "pe", "ri", "sa", "to"]
ROWS = [row(i) for i in range(30)]


def make_world(folder: Path) -> World:
    tokenizer = train_tokenizer([f"{row['text']} {row['context']}" for row in ROWS], vocab_size=60)
    sizes = dict(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=16)
    config = MiniBertConfig.from_tokenizer(tokenizer, size="tiny", max_position_embeddings=64, **sizes)
    MiniBertForMaskedLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    config.num_labels = 1
    MiniBertForSequenceClassification(config).save_pretrained(folder / "reranker")
    tokenizer.save_pretrained(folder / "reranker")
    (folder / "text.txt").write_text("\n\n".join(row["text"] for row in ROWS))
    return World(folder, folder)


def command(*words: Any) -> None:
    """Run a command line: a result, or exit status 2 and one line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(list(map(str, words)))
    said = [line for line in err.getvalue().splitlines() if line.startswith("minibert: error: ")]
    assert status in (0, 1, 2), (status, words)
    assert len(said) == (status == 2), (status, err.getvalue(), words)
    assert "Traceback" not in err.getvalue()
    assert status != 2 or len(said[0]) > len("minibert: error: ") + 10, words


# --- the cases ---


def config(chance: random.Random, world: World) -> None:
    """Any values for any fields: to the class, or in a saved file; what is accepted makes a model that runs."""
    names = [field.name for field in dataclasses.fields(MiniBertConfig)]
    sizes = dict(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    fields = sizes | {chance.choice(names): value(chance) for _ in range(chance.randint(1, 3))}
    way = chance.randrange(3)
    if way == 0:
        made = MiniBertConfig(**fields)
    elif way == 1:
        made = MiniBertConfig.from_dict(fields | {chance.choice(WORDS): value(chance)})
    else:
        (world.work / "config.json").write_text(json.dumps(mutate(chance, MiniBertConfig(**sizes).to_dict())))
        made = minibert_config(str(world.work))
    big = max(made.vocab_size, made.hidden_size, made.intermediate_size, made.max_position_embeddings,
              made.num_hidden_layers, made.type_vocab_size, made.embedding_size or 0)  # fmt: skip
    if big <= 10_000 and made.hidden_size * made.num_hidden_layers < 10_000:
        with torch.no_grad():
            MiniBertForMaskedLM(made).eval()(torch.randint(1, max(2, made.vocab_size), (1, 5)) % made.vocab_size)


HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
         "ForCausalLM", "ForReplacedTokenDetection")  # fmt: skip


@functools.cache
def small(head: str, family: str) -> Any:
    return build(head, **FAMILIES[family])


def inputs(chance: random.Random, world: World) -> None:
    """Ids, masks, positions, boundaries and labels of wrong shapes, types and ranges."""
    model = small(chance.choice(HEADS), chance.choice(["bert", "modernbert"])).train(chance.random() < 0.5)
    model.set_attn_implementation(chance.choice(["sdpa", "eager"]))
    shape = chance.choice([(2, 5), (2, 5), (2, 5), (1, 1), (0, 5), (2, 0), (5,), (1, 2, 5), (1, 41), ()])

    def ints(low: int, high: int, of: tuple) -> torch.Tensor:
        out = torch.randint(low, high, of)
        if out.numel() and chance.random() < 0.15:
            out.view(-1)[chance.randrange(out.numel())] = chance.choice([-1, -100, -101, high, 10**6, 2**40])
        kind = chance.choice([None] * 12 + [torch.int32, torch.float32, torch.bool, torch.int8, torch.float16])
        return out if kind is None else out.to(kind)

    def near(of: tuple) -> tuple:
        if chance.random() < 0.75 or not of:
            return of
        i = chance.randrange(len(of))
        return chance.choice([(*of[:i], of[i] + 1, *of[i + 1 :]), of[1:], (*of, 2), of[:1], (1, *of), of[::-1]])

    given: dict[str, Any] = {}
    if chance.random() < 0.85:
        given["input_ids"] = ints(0, VOCAB, shape)
    else:
        given["inputs_embeds"] = torch.randn(near((*shape, 16))) * chance.choice([1, 0, 1e30, math.nan])
    optional = {
        "attention_mask": lambda: ints(0, 2, near(shape)),
        "token_type_ids": lambda: ints(0, 2, near(shape)),
        "position_ids": lambda: ints(0, 40, near(shape)),
        "seq_idx": lambda: ints(0, 3, near(shape)),
        "cu_seq_lens_q": lambda: torch.tensor(sorted([0, 10, chance.randrange(-1, 13)])),
        "labels": lambda: ints(0, LABELS, near(chance.choice([shape, shape[:1]]))),
        "start_positions": lambda: ints(0, 5, near(shape[:1])),
        "end_positions": lambda: ints(0, 5, near(shape[:1])),
        "num_items_in_batch": lambda: chance.choice([0, 1, torch.tensor(0), torch.tensor(3)]),
    }
    for name in chance.sample(sorted(optional), chance.randrange(4)):
        given[name] = optional[name]()
    outputs = model(**given)
    if getattr(outputs, "loss", None) is not None and outputs.loss.requires_grad:
        outputs.loss.backward()


def saved(chance: random.Random, world: World) -> None:
    """A saved model with a file that is damaged, half-written, missing or of another meaning."""
    folder = world.work / "model"
    shutil.copytree(world.model, folder)
    path = chance.choice([each for each in sorted(folder.iterdir()) if each.suffix != ".py"])
    what = chance.randrange(4)
    if what == 0:
        path.unlink()
    elif what == 1 or path.suffix != ".json":
        path.write_bytes(damage(chance, path.read_bytes()))
    else:
        path.write_text(json.dumps(mutate(chance, json.loads(path.read_text()))))
    before = snapshot(folder)
    command(*chance.choice([
        ("fill", "ka [MASK]", "--model", folder),
        ("embed", "ka lo", "--model", folder, "--output", world.work / "vectors.npy"),
        ("convert", folder, world.work / "converted", "--architecture", "modernbert"),
        ("rerank", "ka", "lo", "--model", folder),
        ("finetune", "classify", "--model", folder, "--train", world.folder / "none.csv", "--plan"),
    ]))  # fmt: skip
    assert snapshot(folder) == before


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def checkpoint(chance: random.Random, world: World) -> None:
    """An output folder with checkpoints in any state: one to go on from, or a refusal; nothing is removed."""
    run = world.work / "run"
    for step in range(1, chance.randint(1, 3) + 1):
        folder = run / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        for name in ("trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            if chance.random() < 0.95:
                path = world.model / "model.safetensors" if name == "model.safetensors" else world.model / "config.json"
                (folder / name).write_bytes(path.read_bytes())
        if chance.random() < 0.7:
            write_manifest(folder)
        for path in chance.sample(sorted(folder.iterdir()), min(chance.randrange(3), len(list(folder.iterdir())))):
            path.write_bytes(damage(chance, path.read_bytes()))
        if chance.random() < 0.4:
            (folder / "checkpoint_manifest.json").write_text(json.dumps(value(chance)))
    if chance.random() < 0.3:
        (run / chance.choice(["config.json", "checkpoint-9", "checkpoint-x"])).write_text("{}")
    before = snapshot(run)
    given = chance.choice(["true", "true", "false", None, str(run / "checkpoint-1"), str(run / "checkpoint-7")])
    training = types.SimpleNamespace(output_dir=str(run), resume_from_checkpoint=given, process_index=0)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            checkpoint_to_resume(training)
    finally:
        assert snapshot(run) == before


def recipe(chance: random.Random, world: World) -> None:
    """A recipe of any content."""
    names = ["data", "model", "size", "seq_length", "learning_rate", "hidden_size", "rope_parameters", "objective",
             "weights", "minutes", "layer_types", "nonsense"]  # fmt: skip
    content: Any = {chance.choice(names): value(chance) for _ in range(chance.randrange(1, 4))}
    content = content if chance.random() < 0.8 else value(chance)
    path = world.work / "recipe.yaml"
    text = yaml.safe_dump(content, allow_unicode=True).encode()
    path.write_bytes(text if chance.random() < 0.6 else damage(chance, text))
    data, out = world.work / "nothing", ("--output_dir", world.work / "out", "--bf16", "false")
    if chance.random() < 0.1:  # no machine is large enough
        size = (chance.choice(["--hidden_size", "--intermediate_size"]), 10**12)
        command("pretrain", "--data", world.folder / "text.txt", "--tokenizer", world.model, *size, *out)
        return
    command("pretrain", "--recipe", path, "--data", data, *out)


def arguments(chance: random.Random, world: World) -> None:
    """Any values for any arguments of any command, whose model and data do not exist."""
    name = chance.choice([*COMMANDS])
    fields = [field for kind in COMMANDS[name].arguments for field in dataclasses.fields(kind)]
    known = {field.name for field in fields}
    words: list[Any] = name.split()
    for field in chance.sample(fields, min(len(fields), chance.randrange(1, 4))):
        words.append(f"--{field.name}")
        words += [chance.choice(WORDS + list(map(str, NUMBERS))) for _ in range(chance.choice([1, 1, 1, 0, 2]))]
    nothing = str(world.work / "nothing.jsonl")
    files = ("model", "data", "train", "test", "validation", "tokenizers", "model_name_or_path", "file", "paths",
             "packages", "words", "sts", "uses")  # fmt: skip
    for name in filter(known.__contains__, files):
        words += [f"--{name}", nothing] + ([nothing] if name in ("test", "paths", "words") else [])
    out = world.work / "out"
    command(
        *words, *(["--output_dir", out] if "output_dir" in known or COMMANDS[name_of(words)].training_defaults else [])
    )


def name_of(words: list[Any]) -> str:
    return " ".join(words[:2]) if " ".join(map(str, words[:2])) in COMMANDS else words[0]


def rows(chance: random.Random, world: World) -> None:
    """A table or a text with malformed rows, in every format, for every command that reads one."""
    suffix = chance.choice([".jsonl", ".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt"])
    path = world.work / f"rows{suffix}"
    content = ROWS.copy()
    for i in chance.sample(range(len(ROWS)), chance.randrange(3)):
        content[i] = mutate(chance, content[i])
    if suffix == ".parquet":
        with contextlib.suppress(pa.ArrowException, OverflowError):  # what has no form as parquet
            good = [row for row in content if isinstance(row, dict)]
            pq.write_table(pa.Table.from_pylist(good), path)
        content_bytes = path.read_bytes() if path.exists() else b"PAR1"
    elif suffix in (".csv", ".tsv"):
        separator = "," if suffix == ".csv" else "\t"
        good = [row for row in content if isinstance(row, dict)] or [{}]
        lines = [separator.join(map(str, good[0]))] + [separator.join(map(str, row.values())) for row in good]
        content_bytes = "\n".join(lines).encode("utf-8", "replace")
    elif suffix == ".json":
        content_bytes = json.dumps(content).encode()
    else:
        content_bytes = "\n".join(map(json.dumps, content)).encode()
    path.write_bytes(content_bytes if chance.random() < 0.7 else damage(chance, content_bytes))
    model, out = ("--model", world.model), ("--output_dir", world.work / "out")
    tuning = (*model, "--train", path, "--plan", *out)
    before = path.read_bytes()
    command(*chance.choice([
        ("finetune", "classify", *tuning),
        ("finetune", "tag", *tuning),
        ("finetune", "answer", *tuning),
        ("finetune", "choose", *tuning, "--text_column", "sent1"),
        ("tokenizer", "--data", path, "--vocab_size", 300, "--text_column", "text", *out),
        ("embed", "--file", path, *model, "--output", world.work / "vectors.safetensors"),
        ("search", world.work / "index", "ka", "--data", path, *model),
        ("evaluate", "embed", "--data", path, *model, "--columns", "sentence1", "sentence2", "score"),
        ("rerank", "ka", "--file", path, "--model", world.folder / "reranker"),
    ]))  # fmt: skip
    assert path.read_bytes() == before


def index(chance: random.Random, world: World) -> None:
    """A search index whose file is damaged."""
    folder = world.work / "index"
    if not (world.folder / "index").exists():
        command("search", world.folder / "index", "--data", world.folder / "text.txt", "--model", world.model)
    shutil.copytree(world.folder / "index", folder)
    (path,) = folder.iterdir()
    path.write_bytes(damage(chance, path.read_bytes()))
    command("search", folder, chance.choice(WORDS), "--model", world.model, "--top_k", chance.choice([1, 0, -1, 99]))


def card(chance: random.Random, world: World) -> None:
    """Names, results and descriptions of any text; what is made is a card whose metadata can be read."""
    text = functools.partial(chance.choice, WORDS)
    facts = CardFacts(
        data=text(), training={text() or "x": text() for _ in range(3)}, base_model=chance.choice([None, text()]),
        results=[Result(text() or "metric", chance.choice([0.5, math.nan, math.inf, -1.0]), text() or "data")],
        language=chance.choice([None, text()]), license=chance.choice([None, text()]), tags=[text()],
    )  # fmt: skip
    made = render_card(world.model, facts, chance.choice(["me/model", text() or "x"]))
    assert ModelCard(made).data.to_dict()


def tokenizer(chance: random.Random, world: World) -> None:
    """A tokenizer of any text; what is made tokenizes any text."""
    texts = [chance.choice(WORDS) for _ in range(chance.randrange(8))]
    made = train_tokenizer(
        texts, algorithm=chance.choice(["wordpiece", "bpe", "unigram", "x"]),
        vocab_size=chance.choice([0, -1, 5, 40, 300, 2**40, 1.5]),
    )  # fmt: skip
    made(chance.choice(WORDS), truncation=True, max_length=16)
    MiniBertConfig.from_tokenizer(made, size="tiny", pad_vocab_to_multiple_of=chance.choice([0, 1, 64]))


CASES = {case.__name__: case for case in (
    config, inputs, saved, checkpoint, recipe, arguments, rows, index, card, tokenizer,
)}  # fmt: skip
# How many of each: by default, and of the slow ones.
COUNTS = {"config": (90, 3000), "inputs": (110, 3500), "saved": (16, 800), "checkpoint": (30, 700),
          "recipe": (15, 500), "arguments": (15, 500), "rows": (10, 500), "index": (4, 150), "card": (4, 100),
          "tokenizer": (10, 250)}  # fmt: skip
