"""What a public function takes, it uses or refuses: nothing that is asked for is dropped in silence."""

import ast
import importlib
import inspect
import textwrap

import pytest

import minibert
from minibert.training.cli.commands import COMMANDS
from minibert.training.embeddings import evaluate as encoder_evaluation
from minibert.training.embeddings import train as encoder_training


def load(reference):
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"minibert.training.{module}"), name)


PUBLIC = {name: getattr(minibert, name) for name in minibert.__all__}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
FUNCTIONS |= {command.function: load(command.function) for command in COMMANDS.values()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_read(name):
    function = inspect.unwrap(FUNCTIONS[name])
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names = {node.id for node in nodes if isinstance(node.ctx, ast.Load)}
    if "locals" not in names:
        assert set(inspect.signature(function).parameters) <= names


@pytest.mark.parametrize("task", ["embed", "rerank"])
@pytest.mark.parametrize("verb", ["finetune", "evaluate"])
def test_what_other_tasks_take_reaches_an_encoder_or_is_refused(verb, task, monkeypatch):
    module = encoder_training if verb == "finetune" else encoder_evaluation
    function = getattr(module, f"{verb}_{task}")
    calls = []

    def spy(*args, **keywords):
        calls.append(inspect.signature(function).bind(*args, **keywords).arguments)

    spy.__signature__ = inspect.signature(function)
    monkeypatch.setattr(module, f"{verb}_{task}", spy)
    values = {"validation_size": 0.1, "plan": True, "model": "runs/finetune", "columns": ["a", "b"]}
    public = getattr(minibert, verb)
    for name in inspect.signature(public).parameters.keys() - {"task", "options"}:
        value = values.get(name, "given")
        arguments = {"data": "a.jsonl", name: value}
        try:
            public(task, **arguments)
        except ValueError as error:
            assert str(error).startswith(f"{name}: ")
            assert name not in inspect.signature(function).parameters
        else:
            arguments = calls.pop()
            arguments |= arguments.get("config", {})
            assert arguments[name] == value
    with pytest.raises(ValueError, match="^lables: |^data: none given"):
        public(task, lables=["x"]) if verb == "evaluate" else public(task)


def test_validation_rows_and_a_size_of_them_exclude_each_other():
    with pytest.raises(ValueError, match="^validation_size: "):
        minibert.finetune("classify", train="a.csv", validation="b.csv", validation_size=0.1)


@pytest.mark.parametrize("option", [{"class_weights": ["balanced"]}, {"tune_threshold": True}])
def test_an_evaluation_refuses_options_of_training(option):
    with pytest.raises(ValueError, match=f"^{next(iter(option))}: .* training"):
        minibert.evaluate("classify", test="a.csv", **option)


def test_options_that_exclude_each_other_are_refused(tmp_path):
    refused = [
        (
            encoder_training.finetune_embed,
            dict(pairs_from=["title"], columns=["a", "b"]),
            "columns",
        ),
        (encoder_training.finetune_embed, dict(num_epochs=3), "unknown option 'num_epochs'"),
        (encoder_training.finetune_rerank, dict(lables="x"), "unknown option 'lables'"),
        (encoder_evaluation.evaluate_embed, dict(columns=["a", "b"]), "columns: the folder"),
    ]
    for function, options, message in refused:
        with pytest.raises(ValueError, match=f"^{message}"):
            function(str(tmp_path), **options)
    for options in (dict(columns=["a"]), dict(split="dev")):
        with pytest.raises(ValueError, match="^columns, split: tasks of mteb"):
            minibert.evaluate("embed", tasks=["STS12"], **options)
    (tmp_path / "lines.txt").write_text("a\n")
    with pytest.raises(ValueError, match="^column: .*lines.txt' is no table"):
        minibert.embed(file=str(tmp_path / "lines.txt"), column="title")
