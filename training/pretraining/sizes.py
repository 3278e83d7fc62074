"""What a smaller model would need, where the chosen size is too slow for this machine."""

import copy
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from transformers import PreTrainedModel, TrainerCallback

from ...configuration_minibert import BERT_SIZES, MODERNBERT_SIZES, MiniBertConfig
from ..loop.divergence import MIN_STEPS_FOR_NEW_WEIGHTS

# What a size decides, in the order of `MODERNBERT_SIZES`.
SHAPE_FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
LONG_SECONDS = 3600.0  # a training on a CPU that takes longer is told so
TIMED_STEPS = 5  # after the first one, in which much is made once


def smaller_sizes(config: MiniBertConfig) -> Iterator[tuple[str, MiniBertConfig]]:
    """The smaller sizes of the preset that a config is of, the largest first, each with its config;
    none if its shape is no preset's."""
    shape = tuple(getattr(config, name) for name in SHAPE_FIELDS)
    for sizes in (MODERNBERT_SIZES, BERT_SIZES):
        shapes = list(sizes.values())
        if shape not in shapes:
            continue
        names = list(sizes)[: shapes.index(shape)]
        for name in reversed(names):
            smaller = copy.deepcopy(config)
            for field, value in zip(SHAPE_FIELDS, sizes[name]):
                setattr(smaller, field, value)
            yield name, smaller
        return


def speeds_of_smaller_sizes(model: PreTrainedModel) -> Iterator[tuple[str, float]]:
    """The smaller sizes of a model, the largest first, each with how many of its steps take the
    time of one step of the model. That time is taken to grow with the number of parameters."""
    parameters = model.num_parameters()
    for size, config in smaller_sizes(model.config):
        with torch.device("meta"):
            smaller_parameters = type(model)(config).num_parameters()
        yield size, parameters / smaller_parameters


def suggest_size_for_steps(model: PreTrainedModel, steps: int) -> tuple[str, int] | None:
    """Suggest a smaller size for a model that does only `steps` steps in its time: the largest one
    that does enough for new weights. Returns it with its number of steps, or None."""
    for size, speed in speeds_of_smaller_sizes(model):
        smaller_steps = round(steps * speed)
        if smaller_steps >= MIN_STEPS_FOR_NEW_WEIGHTS:
            return size, smaller_steps
    return None


def suggest_size_for_seconds(model: PreTrainedModel, seconds: float) -> tuple[str, float] | None:
    """Suggest a smaller size for a model whose training takes `seconds`: the largest one that takes
    at most `LONG_SECONDS` for as many steps, or else the smallest one. Returns it with its seconds,
    or None if there is no smaller size."""
    suggestion = None
    for size, speed in speeds_of_smaller_sizes(model):
        smaller_seconds = seconds / speed
        suggestion = (size, smaller_seconds)
        if smaller_seconds <= LONG_SECONDS:
            break
    return suggestion


def describe_duration(seconds: float) -> str:
    if seconds < LONG_SECONDS:
        return f"about {max(1, round(seconds / 60))} minutes"
    return f"about {seconds / 3600:.1f} hours"


class LongTrainingCallback(TrainerCallback):
    """After the first steps on a CPU, say once how long the training will take, if that is long."""

    def __init__(
        self,
        suggest_size: Callable[[float], tuple[str, float] | None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """`suggest_size`: from the seconds of the training to a smaller size of the model, and the
        seconds that it takes. `clock`: seconds since any moment."""
        self.suggest_size = suggest_size
        self.clock = clock
        self.step_ends: list[float] = []
        self.first_step = 0

    def on_train_begin(self, args, state, control, **kwargs):
        self.step_ends = []
        self.first_step = state.global_step

    def on_step_end(self, args, state, control, **kwargs):
        if len(self.step_ends) > TIMED_STEPS:
            return
        self.step_ends.append(self.clock())
        is_timed = len(self.step_ends) > TIMED_STEPS
        if is_timed and args.device.type == "cpu" and state.is_world_process_zero:
            self._print_duration_if_long(state.max_steps - self.first_step)

    def _print_duration_if_long(self, steps: int) -> None:
        """Print how long so many steps take, if that is long.

        Args:
            steps: Of this training, from where it began or was resumed.
        """
        durations = [end - start for start, end in zip(self.step_ends, self.step_ends[1:])]
        seconds = steps * statistics.median(durations)
        if seconds <= LONG_SECONDS:
            return
        advice = "--minutes 60"
        suggestion = self.suggest_size(seconds)
        if suggestion is not None:
            size, smaller_seconds = suggestion
            advice = f"--size {size} ({describe_duration(smaller_seconds)}), or {advice}"
        print(
            f"At this speed, {steps:,} steps take {describe_duration(seconds)}. Shorter: {advice}",
            flush=True,
        )
