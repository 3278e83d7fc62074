"""`__init__.pyi`: the types of all that `import minibert` offers, for editors and type checkers."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import minibert

ROOT = Path(__file__).parents[2]
STUB = ROOT / "__init__.pyi"
# The libraries whose configs ours extend.
STUBBED_LIBRARIES = ("transformers", "sentence-transformers", "accelerate")
RIGHT = """\
minibert.pretrain("text.txt", size="tiny", minutes=3, learning_rate=2e-3, max_steps=40).report["steps"]
minibert.finetune("classify", data="reviews/", labels=["bad", "good"], num_train_epochs=2)
minibert.finetune("embed", "runs/minibert", "pairs.jsonl", kind="sparse", max_steps=3)
minibert.evaluate("rerank", data="folder", depth=50)["metrics"]
minibert.embed(["a text"], model="runs/embed", pooling="mean").shape
minibert.search("index", "a query", top_k=3)[0][0][0].text
minibert.convert("bert-base-uncased", "mine", set={"position_embedding_type": "rope"}).name
minibert.push("runs/minibert", "me/mine", dry_run=True)["files"]
minibert.PretrainingConfig("runs/rtd", objective="rtd", max_steps=3)
minibert.FinetuningConfig("runs/lora", lora=8, warmup_steps=10)
minibert.MiniBertForMaskedLM(minibert.MiniBertConfig.bert("tiny", vocab_size=64)).num_parameters()
minibert.prepare(minibert.Corpus("text.txt"), output_dir="rows", seq_length=256).describe()
"""
TYPOS = """\
minibert.pretrain("text.txt", learnig_rate=2e-3)
minibert.pretrain("text.txt", max_stepss=40)
minibert.pretrain("text.txt", size="tinny")
minibert.pretrain("text.txt").repport
minibert.finetune("classify", data="reviews/", lables=["bad", "good"])
minibert.finetune("clasify", data="reviews/")
minibert.finetune("embed", data="pairs.jsonl", knd="sparse")
minibert.evaluate("tag", data="entities/", tags_columm="tags")
minibert.embed(["a text"], modle="runs/embed")
minibert.search("index", "a query", topk=3)
minibert.push("runs/minibert", "me/mine", privat=True)
minibert.export("runs/minibert", "onnx-model", format="onx")
minibert.PretrainingConfig("runs/rtd", objectiv="rtd")
minibert.Corpus("text.txt", tex_column="body")
minibert.MiniBertForMaskedLm
"""


def pinned_version(name):
    text = (ROOT / "constraints.txt").read_text()
    return re.search(rf"^{name}==(.+)$", text, re.MULTILINE)[1]


def test_the_stub_is_what_the_script_makes():
    """`python dev/make_stubs.py` writes it, after a change of a public function or config."""
    for name in STUBBED_LIBRARIES:
        if importlib.metadata.version(name) != pinned_version(name):
            pytest.skip(f"the stub has the options of {name} {pinned_version(name)}")
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "dev" / "make_stubs.py")
    make_stubs = importlib.util.module_from_spec(spec)
    sys.modules["make_stubs"] = make_stubs  # where dataclasses look
    spec.loader.exec_module(make_stubs)
    assert STUB.read_text(encoding="utf-8") == make_stubs.make_stub()


def test_the_stub_has_every_public_name():
    names = set()
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names}
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
    assert set(minibert.__all__) - {"__version__"} <= names


def test_the_package_has_the_stub_and_says_that_it_is_typed():
    package = Path(minibert.__file__).parent
    assert (package / "__init__.pyi").is_file() and (package / "py.typed").is_file()


@pytest.mark.slow  # it reads the sources of torch and Transformers
def test_mypy_finds_every_typo_and_nothing_else(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    lines = ["import minibert", *RIGHT.splitlines(), *TYPOS.splitlines()]
    (tmp_path / "snippets.py").write_text("\n".join(lines))
    environment = dict(os.environ)
    folder = Path(minibert.__file__).parent.parent
    if "site-packages" not in folder.parts:  # where mypy looks anyway
        environment["MYPYPATH"] = str(folder)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), "snippets.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    errors = set(map(int, re.findall(r"^snippets.py:(\d+): error:", done.stdout, re.MULTILINE)))
    first_typo = len(lines) - len(TYPOS.splitlines())
    found = {lines[number - 1] for number in errors}
    assert found == set(lines[first_typo:]), done.stdout + done.stderr
