"""Training against the clock: the schedule under clocks that run as the test wants, and what is picked for the time."""

import json
import math
import types

import pytest
import torch
from transformers import TrainingArguments
from transformers.optimization import get_linear_schedule_with_warmup, get_wsd_schedule

from minibert.training.cli import main as cli
from minibert.training.optimization import throughput
from minibert.training.optimization import trainer as optimization_trainer
from minibert.training.optimization.clock import GRACE, TimeBudget
from minibert.training.optimization.schedule import rate_factor
from minibert.training.optimization.throughput import Throughput, plan_training, saturate


class Machine:
    """A clock that steps move on: each takes `seconds(now)`, the evaluation at the end `evaluation`."""

    def __init__(self, seconds, evaluation=0.0):
        self.now, self.seconds, self.evaluation = 1000.0, seconds, evaluation

    def train(self, budget, steps_before_kill=None):
        """Steps until the budget says stop: the factor of every step."""
        factors = []
        left = budget.begin()
        while left:
            factors.append(budget.factor)
            self.now += self.seconds(self.now - 1000.0)
            left = budget.step()
            if len(factors) == steps_before_kill:
                return factors
        self.now += self.evaluation
        return factors

    def budget(self, minutes=10.0, expected=1.0, **kwargs):
        budget = TimeBudget(minutes, **dict(warmup=0.1, decay=0.2) | kwargs, clock=lambda: self.now)
        budget.expect(expected, self.evaluation)
        return budget


def is_whole(factors):
    """A rise, 1, and a fall almost to 0 (the last step is half a step before the end), without any jump back."""
    peak = factors.index(1.0)
    fall = len(factors) - factors[::-1].index(1.0)
    return (
        factors[:peak] == sorted(factors[:peak])
        and set(factors[peak:fall]) == {1.0}
        and factors[fall:] == sorted(factors[fall:], reverse=True)
        and factors[-1] < 0.3
        and len(factors) - fall >= 3
    )


def test_steady_steps_give_the_schedule_of_transformers():
    machine = Machine(lambda now: 1.0)
    factors = machine.train(machine.budget(minutes=10))
    assert machine.now - 1000 == pytest.approx(600)
    assert len(factors) == 600
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    # twice as many steps: ours stand at the middle of a step
    reference = get_wsd_schedule(optimizer, 120, 240, 1200, decay_type="1-sqrt").lr_lambdas[0]
    for step, factor in enumerate(factors):
        assert factor == pytest.approx(reference(2 * step + 1), abs=1e-9)
    machine = Machine(lambda now: 1.0)
    reference = get_linear_schedule_with_warmup(optimizer, 120, 1200).lr_lambdas[0]
    for step, factor in enumerate(machine.train(machine.budget(minutes=10, decay=None))):
        assert factor == pytest.approx(reference(2 * step + 1), abs=1e-9)


SPEEDS = {
    "stalled tenfold in the middle": lambda now: 10.0 if 200 <= now < 400 else 1.0,
    "stalled tenfold in the decay": lambda now: 10.0 if 500 <= now < 560 else 1.0,
    "slower for good": lambda now: 1.0 if now < 100 else 7.0,
    "faster for good": lambda now: 1.0 if now < 300 else 0.1,
    "frozen once": lambda now: 150.0 if 250 <= now < 251.5 else 1.0,
    "frozen into the decay": lambda now: 330.0 if 200 <= now < 201.5 else 1.0,
    "noisy": lambda now: 0.3 + 2 * math.sin(now * 12.9898) ** 2,
}


@pytest.mark.parametrize("evaluation", [0.0, 40.0])
@pytest.mark.parametrize("expected", [0.2, 1.0, 5.0])  # the measurement before may be wrong
@pytest.mark.parametrize("speed", SPEEDS)
def test_it_ends_on_time_with_the_whole_schedule(speed, expected, evaluation):
    machine = Machine(SPEEDS[speed], evaluation)
    factors = machine.train(machine.budget(expected=expected))
    assert machine.now - 1000 == pytest.approx(600, rel=0.05)
    assert is_whole(factors)


def test_the_decay_takes_its_share_of_the_time_that_a_stall_leaves():
    machine = Machine(lambda now: 300.0 if 100 <= now < 101.5 else 1.0)
    factors = machine.train(machine.budget())
    decayed = sum(factor < 1 for factor in factors[200:])
    # about 200 s are left after the stall, for the 83 % of the schedule that remain, of which 20 % are the decay
    assert decayed == pytest.approx(200 * 0.2 / 0.83, rel=0.1)


def test_a_stall_beyond_the_end_leaves_time_for_the_decay():
    machine = Machine(lambda now: 700.0 if 300 <= now < 301.5 else 1.0)
    factors = machine.train(machine.budget())
    late = machine.now - 1000 - (301 + 700)
    assert GRACE * 600 <= late < 4 * GRACE * 600
    assert is_whole(factors)


def test_steps_that_are_long_for_the_time():
    machine = Machine(lambda now: 50.0)
    factors = machine.train(machine.budget(expected=50.0))
    assert len(factors) == 12 and machine.now == 1600


def test_the_time_used_travels_with_the_checkpoint():
    machine = Machine(lambda now: 1.0)
    budget = machine.budget()
    machine.train(budget, steps_before_kill=450)
    saved = budget.state()["attributes"]
    machine.now += 5000  # nobody was training then
    machine.seconds = lambda now: 2.0
    resumed = TimeBudget(10, warmup=0.1, decay=0.2, clock=lambda: machine.now)
    resumed.before, resumed.progress = saved["before"], saved["progress"]
    resumed.durations.extend(saved["durations"])
    began = machine.now
    factors = machine.train(resumed)
    assert machine.now - began == pytest.approx(150, abs=3)
    assert factors[0] == 1.0 and factors[-1] < 0.1


@pytest.mark.parametrize("minutes", [0, -3, float("nan"), float("inf")])
def test_no_time_is_refused(minutes):
    with pytest.raises(ValueError, match="minutes"):
        TimeBudget(minutes)


def test_the_factor_outside_the_schedule_is_held():
    assert rate_factor(1.1, 0.1, 0.2) == 0
    assert rate_factor(0.0, 0.0, 0.0) == 1
    assert rate_factor(0.05, 0.1, 0.2) == rate_factor(0.05, 0.1) == 0.5
    assert rate_factor(1.1, 0.1) == 0


# --- what is picked ---

PARAMETERS = {"tiny": 1_000_000, "mini": 4_000_000, "small": 16_000_000, "medium": 50_000_000}


def arguments(tmp_path, **kwargs):
    return TrainingArguments(output_dir=str(tmp_path), use_cpu=True, disable_tqdm=True, report_to="none", **kwargs)


def measured(monkeypatch, seconds_per_row, tokens=500, overhead=0.0, memory=10**9):
    """Stands for the machine: a step takes so many seconds a row, by size, beside the overhead."""
    seen = []

    def measure(make_trainer, size, training, rows, left=None):
        seen.append((size, rows))
        if rows > memory:
            raise torch.OutOfMemoryError("no memory")
        return Throughput(PARAMETERS[size], rows, overhead + rows * seconds_per_row[size], rows * tokens)

    monkeypatch.setattr(throughput, "measure", measure)
    return seen


def plan(seconds, sizes, training, train_rows=math.inf):
    """What is trained in so many seconds: the size, rows and accumulation."""
    budget = TimeBudget(seconds / 60, clock=lambda: 0.0)
    size, training = plan_training(budget, None, sizes, training, train_rows, 10)
    return size, training.per_device_train_batch_size, training.gradient_accumulation_steps


@pytest.mark.parametrize(
    ("seconds", "size"),
    # tokens a second: tiny 50,000, mini 12,500, small 3,125; 2 tokens a parameter are 2, 8 and 32 million
    [(10, "tiny"), (45, "tiny"), (635, "tiny"), (645, "mini"), (10_200, "mini"), (10_300, "small")],
)
def test_the_largest_size_that_sees_two_tokens_a_parameter(seconds, size, monkeypatch, tmp_path):
    measured(monkeypatch, {"tiny": 0.01, "mini": 0.04, "small": 0.16, "medium": 0.5})
    training = arguments(tmp_path, per_device_train_batch_size=8)
    assert plan(seconds, list(PARAMETERS), training) == (size, 8, 1)


def test_a_stall_among_the_measured_steps_does_not_count():
    timer = throughput._StepTimer()
    timer.ends = [(0.0, 0), (9.0, 500), (10.0, 1000), (11.0, 1500), (41.0, 2100), (42.0, 2500)]  # the first are untimed
    assert timer.step() == (1.0, 500.0)


def test_tokens_are_those_of_all_processes(monkeypatch, tmp_path):
    """`Trainer` counts them so; in eight processes no larger size fits than in one that is as fast."""
    measured(monkeypatch, {"tiny": 0.01, "mini": 0.04, "small": 0.16, "medium": 0.5})
    monkeypatch.setattr(TrainingArguments, "world_size", 8)
    training = arguments(tmp_path, per_device_train_batch_size=8)
    assert plan(635, list(PARAMETERS), training)[0] == "tiny" and plan(645, list(PARAMETERS), training)[0] == "mini"


def test_rows_are_doubled_until_the_machine_is_busy_or_full(monkeypatch, tmp_path):
    training = arguments(tmp_path)
    measured(monkeypatch, {"tiny": 0.001}, overhead=0.1)
    assert saturate(None, "tiny", training).rows == 256
    measured(monkeypatch, {"tiny": 0.01}, overhead=0.1)
    assert saturate(None, "tiny", training).rows == 16
    measured(monkeypatch, {"tiny": 0.001}, overhead=0.1, memory=100)
    assert saturate(None, "tiny", training).rows == 64
    measured(monkeypatch, {"tiny": 0.001}, overhead=0.1, memory=3)
    with pytest.raises(torch.OutOfMemoryError):
        saturate(None, "tiny", training)


def test_gradients_are_accumulated_rather_than_more_steps_made(monkeypatch, tmp_path):
    measured(monkeypatch, {"tiny": 0.1})

    def batch(**given):
        return plan(12_000.0, ["tiny"], arguments(tmp_path, **{"per_device_train_batch_size": None} | given))[1:]

    rows, accumulation = batch()
    assert rows == 4 and 0.1 * rows * accumulation == pytest.approx(12_000 / throughput.STEPS, rel=0.15)
    assert batch(gradient_accumulation_steps=2) == (4, 2)
    assert batch(per_device_train_batch_size=4) == (4, 1)  # whoever gives rows gives the batch


def test_batches_leave_eight_steps_to_an_epoch(monkeypatch, tmp_path):
    training = arguments(tmp_path, per_device_train_batch_size=None)
    seen = measured(monkeypatch, {"tiny": 0.001})
    assert plan(12_000.0, ["tiny"], training, 300) == ("tiny", 32, 1) and max(rows for _, rows in seen) == 32
    assert plan(12_000.0, ["tiny"], training, 5)[1] == 4
    measured(monkeypatch, {"tiny": 0.1})
    assert plan(12_000.0, ["tiny"], training, 100)[2] == 3


def test_too_little_time_is_refused(monkeypatch, tmp_path):
    measured(monkeypatch, {"tiny": 10.0})
    with pytest.raises(ValueError, match="minutes"):
        plan(30.0, ["tiny"], arguments(tmp_path, per_device_train_batch_size=None))


def test_trainer_state_follows_the_clock():
    """What `Trainer` reads: the expected number of steps, exact at the end."""
    machine = Machine(lambda now: 1.0)
    budget = machine.budget(minutes=0.5)
    state = types.SimpleNamespace(global_step=0, max_steps=10**9, compute_steps=lambda args, steps: None)
    budget.on_train_begin(None, state, None)
    assert state.max_steps == 30
    while state.global_step < state.max_steps:
        machine.now += 1.0 if state.global_step < 20 else 2.0
        budget.on_optimizer_step(None, state, None)
        state.global_step += 1
    assert budget.progress == pytest.approx(1) and machine.now - 1000 == pytest.approx(30, abs=1)


def test_an_evaluation_that_leaves_no_time_for_the_last_one_is_left_out():
    machine = Machine(lambda now: 1.0, evaluation=100.0)
    budget = machine.budget(minutes=10)
    budget.begin()
    for elapsed, progress, evaluates in ((300, 0.5, True), (399, 0.7, True), (401, 0.7, False), (500, 1.0, True)):
        machine.now, budget.progress = 1000.0 + elapsed, progress
        control = types.SimpleNamespace(should_evaluate=True)
        budget.on_epoch_end(None, None, control)
        assert control.should_evaluate is evaluates


# --- the command ---


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("\n\n".join(f"number {i} comes after number {i - 1} and before number {i + 1}" for i in range(300)))
    return path


class Ticking:
    """A clock that is half a second on at every look at it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.5
        return self.now


def run(corpus, output, *given):
    return cli.main(["pretrain", "--data", str(corpus), "--output_dir", str(output), "--num_hidden_layers", "1",
                     "--vocab_size", "100", "--seq_length", "32", "--disable_tqdm", "true", "--bf16", "false",
                     "--hidden_size", "32", "--num_attention_heads", "2", "--intermediate_size", "32",
                     *given])  # fmt: skip


def test_the_command_trains_by_the_clock_and_goes_on(corpus, tmp_path, monkeypatch, capsys):
    clocks = []

    def budget(*args):
        clocks.append(Ticking())
        return TimeBudget(*args, clock=clocks[-1])

    monkeypatch.setattr(optimization_trainer, "TimeBudget", budget)
    monkeypatch.setattr(budget, "saved_in", TimeBudget.saved_in, raising=False)
    given = ["--minutes", "1", "--size", "tiny", "--weight_average", "0.9", "--save_strategy", "steps", "--save_steps",
             "10", "--save_total_limit", "9", "--logging_steps", "1", "--eval_strategy", "no",
             "--learning_rate", "1e-3"]  # fmt: skip
    output = tmp_path / "run"
    assert run(corpus, output, *given) == 0
    assert clocks[0].now == pytest.approx(60, rel=0.05)
    printed = capsys.readouterr().out
    assert "Measured tiny" in printed and "rows" in printed.split("Training a model of size tiny on batches of")[1]
    state = json.loads((output / "trainer_state.json").read_text())
    rates = [entry["learning_rate"] for entry in state["log_history"] if "loss" in entry]
    assert max(rates) == pytest.approx(1e-3, rel=0.1) and rates[0] < 1e-3 and rates[-1] < 2e-4
    assert state["max_steps"] == state["global_step"]

    checkpoint = output / "checkpoint-20"
    saved = TimeBudget.saved_in(checkpoint)
    batch = saved["plan"]["rows"] * saved["plan"]["accumulation"]
    other = tmp_path / "other"
    capsys.readouterr()
    assert run(corpus, other, *given, "--resume_from_checkpoint", str(checkpoint)) == 0
    assert saved["before"] + clocks[1].now == pytest.approx(60, rel=0.05)
    assert "Measured" not in capsys.readouterr().out
    state = json.loads((other / "trainer_state.json").read_text())
    assert state["global_step"] > 20 and state["train_batch_size"] * saved["plan"]["accumulation"] == batch
    assert run(corpus, tmp_path / "third", *given[2:], "--resume_from_checkpoint", str(checkpoint)) == 2
    assert "by the clock" in capsys.readouterr().err
    for changed in (["--size", "mini"], ["--per_device_train_batch_size", "77"]):
        again = [*given, *changed, "--resume_from_checkpoint", str(checkpoint)]
        assert run(corpus, tmp_path / "third", *again) == 2
        assert f"{changed[0][2:]}: " in (said := capsys.readouterr().err) and "was trained with" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--minutes", "0"], "minutes: 0"),
        (["--minutes", "3", "--max_steps", "10"], "minutes: --max_steps does not go with --minutes"),
        (["--minutes", "3", "--num_train_epochs", "2"], "minutes: --num_train_epochs"),
        (["--max_steps", "10", "--batch_warmup", "11"], "batch_warmup: 11"),
        (["--optimizer", "muons"], "optimizer"),
    ],
)
def test_the_command_refuses_before_any_work(given, said, corpus, tmp_path, capsys):
    assert run(corpus, tmp_path / "run", *given) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()
