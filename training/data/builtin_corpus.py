"""The built-in corpus: the English documentation that lies in every Python installation.

Two sources, read without importing any of the code they describe: the language reference in `pydoc_data.topics`, and
the docstrings of the standard library's modules, classes and functions, found with `ast`. The docstrings of installed
packages can be added by name.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm.auto import tqdm

# Test suites hold fixtures rather than documentation; site-packages may lie inside the standard library's folder.
SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})

# Shorter docstrings ("Return True.") hold next to nothing to predict from.
MIN_CHARACTERS = 36


def builtin_documents(packages: Sequence[str] = ()) -> list[str]:
    """The documents of the built-in corpus, always in the same order for one Python installation.

    Args:
        packages: import names of installed top-level packages or modules whose docstrings are added. They are looked
            up and read, never imported.

    Returns:
        One string per document: dedented, at least `MIN_CHARACTERS` long, no two alike.

    Raises:
        ValueError: a package that is not installed or has no Python source, or a Python without documentation.
    """
    roots = [Path(sysconfig.get_paths()["stdlib"])]
    roots += [root for package in packages for root in _package_sources(package)]
    files = [file for root in roots for file in _python_files(root)]

    documents = dict.fromkeys(_language_reference())
    for file in tqdm(files, desc="Reading docstrings", unit=" files", delay=1, leave=False):
        documents.update(dict.fromkeys(_docstrings(file)))
    kept = [document for document in documents if len(document) >= MIN_CHARACTERS]
    if not kept:
        raise ValueError(
            f"the built-in corpus is empty: no Python sources in {roots[0]}; give your own text with --data"
        )
    return kept


def _language_reference() -> list[str]:
    """The sections of the language reference that `help()` prints; none where a distribution leaves them out."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    return [topics[name].strip() for name in sorted(topics)]


def _package_sources(name: str) -> list[Path]:
    """The folders (or the single file) of an installed top-level package."""
    # find_spec imports the parents of a dotted name, so only top-level names are looked up.
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None:
        raise ValueError(
            f"packages: no package {name!r} is installed here; legal: the import name of an installed top-level"
            " package, such as numpy"
        )
    if spec.submodule_search_locations is not None:
        roots = [Path(location) for location in spec.submodule_search_locations]
    else:
        roots = [Path(spec.origin or "")]
    if not any(_python_files(root) for root in roots):
        raise ValueError(f"packages: {name!r} has no Python source to read docstrings from ({spec.origin})")
    return roots


def _python_files(root: Path) -> list[Path]:
    """The `.py` files at or under `root`, sorted, without test suites."""
    if root.is_file():
        return [root] if root.suffix == ".py" else []
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        found += [Path(folder, file) for file in sorted(files) if file.endswith(".py")]
    return found


def _docstrings(file: Path) -> Iterator[str]:
    """The docstrings of one source file from top to bottom; none when it does not parse (a template, say)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a SyntaxWarning in other people's code is not our user's concern
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
        docstring = ast.get_docstring(node, clean=True)
        if docstring:
            # A docstring may spell lone surrogates ("\\ud800"), which no UTF-8 file can hold.
            yield docstring.encode("utf-8", "ignore").decode().strip()
