"""Learning rates by the share of a training that is done, and how many rows a batch has while it grows."""

import math
from typing import Any

from transformers import TrainingArguments

# Hägele et al. 2024 (arXiv 2405.18392): a decay as 1 - sqrt over the last 20 % of the steps is as good as a cosine
# over all of them.
DECAY_SHARE = 0.2
# Batches grow from this share of their size.
FIRST_BATCH = 1 / 8


def decay_of(training: TrainingArguments) -> float:
    """`num_decay_steps` of `--lr_scheduler_kwargs`: steps, or below 1 a share of them; by default `DECAY_SHARE`."""
    return (training.lr_scheduler_kwargs or {}).get("num_decay_steps", DECAY_SHARE)


def schedule_arguments(training: TrainingArguments, steps: int) -> dict[str, Any]:
    """What `get_wsd_schedule` wants for so many steps, of which `warmup_steps` and `num_decay_steps` may be shares.

    Where `steps` are not known yet, 0 or less, only shares are checked.

    Raises:
        ValueError: the decay is below 0, or warmup and decay together are longer than the training.
    """
    decay, warmup = decay_of(training), training.warmup_steps
    given = f"lr_scheduler_kwargs: num_decay_steps={decay}"
    if not decay >= 0:
        raise ValueError(f"{given} is negative; use steps, or a share below 1")
    if decay < 1 and warmup < 1 and decay + warmup > 1:
        raise ValueError(f"{given} and warmup_steps={warmup} are shares of one training; use at most 1 together")
    warmup = training.get_warmup_steps(steps)
    decay = min(math.ceil(decay * steps), max(steps - warmup, 0)) if decay < 1 else int(decay)
    if warmup + decay > steps > 0:
        raise ValueError(
            f"{given}: {decay} steps of decay and {warmup} of warmup do not fit into the {steps}; use fewer"
        )
    counts = {"num_warmup_steps": warmup, "num_decay_steps": decay, "num_training_steps": steps}
    return {"decay_type": "1-sqrt"} | (training.lr_scheduler_kwargs or {}) | counts


def rate_factor(progress: float, warmup: float, decay: float | None = None) -> float:
    """The factor on the learning rate, by the share of the training done: a linear rise to 1 over the share `warmup`,
    then a linear fall to 0; with `decay` 1, and over the last share `decay` a fall to 0 as 1 - sqrt."""
    if progress < warmup:
        return progress / warmup
    if decay is None:
        return max(1 - progress, 0.0) / (1 - warmup)
    decayed = (progress - (1 - decay)) / decay if decay else 0.0
    return 1 - math.sqrt(min(max(decayed, 0.0), 1.0))


def rows_in_batch(size: int, warmed: float) -> int:
    """Rows of a batch whose full number is `size`, when the share `warmed` of the batch warmup is over: from an eighth
    of them (at least one) in equal jumps to all."""
    return max(1, math.floor(size * (FIRST_BATCH + (1 - FIRST_BATCH) * min(max(warmed, 0.0), 1.0))))
