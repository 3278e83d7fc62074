"""The arguments of `minibert audit`; nothing here may import torch."""

from dataclasses import dataclass

from . import argument, to_mapping


@dataclass
class AuditArguments:
    """Measure what must hold for any encoder of Transformers: packing, padding, losses, initialisation, precision."""

    model: list[str] = argument(
        [], "A folder, a Hub name, or a class (BertForMaskedLM), built tiny; also without --model."
    )
    set: list[str] = argument([], "Fields of the config of a class, field=value (num_hidden_layers=2).")
    checks: list[str] = argument([], "Names of the checks, or their beginnings; by default all.")
    result: str | None = argument(None, "JSON file that the findings are written to.")

    def __post_init__(self):
        self.set = to_mapping("set", self.set)
