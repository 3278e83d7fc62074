"""Which arguments count only beside others: what is given and would do nothing is refused."""

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
        legal: the values of the switch with which they have, in words.
    """

    arguments: tuple[str, ...]
    switch: str
    holds: Callable[[Any], bool]
    legal: str


def _fields(arguments: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(arguments))


OF_A_NEW_TOKENIZER = (*_fields(TokenizerArguments), "sample_documents")

CORPUS_CONDITIONS = (
    Condition(("text_column", "sample_by"), "data", bool, "with --data"),
    Condition(("packages",), "data", lambda entries: not entries, "without --data"),
)

SOURCE_CONDITIONS = (
    *CORPUS_CONDITIONS,
    Condition(("shuffle_buffer", "sample_documents"), "streaming", bool, "with --streaming"),
    Condition(
        ("weights", "sampling_alpha"), "data", lambda entries: len(entries) > 1, "with several entries of --data"
    ),
)

PRETRAIN_CONDITIONS = (
    *SOURCE_CONDITIONS,
    Condition(("short_seq_prob",), "objective", lambda name: name == "mlm+nsp", "with --objective mlm+nsp"),
    Condition(
        ("generator_size", "discriminator_weight", "generator_temperature"),
        "objective",
        lambda name: name == "rtd",
        "with --objective rtd",
    ),
    Condition(_fields(MaskingArguments), "objective", lambda name: name != "clm", "with --objective mlm, mlm+nsp, rtd"),
    Condition(("packing", "num_proc"), "objective", lambda name: name != "mlm+nsp", "with --objective mlm, rtd, clm"),
    Condition(("num_proc",), "streaming", lambda streams: not streams, "without --streaming"),
    Condition(OF_A_NEW_TOKENIZER, "tokenizer", lambda name: name is None, "without --tokenizer"),
    Condition(
        (*OF_A_NEW_TOKENIZER, "model", "size"),
        "model_name_or_path",
        lambda name: name is None,
        "without --model_name_or_path",
    ),
)


def refuse_idle(
    conditions: Iterable[Condition], values: Mapping[str, Any], line: Collection[str], recipe: Collection[str] = ()
) -> None:
    """Refuse arguments that were given and have no effect.

    What stands on the command line wins over a recipe: where the switch stands there, keys of the recipe may do
    nothing (`--recipe modern --model_name_or_path …` needs none of its tokenizer).

    Args:
        values: of all arguments.
        line, recipe: the names of those that the command line and the recipe give.

    Raises:
        ValueError: naming the argument, its value, and where it has an effect.
    """
    for condition in conditions:
        switch = values[condition.switch]
        if condition.holds(switch):
            continue
        given = {*line} if condition.switch in line else {*line, *recipe}
        for name in condition.arguments:
            if name in given:
                text = " ".join(switch) if isinstance(switch, list) else switch
                where = f"with --{condition.switch} {text}" if switch else f"without --{condition.switch}"
                raise ValueError(f"{name}: {values[name]!r} has no effect {where}; legal: {condition.legal}")
