"""The notebooks of docs/notebooks run, and are saved with what they print and draw."""

import ast
import base64
import contextlib
import io
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/-])/(?:home|root|tmp|usr|opt|var|work|mnt|Users)/|[A-Z]:\\\\"
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_notebook
def test_is_saved_with_outputs(path):
    """All cells were run in order, without errors and warnings, and there are two small pictures or more."""
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    pictures = [
        output.data["image/png"] for output in outputs if "image/png" in output.get("data", ())
    ]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [
        output
        for output in outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert (
        len(pictures) >= 2 and max(len(base64.b64decode(picture)) for picture in pictures) <= 60_000
    )
    text = path.read_text(encoding="utf-8")
    assert len(text) <= 400_000 and not ABSOLUTE_PATH.search(text)


@each_notebook
def test_exercises_are_unsolved_and_their_solutions_right(path):
    """A gap says "not yet"; the last line that its solution prints is "right"."""
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    asked = [number for number, cell in enumerate(cells) if cell.source.startswith("answer = None")]
    for number in asked:
        gap, solution = cells[number], cells[number + 1]
        assert "".join(output.text for output in gap.outputs) == "not yet\n"
        assert "hide-input" in solution.metadata.tags
        printed = "".join(output.text for output in solution.outputs)
        assert printed.splitlines()[-1] == "right"


@each_notebook
def test_check_answers_any_type(path):
    """An answer that its judge cannot read gets a sentence, and no traceback."""
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    sources = [cell.source for cell in cells if "def exercise(judge)" in cell.source]
    if not sources:  # its checks are in a module, which imports this one
        sources = [(FOLDER / "course.py").read_text(encoding="utf-8")]
    (source,) = sources
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    (exercise,) = [node for node in functions if node.name == "exercise"]
    namespace = {}
    exec(ast.unparse(exercise), namespace)
    check = namespace["exercise"](lambda number: None if number > 0 else "too small")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for answer in (None, 1, 0, "one"):
            check(answer)
    first_lines = printed.getvalue().splitlines()[:3]
    assert first_lines == ["not yet", "right", "too small"]
    assert "TypeError" in printed.getvalue().splitlines()[3]


@each_notebook
def test_is_linked(path):
    """The page of the notebooks shows one picture of each, which the notebook draws."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    picture = f"{path.stem}.png"
    assert f"({path.name})" in page and f"({picture})" in page
    assert (FOLDER / picture).stat().st_size <= 60_000 and picture in path.read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", ["errata.md", "README.md"])
def test_pages_print_what_they_say(name):
    page = (FOLDER / name).read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert snippets
    for snippet in snippets:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(snippet, {})
        expected = re.findall(r"^#> (.*)$", snippet, re.MULTILINE)
        assert printed.getvalue().splitlines() == expected


@pytest.mark.slow
@each_notebook
def test_runs(path, tmp_path, monkeypatch):
    """With the small sizes and no data, in folders with the files that the notebooks read."""
    monkeypatch.setenv("MINIBERT_QUICK", "1")
    monkeypatch.delenv("MINIBERT_DATA", raising=False)
    folder = tmp_path / "docs" / "notebooks"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("*.ipynb", "*.png", "runs"))
    for name in ("results/pooling.json", "table_losses.py", "toy_world.py"):
        copied = tmp_path / "benchmarks" / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FOLDER.parents[1] / "benchmarks" / name, copied)
    where = {"metadata": {"path": os.fspath(folder)}}
    NotebookClient(
        nbformat.read(path, 4), timeout=300, kernel_name="python3", resources=where
    ).execute()
