"""The road of a text: few files, in the order that docs/design.md names, and few steps back."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_road_is_short_and_documented():
    script = [sys.executable, str(ROOT / "benchmarks" / "road.py")]
    said = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    road = re.findall(r"^ +\d+  (\S+) \(\d+\)$", said, re.MULTILINE)
    files, steps_back = map(int, re.search(r"(\d+) files, (\d+) steps back", said).groups())
    assert files == len(road) <= 16 and steps_back <= 3
    page = (ROOT / "docs" / "design.md").read_text()
    table = page.split("## Reading order\n")[1].split("\n## ")[0].partition("| step |")[2]
    documented = re.findall(r"`([a-z_/]+\.py)`", table)
    # The last row names the model files together.
    assert any(file.endswith("_minibert.py") for file in road)
    assert set(documented) == {file for file in road if not file.endswith("_minibert.py")}


def test_reading_text_imports_no_pictures_and_no_metrics():
    modules = "matplotlib", "seqeval", "sklearn.metrics", "minibert.training.evaluation"
    code = "import minibert.training.data.mixtures, minibert.training.data.prepared, sys;"
    code += f"print([name for name in {modules!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
