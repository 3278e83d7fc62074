"""What runs on other people's machines: the syntax tree of the files that go to the Hub."""

import ast
import textwrap
from pathlib import Path

import pytest
from helpers import CODE
from transformers.dynamic_module_utils import get_imports, get_relative_import_files

ROOT = Path(__file__).parents[2]
FILES = sorted(CODE)
# Python's own modules that reach nothing outside.
HARMLESS = {
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "difflib",
    "functools",
    "math",
    "typing",
}
# Transformers itself needs huggingface_hub; of that, nothing else may be imported.
FROM_HUB = "huggingface_hub.dataclasses"
ALLOWED = HARMLESS | {"torch", "transformers"}
SIBLINGS = {Path(name).stem for name in FILES}
NEVER_CALLED = {
    "open", "exec", "eval", "compile", "__import__", "input", "breakpoint", "globals", "vars",
    "import_module", "system", "popen", "Popen", "run", "urlopen", "request", "connect", "socket", "load", "save",
    "read_text", "write_text", "read_bytes", "write_bytes", "unlink", "rmtree", "remove", "rename", "mkdir", "hub",
    "hf_hub_download", "snapshot_download", "cached_file", "from_pretrained", "load_state_dict_from_url",
    "get_kernel", "load_inline", "load_library",
}  # fmt: skip
# Names that would reach the same without a call of that name.
NEVER_NAMED = {
    "__builtins__", "__globals__", "__subclasses__", "__loader__", "environ", "getenv", "subprocess", "os", "sys",
}  # fmt: skip


def tree_of(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def findings(tree: ast.Module) -> list[str]:
    """Everything in a file that remote code of this project may not have."""
    found = []
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                if node.level != 1 or node.module not in SIBLINGS:
                    found.append(f"relative import of {node.module}")
            else:
                modules = [node.module]
        for module in modules:
            if module.split(".")[0] not in ALLOWED and module != FROM_HUB:
                found.append(f"import of {module}")
            if module.startswith(
                (
                    "torch.hub",
                    "torch.utils.cpp_extension",
                    "torch.distributed",
                    "transformers.utils.hub",
                )
            ):
                found.append(f"import of {module}")
        if isinstance(node, ast.Call):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if called in NEVER_CALLED:
                found.append(f"call of {called}")
        name = (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.id
            if isinstance(node, ast.Name)
            else ""
        )
        if name in NEVER_NAMED:
            found.append(f"use of {name}")
    return found


@pytest.mark.parametrize("name", FILES)
def test_it_imports_torch_and_transformers_only_and_opens_nothing(name):
    assert findings(tree_of(name)) == []


@pytest.mark.parametrize("code", [
    "import os", "import requests", "from subprocess import run", "from .training import cli", "from ..x import y",
    "from . import attention_minibert", "import flash_attn", "from huggingface_hub import hf_hub_download",
    "x = open('file')", "y = __import__('os')", "z = torch.load('file')", "z = torch.hub.load('a', 'b')", "exec('1')",
    "().__class__.__base__.__subclasses__()",
])  # fmt: skip
def test_forbidden_code_is_detected(code):
    assert findings(ast.parse(code))


def test_transformers_finds_the_files_by_one_line_imports():
    """Only `from .name import …` is found by the library, in the first line of the statement; and all are. Nothing but
    torch and Transformers must be installed."""
    needed = get_relative_import_files(ROOT / "modeling_minibert.py")
    assert {Path(path).stem for path in needed} == SIBLINGS - {"modeling_minibert"}
    assert {name for file in FILES for name in get_imports(ROOT / file)} <= ALLOWED


def private_names(tree: ast.Module) -> list[str]:
    """Names with a leading underscore that a file takes from elsewhere than its own objects."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            found += [f"{node.module}.{name}" for name in names if name.startswith("_")]
        is_attribute = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if is_attribute and not node.attr.endswith("__"):
            owner = node.value
            is_own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            is_inherited = isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"
            if not is_own and not is_inherited:
                found.append(ast.unparse(node))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            name = getattr(node.args[1], "value", "")
            if str(name).startswith("_"):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("name", sorted(CODE - {"compat_minibert.py"}))
def test_private_names_of_others_are_in_compat_alone(name):
    """Remote code has to load for years: a private name may go, and `compat` has a net for each."""
    assert private_names(tree_of(name)) == []


def test_private_names_are_detected():
    code = """
        from torch._C import x
        torch._C.f()
        torch.ops.aten._op(1)
        getattr(config, "_name", None)
        self._mine()
        super()._init_weights(module)
        x.__dict__
    """
    names = private_names(ast.parse(textwrap.dedent(code)))
    assert sorted(names) == [
        "getattr(config, '_name', None)",
        "torch._C",
        "torch._C._C",
        "torch.ops.aten._op",
    ]


def test_outputs_are_built_by_keyword():
    """One field more in a class of Transformers would move all that is passed by position."""
    outputs = []
    for node in ast.walk(tree_of("modeling_minibert.py")):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.endswith("Output") or name == "self.output_class":
                outputs.append(name)
                assert not node.args, ast.unparse(node)
    assert {"MiniBertModelOutput", "self.output_class"} <= set(outputs)


def test_attention_calls_the_interface_of_transformers_once():
    """vLLM reads the source of `forward`: it looks for one name that comes from the table of
    attention functions, and for one call of it, whose `scaling` it must be able to resolve."""
    (layer,) = (
        node
        for node in tree_of("modeling_minibert.py").body
        if isinstance(node, ast.ClassDef) and node.name == "MiniBertAttention"
    )
    (forward,) = (node for node in layer.body if getattr(node, "name", "") == "forward")
    names = [
        ast.unparse(node.targets[0])
        for node in ast.walk(forward)
        if isinstance(node, ast.Assign)
        and ast.unparse(node.value).startswith("ALL_ATTENTION_FUNCTIONS.get_interface(")
    ]
    assert names == ["attention_interface"]
    (call,) = (
        node
        for node in ast.walk(forward)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "attention_interface"
    )
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    assert keywords["scaling"] == "self.scaling"
