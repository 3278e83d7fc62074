"""Muon and the clock, alone and under a `Trainer`."""

import itertools
import math
import re
import shutil

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import TrainerState

from minibert import MiniBertConfig, MiniBertForMaskedLM
from minibert.training.loop.callbacks import add_callbacks, common_callbacks
from minibert.training.optimization import muon
from minibert.training.optimization.clock import TimeBudget
from minibert.training.optimization.muon import (
    MuonAdamW,
    block_matrices,
    default_muon_rate,
    muon_optimizer,
    orthogonalize,
)
from minibert.training.pretraining.config import PretrainingConfig, check_config, fill_defaults

needs_muon = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch before 2.9 has no Muon"
)


def tiny(**changes):
    torch.manual_seed(0)
    fields = dict(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    return MiniBertForMaskedLM(MiniBertConfig(**fields | {"max_position_embeddings": 64} | changes))


def rows(count=32, length=12):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 40, (count, length), generator=generator)
    return [
        {"input_ids": row, "labels": torch.where(torch.arange(length) % 3 == 0, row, -100)}
        for row in ids
    ]


def arguments(folder, **kwargs):
    defaults = dict(use_cpu=True, disable_tqdm=True, report_to="none", save_strategy="no", learning_rate=1e-2,
                    per_device_train_batch_size=8, logging_steps=1, max_steps=8, seed=3)  # fmt: skip
    return TrainingArguments(output_dir=str(folder), **defaults | kwargs)


def trainer(folder, model=None, muon_rate=None, budget=None, callbacks=(), data=None, **kwargs):
    """A plain `Trainer`, with Muon (`muon_rate`) or the clock (`budget`)."""
    model, args, optimizer = model or tiny(), arguments(folder, **kwargs), None
    if muon_rate is not None:
        betas = args.adam_beta1, args.adam_beta2
        decayed = Trainer.get_decay_parameter_names(None, model)
        optimizer = muon_optimizer(
            model, decayed, learning_rate=args.learning_rate, muon_learning_rate=muon_rate,
            weight_decay=args.weight_decay, betas=betas, eps=args.adam_epsilon,
        )  # fmt: skip
    elif budget is not None:
        optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate)
    scheduler = budget and budget.scheduler(optimizer)
    return Trainer(
        model, args, train_dataset=rows() if data is None else data, eval_dataset=rows(8),
        callbacks=[*callbacks, *([budget] if budget else [])], optimizers=(optimizer, scheduler),
    )  # fmt: skip


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


# --- Muon ---


def orthogonalised(matrix):
    """The Polar Express in float64 (arXiv 2505.16932, algorithm 1): p(σ) = a σ + b σ³ + c σ⁵ for each singular value σ,
    four times, each time of σ / 1.01."""
    left, values, right = torch.linalg.svd(
        matrix.double() / matrix.double().norm() / 1.01, full_matrices=False
    )
    for a, b, c in (
        (8.28721201814563, -23.595886519098837, 17.300387312530933),
        (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
        (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
        (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    ):
        values = values / 1.01
        values = a * values + b * values**3 + c * values**5
    return left @ values.diag() @ right


def test_singular_values_come_near_one():
    torch.manual_seed(0)
    left, right = (
        torch.linalg.qr(torch.randn(size, 30, dtype=torch.float64))[0] for size in (30, 50)
    )
    values = torch.logspace(0, -2.4, 30, dtype=torch.float64)
    matrix = left @ values.diag() @ right.mT
    found = orthogonalize(matrix[None])[0]
    torch.testing.assert_close(found, orthogonalised(matrix))
    found = left.mT @ found @ right
    assert found.diagonal().min() > 0.43 and found.diagonal().max() < 1.57
    torch.testing.assert_close(found, found.diagonal().diag())  # the singular vectors stay


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_muon_orthogonalises_the_parts_of_a_fused_matrix_apart(parts):
    torch.manual_seed(0)
    lr, decay, momentum = 0.02, 0.1, 0.95
    weight, other = (
        torch.nn.Parameter(torch.randn(24 * parts, 16)),
        torch.nn.Parameter(torch.randn(5)),
    )
    optimizer = MuonAdamW(
        [{"params": [weight], "parts": parts, "lr": lr, "weight_decay": decay}],
        [{"params": [other], "lr": 1e-3}],
    )
    expected, average = weight.detach().double(), torch.zeros(24 * parts, 16, dtype=torch.float64)
    for _ in range(3):
        weight.grad, other.grad = (
            torch.randn(24 * parts, 16) * (1 + torch.arange(24 * parts) // 24)[:, None],
            other * 1,
        )
        average = momentum * average + (1 - momentum) * weight.grad.double()
        update = (1 - momentum) * weight.grad.double() + momentum * average  # Nesterov
        update = torch.cat([orthogonalised(part) for part in update.chunk(parts)])
        expected = expected * (1 - lr * decay) - lr * 0.2 * math.sqrt(24) * update
        before = weight.detach().clone()
        optimizer.step()
        moved = (weight.detach() - before).double()
        # Muon iterates in bf16, three digits, and the first polynomials are steep
        torch.testing.assert_close(weight.detach().double(), expected, atol=0.06 * lr, rtol=0)
        expected = weight.detach().double()
        for part in moved.chunk(parts):  # RMS of AdamW's update: about 0.2 lr
            assert part.square().mean().sqrt() == pytest.approx(0.2 * lr, rel=0.4)


@needs_muon
@pytest.mark.parametrize("bf16", [True, False])
def test_step_matches_torch_muon_on_separate_matrices(bf16, monkeypatch):
    """The whole model against torch's own Muon, by its polynomial (Jordan's), and AdamW, on the q, k and v of every
    head, signal and gate as parameters of their own."""
    monkeypatch.setattr(muon, "fast_bf16", lambda device: (bf16, ""))
    if not bf16:  # torch's multiplies in bf16 on any processor
        monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
        monkeypatch.setattr(torch, "bfloat16", torch.float32)  # since torch 2.15
    monkeypatch.setattr(muon, "POLYNOMIALS", [(3.4445, -4.7750, 2.0315)] * 5)
    monkeypatch.setattr(muon, "ROUNDING_MARGIN", 1)
    model = tiny()
    heads = model.config.num_attention_heads
    assert heads > 1
    optimizer = muon_optimizer(model, {"model.layers.0.attn.Wqkv.weight"}, learning_rate=1e-3,
                               muon_learning_rate=1e-3, weight_decay=0.1)  # fmt: skip
    matrices = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter in block_matrices(model)
    }
    assert len(matrices) == 8
    parts = {name: 3 * heads if "Wqkv" in name else 2 if "Wi" in name else 1 for name in matrices}
    apart = {name: [torch.nn.Parameter(part.clone()) for part in parameter.detach().chunk(parts[name])]
             for name, parameter in matrices.items()}  # fmt: skip
    rest = {name: torch.nn.Parameter(parameter.detach().clone())
            for name, parameter in model.named_parameters() if name not in matrices}  # fmt: skip
    references = [
        torch.optim.Muon(apart["model.layers.0.attn.Wqkv.weight"], 1e-3, 0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.Muon([p for name, group in apart.items() if "0.attn.Wqkv" not in name for p in group], 1e-3, 0.0,
                         adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest.values(), 1e-3, weight_decay=0.0, fused=True),
    ]  # fmt: skip
    for batch in (rows(4), rows(6)):
        model(
            **{name: torch.stack([row[name] for row in batch]) for name in batch[0]}
        ).loss.backward()
        for name, parameter in model.named_parameters():
            for mine, grad in zip(
                apart.get(name) or [rest[name]], parameter.grad.chunk(parts.get(name, 1))
            ):
                mine.grad = grad.clone()
        for reference in (optimizer, *references):
            reference.step()
            reference.zero_grad()
    for name, parameter in model.named_parameters():
        if name in rest:
            assert torch.equal(parameter, rest[name]), name
        else:  # products are added in another order
            expected, atol = torch.cat([*apart[name]]), 2e-5 if bf16 else 1e-7
            torch.testing.assert_close(parameter, expected, atol=atol, rtol=0, msg=name)


def test_a_mlp_without_gate_is_one_matrix():
    model = tiny(gated_mlp=False)
    assert block_matrices(model)[model.model.layers[0].mlp.Wi.weight] == 1


def test_the_matrices_of_a_shared_layer_are_muons_once():
    model = tiny(share_layers=True)
    optimizer = muon_optimizer(model, [], learning_rate=1e-3, muon_learning_rate=5e-3)
    muon = [p for group in optimizer.param_groups if "parts" in group for p in group["params"]]
    names = {parameter: name for name, parameter in model.named_parameters()}
    parts = ("attn.Wo", "attn.Wqkv", "mlp.Wi", "mlp.Wo")
    assert sorted(names[p] for p in muon) == [f"model.layers.0.{part}.weight" for part in parts]


def test_every_parameter_is_in_one_group_and_only_matrices_of_blocks_are_muons():
    model = tiny(attention_bias=True, mlp_bias=True, norm_bias=True)
    model.model.layers[1].mlp.Wo.weight.requires_grad_(False)
    optimizer = muon_optimizer(model, [], learning_rate=1e-3, muon_learning_rate=5e-3)
    names = {parameter: name for name, parameter in model.named_parameters()}
    muon = sorted(
        names[p] for group in optimizer.param_groups if "parts" in group for p in group["params"]
    )
    parts = ("attn.Wo", "attn.Wqkv", "mlp.Wi", "mlp.Wo")
    matrices = [f"model.layers.{i}.{part}.weight" for i in (0, 1) for part in parts]
    assert muon == matrices[:-1]
    everything = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(everything) == len(set(everything)) == len(names) - 1
    assert {group["lr"] for group in optimizer.param_groups if "parts" in group} == {5e-3}
    assert optimizer.param_groups[0]["lr"] == 1e-3  # what Trainer logs


@pytest.mark.parametrize(("given", "new", "expected"), [
    ({}, True, ("muon", 2e-3, None, 0.3)), ({}, False, ("adamw", 1e-4, None, 0.01)),
    ({"learning_rate": 3e-3}, True, ("muon", 3e-3, None, 0.3)),
    ({"muon_learning_rate": 1e-2}, True, ("muon", 2e-3, 1e-2, 0.3)),
    ({"optimizer": "adamw"}, True, ("adamw", 1e-3, None, 0.01)),
    ({"optimizer": "muon", "weight_decay": 0.0}, False, ("muon", 2e-3, None, 0.0)),
    ({"optim": "sgd"}, True, ("adamw", 1e-3, None, 0.01)), ({"objective": "clm"}, True, ("adamw", 1e-3, None, 0.01)),
])  # fmt: skip
def test_optimizer_defaults(given, new, expected, tmp_path):
    before = PretrainingConfig(str(tmp_path), use_cpu=True, **given)
    args = fill_defaults(before, new)
    assert (
        args.optimizer,
        args.learning_rate,
        args.muon_learning_rate,
        args.weight_decay,
    ) == expected
    assert args.num_train_epochs == 2 and before.num_train_epochs is None


def test_muons_default_rate():
    assert default_muon_rate(256) == default_muon_rate(768) == 3.5e-3
    assert default_muon_rate(128) == 7e-3
    assert default_muon_rate(128, learning_rate=1e-3) == 1e-3
    assert default_muon_rate(128, learning_rate=0.0) == 0


def test_weights_decay_as_trainer_says_and_both_rates_follow_the_schedule(tmp_path):
    training = trainer(tmp_path, muon_rate=0.03, weight_decay=0.1,
                       warmup_steps=2, max_steps=4, adam_beta1=0.8, adam_beta2=0.9, adam_epsilon=1e-5)  # fmt: skip
    training.train()
    inner = training.optimizer.optimizer
    assert isinstance(inner, MuonAdamW)
    adamw = [group for group in inner.param_groups if "parts" not in group]
    assert {(*group["betas"], group["eps"]) for group in adamw} == {(0.8, 0.9, 1e-5)}
    decays = {name: group["weight_decay"] for group in inner.param_groups for name, parameter in
              training.model.named_parameters() if any(parameter is p for p in group["params"])}  # fmt: skip
    named = training.get_decay_parameter_names(training.model)
    assert all(decay == (0.1 if name in named else 0) for name, decay in decays.items())
    assert {group["initial_lr"] for group in inner.param_groups} == {0.01, 0.03}
    assert {group["lr"] / group["initial_lr"] for group in inner.param_groups} == {
        0.0
    }  # linear decay is over
    assert [entry["learning_rate"] for entry in training.state.log_history if "loss" in entry][
        1
    ] == 0.005


def test_schedules_that_end_above_zero_go_with_muon(tmp_path):
    """They take the end for a share of the rate that the optimizer was made with."""
    training = trainer(tmp_path, muon_rate=0.03, learning_rate=0.02,
                       lr_scheduler_type="polynomial", lr_scheduler_kwargs={"lr_end": 0.01}, max_steps=4)  # fmt: skip
    training.train()
    assert {group["lr"] for group in training.optimizer.optimizer.param_groups} == {0.01, 0.015}


# --- kill and resume ---


def test_resuming_gives_the_uninterrupted_run_bit_for_bit(tmp_path):
    options = dict(muon_rate=0.01, save_strategy="steps", save_steps=5, max_steps=12, bf16=True,
                   lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs={"num_decay_steps": 4}, warmup_steps=2,
                   gradient_accumulation_steps=2)  # fmt: skip
    whole = trainer(tmp_path / "whole", tiny(hidden_dropout=0.1), **options)
    whole.train()
    shutil.copytree(tmp_path / "whole" / "checkpoint-5", tmp_path / "broken" / "checkpoint-5")
    broken = trainer(tmp_path / "broken", tiny(hidden_dropout=0.1), **options)
    broken.train(resume_from_checkpoint=str(tmp_path / "broken" / "checkpoint-5"))
    first, second = weights(whole.model), weights(broken.model)
    assert all(torch.equal(first[key], second[key]) for key in first)
    losses = [
        [entry["loss"] for entry in run.state.log_history if "loss" in entry]
        for run in (whole, broken)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 12


def learning_rates(run):
    return [entry["learning_rate"] for entry in run.state.log_history if "loss" in entry]


# --- against the clock, in a Trainer ---


class Clock(TrainerCallback):
    """Time that passes with steps and evaluations."""

    def __init__(self, seconds=1.0):
        self.now, self.seconds = 50.0, seconds

    def __call__(self):
        return self.now

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.now += self.seconds * (10 if 12 <= state.global_step < 15 else 1)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return itertools.cycle(rows())


@pytest.mark.parametrize("data", [rows(), Endless()], ids=["rows", "stream"])
def test_a_trainer_ends_on_time_and_is_resumed(data, tmp_path, capsys):
    """60 steps of a second are expected, and three take ten."""

    def run(folder, clock, checkpoint=None):
        budget = TimeBudget(1.0, warmup=0.1, clock=clock)
        budget.evaluation_seconds = 0.0
        run = trainer(folder, budget=budget, callbacks=[clock], data=data, max_steps=10**9,
                      save_strategy="steps", save_steps=10, eval_strategy="steps", eval_steps=0.5)  # fmt: skip
        run.pop_callback(budget)  # it is one of the common callbacks
        add_callbacks(run, common_callbacks(budget))
        run.train(checkpoint)
        return run

    clock = Clock()
    whole = run(tmp_path / "whole", clock)
    steps, rates = whole.state.global_step, learning_rates(whole)
    assert clock.now - 50 == pytest.approx(60, abs=3)
    assert len(rates) == steps == whole.state.max_steps < 40  # 27 s went into three steps
    assert (
        max(rates) == pytest.approx(0.01, rel=0.1) and rates[0] < 0.005 and rates[-1] < 0.3 * 0.01
    )
    assert rates[-3:] == sorted(rates[-3:], reverse=True)
    evaluated = [entry["step"] for entry in whole.state.log_history if "eval_loss" in entry]
    assert evaluated == [30, steps]  # half of the steps expected after the second, and the end
    shares = [
        tuple(map(int, found))
        for found in re.findall(r"step +(\d+) \((\d+)%\)", capsys.readouterr().out)
    ]
    assert shares[0] == (1, 0) and shares[-1] == (
        steps,
        100,
    )  # of the time: the number of steps is not known
    checkpoint = tmp_path / "whole" / "checkpoint-20"
    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    used = state.stateful_callbacks["TimeBudget"]["attributes"]["before"]
    assert used == pytest.approx(20 + 27)
    clock = Clock()
    resumed = run(tmp_path / "resumed", clock, str(checkpoint))
    assert clock.now - 50 == pytest.approx(60 - used, abs=2)
    assert learning_rates(resumed)[-1] < 0.3 * 0.01


# --- bad input ---


@pytest.mark.parametrize(("given", "said"), [
    ({"minutes": 0}, "minutes must be positive"), ({"minutes": float("nan")}, "minutes must be positive"),
    ({"minutes": 5, "max_steps": 100}, "leave --max_steps out"),
    ({"minutes": 5, "num_train_epochs": 3.0}, "leave --num_train_epochs out"),
    ({"minutes": 5, "lr_scheduler_type": "cosine"}, "leave --lr_scheduler_type out"),
    ({"minutes": 5, "warmup_steps": 100}, "leave --warmup_steps out"),
    ({"mask_replace_prob": 1.5}, "mask_replace_prob must be from 0 to 1, got 1.5"),
    ({"muon_learning_rate": 0.1, "optimizer": "adamw"}, "muon_learning_rate: it has no effect without"),
    ({"optimizer": "muon", "optim": "adafactor"}, "adafactor"),
    ({"embedding_init": "cooccurrence"}, "embedding_init: cooccurrence would replace"),
])  # fmt: skip
def test_settings_that_do_not_go_together_are_refused(given, said, tmp_path):
    with pytest.raises(ValueError) as error:
        check_config(
            PretrainingConfig(str(tmp_path), use_cpu=True, **given),
            is_new="embedding_init" not in given,
        )
    assert said in str(error.value)
