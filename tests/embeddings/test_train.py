"""`minibert finetune embed`: what is learned of a toy language."""

import itertools
import json
import random
import re
import shutil

import numpy as np
import pytest
import torch
from embedding_models import TRAINING, topic_pair
from helpers import WORDS, check_example, refusal, run, write_rows
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer
from transformers import AutoTokenizer, Trainer

from minibert import MiniBertConfig, MiniBertForCausalLM, MiniBertForMaskedLM
from minibert.training.common.locks import LOCK
from minibert.training.embeddings import finetune
from minibert.training.embeddings.config import EmbeddingConfig
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.inference import encode
from minibert.training.embeddings.measuring.evaluators import HeldOutEvaluator
from minibert.training.embeddings.trainers.embedding_trainer import DenseTrainer
from minibert.training.embeddings.trainers.setups import EmbeddingSetup
from minibert.training.hub.upload_mixin import HubMixin
from minibert.training.optimization import clock
from minibert.training.optimization.clock import TimeBudget

CHUNK = ["--loss", "CachedMultipleNegativesRankingLoss", "--loss_kwargs", '{"mini_batch_size": 8}']


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [[], CHUNK])
def test_training_finds_more_and_the_best_model_is_saved(toy, tmp_path, chunk, capsys):
    output = tmp_path / "out"
    run(
        "evaluate",
        "embed",
        "--model",
        toy / "model",
        "--data",
        toy / "test",
        "--result",
        tmp_path / "before.json",
    )
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", output,
        "--num_train_epochs", "3", "--validation", toy / "test", *chunk, *TRAINING)  # fmt: skip
    run(
        "evaluate",
        "embed",
        "--model",
        output,
        "--data",
        toy / "test",
        "--result",
        tmp_path / "after.json",
    )
    before, after = (
        json.loads((tmp_path / f"{name}.json").read_text())["metrics"]
        for name in ("before", "after")
    )
    assert before["hit@1"] < 0.3 and after["hit@1"] > 0.8
    card = (output / "README.md").read_text()
    report = json.loads((output / "report.json").read_text())
    low, high = report["intervals"]["ndcg@10"]
    assert low <= after["ndcg@10"] <= high
    assert (
        f"| ndcg@10 | held-out data | {after['ndcg@10']:.4f} | {low:.3f}–{high:.3f} |"
        f" {before['ndcg@10']:.4f} |"
    ) in card
    check_example(card)
    assert report["after"] == pytest.approx(after) and report["before"] == pytest.approx(
        before, abs=0.05
    )
    assert (output / "training.png").exists() and not [
        *output.rglob("*.bin"),
        *output.rglob("*.pt"),
    ]
    printed = capsys.readouterr().out
    assert (
        f"SentenceTransformer({str(output)!r})" in printed
        and f"ndcg@10 {after['ndcg@10']:.4g}" in printed
    )
    assert re.search(r"^step  5/75  loss [\d.]+  rate [\d.]+$", printed, re.MULTILINE)
    texts = [f"ask{i} w1" for i in range(9)]
    ours, theirs = open_encoder(str(output)), SentenceTransformer(str(output), device="cpu")
    np.testing.assert_allclose(encode(ours, texts), theirs.encode(texts), atol=1e-5)
    assert ours.max_seq_length == 16


@pytest.mark.parametrize("task", ["embed", pytest.param("rerank", marks=pytest.mark.slow)])
def test_training_max_length_does_not_change_the_saved_one(toy, tmp_path, task, monkeypatch):
    lengths = []

    def record_length(method):
        def measure(self, model, *args, **options):
            lengths.append(model.max_seq_length)
            return method(self, model, *args, **options)

        return measure

    for name in ("__call__", "measure"):
        method = getattr(HeldOutEvaluator, name)
        monkeypatch.setattr(HeldOutEvaluator, name, record_length(method))
    run("finetune", task, toy / "train.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out",
        "--max_steps", "1", "--max_length", "7", *TRAINING)  # fmt: skip
    assert lengths[0] == lengths[-1] == 16 and 7 in lengths
    saved = (SentenceTransformer if task == "embed" else CrossEncoder)(
        str(tmp_path / "out"), device="cpu"
    )
    assert saved.max_seq_length == 16


def test_an_interrupted_training_leaves_a_model_of_full_length(toy, tmp_path, monkeypatch):
    """In a notebook it goes on. Meanwhile, no other process could write in the folder."""
    output = tmp_path / "out"
    setup = EmbeddingSetup(data=str(toy / "train.jsonl"), model=str(toy / "model"))
    args = EmbeddingConfig(str(output), max_length=7, disable_tqdm=True, bf16=False)
    trainer = DenseTrainer(setup, args)

    def interrupt(*_, **__):
        assert trainer.model.max_seq_length == 7
        assert (output / LOCK).exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.model.max_seq_length == 16
    assert not (output / LOCK).exists()

    # a further training is compared with the model that the first one began with
    before = trainer.scores["before"]
    with torch.no_grad():
        for weight in trainer.model.parameters():
            weight.normal_()
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.scores["before"] == before
    assert trainer.evaluator(trainer.model) != before


def test_a_trainer_refuses_a_setup_of_another_type(toy, tmp_path):
    setup = EmbeddingSetup(data="no.jsonl", model=str(toy / "model"), encoder_type="sparse")
    with pytest.raises(ValueError, match="which DenseTrainer does not train; use SparseTrainer"):
        DenseTrainer(setup, EmbeddingConfig(str(tmp_path / "out")))


@pytest.mark.parametrize("task", ["embed", pytest.param("rerank", marks=pytest.mark.slow)])
def test_training_ends_on_time(toy, tmp_path, task, monkeypatch, capsys):
    seconds = itertools.count()
    budgets = []

    def make_budget(minutes, warmup):
        budgets.append(TimeBudget(minutes, warmup, clock=lambda: next(seconds)))
        return budgets[-1]

    monkeypatch.setattr(clock, "TimeBudget", make_budget)
    run("finetune", task, toy / "train.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out",
        *TRAINING, "--minutes", "1")  # fmt: skip
    assert budgets[0].progress >= 1 and next(seconds) == pytest.approx(60, rel=0.2)
    assert re.search(r"^step \d+ \(100%\)  evaluation: ", capsys.readouterr().out, re.MULTILINE)
    error = refusal(capsys, "finetune", task, toy / "train.jsonl", "--model", toy / "model", "--output_dir",
                    tmp_path / "other", "--minutes", "1", "--max_steps", "5")  # fmt: skip
    assert "leave --max_steps out" in error


def test_the_last_step_and_the_table_have_one_figure(toy, tmp_path, capsys):
    """Though the training cuts texts, and computes in bf16."""
    output = tmp_path / "out"
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", output,
        *TRAINING, "--max_steps", "6", "--max_length", "4", "--bf16", "true",
        "--validation", toy / "test")  # fmt: skip
    after = json.loads((output / "report.json").read_text())["after"]
    (line,) = re.findall(r"^step 6/6  evaluation: .*", capsys.readouterr().out, re.MULTILINE)
    for name, value in after.items():
        assert f"{name} {value:.4g}" in line


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["CosineSimilarityLoss", "CoSENTLoss"])
def test_training_on_scores(toy, tmp_path, loss):
    chance = random.Random(3)
    rows = []
    for _ in range(400):
        (query, right), (_, wrong) = (
            topic_pair(chance, topic) for topic in chance.sample(range(6), 2)
        )
        rest = chance.choice([dict(sentence2=right, score=5), dict(sentence2=wrong, score=0)])
        rows.append(dict(sentence1=query, **rest))
    write_rows(tmp_path / "scored.jsonl", rows)
    run("finetune", "embed", tmp_path / "scored.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out",
        "--num_train_epochs", "4", "--loss", loss, "--validation_size", "60", *TRAINING)  # fmt: skip
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["after"]["spearman"] > max(0.6, report["before"]["spearman"] + 0.3)


def test_training_has_the_prompts_of_queries_and_documents(toy, tmp_path):
    """What is learned is what texts teach that begin with them."""
    prompts = {"query": "w1 ", "document": "w2 w3 "}
    model = open_encoder(str(toy / "model"))
    model.prompts.update(prompts)
    model.save(str(tmp_path / "prompted"))
    rows = [json.loads(line) for line in (toy / "train.jsonl").read_text().splitlines()[:60]]
    written = [
        dict(query=prompts["query"] + r["query"], positive=prompts["document"] + r["positive"])
        for r in rows
    ]
    for name, start, pairs in (("a", tmp_path / "prompted", rows), ("b", toy / "model", written)):
        run("finetune", "embed", write_rows(tmp_path / f"{name}.jsonl", pairs), "--model", start, "--output_dir",
            tmp_path / name, "--max_steps", "2", *TRAINING)  # fmt: skip
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in "ab"]
    assert reports[0]["before"] == reports[1]["before"]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in "ab"]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_the_loss_has_its_scale_and_no_passage_twice_in_a_batch(toy, tmp_path, monkeypatch):
    """What stands twice would be its own negative."""
    trainers, make = [], SentenceTransformerTrainer.__init__
    monkeypatch.setattr(
        SentenceTransformerTrainer,
        "__init__",
        lambda self, *_, **given: trainers.append(self) or make(self, **given),
    )
    rows = [dict(query=f"ask{i} w{i}", positive=f"tell{i % 20}") for i in range(40)]
    run("finetune", "embed", write_rows(tmp_path / "train.jsonl", rows), "--model", toy / "model", "--output_dir",
        tmp_path / "out", "--max_steps", "1", "--loss_kwargs", '{"scale": 7}', *TRAINING)  # fmt: skip
    (trainer,) = trainers
    assert trainer.loss.scale == 7
    passages = trainer.train_dataset["second"]
    batches = [
        [passages[i] for i in batch] for batch in trainer.get_train_dataloader().batch_sampler
    ]
    assert len(batches) > 1 and all(len(set(batch)) == len(batch) for batch in batches)


@pytest.mark.parametrize("task", ["embed", pytest.param("rerank", marks=pytest.mark.slow)])
def test_resume_with_other_settings_is_refused(toy, tmp_path, capsys, task):
    file = shutil.copy(toy / "train.jsonl", tmp_path / "train.jsonl")
    command = ["finetune", task, file, "--model", toy / "model", *TRAINING, "--save_strategy", "steps",
               "--save_steps", "2", "--max_steps", "4", "--eval_strategy", "no", "--load_best_model_at_end", "false",
               "--save_total_limit", "9", "--output_dir", tmp_path / "out"]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "remove_checkpoints", lambda folder: None)
        run(*command)
    for name in ("model.safetensors", "config.json", "report.json", "checkpoint-4"):
        path = tmp_path / "out" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = [*command, "--resume_from_checkpoint", "true"]
    for name, value in (("optim", "sgd"), ("seed", "5"), ("per_device_train_batch_size", "12")):
        said = refusal(capsys, *again, f"--{name}", value)
        assert f"error: {name}" in said and "was trained with" in said
    file.write_text(file.read_text().replace("ask", "tell"))
    assert "error: text: " in refusal(capsys, *again)


def test_what_is_pushed_is_the_finished_model(toy, tmp_path, monkeypatch):
    """Once, without pickles."""
    pushed, output = [], tmp_path / "out"
    monkeypatch.setattr(
        Trainer, "init_hf_repo", lambda *_, **__: pytest.fail("a repository was created")
    )
    monkeypatch.setattr("minibert.training.hub.push.get_token", lambda: "hf_some")
    monkeypatch.setattr(HubMixin, "push_to_hub", lambda trainer: pushed.append(trainer.args))
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", output, "--max_steps", "2",
        "--push_to_hub", "true", "--hub_model_id", "me/mine", *TRAINING)  # fmt: skip
    assert [(each.output_dir, each.hub_model_id) for each in pushed] == [(str(output), "me/mine")]
    assert (output / "report.json").exists() and not [*output.rglob("*.bin")]
    assert "base_model" not in (output / "README.md").read_text()


def test_finetune_embed_refuses_before_it_trains(toy, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(HeldOutEvaluator, "__call__", lambda *_, **__: pytest.fail("it measures"))
    scored = write_rows(
        tmp_path / "scored.jsonl", [dict(sentence1=text, sentence2="b", score=1) for text in WORDS]
    )
    (tmp_path / "done").mkdir()
    (tmp_path / "done/config.json").write_text("{}")
    for arguments, words in [
        (
            [scored, "--loss", "MultipleNegativesRankingLoss"],
            ["is not a loss for dense vectors from labels of the kind"],
        ),
        (
            [toy / "train.jsonl", "--loss", "CosineSimilarityLoss"],
            ["'none'; use MultipleNegativesRankingLoss"],
        ),
        ([toy / "train.jsonl", "--validation", scored], ["must both have scores, or neither"]),
        (
            [toy / "train.jsonl", "--max_length", "17"],
            ["max_length: 17 is out of range", "up to 16"],
        ),
        ([toy / "train.jsonl", "--max_length", "0"], ["max_length: 0 is out of range"]),
        (
            [toy / "train.jsonl", "--metric_for_best_model", "loss"],
            ["metric_for_best_model: 'loss' is not measured"],
        ),
        ([toy / "train.jsonl", "--output_dir", tmp_path / "done"], ["holds a finished model"]),
        ([toy / "train.jsonl", "--push_to_hub", "true", "--hub_model_id", "a/b/c"], ["a/b/c"]),
        ([toy / "train.jsonl", "--validation", toy / "model"], ["is not a retrieval folder"]),
    ]:
        given = [
            "finetune",
            "embed",
            "--model",
            toy / "model",
            "--output_dir",
            tmp_path / "out",
            *TRAINING,
        ]
        error = refusal(capsys, *given, *arguments)
        assert all(word in error for word in words), error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["embed", pytest.param("rerank", marks=pytest.mark.slow)])
def test_half_precision_models_are_trained_in_fp32(toy, tmp_path, command):
    model = MiniBertForMaskedLM.from_pretrained(toy / "model", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "half")
    AutoTokenizer.from_pretrained(toy / "model").save_pretrained(tmp_path / "half")
    run("finetune", command, toy / "train.jsonl", "--model", tmp_path / "half", "--output_dir", tmp_path / "out",
        "--max_steps", "1", "--validation_size", "4", *TRAINING)  # fmt: skip
    weights = load_file(tmp_path / "out/model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert json.loads((tmp_path / "out/report.json").read_text())["training"]["precision"] == "fp32"


def test_bert_without_a_pooler_gets_no_pooler(toy, tmp_path):
    """Its config has one, for the heads; neither what is trained nor what is saved holds random numbers for it."""
    tokenizer = AutoTokenizer.from_pretrained(toy / "model")
    MiniBertForMaskedLM(MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny")).save_pretrained(
        tmp_path / "bert"
    )
    tokenizer.save_pretrained(tmp_path / "bert")
    run("finetune", "embed", toy / "train.jsonl", "--model", tmp_path / "bert", "--output_dir", tmp_path / "out",
        "--max_steps", "1", "--validation_size", "4", *TRAINING)  # fmt: skip
    assert not [name for name in load_file(tmp_path / "out/model.safetensors") if "pooler" in name]
    assert SentenceTransformer(str(tmp_path / "out"), device="cpu")[0].auto_model.pooler is None


def test_a_decoder_becomes_a_reranker(toy, tmp_path, capsys):
    """Not one that compares its logits of "yes" and "no", which are both unknown here. (sentence-transformers does.)"""
    MiniBertForCausalLM.from_pretrained(toy / "model", is_causal=True).save_pretrained(
        tmp_path / "decoder"
    )
    AutoTokenizer.from_pretrained(toy / "model").save_pretrained(tmp_path / "decoder")
    run("finetune", "rerank", toy / "train.jsonl", "--model", tmp_path / "decoder", "--output_dir", tmp_path / "out",
        "--max_steps", "2", "--validation_size", "4", *TRAINING)  # fmt: skip
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("decoder", "out")
    )
    assert not torch.equal(
        before["model.layers.1.mlp.Wo.weight"], after["model.layers.1.mlp.Wo.weight"]
    )
    run("rerank", "ask1", "tell1", "tell2", "--model", tmp_path / "out")
    del after["model.layers.1.mlp.Wo.weight"]
    save_file(after, tmp_path / "out/model.safetensors", {"format": "pt"})
    given = [toy / "train.jsonl", "--model", tmp_path / "out", "--output_dir", tmp_path / "none"]
    assert "lacks the weights" in refusal(capsys, "finetune", "rerank", *given)
    assert "lacks the weights" in refusal(
        capsys, "rerank", "ask1", "tell1", "--model", tmp_path / "out"
    )


@pytest.mark.parametrize(
    ("kind", "has_scores"),
    [
        ("dense", False), ("dense", True), ("sparse", False), ("multi-vector", False),
        ("reranker", False), ("reranker", True),
    ],
)  # fmt: skip
def test_the_example_of_the_card_prints_what_it_says(toy, tmp_path, kind, has_scores):
    """Of a query and two passages, or of a pair with a score; with intervals and numbers of rows."""
    lines = (toy / "train.jsonl").read_text().splitlines()[:80]
    rows = [json.loads(line) for line in lines]
    if has_scores:
        names = dict(query="sentence1", positive="sentence2")
        rows = [{names[key]: text for key, text in row.items()} for row in rows]
        for number, row in enumerate(rows):
            row["score"] = number % 5 / 4
    folder = tmp_path / "mine, private"  # of which the card says nothing
    folder.mkdir()
    table = write_rows(folder / "rows.jsonl", rows)
    output = tmp_path / "out"
    command = ["embed", table, "--kind", kind]
    if kind == "reranker":
        command = ["rerank", table]
    run("finetune", *command, "--model", toy / "model", "--output_dir", output, "--validation_size", "10",
        *TRAINING, "--max_steps", "1")  # fmt: skip
    card = (output / "README.md").read_text()
    check_example(card)
    assert ("sentence2" in str(rows[0])) == ("its score in the data" in card)
    assert re.search(r"^\| train \| [\d,]+ \| rows.jsonl \|$", card, re.MULTILINE)
    assert "private" not in card
    report = json.loads((output / "report.json").read_text())
    assert report["arguments"]["data"] == str(table)
    metric = report["metric"]
    low, high = report["intervals"][metric]
    assert f"| {report['after'][metric]:.4f} | {low:.3f}–{high:.3f} |" in card
