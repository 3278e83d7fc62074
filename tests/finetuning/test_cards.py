"""The card of a fine-tuned model: its snippet does what was measured, and it says what was seen."""

import json
import re

import pytest
from helpers import check_example, printed_by, snippet_and_output, write_rows
from huggingface_hub import ModelCard

import minibert

QUICK = dict(
    bf16=False, use_cpu=True, disable_tqdm=True, report_to="none", num_train_epochs=2, seed=1
)
WORDS = ["good", "bad"]


def texts(number):
    return {"text": f"a {WORDS[number % 2]} book", "label": WORDS[number % 2]}


def several_labels(number):
    text = f"a {WORDS[number % 2]} book, {WORDS[number % 3 % 2]} and old"
    return {"text": text, "label": sorted({WORDS[number % 2], WORDS[number % 3 % 2]})}


def values(number):
    return {"text": f"a {WORDS[number % 2]} book", "label": number % 2 + 0.5}


def pairs(number):
    label = ["entailment", "contradiction"][number % 2]
    return {"premise": "a good book", "hypothesis": f"a {WORDS[number % 2]} book", "label": label}


def entities(number):
    names = ["Anna", "Berta", "Cleo"]
    return {"tokens": ["was", names[number % 3], "there"], "ner_tags": ["O", "B-PER", "O"]}


def questions(number):
    context = f"it was a {WORDS[number % 2]} book"
    answers = {"text": [WORDS[number % 2]], "answer_start": [9]}
    if number % 5 == 0:
        answers = {"text": [], "answer_start": []}
    return {"question": "what was it", "context": context, "answers": answers}


def choices(number):
    options = ["a good book", "a bad book"]
    return {"text": f"it was {WORDS[number % 2]}", "choices": options, "label": number % 2}


TASKS = {
    "classes": ("classify", texts, {}),
    "several labels": ("classify", several_labels, {}),
    "values": ("classify", values, {}),
    "nli": ("nli", pairs, {}),
    "entities": ("tag", entities, {}),
    "answers": ("answer", questions, {"max_answer_length": 4}),
    "choices": ("choose", choices, {}),
}


@pytest.fixture(scope="module")
def finetuned(start, tmp_path_factory):
    """The folders of models of all tasks, with their reports, made when they are asked for."""
    folders = {}

    def train(name):
        if name not in folders:
            folder = tmp_path_factory.mktemp("card")
            task, make_row, options = TASKS[name]
            rows = [make_row(number) for number in range(40)]
            files = {"train": [write_rows(folder / "train.jsonl", rows)]}
            files["validation"] = [write_rows(folder / "validation.jsonl", rows[:12])]
            output = str(folder / "model")
            minibert.finetune(task, model=start, output_dir=output, **files, **options, **QUICK)
            folders[name] = folder / "model"
        return folders[name]

    return train


def card_of(folder):
    return (folder / "README.md").read_text()


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


@pytest.mark.parametrize("name", TASKS)
def test_the_snippet_prints_what_the_card_says(name, finetuned):
    """On a row of the validation split."""
    folder = finetuned(name)
    card = card_of(folder)
    check_example(card)
    snippet, _ = snippet_and_output(card)
    number = int(re.search(r"The example is row (\d+) of the validation rows", card)[1])
    _, make_row, _ = TASKS[name]
    row = make_row(number - 1)
    text = row.get("text") or row.get("premise") or row.get("context") or " ".join(row["tokens"])
    assert repr(text)[1:-1] in snippet
    assert "{{" not in card and "Vectors of texts" not in card


@pytest.mark.parametrize(
    "name", ["classes", "several labels", "values", "nli", "choices", "answers"]
)
def test_the_snippet_decides_as_measured(name, finetuned, tmp_path):
    """On every validation row, with its texts in the place of the example's."""
    folder = finetuned(name)
    task, make_row, options = TASKS[name]
    snippet, _ = snippet_and_output(card_of(folder))
    rows = [make_row(number) for number in range(6)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    trainer_scores = minibert.evaluate(
        task, str(folder), test=file, output_dir=str(tmp_path / "out"), bf16=False, use_cpu=True,
        disable_tqdm=True, **options,
    )["test"]  # fmt: skip
    num_right = 0
    errors = []
    for row in rows:
        if name == "nli":
            inputs = {"text": row["premise"], "text_pair": row["hypothesis"]}
            replaced = re.sub(r"^text = .*$", f"text = {inputs!r}", snippet, flags=re.M)
        elif name == "answers":
            replaced = re.sub(
                r"^context = .*$", f"context = {row['context']!r}", snippet, flags=re.M
            )
        else:
            replaced = re.sub(r"^text = .*$", f"text = {row['text']!r}", snippet, flags=re.M)
        lines = printed_by(replaced).splitlines()
        if name in ("classes", "nli"):
            num_right += lines[0].split()[0] == row["label"]
        elif name == "several labels":
            num_right += sorted(line.split()[0] for line in lines) == row["label"]
        elif name == "values":
            errors.append((float(lines[0]) - row["label"]) ** 2)
        elif name == "choices":
            num_right += lines[0] == row["choices"][row["label"]]
        else:
            true_answers = row["answers"]["text"] or ["no answer"]
            num_right += lines[0] in true_answers
    if name == "values":
        assert sum(errors) / len(rows) == pytest.approx(trainer_scores["mse"], abs=1e-3)
    else:
        metric = "exact_match" if name == "answers" else "accuracy"
        assert num_right / len(rows) == pytest.approx(trainer_scores[metric])


def test_what_it_says_of_data_and_results(finetuned):
    folder = finetuned("classes")
    card = card_of(folder)
    report = metrics_of(folder)
    assert "| train | 40 | train.jsonl | 20 (50.0 %) | 20 (50.0 %) |" in card
    low, high = report["intervals"]["validation"]["f1_macro"]
    simple = report["simple_model"]["validation"]["f1_macro"]
    assert re.search(
        rf"^\| f1_macro .* \| {low:.3f}–{high:.3f} \| [\d.]+ \| {simple:.4f} \|$", card, re.M
    )
    support = report["by_class"]["validation"]["good"]["support"]
    assert re.search(rf"^\| good \| .* \| {support} \|$", card, re.MULTILINE)
    assert "which was not used for training" not in card
    assert "chosen by them: the checkpoint." in card and "There are no test rows." in card


def test_figures_for_leader_boards(finetuned):
    folder = finetuned("several labels")
    results = ModelCard(card_of(folder)).data.eval_results
    report = metrics_of(folder)
    figures = {result.metric_type: result.metric_value for result in results}
    for metric, value in report["validation"].items():
        assert figures[metric] == pytest.approx(value, abs=1e-4)
    named = {(result.dataset_split, result.dataset_name) for result in results}
    assert named == {("validation", "validation.jsonl")}


def test_warnings_that_bear_on_use(finetuned):
    """Few steps are in the report, too; rows that are too easy give no figures for leader boards."""
    folder = finetuned("classes")
    card = card_of(folder)
    report = metrics_of(folder)
    assert f"**Warning: {report['warning'][:20]}" in card.replace("\\", "")
    assert "inputs also occur in the training rows" in card and "in 4 steps" in card
    is_perfect = report["validation"]["f1_macro"] == 1
    assert (ModelCard(card).data.eval_results is None) == is_perfect


@pytest.mark.parametrize("steps", [1, 4])
def test_a_short_training_has_a_warning(steps, start, tmp_path):
    """Two steps are half of an epoch."""
    rows = [{"text": f"{WORDS[number % 2]} {number}", "label": number % 2} for number in range(128)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    test = write_rows(tmp_path / "test.jsonl", rows[:100:3])
    output = tmp_path / "out"
    options = dict(learning_rate=1e-9, max_steps=steps)
    minibert.finetune(
        "classify", model=start, train=[file], validation=[test], output_dir=str(output), **QUICK | options
    )  # fmt: skip
    report = metrics_of(output)
    text = (report["warning"] or "") + card_of(output)
    assert f"new weights learn little in {steps} steps" in text
    again = tmp_path / "again"
    minibert.finetune(
        "classify", model=str(output), train=[file], validation=[test], output_dir=str(again), **QUICK | options
    )  # fmt: skip
    text = (metrics_of(again)["warning"] or "") + card_of(again)
    assert ("trained for 0.25 epochs only" in text) == (steps == 1)


def test_thresholds_and_class_weights(start, tmp_path):
    rows = [texts(0)] * 60 + [texts(1)] * 12
    file = write_rows(tmp_path / "rows.jsonl", rows)
    output = tmp_path / "out"
    options = dict(tune_threshold=True, class_weights="balanced", learning_rate=1e-9)
    minibert.finetune(
        "classify", model=start, train=[file], validation=[file], output_dir=str(output), **QUICK | options
    )  # fmt: skip
    card = card_of(output)
    assert "- class weights: bad 3, good 0.6" in card
    assert "\nThresholds: 'bad' is predicted from a probability of" in card
    shift = json.loads((output / "config.json").read_text()).get("threshold_shift")
    assert ("The saved model has them in its bias" in card) == bool(shift)
