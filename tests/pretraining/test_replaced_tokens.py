"""Replaced-token detection: the head against Transformers' ELECTRA, the objective against formulas in float64."""

import itertools
import json
import math

import datasets
import numpy as np
import pytest
import torch
from helpers import animal_sentences as sentences
from safetensors.torch import load_file
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoModel, ElectraConfig, ElectraForPreTraining

from minibert import MiniBertConfig, MiniBertForMaskedLM, MiniBertForReplacedTokenDetection
from minibert.tokenization import train_tokenizer
from minibert.training import cli
from minibert.training.data.packing import pack_documents
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.pretraining.config import PretrainingConfig, fill_defaults
from minibert.training.pretraining.objectives import OBJECTIVES, replaced_tokens
from minibert.training.pretraining.objectives.replaced_tokens import (
    make_generator_config,
    sample_tokens,
)
from minibert.training.pretraining.trainer import PretrainingTrainer

QUICK = [
    "--size", "tiny", "--vocab_size", "150", "--seq_length", "64",
    "--per_device_train_batch_size", "16", "--disable_tqdm", "true", "--bf16", "false", "--objective", "rtd",
    "--config_overrides", "num_hidden_layers=2,hidden_size=64,num_attention_heads=4,intermediate_size=96",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(sentences(200), "wordpiece", vocab_size=130)


@pytest.fixture(scope="module")
def rows(tokenizer):
    documents = tokenize_documents(
        datasets.Dataset.from_dict({"text": sentences(100)}), tokenizer, None
    )
    return {
        packing: pack_documents(documents, tokenizer, 64, packing)
        for packing in ("packed", "padded")
    }


def make(name="rtd", **fields):
    """An objective with these settings."""
    args = PretrainingConfig(
        "unused", objective=name, use_cpu=True, **dict(seed=0, seq_length=64) | fields
    )
    return OBJECTIVES[name](fill_defaults(args, is_new=True))


def build(tokenizer, architecture="modernbert", fields=None, **arguments):
    """The objective and its model; weights large enough for everything to show."""
    objective = make(**arguments)
    small = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2, intermediate_size=48, local_attention=8,
                 hidden_dropout=0.0, attention_dropout=0.0, max_position_embeddings=64,
                 initializer_range=0.1)  # fmt: skip
    config = MiniBertConfig.from_tokenizer(
        tokenizer, architecture, "tiny", **small | (fields or {})
    )
    objective.check(config)
    torch.manual_seed(0)
    return objective, objective.make_model(config, config, tokenizer)


def batch_of(objective, tokenizer, rows, number=4):
    return objective.make_collator(tokenizer)([rows[i] for i in range(number)])


def plain_generator(both):
    """The generator as an ordinary model, with embeddings of its own width."""
    model = MiniBertForMaskedLM(both.generator.config)
    tables = {name: table.detach() for name, table in both.projected_tables().items()}
    model.load_state_dict(both.generator.state_dict() | tables)
    model.tie_weights()
    return model


@pytest.fixture
def greedy(monkeypatch):
    """The generator's best guess stands for its sample, so that nothing is random."""
    best = lambda logits, never, uniform: logits.index_fill(1, never, -math.inf).argmax(1)  # noqa: E731
    monkeypatch.setattr(replaced_tokens, "sample_tokens", best)


# --- the head ---


@torch.no_grad()
def test_the_head_is_electras():
    """Logits and loss of `ElectraForPreTraining` with the same weights, padding in the batch."""
    shape = dict(vocab_size=90, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                 max_position_embeddings=30, type_vocab_size=2)  # fmt: skip
    torch.manual_seed(0)
    theirs = (
        ElectraForPreTraining(ElectraConfig(embedding_size=24, initializer_range=0.3, **shape))
        .double()
        .eval()
    )
    ours = MiniBertForReplacedTokenDetection(MiniBertConfig.bert("tiny", **shape)).double().eval()
    weights = theirs.state_dict()
    names = {"model.embeddings.norm": "electra.embeddings.LayerNorm", "dense": "discriminator_predictions.dense",
             "detector": "discriminator_predictions.dense_prediction",
             "model.embeddings.tok_embeddings": "electra.embeddings.word_embeddings",
             "model.embeddings.position_embeddings": "electra.embeddings.position_embeddings",
             "model.embeddings.token_type_embeddings": "electra.embeddings.token_type_embeddings"}  # fmt: skip
    for i in range(2):
        there = f"electra.encoder.layer.{i}."
        names |= {f"model.layers.{i}.{a}": there + b for a, b in (
            ("attn.Wo", "attention.output.dense"), ("attn_norm", "attention.output.LayerNorm"),
            ("mlp.Wi", "intermediate.dense"), ("mlp.Wo", "output.dense"),
            ("mlp_norm", "output.LayerNorm"))}  # fmt: skip
    for name, parameter in ours.named_parameters():
        module, kind = name.rsplit(".", 1)
        if module.endswith("Wqkv"):
            there = f"electra.encoder.layer.{module.split('.')[2]}.attention.self."
            parameter.copy_(
                torch.cat([weights[f"{there}{part}.{kind}"] for part in ("query", "key", "value")])
            )
        else:
            parameter.copy_(weights[f"{names[module]}.{kind}"])
    ids = torch.randint(1, 90, (3, 11))
    mask = torch.arange(11) < torch.tensor([[11], [6], [9]])
    labels = torch.randint(2, (3, 11))
    inputs = dict(attention_mask=mask.long(), token_type_ids=torch.randint(2, (3, 11)))
    expected = theirs(ids, labels=labels, **inputs)
    outputs = ours(ids, labels=labels.masked_fill(~mask, -100), **inputs)
    assert outputs.logits.shape == (3, 11)
    assert expected.logits[mask].std() > 0.05
    assert_close(outputs.logits[mask], expected.logits[mask])
    assert_close(
        outputs.loss.double(), expected.loss.double(), rtol=1e-6, atol=1e-6
    )  # ours is taken in fp32
    p = expected.logits[mask].sigmoid()
    by_hand = -torch.where(labels[mask] == 1, p, 1 - p).log().mean()
    assert_close(outputs.loss.double(), by_hand, rtol=1e-6, atol=1e-6)


# --- the generator ---


def test_the_generator_is_narrower_by_whole_heads():
    config = MiniBertConfig.modernbert("base")
    for size, heads, intermediate in (
        (0.25, 3, 288),
        (0.01, 1, 96),
        (0.5, 6, 576),
        (1.0, 12, 1152),
    ):
        narrow = make_generator_config(config, size)
        assert (narrow.num_attention_heads, narrow.hidden_size) == (heads, 64 * heads)
        assert narrow.intermediate_size == intermediate and narrow.num_hidden_layers == 22
    assert config.hidden_size == 768


def test_samples_follow_the_distribution():
    logits, never = torch.tensor([2.0, 1.0, 0.0, -1.0, 9.0]), torch.tensor([4])
    torch.manual_seed(0)
    drawn = sample_tokens(logits.expand(40_000, 5), never, torch.rand(40_000))
    weights = np.exp(np.array([2.0, 1.0, 0.0, -1.0]))
    expected, observed = weights / weights.sum(), np.bincount(drawn, minlength=5) / 40_000
    assert observed[4] == 0  # never, whatever its logit
    assert (abs(observed[:4] - expected) < 5 * np.sqrt(expected * (1 - expected) / 40_000)).all()
    scores = torch.randn(500, 30)
    best = scores.index_fill(1, never, -math.inf).argmax(1)
    assert torch.equal(sample_tokens(1e8 * scores, never, torch.rand(500)), best)
    assert sample_tokens(scores[:0], never, torch.rand(0)).shape == (0,)
    ends = torch.tensor([0.0, 1.0])  # 2⁵³ - 1 parts of 2⁵³ are 1 in float32
    assert sample_tokens(torch.zeros(2, 4), torch.tensor([0, 3]), ends).tolist() == [1, 2]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_embeddings_are_shared(architecture, tied, tokenizer, rows):
    """One table with the gradients of both; and the generator is the ordinary model that is saved of it."""
    _, both = build(
        tokenizer, architecture, fields=dict(tie_word_embeddings=tied), generator_size=0.5
    )
    objective, _ = build(tokenizer, architecture)
    plain, detector = plain_generator(both), both.discriminator()
    tables = [
        name for name, _ in plain.named_parameters() if "embeddings." in name and "norm" not in name
    ]
    assert len(tables) == (3 if architecture == "bert" else 1)
    shared = sum(plain.get_parameter(name).numel() for name in tables)
    projection = 32 * 16
    assert (
        both.num_parameters()
        == detector.num_parameters() + plain.num_parameters() - shared + projection
    )
    assert "tok_embeddings" not in "".join(both.generator.state_dict())
    assert (plain.decoder.weight is plain.model.embeddings.tok_embeddings.weight) == tied

    batch = batch_of(objective, tokenizer, rows["packed"])
    both.train()
    outputs = both(**batch)
    expected = plain.train()(**batch)  # without dropout: as in evaluation
    assert_close(outputs.mlm_loss, expected.loss, rtol=0, atol=0)
    assert_close(outputs.generator_logits, expected.logits, rtol=0, atol=0)
    alone = detector.train()(
        outputs.corrupted_ids, labels=outputs.replaced,
        attention_mask=batch["attention_mask"], position_ids=batch["position_ids"],
    )  # fmt: skip
    assert_close(outputs.rtd_loss, alone.loss, rtol=0, atol=0)
    assert_close(outputs.loss, outputs.mlm_loss + 50 * outputs.rtd_loss)

    outputs.loss.backward()
    expected.loss.backward()
    alone.loss.backward()
    for name in tables:
        kind = name.removeprefix("model.embeddings.")
        ours = both.model.embeddings.get_parameter(kind)
        through = (
            plain.get_parameter(name).grad @ both.projection.weight
        )  # chain rule: table of the generator = E Pᵀ
        assert through.abs().max() > 0
        assert_close(
            ours.grad, through + 50 * detector.get_parameter(name).grad, rtol=1e-4, atol=1e-5
        )
    own = {name: both.model.get_parameter(name.removeprefix("model.")) for name in tables}
    inner = [plain.get_parameter(name).grad.T @ table for name, table in own.items()]
    assert_close(both.projection.weight.grad, sum(inner), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size, fields", [(1.0, {}), (0.5, dict(embedding_size=8))])
def test_a_generator_with_word_vectors_of_the_same_width_needs_no_projection(
    size, fields, tokenizer, rows
):
    objective, both = build(tokenizer, fields=fields, generator_size=size)
    assert both(**batch_of(objective, tokenizer, rows["packed"])).loss.isfinite()
    table = plain_generator(both).model.embeddings.tok_embeddings.weight
    assert torch.equal(table, both.model.embeddings.tok_embeddings.weight)


# --- what the discriminator reads ---


def test_labels_are_what_differs_from_the_original(tokenizer, rows, greedy):
    objective, both = build(tokenizer, "bert")
    both.train()
    batch = batch_of(objective, tokenizer, rows["padded"], 16)
    outputs = both(**batch)
    labels, ids, real = batch["labels"], batch["input_ids"], batch["attention_mask"] != 0
    targets = labels != -100
    assert (ids[targets] == tokenizer.mask_token_id).all()  # all of them, unlike BERT's 80 %
    assert torch.equal(outputs.corrupted_ids[~targets], ids[~targets])
    special = torch.tensor(tokenizer.all_special_ids)
    assert not torch.isin(outputs.corrupted_ids[targets], special).any()
    with torch.no_grad():
        dense = plain_generator(both).eval()(
            **{name: batch[name] for name in ("input_ids", "attention_mask")}
        )
    padding = torch.arange(
        len(tokenizer), dense.logits.shape[-1]
    )  # rows of the table that are no token
    best = dense.logits.index_fill(-1, torch.cat([special, padding]), -math.inf).argmax(-1)
    assert torch.equal(outputs.corrupted_ids[targets], best[targets])
    original = torch.where(targets, labels, ids)
    for b, s in np.ndindex(*ids.shape):
        if not real[b, s]:
            assert outputs.replaced[b, s] == -100
        else:
            assert outputs.replaced[b, s] == int(
                bool(targets[b, s]) and best[b, s] != original[b, s]
            )
    # make the generator right about one token: it counts as original
    token = labels[targets][0]
    with torch.no_grad():
        both.generator.decoder.bias[token] = 1e4
    again = both(**batch)
    assert (again.corrupted_ids[targets] == token).all()
    assert (
        torch.equal(again.replaced[targets] == 0, labels[targets] == token)
        and (labels[targets] == token).any()
    )


def test_only_ordinary_tokens_are_replacements(rows):
    """Neither the tokenizer's own special tokens beyond [CLS] and its like, nor ids that no token has."""
    tokenizer = train_tokenizer(sentences(200), "wordpiece", vocab_size=130)
    tokenizer.add_special_tokens({"extra_special_tokens": [f"<extra_{i}>" for i in range(40)]})
    objective = make()
    batch = batch_of(objective, tokenizer, rows["padded"], 16)
    small = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2, intermediate_size=48)
    config = MiniBertConfig.from_tokenizer(tokenizer, "modernbert", "tiny", **small)
    both = objective.make_model(config, config, tokenizer)
    with torch.no_grad():
        both.generator.decoder.bias[130:] = 1e4
    drawn = both(**batch).corrupted_ids[batch["labels"] != -100]
    assert (
        len(drawn) > 20
        and drawn.max() < 130
        and not {*drawn.tolist()} & {*tokenizer.all_special_ids}
    )


def test_a_mask_of_the_text_stays(tokenizer):
    _, both = build(tokenizer)
    ids = torch.tensor([[2, 9, tokenizer.mask_token_id, 11, tokenizer.mask_token_id, 3]])
    labels = torch.tensor([[-100, -100, -100, -100, 12, -100]])
    corrupted = both(ids, torch.zeros_like(ids), labels).corrupted_ids
    assert corrupted[0, 2] == tokenizer.mask_token_id and corrupted[0, 4] != tokenizer.mask_token_id
    nothing = both(ids, torch.zeros_like(ids), torch.full_like(ids, -100))
    assert (
        nothing.mlm_loss == 0 and nothing.rtd_loss > 0 and torch.equal(nothing.corrupted_ids, ids)
    )


def test_packed_rows_are_as_documents_alone(tokenizer, rows, greedy):
    objective, both = build(tokenizer, "modernbert")
    both.train()
    batch = batch_of(objective, tokenizer, rows["packed"], 2)
    whole = both(**batch)
    rtd, mlm, tokens, targets = 0.0, 0.0, 0, 0
    for row in range(2):
        starts = (batch["position_ids"][row] == 0) & (batch["attention_mask"][row] == 1)
        ends = [*starts.nonzero().flatten().tolist(), int(batch["attention_mask"][row].sum())]
        assert len(ends) > 2
        for start, end in itertools.pairwise(ends):
            part = {
                name: x[row : row + 1, start:end]
                for name, x in batch.items()
                if name != "position_ids"
            }
            alone = both(**part)
            assert_close(alone.logits[0], whole.logits[row, start:end], rtol=1e-4, atol=1e-4)
            n = int((part["labels"] != -100).sum())
            rtd, mlm = rtd + alone.rtd_loss * (end - start), mlm + alone.mlm_loss * n
            tokens, targets = tokens + end - start, targets + n
    assert_close(whole.rtd_loss, rtd / tokens)
    assert_close(whole.mlm_loss, mlm / targets)


def test_replacements_follow_from_the_row_and_the_epoch(tokenizer, rows):
    """Whatever stands beside it in the batch (on another rank it is something else), in evaluation in every epoch."""
    objective, both = build(tokenizer)
    training, state = objective.make_collator(tokenizer), torch.get_rng_state()

    def replaced(collator, epoch, *numbers):
        if collator is training:  # nobody tells an evaluation the epoch
            collator.set_progress(epoch)
        return both(**collator([rows["packed"][number] for number in numbers])).corrupted_ids[-1]

    for each, differs in ((training, True), (training.for_evaluation(), False)):
        alone = replaced(each, 0, 1)
        assert torch.equal(replaced(each, 0, 0, 1)[: len(alone)], alone)
        assert torch.equal(replaced(each, 1, 1), alone) != differs
    assert torch.equal(torch.get_rng_state(), state)


# --- training ---


def trained(folder, tokenizer, rows, batch, accumulation):
    """Two epochs of plain SGD."""
    _, both = build(tokenizer)
    args = PretrainingConfig(
        str(folder), objective="rtd", per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
        num_train_epochs=2, logging_steps=1, save_strategy="no", eval_strategy="no", use_cpu=True, disable_tqdm=True,
        optim="sgd", learning_rate=0.01, seq_length=64, seed=0, bf16=False,
    )  # fmt: skip
    trainer = PretrainingTrainer(
        both, args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer
    )
    trainer.train()
    return (
        [entry for entry in trainer.state.log_history if "loss" in entry],
        trainer.model.state_dict(),
        trainer,
    )


def test_accumulation_changes_nothing(tmp_path, tokenizer, rows, greedy):
    rows = rows["padded"].select(range(32))
    whole, weights, _ = trained(tmp_path / "a", tokenizer, rows, 16, 1)
    parts, other, _ = trained(tmp_path / "b", tokenizer, rows, 4, 4)
    assert len(whole) == len(parts) == 4
    for entry, accumulated in zip(whole, parts):
        assert entry["mlm_loss"] + 50 * entry["rtd_loss"] == pytest.approx(entry["loss"], abs=5e-3)
        for name, tolerance in (("loss", 1e-2), ("mlm_loss", 2e-4), ("rtd_loss", 2e-4)):
            assert accumulated[name] == pytest.approx(entry[name], abs=tolerance)
    for name, tensor in weights.items():
        assert_close(other[name], tensor, rtol=1e-4, atol=1e-5)


def test_figures_are_those_of_all_tokens(tmp_path, tokenizer, rows, greedy):
    _, _, trainer = trained(tmp_path, tokenizer, rows["padded"].select(range(16)), 16, 1)
    held_out = rows["padded"].select(range(40, 61))
    with torch.no_grad():  # such that half of the tokens are flagged
        batch = trainer.evaluation_collator([held_out[i] for i in range(21)])
        logits = trainer.model.eval()(**batch).logits.flatten()
        trainer.model.detector.bias -= logits.median()
    trainer.args.per_device_eval_batch_size = 8
    figures = trainer.evaluate(held_out)
    both, logits, replaced, mlm = trainer.model.eval(), [], [], []
    with torch.no_grad():
        for start in range(0, 21, 8):
            batch = trainer.evaluation_collator(
                [held_out[i] for i in range(start, min(start + 8, 21))]
            )
            outputs = both(**batch)
            real = outputs.replaced != -100
            logits.append(outputs.logits[real].double())
            replaced.append(outputs.replaced[real])
            labels = batch["labels"][batch["labels"] != -100]
            mlm += [
                -s[k].item()
                for s, k in zip(outputs.generator_logits.double().log_softmax(-1), labels)
            ]
    logits, replaced = torch.cat(logits), torch.cat(replaced)
    flagged = (logits > 0).long()
    assert 0 < flagged.sum() < len(flagged)
    assert figures["eval_rtd_loss"] == pytest.approx(
        F.binary_cross_entropy_with_logits(logits, replaced.double()).item(), rel=1e-5
    )
    assert figures["eval_accuracy"] == pytest.approx((flagged == replaced).double().mean().item())
    assert figures["eval_mlm_loss"] == pytest.approx(np.mean(mlm), rel=1e-5)
    report = trainer.objective.make_report(figures, (5.0, 0.1))
    share = replaced.double().mean().item()
    assert report["constant_accuracy"] == pytest.approx(1 - share)
    constant = torch.full_like(logits, math.log(share / (1 - share)))
    assert report["constant_loss"] == pytest.approx(
        F.binary_cross_entropy_with_logits(constant, replaced.double()).item(), rel=1e-6
    )


# --- the command line ---


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "animals.txt"
    path.write_text("\n\n".join(sentences(150)))
    return path


def train(corpus, output, *arguments):
    return cli.main(["pretrain", "--data", str(corpus), "--output_dir", str(output), *QUICK, "--eval_strategy", "no",
                     *arguments])  # fmt: skip


@pytest.mark.slow
def test_from_the_command_line(corpus, tmp_path, capsys):
    output = tmp_path / "run"
    assert (
        train(corpus, output, "--max_steps", "80", "--learning_rate", "5e-3", "--model", "bert")
        == 0
    )
    report = json.loads((output / "report.json").read_text())
    assert (
        report["objective"] == "rtd" and report["validation_loss"] < 0.9 * report["constant_loss"]
    )
    model, loading = MiniBertForReplacedTokenDetection.from_pretrained(
        output, output_loading_info=True
    )
    assert not any(loading.values()) and model.num_parameters() == report["parameters"]
    assert model.config.architectures == ["MiniBertForReplacedTokenDetection"]
    assert AutoModel.from_pretrained(output).config.hidden_size == 64
    assert not [path for path in output.iterdir() if path.suffix in (".bin", ".pt", ".pkl")]
    assert (output / "loss.png").stat().st_size > 5000
    card = (output / "README.md").read_text()
    assert "always “original”" in card and "mask_replace_prob 1.0" in card
    said = capsys.readouterr().out
    assert "always original" in said


@pytest.mark.slow
def test_resuming_gives_the_uninterrupted_run_bit_for_bit(corpus, tmp_path):
    given = ["--config_overrides", f"{QUICK[-1]},hidden_dropout=0.1", "--save_strategy", "steps", "--save_steps", "2",
             "--max_steps", "4", "--save_total_limit", "9"]  # fmt: skip
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train(corpus, whole, *given) == 0
    broken.mkdir()
    (whole / "checkpoint-2").rename(
        broken / "checkpoint-2"
    )  # as a kill right after the checkpoint leaves it
    half, loading = MiniBertForReplacedTokenDetection.from_pretrained(
        broken / "checkpoint-2", output_loading_info=True
    )
    assert not loading["missing_keys"]  # a checkpoint in mid-run is a model, too
    assert train(corpus, broken, *given, "--resume_from_checkpoint", "true") == 0
    first, second = (load_file(run / "model.safetensors") for run in (whole, broken))
    assert first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )
    assert not torch.equal(first["detector.weight"], half.detector.weight)


def test_bad_input_is_refused(tokenizer):
    for fields, said in (
        (dict(generator_size=1.5), "generator_size must be above 0 and at most 1, got 1.5"),
        (dict(fields=dict(is_causal=True)), "is_ca"),
    ):
        with pytest.raises(ValueError, match=said):
            build(tokenizer, **fields)
