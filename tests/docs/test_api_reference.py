"""The API reference (docs/api, mkdocs.yml) has all that `import minibert` offers."""

import importlib
import re
from pathlib import Path

import minibert

ROOT = Path(__file__).parents[2]


def test_every_public_name_has_an_entry_that_exists():
    documented = set()
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for reference in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE):
            module_name, _, name = reference.rpartition(".")
            assert hasattr(importlib.import_module(module_name), name), reference
            documented.add(name)
    assert set(minibert.__all__) - {"__version__"} <= documented


def test_every_page_is_in_the_navigation():
    navigation = re.findall(r"^  - ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(navigation) == sorted(page.name for page in (ROOT / "docs" / "api").glob("*.md"))
