"""Figures for the Hub's leaderboards, as `huggingface_hub` reads them back."""

import pytest
import yaml
from helpers import build, refusal
from huggingface_hub import parse_eval_result_entries

from minibert.tokenization import train_tokenizer
from minibert.training.arguments.tools import PushArguments
from minibert.training.hub import push as hub_push
from minibert.training.hub.card import CardFacts, Result, save_card
from minibert.training.hub.eval_results import check_eval_results, write_eval_results
from minibert.training.hub.files import stage

RESULTS = [
    Result("f1", 0.5, "news", "validation"),
    Result("f1", 0.4321, "news", "test"),
    Result("accuracy", 0.9, "news", "test"),
    Result("ndcg@10", 0.25, "news", "test"),
    Result("loss", 1.0, "a", "train"),
    Result("loss", 2.0, "a", "validation"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    build("ForTokenClassification").save_pretrained(folder)
    train_tokenizer(["a good book"] * 5, vocab_size=60, show_progress=False).save_pretrained(folder)
    save_card(folder, CardFacts(results=RESULTS))
    return folder


def test_every_benchmark_gets_a_file(tmp_path):
    given = ["f1=me/news:ner", "accuracy=me/news:tokens", "f1=you/other.set:default", "ndcg@10=you/docs:retrieval"]
    check_eval_results(given)
    write_eval_results(tmp_path, given, RESULTS)
    found = {
        path.relative_to(tmp_path).as_posix(): [
            (entry.dataset_id, entry.task_id, entry.value)
            for entry in parse_eval_result_entries(yaml.safe_load(path.read_text()))
        ]
        for path in tmp_path.rglob("*.yaml")
    }
    assert found == {
        ".eval_results/me--news.yaml": [("me/news", "ner", 0.4321), ("me/news", "tokens", 0.9)],
        ".eval_results/you--other.set.yaml": [("you/other.set", "default", 0.4321)],
        ".eval_results/you--docs.yaml": [("you/docs", "retrieval", 0.25)],
    }


def test_push_uploads_them(folder, monkeypatch):
    found = {"saved": "MiniBertForTokenClassification", "auto_classes": ["AutoModel"], "versions": {}}
    monkeypatch.setattr(hub_push, "verify_remote_code", lambda staged: found)
    given = PushArguments([str(folder), "me/tagger"], eval_results=["f1=me/news:ner"], dry_run=True)
    pushed = hub_push.push(given)
    assert ".eval_results/me--news.yaml" in pushed["files"] and not (folder / ".eval_results").exists()
    assert hub_push.repeat(given) == f"minibert push {folder} me/tagger --eval_results f1=me/news:ner --dry_run"


def test_a_file_by_hand_goes_up_and_is_not_written_over(folder, tmp_path):
    path = folder / ".eval_results" / "me--news.yaml"
    path.parent.mkdir()
    path.write_text("- dataset: {id: me/news, task_id: ner}\n  value: 1\n")
    stage(folder, tmp_path)
    assert (tmp_path / ".eval_results" / path.name).read_text() == path.read_text()
    with pytest.raises(ValueError, match="me--news.yaml is in the folder already"):
        write_eval_results(tmp_path, ["f1=me/news:ner"], RESULTS)


@pytest.mark.parametrize("text", ["f1", "f1=news:ner", "f1=me/news", "f1=me/news:", "=me/news:ner", "f1=a/b/c:d"])
def test_what_is_unclear_is_refused_first(text, capsys):
    with pytest.raises(ValueError, match="use METRIC=OWNER/DATASET:TASK"):
        check_eval_results([text])
    assert "eval_results" in refusal(capsys, "push", "nowhere", "me/tagger", "--eval_results", text)


@pytest.mark.parametrize(("metric", "number"), [("recall", 0), ("loss", 2)])
def test_a_figure_that_is_not_there_once(metric, number, tmp_path):
    with pytest.raises(
        ValueError, match=f"'{metric}' names {number} figures of the card; use one of f1, accuracy, ndcg@10, loss"
    ):
        write_eval_results(tmp_path, [f"{metric}=me/news:ner"], RESULTS)
    assert not list(tmp_path.iterdir())
