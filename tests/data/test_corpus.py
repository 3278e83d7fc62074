"""The built-in corpus: what is in it, what is left out, and that nothing is imported for it."""

import inspect
import json
import subprocess

import pytest

from minibert.training.data import builtin_corpus as corpus


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A standard library that cannot be imported, with docstrings of many kinds."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "a.py").write_text(
        'r"""The module says what it is in one line.\n\n    An indented \\d line.\n    """\n'
        "raise RuntimeError('imported')\n"
        'class Thing:\n    """A thing that has a method, described at length."""\n\n'
        '    async def work(self):\n        """The method does its work and then gives it back."""\n'
        '        def inner():\n            "Functions inside functions are documented as well."\n'
        "def short():\n    'Too short.'\n",
        encoding="utf-8",
    )
    (tmp_path / "b.py").write_text(
        '"""A thing that has a method, described at length."""\n'
    )  # the same again
    (tmp_path / "escape.py").write_text(
        '"""An invalid escape \\d warns, and the warning is nobody\'s concern."""'
    )
    (tmp_path / "latin.py").write_bytes(
        '# coding: latin-1\n"""Ein Café, in dem man recht lange sitzen könnte."""'.encode("latin-1")
    )
    (tmp_path / "lone.py").write_text(
        r'"""A lone surrogate \ud800 that no UTF-8 file could ever hold."""'
    )
    (tmp_path / "template.py").write_text(
        '"""A template that is no Python, with {{ braces }}."""\nclass {{ name }}:'
    )
    for name in ("tests/test_it.py", "site-packages/other.py"):
        (tmp_path / name).write_text(
            '"""A module that documents nothing of the library for its users."""'
        )
    monkeypatch.setattr(corpus.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setattr(
        corpus, "_language_reference", lambda: ["A topic of the language reference, long enough."]
    )


def read():
    return list(corpus.builtin_documents(corpus.builtin_files()))


@pytest.mark.slow  # it parses the standard library
def test_size_and_content():
    documents = read()
    assert 5_000 < len(documents) < 12_000
    assert 1.5e6 < sum(len(document.encode()) for document in documents) < 4e6
    assert len(set(documents)) == len(documents)
    assert min(map(len, documents)) >= corpus.MIN_CHARACTERS
    # Against the docstrings that Python itself shows.
    for thing in (json, json.dumps, json.JSONDecoder, inspect.getdoc, subprocess.run):
        assert inspect.getdoc(thing) in documents
    assert any(
        document.startswith('The "while" statement\n') for document in documents
    )  # the language reference


def test_files_are_read_and_not_imported(library, recwarn):
    assert read() == [
        "A topic of the language reference, long enough.",
        "The module says what it is in one line.\n\nAn indented \\d line.",
        "A thing that has a method, described at length.",
        "The method does its work and then gives it back.",
        "Functions inside functions are documented as well.",
        "An invalid escape \\d warns, and the warning is nobody's concern.",
        "Ein Café, in dem man recht lange sitzen könnte.",
        "A lone surrogate  that no UTF-8 file could ever hold.",
    ]
    assert not [
        warning
        for warning in recwarn
        if issubclass(warning.category, (SyntaxWarning, DeprecationWarning))
    ]
