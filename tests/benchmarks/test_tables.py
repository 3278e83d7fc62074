"""The tables of the documents are those of the results."""

import json

import pytest
from tables import DOCUMENTS, RESULTS, ROOT, TABLE, TABLES, fill_tables, mean_and_interval


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


def test_the_long_table_has_128_minus_6(tmp_path):
    (tmp_path / "long").mkdir()
    losses = {"window of 6, which is MiniBERT": 3.0, "window of 128, which is ModernBERT's": 2.75}
    for name, loss in losses.items():
        points = [
            {"step": 250, "tokens": 500_000, "loss": loss + 1},
            {"step": 300, "tokens": 600_000, "loss": 9.0},  # is not shown
            {"step": 7500, "tokens": 15_400_000, "loss": loss},
        ]
        (tmp_path / "long" / f"{name}.json").write_text(json.dumps(FACTS | {"curve": points}))
    text = fill_tables("<!-- table: long -->\n<!-- end of table -->", tmp_path)
    assert "| 250 | 0.5 | 4.000 | 3.750 | -0.250 |" in text
    assert "| 7,500 | 15.4 | 3.000 | 2.750 | -0.250 |" in text
    assert "9.000" not in text


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
