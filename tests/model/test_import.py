"""`import minibert` in fresh processes: what it loads, when it registers, and what it hands on."""

import subprocess
import sys
import textwrap

import pytest

import minibert


def run(code: str) -> str:
    """What a fresh Python prints."""
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_import_is_light():
    """Neither torch nor Transformers, nor anything else that takes time to load."""
    code = """
        import sys
        import minibert
        heavy = {"torch", "transformers", "tokenizers", "datasets", "numpy"}
        print(minibert.__version__, *sorted(heavy & set(sys.modules)))
        print(*dir(minibert))
    """
    first, names = run(code).splitlines()
    assert first == minibert.__version__
    assert set(minibert.__all__) <= set(names.split())


IS_REGISTERED = """
    config = transformers.AutoConfig.for_model(
        "minibert", vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    assert type(config).__module__ == "minibert.configuration_minibert", type(config)
    from minibert.configuration_minibert import AUTO_MAP
    for name, reference in AUTO_MAP.items():
        if name != "AutoConfig":
            model = getattr(transformers, name).from_config(config)
            assert type(model).__module__ == "minibert.modeling_minibert"
            assert type(model).__name__ == reference.split(".")[1]
    print("registered")
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import minibert, transformers",
        "import transformers, minibert",
        "from transformers import AutoModel; import transformers, minibert",
        "from transformers import AutoConfig; import transformers, minibert",
        "import minibert; from transformers import AutoModelForMaskedLM; import transformers",
        "import minibert; from minibert import MiniBertForMaskedLM; import transformers",
        "from minibert.configuration_minibert import MiniBertConfig; import transformers",
    ],
)
def test_registration_whichever_is_imported_first(imports):
    """`AutoConfig` first: it is loaded without the Auto classes for models."""
    assert run(imports + textwrap.dedent(IS_REGISTERED)).strip() == "registered"


def test_a_model_saves_its_code_without_any_auto_class(tmp_path):
    code = f"""
        from minibert import MiniBertConfig, MiniBertModel
        config = MiniBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        MiniBertModel(config).save_pretrained({str(tmp_path)!r})
    """
    run(code)
    files = {"configuration_minibert.py", "attention_minibert.py", "modeling_minibert.py"}
    assert {file.name for file in tmp_path.glob("*.py")} == files


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
