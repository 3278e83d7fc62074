"""`import minibert` in fresh processes: what it loads, when it registers, and what it hands on."""

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import CODE
from processes import Python

import minibert
from minibert.training.cli.options import import_object
from minibert.training.commands import COMMANDS

ROOT = Path(__file__).parents[2]


def test_the_import_is_light():
    """Neither torch nor Transformers, nor anything else that takes time to load."""
    code = """
        import sys
        import minibert
        print(minibert.__version__)
        heavy = {"torch", "transformers", "tokenizers", "datasets", "numpy", "huggingface_hub", "matplotlib"}
        print(*sorted(heavy & set(sys.modules)))
        print(*dir(minibert))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, loaded, names = done.stdout.splitlines()
    assert first == minibert.__version__ and loaded == ""
    assert set(minibert.__all__) <= set(names.split())


# What is imported first: `AutoConfig` is loaded without the Auto classes for models, `modeling_layers` (as every model
# does) loads them while it is only half there itself, and so do our own modules.
ORDERS = [
    "import minibert; from transformers import BertModel",
    "from transformers import AutoConfig; import minibert",
    "import minibert, importlib; importlib.reload(minibert); from transformers import BertModel",
    "import minibert, transformers",
    "from transformers import AutoModel; import minibert",
    "import minibert; from transformers import Trainer",
    "from minibert import MiniBertForMaskedLM",
    *(f"from minibert import {name.removesuffix('.py')}" for name in sorted(CODE)),
]

CHECK = """
    import transformers
    config = transformers.AutoConfig.for_model(
        "minibert", vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    assert type(config).__module__ == "minibert.configuration_minibert"
    from minibert.configuration_minibert import AUTO_MAP
    for name, reference in AUTO_MAP.items():
        if name != "AutoConfig":
            model = getattr(transformers, name).from_config(config)
            assert type(model).__module__ == "minibert.modeling_minibert"
            assert type(model).__name__ == reference.split(".")[1]
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_registration_whichever_is_imported_first(order, tmp_path):
    with Python(tmp_path) as python:
        python.run(order)
        python.run(CHECK)


@pytest.mark.slow
def test_plots_do_not_change_the_matplotlib_backend(tmp_path):
    with Python(tmp_path) as python:
        python.run("""
            import matplotlib
            matplotlib.use("svg")
            from minibert.training.evaluation.plots import picture
            with picture("a.png", "title") as axes:
                axes.plot([1, 2])
            assert matplotlib.get_backend() == "svg" and open("a.png", "rb").read(4) == b"\\x89PNG"
        """)


@pytest.mark.slow  # test_saving.py reads what is saved
def test_a_model_saves_its_code_without_any_auto_class(tmp_path):
    with Python(tmp_path) as python:
        python.run("""
            from minibert import MiniBertConfig, MiniBertModel
            config = MiniBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
            MiniBertModel(config).save_pretrained("saved")
        """)
    assert {file.name for file in (tmp_path / "saved").glob("*.py")} == CODE


def test_public_names():
    """Each is there, is what its module defines, and a misspelt one is an AttributeError that says so."""
    for name in minibert.__all__:
        assert getattr(minibert, name) is not None
    from minibert import configuration_minibert, modeling_minibert

    assert minibert.MiniBertConfig is configuration_minibert.MiniBertConfig
    for name in modeling_minibert.__all__:
        assert getattr(minibert, name) is getattr(modeling_minibert, name)
    with pytest.raises(AttributeError, match="has no attribute 'MiniBertForMaskedLm'"):
        minibert.MiniBertForMaskedLm  # noqa: B018


def test_every_folder_is_installed():
    """pyproject.toml lists the packages, since the root is one under another name."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r'^    "(minibert[\w.]*)",$', text, re.MULTILINE)
    folders = (file.parent.relative_to(ROOT).parts for file in ROOT.rglob("__init__.py"))
    ours = (parts for parts in folders if not parts or parts[0] in ("tokenization", "training"))
    assert set(listed) == {".".join(("minibert", *parts)) for parts in ours}


def test_every_class_that_help_or_docs_name_can_be_imported():
    """Of our classes."""
    ours = set()
    for file in [
        *ROOT.glob("training/**/*.py"),
        *ROOT.glob("*_minibert.py"),
        *ROOT.glob("tokenization/*.py"),
    ]:
        ours |= set(
            re.findall(r"^class ([A-Z]\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        )
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    texts += [inspect.getdoc(getattr(minibert, name)) or "" for name in minibert.__all__]
    functions = [import_object(command.function) for command in COMMANDS.values()]
    texts += [inspect.getdoc(function) for function in functions]  # the help of commands
    named = set(re.findall(r"\b[A-Z]\w+", " ".join(re.findall(r"`([^`\n]+)`", " ".join(texts)))))
    assert named & ours - set(minibert.__all__) == set()


def test_a_misspelt_name_is_answered_by_close_matches():
    with pytest.raises(
        AttributeError, match="'MiniBertForMaskedLm'; close matches: MiniBertForMaskedLM"
    ):
        minibert.MiniBertForMaskedLm  # noqa: B018


def test_results_are_printed_in_a_line():
    model = minibert.MiniBertModel(minibert.MiniBertConfig.bert("tiny", vocab_size=9))
    result = minibert.TrainingResult(model, None, {"validation_loss": 2.0}, Path("runs/x"))
    expected = "TrainingResult(MiniBertModel, output_dir='runs/x', report: validation_loss)"
    assert repr(result) == expected.replace("/", os.sep)
    assert repr(minibert.TrainingResult(None, None)).endswith("report: empty)")
