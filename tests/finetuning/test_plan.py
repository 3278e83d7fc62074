"""`minibert finetune TASK --plan`: what it finds in the data is there, and its recipe trains."""

import json
import random
import shlex

import datasets
import pytest
import yaml
from helpers import save_model, write_rows

import minibert
from minibert.tokenization import train_tokenizer
from minibert.training import cli
from minibert.training.cli.parser import parse

WORDS = [a + b for a in "bdfgklmnprst" for b in "aeiou"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny model that knows the words below."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=12)) for _ in range(200)]
    tokenizer = train_tokenizer(
        texts, algorithm="wordpiece", vocab_size=200, show_progress=False, model_max_length=64
    )
    folder, fields = (
        tmp_path_factory.mktemp("models"),
        dict(num_hidden_layers=1, max_position_embeddings=64),
    )
    return save_model(folder / "encoder", tokenizer, "modernbert", **fields)


def run(folder, encoder, output, *arguments, task="classify"):
    return cli.main(["finetune", task, "--data", str(folder), "--model", str(encoder), "--output_dir", str(output),
                     "--bf16", "false", "--disable_tqdm", "true", *arguments])  # fmt: skip


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """300 rows with 3 repeated ones, one of them under another label; 2 rows of the test split are in train."""
    folder = tmp_path_factory.mktemp("reviews")
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(3, 20))) for _ in range(400)]
    train = [
        {"text": text, "label": "good" if i % 10 else "bad"} for i, text in enumerate(texts[:297])
    ]
    train += [dict(train[1]), dict(train[2]), {"text": train[3]["text"], "label": "bad"}]
    write_rows(folder / "train.jsonl", train)
    write_rows(
        folder / "validation.jsonl", [{"text": text, "label": "good"} for text in texts[300:340]]
    )
    test = [{"text": text, "label": "bad"} for text in texts[340:398]] + [train[7], train[8]]
    write_rows(folder / "test.jsonl", test)
    return folder


def test_the_plan_counts_what_is_there(reviews, encoder, tmp_path, capsys):
    output = tmp_path / "plan"
    assert run(reviews, encoder, output, "--plan") == 0
    page = (output / "plan.md").read_text()
    assert page.strip() in capsys.readouterr().out
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in page.splitlines()
            if line.startswith("|")}  # fmt: skip
    assert rows["train"][0] == "300" and rows["train"][2:] == ["3", "–"]
    assert rows["test"][0] == "60" and rows["test"][2:] == ["0", "2"]
    assert rows["validation"][2:] == ["0", "0"]
    assert rows["good"] == ["89.7% (269)"] and rows["bad"] == ["10.3% (31)"]
    assert "train: 1 inputs occur with different labels" in page
    assert (
        "`metric_for_best_model`: f1_macro" in page and "`class_weights`: balanced" in page
    )  # 9 of 10 are of one
    assert not (output / "model.safetensors").exists()


def test_planned_recipe_trains(reviews, encoder, tmp_path, capsys):
    output = tmp_path / "plan"
    assert run(reviews, encoder, output, "--plan") == 0
    recipe = output / "recipe.yaml"
    assert all(" # " in line or line.startswith("#") for line in recipe.read_text().splitlines())
    quick = ["--max_steps", "2", "--bf16", "false", "--disable_tqdm", "true",
             "--eval_strategy", "steps", "--save_strategy", "steps", "--eval_steps", "2",
             "--save_steps", "2"]  # fmt: skip
    assert cli.main(["finetune", "classify", "--recipe", str(recipe), *quick]) == 0
    assert (output / "model.safetensors").exists()
    assert f"Next: `minibert finetune classify --recipe {recipe}`" in capsys.readouterr().out


GIVEN = ["--lora", "4", "--learning_rate", "1e-4", "--seed", "7", "--num_train_epochs",
         "1", "--per_device_train_batch_size", "5", "--patience", "0", "--weight_decay", "0.05",
         "--lr_scheduler_type", "cosine", "--max_length", "32", "--metric_for_best_model", "eval_loss",
         "--include_num_input_tokens_seen", "true", "--gradient_accumulation_steps", "2",
         "--report_to", "none", "--eval_delay", "0.5",
         "--use_cpu", "true"]  # fmt: skip


@pytest.fixture
def few(tmp_path):
    """60 rows, for which much else is proposed than is given above."""
    folder = tmp_path / "few"
    folder.mkdir()
    draw = random.Random(2)
    rows = [{"text": " ".join(draw.choices(WORDS, k=5)), "label": i % 2} for i in range(60)]
    write_rows(folder / "train.jsonl", rows)
    return folder


def test_given_options_are_in_the_recipe(few, encoder, tmp_path):
    """The recipe read is the command line that it was planned with, even where that says what is the default."""
    output = tmp_path / "plan"
    assert run(few, encoder, output, "--plan", *GIVEN) == 0
    recipe = ["--recipe", str(output / "recipe.yaml")]
    given = ["--data", str(few), "--model", str(encoder), "--output_dir", str(output), "--bf16", "false",
             "--disable_tqdm", "true", *GIVEN]  # fmt: skip
    _, read = parse("finetune classify", recipe)
    _, asked = parse("finetune classify", given)
    assert {name for name in read if name != "args" and read[name] != asked[name]} <= {"freeze"}
    read, asked = (vars(keywords["args"]) for keywords in (read, asked))
    names = {name for name in read if read[name] != asked[name] and not name.startswith("_")}
    assert names <= {
        "freeze", "accelerator_config", "patience", "learning_rate", "distributed_state", "deepspeed_plugin",
    }  # fmt: skip
    page = (output / "plan.md").read_text()
    assert "`lora`: 4 – as given" in page and "`max_length`: 32 – as given" in page

    assert cli.main(["finetune", "classify", *recipe, "--traceback"]) == 0
    report = json.loads((output / "metrics.json").read_text())
    assert (
        report["seed"] == 7 and report["steps"] == -(-54 // 10) and report["settings"]["lora"] == 4
    )
    assert report["trained_parameters"] < report["parameters"]


@pytest.mark.parametrize("given", [["--freeze", "1"], ["--max_steps", "3"], ["--minutes", "2.5"]])
def test_given_options_replace_proposed_ones(few, encoder, tmp_path, given):
    output = tmp_path / "plan"
    assert run(few, encoder, output, "--plan", *given) == 0
    recipe = yaml.safe_load((output / "recipe.yaml").read_text())
    assert str(recipe[given[0][2:]]) == given[1]
    assert ("num_train_epochs" in recipe) == (given[0] == "--freeze")
    assert (
        "plan" not in recipe and recipe["per_device_train_batch_size"] == 16
    )  # what was not given is proposed
    expected_freeze = "1" if given[0] == "--freeze" else "none"  # few rows train all layers, too
    assert recipe["freeze"] == expected_freeze


def test_rows_in_memory_have_no_place_in_a_recipe(few, encoder, tmp_path, capsys):
    """Its file mentions them; what `finetune` returns has them, and trains."""
    rows = datasets.load_dataset("json", data_files=str(few / "train.jsonl"), split="train")
    options = dict(model=str(encoder), train=rows, output_dir=str(tmp_path / "plan"), bf16=False)
    plan = minibert.finetune("classify", plan=True, **options)
    recipe = yaml.safe_load((tmp_path / "plan" / "recipe.yaml").read_text())
    assert "train" not in recipe and recipe["model"] == str(encoder)
    printed = capsys.readouterr().out
    assert "- `train`: rows in memory" in printed and "Next, in Python:" in printed
    assert plan.report["train"] is rows
    assert plan.tokenizer.model_max_length == 64  # the survey has cut nothing
    assert minibert.finetune("classify", **plan.report | {"num_train_epochs": 1}).report["steps"]
    parse("finetune classify", ["--recipe", str(tmp_path / "plan" / "recipe.yaml")])


def test_the_command_of_the_plan_takes_a_path_with_a_space(few, encoder, tmp_path, capsys):
    output = tmp_path / "my plan"
    assert run(few, encoder, output, "--plan") == 0
    printed = capsys.readouterr().out
    command = printed.split("Next: `")[1].split("`")[0]
    assert shlex.split(command)[-2:] == ["--recipe", str(output / "recipe.yaml")]
    assert command in (output / "plan.md").read_text()
    assert "`freeze`: none – all layers learn" in printed


def test_no_secret_stands_in_the_recipe(few, encoder, tmp_path):
    assert run(few, encoder, tmp_path / "plan", "--plan", "--hub_token", "hf_secret") == 0
    assert not any("hf_secret" in file.read_text() for file in (tmp_path / "plan").iterdir())


def test_a_plan_is_written_through_no_link(few, encoder, tmp_path):
    """A stranger's folder may have links to the files of the user."""
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    output = tmp_path / "plan"
    output.mkdir()
    for name in ("recipe.yaml", "plan.md"):
        (output / name).symlink_to(victim)
    assert run(few, encoder, output, "--plan") == 0
    assert victim.read_text() == "mine"
    assert "model:" in (output / "recipe.yaml").read_text()
    assert "# Plan: classify" in (output / "plan.md").read_text()


@pytest.mark.parametrize("task", ["tag", "classify"])
def test_shares_of_labels_are_of_words_and_of_rows(task, encoder, tmp_path):
    """Not of the tokens that a word is cut into, nor of all labels that rows have."""
    if task == "tag":
        rows = [{"tokens": [WORDS[0], "q" * 9, WORDS[1]], "tags": ["O", "B-X", "O"]}] * 8
        shares = ["O | 66.7% (16)", "B-X | 33.3% (8)"]
    else:
        rows = [
            {"text": WORDS[i], "label": ["art", "film"] if i % 2 else ["film"]} for i in range(7)
        ]
        rows.append({"text": WORDS[7], "label": []})
        shares = ["film | 87.5% (7)", "art | 37.5% (3)"]
    file = write_rows(tmp_path / "train.jsonl", rows)
    assert run(tmp_path, encoder, tmp_path / "plan", "--plan", "--validation", file, task=task) == 0
    page = (tmp_path / "plan" / "plan.md").read_text()
    assert all(f"| {share} |" in page for share in shares), page
