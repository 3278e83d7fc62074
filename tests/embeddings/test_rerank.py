"""Rerankers: scores against sentence-transformers' `CrossEncoder`, mixed orders by hand, negatives, and training."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from datasets import Dataset
from embedding_models import save_untrained
from helpers import WORDS, refusal, run, sentences, write_rows
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, SentenceTransformer
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import minibert
from minibert import MiniBertConfig, MiniBertForSequenceClassification, MiniBertModel
from minibert.tokenization import train_tokenizer
from minibert.training import precision
from minibert.training.cli import main as cli
from minibert.training.embeddings import train as training
from minibert.training.embeddings.encoders import Embedder, open_reranker, score_pairs
from minibert.training.embeddings.search import Index
from minibert.training.embeddings.train import Measure, draw_negatives, find_near, label_rows, ranking_among

PAIRS = [*zip(sentences(20), sentences(20, seed=1, longest=40)), ("katan " * 30, "lover"), ("katan", "")]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Folders: bert, the same as reranker (converted) and as logits (scores are logits), an embedder, one untrained."""
    root = tmp_path_factory.mktemp("rerank")
    tokenizer = train_tokenizer(sentences(200), vocab_size=80, model_max_length=24, show_progress=False)
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    torch.manual_seed(0)
    bert = BertForSequenceClassification(
        BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, initializer_range=0.3, num_labels=1, **shape)
    )
    bert.save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    assert cli.main(["convert", str(root / "bert"), str(root / "reranker")]) == 0
    model = CrossEncoder(str(root / "reranker"), activation_fn=nn.Identity(), device="cpu")
    model.save_pretrained(str(root / "logits"))
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", max_position_embeddings=32, **shape)
    MiniBertModel(config).save_pretrained(root / "embedder")
    tokenizer.save_pretrained(root / "embedder")
    return root


# --- scores ---


def test_the_same_scores_as_cross_encoder(root):
    expected = CrossEncoder(str(root / "bert"), device="cpu").predict(PAIRS)
    assert np.std(expected) > 0.05
    reranker = open_reranker(str(root / "reranker"))
    for scores in (
        score_pairs(reranker, PAIRS),
        score_pairs(reranker, PAIRS, batch_tokens=1),
        CrossEncoder(str(root / "reranker"), device="cpu").predict(PAIRS),
    ):
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_scores_that_are_logits(root):
    expected = CrossEncoder(str(root / "logits"), device="cpu").predict(PAIRS)
    assert min(expected) < 0 or max(expected) > 1  # so they are no sigmoids
    np.testing.assert_allclose(score_pairs(open_reranker(str(root / "logits")), PAIRS), expected, atol=1e-4)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="a GPU computes in 16 bits")
def test_weights_in_16_bits_are_computed_in_fp32_where_the_processor_is_slow_at_them(root, tmp_path, monkeypatch):
    shutil.copytree(root / "reranker", tmp_path / "half")
    MiniBertForSequenceClassification.from_pretrained(tmp_path / "half").to(torch.bfloat16).save_pretrained(
        tmp_path / "half"
    )
    for flags, expected in (({"avx2"}, torch.float32), ({"amx_bf16"}, torch.bfloat16)):
        monkeypatch.setattr(precision, "_processor_flags", lambda flags=flags: flags)
        assert open_reranker(str(tmp_path / "half")).model.dtype == expected


@pytest.mark.parametrize("field", ["sentence_transformers", "sbert_ce_default_activation_function"])
def test_scores_as_older_versions_saved_them(root, tmp_path, field):
    """Versions before 6 of sentence-transformers wrote the activation into the config, which conversion keeps."""
    shutil.copytree(root / "bert", tmp_path / "old")
    config = json.loads((tmp_path / "old/config.json").read_text())
    name = "torch.nn.modules.linear.Identity"
    config[field] = {"activation_fn": name} if field == "sentence_transformers" else name
    (tmp_path / "old/config.json").write_text(json.dumps(config))
    assert cli.main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    assert cli.main(["convert", str(tmp_path / "new"), str(tmp_path / "back")]) == 0
    expected = CrossEncoder(str(tmp_path / "old"), device="cpu").predict(PAIRS)
    assert min(expected) < 0 or max(expected) > 1
    for scores in (
        score_pairs(open_reranker(str(tmp_path / "new")), PAIRS),
        CrossEncoder(str(tmp_path / "back"), device="cpu").predict(PAIRS),
    ):
        np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_a_prompt_of_the_folder_is_put_before_every_query(root, tmp_path):
    saved = CrossEncoder(str(root / "reranker"), prompts={"x": "mizol "}, default_prompt_name="x", device="cpu")
    saved.save_pretrained(str(tmp_path))
    expected = CrossEncoder(str(tmp_path), device="cpu").predict(PAIRS)
    plain = score_pairs(open_reranker(str(root / "reranker")), PAIRS)
    np.testing.assert_allclose(score_pairs(open_reranker(str(tmp_path)), PAIRS), expected, atol=1e-5)
    assert np.abs(plain - expected).max() > 0.01


def test_a_prompt_of_the_folder_is_trained_with(toy, root, tmp_path, monkeypatch):
    saved = CrossEncoder(str(root / "reranker"), prompts={"x": "mizol "}, default_prompt_name="x", device="cpu")
    saved.save_pretrained(str(tmp_path / "prompted"))

    def make(self, args, **_):
        raise RuntimeError(args.prompts)

    monkeypatch.setattr(CrossEncoderTrainer, "__init__", make)
    with pytest.raises(RuntimeError, match="mizol "):
        minibert.finetune(
            "rerank",
            data=[str(toy / "train.jsonl")],
            model=str(tmp_path / "prompted"),
            output_dir=str(tmp_path / "out"),
        )


# --- minibert rerank ---


def test_rerank_prints_them_in_order(root, tmp_path, capsys):
    passages = sentences(6, seed=7)
    (tmp_path / "more.txt").write_text("\n".join(["", *passages[3:]]))
    output = run("rerank", "katan lover", *passages[:3], "--file", tmp_path / "more.txt", "--model", root / "reranker",
                 "--top_k", "4", capsys=capsys)  # fmt: skip
    expected = CrossEncoder(str(root / "bert"), device="cpu").rank("katan lover", passages)[:4]
    lines = [f"  {row['score']:6.3f}  {passages[row['corpus_id']]}" for row in expected]
    assert output.splitlines() == ["katan lover", *lines]


@pytest.mark.parametrize("depth, top_k", [(6, 3), (2, 4)])
def test_search_with_a_reranker(root, tmp_path, depth, top_k):
    """The nearest passages, `depth` or as many as are asked for, in the order of CrossEncoder's scores."""
    texts, query = list(dict.fromkeys(sentences(30, seed=2))), "katan lover"
    notes = write_rows(tmp_path / "notes.jsonl", [dict(_id=str(i), text=text) for i, text in enumerate(texts)])
    embedder, index = str(root / "embedder"), str(tmp_path / "index")
    more = dict(reranker=str(root / "reranker"), depth=depth, top_k=top_k)
    found = minibert.search(index, query, data=[str(notes)], model=embedder, **more)[0]
    vectors = Embedder.from_pretrained(embedder, normalize=True).embed([query, *texts])
    nearest = np.argsort(-vectors[1:] @ vectors[0])[: max(depth, top_k)]
    scores = CrossEncoder(str(root / "bert"), device="cpu").predict([(query, texts[i]) for i in nearest])
    order = np.argsort(-scores)[:top_k]
    assert [int(passage.id) for passage, _ in found] == nearest[order].tolist()
    np.testing.assert_allclose([score for _, score in found], scores[order], atol=1e-5)
    np.testing.assert_allclose(Index.load(index).vectors, vectors[1:], atol=1e-5)  # of length 1, as the embedder's not


def test_rerank_refuses(root, tmp_path, capsys):
    (tmp_path / "blank.txt").write_text("\n\n")
    config = MiniBertConfig.from_pretrained(root / "reranker")
    config.num_labels = 3
    config.save_pretrained(tmp_path / "three")
    model = ["--model", root / "reranker"]
    for arguments, words in [
        ([*model], ["query: none given"]),
        (["katan", *model], ["passages: none given"]),
        (["katan", "--file", tmp_path / "blank.txt", *model], ["text: none in", "blank.txt"]),
        (["katan", "--file", tmp_path / "no.txt", *model], ["there is no file"]),
        (["katan", "lover", "--model", root / "embedder"], ["holds a MiniBertModel; a reranker is a"]),
        (["katan", "lover", "--top_k", "-1", *model], ["top_k: -1 is too small"]),
        (["katan", "lover", "--model", tmp_path / "three"], ["with 3 labels; a reranker is"]),
        (["katan", "lover", "--model", root / "bert"], ["is a bert, not a MiniBERT"]),
    ]:
        error = refusal(capsys, "rerank", *arguments)
        assert all(word in error for word in words), error


# --- minibert evaluate rerank ---


@pytest.fixture(scope="module")
def data(root):
    chance = random.Random(1)
    folder = root / "data"
    folder.mkdir()
    write_rows(folder / "corpus.jsonl", [dict(_id=f"d{i}", text=t) for i, t in enumerate(sentences(30, seed=3))])
    for split, count in (("test", 8), ("validation", 10)):
        queries = [dict(_id=f"q{i}", text=t) for i, t in enumerate(sentences(count, seed=4 + count))]
        write_rows(folder / f"queries_{split}.jsonl", queries)
        judged = [f"{q['_id']},d{i},{chance.randint(1, 3)}" for q in queries for i in chance.sample(range(30), 6)]
        (folder / f"qrels_{split}.csv").write_text("\n".join(["query-id,corpus-id,score", *judged]) + "\n")
    return folder


def expected_ndcg(root, data, split: str, weight: float, depth: int) -> float:
    """By sentence-transformers' vectors and scores, and sorting in Python."""
    corpus = [json.loads(line) for line in open(data / "corpus.jsonl")]  # noqa: SIM115
    queries = [json.loads(line) for line in open(data / f"queries_{split}.jsonl")]  # noqa: SIM115
    rows = [line.split(",") for line in (data / f"qrels_{split}.csv").read_text().splitlines()[1:]]
    embedder = SentenceTransformer(str(root / "embedder"), device="cpu")
    reranker = CrossEncoder(str(root / "bert"), device="cpu")
    vectors = embedder.encode([row["text"] for row in corpus], normalize_embeddings=True).astype(float)
    values = []
    for query in queries:
        cosines = vectors @ embedder.encode([query["text"]], normalize_embeddings=True)[0].astype(float)
        found = sorted(range(len(corpus)), key=lambda i: -cosines[i])[:depth]
        scores = reranker.predict([(query["text"], corpus[i]["text"]) for i in found]).astype(float)
        near = np.array([cosines[i] for i in found])
        mixed = weight * (scores - scores.mean()) / scores.std() + (1 - weight) * (near - near.mean()) / near.std()
        grades = {doc: float(grade) for q, doc, grade in rows if q == query["_id"]}
        gains = [grades.get(corpus[found[i]]["_id"], 0) for i in sorted(range(depth), key=lambda i: -mixed[i])[:10]]
        ideal = sorted(grades.values(), reverse=True)[:10]
        discount = [1 / np.log2(rank + 2) for rank in range(10)]
        values.append(np.dot(gains, discount[: len(gains)]) / np.dot(ideal, discount[: len(ideal)]))
    return float(np.mean(values))


def test_evaluation_of_a_reranker(root, data, tmp_path):
    models = ["--model", root / "reranker", "--embedder", root / "embedder", "--data", data, "--depth", "8"]
    for weight in (0.0, 0.3, 1.0):
        run("evaluate", "rerank", *models, "--weight", weight, "--result", tmp_path / "r.json")
        result = json.loads((tmp_path / "r.json").read_text())
        assert result["metrics"]["ndcg@10"] == pytest.approx(expected_ndcg(root, data, "test", weight, 8), abs=1e-6)
        assert result["before"]["ndcg@10"] == pytest.approx(expected_ndcg(root, data, "test", 0.0, 8), abs=1e-6)
    assert result["metrics"] == result["reranker_alone"] != result["before"]

    assert len(result["shares"]) == 11 and result["shares"]["1.0"] == result["metrics"]
    expected = expected_ndcg(root, data, "test", 0.7, 8)
    assert result["shares"]["0.7"]["ndcg@10"] == pytest.approx(expected, abs=1e-6) != result["metrics"]["ndcg@10"]


def test_evaluation_refuses(root, data, capsys):
    models = ["--model", root / "reranker", "--embedder", root / "embedder"]
    for arguments, words in [
        (models, ["data: none given; give a folder with corpus.jsonl"]),
        ([*models, "--data", data, "--weight", "1.5"], ["weight: 1.5 is out of range"]),
        ([*models, "--data", data, "--depth", "0"], ["depth: 0 is too small"]),
        ([*models, "--data", data / "corpus.jsonl"], ["is no retrieval folder: it has no corpus.jsonl"]),
        (
            [*models, "--data", data, "--split", "dev"],
            ["has none of queries_dev.jsonl, queries/dev.jsonl"],
        ),
        (["--model", root / "embedder", "--embedder", root / "embedder", "--data", data], ["a reranker is a"]),
        (["--model", root / "reranker", "--embedder", root / "reranker", "--data", data], ["; use one of MiniBertM"]),
    ]:
        error = refusal(capsys, "evaluate", "rerank", *arguments)
        assert all(word in error for word in words) and "Embedding" not in error, error


# --- negatives ---


def pairs_of(first, second, third=None) -> Dataset:
    return Dataset.from_dict(dict(first=first, second=second) | ({"third": third} if third else {}))


def test_negatives(root, monkeypatch):
    pool = list(dict.fromkeys(sentences(60, seed=9)))
    pairs = pairs_of([f"{WORDS[i % 7]} lover" for i in range(20)], pool[:20])
    right = {query: {p for q, p in zip(pairs["first"], pairs["second"]) if q == query} for query in pairs["first"]}
    embedder = Embedder.from_pretrained(str(root / "embedder"))
    near = find_near([pairs], pool, embedder, depth=6)
    vectors = embedder.embed(pool)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    for query in right:
        cosines = (vectors @ embedder.embed([query])[0]).tolist()
        order = sorted(range(len(pool)), key=lambda i: -cosines[i])
        assert near[query] == [pool[i] for i in order if pool[i] not in right[query]][:6]
    elsewhere = find_near([pairs_of(list(right), [f"{p} no passage" for p in pool[: len(right)]])], pool, embedder, 6)
    assert all(len(found) == 6 and set(found) <= set(pool) for found in elsewhere.values())
    for source in (near, None):
        drawn = draw_negatives(pairs, source, pool, count=4, depth=5, seed=0)
        for query, passages in zip(pairs["first"], drawn):
            assert len(set(passages)) == 4 and not right[query] & set(passages)
            assert set(passages) <= set(near[query][:5] if source else pool)
        assert drawn == draw_negatives(pairs, source, pool, 4, 5, seed=0)
        assert drawn != draw_negatives(pairs, source, pool, 4, 5, seed=1)
    monkeypatch.setattr(training, "QUERY_CHUNK_SIZE", 3)
    assert find_near([pairs], pool, embedder, depth=6) == near
    nearest = [pool[i] for i in np.argsort(-(vectors @ embedder.embed(["a query"])[0]), kind="stable")]
    uneven = pairs_of(["a query"] * 12 + ["another"], [*nearest[:12], nearest[0]])  # what is nearest is its own
    assert find_near([uneven], pool, embedder, depth=6)["a query"] == nearest[12:18]
    given = pairs_of(list(pairs["first"]), list(pairs["second"]), pool[-20:])
    assert [row[0] for row in draw_negatives(given, near, pool, 4, 5, seed=0)] == pool[-20:]
    with pytest.raises(ValueError, match="3 different passages are too few for 4 a query; use --negatives 2"):
        draw_negatives(pairs, None, pool[:3], 4, 5, seed=0)
    drawn = draw_negatives(pairs, None, pool[20:24], 4, 5, seed=0)  # enough, since no query has its passages there
    assert all(sorted(found) == sorted(pool[20:24]) for found in drawn)
    chain = pairs_of(pool[:5], pool[1:6])  # a passage is the query of another pair
    near = find_near([chain], pool, embedder, depth=6)
    assert all(len(found) == 6 and query not in found for query, found in near.items())
    for source in (near, None):
        drawn = draw_negatives(chain, source, pool[:8], 3, 6, seed=0)
        assert all(query not in found and set(found) <= set(pool[:8]) for query, found in zip(pool, drawn))
    rows = label_rows(pairs_of(["q"], ["p"]), [["n", "m"]])
    assert rows.to_dict() == dict(first=["q"] * 3, second=["p", "n", "m"], label=[1.0, 0.0, 0.0])


def test_a_reranker_that_scores_all_alike_is_not_good(root):
    reranker = open_reranker(str(root / "reranker"))
    torch.nn.init.zeros_(reranker.model.classifier.weight)
    measured = ranking_among(reranker, pairs_of(["katan"] * 2, ["lover"] * 2), [["mizol", "nuben"], ["peduk"] * 12])
    assert measured["hit@1"] == 0 and measured["hit@10"] == 0.5
    assert measured["mrr@10"] == pytest.approx(1 / 3 / 2)


# --- minibert finetune rerank ---


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Passages of two languages, of which only one answers; and a model that knows neither."""
    root = tmp_path_factory.mktemp("toy")
    chance = random.Random(0)

    def words(stem: str, count: int) -> str:
        return " ".join(f"{stem}{chance.randrange(9)}" for _ in range(count))

    pairs = [(words("ask", 3), words("right", 5)) for _ in range(160)]
    wrong = [words("wrong", 5) for _ in range(300)]
    write_rows(root / "train.jsonl", [dict(query=q, positive=p) for q, p in pairs])
    (root / "wrong.txt").write_text("\n\n".join(wrong))
    scored = [dict(sentence1=q, sentence2=p, score=1) for q, p in pairs]
    scored += [dict(sentence1=q, sentence2=p, score=0) for (q, _), p in zip(pairs, wrong)]
    write_rows(root / "scored.jsonl", scored)
    pairs += [("", text) for text in wrong]
    texts = [text for pair in pairs for text in pair]
    save_untrained(root / "model", texts, 24, 200, MiniBertModel, global_attn_every_n_layers=1)
    return root


TRAINING = ["--learning_rate", "2e-3", "--per_device_train_batch_size", "32", "--disable_tqdm", "true",
            "--bf16", "false", "--logging_steps", "10", "--use_cpu", "true"]  # fmt: skip


def test_training_ranks_better(toy, tmp_path, capsys):
    output = tmp_path / "out"
    run("finetune", "rerank", toy / "train.jsonl", "--corpus", toy / "wrong.txt", "--model", toy / "model",
        "--output_dir", output, "--negatives", "2", "--validation_size", "30", *TRAINING)  # fmt: skip
    report = json.loads((output / "report.json").read_text())
    assert report["before"]["hit@1"] < 0.5 and report["after"]["hit@1"] > 0.9
    assert f"CrossEncoder({str(output)!r})" in capsys.readouterr().out
    pairs = [("ask1 ask2 ask3", "right1 right2 right7"), ("ask1 ask2 ask3", "wrong1 wrong2 wrong7")]
    scores = score_pairs(open_reranker(str(output)), pairs)
    assert scores[0] > scores[1] + 0.2
    np.testing.assert_allclose(CrossEncoder(str(output), device="cpu").predict(pairs), scores, atol=1e-5)
    assert (output / "training.png").exists() and not [*output.rglob("*.bin"), *output.rglob("*.pt")]


def test_what_is_held_out_is_no_negative_in_training(toy, tmp_path, monkeypatch):
    def make(self, train_dataset, **_):
        texts = [{row["second"] for row in train_dataset if row["label"] == label} for label in (0, 1)]
        raise RuntimeError("known" if texts[0] <= texts[1] else "held out")

    monkeypatch.setattr(CrossEncoderTrainer, "__init__", make)
    with pytest.raises(RuntimeError, match="known"):
        run("finetune", "rerank", toy / "train.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out",
            "--negatives", "4", "--validation_size", "60", *TRAINING)  # fmt: skip


def test_few_passages_are_as_many_negatives_as_there_are(toy, tmp_path, capsys):
    """Of what is held out too, where others are ranked among 20."""
    pairs = [dict(query=f"ask{i % 9} ask{i}", positive=f"right{i % 4}") for i in range(30)]
    run("finetune", "rerank", write_rows(tmp_path / "few.jsonl", pairs), "--model", toy / "model", "--output_dir",
        tmp_path / "out", "--negatives", "1", "--max_steps", "1", *TRAINING)  # fmt: skip
    assert "each passage among 3 negatives" in capsys.readouterr().out


def test_training_on_scores_and_further(toy, tmp_path):
    """A reranker may be trained further: the second run begins where the first ended."""
    for number, model in enumerate((toy / "model", tmp_path / "0")):
        run("finetune", "rerank", toy / "scored.jsonl", "--model", model, "--output_dir", tmp_path / str(number),
            "--num_train_epochs", "1", "--validation_size", "30", *TRAINING)  # fmt: skip
    first, second = (json.loads((tmp_path / f"{number}/report.json").read_text()) for number in (0, 1))
    assert set(first["after"]) == {"spearman"}
    assert second["before"]["spearman"] == pytest.approx(first["after"]["spearman"], abs=1e-4)


def test_finetune_rerank_refuses(toy, root, data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Measure, "__call__", lambda *_, **__: pytest.fail("it measures"))
    few = write_rows(tmp_path / "few.jsonl", [dict(query=f"q{i}", positive="p") for i in range(30)])
    for arguments, words in [
        ([toy / "train.jsonl", "--validation", data], ["is a folder; give a reranker a table"]),
        ([toy / "train.jsonl", "--negatives", "0"], ["negatives: 0 is out of range; use 1 or more"]),
        (
            [toy / "train.jsonl", "--negatives", "31", "--miner", root / "embedder"],
            ["negatives: 31 is out of range; use 1 to mine_depth=30"],
        ),
        ([toy / "scored.jsonl", "--negatives", "7"], ["negatives: 7 has no effect on scored pairs; leave it out"]),
        ([toy / "scored.jsonl", "--miner", root / "embedder"], ["has no effect on scored pairs"]),
        ([toy / "scored.jsonl", "--corpus", tmp_path / "none.txt"], ["has no effect on scored pairs"]),
        ([few], ["negatives: 1 different passages are too few for 3 a query; give more by --corpus"]),
        ([toy / "train.jsonl", "--miner", root / "reranker"], ["holds a MiniBertForSequenceClassification; use"]),
        ([toy / "train.jsonl", "--metric_for_best_model", "f1"], ["metric_for_best_model: 'f1' is not measured"]),
    ]:
        error = refusal(
            capsys,
            "finetune",
            "rerank",
            "--model",
            toy / "model",
            "--output_dir",
            tmp_path / "out",
            *TRAINING,
            *arguments,
        )
        assert all(word in error for word in words), error
    assert not (tmp_path / "out/config.json").exists()
