"""What must hold for any encoder of Transformers, measured: packing, padding, losses, initialisation, precision.

    python benchmarks/audit.py --model BertForMaskedLM
    python benchmarks/audit.py --model BertForMaskedLM ModernBertForMaskedLM --checks padding packed

A model is a folder, a Hub name, or the name of a class of Transformers or MiniBERT, of which a tiny model is built. The
checks are the tests' own (`tests/encoder_checks.py`). Several models are columns of one table; what fails stands below.
"""

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from common import names_beginning_with, option, parse

from minibert.training.common.files import write_json
from minibert.training.common.printing import format_table
from minibert.training.common.random_state import random_state_kept
from minibert.training.loading.load_errors import suppress_logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from encoder_checks import CHECKS, Finding, examine, load


@dataclass
class Arguments:
    model: list[str] = option([], "Folders, Hub names or classes (BertForMaskedLM).")
    set: str = option("{}", "JSON: fields of the config of a class.")
    checks: list[str] = option([], "Names of the checks, or their beginnings; by default all.")
    output: str | None = option(None, "JSON file that the findings are written to.")


def main(arguments: Arguments) -> dict[str, list[Finding]]:
    """Measure, print a table; the findings by model, one a check."""
    chosen = names_beginning_with(arguments.checks, CHECKS)
    with random_state_kept(), suppress_logging():
        models = {name: load(name, json.loads(arguments.set)) for name in arguments.model}
        findings = {
            name: [examine(model, check) for check in chosen] for name, model in models.items()
        }
    rows = []
    for of_check in zip(*findings.values()):
        cells = ["" if each.measured is None else f"{each.measured:.1e}" for each in of_check]
        cells = [
            f"{cell} FAIL" if each.verdict == "fail" else cell
            for cell, each in zip(cells, of_check)
        ]
        rows.append((of_check[0].check, f"{of_check[0].limit:g}", *cells))
    print(format_table(("check", "limit", *findings), rows))
    for name, of_model in findings.items():
        for each in of_model:
            if each.verdict != "pass":
                print(f"{name}, {each.check}: {each.verdict} ({each.note})")
    if arguments.output:
        content = {name: [asdict(each) for each in of_model] for name, of_model in findings.items()}
        for each in (each for of_model in content.values() for each in of_model):
            if each["measured"] is not None and not math.isfinite(each["measured"]):
                each["measured"] = str(each["measured"])  # JSON has no word for it
        write_json(Path(arguments.output), content)
    return findings


if __name__ == "__main__":
    found = main(*parse(__doc__, Arguments))
    sys.exit(any(each.verdict == "fail" for of_model in found.values() for each in of_model))
