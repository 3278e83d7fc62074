"""`minibert.pretrain(…)` and its like: the command line's names and checks, and the results of the commands."""

import shlex
from pathlib import Path

import datasets
import numpy as np
import pandas
import pytest
import torch
from transformers import IntervalStrategy, SchedulerType, TrainingArguments

import minibert
from minibert.training.arguments import finetuning, pretraining, tools
from minibert.training.cli import main as cli
from minibert.training.cli import parsing
from minibert.training.cli.commands import COMMANDS


def arguments_of(called, kind):
    return next(instance for instance in called.arguments if isinstance(instance, kind))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (dict(data="my-text", size="mini", minutes=30), "--data my-text --size mini --minutes 30"),
        (dict(data=["a", Path("b")], weights=[1, 0.5]), "--data a b --weights 1 0.5"),
        (dict(data=("a",), streaming=True, max_steps=5), "--data a --streaming --max_steps 5"),
        (dict(at_least_one_target=False, bf16=True), "--at_least_one_target false --bf16 true"),
        (
            dict(learning_rate=1e-5, lr_scheduler_kwargs={"num_cycles": 2}),
            "--learning_rate 1e-5 --lr_scheduler_kwargs '{\"num_cycles\": 2}'",
        ),
        (dict(norm_type="rmsnorm", classifier_dropout=None), "--norm_type rmsnorm --classifier_dropout null"),
        (dict(norm_bias=True, layer_types=["full_attention"]), "--norm_bias --layer_types [full_attention]"),
        (
            dict(rope_parameters={"full_attention": {"rope_theta": 5e5}}),
            "--rope_parameters '{full_attention: {rope_theta: 5e5}}'",
        ),
        (dict(recipe="modern", max_steps=7, vocab_size=300), "--recipe modern --max_steps 7 --vocab_size 300"),
        (
            dict(recipe=dict(max_steps=7, norm_type="rmsnorm", weights=[1, 2], data=["a", "b"])),
            "--max_steps 7 --norm_type rmsnorm --weights 1 2 --data a b",
        ),
        (dict(minutes=None, tokenizer=None, num_proc=None), ""),
        (dict(recipe="bert-classic", minutes=None, max_steps=9), "--recipe bert-classic --max_steps 9"),
        (dict(recipe="bert-classic", minutes=None), "--recipe bert-classic"),  # which has num_train_epochs
        (dict(extend_vocabulary=None), ""),  # not that it has no effect
    ],
)
def test_keyword_arguments_are_the_command_line(given, line):
    """Compared as what the function is called with."""
    from_python, from_line = parsing.parse("pretrain", given=given), parsing.parse("pretrain", shlex.split(line))
    assert list(map(str, from_python)) == list(map(str, from_line))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (dict(lerning_rate=3), "--lerning_rate 3"),
        (dict(norm_tipe="x"), "--norm_tipe x"),
        (dict(size="huge"), "--size huge"),
        (dict(max_steps="many"), "--max_steps many"),
        (dict(max_steps=2.5), "--max_steps 2.5"),
        (dict(streaming="perhaps"), "--streaming perhaps"),
        (dict(weights=["much"]), "--weights much"),
        (dict(short_seq_prob=0.1), "--short_seq_prob 0.1"),
        (dict(recipe="modren"), "--recipe modren"),
        (dict(no_streaming=True), "--no_streaming"),
        (dict(hidden_size=100, num_attention_heads=3), "--hidden_size 100 --num_attention_heads 3"),
    ],
)
def test_errors_are_those_of_the_command_line(given, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as refused:
        minibert.pretrain(**given)
    capsys.readouterr()
    assert cli.main(["pretrain", *line.split()]) == 2
    assert capsys.readouterr().err == f"minibert: error: {' '.join(str(refused.value).split())}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(size=["mini", "tiny"]), "size: .* is a list; give one value"),
        (dict(recipe=dict(lerning_rate=3)), "recipe: unknown key 'lerning_rate'; close matches: learning_rate"),
        (dict(recipe=["modern"]), "recipe: .*modern.* is no file"),
        (dict(vocab_size=None), "vocab_size has no value; leave it out"),
        (dict(label_names=["a"], report_to=["x", "y"]), "report_to: .* is a list; give one value"),
    ],
)
def test_values_that_a_command_line_cannot_have(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        minibert.pretrain(**given)


def test_none_leaves_undecided_what_a_recipe_says(recipe):
    given = dict(recipe=recipe("size: tiny\nbf16: true\n"), size=None, bf16=None)
    arguments, *_, training, _ = parsing.parse("pretrain", given=given)
    assert arguments.size is None and training.bf16 is None


def test_results_are_handed_on(called):
    called.result = object()
    assert minibert.pretrain(size="tiny") is called.result
    assert arguments_of(called, pretraining.ModelArguments).size == "tiny"
    assert minibert.finetune("classify", data="sst2", seed=4, labels=["no", "yes"]) is called.result
    assert arguments_of(called, finetuning.ClassifyArguments).labels == ["no", "yes"]
    assert arguments_of(called, TrainingArguments).seed == 4
    assert minibert.evaluate("tag", test=["t.jsonl"]) is called.result
    assert arguments_of(called, finetuning.DataArguments).test == ["t.jsonl"]


def test_a_list_of_no_files_is_refused(called):
    """As of a glob that matches nothing: without data, the built-in corpus would be trained on."""
    for call, name in (
        (minibert.pretrain, "data"), (minibert.prepare, "data"), (lambda **x: minibert.search("idx", **x), "data"),
        (lambda **x: minibert.finetune("tag", data="a", **x), "validation"),
        (lambda **x: minibert.evaluate("tag", **x), "test"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name}: an empty list; give files, or leave it out"):
            call(**{name: []})
    assert called.arguments is None


def test_enumerations_are_their_values(called):
    minibert.pretrain(lr_scheduler_type=SchedulerType.COSINE, eval_strategy=IntervalStrategy.STEPS)
    training = arguments_of(called, TrainingArguments)
    assert training.lr_scheduler_type == "cosine" and training.eval_strategy == "steps"


def test_texts_are_handed_over_as_they_are(called):
    """Also where they look like arguments, are empty, or are not a list."""
    texts = ["--data", "-1", "", "two\nlines", "--"]
    minibert.embed(iter(texts), model="m")
    assert called.arguments[0].text == texts and called.arguments[1].model == "m"
    minibert.embed("one")
    assert called.arguments[0].text == ["one"]
    minibert.fill("a [MASK]", top_k=2)
    assert (called.arguments[0].text, called.arguments[0].top_k) == (["a [MASK]"], 2)
    minibert.rerank("--query", texts, model="m")
    assert called.arguments[0].words == ["--query", *texts]
    minibert.search(Path("idx"), "a query", data=[Path("notes")])
    assert called.arguments[0].words == ["idx", "a query"] and called.arguments[0].data == ["notes"]
    minibert.convert(Path("a"), "b", architecture="bert")
    assert called.arguments[0] == tools.ConvertArguments(paths=["a", "b"], architecture="bert")
    minibert.push("runs/m", "me/m", dry_run=True)
    assert called.arguments[0].paths == ["runs/m", "me/m"] and called.arguments[0].dry_run is True


def test_what_is_no_text_is_not_made_one(called):
    """Missing values of a table would be embedded as the word nan; without texts the command would read stdin."""
    for other in (float("nan"), None, 3, b"a text"):
        for call in (minibert.embed, minibert.fill, lambda texts: minibert.rerank("a query", texts)):
            with pytest.raises(ValueError, match=f"text: {other!r} is a {type(other).__name__}; give strings"):
                call(["a text", other])
    with pytest.raises(ValueError, match="text: none given"):
        minibert.embed([], model="m")
    minibert.embed(pandas.Series(["a", "b"]), model="m")
    assert called.arguments[0].text == ["a", "b"]
    for table in ({"text": ["a"]}, pandas.DataFrame({"text": ["a"]}), Path("a.txt"), None):
        with pytest.raises(ValueError, match=f"text: a {type(table).__name__}; give strings, of a table one column"):
            minibert.embed(table, model="m")
    for call in (minibert.search, minibert.rerank):
        with pytest.raises(ValueError, match="is a list; give strings"):
            call(*["index"] * (call is minibert.search), ["a", "b"], *[["a passage"]] * (call is minibert.rerank))


def test_a_recipe_may_say_where_vectors_go(called, recipe):
    minibert.embed("one", recipe=recipe("output: kept.npy"))
    assert called.arguments[0].output == "kept.npy"
    minibert.embed("one", recipe=dict(pooling="cls"))
    assert Path(called.arguments[0].output).name == "vectors.npy"  # in a folder that goes


@pytest.mark.parametrize("argument", ["model", "tokenizer"])
def test_objects_are_no_names(argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"{argument}: a Linear; save it, and give the folder's name"):
        minibert.pretrain(**{argument: torch.nn.Linear(2, 2)})


def test_data_in_memory_is_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    for given in (rows, datasets.DatasetDict(train=rows), {"a"}, (name for name in "ab")):
        kind = "Dataset" if isinstance(given, dict) else type(given).__name__
        with pytest.raises(ValueError, match=f"data: a {kind}; save it"):
            minibert.finetune("classify", data=given)


def test_numbers_and_arrays_of_numpy(called):
    scheduler = {"x": np.ones(2)}
    minibert.pretrain(num_hidden_layers=np.int64(2), learning_rate=np.float32(0.5), lr_scheduler_kwargs=scheduler)
    assert called.arguments[-1] == {"num_hidden_layers": 2} and type(called.arguments[-1]["num_hidden_layers"]) is int
    assert called.arguments[-2].learning_rate == 0.5 and called.arguments[-2].lr_scheduler_kwargs == {"x": [1.0, 1.0]}
    minibert.convert("a", "b", set={"max_position_embeddings": np.int64(64)})
    assert called.arguments[0].set == {"max_position_embeddings": 64}
    minibert.finetune("classify", train="x", labels=np.array(["no", "yes"]))
    assert called.arguments[0].labels == ["no", "yes"]


def test_unknown_task():
    with pytest.raises(ValueError, match="finetune: 'clasify' is unknown; use one of classify, nli, choose, tag"):
        minibert.finetune("clasify")


def test_every_function_says_what_it_takes():
    for name in COMMANDS:
        function = getattr(minibert, name.split()[0], None)
        if name.split()[0] in minibert.__all__:
            assert "model" in function.__doc__ or "source" in function.__doc__
