"""What others hand over (models, tokenizers, recipes, checkpoints, names) is data: none of it runs, none of it leads to
another file. The files that go to the Hub: tests/model/test_remote_code.py."""

import ast
import json
import pickle
from pathlib import Path

import pytest
import torch
from helpers import refusal, save_model, sentences
from loop.test_checkpoints import make_trainer
from safetensors.torch import load_file

import minibert.modeling_minibert as modeling
from minibert import train_tokenizer
from minibert.training import cli
from minibert.training.conversion.folders import convert
from minibert.training.loop.callbacks import add_callbacks, common_callbacks

ROOT = Path(__file__).parents[2]
# Not all below the root: an environment or runs may lie there too.
CODE = sorted(
    [*ROOT.glob("*.py"), *(ROOT / "tokenization").rglob("*.py"), *(ROOT / "training").rglob("*.py")]
)
# It runs in a process of its own what its user is about to publish, as somebody else would.
TRUSTS = {"training/hub/verify_remote_code.py"}
# It runs the snippet of our own template; texts from data are literals in it (tests/hub/test_card.py).
RUNS_TEMPLATE = {"training/hub/example.py"}
NO_IMPORT = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def calls(tree: ast.Module):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield (
                ast.unparse(node.func),
                {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords},
            )


def findings(tree: ast.Module, trusts: bool = False) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            found += [name for name in names if name.split(".")[0] in NO_IMPORT]
    for name, keywords in calls(tree):
        last = name.split(".")[-1]
        loads = name.startswith("Auto") and last in ("from_pretrained", "from_config")
        if (loads or name in ("pipeline", "auto.from_pretrained")) and keywords.get(
            "trust_remote_code"
        ) != "False":
            found.append(f"{name} without trust_remote_code=False")
        if keywords.get("trust_remote_code", "False") != "False" and not trusts:
            found.append(f"{name} with trust_remote_code")
        if name in ("torch.load", "eval", "exec", "os.system", "os.popen") or last == "extractall":
            found.append(name)
        if (
            last in ("load", "save")
            and name.startswith(("np.", "numpy."))
            and keywords.get("allow_pickle") != "False"
        ):
            found.append(f"{name} with pickles")
        if name.startswith("yaml.") and last.endswith("load") and last != "safe_load":
            found += (
                [] if keywords.get("Loader") in ("_Yaml12Loader", "yaml.BaseLoader") else [name]
            )
        if keywords.get("shell", "False") != "False":
            found.append(f"{name} in a shell")
    return found


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_code_of_others_is_run(path):
    name = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    expected = ["exec"] if name in RUNS_TEMPLATE else []
    assert findings(tree, name in TRUSTS) == expected


def test_forbidden_code_is_detected():
    for line in ("import pickle", "from joblib import load", "torch.load(p)", "AutoModel.from_pretrained(p)",
                 "AutoModel.from_pretrained(p, trust_remote_code=True)", "np.load(p)", "yaml.load(t)",
                 "yaml.full_load(t)", "pipeline('x', m)", "subprocess.run(c, shell=True)", "archive.extractall(p)",
                 "eval(t)"):  # fmt: skip
        assert findings(ast.parse(line)), line


# --- hostile files ---

MODULES = "sentence_transformers.models"


@pytest.fixture
def trap(tmp_path):
    """A file that appears when hostile code runs."""
    return tmp_path / "trap"


class Hostile:
    def __init__(self, trap: Path):
        self.trap = trap

    def __reduce__(self):
        return Path.write_text, (self.trap, "caught")


@pytest.fixture
def model(tmp_path, trap):
    """A model whose folder brings code of its own, which no command of ours may run."""
    folder = tmp_path / "model"
    tokenizer = train_tokenizer(sentences(100), vocab_size=80)
    save_model(folder, tokenizer, "modernbert", "ForMaskedLM")
    (folder / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(trap)!r}).write_text('caught')\n"
    )
    for name, maps in (
        (
            "config.json",
            dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "evil.Evil"),
        ),
        ("tokenizer_config.json", {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}),
    ):
        saved = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(saved | {"auto_map": maps}))
    return folder


def test_code_beside_a_model_is_not_run(model, trap, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(sentences(60)))
    pretraining = [
        "--model_name_or_path",
        model,
        "--data",
        text,
        "--max_steps",
        1,
        "--seq_length",
        16,
    ]
    for command in (
        ["fill", "ka [MASK]", "--model", model],
        ["embed", "ka lo", "--model", model, "--output", tmp_path / "vectors.npy"],
        ["pretrain", *pretraining, "--output_dir", tmp_path / "run", "--bf16", "false"],
    ):
        cli.main(list(map(str, command)))
        assert not trap.exists(), command
    capsys.readouterr()


def test_pickled_weights_are_not_unpickled(model, trap, tmp_path, capsys):
    (model / "model.safetensors").unlink()
    with (model / "pytorch_model.bin").open("wb") as file:
        pickle.dump(Hostile(trap), file)
    with pytest.raises(ValueError, match="cannot be read .UnpicklingError"):
        cli.main(["fill", "ka [MASK]", "--model", str(model), "--traceback"])
    assert not trap.exists()


def test_a_pickled_module_is_not_unpickled(model, trap, tmp_path):
    modules = [
        {"path": "", "type": f"{MODULES}.Transformer"},
        {"path": "1_Dense", "type": f"{MODULES}.Dense"},
    ]
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "1_Dense").mkdir()
    (model / "1_Dense" / "config.json").write_text("{}")
    torch.save(Hostile(trap), model / "1_Dense" / "pytorch_model.bin")
    with pytest.raises(ValueError, match="cannot be read .UnpicklingError"):
        convert(str(model), str(tmp_path / "target"))
    assert not trap.exists() and not (tmp_path / "target").exists()


def test_modules_outside_of_the_model_are_not_copied(model, tmp_path):
    modules = [
        {"path": "", "type": f"{MODULES}.Transformer"},
        {"path": "../other", "type": f"{MODULES}.Dense"},
    ]
    (model / "modules.json").write_text(json.dumps(modules))
    (model.parent / "other").mkdir()
    (model.parent / "other" / "config.json").write_text("{}")
    (tmp_path / "deep").mkdir()
    with pytest.raises(ValueError, match="modules.json has a Dense in '../other'; save the"):
        convert(str(model), str(tmp_path / "deep" / "target"))
    assert not list((tmp_path / "deep").iterdir())


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_is_not_unpickled(name, trap, tmp_path):
    trainer = make_trainer(tmp_path / "run")
    add_callbacks(trainer, common_callbacks())
    trainer.train()
    checkpoint = tmp_path / "run" / "checkpoint-2"
    torch.save(Hostile(trap), checkpoint / name)
    with pytest.raises(pickle.UnpicklingError):
        make_trainer(tmp_path / "run").train(resume_from_checkpoint=str(checkpoint))
    assert not trap.exists()


def test_a_recipe_makes_no_objects(trap, tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"data: !!python/object/apply:pathlib.Path.write_text [!!python/name:x, {trap}]\n"
    )
    assert "recipe" in refusal(capsys, "pretrain", "--recipe", recipe)
    assert not trap.exists()


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "me/../you", "me/x/../../y", "..", "me/..", "~root/model"]
)
def test_names_lead_to_no_other_folder(name, model, tmp_path, monkeypatch, capsys):
    """A name that is no folder here is one of the Hub, where none has such parts."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert refusal(capsys, "fill", "ka [MASK]", "--model", name)
    assert "data" in refusal(
        capsys, "finetune", "classify", "--model", model, "--data", name + "/rows.jsonl"
    )
    assert refusal(capsys, "push", model, name, "--dry_run", "true")


# --- saved by an earlier version ---

RELEASED = Path(__file__).parents[1] / "released"


@pytest.mark.parametrize("folder", sorted(RELEASED.iterdir()), ids=lambda folder: folder.name)
def test_a_released_model_gives_the_same(folder, tmp_path):
    """As it was saved on 22 November 2026; what is saved now reads as it."""
    expected = load_file(folder / "expected.safetensors")
    names = json.loads((folder / "config.json").read_text())["architectures"]
    for where in (folder, tmp_path):
        model = getattr(modeling, names[0]).from_pretrained(where).eval()
        inputs = {name: expected[name] for name in ("input_ids", "attention_mask")}
        torch.testing.assert_close(model(**inputs).logits, expected["logits"], rtol=1e-5, atol=1e-6)
        model.save_pretrained(tmp_path)
