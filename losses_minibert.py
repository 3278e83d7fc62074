# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""From logits and labels to a loss, averaged over all steps of gradient accumulation.

With gradient accumulation, a batch is cut into micro-batches. `Trainer` counts the targets of all
of them, passes the number as `num_items_in_batch`, and adds the losses up. So each loss here is a
sum over the targets of a micro-batch, divided by that number. Without it, the sum is divided by the
number of targets at hand.

Shape suffixes are those of `modeling_minibert.py`.
"""

import torch
from torch.nn import functional as F
from transformers.configuration_utils import PreTrainedConfig

from .compat_minibert import at_least_fp32
from .cpu_minibert import sum_cross_entropy
from .sequences_minibert import BatchTokens, find_out_of_range

# --- the number of targets ---


def mean_loss(
    loss_sum: torch.Tensor,
    num_targets: int | torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None,
) -> torch.Tensor:
    """Divide the sum of the losses of a micro-batch by its number of targets, or by that of all
    steps of gradient accumulation (`Trainer` passes it, and then does not divide the loss itself).
    Without any target the loss is 0."""
    total = num_targets if num_items_in_batch is None else num_items_in_batch
    return loss_sum / at_least_one(total, loss_sum.device)


def at_least_one(num_targets: int | torch.Tensor, device: torch.device) -> int | torch.Tensor:
    """What a sum over that many targets is divided by: 1 if there are none."""
    if isinstance(num_targets, torch.Tensor):
        return num_targets.to(device).clamp(min=1)
    return max(num_targets, 1)


def scale_by_targets(
    loss: torch.Tensor, labels: torch.Tensor, num_items_in_batch: int | torch.Tensor | None
) -> torch.Tensor:
    """Scale the mean loss of a micro-batch by its share of the targets of an optimizer step, so
    that the scaled losses of its micro-batches add up to a mean over the step.

    Args:
        labels: those that `Trainer` counts; -100 is no target.
        num_items_in_batch: what it counted over all micro-batches; None: there is only this one.
    """
    if num_items_in_batch is None:
        return loss
    num_targets = (labels != -100).sum()
    return loss * num_targets / at_least_one(num_items_in_batch, loss.device)


def count_all_targets(
    tokens: BatchTokens,
    num_items_in_batch: int | torch.Tensor | None,
    labels_bs: torch.Tensor | None,
    labels_t: torch.Tensor | None,
    shift: bool = False,
) -> int | torch.Tensor | None:
    """Return the number of targets to average the loss over, in all steps of gradient accumulation:
    `num_items_in_batch` without those that `tokens.unpad_labels` ignores.

    Only the labels of this step are at hand, so it is assumed that the other steps ignore as large
    a share of theirs.

    Args:
        tokens: the tokens of the batch.
        num_items_in_batch: what `Trainer` counted over all steps: labels that are not -100, with
            `shift` without the first column. None: there is only this step, whose loss counts
            itself.
        labels_bs, labels_t: what `unpad_labels` takes, and what it returns.
        shift: as for `unpad_labels`.
    """
    may_ignore = shift or tokens.batch.real_bs is not None
    if num_items_in_batch is None or labels_bs is None or not may_ignore:
        return num_items_in_batch
    counted_bs = labels_bs[:, 1:] if shift else labels_bs
    num_counted = (counted_bs != -100).sum()
    num_ignored = num_counted - (labels_t != -100).sum()
    num_items = torch.as_tensor(num_items_in_batch, device=num_counted.device)
    return num_items - num_ignored * num_items // num_counted.clamp(min=1)


# --- the losses ---


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None = None,
    ignore_index: int = -100,
) -> torch.Tensor:
    """The mean cross-entropy of [targets, classes], in fp32 (or fp64), without the labels
    `ignore_index`. On CPU, a label that is no class is a ValueError."""
    labels = labels.to(logits.device)
    if labels.shape != logits.shape[:1] or labels.dtype not in (torch.long, torch.int):
        raise ValueError(
            f"labels: {labels.dtype} of the shape {tuple(labels.shape)} for {len(logits)} "
            "predictions; use torch.long, one for each"
        )
    labels = labels.long()
    is_target = labels != ignore_index
    num_classes = logits.shape[1]
    invalid_label = find_out_of_range(labels.masked_fill(~is_target, 0), num_classes)
    if invalid_label is not None:
        raise ValueError(
            f"labels: {invalid_label} is not a class; use 0 to {num_classes - 1}, or "
            f"{ignore_index} for none"
        )
    loss_sum = sum_cross_entropy(logits, labels, ignore_index)
    return mean_loss(loss_sum, is_target.sum(), num_items_in_batch)


def next_sentence_loss(
    logits_n2: torch.Tensor,
    next_sentence_label: torch.Tensor,
    num_rows_in_batch: int | torch.Tensor | None,
    labels: torch.Tensor | None,
    num_items_in_batch: int | torch.Tensor | None,
) -> torch.Tensor:
    """The mean cross-entropy of BERT's second objective.

    Args:
        logits_n2: [rows, 2].
        next_sentence_label: [rows] or [rows, 1].
        num_rows_in_batch: the rows over all micro-batches.
        labels, num_items_in_batch: the labels of the first objective, if there are any, and what
            `Trainer` counted over all micro-batches. Without `num_rows_in_batch`, this micro-batch
            has a share of the rows of the step that is its share of these.
    """
    loss = cross_entropy(logits_n2, next_sentence_label.view(-1), num_rows_in_batch)
    if num_rows_in_batch is not None:
        return loss
    counted_labels = next_sentence_label if labels is None else labels
    return scale_by_targets(loss, counted_labels, num_items_in_batch)


def choose_problem_type(config: PreTrainedConfig, labels: torch.Tensor) -> str:
    """`config.problem_type`. If that is None, it is set from the number of labels and the type of
    these labels, as in Transformers."""
    if config.problem_type is None:
        if config.num_labels == 1:
            config.problem_type = "regression"
        elif labels.dtype in (torch.long, torch.int):
            config.problem_type = "single_label_classification"
        else:
            config.problem_type = "multi_label_classification"
    return config.problem_type


def classification_loss(
    config: PreTrainedConfig,
    logits_nc: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None = None,
) -> torch.Tensor:
    """The loss of regression, single-label or multi-label classification, see
    `choose_problem_type`."""
    problem_type = choose_problem_type(config, labels)
    if problem_type == "single_label_classification":
        return cross_entropy(logits_nc, labels.view(-1), num_items_in_batch)
    losses = {
        "regression": F.mse_loss,
        "multi_label_classification": F.binary_cross_entropy_with_logits,
    }
    if problem_type not in losses:
        raise ValueError(
            f"problem_type={problem_type!r}: use single_label_classification, {', '.join(losses)}"
        )
    logits_nc = at_least_fp32(logits_nc)
    if labels.numel() != logits_nc.numel() or labels.shape[:1] not in ((), logits_nc.shape[:1]):
        raise ValueError(
            f"labels: {labels.dtype}, of the shape {tuple(labels.shape)}, for "
            f"problem_type={problem_type!r}; use {tuple(logits_nc.shape)}"
        )
    labels = labels.to(logits_nc).view(logits_nc.shape)
    loss_sum = losses[problem_type](logits_nc, labels, reduction="sum")
    return mean_loss(loss_sum, labels.numel(), num_items_in_batch)


def detection_loss(
    logits_t: torch.Tensor,
    labels_t: torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None,
) -> torch.Tensor:
    """The mean binary cross-entropy of the tokens whose label is not -100."""
    labels_t = labels_t.to(logits_t.device)
    is_target = labels_t != -100
    logits_t = at_least_fp32(logits_t)
    targets = labels_t.clamp(min=0).to(logits_t)
    loss_sum = F.binary_cross_entropy_with_logits(
        logits_t, targets, weight=is_target.to(logits_t), reduction="sum"
    )
    return mean_loss(loss_sum, is_target.sum(), num_items_in_batch)


def answer_loss(
    logits_bs: torch.Tensor,
    column_b: torch.Tensor,
    real_bs: torch.Tensor | None,
    num_items_in_batch: int | torch.Tensor | None,
) -> torch.Tensor:
    """The mean cross-entropy of the columns where answers start, or where they end.

    A column on padding or beyond the row is ignored; one below 0 counts as column 0.

    Args:
        logits_bs: [batch, length], the score of each column.
        column_b: [batch] or [batch, 1].
        real_bs: [batch, length], True at real tokens; None: there is no padding.
    """
    length = logits_bs.shape[1]
    column_b = column_b.view(-1).clamp(0, length)  # `length` stands for "ignored"
    if real_bs is not None:
        column_b = column_b.to(real_bs.device)
        real_b = F.pad(real_bs, (0, 1)).gather(1, column_b.unsqueeze(1)).squeeze(1)
        column_b = column_b.masked_fill(~real_b, length)
    return cross_entropy(logits_bs, column_b, num_items_in_batch, ignore_index=length)
