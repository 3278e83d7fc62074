"""Every recipe loads, says of every key what it does, and trains."""

import os
import random
from pathlib import Path

import pytest
import torch
from processes import Python
from safetensors.torch import load_file

import minibert
from minibert.training import cli
from minibert.training.cli.parser import parse

RECIPES = sorted(
    (Path(minibert.__file__).parent / "training" / "pretraining" / "recipes").glob("*.yaml")
)
SMALL = [
    "--size", "tiny", "--vocab_size", "300", "--seq_length", "64", "--per_device_train_batch_size", "4",
    "--gradient_accumulation_steps", "2", "--max_steps", "2", "--disable_tqdm", "true", "--bf16", "false",
    "--eval_strategy", "no", "--save_strategy", "no",
]  # fmt: skip
SIZES = "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,intermediate_size=48"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    draw = random.Random(0)
    folder = tmp_path_factory.mktemp("corpus")
    for language, syllables in (("one", "ba be bi bo bu"), ("two", "ка ке ки ко ку")):
        words = ["".join(draw.choices(syllables.split(), k=draw.randint(1, 3))) for _ in range(500)]

        documents = (" ".join(draw.choices(words, k=8)) + ". " + " ".join(draw.choices(words, k=5)) + "."
                     for _ in range(80))  # fmt: skip
        (folder / f"{language}.txt").write_text("\n".join(documents), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def short_model(sources, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "short"
    assert cli.main(["pretrain", "--recipe", "modern", "--data", str(sources / "one.txt"), "--output_dir", str(output),
                     "--config_overrides", f"{SIZES},max_position_embeddings=64", *SMALL]) == 0  # fmt: skip
    return output


def test_all_are_there():
    names = {path.stem for path in RECIPES}
    assert names == {
        "bert-classic",
        "roberta-style",
        "modern",
        "electra",
        "albert-style",
        "decoder",
        "multilingual",
        "long-context",
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_key_is_explained(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines and all(
        len(line.partition("  # ")[2]) > 3 or len(line.partition(" # ")[2]) > 3 for line in lines
    )


QUICK = ("modern", "multilingual", "long-context")  # of the others, what is new is tried elsewhere


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(x, marks=[] if x.stem in QUICK else pytest.mark.slow, id=x.stem)
        for x in RECIPES
    ],
)
def test_it_trains_two_steps(path, sources, short_model, tmp_path, capsys):
    output = tmp_path / "run"
    data = [str(sources / "one.txt")]
    own = (
        "type_vocab_size=0," if path.stem == "roberta-style" else ""
    )  # which one option replaces as a whole
    small = [*SMALL, "--config_overrides", own + SIZES]
    if path.stem == "multilingual":
        data = [f"aa={sources / 'one.txt'}", f"bb={sources / 'two.txt'}"]
    if path.stem == "long-context":
        small = ["--model_name_or_path", str(short_model), *SMALL[4:], "--seq_length", "128"]
    assert (
        cli.main(
            [
                "pretrain",
                "--recipe",
                path.stem,
                "--data",
                *data,
                "--output_dir",
                str(output),
                *small,
            ]
        )
        == 0
    )
    assert (output / "model.safetensors").exists()
    config = minibert.MiniBertConfig.from_pretrained(output)
    if path.stem == "long-context":
        assert config.max_position_embeddings == 8192
        assert config.rope_parameters["full_attention"]["rope_theta"] == 160000.0


@pytest.mark.slow
def test_an_albert_resumes_bit_for_bit_and_loads_without_the_package(sources, tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    words = [*SMALL, "--max_steps", "4", "--save_strategy", "steps", "--save_steps", "2",
             "--save_total_limit", "9"]  # fmt: skip
    words = ["pretrain", "--recipe", "albert-style", "--data", str(sources / "one.txt"), *words]
    assert cli.main([*words, "--output_dir", str(whole)]) == 0
    checkpoint = str(whole / "checkpoint-2")
    assert (
        cli.main([*words, "--output_dir", str(resumed), "--resume_from_checkpoint", checkpoint])
        == 0
    )
    weights = load_file(whole / "model.safetensors")
    again = load_file(resumed / "model.safetensors")
    assert weights.keys() == again.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in weights.items())
    before = load_file(whole / "checkpoint-2" / "model.safetensors")
    assert not torch.equal(
        before["model.layers.0.mlp.Wi.weight"], weights["model.layers.0.mlp.Wi.weight"]
    )

    model = minibert.MiniBertForPreTraining.from_pretrained(whole)
    assert model.config.share_layers and len(model.model.layers) == 1
    ids = torch.arange(5, 17).view(2, 6)
    code = f"""
        import torch
        import transformers

        model = transformers.AutoModelForPreTraining.from_pretrained({str(whole)!r}, trust_remote_code=True)
        result = model(torch.tensor({ids.tolist()})).prediction_logits.tolist()
    """
    environment = {name: value for name, value in os.environ.items() if name != "HF_MODULES_CACHE"}
    environment["HF_HOME"] = str(tmp_path / "home")
    with Python(tmp_path, environment, with_package=False) as python:
        logits = torch.tensor(python.run(code))
    with torch.no_grad():
        torch.testing.assert_close(logits, model(ids).prediction_logits)


@pytest.mark.parametrize("length", ["--minutes 3", "--max_steps=7"])
def test_the_length_on_the_command_line_replaces_the_recipes(length):
    training = parse("pretrain", ["--recipe", "bert-classic", *length.split()])[1]["args"]
    assert training.num_train_epochs is None
    assert parse("pretrain", ["--recipe", "bert-classic"])[1]["args"].num_train_epochs == 40


def test_the_preset_had_another_name(tmp_path):
    """`model`, which still works: on the command line, in recipes and in Python."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: bert\n")
    for words in (["--model", "bert"], ["--model=bert"], ["--recipe", str(recipe)]):
        assert parse("pretrain", words)[1]["preset"] == "bert"
    for option in ("--model", "--preset"):
        words = ["--recipe", str(recipe), option, "modernbert"]
        assert parse("pretrain", words)[1]["preset"] == "modernbert"
    with pytest.raises(ValueError, match="preset: 'runs/mine' is unknown; .* model_name_or_path"):
        minibert.pretrain(model="runs/mine")
    assert parse("finetune tag", ["--model", "bert"])[1]["model"] == "bert"
