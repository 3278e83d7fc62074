"""The line that is printed at every log of a training."""

import time
from typing import Any

from transformers import TrainerCallback

# Entries of the log that a line does not show (by the ends of their names), and other names for
# those that it shows.
HIDDEN_ENTRIES = (
    "runtime",
    "per_second",
    "preparation_time",
    "targets",
    "grad_norm",
    "epoch",
    "input_tokens_seen",
)
SHORT_NAMES = {"learning_rate": "rate"}


class ConsoleLog(TrainerCallback):
    """Print every log of a training as one line: the step, losses, learning rate and speed, or the
    metrics of an evaluation."""

    def __init__(self, budget: Any = None):
        """`budget`: the `TimeBudget` of a training by the clock, whose number of steps is not known
        before."""
        self.budget = budget
        self.tokens_seen = 0  # at the last log
        self.logged_at = 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self.tokens_seen = state.num_input_tokens_seen
        self.logged_at = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        tokens = state.num_input_tokens_seen - self.tokens_seen
        self.tokens_seen = state.num_input_tokens_seen
        seconds = time.perf_counter() - self.logged_at
        self.logged_at += seconds
        entries = {name: value for name, value in logs.items() if not name.endswith(HIDDEN_ENTRIES)}
        is_summary = "train_loss" in logs  # at the end
        if not entries or not state.is_world_process_zero or is_summary:
            return
        losses = {name for name in entries if name.startswith("eval_") and name.endswith("_loss")}
        if losses - {"eval_loss"}:
            # a mean over batches, less exact than the loss over all targets
            entries.pop("eval_loss", None)
        words = []
        for name, value in entries.items():
            words.append(f"{SHORT_NAMES.get(name, name.removeprefix('eval_'))} {value:.4g}")
        text = "  ".join(words)
        if "loss" not in logs:
            text = f"evaluation: {text}"
        elif tokens > 0:
            text += f"  {tokens / seconds:,.0f} tokens/s"
        done = f"{state.global_step:>{len(str(state.max_steps))}}/{state.max_steps}"
        if self.budget is not None:
            done = f"{state.global_step} ({self.budget.progress:.0%})"
        print(f"step {done}  {text}", flush=True)
