"""The built-in corpus: what is in it, what is left out, and that nothing is imported for it."""

import inspect
import json
import subprocess
import sys

import pytest

from minibert.training.data import builtin_corpus as corpus


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that cannot be imported, with docstrings of many kinds."""
    root = tmp_path / "installed" / "unimportable"
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").write_text(
        'r"""The package says what it is in one line.\n\n    An indented \\d line.\n    """\n'
        "raise RuntimeError('imported')\n"
        'class Thing:\n    """A thing that has a method, described at length."""\n\n'
        '    async def work(self):\n        """The method does its work and then gives it back."""\n'
        '        def inner():\n            "Functions inside functions are documented as well."\n'
        "def short():\n    'Too short.'\n",
        encoding="utf-8",
    )
    (root / "b.py").write_text('"""A thing that has a method, described at length."""\n')  # the same again
    (root / "latin.py").write_bytes(
        '# coding: latin-1\n"""Ein Café, in dem man recht lange sitzen könnte."""'.encode("latin-1")
    )
    (root / "lone.py").write_text(r'"""A lone surrogate \ud800 that no UTF-8 file could ever hold."""')
    (root / "escape.py").write_text('"""An invalid escape \\d warns, and the warning is nobody\'s concern."""')
    (root / "template.py").write_text(
        '"""A template that is no Python at all, with {{ braces }}."""\nclass {{ name }}:'
    )
    (root / "tests" / "test_it.py").write_text('"""A test module, which documents nothing for its users."""')
    monkeypatch.syspath_prepend(tmp_path / "installed")
    return "unimportable"


@pytest.fixture
def small_library(tmp_path, monkeypatch):
    """A standard library of one module, so that reading it takes no time."""
    (tmp_path / "library" / "test").mkdir(parents=True)
    (tmp_path / "library" / "site-packages").mkdir()
    for name in ("module.py", "test/skipped.py", "site-packages/skipped.py"):
        (tmp_path / "library" / name).write_text(f'"""The one docstring of the small library, in {name}."""')
    monkeypatch.setattr(corpus.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "library")})
    monkeypatch.setattr(corpus, "_language_reference", lambda: ["A topic of the language reference, long enough."])
    return ["A topic of the language reference, long enough.", "The one docstring of the small library, in module.py."]


def read(packages=()):
    return list(corpus.builtin_documents(corpus.builtin_files(packages)))


def test_size_and_content():
    documents = read()
    assert 5_000 < len(documents) < 12_000
    assert 1.5e6 < sum(len(document.encode()) for document in documents) < 4e6
    assert len(set(documents)) == len(documents)
    assert min(map(len, documents)) >= corpus.MIN_CHARACTERS
    # Against the docstrings that Python itself shows.
    for thing in (json, json.dumps, json.JSONDecoder, inspect.getdoc, subprocess.run):
        assert inspect.getdoc(thing) in documents
    assert any(document.startswith('The "while" statement\n') for document in documents)  # the language reference


def test_package_is_read_and_not_imported(package, small_library, recwarn):
    assert read() == small_library
    assert read([package]) == [
        *small_library,
        "The package says what it is in one line.\n\nAn indented \\d line.",
        "A thing that has a method, described at length.",
        "The method does its work and then gives it back.",
        "Functions inside functions are documented as well.",
        "An invalid escape \\d warns, and the warning is nobody's concern.",
        "Ein Café, in dem man recht lange sitzen könnte.",
        "A lone surrogate  that no UTF-8 file could ever hold.",
    ]
    assert package not in sys.modules
    assert not [warning for warning in recwarn if issubclass(warning.category, (SyntaxWarning, DeprecationWarning))]


def test_single_module(tmp_path, monkeypatch, small_library):
    (tmp_path / "lonely_module.py").write_text('"""One file is a package of its own, as far as this goes."""')
    monkeypatch.syspath_prepend(tmp_path)
    assert read(["lonely_module"])[-1] == "One file is a package of its own, as far as this goes."


@pytest.mark.parametrize("name", ["no_such_package", "no-such-name", "", "unimportable.b"])
def test_unknown_package(package, name):
    with pytest.raises(ValueError, match=f"packages.*'{name}'.*installed"):
        read([name])
    assert package not in sys.modules


def test_package_without_source():
    with pytest.raises(ValueError, match="packages.*'sys'.*no Python source"):
        read(["sys"])
