"""`minibert predict`: what is measured is what one gets, on every road."""

import ast
import contextlib
import csv
import gc
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from helpers import refusal, run, write_rows
from torch.utils.data import DataLoader
from toy_reviews import finetune, sentences
from transformers import AutoTokenizer, pipeline

import minibert
from minibert import MiniBertConfig
from minibert.training.data.sentences import split_words
from minibert.training.evaluation.entity_metrics import EntityScores
from minibert.training.finetuning import prediction_files
from minibert.training.finetuning.config import EvaluationConfig
from minibert.training.finetuning.tasks import task_class
from minibert.training.finetuning.trainer import FinetuningTrainer

NUM_ROWS = 200


# --- rows of every task, whose labels follow from their words ---


def two_classes(text, good, film):
    """Of which one is rare, so that early in training the other one is always the likelier."""
    return {"text": text, "label": "bad" if not good and not film else "good"}


def three_classes(text, good, film):
    return {"text": text, "label": "bad" if not good else "film" if film else "good"}


def several_labels(text, good, film):
    return {"text": text, "label": ["good"] * good + ["film"] * film}


def values(text, good, film):
    return {"text": text, "label": 0.5 + 2 * good - film}


def pairs(text, good, film):
    label = "entailment" if good else "contradiction" if film else "neutral"
    return {"premise": text, "hypothesis": "it was good", "label": label}


def choices(text, good, film):
    return {"text": text, "choices": ["it was dull", "it was great", "nothing"], "label": int(good)}


def entities(text, good, film):
    """A thing with or without its article, which early in training is not clear."""
    words = text.split()
    tags = ["O"] * len(words)
    tags[1] = "B-THING"
    if good:
        tags[0:2] = ["B-THING", "I-THING"]
        tags[-1] = "B-GOOD"
    return {"tokens": words, "ner_tags": tags}


def word_classes(text, good, film):
    words = text.split()
    return {"tokens": words, "pos_tags": ["DET", "NOUN", "VERB", *["OTHER"] * (len(words) - 3)]}


def answers(text, good, film):
    """Some contexts are longer than the model's inputs, and some have no answer."""
    noun = text.split()[1]
    context = f"{text} and the meal was dull " * (4 if good else 1)
    answer = {"text": [noun], "answer_start": [4]}
    if film:
        answer = {"text": [], "answer_start": []}
    return {"question": "what was it", "context": context.strip(), "answers": answer}


ROWS = {
    "two classes": (
        "classify",
        two_classes,
        ["--tune_threshold", "--max_steps", "10", "--learning_rate", "1e-3"],
    ),
    "three classes": ("classify", three_classes, []),
    "several labels": ("classify", several_labels, []),
    "values": ("classify", values, []),
    "pairs": ("nli", pairs, []),
    "choices": ("choose", choices, ["--pooling", "cls"]),
    "entities": ("tag", entities, []),
    "word classes": ("tag", word_classes, []),
    "answers": ("answer", answers, []),
}


@pytest.fixture(scope="module")
def trained(start, tmp_path_factory):
    """By name: the task, the folder of a model that learned a little, and a file of 200 rows."""
    models = {}

    def train(name):
        if name not in models:
            task, make_row, options = ROWS[name]
            folder = tmp_path_factory.mktemp("trained")
            file = write_rows(folder / "rows.jsonl", [make_row(*s) for s in sentences(NUM_ROWS)])
            words = ["--model", start, "--train", file, "--validation", file, "--max_steps", "30"]
            words += [
                "--learning_rate",
                "1e-2",
                "--eval_strategy",
                "no",
                "--load_best_model_at_end",
                "false",
                "--save_strategy",
                "no",
                "--bf16",
                "false",
                "--disable_tqdm",
                "true",
            ]
            finetune(task, *words, *options, "--output_dir", str(folder / "model"))
            models[name] = (task, str(folder / "model"), file)
        return models[name]

    return train


def evaluated(task_name, folder, file, tmp_path):
    """What `evaluate` decides for each row, and the task."""
    task = task_class(task_name)(AutoTokenizer.from_pretrained(folder))
    args = EvaluationConfig(str(tmp_path), bf16=False, use_cpu=True, disable_tqdm=True)
    trainer = FinetuningTrainer(task, folder, args, eval_dataset=file)
    trainer.measure()
    predictions = trainer.predictions["validation"]
    return trainer.task, list(trainer.task.decode(predictions)), predictions.confidence


def lines_of(file):
    with open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# --- one decision on every road ---


class TestDecisions:
    """`evaluate` reads the rows in order, `predict` by length."""

    @pytest.mark.parametrize("name", ["two classes", "three classes", "pairs"])
    def test_of_classes(self, name, trained, tmp_path):
        task_name, folder, file = trained(name)
        task, decided, confidence = evaluated(task_name, folder, file, tmp_path)
        predicted = minibert.predict(folder, file, bf16=False)
        labels = predicted["predicted_label"][:]
        assert labels == [task.label_names[label_id] for label_id in decided]
        assert len(set(labels)) > 1
        np.testing.assert_allclose(predicted["score"], confidence, atol=1e-6)

        rows = lines_of(file)
        inputs = [row["text"] for row in rows] if name != "pairs" else []
        for row in rows if name == "pairs" else ():
            inputs.append({"text": row["premise"], "text_pair": row["hypothesis"]})
        classify = pipeline("text-classification", folder)
        results = [classify(item) for item in inputs]
        results = [result[0] if isinstance(result, list) else result for result in results]
        assert [result["label"] for result in results] == labels
        scores = [result["score"] for result in results]
        np.testing.assert_allclose(predicted["score"], scores, atol=1e-6)

    def test_of_several_labels(self, trained, tmp_path):
        task_name, folder, file = trained("several labels")
        task, decided, _ = evaluated(task_name, folder, file, tmp_path)
        predicted = minibert.predict(folder, file, bf16=False)
        expected = [[task.label_names[i] for i in np.flatnonzero(row)] for row in decided]
        assert predicted["predicted_label"][:] == expected
        assert len(set(map(tuple, expected))) > 1

        classify = pipeline("text-classification", folder, function_to_apply="sigmoid", top_k=None)
        results = classify(predicted["text"][:])
        for row, result in zip(predicted, results):
            scores = {item["label"]: item["score"] for item in result}
            assert set(row["predicted_label"]) == {name for name in scores if scores[name] > 0.5}
            for label, score in zip(row["predicted_label"], row["score"]):
                assert score == pytest.approx(scores[label], abs=1e-6)

    def test_of_values(self, trained, tmp_path):
        task_name, folder, file = trained("values")
        _, decided, _ = evaluated(task_name, folder, file, tmp_path)
        predicted = minibert.predict(folder, file, bf16=False)
        np.testing.assert_allclose(predicted["score"], decided, atol=1e-6)
        classify = pipeline("text-classification", folder, function_to_apply="none")
        values = [result["score"] for result in classify(predicted["text"][:])]
        np.testing.assert_allclose(predicted["score"], values, atol=1e-6)

    def test_of_choices(self, trained, tmp_path):
        task_name, folder, file = trained("choices")
        _, decided, confidence = evaluated(task_name, folder, file, tmp_path)
        predicted = minibert.predict(folder, file, bf16=False)
        assert predicted["predicted_label"][:] == decided and len(set(decided)) > 1
        np.testing.assert_allclose(predicted["score"], confidence, atol=1e-6)
        for row in predicted:
            assert row["choice"] == row["choices"][row["predicted_label"]]

    @pytest.mark.parametrize("name", ["entities", "word classes"])
    def test_of_words(self, name, trained, tmp_path):
        task_name, folder, file = trained(name)
        _, decided, confidence = evaluated(task_name, folder, file, tmp_path)
        predicted = minibert.predict(folder, file, bf16=False)
        assert predicted["tags"][:] == decided
        assert len({tag for tags in decided for tag in tags}) > 2
        np.testing.assert_allclose(predicted["score"], confidence, atol=1e-6)

        texts = [" ".join(words) for words in predicted["tokens"]]
        of_texts = minibert.predict(folder, texts, bf16=False)
        if name == "word classes":
            assert of_texts["words"][:] == predicted["tokens"][:]
            assert of_texts["tags"][:] == decided
        else:  # these words are those that the text is cut into
            assert of_texts["entities"][:] == predicted["entities"][:]
            assert "tags" not in of_texts.column_names

    def test_of_answers(self, trained, tmp_path):
        task_name, folder, file = trained("answers")
        _, decided, _ = evaluated(task_name, folder, file, tmp_path)
        predicted = minibert.predict(folder, file, bf16=False)
        assert predicted["answer"][:] == decided and len(set(decided)) > 1
        assert all(0 < score <= 1 for score in predicted["score"])


# --- entities in texts ---


class TestWords:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (
                "Mr. O'Neil's 3.5%…",
                ["Mr", ".", "O", "'", "Neil", "'", "s", "3", ".", "5", "%", "…"],
            ),
            ("naïve_1 e\u0301te\u0301", ["naïve_1", "e\u0301te\u0301"]),
            ("हिन्दी में।", ["हिन्दी", "में", "।"]),  # with its vowel signs
            ("日本語です。", ["日本語です", "。"]),
            ("a\u00a0b\tc\n", ["a", "b", "c"]),
            ("😀👍", ["😀", "👍"]),
            (" \n", []),
        ],
    )
    def test_words_and_single_marks(self, text, words):
        split = split_words(text)
        assert [word for word, _ in split] == words
        for word, (start, end) in split:
            assert text[start:end] == word

    def test_characters_are_those_of_the_text(self, trained):
        _, folder, _ = trained("entities")
        text = "  the film,  was “very” great!\n"
        (row,) = minibert.predict(folder, [text], bf16=False)
        assert row["text"] == text and row["entities"]
        for entity in row["entities"]:
            assert text[entity["start"] : entity["end"]] == entity["text"]
            assert entity["type"] in ("THING", "GOOD")


# --- rows in, the same rows out ---


class TestRows:
    def test_of_texts_rows_and_a_dataset(self, trained):
        _, folder, file = trained("two classes")
        rows = lines_of(file)[:5]
        texts = [row["text"] for row in rows]
        of_texts = minibert.predict(folder, texts)
        assert of_texts.column_names == ["text", "label", "score"]
        labels = of_texts["label"][:]
        without_label = [{"id": f"00{i}", "text": text} for i, text in enumerate(texts)]
        of_rows = minibert.predict(folder, without_label)
        assert of_rows.column_names == ["id", "text", "label", "score"]
        assert of_rows["id"][:] == [f"00{i}" for i in range(5)] and of_rows["label"][:] == labels
        of_dataset = minibert.predict(folder, Dataset.from_list(rows))
        assert of_dataset.column_names == ["text", "label", "predicted_label", "score"]
        assert of_dataset["label"][:] == [row["label"] for row in rows]  # the given ones stay
        assert of_dataset["predicted_label"][:] == labels
        assert minibert.predict(folder, texts[0])["label"][:] == labels[:1]

    def test_rows_without_text_keep_their_place(self, trained, capsys):
        _, folder, _ = trained("two classes")
        predicted = minibert.predict(folder, ["", "the film was great", "  "])
        assert [label is None for label in predicted["label"]] == [True, False, True]
        assert "2 of 3 rows have no text" in capsys.readouterr().out
        _, folder, _ = trained("entities")
        predicted = minibert.predict(folder, [{"tokens": []}, {"tokens": ["the", "film"]}])
        assert [tags is None for tags in predicted["tags"]] == [True, False]

    @pytest.mark.parametrize("name", ["several labels", "entities", "answers"])
    def test_files(self, name, trained, tmp_path, capsys):
        """jsonl and csv, with the same predictions; lists are JSON in csv."""
        _, folder, file = trained(name)
        run("predict", folder, file, "--output", tmp_path / "out.jsonl", "--bf16", "false")
        rows = lines_of(tmp_path / "out.jsonl")
        assert len(rows) == NUM_ROWS
        for row, row_before in zip(rows, lines_of(file)):
            assert row_before.items() <= row.items()
        run("predict", folder, file, "--output", tmp_path / "out.csv", "--bf16", "false")
        with open(tmp_path / "out.csv", encoding="utf-8", newline="") as stream:
            cells = list(csv.DictReader(stream))
        assert list(cells[0]) == list(rows[0]) and len(cells) == NUM_ROWS
        for column, value in rows[3].items():
            cell = cells[3][column]
            assert (json.loads(cell) if isinstance(value, (list, dict)) else cell) == (
                value if isinstance(value, (list, dict)) else str(value)
            )

    def test_no_cell_of_csv_is_a_formula(self, tmp_path):
        """Numbers stay what they are, and jsonl has every text as it is."""
        row = {
            "text": "=cmd|' /C calc'!A0",
            "@label": '=HYPERLINK("http://evil","x")',
            "id": "-7",
            "name": "a = b",
            "score": -0.5,
            "labels": ["=x"],
        }
        for name in ("out.csv", "out.jsonl"):
            prediction_files.write_file([Dataset.from_list([row])], tmp_path / name)
        with open(tmp_path / "out.csv", encoding="utf-8", newline="") as stream:
            header, cells = csv.reader(stream)
        assert header == ["text", "'@label", "id", "name", "score", "labels"]
        texts = [f"'{row['text']}", f"'{row['@label']}"]
        assert cells == [*texts, "-7", "a = b", "-0.5", '["=x"]']
        for start in ("=", "+", "-", "@", "\t", "\r", "\n"):
            assert prediction_files.csv_cell(f"{start}1+1") == f"'{start}1+1"
        assert lines_of(tmp_path / "out.jsonl") == [row]

    def test_of_csv_all_cells_stay(self, trained, tmp_path):
        _, folder, _ = trained("three classes")
        (tmp_path / "in.csv").write_text("id,body\n7,the film was great\n1.0,the book was dull\n")
        predicted = minibert.predict(folder, str(tmp_path / "in.csv"))  # its one column of text
        assert predicted["id"][:] == ["7", "1.0"] and len(set(predicted["label"])) == 2
        (tmp_path / "in.txt").write_text("the film was great\n\nthe book was dull\n")
        of_lines = minibert.predict(folder, tmp_path / "in.txt")
        assert of_lines["label"][:] == [predicted["label"][0], None, predicted["label"][1]]

    def test_the_console_gets_lines_of_json_and_nothing_else(self, trained, capsys):
        _, folder, _ = trained("two classes")
        capsys.readouterr()
        printed = run("predict", folder, "the film was great", "the book was dull", capsys=capsys)
        rows = [json.loads(line) for line in printed.splitlines()]
        assert [row["text"] for row in rows] == ["the film was great", "the book was dull"]
        assert [set(row) for row in rows] == [{"text", "label", "score"}] * 2

    def test_chunks_are_read_predicted_and_written_one_by_one(self, trained, tmp_path, monkeypatch):
        """So that the memory does not grow with the rows."""
        _, folder, file = trained("two classes")
        whole = minibert.predict(folder, file, bf16=False)
        events = []
        read_records = prediction_files.read_records

        def watched_rows(*arguments):
            for numbered_row in read_records(*arguments):
                events.append("read")
                yield numbered_row

        write_json_lines = prediction_files.write_json_lines
        num_loaders = []

        def watched_writes(chunk, stream):
            write_json_lines(chunk, stream)
            events.append("written")
            gc.collect()
            loaders = [item for item in gc.get_objects() if issubclass(type(item), DataLoader)]
            num_loaders.append(len(loaders))

        monkeypatch.setattr(prediction_files, "ROWS_PER_CHUNK", 64)
        monkeypatch.setattr(prediction_files, "read_records", watched_rows)
        monkeypatch.setattr(prediction_files, "write_json_lines", watched_writes)
        minibert.predict(folder, file, output=str(tmp_path / "out.jsonl"), bf16=False)
        assert events == (["read"] * 64 + ["written"]) * 3 + ["read"] * 8 + ["written"]
        assert len(set(num_loaders)) == 1  # each of which would keep the rows of its chunk
        labels = [row["predicted_label"] for row in lines_of(tmp_path / "out.jsonl")]
        assert labels == whole["predicted_label"][:]


# --- what is refused ---


def test_refusals(start, trained, tmp_path, capsys):
    _, folder, file = trained("two classes")
    before = sorted(tmp_path.iterdir())
    cases = [
        ((start, "a text"), "was not fine-tuned for a task"),
        ((folder, "nowhere.csv"), "'nowhere.csv' is not a file"),
        ((folder, file, "--output", tmp_path / "out.xlsx"), "ends in .jsonl or .csv"),
        ((folder, file, "--output", file), "is the file of the rows"),
        ((folder, file, "--question_column", "text"), "it takes text_column, pair_column"),
        ((folder, file, "--text_column", "body"), "has no column 'body'"),
        ((folder,), "missing DATA"),
    ]
    for words, message in cases:
        assert message in refusal(capsys, "predict", *words)
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(ValueError, match="neither a text nor a row"):
        minibert.predict(folder, [1, 2])
    with pytest.raises(ValueError, match="no rows"):
        minibert.predict(folder, [])


def test_long_inputs_are_named(trained, capsys):
    _, folder, _ = trained("two classes")
    minibert.predict(folder, ["great " * 100, "dull"], max_length=16)
    printed = capsys.readouterr().out
    assert re.search(r"1 of 2 inputs are longer than 16 tokens", printed)


def test_a_pipeline_takes_the_likeliest_tag_of_each_word(trained):
    """What the report says of it is what the pipeline does."""
    _, folder, file = trained("entities")
    with open(f"{folder}/metrics.json", encoding="utf-8") as stream:
        report = json.load(stream)
    rows = lines_of(file)
    label = pipeline("token-classification", folder, aggregation_strategy="first")
    tags = []
    for row in rows:
        text = " ".join(row["tokens"])
        starts = {start: word for word, (_, (start, _)) in enumerate(split_words(text))}
        tags.append(["O"] * len(row["tokens"]))
        for entity in label(text):
            first = starts[entity["start"]]
            last = first + len(entity["word"].split()) - 1
            tags[-1][first : last + 1] = [
                f"B-{entity['entity_group']}",
                *[f"I-{entity['entity_group']}"] * (last - first),
            ]
    scores = EntityScores().compute(predictions=tags, references=[row["ner_tags"] for row in rows])
    assert report["pipeline"]["validation"]["f1"] == pytest.approx(scores["f1"])
    assert report["pipeline"]["validation"]["f1"] != report["validation"]["f1"]


# --- the card ---

CARD_TEXTS = {
    "two classes": ["text"],
    "three classes": ["text"],
    "several labels": ["text"],
    "values": ["text"],
    "pairs": ["text"],
    "choices": ["text", "choices"],
    "entities": ["text"],
    "answers": ["question", "context"],
}


def card_function(folder, names):
    """The first snippet on the card of a model, as a function from the texts in it, which are
    assigned to these names, to what it prints."""
    card = Path(folder, "README.md").read_text(encoding="utf-8")
    snippet = re.search(r"^```python\n(.*?\n)```$", card, re.DOTALL | re.MULTILINE)[1]
    setup, use = [], []
    for node in ast.parse(snippet).body:
        targets = [target.id for target in getattr(node, "targets", []) if hasattr(target, "id")]
        if targets and targets[0] in names:
            names = [name for name in names if name != targets[0]]
        else:
            (use if len(names) == 0 else setup).append(node)
    assert not names
    namespace = {}
    exec(compile(ast.Module(setup, []), "setup", "exec"), namespace)
    code = compile(ast.Module(use, []), "use", "exec")

    def call(**texts):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace | texts)
        return printed.getvalue().splitlines()

    return call


def expected_lines(name, row):
    """What the snippet prints of a row with predictions, without scores; of answers and choices
    the text."""
    if name == "choices":
        return [row["choice"]]
    if name == "answers":
        return [row["answer"] or "no answer"]
    if name == "values":
        return []
    if name == "entities":
        return [f"{entity['type']} {entity['text']!r}" for entity in row["entities"]]
    if name == "several labels":
        return sorted(row["predicted_label"])
    return [row["predicted_label"]]


@pytest.mark.parametrize("name", CARD_TEXTS)
def test_the_snippet_on_the_card_decides_alike(name, trained):
    _, folder, file = trained(name)
    snippet = card_function(folder, CARD_TEXTS[name])
    rows = minibert.predict(folder, file, bf16=False)
    if name == "entities":  # The snippet calls `predict`, which loads the model for each text.
        rows = rows.select(range(0, NUM_ROWS, 20))
    max_length = MiniBertConfig.from_pretrained(folder).max_position_embeddings
    tokenizer = AutoTokenizer.from_pretrained(folder)
    num_rows = 0
    for row in rows:
        if name == "choices":
            printed = snippet(text=row["text"], choices=row["choices"])
        elif name == "answers":
            if len(tokenizer(row["question"], row["context"])["input_ids"]) > max_length:
                continue  # the snippet does not read what is behind
            printed = snippet(question=row["question"], context=row["context"])
        elif name == "pairs":
            pair = {"text": row["premise"], "text_pair": row["hypothesis"]}
            printed = snippet(text=pair)
        elif name == "entities":
            printed = snippet(text=" ".join(row["tokens"]))
        else:
            printed = snippet(text=row["text"])
        num_rows += 1
        expected = expected_lines(name, row)
        if name == "values":
            assert float(printed[0]) == pytest.approx(row["score"], abs=1e-4)
        elif name in ("choices", "answers", "entities"):
            assert printed == expected
        else:
            labels_and_scores = [line.rsplit(" ", 1) for line in printed]
            if name == "several labels":
                assert sorted(label for label, _ in labels_and_scores) == expected
            else:  # the most probable one first
                label, score = labels_and_scores[0]
                assert [label] == expected
                assert float(score) == pytest.approx(row["score"], abs=1e-4)
    assert num_rows == len(rows) or (name == "answers" and num_rows > NUM_ROWS / 3)


def test_the_card_of_a_tagger_has_both_scores(trained):
    _, folder, _ = trained("entities")
    card = Path(folder, "README.md").read_text(encoding="utf-8")
    report = json.loads(Path(folder, "metrics.json").read_text())
    ours = f"(f1 {report['validation']['f1']:.4f} on the validation rows)"
    of_pipeline = f"(f1 {report['pipeline']['validation']['f1']:.4f} on the same rows)"
    assert card.index(ours) < card.index("minibert.predict(") < card.index(of_pipeline)
    assert card.index(of_pipeline) < card.index('pipeline(\n    "token-classification"')


def test_the_card_tells_of_a_shifted_threshold(trained):
    _, folder, _ = trained("two classes")
    card = Path(folder, "README.md").read_text(encoding="utf-8")
    shift = MiniBertConfig.from_pretrained(folder).threshold_shift
    assert shift[1] != 0
    assert "Thresholds: 'bad' is predicted from a probability of 0." in card
    assert "`config.threshold_shift` was subtracted" in card
