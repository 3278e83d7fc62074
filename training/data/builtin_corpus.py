"""The built-in corpus: the language reference in `pydoc_data.topics` and the docstrings of the
standard library's modules, classes and functions, found with `ast`, without importing the code that
they describe."""

import ast
import itertools
import os
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

BUILTIN = "the built-in corpus"  # its name, where data are described
# Test suites hold fixtures rather than documentation; site-packages may lie inside the standard
# library's folder.
SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
)
# Shorter docstrings ("Return True.") hold next to nothing to predict from.
MIN_CHARACTERS = 36
DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Docstrings stand in these; no docstring stands inside an expression.
NODES_TO_ENTER = (ast.stmt, ast.excepthandler, ast.match_case)


def builtin_files() -> list[Path]:
    """The source files of the standard library, sorted, without test suites."""
    sources: list[Path] = []
    for folder, folders, files in os.walk(sysconfig.get_paths()["stdlib"]):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for file in sorted(files):
            if file.endswith(".py"):
                sources.append(Path(folder, file))
    return sources


def builtin_documents(files: Iterable[Path]) -> Iterator[str]:
    """The language reference and the docstrings of `files`: dedented, at least `MIN_CHARACTERS`
    long, no two alike."""
    documents = itertools.chain(_language_reference(), *map(_docstrings, files))
    for document in dict.fromkeys(documents):
        if len(document) >= MIN_CHARACTERS:
            yield document


def _language_reference() -> list[str]:
    """The sections of the language reference that `help()` prints."""
    from pydoc_data.topics import topics

    return [topics[name].strip() for name in sorted(topics)]


def _docstrings(file: Path) -> Iterator[str]:
    """The docstrings of one source file from top to bottom; none if it does not parse (for example,
    a template)."""
    try:
        with warnings.catch_warnings():
            # a SyntaxWarning in other people's code is not our user's concern
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        docstring = None
        if isinstance(node, DOCUMENTED_NODES):
            docstring = ast.get_docstring(node)
        if docstring:
            # A docstring may spell lone surrogates ("\\ud800"), which no UTF-8 file can hold.
            yield docstring.encode("utf-8", "ignore").decode().strip()
        children = [
            child for child in ast.iter_child_nodes(node) if isinstance(child, NODES_TO_ENTER)
        ]
        nodes += reversed(children)  # the first one is taken next
