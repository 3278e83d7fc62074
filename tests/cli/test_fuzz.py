"""Damaged and hostile files: a result or one clear line, in bounded time, whatever is in them.

`run(area, number, world)` repeats a case.
"""

import contextlib
import dataclasses
import io
import json
import math
import random
import shutil
import signal
import tempfile
import types
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from helpers import save_model

from minibert import train_tokenizer
from minibert.training import cli
from minibert.training.cli.parser import parse
from minibert.training.loop.checkpoints import checkpoint_to_resume, write_manifest

LONGEST = 60  # seconds of a case; a hang otherwise

# --- values ---

WORDS = ["", " ", "text", "[MASK]", "a\tb", "a\nb", '"', "\\", "\x00", "\u202e", "é", "𝔘", "\ufeff", "😀" * 40,
         "a" * 5000, "{}", "[1]", "null", "nan", "-1", "1e999", "../../etc/passwd", "<script>", "---", "%s%n",
         "---\nx: y\n---", "{{x}}", "{% raw %}", "&a *a", "!!python/object:x", "NaN", "true", "--", "~"]  # fmt: skip
NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    16,
    0.5,
    -0.5,
    1e-12,
    1e30,
    2**31,
    2**63,
    10**12,
    math.nan,
    math.inf,
    -math.inf,
]


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
    for name, head in (("model", "ForMaskedLM"), ("reranker", "ForSequenceClassification")):
        save_model(
            folder / name,
            tokenizer,
            "modernbert",
            head,
            max_position_embeddings=64,
            num_labels=1,
            **sizes,
        )
    (folder / "text.txt").write_text("\n\n".join(row["text"] for row in ROWS))
    return World(folder, folder)


def command(*words: Any) -> None:
    """Run a command line: a result, or exit status 2 and one line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(list(map(str, words)))
    said = [line for line in err.getvalue().splitlines() if line.startswith("minibert: error: ")]
    assert status in (0, 2) and len(said) == (status == 2), (status, err.getvalue(), words)


# --- the cases ---


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
        for name in (
            "trainer_state.json",
            "model.safetensors",
            "optimizer.pt",
            "scheduler.pt",
            "rng_state.pth",
        ):
            if chance.random() < 0.95:
                path = (
                    world.model / "model.safetensors"
                    if name == "model.safetensors"
                    else world.model / "config.json"
                )
                (folder / name).write_bytes(path.read_bytes())
        if chance.random() < 0.7:
            write_manifest(folder)
        for path in chance.sample(
            sorted(folder.iterdir()), min(chance.randrange(3), len(list(folder.iterdir())))
        ):
            path.write_bytes(damage(chance, path.read_bytes()))
        if chance.random() < 0.4:
            (folder / "checkpoint_manifest.json").write_text(json.dumps(value(chance)))
    if chance.random() < 0.3:
        (run / chance.choice(["config.json", "checkpoint-9", "checkpoint-x"])).write_text("{}")
    before = snapshot(run)
    given = chance.choice(
        ["true", "true", "false", None, str(run / "checkpoint-1"), str(run / "checkpoint-7")]
    )
    training = types.SimpleNamespace(
        output_dir=str(run), resume_from_checkpoint=given, process_index=0
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            checkpoint_to_resume(training)
    finally:
        assert snapshot(run) == before


def recipe(chance: random.Random, world: World) -> None:
    """A recipe of any content."""
    content = {
        chance.choice(["text", "model", "top_k", "nonsense"]): value(chance)
        for _ in range(chance.randrange(4))
    }
    text = yaml.safe_dump(
        content if chance.random() < 0.8 else value(chance), allow_unicode=True
    ).encode()
    path = world.work / "recipe.yaml"
    path.write_bytes(text if chance.random() < 0.6 else damage(chance, text))
    parse("fill", ["text", "--recipe", str(path)])


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
        lines = [separator.join(map(str, good[0]))] + [
            separator.join(map(str, row.values())) for row in good
        ]
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
        ("embed", "--file", path, *model, "--output", world.work / "vectors.npy"),
        ("search", world.work / "index", "ka", "--data", path, *model),
        ("evaluate", "embed", "--data", path, *model, "--columns", "sentence1", "sentence2", "score"),
        ("rerank", "ka", "--file", path, "--model", world.folder / "reranker"),
    ]))  # fmt: skip
    assert path.read_bytes() == before


def index(chance: random.Random, world: World) -> None:
    """A search index whose file is damaged."""
    folder = world.work / "index"
    if not (world.folder / "index").exists():
        command(
            "search",
            world.folder / "index",
            "--data",
            world.folder / "text.txt",
            "--model",
            world.model,
        )
    shutil.copytree(world.folder / "index", folder)
    (path,) = folder.iterdir()
    path.write_bytes(damage(chance, path.read_bytes()))
    command(
        "search",
        folder,
        chance.choice(WORDS),
        "--model",
        world.model,
        "--top_k",
        chance.choice([1, 0, -1, 99]),
    )


# How many of each: by default, and with the slow ones.
CASES = {saved: (6, 800), checkpoint: (12, 700), recipe: (12, 500), rows: (5, 500), index: (2, 150)}


# --- and their judge ---


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield make_world(tmp_path_factory.mktemp("world"))


def run(case, number: int, world: World) -> str | None:
    """What is wrong with how a case ends; None where nothing is."""

    def stop(*_):
        raise TimeoutError(f"took longer than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST)
    try:
        with tempfile.TemporaryDirectory() as work, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case(random.Random(f"{case.__name__} {number}"), World(world.folder, Path(work)))
    except TimeoutError as error:
        return f"{number}: {error}"
    except (ValueError, OSError):
        return None
    except BaseException as error:  # a PanicException of `tokenizers` is no Exception
        return f"{number}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return None


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_damaged_files(case, many, world):
    few, all_of_them = CASES[case]
    numbers = range(few, all_of_them) if many else range(few)
    faults = [fault for number in numbers if (fault := run(case, number, world))]
    assert not faults, f"{len(faults)} of {len(numbers)}:\n" + "\n".join(faults[:40])
