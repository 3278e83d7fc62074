"""The arguments of `minibert audit`; nothing here may import torch."""

from __future__ import annotations

from dataclasses import dataclass

from . import argument


@dataclass
class AuditArguments:
    """Measure what must hold for any encoder of Transformers: packing, padding, losses, initialisation, precision."""

    model: list[str] = argument(
        [], "A folder, a Hub name, or a class (BertForMaskedLM), of which a tiny one is built; also without --model."
    )
    fields: str = argument("{}", "Fields of the config of a class, as YAML: '{num_hidden_layers: 2}'.")
    checks: list[str] = argument([], "Names of the checks, or their beginnings; by default all.")
    result: str | None = argument(None, "JSON file that the findings are written to.")
