"""Rerankers: scores against sentence-transformers' `CrossEncoder`, mixed orders by hand, negatives, and training."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from datasets import Dataset
from embedding_models import OPTIONS, save_untrained
from helpers import WORDS, refusal, run, save_model, sentences, write_rows
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, SentenceTransformer
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import minibert
from minibert import MiniBertConfig, MiniBertModel
from minibert.tokenization import train_tokenizer
from minibert.training import cli
from minibert.training.embeddings.config import RerankerConfig
from minibert.training.embeddings.encoders import open_encoder, open_reranker
from minibert.training.embeddings.index import Index
from minibert.training.embeddings.inference import MAX_COUNTED_TEXTS, encode, score_pairs
from minibert.training.embeddings.measuring.evaluators import HeldOutEvaluator
from minibert.training.embeddings.measuring.retrieval import as_reranking
from minibert.training.embeddings.reading.negatives import with_negatives
from minibert.training.embeddings.trainers.reranker_trainer import RerankerTrainer
from minibert.training.embeddings.trainers.setups import RerankingSetup

PAIRS = [
    *zip(sentences(20), sentences(20, seed=1, longest=40)),
    ("katan " * 30, "lover"),
    ("katan", ""),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Folders: bert, the same as reranker (converted) and as logits (scores are logits), an embedder, one untrained."""
    root = tmp_path_factory.mktemp("rerank")
    tokenizer = train_tokenizer(
        sentences(200), vocab_size=80, model_max_length=24, show_progress=False
    )
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    torch.manual_seed(0)
    bert = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=32,
            initializer_range=0.3,
            num_labels=1,
            **shape,
        )
    )
    bert.save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    assert cli.main(["convert", str(root / "bert"), str(root / "reranker")]) == 0
    model = CrossEncoder(str(root / "reranker"), activation_fn=nn.Identity(), device="cpu")
    model.save_pretrained(str(root / "logits"))
    save_model(root / "embedder", tokenizer, max_position_embeddings=32, **shape)
    return root


# --- scores ---


def test_the_same_scores_as_cross_encoder(root):
    expected = CrossEncoder(str(root / "bert"), device="cpu").predict(PAIRS)
    assert np.std(expected) > 0.05
    reranker = open_reranker(str(root / "reranker"))
    for scores in (
        score_pairs(reranker, PAIRS),
        CrossEncoder(str(root / "reranker"), device="cpu").predict(PAIRS),
    ):
        np.testing.assert_allclose(scores, expected, atol=1e-5)


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
    saved = CrossEncoder(
        str(root / "reranker"), prompts={"x": "mizol "}, default_prompt_name="x", device="cpu"
    )
    saved.save_pretrained(str(tmp_path))
    expected = CrossEncoder(str(tmp_path), device="cpu").predict(PAIRS)
    plain = score_pairs(open_reranker(str(root / "reranker")), PAIRS)
    np.testing.assert_allclose(
        score_pairs(open_reranker(str(tmp_path)), PAIRS), expected, atol=1e-5
    )
    assert np.abs(plain - expected).max() > 0.01


# --- minibert rerank ---


@pytest.mark.parametrize("depth, top_k", [(6, 3), (2, 4)])
def test_search_with_a_reranker(root, tmp_path, depth, top_k, monkeypatch):
    """The nearest passages, `DEPTH` or as many as are asked for, in the order of CrossEncoder's scores."""
    monkeypatch.setattr("minibert.training.embeddings.search.DEPTH", depth)
    texts, query = list(dict.fromkeys(sentences(30, seed=2))), "katan lover"
    notes = write_rows(
        tmp_path / "notes.jsonl", [dict(_id=str(i), text=text) for i, text in enumerate(texts)]
    )
    embedder, index = str(root / "embedder"), str(tmp_path / "index")
    more = dict(reranker=str(root / "reranker"), top_k=top_k)
    found = minibert.search(index, [query], data=[str(notes)], model=embedder, **more)[0]
    vectors = encode(open_encoder(embedder, normalize=True), [query, *texts])
    nearest = np.argsort(-vectors[1:] @ vectors[0])[: max(depth, top_k)]
    scores = CrossEncoder(str(root / "bert"), device="cpu").predict(
        [(query, texts[i]) for i in nearest]
    )
    order = np.argsort(-scores)[:top_k]
    assert [int(passage.id) for passage, _ in found] == nearest[order].tolist()
    np.testing.assert_allclose([score for _, score in found], scores[order], atol=1e-5)
    np.testing.assert_allclose(
        Index.load(index).vectors, vectors[1:], atol=1e-5
    )  # of length 1, as the embedder's not


def test_rerank_refuses(root, tmp_path, capsys):
    (tmp_path / "blank.txt").write_text("\n\n")
    config = MiniBertConfig.from_pretrained(root / "reranker")
    config.num_labels = 3
    config.save_pretrained(tmp_path / "three")
    model = ["--model", root / "reranker"]
    for arguments, words in [
        (["katan", *model], ["passages: give a query"]),
        (["katan", "--file", tmp_path / "blank.txt", *model], ["there is no text in", "blank.txt"]),
        (
            ["katan", "lover", "--model", root / "embedder"],
            ["holds a MiniBertModel; a reranker is a"],
        ),
        (["katan", "lover", "--model", tmp_path / "three"], ["a reranker is a", "with one label"]),
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
    write_rows(
        folder / "corpus.jsonl",
        [dict(_id=f"d{i}", text=t) for i, t in enumerate(sentences(30, seed=3))],
    )
    for split, count in (("test", 8), ("validation", 10)):
        queries = [
            dict(_id=f"q{i}", text=t) for i, t in enumerate(sentences(count, seed=4 + count))
        ]
        write_rows(folder / f"queries_{split}.jsonl", queries)
        judged = [
            f"{q['_id']},d{i},{chance.randint(1, 3)}"
            for q in queries
            for i in chance.sample(range(30), 6)
        ]
        (folder / f"qrels_{split}.csv").write_text(
            "\n".join(["query-id,corpus-id,score", *judged]) + "\n"
        )
    return folder


def expected_ndcg(root, data, split: str, depth: int, reranked: bool) -> float:
    """By sentence-transformers' vectors and scores, and sorting in Python."""
    corpus = [json.loads(line) for line in open(data / "corpus.jsonl")]  # noqa: SIM115
    queries = [json.loads(line) for line in open(data / f"queries_{split}.jsonl")]  # noqa: SIM115
    rows = [line.split(",") for line in (data / f"qrels_{split}.csv").read_text().splitlines()[1:]]
    embedder = SentenceTransformer(str(root / "embedder"), device="cpu")
    reranker = CrossEncoder(str(root / "bert"), device="cpu")
    vectors = embedder.encode([row["text"] for row in corpus], normalize_embeddings=True).astype(
        float
    )
    values = []
    for query in queries:
        cosines = vectors @ embedder.encode([query["text"]], normalize_embeddings=True)[0].astype(
            float
        )
        found = sorted(range(len(corpus)), key=lambda i: -cosines[i])[:depth]
        scores = reranker.predict([(query["text"], corpus[i]["text"]) for i in found])
        scores = scores if reranked else -np.arange(depth)
        grades = {doc: float(grade) for q, doc, grade in rows if q == query["_id"]}
        gains = [
            grades.get(corpus[found[i]]["_id"], 0)
            for i in sorted(range(depth), key=lambda i: -scores[i])[:10]
        ]
        ideal = sorted(grades.values(), reverse=True)[:10]
        discount = [1 / np.log2(rank + 2) for rank in range(10)]
        values.append(np.dot(gains, discount[: len(gains)]) / np.dot(ideal, discount[: len(ideal)]))
    return float(np.mean(values))


def test_evaluation_of_a_reranker(root, data, tmp_path, capsys):
    printed = run("evaluate", "rerank", data, "--model", root / "reranker", "--embedder", root / "embedder",
                  "--depth", "8", "--result", tmp_path / "r.json", capsys=capsys)  # fmt: skip
    next_step = f"Next: minibert search INDEX QUERY --reranker {root / 'reranker'}"
    assert printed.splitlines()[-1] == next_step
    result = json.loads((tmp_path / "r.json").read_text())
    for name, reranked in (("before", False), ("metrics", True)):
        assert result[name]["ndcg@10"] == pytest.approx(
            expected_ndcg(root, data, "test", 8, reranked), abs=1e-6
        )
    assert result["metrics"] != result["before"]


def test_evaluation_refuses(root, data, capsys):
    models = ["--model", root / "reranker", "--embedder", root / "embedder"]
    for arguments, words in [
        (
            [*models, "--data", data / "corpus.jsonl"],
            ["is not a retrieval folder: it has none of corpus.jsonl"],
        ),
        (
            [*models, "--data", data, "--split", "dev"],
            ["has none of queries_dev.jsonl, queries.jsonl"],
        ),
        (
            ["--model", root / "embedder", "--embedder", root / "embedder", "--data", data],
            ["a reranker is a"],
        ),
        (
            ["--model", root / "reranker", "--embedder", root / "reranker", "--data", data],
            ["; use one of MiniBertM"],
        ),
    ]:
        error = refusal(capsys, "evaluate", "rerank", *arguments)
        assert all(word in error for word in words) and "Embedding" not in error, error


# --- negatives ---


def pairs_of(first, second, third=None) -> Dataset:
    return Dataset.from_dict(dict(first=first, second=second) | ({"third": third} if third else {}))


@pytest.mark.parametrize("mined", [False, True])
def test_sampled_and_hard_negatives(root, mined, monkeypatch):
    """Of the pool, never a query or one of its passages; hard ones are among the nearest by cosine."""
    monkeypatch.setattr("minibert.training.embeddings.reading.negatives.NUM_NEAREST", 6)
    pool = list(dict.fromkeys(sentences(60, seed=9)))
    pairs = pairs_of([f"{WORDS[i % 7]} lover" for i in range(20)], pool[:20])
    right = {
        query: {p for q, p in zip(pairs["first"], pairs["second"]) if q == query}
        for query in pairs["first"]
    }
    embedder = open_encoder(str(root / "embedder"), normalize=True)

    def draw(pairs, count, pool=pool, seed=0):
        random.seed(seed)
        return with_negatives(pairs, pool, count, embedder if mined else None).to_list()

    rows = draw(pairs, 4)
    vectors = encode(embedder, pool)
    for query, own in right.items():
        found = {
            label: [r["second"] for r in rows if (r["first"], r["label"]) == (query, label)]
            for label in (0, 1)
        }
        assert (
            set(found[1]) == own
            and len(set(found[0])) == len(found[0]) == 4
            and not own & set(found[0])
        )
        order = [
            pool[i]
            for i in np.argsort(-(vectors @ encode(embedder, [query])[0]))
            if pool[i] not in own
        ]
        assert set(found[0]) <= set(order[: 6 if mined else None])
    assert rows == draw(pairs, 4) != draw(pairs, 4, seed=1)
    given = draw(pairs_of(pairs["first"][:], pairs["second"][:], pool[-20:]), 2)
    wrong = {(row["first"], row["second"]) for row in given if row["label"] == 0}
    assert wrong == {(query, text) for query, text in zip(pairs["first"], pool[-20:])}
    chain = draw(
        pairs_of(pool[:5], pool[1:6]), 3, pool[:8]
    )  # a passage is the query of another pair
    assert all(row["first"] != row["second"] for row in chain)


def test_a_reranker_that_scores_all_alike_is_not_good(root):
    reranker = open_reranker(str(root / "reranker"))
    torch.nn.init.zeros_(reranker.model.classifier.weight)
    wrong = [("a", ["mizol", "nuben"]), ("b", WORDS[:12])]
    rows = [dict(first=query, second="lover!", label=1.0) for query, _ in wrong]
    rows += [dict(first=query, second=text, label=0.0) for query, texts in wrong for text in texts]
    task, found = as_reranking(Dataset.from_list(rows))
    measured = task.score(task.reorder(reranker, found))
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
    write_rows(
        root / "train.jsonl",
        [dict(query=q, positive=p, negative=n) for (q, p), n in zip(pairs, wrong)],
    )
    write_rows(root / "pairs.jsonl", [dict(query=q, positive=p) for q, p in pairs])
    scored = [dict(sentence1=q, sentence2=p, score=1) for q, p in pairs]
    scored += [dict(sentence1=q, sentence2=p, score=0) for (q, _), p in zip(pairs, wrong)]
    write_rows(root / "scored.jsonl", scored)
    pairs += [("", text) for text in wrong]
    texts = [text for pair in pairs for text in pair]
    save_untrained(root / "model", texts, 24, 200, MiniBertModel, global_attn_every_n_layers=1)
    return root


TRAINING = [
    *OPTIONS,
    "--learning_rate",
    "2e-3",
    "--per_device_train_batch_size",
    "32",
    "--logging_steps",
    "10",
]


def test_training_ranks_better(toy, tmp_path, capsys):
    output = tmp_path / "out"
    run("finetune", "rerank", toy / "train.jsonl", "--model", toy / "model",
        "--output_dir", output, "--num_train_epochs", "3", "--validation_size", "30", *TRAINING)  # fmt: skip
    report = json.loads((output / "report.json").read_text())
    assert report["before"]["hit@1"] < report["after"]["hit@1"] > 0.9
    assert f"CrossEncoder({str(output)!r})" in capsys.readouterr().out
    pairs = [("ask1 ask2 ask3", "right1 right2 right7"), ("ask1 ask2 ask3", "wrong1 wrong2 wrong7")]
    scores = score_pairs(open_reranker(str(output)), pairs)
    assert scores[0] > scores[1] + 0.2
    np.testing.assert_allclose(
        CrossEncoder(str(output), device="cpu").predict(pairs), scores, atol=1e-5
    )
    assert (output / "training.png").exists() and not [
        *output.rglob("*.bin"),
        *output.rglob("*.pt"),
    ]


def test_what_is_held_out_is_no_negative_in_training(toy, tmp_path, monkeypatch):
    def make(self, train_dataset, **_):
        texts = [
            {row["second"] for row in train_dataset if row["label"] == label} for label in (0, 1)
        ]
        raise RuntimeError("known" if texts[0] <= texts[1] else "held out")

    monkeypatch.setattr(CrossEncoderTrainer, "__init__", make)
    with pytest.raises(RuntimeError, match="known"):
        run("finetune", "rerank", toy / "pairs.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out",
            "--negatives", "4", "--validation_size", "60", *TRAINING)  # fmt: skip


@pytest.mark.slow
def test_training_on_scores_and_further(toy, tmp_path):
    """A reranker may be trained further: the second run begins where the first ended."""
    for number, model in enumerate((toy / "model", tmp_path / "0")):
        run("finetune", "rerank", toy / "scored.jsonl", "--model", model, "--output_dir", tmp_path / str(number),
            "--max_steps", "4", "--validation_size", "30", *TRAINING)  # fmt: skip
    first, second = (
        json.loads((tmp_path / f"{number}/report.json").read_text()) for number in (0, 1)
    )
    assert set(first["after"]) == {"spearman"}
    assert second["before"]["spearman"] == pytest.approx(first["after"]["spearman"], abs=1e-4)


def test_pairs_are_counted_as_cut_that_are_too_long_together(toy, tmp_path, capsys):
    """No passage alone is longer than the model reads; most are so behind their query."""
    args = RerankerConfig(tmp_path / "out", use_cpu=True, bf16=False, disable_tqdm=True)
    setup = RerankingSetup(data=str(toy / "train.jsonl"), model=str(toy / "model"))
    trainer = RerankerTrainer(setup, args)
    tokenizer = trainer.model.tokenizer
    rows = trainer.train_dataset
    pair_lengths = []
    passage_lengths = []
    for query, passage in zip(rows["first"], rows["second"]):
        pair_lengths.append(len(tokenizer.encode(query, passage)))
        passage_lengths.append(len(tokenizer.encode(passage)))
    capsys.readouterr()
    trainer.model.max_seq_length = max(pair_lengths)
    trainer.warn_of_cut_texts()
    assert "cut" not in capsys.readouterr().out
    trainer.model.max_seq_length = max(passage_lengths)
    trainer.warn_of_cut_texts()
    counted = pair_lengths[:MAX_COUNTED_TEXTS]
    num_cut = sum(length > max(passage_lengths) for length in counted)
    assert num_cut > len(counted) / 2
    message = f"{num_cut:,} of {len(counted):,} pairs of texts have more than"
    assert message in capsys.readouterr().out


@pytest.mark.parametrize(
    "file, negatives, expected",
    [
        ("pairs.jsonl", None, 3),
        ("pairs.jsonl", 2, 2),
        ("train.jsonl", None, None),
        ("scored.jsonl", None, None),
    ],
)
def test_the_report_says_how_many_negatives_were_drawn(toy, tmp_path, file, negatives, expected):
    """None were for rows that have negatives or scores."""
    args = RerankerConfig(tmp_path / "out", use_cpu=True, bf16=False, disable_tqdm=True)
    setup = RerankingSetup(data=str(toy / file), model=str(toy / "model"), negatives=negatives)
    assert RerankerTrainer(setup, args).setup.arguments()["negatives"] == expected


def test_finetune_rerank_refuses(toy, root, data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(HeldOutEvaluator, "__call__", lambda *_, **__: pytest.fail("it measures"))
    few = write_rows(tmp_path / "few.jsonl", [dict(query=f"q{i}", positive="p") for i in range(30)])
    own_passages = write_rows(
        tmp_path / "own.jsonl",
        [dict(query=f"q{i}", positive="p", negative="p") for i in range(30)],
    )
    for arguments, words in [
        ([toy / "train.jsonl", "--validation", data], ["is a folder; give a reranker a table"]),
        ([toy / "pairs.jsonl", "--negatives", "0"], ["negatives: 0 is too few"]),
        ([few], ["negatives: there are none for 3 a query; give data with more passages"]),
        (
            [tmp_path / "not_read.jsonl", "--miner", root / "reranker"],
            ["holds a MiniBertForSequenceClassification; use"],
        ),
        (
            [own_passages],
            ["data: every negative is the query of its row or one of the query's passages"],
        ),
        (
            [toy / "train.jsonl", "--miner", toy / "model"],
            ["negatives, miner: the rows have negatives or scores of their own"],
        ),
        (
            [toy / "train.jsonl", "--metric_for_best_model", "f1"],
            ["metric_for_best_model: 'f1' is not measured"],
        ),
    ]:
        given = ["--model", toy / "model", "--output_dir", tmp_path / "out", *TRAINING, *arguments]
        error = refusal(capsys, "finetune", "rerank", *given)
        assert all(word in error for word in words), error
    assert not (tmp_path / "out/config.json").exists()
