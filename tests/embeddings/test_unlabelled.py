"""Pairs made of plain text, and what an embedding model learns from them on a toy language."""

import json
import random
import shutil

import numpy as np
import pytest
from embedding_models import save_untrained, write_matches
from helpers import refusal, run, write_rows

from minibert.training.embeddings.encoders import Embedder
from minibert.training.embeddings.train import check_dropout, split_documents
from minibert.training.embeddings.unlabelled import Document, cut_into_passages, make_pairs, read_documents

TOPICS = 24


def pairs_of(documents, kinds, words):
    pairs = make_pairs(documents, kinds, words)
    return list(zip(pairs["first"], pairs["second"]))


def test_documents_of_every_format(tmp_path):
    rows = [dict(_id="1", title="Wings ", text="They lift. "), dict(title=None, text="No title."), dict(text="")]
    write_rows(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.csv").write_text("title,text\nTails,They steer.\n")
    (tmp_path / "c.txt").write_text("First line\nof three\nlines.\n\n \nOnly one line.\n\n", encoding="utf-8")
    (tmp_path / "d.md").write_text("# Head\nBody.\n")
    (tmp_path / ".hidden.txt").write_text("unseen")
    expected = [("Wings", "They lift."), ("", "No title."), ("Tails", "They steer."),
                ("First line", "of three\nlines."), ("", "Only one line."), ("# Head", "Body.")]  # fmt: skip
    assert [(each.title, each.text) for each in read_documents([str(tmp_path)])] == expected
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.csv")]
    assert [(each.title, each.text) for each in read_documents(files)] == expected[:3]


def test_passages_are_whole_sentences():
    text = "One two three. Four five! Six seven eight nine ten. Eleven\ntwelve? Yes."
    assert cut_into_passages(text, 5) == [
        "One two three. Four five!", "Six seven eight nine ten.", "Eleven twelve? Yes."
    ]  # fmt: skip
    assert cut_into_passages(text, 1) == ["One two three.", "Four five!", "Six seven eight nine ten.", "Eleven",
                                          "twelve?", "Yes."]  # fmt: skip
    assert cut_into_passages(text, 99) == [" ".join(text.split())]
    assert cut_into_passages("我们学习语言。有趣。BERT 也学习。", 5) == ["我们学习语言。 有趣。", "BERT 也学习。"]


def test_a_document_that_stands_twice_is_on_one_side(tmp_path):
    rows = [dict(title=f"title {i % 20}", text=f"text {i % 20}") for i in range(40)]
    sides = split_documents(write_rows(tmp_path / "a.jsonl", rows), None, 0.3, ["title"], 9, 0)
    first, second = (set(side["first"]) for side in sides)
    assert len(first) == 14 and len(second) == 6 and not first & second


def test_pairs_of_each_kind():
    documents = [Document("Wings", "Wings lift. They bend. They break."), Document("", "Alone."), Document("--", "x")]
    assert pairs_of(documents, ["title"], 9) == [("Wings", "lift. They bend. They break.")]  # "--" says nothing
    adjacent = [("Wings lift.", "They bend."), ("They bend.", "They break.")]
    assert pairs_of(documents, ["adjacent"], 2) == adjacent
    twins = [(text, text) for text in ("Wings lift. They bend.", "They break.", "Alone.", "x")]
    assert pairs_of(documents, ["dropout"], 4) == twins
    assert pairs_of(documents, ["adjacent", "title"], 2) == [*adjacent, ("Wings", "lift. They bend. They break.")]
    for kind, words, message in (("title", 9, "title needs titles"), ("adjacent", 9, "documents of more than 9 words")):
        with pytest.raises(ValueError, match=f"pairs_from: {message}|pairs_from: {kind} needs {message}"):
            make_pairs([Document("", "One sentence. Another one.")], [kind], words)


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
        queries, passages = ([words(f"{start}{i}") for i in range(TOPICS)] for start in (word, "tell"))
        write_matches(root / kind, queries, passages)
    texts = [f"{row['title']} {row['text']}" for row in documents]
    for name, rate in (("model", 0.1), ("dropless", 0.0)):
        save_untrained(root / name, texts, 16, hidden_dropout=rate)
    return root


TRAINING = ["--per_device_train_batch_size", "24", "--disable_tqdm", "true", "--bf16", "false", "--use_cpu", "true"]
SHORT = ["--passage_words", "4"]


@pytest.mark.slow
@pytest.mark.parametrize("kind, more", [("title", []), ("adjacent", SHORT)])
def test_it_finds_what_belongs_together(toy, tmp_path, kind, more):
    run("finetune", "embed", toy / "documents.jsonl", "--pairs_from", kind, *more, "--model", toy / "model",
        "--output_dir", tmp_path / "out", "--num_train_epochs", "4", "--learning_rate", "3e-3", *TRAINING)  # fmt: skip
    scores = []
    for name, model in (("before", toy / "model"), ("after", tmp_path / "out")):
        run("evaluate", "embed", "--model", model, "--data", toy / kind, "--result", tmp_path / name)
        scores.append(json.loads((tmp_path / name).read_text())["metrics"]["hit@1"])
    assert scores[0] < 0.3 and scores[1] > 0.8
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["arguments"]["pairs_from"] == [kind]
    assert report["after"]["ndcg@10"] > report["before"]["ndcg@10"]


def test_twins_spread_the_vectors(toy, tmp_path):
    """Told apart by dropout alone; held out are halves of documents, since a text always finds itself."""
    run("finetune", "embed", toy / "documents.jsonl", "--pairs_from", "dropout", *SHORT, "--model", toy / "model",
        "--output_dir", tmp_path / "out", "--max_steps", "12", "--learning_rate", "3e-3", *TRAINING)  # fmt: skip
    texts = [f"ask{i} w{i}" for i in range(TOPICS)]
    means = []
    for model in (toy / "model", tmp_path / "out"):
        vectors = Embedder.from_pretrained(str(model), normalize=True).embed(texts)
        means.append((vectors @ vectors.T)[~np.eye(TOPICS, dtype=bool)].mean())
    assert means[1] < means[0] - 0.1
    assert json.loads((tmp_path / "out/report.json").read_text())["before"]["ndcg@10"] < 0.9


def test_refusals(toy, tmp_path, capsys):
    given = ["finetune", "embed", toy / "documents.jsonl", "--output_dir", tmp_path / "out", *TRAINING]
    model = ["--model", toy / "model"]
    for arguments, message in (
        ([*model, "--pairs_from", "titles"], "'titles' is unknown; use title, adjacent, dropout"),
        ([*model, "--pairs_from", "title", "--loss", "cosent"], "loss: cosent does not fit"),
        (["--model", toy / "dropless", "--pairs_from", "dropout"], "--set hidden_dropout=0.1"),
        ([*model, "--pairs_from", "title", "--validation_size", "600"], "holds out 600 of 600 different documents"),
        ([*model, "--pairs_from", "dropout"], "none in what is held out (use a larger --validation_size, or"),
        ([*model], "columns: cannot be guessed from title, text"),
    ):
        assert message in refusal(capsys, *given, *arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "title, text, rest",
    [
        ("Art", "Artists paint.", "Artists paint."),  # no word is cut
        ("Dog facts", "DOG  FACTS\nA dog barks.", "A dog barks."),  # nor does the title stay for its case or spacing
        ("Why?", "Why? Because.", "Because."),
        ("US", "us and them", "us and them"),  # which is another word
        ("C++ (2011)", "C++ (2011) is old", "is old"),
        ("东京", "东京是首都。", "是首都。"),  # no spaces are between words
    ],
)
def test_a_title_is_taken_off_its_text(title, text, rest):
    assert pairs_of([Document(title, text)], ["title"], 9) == [(title, rest)]


def test_dropout_of_the_embeddings_alone_makes_twins(toy, tmp_path):
    folder = shutil.copytree(toy / "dropless", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"embedding_dropout": 0.1}))
    check_dropout(str(folder))
