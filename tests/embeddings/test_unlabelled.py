"""Pairs made of plain text, and what an embedding model learns from them on a toy language."""

import json
import random

import pytest
from embedding_models import TRAINING, save_untrained, write_matches
from helpers import refusal, run, write_rows

from minibert.training.embeddings.reading.document_pairs import pair_documents
from minibert.training.embeddings.reading.documents import Document, read_documents
from minibert.training.embeddings.reading.passages import split_passages
from minibert.training.embeddings.reading.validation_pairs import split_pairs

TOPICS = 24


def pairs_of(documents, kinds, words):
    pairs, _ = pair_documents(documents, kinds, words)
    return list(zip(pairs["first"], pairs["second"]))


def test_documents_of_every_format(tmp_path):
    rows = [
        dict(_id="1", title="Wings ", text="They lift. "),
        dict(title=None, text="No title."),
        dict(text=""),
    ]
    write_rows(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.csv").write_text("title,text\nTails,They steer.\n")
    (tmp_path / "c.txt").write_text(
        "First line\nof three\nlines.\n\n \nOnly one line.\n\n", encoding="utf-8"
    )
    (tmp_path / "d.md").write_text("# Head\nBody.\n")
    (tmp_path / ".hidden.txt").write_text("unseen")
    expected = [("Wings", "They lift."), ("", "No title."), ("Tails", "They steer."),
                ("First line", "of three\nlines."), ("", "Only one line."), ("Head", "Body.")]  # fmt: skip
    assert [(each.title, each.text) for each in read_documents([str(tmp_path)])] == expected
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.csv")]
    assert [(each.title, each.text) for each in read_documents(files)] == expected[:3]


def test_passages_are_whole_sentences():
    """As long as words of six bytes."""
    text = "One two three. Four five! Six seven eight nine ten. Eleven\ntwelve? Yes."
    expected = ["One two three.", "Four five!", "Six seven eight nine", "ten. Eleven twelve? Yes."]
    assert split_passages(text, 4) == expected
    assert split_passages(text, 99) == [" ".join(text.split())]
    assert split_passages("我们学习语言。有趣。BERT 也学习。", 6) == [
        "我们学习语言。 有趣。",
        "BERT 也学习。",
    ]


def test_pairs_of_each_kind():
    documents = [
        Document("a", "Wings", "They bend. They break."),
        Document("b", "", "Alone."),
        Document("c", "--", "x"),
    ]
    assert pairs_of(documents, ["title"], 9) == [
        ("Wings", "They bend. They break.")
    ]  # "--" says nothing
    repeated = [
        Document("a", "Wings", "Wings bend."),
        Document("b", "Wings", "Wingspans."),
        Document("c", "x", "x"),
    ]
    assert pairs_of(repeated, ["title"], 9) == [
        ("Wings", "bend."),
        ("Wings", "Wingspans."),
    ]  # no part of a word
    adjacent = [("They bend.", "They break.")]
    assert pairs_of(documents, ["adjacent"], 2) == adjacent
    assert pairs_of(documents, ["adjacent", "title"], 2) == [
        *adjacent,
        ("Wings", "They bend. They break."),
    ]
    for kind, message in (
        ("title", "title needs titles"),
        ("adjacent", "adjacent needs documents of more than 9 w"),
    ):
        with pytest.raises(ValueError, match=f"pairs_from: {message}"):
            pair_documents([Document("a", "", "One sentence. Another one.")], [kind], 9)


def test_a_document_that_stands_twice_is_on_one_side(tmp_path):
    rows = [dict(title=f"title {i % 20}", text=f"text {i % 20}") for i in range(40)]
    sides = split_pairs(write_rows(tmp_path / "a.jsonl", rows), (), None, 0.3, 0, ["title"])
    first, second = (set(side["first"]) for side in sides)
    assert len(first) == 14 and len(second) == 6 and not first & second


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """An untrained model; documents whose title and whose sentences are in different words of one topic; and queries in
    the words of the titles (or of the first sentences) for passages in those of the second."""
    root, chance = tmp_path_factory.mktemp("unlabelled"), random.Random(0)

    def words(word):
        return " ".join(chance.sample([word, *(f"w{chance.randrange(30)}" for _ in range(3))], 4))

    documents = [dict(title=words(f"name{i % TOPICS}"), text=f"{words(f'ask{i % TOPICS}')}. "
                      f"{words(f'tell{i % TOPICS}')}.") for i in range(600)]  # fmt: skip
    write_rows(root / "documents.jsonl", documents)
    for kind, word in (("title", "name"), ("adjacent", "ask")):
        queries, passages = (
            [words(f"{start}{i}") for i in range(TOPICS)] for start in (word, "tell")
        )
        write_matches(root / kind, queries, passages)
    texts = [f"{row['title']} {row['text']}" for row in documents]
    save_untrained(root / "model", texts, 16)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["title", "adjacent"])
def test_training_on_generated_pairs_improves_retrieval(toy, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(pair_documents, "__defaults__", (3,))  # words of a passage: a sentence
    run("finetune", "embed", toy / "documents.jsonl", "--pairs_from", kind, "--model", toy / "model",
        "--output_dir", tmp_path / "out", "--num_train_epochs", "4", *TRAINING)  # fmt: skip
    scores = []
    for name, model in (("before", toy / "model"), ("after", tmp_path / "out")):
        run(
            "evaluate", "embed", "--model", model, "--data", toy / kind, "--result", tmp_path / name
        )
        scores.append(json.loads((tmp_path / name).read_text())["metrics"]["hit@1"])
    assert scores[0] < 0.3 and scores[1] > 0.8
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["arguments"]["pairs_from"] == [kind]
    assert report["after"]["ndcg@10"] > report["before"]["ndcg@10"]


def test_bad_options_are_refused(toy, tmp_path, capsys):
    given = [
        "finetune",
        "embed",
        toy / "documents.jsonl",
        "--output_dir",
        tmp_path / "out",
        *TRAINING,
    ]
    model = ["--model", toy / "model"]
    for arguments, message in (
        ([*model, "--pairs_from", "titles"], "'titles' is unknown; use title, adjacent"),
        (
            [*model, "--pairs_from", "title", "--loss", "CoSENTLoss"],
            "loss: 'CoSENTLoss' is not a loss",
        ),
        (
            [*model, "--pairs_from", "title", "--validation_size", "600"],
            "holds out 600 of 600 texts",
        ),
        ([*model], "columns: cannot be guessed from title, text"),
    ):
        assert message in refusal(capsys, *given, *arguments)
    assert not (tmp_path / "out").exists()
