"""The tables of the documents are those of the results."""

import json

import pytest
from tables import (
    DOCUMENTS,
    LONG_RUNS,
    RESULTS,
    ROOT,
    TABLE,
    TABLES,
    fill_tables,
    mean_and_interval,
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_tables_of_the_documents_are_those_of_the_results(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert fill_tables(text, RESULTS) == text


def test_every_result_has_a_table():
    shown = set()
    for name in DOCUMENTS:
        for _, table, _ in TABLE.findall((ROOT / name).read_text(encoding="utf-8")):
            shown.add(table)
    for file in RESULTS.iterdir():
        table = file.stem.replace("_", "-").rstrip("-012")
        assert table in shown, f"{file.name} is shown nowhere"


def test_the_interval_is_that_of_student():
    # mean 2, standard deviation 1, t of two degrees of freedom 4.3027: 4.3027 / √3
    assert mean_and_interval([1.0, 2.0, 3.0], 3) == "2.000 ± 2.484"
    assert mean_and_interval([0.5], 2) == "0.50"


def test_a_table_follows_its_file(tmp_path):
    facts = {
        "command": "python benchmarks/speed.py",
        "date": "2026-01-02",
        "machine": {
            "device": "a processor",
            "fast_bf16": True,
            "torch": "2",
            "transformers": "5",
            "threads": 2,
        },
    }
    result = {
        "benchmark": "train-natural/bert-mini/fp32",
        "measure": "seconds",
        "dtype": "float32",
        "measured": {"MiniBertForMaskedLM": {"median": 1.5}},
        "ratios": [
            {
                "numerator": "BertForMaskedLM, sparse head",
                "denominator": "MiniBertForMaskedLM",
                "median": 3.456,
            }
        ],
    }
    (tmp_path / "speed.json").write_text(json.dumps(facts | {"results": [result]}))
    text = fill_tables("before\n<!-- table: speed -->\nold\n<!-- end of table -->\nafter", tmp_path)
    assert (
        "| training, natural lengths, bert-mini | fp32 | 1.5 | BERT, sparse head | 3.46 |" in text
    )
    assert "a processor with bf16 instructions, 2 threads" in text
    assert "old" not in text and text.startswith("before") and text.endswith("after")
    with pytest.raises(ValueError, match="no table 'sped'"):
        fill_tables("<!-- table: sped -->\n<!-- end of table -->", tmp_path)
    assert "speed" in TABLES


def test_the_pooling_table_has_a_row_for_each_setting_and_a_difference_for_each_model(tmp_path):
    machine = {
        "device": "a processor",
        "fast_bf16": False,
        "torch": "2",
        "transformers": "5",
        "threads": 1,
    }
    facts = {"command": "python benchmarks/pooling.py", "date": "2026-01-02", "machine": machine}
    runs = []
    for model, gain in (("a", 0.25), ("b", -0.25)):
        for seed in (0, 1):
            for pooling, accuracy in (("cls", 0.5), ("mean", 0.5 + gain)):
                run = {"model": model, "data": "sst2", "rows": 1000, "trained": "head only"}
                runs.append(run | {"pooling": pooling, "seed": seed, "accuracy": accuracy})
    file = tmp_path / "pooling.json"
    file.write_text(json.dumps(facts | {"runs": runs}))
    empty = "<!-- table: pooling -->\n<!-- end of table -->"
    text = fill_tables(empty, tmp_path)
    cells = "0.500 | 0.750 | 0.250 ± 0.000 | 0.500 | 0.250 | -0.250 ± 0.000"
    assert f"| sst2, 1,000 | head only | {cells} |" in text
    assert "without bf16 instructions, one thread" in text and "2 seeds" in text
    file.write_text(json.dumps(facts | {"runs": runs[:-1]}))
    with pytest.raises(ValueError, match=r"seeds \[0, 1\] have a head over the first token"):
        fill_tables(empty, tmp_path)


MACHINE = {
    "device": "a processor",
    "fast_bf16": True,
    "torch": "2",
    "transformers": "5",
    "threads": 1,
}
FACTS = {"command": "python benchmarks/learning.py", "date": "2026-01-02", "machine": MACHINE}


def test_the_long_table_has_differences_and_names_other_machines(tmp_path):
    (tmp_path / "long").mkdir()
    for name, loss in zip(LONG_RUNS, (3.0, 2.75, 3.5)):
        points = [
            {"step": 250, "tokens": 500_000, "loss": loss + 1},
            {"step": 300, "tokens": 600_000, "loss": 9.0},  # is not shown
            {"step": 7500, "tokens": 15_400_000, "loss": loss},
        ]
        run = FACTS | {"curve": points}
        if "random" in name:
            run["machine"] = MACHINE | {"fast_bf16": False}
        (tmp_path / "long" / f"{name}.json").write_text(json.dumps(run))
    text = fill_tables("<!-- table: long -->\n<!-- end of table -->", tmp_path)
    assert "| 250 | 0.5 | 4.000 | 3.750 | 4.500 | -0.250 | +0.500 |" in text
    assert "| 7,500 | 15.4 | 3.000 | 2.750 | 3.500 | -0.250 | +0.500 |" in text
    assert "9.000" not in text
    assert "| random first vectors | window of 128, difference | random first vectors, diff" in text
    other = "Random first vectors: a processor without bf16 instructions, one thread"
    assert other in text and "Window of 128" not in text


def test_windows_without_answers_have_an_empty_cell(tmp_path):
    (tmp_path / "windows").mkdir()
    runs = {
        "window of 6": {"loss": 4.25, "grammar": 0.55, "answers": 0.125},
        "window of 128": {"loss": 4.5, "grammar": 0.5},
    }
    for name, run in runs.items():
        (tmp_path / "windows" / f"{name}.json").write_text(json.dumps(FACTS | run))
    text = fill_tables("<!-- table: windows -->\n<!-- end of table -->", tmp_path)
    assert "| window of 6 | 4.250 | 55.0 | 12.5 |\n| window of 128 | 4.500 | 50.0 |  |" in text


def test_the_table_of_class_weights_has_the_mean_of_the_seeds(tmp_path):
    runs = []
    for options, scores in {"neither": (0.25, 0.75), "--tune_threshold": (0.5, 0.5)}.items():
        for seed, score in enumerate(scores):
            runs.append({"options": options, "seed": seed, "f1_macro": score, "recall": 0.125})
    (tmp_path / "class_weights.json").write_text(json.dumps(FACTS | {"runs": runs}))
    text = fill_tables("<!-- table: class-weights -->\n<!-- end of table -->", tmp_path)
    # the deviation is 0.25 √2, and t of one degree of freedom 12.7062: 12.7062 · 0.25
    assert "| neither | 0.500 ± 3.177 | 0.125 ± 0.000 |" in text
    assert "| `--tune_threshold` | 0.500 ± 0.000 | 0.125 ± 0.000 |" in text
    assert "2 seeds" in text


def test_the_tables_of_embeddings_name_the_data_and_what_was_trained_on(tmp_path):
    score = {"data": "retrieval", "metric": "hit@1", "interval": [0.4, 0.6], "baseline": 0.25}
    before = score | {"trained_on": None, "score": 0.5}
    after = score | {"trained_on": "retrieval/train.jsonl", "score": 0.55}
    (tmp_path / "similarity.json").write_text(json.dumps(FACTS | {"scores": [before, after]}))
    text = fill_tables("<!-- table: similarity -->\n<!-- end of table -->", tmp_path)
    assert "| ReQA-SQuAD test, hit@1 | 0.5000 | 0.400 to 0.600 | 0.2500 |" in text
    assert "hit@1, after `minibert finetune embed retrieval/train.jsonl` | 0.5500 |" in text


def test_the_tables_of_students_have_student_and_teacher(tmp_path):
    embedders = {}
    for number, name in enumerate(("before", "after", "teacher"), 1):
        embedders[name] = {"STS-B": number / 10, "Cranfield": number / 100}
    rerankers = {"teacher": 0.75, "student alone": 0.5, "student taught": 0.625}
    figures = FACTS | {"embedders": embedders, "rerankers": rerankers}
    (tmp_path / "students.json").write_text(json.dumps(figures))
    text = fill_tables("<!-- table: students -->\n<!-- end of table -->", tmp_path)
    assert "| STS-B, Spearman's correlation | 0.1000 | 0.2000 | 0.3000 |" in text
    text = fill_tables("<!-- table: student-rerankers -->\n<!-- end of table -->", tmp_path)
    assert "| student | the teacher's scores of 5,669 pairs | 0.625 |" in text
