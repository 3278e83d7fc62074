"""docs/notebooks/data.py lays out public data sets as the notebooks read them (a stub of the Hub)."""

import importlib.util
import re
from pathlib import Path

import datasets
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value

FILE = Path(__file__).parents[2] / "docs" / "notebooks" / "data.py"
WIKIGOLD = Features(
    {
        "id": Value("string"),
        "words": Sequence(Value("string")),
        "ner_tags": Sequence(
            ClassLabel(
                names=["O"] + [f"{b}-{t}" for t in ("LOC", "MISC", "ORG", "PER") for b in "BI"]
            )
        ),
    }
)
PASSAGE = "Ada wrote notes. She was 36 in 1852, and lived in London. It rained."
SQUAD = [
    {
        "id": str(number),
        "title": "Ada",
        "context": PASSAGE,
        "question": f"question {number}?",
        "answers": {"text": ["London"], "answer_start": [PASSAGE.index("London")]},
    }
    for number in range(3)
]
HUB = {
    "SetFit/sst2": [{"text": "a café film", "label": 1, "label_text": "positive"}],
    "stanfordnlp/snli": [
        {"premise": "a man runs", "hypothesis": "a man moves", "label": 0},
        {"premise": "a man runs", "hypothesis": "nobody agreed", "label": -1},
    ],
    "milistu/Wikigold-NER-conll": [
        {"id": number, "words": ["Ada", "Lovelace", "in", "London"], "ner_tags": [8, 8, 0, 2]}
        for number in ("1", "2")
    ],
    "sentence-transformers/stsb": [{"sentence1": "a", "sentence2": "b", "score": 0.5}],
    "Salesforce/wikitext": [
        {"text": ""},
        {"text": " = First = \n"},
        {"text": ""},
        {"text": " = = Section = = \n"},
        {"text": " A sentence . \n"},
        {"text": ""},
        {"text": " = Second = \n"},
        {"text": " Another one . \n"},
    ],
    "rajpurkar/squad": SQUAD,
    "wikimedia/wikipedia": [
        {"text": f"short\n{number}" + "x" * 300, "title": "t", "url": "u", "id": str(number)}
        for number in range(130)
    ],
    "google/xquad": [
        {"id": "1", "context": "one\npassage", "question": "?", "answers": {}},
        {"id": "2", "context": "one\npassage", "question": "?", "answers": {}},
    ],
}
SPLITS = {  # of the data sets that lack some, by their cards
    "milistu/Wikigold-NER-conll": ("train", "test"),
    "rajpurkar/squad": ("train", "validation"),
    "wikimedia/wikipedia": ("train",),
    "google/xquad": ("validation",),
}
CONFIGS = {  # those that must be named
    "Salesforce/wikitext": r"wikitext-2-raw-v1",
    "wikimedia/wikipedia": r"20231101\.[a-z]{2}",
    "google/xquad": r"xquad\.(ar|de|zh|vi|en|es|hi|el|th|tr|ru|ro)",
}


def stub_of_the_hub(source, name=None, *, data_files=None, split=None, streaming=False):
    if source == "text":
        if data_files.endswith("gold.txt"):
            return Dataset.from_dict({"text": ["0", "1"]})
        word = data_files.split("/")[-2]
        if data_files.endswith("classes_map.txt"):
            return Dataset.from_dict({"text": [f'{{"0": "{word}_fruit", "1": "{word}_firm"}}']})
        return Dataset.from_dict({"text": [f"1\tan {word}", f"7\tno {word}"]})
    assert re.fullmatch(CONFIGS.get(source, ""), name or "")
    features = WIKIGOLD if "Wikigold" in source else None
    rows = Dataset.from_list(HUB[source], features=features)
    splits = SPLITS.get(source, ("train", "validation", "test"))
    if split:
        assert split in splits
        return rows.to_iterable_dataset() if streaming else rows
    return DatasetDict(dict.fromkeys(splits, rows))


@pytest.fixture
def data(tmp_path, monkeypatch, cache):
    """The module in an empty folder, where no data is set."""
    spec = importlib.util.spec_from_file_location("notebook_data", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIBERT_DATA", raising=False)
    monkeypatch.setattr(module, "load_dataset", stub_of_the_hub)
    return module


def read(path):
    return datasets.load_dataset("json", data_files=str(path), split="train").to_list()


def test_sets_are_laid_out_as_the_notebooks_read_them(data, capsys):
    folder = Path(data.data_folder(*data.PUBLIC_SETS))
    printed = capsys.readouterr().out
    assert "MINIBERT_DATA is not set" in printed
    for name, (source, description, _) in data.PUBLIC_SETS.items():
        assert f"{name}: {description}, from {source}" in printed
    assert read(folder / "sst2/test.jsonl") == [{"text": "a café film", "label": 1}]
    assert read(folder / "nli/train.jsonl") == [
        {"premise": "a man runs", "hypothesis": "a man moves", "label": "entailment"}
    ]
    for split in ("train", "validation", "test"):
        entities = read(folder / f"ner_wikigold/{split}.jsonl")
        assert entities[0]["ner_tags"] == ["B-PER", "I-PER", "O", "B-LOC"]
    uses = read(folder / "wsd/train.jsonl")
    assert len(uses) == 20  # the second sentence of each word has a wrong position
    assert uses[0] == {
        "tokens": ["an", "apple"],
        "target_index": 1,
        "lemma": "apple",
        "sense": "apple_fruit",
    }
    assert read(folder / "sts/test.jsonl") == [{"sentence1": "a", "sentence2": "b", "score": 2.5}]
    corpus = (folder / "corpus/test.txt").read_text()
    assert corpus == "A sentence .\n\nAnother one .\n"  # no headings
    paragraphs = [
        (folder / f"multilingual/tr/{split}.txt").read_text().split()
        for split in ("test", "validation", "train")
    ]
    assert [len(of_split) for of_split in paragraphs] == [80, 40, 10]
    assert len({line for of_split in paragraphs for line in of_split}) == 130  # none twice
    assert (folder / "multilingual/parallel/zh.txt").read_text() == "one passage\n"


def test_an_answer_is_the_sentence_that_has_it(data):
    folder = Path(data.data_folder("retrieval")) / "retrieval"
    corpus = {row["_id"]: row["text"] for row in read(folder / "corpus.jsonl")}
    sentence = "She was 36 in 1852, and lived in London."
    assert list(corpus.values()) == ["Ada wrote notes.", sentence, "It rained."]
    judged = datasets.load_dataset("csv", data_files=str(folder / "qrels_test.csv"), split="train")
    assert {corpus[name] for name in judged["corpus-id"]} == {sentence}
    assert set(judged["query-id"]) == {row["_id"] for row in read(folder / "queries_test.jsonl")}
    assert {row["positive"] for row in read(folder / "train.jsonl")} == {sentence}


def test_what_is_there_is_not_loaded_again(data, monkeypatch):
    folder = data.data_folder("sts")
    monkeypatch.setattr(data, "load_dataset", None)
    assert data.data_folder("sts") == folder
    monkeypatch.setenv("MINIBERT_DATA", folder)
    assert data.data_folder("sts") == folder
    with pytest.raises(FileNotFoundError, match=r"has no folders \['wsd'\]; add them, or unset"):
        data.data_folder("sts", "wsd")


def test_an_interrupted_download_begins_anew(data, monkeypatch):
    def fails(*arguments, **options):
        raise ConnectionError("no network")

    monkeypatch.setattr(data, "load_dataset", fails)
    with pytest.raises(ConnectionError):
        data.data_folder("multilingual")
    monkeypatch.setattr(data, "load_dataset", stub_of_the_hub)
    folder = Path(data.data_folder("multilingual")) / "multilingual"
    assert (folder / "parallel").is_dir()


def test_notebooks_ask_for_sets_that_exist(data):
    """Without data, a notebook would otherwise fail only when somebody runs it in full."""
    calls = {}
    for path in sorted(FILE.parent.glob("*.ipynb")):
        for arguments in re.findall(r"data_folder\(([^)]*)\)", path.read_text(encoding="utf-8")):
            calls[path.stem[:2]] = re.findall(r"\w+", arguments)
    assert list(calls) == ["06", "07", "08", "09"]
    assert {name for names in calls.values() for name in names} == set(data.PUBLIC_SETS)


def test_an_unknown_name_is_refused(data):
    with pytest.raises(ValueError, match=r"unknown data sets \['squad'\]"):
        data.data_folder("squad")
