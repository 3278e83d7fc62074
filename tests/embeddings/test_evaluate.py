"""`minibert evaluate embed`, against sentence-transformers' evaluators and formulas."""

import csv
import json
import random

import numpy as np
import pytest
import scipy.stats
from datasets import Dataset
from helpers import refusal, run, sentences, write_rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

import minibert
from minibert.training.embeddings import evaluate
from minibert.training.embeddings.measuring import similarity
from minibert.training.embeddings.measuring.retrieval import Retrieval
from minibert.training.embeddings.measuring.scored_pairs import ScoredPairs
from minibert.training.embeddings.reading.passages import Passage
from minibert.training.embeddings.reading.retrieval_folders import read_retrieval


def test_the_example_of_a_card_is_relevant():
    """A passage that was judged irrelevant is the other one, though it comes first."""
    passages = [Passage("zero", "judged irrelevant"), Passage("one", "relevant")]
    relevant = {"q": {"zero": 0.0, "one": 1.0}}
    example = Retrieval(passages, {"q": "a query"}, relevant).example(max_characters=100)
    assert example.inputs["passages"] == ["relevant", "judged irrelevant"]


def test_query_is_not_its_own_result(monkeypatch):
    """Of pairs (a, b), (b, c), b is a query and a passage; one that is a pair with itself is found."""
    vectors = dict(a=[1.0, 0.0], b=[0.9, 0.1], c=[0.5, 0.5], d=[0.0, 1.0])
    monkeypatch.setattr(
        similarity,
        "encode",
        lambda _, texts, *__: np.array([vectors[x] for x in texts], np.float32),
    )
    for first, second in (("ab", "bc"), ("abd", "bcd")):
        task = Retrieval.from_rows(Dataset.from_dict(dict(first=list(first), second=list(second))))
        assert task.score(task.predict(None))["hit@1"] == 1.0


def test_retrieval_with_fewer_than_k_passages(monkeypatch):
    """Queries that are no passages have all of them to find, though others do not find themselves."""
    vectors = dict(q=[1.0, 0.0], a=[0.9, 0.1], b=[0.5, 0.5])
    monkeypatch.setattr(
        similarity,
        "encode",
        lambda _, texts, *__: np.array([vectors[x] for x in texts], np.float32),
    )
    task = Retrieval.from_rows(
        Dataset.from_dict(dict(first=["q", "a"], second=["b", "b"], third=["a", "a"]))
    )
    scores = task.score(task.predict(None))
    assert scores["hit@1"] == 0.5 and scores["mrr@10"] == 0.75 and scores["hit@10"] == 1.0


def write_retrieval(folder, split: str = ""):
    """40 passages (one empty, some with titles) and 12 queries, of which one has no relevant passage."""
    chance, texts = random.Random(1), sentences(40, seed=5)
    corpus = [{"_id": f"d{i}", "text": text if i else ""} | ({"title": "Lover"} if i % 3 else {"title": ""})
              for i, text in enumerate(texts)]  # fmt: skip
    queries = [{"_id": f"q{i}", "text": text} for i, text in enumerate(sentences(12, seed=6))]
    folder.mkdir()
    write_rows(folder / "corpus.jsonl", corpus)
    write_rows(folder / f"queries{split}.jsonl", queries)
    judged = [(q["_id"], d["_id"], 1) for q in queries[:-1] for d in chance.sample(corpus, 4)]
    with open(folder / f"qrels{split}.csv", "w", newline="") as file:
        csv.writer(file).writerows([("query-id", "corpus-id", "score"), *judged])
    return corpus, queries[:-1], judged


@pytest.mark.parametrize("prompts", [False, True])
def test_retrieval_as_sentence_transformers_evaluates_it(
    folder, prompted, tmp_path, capsys, prompts
):
    """With the model's prompts of queries and of documents, where it has some."""
    native, folder = prompted if prompts else (folder, folder)
    corpus, queries, judged = write_retrieval(tmp_path / "data", "_dev")
    printed = run("evaluate", "embed", "--model", folder, "--data", tmp_path / "data", "--split", "dev",
                  "--result", tmp_path / "r/result.json", capsys=capsys)  # fmt: skip
    assert printed.splitlines()[-1].startswith("Next: ")
    result = json.loads((tmp_path / "r/result.json").read_text())
    evaluator = InformationRetrievalEvaluator(
        {q["_id"]: q["text"] for q in queries},
        {d["_id"]: f"{d['title']} {d['text']}".strip() for d in corpus},
        {q["_id"]: {d for query, d, _ in judged if query == q["_id"]} for q in queries},
        accuracy_at_k=[1, 10], mrr_at_k=[10], ndcg_at_k=[10], precision_recall_at_k=[10], map_at_k=[10],
        write_csv=False,
    )  # fmt: skip
    expected = evaluator(SentenceTransformer(native, device="cpu"))
    for ours, theirs in {"hit@1": "accuracy@1", "hit@10": "accuracy@10", "mrr@10": "mrr@10", "ndcg@10": "ndcg@10",
                         "recall@10": "recall@10"}.items():  # fmt: skip
        assert result["metrics"][ours] == pytest.approx(expected[f"cosine_{theirs}"]), ours


def test_shared_words():
    """What a model has to be better than: cosines of TF-IDF."""
    rows = dict(first=["a b", "c", "d"], second=["b a", "d", "c d"], label=[1.0, 0.0, 0.5])
    scored = ScoredPairs.from_rows(Dataset.from_dict(rows))
    similar = scored.predict(similarity.SharedWords(scored.all_texts()))
    assert scored.score(similar)["spearman"] == pytest.approx(1.0)
    pairs = Dataset.from_dict(dict(first=["b", "x d"], second=["a b", "c d d"]))
    task = Retrieval.from_rows(pairs)
    passages = task.predict(similarity.SharedWords(task.all_texts()))
    assert task.score(passages)["hit@1"] == 1.0


def test_a_sign_is_no_shared_word():
    """Hardly a passage has a question mark, so it would count more than any word."""
    passages = ["the red house", "the blue house", "the green house [source?]"]
    words = similarity.SharedWords(passages)
    question = words.encode_query(["which house is red?"])
    assert words.similarity(question, words.encode_document(passages)).argmax() == 0


def test_texts_of_signs_only():
    words = similarity.SharedWords(["☀ ☂", "☂ ☃"])
    assert words.similarity_pairwise(words.encode(["☀"]), words.encode(["☀ ☂"]))[0] > 0


def test_a_folder_as_beir_publishes_them(tmp_path):
    _, _, judged = write_retrieval(tmp_path / "data")
    beir = read_retrieval(str(tmp_path / "data")).relevant
    (tmp_path / "data/qrels.csv").unlink()
    (tmp_path / "data/qrels").mkdir()
    for split, rows in (("test", judged), ("dev", judged[:4])):
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
        (tmp_path / f"data/qrels/{split}.tsv").write_text("\n".join(lines) + "\n")
    assert read_retrieval(str(tmp_path / "data")).relevant == beir
    assert len(read_retrieval(str(tmp_path / "data"), "dev").queries) == 1


def test_similarity(folder, tmp_path):
    chance = random.Random(0)
    first, second = sentences(50, seed=1), sentences(50, seed=2)
    scores = [chance.uniform(0, 5) for _ in first]
    rows = [dict(sentence1=a, sentence2=b, score=c) for a, b, c in zip(first, second, scores)]
    data = write_rows(tmp_path / "sts.jsonl", rows)
    run(
        "evaluate", "embed", "--model", folder, "--data", data, "--result", tmp_path / "result.json"
    )
    model = SentenceTransformer(folder, device="cpu")
    cosines = (model.encode(first) * model.encode(second)).sum(1)
    measured = json.loads((tmp_path / "result.json").read_text())["metrics"]
    assert measured["spearman"] == pytest.approx(
        scipy.stats.spearmanr(cosines, scores).statistic, abs=1e-3
    )
    assert measured["pearson"] == pytest.approx(
        scipy.stats.pearsonr(cosines, scores).statistic, abs=1e-4
    )


def test_evaluation_refuses_before_it_embeds(folder, tmp_path, capsys):
    write_retrieval(tmp_path / "data")
    for arguments, words in [
        (["--result", tmp_path / "data/qrels.csv/x.json"], ["qrels.csv"]),
        (["--data", tmp_path / "no"], [str(tmp_path / "no")]),
    ]:
        error = refusal(
            capsys, "evaluate", "embed", "--model", folder, "--data", tmp_path / "data", *arguments
        )
        assert all(word in error for word in words) and "Embedding" not in error, error


def test_judgements_of_what_is_not_there(tmp_path, capsys):
    """ArguAna has one. As in mteb, a passage that is not there counts as not found."""
    write_retrieval(tmp_path / "data")
    qrels = tmp_path / "data/qrels.csv"
    good = qrels.read_text()
    before = Retrieval.from_folder(tmp_path / "data", "test")
    assert not capsys.readouterr().out
    qrels.write_text(good + "q0,d99,1\nq99,d1,1\n")
    task = Retrieval.from_folder(tmp_path / "data", "test")
    assert (
        "2 of 46 judgements name a query or a passage that is not there" in capsys.readouterr().out
    )
    assert task.relevant == before.relevant | {"q0": before.relevant["q0"] | {"d99": 1.0}}
    assert task.queries == before.queries
    all_passages = [
        sorted(task.passages, key=lambda p: p.id not in task.relevant[q]) for q in task.queries
    ]
    assert before.score(all_passages)["recall@10"] == 1
    assert task.score(all_passages)["recall@10"] == pytest.approx(1 - 0.2 / 11)
    qrels.write_text(good + "q0,d99,1\n" * 9)
    with pytest.raises(ValueError, match="9 of 53 judgements .* give files that belong together"):
        read_retrieval(str(tmp_path / "data"))


def test_bad_retrieval_folders(tmp_path):
    write_retrieval(tmp_path / "data")
    qrels, corpus = tmp_path / "data/qrels.csv", tmp_path / "data/corpus.jsonl"
    good = qrels.read_text()
    rows = good.count("\n")
    for line in ("q0,d1,high", "q0,d1,nan"):
        qrels.write_text(good + line + "\n")
        with pytest.raises(ValueError, match=f"qrels.csv, row {rows}: .*: the score is no number"):
            read_retrieval(str(tmp_path / "data"))
    qrels.write_text("query-id,corpus-id,score\nq0,d1,0\n")
    with pytest.raises(ValueError, match="qrels.csv: no query has a relevant passage"):
        read_retrieval(str(tmp_path / "data"))
    qrels.write_text(good)
    assert len(read_retrieval(str(tmp_path / "data")).queries) == 11
    corpus.write_text(corpus.read_text() + '{"_id": "d3", "text": "x"}\n')
    with pytest.raises(ValueError, match="corpus.jsonl: several rows have the same _id"):
        read_retrieval(str(tmp_path / "data"))
    qrels.unlink()
    with pytest.raises(
        ValueError, match="has none of qrels_test.csv, qrels_test.tsv, qrels/test.csv"
    ):
        read_retrieval(str(tmp_path / "data"))
    corpus.unlink()
    with pytest.raises(ValueError, match=r"not a retrieval folder: it has none of corpus.jsonl"):
        read_retrieval(str(tmp_path / "data"))


def test_a_data_set_in_memory_is_measured_on(folder):
    rows = Dataset.from_dict(
        dict(
            sentence1=["katan", "lover", "mizol"],
            sentence2=["katan", "nuben", "mizol"],
            score=[1, 0, 1],
        )
    )
    found = minibert.evaluate("embed", data=rows, model=folder)
    assert (
        found["metrics"]["spearman"] > 0 and "shared words" in found["warning"]
    )  # which are perfect here


def test_intervals_belong_to_the_metric(monkeypatch, tmp_path, capsys):
    """Of retrieval, queries are drawn; of scored pairs, pairs."""
    vectors = dict(q=[1.0, 0.0], a=[0.9, 0.1], b=[0.5, 0.5])
    monkeypatch.setattr(evaluate, "open_encoder", lambda *_, **__: None)
    monkeypatch.setattr(
        similarity, "encode", lambda _, texts, *__, **___: np.array([vectors[x] for x in texts])
    )
    pairs = {"sentence1": ["q", "q", "a", "b"] * 10, "sentence2": ["a", "b", "b", "b"] * 10}
    pairs["score"] = [0.9, 0.2, 0.6, 0.8] * 10
    report = minibert.evaluate("embed", data=Dataset.from_dict(pairs), model="x")
    assert report["intervals"].keys() == {"pearson", "spearman"}
    low, high = report["intervals"]["spearman"]
    assert low < report["metrics"]["spearman"] < high
    printed = capsys.readouterr().out
    assert "95 % interval (x)" in printed and f"{low:.3f}–{high:.3f}" in printed
    assert "Next: minibert search INDEX QUERY --data FOLDER --model x\n" in printed
    rows = Dataset.from_dict(dict(first=["q", "a"], second=["b", "b"], third=["a", "a"]))
    task = Retrieval.from_rows(rows)
    intervals = task.intervals(task.predict(None))
    assert intervals["hit@1"] == (0, 1) and intervals["mrr@10"] == (0.5, 1)
