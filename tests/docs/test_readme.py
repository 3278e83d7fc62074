"""What README.md and docs/ show, runs."""

import json
import re
import shlex
import shutil
from itertools import chain
from pathlib import Path

import pytest
from transformers import BertConfig, BertForMaskedLM

from minibert import (
    MiniBertConfig,
    MiniBertForMaskedLM,
    PretrainingTrainer,
    convert,
    train_tokenizer,
)
from minibert.training.cli.command_line import split_command
from minibert.training.cli.parser import parse
from minibert.training.data.builtin_corpus import builtin_files

ROOT = Path(__file__).parents[2]
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = {
    file.name: file.read_text(encoding="utf-8")
    for file in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
}
BLOCKS = [
    (name, kind, block)
    for name, text in TEXTS.items()
    for kind, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)
]
SNIPPETS = [(name, block) for name, kind, block in BLOCKS if kind == "python"]
LINES = [line for _, kind, block in BLOCKS if kind == "bash" for line in block.splitlines()]
COMMANDS = [line for line in LINES if line.startswith("minibert ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the first command seems to have run, and what else the snippets read."""
    folder = tmp_path_factory.mktemp("readme")
    sentences = [
        "return the end of the list",
        "a good book, a dull book",
        "flour and sugar for baking",
    ] * 20
    tokenizer = train_tokenizer(sentences, vocab_size=60)
    sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    bert = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes))
    ours = MiniBertForMaskedLM(MiniBertConfig.from_tokenizer(tokenizer, size="tiny"))
    for model, name in ((ours, "runs/minibert"), (ours, "runs/first"), (bert, MINILM)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    for name in ("my-text", "corpus", "notes", "reviews"):
        (folder / name).mkdir()
    for name in ("my-text/text.txt", "corpus/train.txt"):
        (folder / name).write_text("\n".join(sentences))
    (folder / "texts").mkdir()
    for number in range(4):
        lines = (
            json.dumps({"text": f"{sentence} {i}"}) + "\n" for i, sentence in enumerate(sentences)
        )
        (folder / "texts" / f"{number}.jsonl").write_text("".join(lines))
    (folder / "notes" / "cake.md").write_text("Flour and sugar for baking.")
    rows = "".join(f"a {word} book {i},{word}\n" for i in range(20) for word in ("good", "dull"))
    (folder / "reviews" / "train.csv").write_text("text,label\n" + rows)
    return folder


@pytest.mark.parametrize(
    ("name", "snippet"), SNIPPETS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(SNIPPETS)]
)
def test_snippet(name, snippet, folder, cache, monkeypatch):
    """With fewer steps and texts than it says."""
    for library in re.findall(
        r"(?:^from |^import |backend=.)(gliner|optuna|setfit)\b", snippet, re.MULTILINE
    ):
        pytest.importorskip(library, reason="an extra that is not installed")
    monkeypatch.chdir(folder)
    if '"adapted"' in snippet:  # the models of the commands above it
        if not Path("minilm").exists():
            convert(MINILM, "minilm")
        shutil.copytree("minilm", "adapted")
    monkeypatch.setattr(PretrainingTrainer, "push_to_hub", lambda trainer: None)
    some_files = builtin_files()[:40]
    monkeypatch.setattr("minibert.training.data.documents.builtin_files", lambda: some_files)
    snippet = re.sub(r"max_steps=\d+|num_train_epochs=2", "max_steps=2", snippet).replace(
        '"mini"', '"tiny"'
    )
    for output_dir in re.findall(r'(?:output_dir=|Config\()"(runs/[^"]+)"', snippet):
        shutil.rmtree(output_dir, ignore_errors=True)  # several pages train a first model
    exec(compile(snippet, name, "exec"), {"__name__": "__main__"})


def understand(words):
    name, rest = split_command(words)
    parse(name, rest)


@pytest.mark.parametrize("line", COMMANDS)
def test_command_is_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no output folder is in use
    (tmp_path / "runs/plan").mkdir(parents=True)
    (tmp_path / "runs/plan/recipe.yaml").write_text("max_length: 64")
    understand(shlex.split(line, comments=True)[1:])


def test_readme_is_short_and_shows_the_two_commands():
    """Short enough to read, with the two commands as they are."""
    assert len(TEXTS["README.md"].splitlines()) < 120
    for command in (
        "pip install . -c constraints.txt && minibert pretrain --output_dir runs/minibert",
        'pip install ".[test]" -c constraints.txt && pytest tests',
    ):
        assert f"```bash\n{command}\n```" in TEXTS["README.md"]
    assert len(SNIPPETS) >= 9 and len(COMMANDS) > 30


PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("dev/*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("docs/notebooks/*.md"),
    *ROOT.glob("docs/results/*.md"),
]
# It is a template: its links are filled in when a model is saved.
PAGES.remove(ROOT / "hub_card.md")


def anchors(page):
    """What links can point to on a page: its headings, written as GitHub writes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        names.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    """To a file that is there and, on a page, to a heading that it has."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


# Words in capitals that belong into a sentence. Any other may be a placeholder.
CAPITAL_WORDS = {
    "ALBERT",
    "CHANGELOG",
    "CONTRIBUTING",
    "ELECTRA",
    "LICENSE",
    "NVIDIA",
    "README",
    "RESULTS",
    "SIGTERM",
    "SPLADE",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_placeholder_is_left(page):
    """Whoever writes a page marks what is still to come by a word in capitals."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "", text)
    assert set(re.findall(r"\b[A-Z]{6,}\b", text)) <= CAPITAL_WORDS


@pytest.mark.parametrize("name", [*TEXTS, "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(name):
    """Those with a folder. Results and logs may name files that are gone."""
    text = TEXTS.get(name) or (ROOT / name).read_text(encoding="utf-8")
    folders = "benchmarks|dev|docs|tests|tokenization|training"
    for path in re.findall(rf"\b(?:{folders})/[\w/]+\.py\b", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "design.md"])
def test_names_that_are_given_occur_in_the_code(name):
    """Of functions, classes, fields and constants: those who follow the page look for them."""
    text = TEXTS.get(name) or (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    words = set()
    for file in [*ROOT.glob("*.py"), *ROOT.glob("[a-z]*/**/*.py")]:
        words.update(re.findall(r"\w+", file.read_text(encoding="utf-8")))
    names = set(re.findall(r"`(?:\w+\.)*([A-Za-z_]\w+)`", text))
    assert names <= words


def listed_folders():
    """Those of `training/` in the order of docs/design.md, each with the file to begin with."""
    table = TEXTS["design.md"].partition("| folder | what is there | begin with |\n")[2]
    return dict(re.findall(r"^\| `(\w+)` \|.*\| `(\w+\.py)` \|$", table, re.MULTILINE))


def test_every_folder_is_listed():
    folders = {path.parent.name for path in ROOT.glob("training/*/__init__.py")}
    assert set(listed_folders()) == folders - {"commands"}  # a former name
    for folder, file in listed_folders().items():
        assert (ROOT / "training" / folder / file).exists(), file


def imported_folders(file):
    """The folders of `training/` that a file imports; a relative import has as many dots as folders
    that it goes up."""
    depth = len(file.relative_to(ROOT / "training").parts)
    text = file.read_text(encoding="utf-8")
    return set(re.findall(rf"^ *from \.{{{depth}}}(\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("folder", listed_folders())
def test_a_folder_imports_those_below_it(folder):
    folders = list(listed_folders())
    not_below = folders[: folders.index(folder)]
    for file in (ROOT / "training" / folder).rglob("*.py"):
        assert imported_folders(file).isdisjoint(not_below), file


@pytest.mark.parametrize("folder", ["training", "tokenization"])
def test_every_file_begins_with_what_it_does(folder):
    for file in (ROOT / folder).rglob("*.py"):
        assert file.read_text(encoding="utf-8").startswith('"""'), file


def test_messages_that_are_explained_occur():
    """Every message in the tables of docs/troubleshooting.md is one that the code can print."""
    code = " ".join(
        file.read_text(encoding="utf-8") for file in sorted(ROOT.glob("training/**/*.py"))
    )
    code = re.sub(
        r'"\s*f?"',
        "",
        " ".join([code, *(file.read_text() for file in ROOT.glob("tokenization/*.py"))]),
    )
    tables = [
        TEXTS["troubleshooting.md"].partition(f"| {kind} |")[2] for kind in ("message", "warning")
    ]
    messages = [
        re.findall(r"^\| `([^`]+)`[ ,]", table.partition("\n\n")[0], re.MULTILINE)
        for table in tables
    ]
    assert [len(each) for each in messages] == [12, 10]
    for message in chain.from_iterable(messages):
        for part in filter(str.strip, message.split("…")):
            assert part.strip(" ;:,") in code, message
