"""`minibert race`: the same text, masks and turns for all."""

import json
import math
import time
from dataclasses import replace
from multiprocessing import Pipe

import pytest
import torch
from helpers import build, write_rows
from transformers import AutoModelForMaskedLM, AutoTokenizer, Trainer, TrainingArguments

from minibert.training.arguments.pretraining import CorpusArguments
from minibert.training.arguments.tools import RaceArguments
from minibert.training.race import HELD_OUT, Turns, compare, prepare, race, split_documents


def run(peer, *points):
    curve = [dict(zip(("tokens", "seconds", "flops", "loss"), point)) for point in points]
    return {"peer": peer, "curve": curve, "loss": curve[-1]["loss"]}


def test_where_a_run_reaches_the_best_run_of_a_peer():
    results = {
        "ours": run(None, (100, 1.0, 7, 6.0), (200, 2.0, 14, 4.0)),
        "early": run(None, (100, 1.0, 7, 4.5)),
        "bert slow": run("bert", (100, 10.0, 7, 6.5), (200, 20.0, 14, 6.0)),
        "bert fast": run("bert", (100, 10.0, 7, 6.0), (200, 20.0, 14, 5.0)),
    }
    best = compare(results)["bert"]
    assert best["run"] == "bert fast"
    assert best["reached"]["ours"] == {"seconds": 1.5 / 20, "tokens": 150 / 200, "flops": 10.5 / 14}
    assert best["reached"]["early"]["tokens"] == 0.5
    assert best["reached"]["bert fast"]["tokens"] == 1 and best["reached"]["bert slow"] is None


def test_a_run_that_diverged_is_not_the_best_of_its_peer():
    ended = {"a": run("bert", (1, 1.0, 1, math.nan)), "b": run("bert", (1, 1.0, 1, 5.0))}
    assert compare(ended)["bert"]["run"] == "b"
    assert compare({"a": ended["a"], "ours": run(None, (1, 1.0, 1, 5.0))}) == {}  # nobody can reach that


@pytest.mark.parametrize(
    "field, given",
    [
        ("peers", {"peers": ["gpt"]}),
        ("steps", {"steps": 0}),
        ("recipe", {"recipes": ["nope"]}),
        ("recipes", {"recipes": ["electra"]}),
        ("recipes", {"recipes": ["modern", "modern"]}),
        ("data", {"grammar": "nope.jsonl"}),
    ],
)
def test_bad_input_is_named_before_any_work(field, given, tmp_path):
    with pytest.raises(ValueError, match=f"^{field}: "):
        race(CorpusArguments(), RaceArguments(output=str(tmp_path / "race"), **given))
    assert not (tmp_path / "race").exists()


def test_a_folder_that_is_of_no_race_stays(tmp_path):
    """Such as runs/minibert, where `minibert pretrain` writes."""
    (tmp_path / "minibert").mkdir()
    (tmp_path / "minibert" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="^output: .*minibert' is of no race; use another output"):
        race(CorpusArguments(), RaceArguments(output=str(tmp_path), quick=True))
    assert [path.name for path in tmp_path.rglob("*")] == ["minibert", "config.json"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mine", "data: x.txt"),
        ("mine", "validation_size: 0.01"),
        ("tokenizer", "size: tiny"),
        ("held_out", "size: tiny"),
        ("bert 0.001", "size: tiny"),
    ],
)
def test_a_recipe_chooses_neither_text_nor_a_name_that_is_taken(name, content, tmp_path):
    (tmp_path / f"{name}.yaml").write_text(content)
    with pytest.raises(ValueError, match="^recipes: "):
        race(CorpusArguments(), RaceArguments([str(tmp_path / f"{name}.yaml")], output=str(tmp_path / "race")))
    assert not (tmp_path / "race").exists()


def test_the_held_out_documents_are_of_all_text(tmp_path):
    """Not of what stands first: a race of several files was decided on the first one."""
    for word in ("apple", "stone"):
        (tmp_path / f"{word}.txt").write_text("\n".join(f"{word} {n} {word}" for n in range(400)))
    corpus = CorpusArguments(data=[str(tmp_path / "apple.txt"), str(tmp_path / "stone.txt")])
    arguments = RaceArguments(output=str(tmp_path), documents=12, vocab_size=300)
    prepare(split_documents(corpus, arguments), arguments, {})
    tokenizer, held_out = AutoTokenizer.from_pretrained(tmp_path / "tokenizer"), (tmp_path / HELD_OUT).read_text()
    rows = [row for batch in json.loads(held_out)["batches"] for row in batch["input_ids"]]
    text = " ".join(map(tokenizer.decode, rows))
    assert "apple" in text and "stone" in text


def test_a_folder_goes_on_with_the_same_text_alone(tmp_path, monkeypatch, capsys):
    """What is trained is a stand-in. Of a recipe, the race's own settings are left out, in what is kept of it too."""
    trained = []

    def train(runs, corpus, arguments):
        trained.extend(runs)
        figures = {"bits_per_byte": 1.0, "accuracy": 0.5, **run(None, (1, 1.0, 1, 5.0))}
        for name, given in runs.items():
            (tmp_path / "race" / f"{name}.json").write_text(json.dumps(figures | dict(given)))

    monkeypatch.setattr("minibert.training.race._take_turns", train)
    monkeypatch.setattr("minibert.training.race.plot_race", lambda path, results: None)
    recipe, text = tmp_path / "wide.yaml", tmp_path / "text.txt"
    recipe.write_text("size: small\nmax_steps: 7\nweight_decay: 0.1\n")

    def again(word):
        text.write_text("".join(f"{word} number {n} of these\n" for n in range(300)))
        arguments = RaceArguments([str(recipe)], peers=[], output=str(tmp_path / "race"), quick=True)
        return race(CorpusArguments(data=[str(text)]), arguments)

    assert again("apple")["runs"]["wide"]["content"] == {"weight_decay": 0.1}
    assert f"{recipe}: size, max_steps are those of the race" in capsys.readouterr().out
    again("apple")
    assert trained == ["minibert", "wide"]
    with pytest.raises(ValueError, match="^text: '285, sha256 .*; use another output"):
        again("stone")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    with pytest.raises(ValueError, match="^threads: 99, but the race in"):
        again("apple")


def test_what_is_done_to_a_model_before_its_first_step_counts(tmp_path):
    ours, theirs = Pipe()
    for _ in range(2):  # for the steps, and the end
        ours.send("go")
    turns = Turns(theirs, RaceArguments(steps=1), [])
    training = TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, save_strategy="no", report_to="none")
    rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 8
    trainer = Trainer(build("ForMaskedLM"), training, train_dataset=rows, callbacks=[turns])
    before = []
    turns.on_step_begin = lambda *args, **kwargs: before.append(turns.seconds) or Turns.on_step_begin(turns, *args)
    time.sleep(0.2)
    trainer.train()
    assert ours.recv() == "ready" and before[0] > 0.2 and turns.seconds > before[0]


@pytest.mark.slow  # every run is a process that loads torch
def test_a_race(tmp_path):
    names = ["cat", "dog", "bird", "tree", "mat"]
    lines = (f"the {names[i % 5]} sat under a {names[i // 5 % 5]} and then {i} more of them came" for i in range(300))
    (tmp_path / "text.txt").write_text("\n".join(lines))
    out = tmp_path / "race"
    (tmp_path / "slower.yaml").write_text("learning_rate: 0.0005\n")
    recipes = [str(tmp_path / "slower.yaml")]
    arguments = RaceArguments(recipes, peers=["bert"], learning_rates=[1e-3], output=str(out), quick=True)
    summary = race(CorpusArguments(data=[str(tmp_path / "text.txt")]), arguments)
    assert {*summary["runs"]} == {"minibert", "bert 0.001", "slower"} and (out / "race.png").exists()
    losses = [found["loss"] for found in summary["runs"].values()]
    assert losses == sorted(losses)
    for name, found in summary["runs"].items():
        assert [point["step"] for point in found["curve"]] == [4, 8, 12]
        assert found["curve"][-1]["tokens"] == pytest.approx(12 * 2 * 128, rel=0.2)
        # the saved model on the saved masks, by torch's own cross-entropy
        model = AutoModelForMaskedLM.from_pretrained(out / name).eval()
        loss, targets = 0.0, 0
        for batch in json.loads((out / HELD_OUT).read_text())["batches"]:
            inputs = {name: torch.tensor(batch[name]) for name in ("input_ids", "attention_mask")}
            labels = torch.tensor(batch["labels"])
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                logits = model(**inputs).logits
            loss += torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum")
            targets += (labels != -100).sum()
        assert found["loss"] == pytest.approx((loss / targets).item(), abs=0.01)
        assert 0 < found["bits_per_byte"] < found["loss"] / math.log(2)
    bad = tmp_path / "bad.yaml"
    bad.write_text("norm_type: rmsnormm\n")
    with pytest.raises(ValueError, match="the run 'bad' failed: .*rmsnormm.*bad.log"):
        race(CorpusArguments(data=[str(tmp_path / "text.txt")]), replace(arguments, recipes=[str(bad)]))

    # what is done is not done again
    (out / "bert 0.001.json").write_text(json.dumps({**summary["runs"]["bert 0.001"], "loss": 1.0, "grammar": None}))
    again = race(CorpusArguments(data=[str(tmp_path / "text.txt")]), arguments)
    assert again["runs"]["minibert"] == summary["runs"]["minibert"] and again["runs"]["bert 0.001"]["loss"] == 1.0
    # grammar is measured of those, too
    write_rows(tmp_path / "pairs.jsonl", [{"sentence_good": "the cat sat", "sentence_bad": "sat cat the"}])
    with_pairs = replace(arguments, grammar=str(tmp_path / "pairs.jsonl"))
    more = race(CorpusArguments(data=[str(tmp_path / "text.txt")]), with_pairs)
    assert all(run["grammar"] in (0.0, 0.5, 1.0) for run in more["runs"].values())
    with pytest.raises(ValueError, match="^seed: 1, but the race in .* has 0; use another output"):
        race(CorpusArguments(data=[str(tmp_path / "text.txt")]), replace(arguments, seed=1))
    (tmp_path / "slower.yaml").write_text("learning_rate: 0.0004\n")
    with pytest.raises(
        ValueError, match="^learning_rate: 0.0004, but the run 'slower' in .* had 0.0005; use another name"
    ):
        race(CorpusArguments(data=[str(tmp_path / "text.txt")]), arguments)
