"""The command line: options are made of signatures, recipes are read like them, and bad input is one line."""

import dataclasses
import inspect
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Literal

import pytest
from helpers import refusal
from transformers import TrainingArguments

import minibert
from minibert.training import cli
from minibert.training.cli import command_line
from minibert.training.cli.command_line import check_path_options, split_command
from minibert.training.cli.parser import build_parser, parse
from minibert.training.cli.recipes import RECIPES, read_recipe
from minibert.training.commands import COMMANDS, Command, examples

calls: list[dict[str, Any]] = []


def work(
    text: str | Sequence[str],
    index: str | PathLike | None = None,
    *,
    count: int = 5,
    share: float | int = 0.5,
    kind: Literal["token", "word"] = "token",
    names: list[str] | None = None,
    numbers: Iterable[float] = (1.0, 2.0),
    quick: bool = True,
    normalize: bool | None = None,
    fields: dict[str, Any] | str | None = None,
    model: Any = None,
    dataset: TrainingArguments | None = None,
    **others: Any,
) -> Any:
    """Do the work.

    With a second paragraph.

    Args:
        text: The texts.
        count: How many: 50 % by default,
            or so: all of them.
        share (float, *optional*): A share.

    Returns:
        What it was given.
    """
    calls.append({key: value for key, value in locals().items() if key != "others"} | others)
    outcome = others.get("outcome")
    if isinstance(outcome, BaseException):
        raise outcome


class Task:
    def __init__(self, columns: list[str] | None = None, share: float = 0.1):
        """
        Args:
            columns: The columns.
        """


@dataclasses.dataclass
class Config(TrainingArguments):
    learning_rate: float = 3e-3
    minutes: float | None = dataclasses.field(default=None, metadata={"help": "The time."})


Config.__module__ = "minibert.training.stand_in"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """The commands `work`, and `train` with a config."""
    module = types.ModuleType("stand_in")
    module.work, module.Task, module.Config = work, Task, Config
    monkeypatch.setitem(sys.modules, "minibert.training.stand_in", module)
    command = Command("Do the work.", "stand_in:work", ("text", "index"))
    monkeypatch.setitem(COMMANDS, "work", command)
    train = dataclasses.replace(
        command,
        fixed_keywords={"kind": "word"},
        options=("stand_in:Task",),
        config="stand_in:Config",
    )
    monkeypatch.setitem(COMMANDS, "train", train)
    calls.clear()


def keywords(line, name="work"):
    return parse(name, shlex.split(line))[1]


# --- options ---


def test_defaults_are_those_of_the_signature():
    given = keywords("a b c")
    assert given.pop("text") == ["a", "b", "c"]
    defaults = {name: p.default for name, p in inspect.signature(work).parameters.items()}
    assert given == {name: [1.0, 2.0] if name == "numbers" else defaults[name] for name in given}
    assert "model" not in given and "dataset" not in given and "others" not in given


def test_values_have_the_types_of_the_signature():
    given = keywords(
        "a --count 3 --share 2 --kind word --names x y --numbers 1 2.5 --quick false --normalize --fields a=1 --index i"
    )
    assert given == dict(text=["a"], count=3, share=2.0, kind="word", names=["x", "y"], numbers=[1.0, 2.5],
                         quick=False, normalize=True, fields="a=1", index="i")  # fmt: skip


def test_positional_arguments(monkeypatch):
    command = dataclasses.replace(COMMANDS["work"], positional=("index", "text"))
    monkeypatch.setitem(COMMANDS, "work", command)
    for line in ("i a b --count 3", "--count 3 i a b", "i --count 3 a b"):
        given = keywords(line)
        assert (given["index"], given["text"], given["count"]) == ("i", ["a", "b"], 3)
    with pytest.raises(ValueError, match="missing TEXT; usage: minibert work"):
        keywords("i")


@pytest.mark.parametrize(("line", "message"), [
    ("a --cuont 3", "unknown option --cuont of 'minibert work'; close matches: --count"),
    ("a --no_quick", "unknown option --no_quick"), ("a --model m", "unknown option --model"),
    ("a --count many", "invalid int value: 'many'"), ("a --kind letter", "invalid choice: 'letter'"),
    ("a --quick perhaps", "perhaps"), ("a --names x --names y", "--names is given twice"), ("", "missing TEXT"),
    ("a --recipe nothing.yaml", "there is no file 'nothing.yaml'"),
])  # fmt: skip
def test_bad_options_are_refused(line, message):
    with pytest.raises(ValueError, match=message):
        keywords(line)


def test_config_fields_are_options(tmp_path):
    line = f"a --columns x y --max_steps 3 --minutes 2 --output_dir {tmp_path / 'new'} --lr_scheduler_kwargs"
    given = keywords(line + """ '{"min_lr": 0.1}'""", "train")
    args = given.pop("args")
    assert (args.max_steps, args.minutes, args.learning_rate) == (3, 2.0, 3e-3)
    assert args.lr_scheduler_kwargs == {"min_lr": 0.1} and not (tmp_path / "new").exists()
    assert (given["kind"], given["columns"], given["share"]) == ("word", ["x", "y"], 0.5)
    with pytest.raises(ValueError, match="unknown option --kind"):
        keywords("a --kind token", "train")


def test_help(capsys):
    assert cli.main(["train", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "How many: 50 % by default, or so: all of them. (default: 5)" in words
    assert (
        "--minutes MINUTES The time." in words
        and "--max_steps" in words
        and "(default: None)" not in words
    )
    assert "--max-steps" not in words and "--no_quick" not in words
    assert "The integration to report" not in words


def test_help_and_a_missing_file_need_no_library(capsys):
    program = (
        "import sys\n"
        "from minibert.training.cli import main\n"
        "assert [main(words) for words in (['--help'], [], ['finetune', '--help'], ['--version'])] == [0, 0, 0, 0]\n"
        "assert main(['pretrian']) == main(['pretrain', '--data', 'nowhere.txt']) == 2\n"
        "assert not {'torch', 'transformers', 'huggingface_hub', 'datasets', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in COMMANDS if name not in ("work", "train"))
    assert "unknown command 'pretrian'; close matches: pretrain" in done.stderr
    assert "data: 'nowhere.txt' does not exist" in done.stderr
    missing = refusal(capsys, "finetune")
    assert missing.startswith("minibert: error: task: finetune needs one; use one of classify, nli")
    unknown = refusal(capsys, "finetune", "tga")
    assert unknown.startswith("minibert: error: task: 'tga' is unknown; use one of classify, nli")


# What the help of a command may import beside torch and Transformers, of these libraries that take seconds.
SLOW_LIBRARIES = {
    "datasets",
    "evaluate",
    "matplotlib",
    "sentence_transformers",
    "seqeval",
    "sklearn",
}
READS_TEXT = {"datasets"}
# Their configs extend that of sentence-transformers, which imports scikit-learn.
TRAINS_ENCODERS = {"datasets", "sklearn", "sentence_transformers"}
HELP_IMPORTS = {
    "fill": set(),
    "convert": set(),
    "export": set(),
    "push": set(),
    "pretrain": READS_TEXT,
    "prepare": READS_TEXT,
    "tokenizer": READS_TEXT,
    "finetune classify": READS_TEXT,
    "finetune nli": READS_TEXT,
    "finetune choose": READS_TEXT,
    "evaluate classify": READS_TEXT,
    "evaluate nli": READS_TEXT,
    "evaluate choose": READS_TEXT,
    "predict": READS_TEXT,
    "embed": READS_TEXT,
    "search": READS_TEXT,
    "rerank": READS_TEXT,
    "finetune answer": READS_TEXT,
    "evaluate answer": READS_TEXT,
    "finetune tag": READS_TEXT,
    "evaluate tag": READS_TEXT,
    "evaluate embed": READS_TEXT,
    "evaluate rerank": READS_TEXT,
    "finetune embed": TRAINS_ENCODERS,
    "finetune rerank": TRAINS_ENCODERS,
}


def test_help_imports_only_what_the_command_needs():
    """In one process, which saves a minute: the commands stand in the order of what they may import."""
    assert set(HELP_IMPORTS) == set(COMMANDS) - {"work", "train"}
    program = f"""
import sys
from minibert.training.cli.parser import build_parser
for name, allowed in {HELP_IMPORTS!r}.items():
    build_parser(name).format_help()
    imported = {SLOW_LIBRARIES!r} & set(sys.modules)
    assert imported <= allowed, (name, imported - allowed)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].function])
def test_every_option_has_help_and_every_example_parses(name):
    parser = build_parser(name)
    assert not [action.dest for action in parser._actions if not action.help]
    assert len(examples(name)) >= 3
    for line in examples(name):
        parse(*split_command(shlex.split(line)[1:]))


# --- recipes ---


@pytest.fixture
def recipe(tmp_path):
    def write(text):
        (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path / "recipe.yaml")

    return write


def test_a_former_name_beside_the_name_of_today_is_refused(recipe):
    """If their values differ: one of them would be left out silently."""
    with pytest.raises(ValueError, match="model: 'bert', but preset is 'modernbert'"):
        minibert.pretrain("text.txt", model="bert", preset="modernbert")
    with pytest.raises(ValueError, match="text.txt"):  # the same value: on to the next check
        minibert.pretrain("text.txt", model="bert", preset="bert")
    path = recipe("preset: modernbert\nmodel: bert")
    with pytest.raises(ValueError, match="'model' is a former name of 'preset'"):
        parse("pretrain", ["--recipe", path])


def test_recipe_sets_the_same_options(recipe):
    path = recipe(
        "share: 1e-5\nquick: no\nnames: [no, 010, 1:30]\nnumbers:\n- 1\n- 2e1\nfields: {a: 1}\nindex: null\n"
        "kind: word\n"
    )
    given = keywords(f"a --recipe {path} --kind token")
    assert given == dict(text=["a"], count=5, share=1e-5, kind="token", names=["no", "010", "1:30"], normalize=None,
                         numbers=[1.0, 20.0], quick=False, fields='{"a": 1}', index=None)  # fmt: skip
    assert keywords(f"a --recipe {recipe('# nothing')}") == keywords("a")
    assert keywords(f"--recipe {recipe('text: [a, b]')}")["text"] == ["a", "b"]


def test_length_on_the_command_line_replaces_that_of_the_recipe(recipe, tmp_path):
    path = recipe(f"max_steps: 7\nminutes: 3\nlearning_rate: 0.5\noutput_dir: {tmp_path}\n")
    args = keywords(f"a --recipe {path} --num_train_epochs 2", "train")["args"]
    assert (args.max_steps, args.minutes, args.num_train_epochs, args.learning_rate) == (
        -1,
        None,
        2.0,
        0.5,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuont: 3", "unknown key 'cuont'; close matches: count"),
        ("recipe: other.yaml", "unknown key 'recipe'"),
        ("count: many", "invalid int value: 'many'"),
        ("numbers: [1, x]", "invalid float value: 'x'"),
        ("count: [1, 2]", r"count: \['1', '2'\] is a list; give one value"),
        ("- a", "has no 'option: value' lines"),
        ("a: [", "is not YAML"),
        ("a: !!python/object/apply:os.system [true]", "is not YAML"),
        ("a: &x [1]\nb: *x", r"has aliases \(\*\), or more than 20 levels"),
        ("a: " + "[" * 20_000 + "]" * 20_000, "more than 20 levels"),
        ("a: \x00", "is not YAML"),
    ],
)
def test_bad_recipes_are_refused(text, message, recipe):
    with pytest.raises(ValueError, match=message):
        keywords(f"a --recipe {recipe(text)}")


def test_builtin_recipes_are_found_by_name():
    for file in sorted(RECIPES.glob("*.yaml")):
        assert read_recipe(file.stem) == read_recipe(str(file)) != {}
    with pytest.raises(
        ValueError, match="'modren'; close matches: modern; use a YAML file, or one of albert-style"
    ):
        read_recipe("modren")


# --- errors ---


class PanicException(BaseException):
    __module__ = "pyo3_runtime"


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("a\n b \x1b[31m\u202e"), 2, r"error: a b \x1b[31m\u202e"),
        (FileNotFoundError(2, "No such file", "x"), 2, "error: [Errno 2] No such file: 'x'"),
        (
            ModuleNotFoundError("No module named 'peft'", name="peft"),
            2,
            "error: this needs peft: pip install peft",
        ),
        (
            RuntimeError("can't allocate memory: 9 bytes"),
            2,
            "error: the memory is too small; use a smaller model",
        ),
        (MemoryError(), 2, "error: the memory is too small"),
        (PanicException("index out of bounds"), 2, "error: PanicException: index out of bounds"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_are_one_line(error, status, line, monkeypatch, capsys):
    fixed = {"fixed_keywords": {"outcome": error}}
    monkeypatch.setitem(COMMANDS, "work", dataclasses.replace(COMMANDS["work"], **fixed))
    assert cli.main(["work", "a"]) == status
    said = capsys.readouterr().err
    assert said.startswith(f"minibert: {line}") and said.count("\n") == 1
    with pytest.raises(type(error)):
        cli.main(["work", "a", "--traceback"])


@pytest.mark.parametrize("command", ["pretrain", "finetune tag", "embed", "search"])
def test_only_a_training_goes_on_after_ctrl_c(command, monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "run_command", interrupt)
    assert cli.main([*command.split(), "a"]) == 130
    resumes = command in ("pretrain", "finetune tag")
    assert ("--resume_from_checkpoint true" in capsys.readouterr().err) == resumes


def test_unexpected_exceptions_are_not_caught(monkeypatch):
    monkeypatch.setitem(
        COMMANDS,
        "work",
        dataclasses.replace(COMMANDS["work"], fixed_keywords={"outcome": KeyError("x")}),
    )
    with pytest.raises(KeyError):
        cli.main(["work", "a"])


def test_text_that_is_not_utf8(capsys):
    assert "surrogates not allowed" in refusal(capsys, "work", "caf\udce9")


def test_only_the_first_process_prints(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["--help"]) == 0
    assert not capsys.readouterr().out


@pytest.mark.slow  # another process
def test_process_group_is_destroyed_at_the_end():
    """One that ends without may be aborted by torch."""
    program = """
from torch import distributed
from minibert.training.cli import main
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
main(["--help"])
print("open" if distributed.is_initialized() else "left")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split()[-1] == "left", done.stderr


@pytest.mark.parametrize("line, said", [
    ("pretrain --data here.txt de=nowhere.txt --size mini", "data: 'nowhere.txt' does not exist"),
    ("pretrain --data=nowhere.jsonl", "data: 'nowhere.jsonl' does not exist"),
    ("finetune tag --train ./nowhere", "train: './nowhere' does not exist"),
    ("finetune embed nowhere.csv", "data: 'nowhere.csv' does not exist"),
    ("embed --file nowhere", "file: 'nowhere' does not exist"),
    ("convert /no/where target", "source: '/no/where' does not exist"),
    ("fill 'A [MASK].' --model ./nowhere", "model: './nowhere' does not exist"),
    ("fill 'A [MASK].' --model runs/nope", "model: 'runs/nope' does not exist"),
    ("pretrain --data owner/name here.txt *.txt de=owner/name:config", None),
    ("embed 'a / b / c' ./text.txt --model here.txt --file - ", None),
    ("search index --model owner/name ./query.txt 'a / b / c'", None),
])  # fmt: skip
def test_missing_file_is_refused_before_the_imports(tmp_path, monkeypatch, line, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.txt").write_text("text")
    *name, rest = split_command(shlex.split(line))
    if said is None:
        check_path_options(*name, rest)
        return
    with pytest.raises(ValueError, match=re.escape(said)):
        check_path_options(*name, rest)
