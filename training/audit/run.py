"""`minibert audit`: what must hold for any encoder of Transformers, measured."""

import difflib
import math
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ... import modeling_minibert
from ..arguments import names_that_begin
from ..arguments.tools import AuditArguments
from ..files import prepare_result, write_result
from ..loading import quietly, random_state_kept, reading, saved_config
from ..report import format_table
from .checks import CHECKS
from .texts import NotApplicable


@dataclass
class Finding:
    check: str
    truth: str
    measured: float | None  # None: not applicable
    limit: float
    verdict: str  # "pass", "fail" or "not applicable"
    note: str


@dataclass
class Audit:
    """What was found. `exit_status` is that of the command: 1 if anything fails."""

    model: str
    class_name: str
    versions: dict[str, str]
    day: str
    findings: list[Finding]

    @property
    def failed(self) -> list[str]:
        return [finding.check for finding in self.findings if finding.verdict == "fail"]

    @property
    def exit_status(self) -> int:
        return int(bool(self.failed))

    def table(self) -> str:
        """Aligned text, a finding a line."""
        rows = [(each.check, "" if each.measured is None else f"{each.measured:.1e}", f"{each.limit:g}", each.verdict,
                 each.note) for each in self.findings]  # fmt: skip
        return format_table(("check", "measured", "limit", "verdict", "where, or why not"), rows)


def audit(arguments: AuditArguments) -> Audit:
    """Measure a model by every check; print a table.

    Raises:
        ValueError: not one model, an unknown class or check; before any work.
    """
    if len(arguments.model) != 1:
        raise ValueError(f"model: {arguments.model!r}; give one: a folder, a Hub name or a class")
    chosen = names_that_begin("checks", arguments.checks, CHECKS)
    prepare_result(arguments.result)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    with random_state_kept(), quietly():
        model = load(arguments.model[0], arguments.set)
        findings = [examine(model, name) for name in chosen]
    result = Audit(arguments.model[0], type(model).__name__, versions, date.today().isoformat(), findings)
    print(result.table())
    content = asdict(result) | {"failed": result.failed}
    for each in content["findings"]:
        if each["measured"] is not None and not math.isfinite(each["measured"]):
            each["measured"] = str(each["measured"])  # JSON has no word for it
    write_result(content, arguments.result)
    return result


def examine(model: PreTrainedModel, name: str) -> Finding:
    """One check of a model; an exception in it is a failure."""
    check = CHECKS[name]
    try:
        measured, note = check.measure(model)
    except NotApplicable as reason:
        return Finding(name, check.truth, None, check.limit, "not applicable", str(reason))
    except Exception as error:
        measured, note = math.inf, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    model.zero_grad()
    verdict = "pass" if measured <= check.limit else "fail"
    return Finding(name, check.truth, measured, check.limit, verdict, note)


# A class's own defaults otherwise; weights large enough for everything to show.
TINY = dict(vocab_size=96, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
            intermediate_size=64, hidden_dim=64, embedding_size=64, max_position_embeddings=64, local_attention=8,
            attention_window=8, initializer_range=0.2)  # fmt: skip


def load(name: str, given: dict[str, Any] | None = None) -> PreTrainedModel:
    """A saved model, or a tiny random one of a class; in fp32, without dropout.

    Args:
        given: fields of the config of a class.
    """
    model_class, saved = _class(name), False
    if model_class is not None:
        config = tiny_config(model_class.config_class, given or {})
    elif given:
        raise ValueError(f"set: {given!r} is for a class, not for the saved model {name!r}; leave it out")
    else:
        config, saved = saved_config(name), True
        model_class = _class((config.architectures or ["none"])[0])
        if model_class is None:
            raise ValueError(f"model: {name!r} is a {config.architectures}, a class that Transformers does not have")
    for field_name, value in list(vars(config).items()):
        if "drop" in field_name and type(value) in (int, float):
            setattr(config, field_name, 0.0)
    if saved:
        with reading(name):
            return model_class.from_pretrained(name, config=config, dtype=torch.float32)
    torch.manual_seed(0)
    return model_class(config).eval()


def _class(name: str) -> type[PreTrainedModel] | None:
    """The class of this name, if it is the name of one."""
    if Path(name).exists() or not name.isidentifier() or name == name.lower():
        return None
    found = getattr(modeling_minibert, name, None) or getattr(transformers, name, None)
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        known = [each for each in (*modeling_minibert.__all__, *dir(transformers)) if "For" in each or "Model" in each]
        matches = difflib.get_close_matches(name, {*known} - {name}) or ["BertForMaskedLM"]
        raise ValueError(f"model: {name!r} is no model of Transformers or MiniBERT; use one like {', '.join(matches)}")
    return found


def tiny_config(config_class: type[PreTrainedConfig], given: dict[str, Any]) -> PreTrainedConfig:
    known, aliases = [each.name for each in fields(config_class)], config_class.attribute_map
    given = {aliases.get(key, key): value for key, value in given.items()}
    chosen = {aliases.get(key, key): value for key, value in TINY.items() if aliases.get(key, key) in known}
    # what is None or 0 stays it
    special = [name for name in known if name.endswith("_token_id") and getattr(config_class, name, None)]
    chosen |= {name: i for i, name in enumerate(special, 1)}
    config = config_class(**chosen | given)
    for name in given.keys() & vars(config).keys() - {*known}:  # Transformers keeps it; some code reads such names
        if matches := difflib.get_close_matches(name, known):
            raise ValueError(f"set: {config_class.__name__} has no field {name!r}; use one like {', '.join(matches)}")
    return config
