"""Which arguments count only beside others: what is given and would do nothing is rejected."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ..arguments.pretraining import MaskingArguments, TokenizerArguments


@dataclasses.dataclass(frozen=True)
class Condition:
    """Arguments that have an effect only where another one, the switch, has certain values.

    Attributes:
        arguments: their names.
        switch: the name of the other.
        holds: whether they have an effect, by the value of the switch.
        where: the values of the switch with which they have, in words.
    """

    arguments: tuple[str, ...]
    switch: str
    holds: Callable[[Any], bool]
    where: str


def _fields(arguments: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(arguments))


def _with(switch: str, *arguments: str) -> Condition:
    return Condition(arguments, switch, bool, f"with --{switch}")


def _without(switch: str, *arguments: str) -> Condition:
    return Condition(arguments, switch, lambda value: not value, f"without --{switch}")


def _with_objective(names: tuple[str, ...], *arguments: str) -> Condition:
    return Condition(arguments, "objective", names.__contains__, f"with --objective {', '.join(names)}")


OF_A_NEW_TOKENIZER = (*_fields(TokenizerArguments), "sample_documents")

CORPUS_CONDITIONS = (_with("data", "text_column", "sample_by"), _without("data", "packages"))

SOURCE_CONDITIONS = (
    *CORPUS_CONDITIONS,
    _with("streaming", "shuffle_buffer", "sample_documents"),
    Condition(("weights", "sampling_alpha"), "data", lambda data: len(data) > 1, "with several entries of --data"),
)

PRETRAIN_CONDITIONS = (
    *SOURCE_CONDITIONS,
    _with_objective(("mlm+nsp",), "short_seq_prob"),
    _with_objective(("rtd",), "generator_size", "discriminator_weight", "generator_temperature"),
    _with_objective(("mlm", "mlm+nsp", "rtd"), *_fields(MaskingArguments)),
    _with_objective(("mlm", "rtd", "clm"), "packing", "num_proc"),
    _without("streaming", "num_proc"),
    _without("tokenizer", *OF_A_NEW_TOKENIZER),
    _without("model_name_or_path", *OF_A_NEW_TOKENIZER, "model", "size"),
)


def reject_unused(
    conditions: Iterable[Condition], values: Mapping[str, Any], given: Collection[str], recipe: Collection[str] = ()
) -> None:
    """Reject arguments that were given and have no effect.

    What is given beside a recipe wins over it: where that is the switch, keys of the recipe may do nothing
    (`--recipe modern --model_name_or_path …` needs none of its tokenizer).

    Args:
        values: of all arguments.
        given, recipe: the names of those that the command line (or the Python call) and the recipe give.

    Raises:
        ValueError: names the argument, its value, and where it has an effect.
    """
    for condition in conditions:
        switch = values[condition.switch]
        if condition.holds(switch):
            continue
        unused = {*given} if condition.switch in given else {*given, *recipe}
        for name in condition.arguments:
            if name in unused:
                text = " ".join(switch) if isinstance(switch, list) else switch
                here = f"with --{condition.switch} {text}" if switch else f"without --{condition.switch}"
                raise ValueError(f"{name}: {values[name]!r} has no effect {here}; use it {condition.where}")
