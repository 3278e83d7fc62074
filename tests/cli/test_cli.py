"""The command line: help without torch, arguments and recipes read alike, everything unknown refused in one line."""

import dataclasses
import importlib
import io
import re
import shlex
import subprocess
import sys
import types

import pytest
from helpers import refusal
from transformers import PreTrainedConfig, TrainingArguments

from minibert.configuration_minibert import MiniBertConfig
from minibert.training.arguments import pretraining as arguments
from minibert.training.cli import main as cli
from minibert.training.cli import parsing
from minibert.training.cli.commands import COMMANDS
from minibert.training.cli.parsing import build_parser


def parse(name, line="", *words):
    return parsing.parse(name, [*line.split(), *words])


def pretrain(line="", *words):
    """All that pretrain is called with, by name."""
    *ours, training, overrides = parse("pretrain", line, *words)
    values = {field.name: getattr(item, field.name) for item in ours for field in dataclasses.fields(item)}
    return types.SimpleNamespace(**values, training=training, overrides=overrides)


# --- help ---


def fresh(program):
    """What a fresh Python prints: the modules it has loaded are its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_of_several_leaves_its_group():
    """One that ends without may be aborted by torch."""
    program = """
from torch import distributed
from minibert.training.cli.main import main
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
main(["--help"])
print("open" if distributed.is_initialized() else "left")
"""
    assert fresh(program).split()[-1] == "left"


def test_help_loads_no_library():
    """What takes long to load, such as torch and Transformers, is not needed for help."""
    shown = fresh(
        "import sys\n"
        "from minibert.training.cli.main import COMMANDS, main\n"
        "assert main(['--help']) == 0 and main([]) == 0\n"
        "for name in COMMANDS:\n"
        "    assert main([name, '--help']) == 0\n"
        "assert not {'torch', 'transformers', 'huggingface_hub', 'datasets', 'numpy'} & set(sys.modules)\n"
    )
    for name, command in COMMANDS.items():
        assert f"  {name} " in shown and command.help in shown
        assert command.training_defaults is None or f"(default: {command.training_defaults['output_dir']})" in shown
        for dataclass_type in command.arguments:
            for field in dataclasses.fields(dataclass_type):
                assert f"--{field.name}" in shown


def test_refusals_that_need_no_library_come_before_it_is_loaded(tmp_path):
    """Names, values and arguments without effect; a finished output folder before training is set up."""
    (tmp_path / "config.json").write_text("{}")
    lines = [
        "pretrain --lerning_rate 3",
        "pretrain --norm_tipe rmsnorm",
        "finetune tag --modle x",
        "pretrain --packing tight",
        "pretrain --short_seq_prob 0.1",
        "pretrain --recipe no-such-recipe",
        f"finetune classify --output_dir {tmp_path}",
        f"finetune embed --output_dir={tmp_path}",
        f"pretrain --max_steps 3 --output_dir {tmp_path}",
    ]
    fresh(
        "import sys\n"
        "from minibert.training.cli.main import main\n"
        f"for line in {lines!r}:\n"
        f"    if {str(tmp_path)!r} in line:\n"
        "        import minibert.training.checkpoints\n"
        "    before = {'torch', 'transformers'} & set(sys.modules)\n"
        "    assert main(line.split()) == 2, line\n"
        "    assert {'torch', 'transformers'} & set(sys.modules) == before, line\n"
    )


def test_names_that_are_read_from_source():
    assert parsing.argument_names("evaluate tag") >= {field.name for field in dataclasses.fields(TrainingArguments)}
    inherited = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(MiniBertConfig)} - inherited
    ours = {field.name for kind in COMMANDS["pretrain"].arguments for field in dataclasses.fields(kind)}
    training = {field.name for field in dataclasses.fields(TrainingArguments)}
    assert parsing.argument_names("pretrain") == own | {*MiniBertConfig.attribute_map} | ours | training | {"recipe"}


def test_every_argument_says_what_it_is():
    for item in vars(arguments).values():
        if dataclasses.is_dataclass(item):
            for field in dataclasses.fields(item):
                assert field.metadata["help"].endswith("."), field.name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_what_the_command_has(name):
    """Or says of which command it speaks."""
    for action in parsing.build_parser(name)._actions:
        named = {*re.findall(r"--(\w+)", action.help or "")}
        assert named <= parsing.argument_names(name) or "pretrain" in action.help, action.dest
        assert name == "pretrain" or "one of ours" not in (action.help or "")  # recipes


def test_help_all(capsys):
    assert cli.main(["pretrain", "--help-all"]) == 0
    shown = capsys.readouterr().out
    for field in dataclasses.fields(TrainingArguments):
        assert f"--{field.name}" in shown
    assert "norm_placement" in shown and "hidden_dropout_prob" in shown


def test_names_do_not_collide():
    fields = {field.name for field in dataclasses.fields(MiniBertConfig)} | set(MiniBertConfig.attribute_map)
    for name, command in COMMANDS.items():
        build_parser(name, everything=True)  # argparse refuses a name that is there twice
        if command.config_overrides:
            ours = {field.name for item in command.arguments for field in dataclasses.fields(item)}
            assert ours & fields == {"vocab_size"}  # the tokenizer's, which the model follows


# --- the command line ---


def test_defaults():
    given = pretrain()
    assert given.data == [] and given.packing is None and given.overrides == {}
    for name, value in arguments.PRETRAIN_DEFAULTS.items():
        if value is not None and name != "report_to":
            assert getattr(given.training, name) == value, name
    assert given.training.report_to == []
    assert given.training.bf16 is None
    assert given.training.max_grad_norm == TrainingArguments.max_grad_norm


def test_the_users_flags_win():
    given = pretrain(
        "--data a b --seq-length 64 --learning_rate=2e-4 --warmup_steps 10 --bf16 false --output_dir x"
        " --lr_scheduler_type cosine"
    )
    assert (given.data, given.seq_length) == (["a", "b"], 64)
    training = given.training
    assert (training.learning_rate, training.warmup_steps, training.bf16) == (2e-4, 10, False)
    assert (training.output_dir, training.lr_scheduler_type) == ("x", "cosine")


def test_model_fields():
    given = pretrain(
        "--norm_type rmsnorm --norm-eps 1e-5 --gated_mlp --attention_bias=false --hidden_dropout_prob .1"
        " --classifier_dropout null --num_hidden_layers 2 --layer_types full_attention sliding_attention"
        " --initializer_range=-1 --local_attention 6 --local_attention 8",
        "--rope_parameters",
        "{full_attention: {rope_theta: 1e6}}",
    )
    assert given.overrides == {
        "norm_type": "rmsnorm",
        "norm_eps": 1e-5,
        "gated_mlp": True,
        "attention_bias": False,
        "hidden_dropout_prob": 0.1,
        "classifier_dropout": None,
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "sliding_attention"],
        "initializer_range": -1,
        "local_attention": 8,
        "rope_parameters": {"full_attention": {"rope_theta": 1e6}},
    }
    assert all(type(given.overrides[name]) is float for name in ("norm_eps", "hidden_dropout_prob"))
    del given.overrides["initializer_range"]
    config = MiniBertConfig.modernbert("tiny", **given.overrides)
    assert config.norm_eps == 1e-5 and config.rope_parameters["full_attention"]["rope_theta"] == 1e6


@pytest.mark.parametrize(
    "line", ["'one text' two --top_k 3", "--top_k 3 'one text' two", "--text 'one text' two --top_k 3"]
)
def test_words_without_a_flag(line):
    (fill,) = parsing.parse("fill", shlex.split(line))
    assert fill == arguments.FillArguments(text=["one text", "two"], top_k=3)


def test_the_home_folder_where_shells_leave_it(monkeypatch, recipe):
    """Behind "=", in a recipe and in Python; what is read as text stays as it is."""
    monkeypatch.setenv("HOME", "/h")
    embed, pooling = parse("embed", "--output=~/v.npy --model=~/m", "~/x", "y = ~")
    assert (embed.output, pooling.model, embed.text) == ("/h/v.npy", "/h/m", ["~/x", "y = ~"])
    line = f"--recipe {recipe('output_dir: ~/runs')} --data ~/a de=~/b c~d"
    given = pretrain(line)
    assert given.data == ["/h/a", "de=/h/b", "c~d"] and given.training.output_dir == "/h/runs"
    (convert,) = parse("convert", "~/a ~")
    assert convert.paths == ["/h/a", "~"]
    (search,) = parsing.parse("search", given={"words": ["~/index", "~/query"], "data": ["~/a"]})
    assert search.words == ["~/index", "~/query"] and search.data == ["/h/a"]


def test_bytes_that_are_no_text_are_refused(capsys):
    """As Python hands on the names of old disks, and what is typed into other terminals."""
    assert "'caf\\udce9' is not UTF-8" in refusal(capsys, "fill", "caf\udce9", "--model", "x")


def test_words_beside_their_own_flag_are_refused(capsys):
    assert "text: given with and without --text" in refusal(capsys, "fill", "one", "--text", "two")


def test_arguments_of_the_function(called):
    assert cli.main(["pretrain", "--size", "tiny", "--hidden_size", "64"]) == 0
    kinds = (*COMMANDS["pretrain"].arguments, TrainingArguments, dict)
    assert tuple(map(type, called.arguments)) == kinds
    assert cli.main(["tokenizer"]) == 0
    assert tuple(map(type, called.arguments)) == COMMANDS["tokenizer"].arguments


# --- recipes ---


def test_recipe(recipe):
    path = recipe(
        "# a comment\n"
        "data: [a.txt, b c.txt]\n"
        "size: tiny\n"
        "learning_rate: 5e-4\n"  # which YAML 1.1 takes for a string
        "eval_strategy: no\n"  # and this for false
        "tf32: false\n"
        "max_steps: 7\n"
        "lr_scheduler_kwargs: {num_cycles: 2}\n"
        "norm_eps: 1e-6\n"
        "norm_bias: true\n"
        "classifier_dropout: null\n"
        "rope_parameters: {full_attention: {rope_theta: 5e5}}\n"
        "validation_size: 0.1\n"
    )
    given = pretrain("--max_steps 9 --norm_bias false --validation_size 3", "--recipe", path)
    assert (given.data, given.size, given.validation_size) == (["a.txt", "b c.txt"], "tiny", 3)
    training = given.training
    assert (training.learning_rate, training.eval_strategy, training.max_steps) == (5e-4, "no", 9)
    assert training.tf32 is False and training.lr_scheduler_kwargs == {"num_cycles": 2}
    assert training.weight_decay == arguments.PRETRAIN_DEFAULTS["weight_decay"]
    assert given.overrides == {
        "norm_eps": 1e-6,
        "norm_bias": False,
        "classifier_dropout": None,
        "rope_parameters": {"full_attention": {"rope_theta": 5e5}},
    }


def test_a_recipe_for_every_command(recipe):
    (fill,) = parse("fill", "--top_k 2 --recipe", recipe("text: 'a [MASK]'\ntop_k: 9\n"))
    assert fill.text == ["a [MASK]"] and fill.top_k == 2
    assert parse("fill", "--recipe", recipe("# nothing\n")) == parse("fill")


@pytest.mark.parametrize(
    "text, message",
    [
        ("lerning_rate: 1", r"recipe.yaml: unknown key 'lerning_rate'; close matches: learning_rate"),
        ("norm_tipe: rmsnorm", r"recipe.yaml: unknown key 'norm_tipe'; close matches: norm_type"),
        ("recipe: other.yaml", r"unknown key 'recipe'"),
        ("3: 4", r"unknown key 3"),
        ("max_steps:", r"max_steps has no value; leave it out"),
        ("max_steps: many", r"--max_steps.*invalid int value: 'many'"),
        ("size: huge", r"--size: invalid choice: 'huge' .*tiny"),
        ("- size", r"is no list of 'argument: value' lines"),
        ("size: [", r"recipe.yaml is not YAML"),
        ("size: tiny\nseed: 1\nsize: mini", r"recipe.yaml is not YAML: 'size' is given twice"),
        ("rope_parameters: {full_attention: {rope_theta: 1.0, rope_theta: 2.0}}", r"'rope_theta' is given twice"),
    ],
)
def test_recipe_refused(recipe, text, message):
    with pytest.raises(ValueError, match=message):
        pretrain("--recipe", recipe(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("010", 10), ("-5", -5), ("0o17", 15), ("0x1F", 31), ("1:30", "1:30"), ("1e3", 1000.0), ("1.", 1.0), ("no", "no")],
)
def test_numbers_are_those_of_yaml_1_2(text, expected):
    found = parsing.read_yaml(f"- {text}", "here")[0]
    assert found == expected and type(found) is type(expected)


def test_points_of_a_recipe_are_no_times(recipe):
    assert pretrain("--recipe", recipe("rate_points: [0:0.3, 1:0]")).rate_points == {0.0: 0.3, 1.0: 0.0}


def test_a_recipe_that_is_not_utf_8_is_named(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes("data: café".encode("latin-1"))
    with pytest.raises(ValueError, match="recipe.yaml is not YAML: unacceptable character"):
        pretrain("--recipe", str(path))


def test_recipe_that_is_not_there():
    with pytest.raises(ValueError, match="recipe: 'no.yaml' is no file"):
        pretrain("--recipe no.yaml")


# --- refusals ---


@pytest.mark.parametrize(
    "line, message",
    [
        ("pretran", "unknown command 'pretran'; close matches: pretrain, rerank; use one of pretrain, fill, "),
        (
            "pretrain --lerning_rate 3",
            "--lerning_rate of 'minibert pretrain'; close matches: --learning_rate",
        ),
        ("pretrain --norm-tipe=x", "unknown argument --norm_tipe .*close matches: --norm_type"),
        ("pretrain --learning 3", "unknown argument --learning "),  # no abbreviations: they change their meaning
        ("pretrain --qqqqq", "unknown argument --qqqqq of 'minibert pretrain'$"),
        ("pretrain --num_labels 3", "unknown argument --num_labels"),  # of the library's base class, not of the model
        ("pretrain stray", "unexpected 'stray'"),
        ("pretrain --max_steps x", "--max_steps.*invalid int value: 'x'"),
        ("pretrain --packing tight", "--packing: invalid choice: 'tight'"),
        ("pretrain --seq_length", "--seq_length.*expected one argument"),
        ("pretrain --recipe", "--recipe.*expected one argument"),
        ("pretrain --hidden_act {a", "'{a' is not YAML"),
        ("pretrain --eval_strategy sometimes", "sometimes"),
        ("tokenizer --norm_type rmsnorm", "unknown argument --norm_type of 'minibert tokenizer'"),
        ("pretrain --data a --size tiny --data b", "data: --data is given twice; give all behind one"),
        ("finetune classify --label_names=a --label_names b", "label_names: --label_names is given twice"),
        ("convert a b --set c=1 --set d=2", "set: --set is given twice"),
        ("pretrain --layer_types a b --layer-types b a", "layer_types: --layer_types is given twice"),
    ],
)
def test_refused_in_one_line(called, capsys, line, message):
    assert cli.main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == "" and called.arguments is None
    assert output.err.startswith("minibert: error: ") and output.err.count("\n") == 1
    assert re.search(message, output.err.strip())


def refused_field():
    try:
        MiniBertConfig(hidden_size=100, num_attention_heads=3)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    "error", [ValueError("one\n  two"), FileNotFoundError("one two"), ImportError("one two"), refused_field()]
)
def test_errors_of_a_command(called, capsys, error):
    called.result = error
    assert cli.main(["fill", "x"]) == 2
    assert capsys.readouterr().err == f"minibert: error: {' '.join(str(error).split())}\n"
    with pytest.raises((ValueError, OSError, ImportError)):  # a config's own errors, too, become a ValueError
        cli.main(["fill", "x", "--traceback"])


def test_other_errors_are_not_hidden(called):
    called.result = KeyError("a fault of ours")
    with pytest.raises(KeyError):
        cli.main(["fill", "x"])


def test_signs_that_a_terminal_does_not_have(called, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    monkeypatch.setattr(sys.modules["minibert.training.stand_in"], "function", lambda *_: print("a → b"))
    assert cli.main(["fill"]) == 0
    sys.stdout.flush()
    assert sys.stdout.buffer.getvalue().strip() == rb"a \u2192 b"


@pytest.mark.parametrize("result, status", [(None, 0), (0, 0), (1, 1)])
def test_exit_status(called, result, status):
    called.result = result
    assert cli.main(["fill"]) == status


def test_bf16_needs_no_accelerator(monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    *_, training, _ = parsing.parse("pretrain", ["--bf16", "true"])
    assert training.bf16 and training.device.type == "cpu"


def test_a_missing_extra_is_named(tmp_path, monkeypatch, capsys):
    MiniBertConfig.bert("tiny").save_pretrained(tmp_path)
    importlib.import_module("transformers.trainer")  # which takes peft for installed, and so would fail for it
    monkeypatch.setitem(sys.modules, "peft", None)
    assert cli.main(f"finetune classify --model {tmp_path} --data x --lora 4".split()) == 2
    assert capsys.readouterr().err == "minibert: error: this needs peft: pip install peft\n"


@pytest.mark.parametrize("group", ["finetune", "evaluate"])
def test_help_of_a_group_names_its_commands(group, capsys):
    assert cli.main([group, "--help"]) == 0
    out = capsys.readouterr().out
    assert all((name in out) == (name.split()[0] == group) for name in COMMANDS if " " in name)
