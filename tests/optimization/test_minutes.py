"""Training that ends on time: the schedule by the clock, the state it is resumed from, and the command."""

import json
import math
import types

import pytest
import torch
from transformers import TrainerState, get_linear_schedule_with_warmup

from minibert.training import cli
from minibert.training.optimization import clock
from minibert.training.optimization.clock import EVALUATION_SHARE, TimeBudget


class Machine:
    """A clock that steps move on: each takes `seconds(now)`, the first one `first`, the evaluation `evaluation`."""

    def __init__(self, seconds, evaluation=0.0, first=0.0):
        self.now, self.seconds, self.evaluation, self.first = 1000.0, seconds, evaluation, first

    def train(self, budget, steps_before_kill=None):
        """Steps until the budget says stop: the factor of every step."""
        factors = []
        budget.last_step_end, left = None, budget.look_ahead()
        while left != 0:
            factors.append(budget.rate_factor)
            self.now += self.first or self.seconds(self.now - 1000.0)
            self.first = 0.0
            left = budget.step()
            if len(factors) == steps_before_kill:
                return factors
        self.now += self.evaluation
        return factors

    def budget(self, minutes=10.0, warmup=0.1):
        budget = TimeBudget(minutes, warmup, clock=lambda: self.now)
        budget.evaluation_seconds = self.evaluation
        return budget


def test_steady_steps_give_the_schedule_of_transformers():
    """But for the first step, which is not timed; and those after it share what it left."""
    machine = Machine(lambda now: 1.0)
    factors = machine.train(machine.budget(minutes=10))
    assert machine.now - 1000 == pytest.approx(600) and len(factors) == 600
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    # twice as many steps: ours stand at the middle of a step
    reference = get_linear_schedule_with_warmup(optimizer, 120, 1200).lr_lambdas[0]
    for step, factor in enumerate(factors):
        assert factor == pytest.approx(reference(2 * step + 1), abs=0.05)
    assert factors[:2] == [0, 0] and max(factors) > 0.99 and factors[-1] < 0.005


SPEEDS = {
    "stalled tenfold in the middle": lambda now: 10.0 if 200 <= now < 400 else 1.0,
    "stalled tenfold near the end": lambda now: 10.0 if 500 <= now < 560 else 1.0,
    "slower for good": lambda now: 1.0 if now < 100 else 7.0,
    "faster for good": lambda now: 1.0 if now < 300 else 0.1,
    "frozen once": lambda now: 150.0 if 250 <= now < 251.5 else 1.0,
    "noisy": lambda now: 0.3 + 2 * math.sin(now * 12.9898) ** 2,
}


@pytest.mark.parametrize("evaluation", [0.0, 40.0])
@pytest.mark.parametrize("first", [1.0, 30.0])  # in which kernels are made, say
@pytest.mark.parametrize("speed", SPEEDS)
def test_it_ends_on_time_with_the_whole_schedule(speed, first, evaluation):
    machine = Machine(SPEEDS[speed], evaluation, first)
    factors = machine.train(machine.budget())
    assert machine.now - 1000 == pytest.approx(600, rel=0.05)
    peak = factors.index(max(factors))
    assert factors[peak] > 0.9 and factors[:peak] == sorted(factors[:peak])
    assert factors[peak:] == sorted(factors[peak:], reverse=True) and factors[-1] < 0.1


def test_few_long_steps():
    machine = Machine(lambda now: 50.0)
    factors = machine.train(machine.budget())
    assert len(factors) == 12 and machine.now == 1600


def test_the_time_used_travels_with_the_checkpoint():
    machine = Machine(lambda now: 1.0)
    budget = machine.budget()
    machine.train(budget, steps_before_kill=450)
    saved = budget.state()["attributes"]
    machine.now += 5000  # nobody was training then
    machine.seconds = lambda now: 2.0
    resumed = TimeBudget(10, warmup=0.1, clock=lambda: machine.now)
    resumed.resume(saved)
    began = machine.now
    factors = machine.train(resumed)
    assert machine.now - began == pytest.approx(150, abs=3)
    assert factors[0] == pytest.approx(0.25 / 0.9, abs=0.01) and factors[-1] < 0.1


INTERVALS = types.SimpleNamespace(logging_steps=10, eval_steps=10, save_steps=10)


@pytest.mark.parametrize("steps_before_kill", [1, 450])  # the first step does not move the schedule
@pytest.mark.parametrize("is_resumed", [True, False])
def test_the_time_of_an_earlier_training_counts_once(is_resumed, steps_before_kill):
    """In a notebook, the same object goes on after Ctrl-C."""
    machine = Machine(lambda now: 1.0)
    budget = machine.budget()
    budget.begin_training()
    machine.train(budget, steps_before_kill)
    used = budget.elapsed
    assert used == steps_before_kill
    saved_states = {"TimeBudget": budget.state()}
    machine.now += 5000
    state = TrainerState(global_step=steps_before_kill, stateful_callbacks=saved_states)
    if not is_resumed:
        state = TrainerState()
    budget.begin_training()
    budget.on_train_begin(INTERVALS, state, None)
    assert budget.elapsed == (used if is_resumed else 0)


def test_a_training_that_begins_again_with_smaller_batches_has_the_rest_of_the_time():
    """`auto_find_batch_size` calls `on_train_begin` again after an error for want of memory."""
    machine = Machine(lambda now: 1.0)
    budget = machine.budget()
    budget.begin_training()
    budget.on_train_begin(INTERVALS, TrainerState(), None)
    machine.train(budget, steps_before_kill=100)
    budget.on_train_begin(INTERVALS, TrainerState(), None)
    assert budget.elapsed == 100
    machine.train(budget)
    assert machine.now - 1000 == pytest.approx(600, rel=0.05)


def test_time_is_kept_for_the_evaluation_at_the_end():
    """5 % of all until one was measured; and one in between that leaves less is left out."""
    machine = Machine(lambda now: 1.0)
    budget = TimeBudget(10, clock=lambda: machine.now)
    machine.train(budget)
    assert machine.now - 1000 == pytest.approx((1 - EVALUATION_SHARE) * 600)
    machine = Machine(lambda now: 1.0)
    budget = machine.budget(minutes=10)
    budget.on_evaluate(None, None, None, metrics={"eval_runtime": 100.0})
    for elapsed, progress, evaluates in (
        (300, 0.5, True),
        (399, 0.7, True),
        (401, 0.7, False),
        (500, 1.0, True),
    ):
        machine.now, budget.progress = 1000.0 + elapsed, progress
        control = types.SimpleNamespace(should_evaluate=True)
        budget.on_epoch_end(None, None, control)
        assert control.should_evaluate is evaluates


# --- the command ---


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text(
        "\n\n".join(
            f"number {i} comes after number {i - 1} and before number {i + 1}" for i in range(300)
        )
    )
    return path


class Ticking:
    """A clock that is a second on at every look at it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def run(corpus, output, *given):
    return cli.main(["pretrain", "--data", str(corpus), "--output_dir", str(output),
                     "--vocab_size", "100", "--seq_length", "32", "--disable_tqdm", "true", "--bf16", "false",
                     "--config_overrides",
                     "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32",
                     *given])  # fmt: skip


@pytest.mark.slow
def test_the_command_trains_by_the_clock_and_goes_on(corpus, tmp_path, monkeypatch, capsys):
    clocks = []

    def budget(*args):
        clocks.append(Ticking())
        return TimeBudget(*args, clock=clocks[-1])

    monkeypatch.setattr(clock, "TimeBudget", budget)
    given = ["--minutes", "1", "--size", "tiny", "--save_strategy", "steps", "--save_steps",
             "10", "--save_total_limit", "9", "--logging_steps", "1", "--eval_strategy", "no",
             "--learning_rate", "1e-3"]  # fmt: skip
    output = tmp_path / "run"
    assert run(corpus, output, *given) == 0
    assert clocks[0].now == pytest.approx(60, rel=0.05)
    state = json.loads((output / "trainer_state.json").read_text())
    rates = [entry["learning_rate"] for entry in state["log_history"] if "loss" in entry]
    assert max(rates) == pytest.approx(1e-3, rel=0.1) and rates[0] < 1e-3 and rates[-1] < 2e-4
    assert state["max_steps"] == state["global_step"]

    checkpoint = output / "checkpoint-20"
    saved = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"][
        "TimeBudget"
    ]
    other = tmp_path / "other"
    capsys.readouterr()
    assert run(corpus, other, *given, "--resume_from_checkpoint", str(checkpoint)) == 0
    assert saved["attributes"]["before"] + clocks[1].now == pytest.approx(60, rel=0.05)
    assert json.loads((other / "trainer_state.json").read_text())["global_step"] > 20
    assert (
        run(corpus, tmp_path / "third", *given[2:], "--resume_from_checkpoint", str(checkpoint))
        == 2
    )
    assert "by the clock: False" in capsys.readouterr().err
