"""What a public function takes, it uses or refuses: nothing that is asked for is dropped in silence."""

import ast
import copy
import dataclasses
import importlib
import inspect
import pickle
import textwrap

import pytest

import minibert
from minibert.training.commands import COMMANDS
from minibert.training.embeddings import evaluate as sentence_evaluation
from minibert.training.embeddings import finetune as sentence_training


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
def test_what_other_tasks_take_reaches_embed_and_rerank_or_is_refused(verb, task, monkeypatch):
    functions = {
        "finetune": sentence_training.FINETUNE_FUNCTIONS,
        "evaluate": sentence_evaluation.EVALUATE_FUNCTIONS,
    }[verb]
    function = functions[task]
    calls = []

    def spy(*args, **keywords):
        calls.append(inspect.signature(function).bind(*args, **keywords).arguments)

    spy.__signature__ = inspect.signature(function)
    monkeypatch.setitem(functions, task, spy)
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
            assert calls.pop()[name] == value
    with pytest.raises(ValueError, match="^lables: |^data: none given"):
        public(task, lables=["x"]) if verb == "evaluate" else public(task)


# Classes that are not made with options: those of models take a config, as in Transformers; the others
# are results, or take one argument.
NOT_MADE_WITH_OPTIONS = {
    "Task",
    "Extension",
    "MaskingProgress",
    "Passage",
    "PreparedRows",
    "TrainingResult",
    "UnknownOptionError",
}
MODEL_CLASSES = {name for name in PUBLIC if hasattr(PUBLIC[name], "base_model_prefix")}
WITH_OPTIONS = {name: value for name, value in PUBLIC.items() if callable(value)} | FUNCTIONS
for class_name in NOT_MADE_WITH_OPTIONS | MODEL_CLASSES:
    del WITH_OPTIONS[class_name]


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_a_typo_is_answered_by_the_option_that_was_meant(name):
    """As on the command line, in every function and class, before any work."""
    function = WITH_OPTIONS[name]
    parameters = list(inspect.signature(function).parameters.values())
    option = next(
        p.name for p in reversed(parameters) if len(p.name) > 4 and p.kind != p.VAR_KEYWORD
    )
    required = [p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD]
    arguments = dict.fromkeys(required, "classify")
    typo = option[0] + option[2:]
    with pytest.raises(ValueError, match=f"'{typo}'.*; (close matches:|did you mean) .*{option}"):
        function(**arguments, **{typo: 1})


@pytest.mark.parametrize(("call", "message"), [
    (lambda folder: minibert.export("runs/minibert", folder / "a", format="onx"),
     "format: 'onx' is unknown; use one of onnx, native, sentence-transformers; close matches: onnx"),
    (lambda folder: minibert.Corpus("a.txt", sample_by="lines"), "sample_by: .*; close matches: line"),
    (lambda folder: minibert.finetune("embed", data="a.jsonl", kind="spars", output_dir=folder / "b"),
     "kind: .*; close matches: sparse"),
    *((lambda folder, name=name: minibert.pretrain(output_dir=folder / "c", **{name: "wrong"}),
       f"{name}: 'wrong' is unknown; use one of")
      for name in ("objective", "optimizer", "embedding_init", "masking", "packing", "algorithm")),
])  # fmt: skip
def test_an_unknown_choice_is_refused_before_any_work(call, message, tmp_path):
    """In Python, too; the command line knows the choices."""
    with pytest.raises(ValueError, match=f"^{message}"):
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_options_of_the_trainer_are_checked_before_the_data():
    with pytest.raises(minibert.UnknownOptionError, match="close matches: .*compute_metrics"):
        minibert.PretrainingTrainer(minibert.MiniBertConfig(), compute_metric=None)


def test_a_checked_class_is_as_before(tmp_path):
    """Its signature, its subclasses, and copies with other values."""

    @dataclasses.dataclass
    class MyConfig(minibert.FinetuningConfig):
        my_field: int = 3

    args = MyConfig(str(tmp_path), my_field=4, learning_rate=0.5)
    assert dataclasses.replace(args, my_field=5).learning_rate == 0.5
    assert copy.deepcopy(args) == args
    corpus = minibert.Corpus("a.txt")
    assert pickle.loads(pickle.dumps(corpus)) == corpus
    assert inspect.signature(minibert.FinetuningConfig).parameters["lora"].default is None
    assert next(iter(inspect.signature(minibert.Nli).parameters)) == "tokenizer"


@pytest.mark.parametrize(("function", "option", "meant"), [
    (minibert.pretrain, "learnig_rate", "learning_rate"),
    (minibert.pretrain, "samplig_alpha", "sampling_alpha"),
    (minibert.pretrain, "epochs", "num_train_epochs"),
    (minibert.prepare, "seq_lenght", "seq_length"),
])  # fmt: skip
def test_fields_of_configs_are_close_matches(function, option, meant):
    for error in (TypeError, ValueError):
        with pytest.raises(
            error, match=f"^unknown option '{option}' of .*; close matches: {meant}"
        ):
            function(**{option: 1})


@pytest.mark.parametrize("task", ["classify", "nli", "choose", "tag", "answer", "embed", "rerank"])
def test_a_typo_of_each_task(task):
    with pytest.raises(minibert.UnknownOptionError, match="; close matches: learning_rate"):
        minibert.finetune(task, data="a.jsonl", learnig_rate=1)
    for function in (minibert.finetune, minibert.evaluate):
        with pytest.raises(minibert.UnknownOptionError, match="; close matches: .*model"):
            function(task, data="a.jsonl", modle="runs/reviews")


def test_an_option_that_nothing_resembles_is_answered_by_what_there_is():
    with pytest.raises(
        minibert.UnknownOptionError, match="'zzz' of fill; it takes text, model, top_k$"
    ):
        minibert.fill("A [MASK].", zzz=1)
    with pytest.raises(minibert.UnknownOptionError, match="it takes data, preset, size, .*, …$"):
        minibert.pretrain(zzz=1)


def test_signatures_name_the_fields_of_configs():
    """What `help` and notebooks show."""
    parameters = inspect.signature(minibert.pretrain).parameters
    assert "options" not in parameters
    assert parameters["learning_rate"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["weight_decay"].default is None and parameters["max_steps"].default == -1
    assert parameters["sample_by"].default == "auto"
    assert (
        list(inspect.signature(minibert.finetune).parameters)[-1] == "options"
    )  # those of the task
    evaluation = inspect.signature(minibert.evaluate).parameters
    assert {"output_dir", "per_device_eval_batch_size", "bf16", "options"} <= set(evaluation)
    assert "learning_rate" not in evaluation  # it would have no effect


def test_keywords_replace_fields_of_args(tmp_path):
    from minibert.training.common.config_fields import make_config

    args = minibert.FinetuningConfig(str(tmp_path), learning_rate=0.5, seed=3)
    config = make_config(minibert.FinetuningConfig, args, {"learning_rate": 0.25})
    assert (config.learning_rate, config.seed, args.learning_rate) == (0.25, 3, 0.5)


@pytest.mark.parametrize("option", [{"class_weights": ["balanced"]}, {"tune_threshold": True}])
def test_an_evaluation_refuses_options_of_training(option):
    with pytest.raises(ValueError, match=f"^{next(iter(option))}: .* training"):
        minibert.evaluate("classify", test="a.csv", **option)


def test_options_that_exclude_each_other_are_refused(tmp_path):
    refused = [
        (
            sentence_training.finetune_embed,
            dict(pairs_from=["title"], columns=["a", "b"]),
            "columns",
        ),
        (sentence_training.finetune_embed, dict(num_epochs=3), "unknown option 'num_epochs'"),
        (sentence_training.finetune_rerank, dict(lables="x"), "unknown option 'lables'"),
        (sentence_evaluation.evaluate_embed, dict(columns=["a", "b"]), "columns: the folder"),
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
