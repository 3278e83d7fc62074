"""What lies in the folder of a saved model: weights, configuration, and the code that loads it without the package."""

import ast
import json
import multiprocessing
import os
import sys
import threading
from pathlib import Path

import pytest
import torch
import transformers
from helpers import DETECTOR, VOCAB, build, tiny
from processes import Python
from transformers.dynamic_module_utils import get_imports, get_relative_import_files

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import AUTO_MAP, MiniBertConfig
from minibert.modeling_minibert import MiniBertForMaskedLM, MiniBertModel
from minibert.training.loading import check_new, load_reported, new_folder, quietly

FLAT_FILES = (
    "configuration_minibert.py", "sequences_minibert.py", "cpu_minibert.py", "embeddings_minibert.py",
    "attention_minibert.py", "modeling_minibert.py",
)  # fmt: skip
ROOT = Path(modeling.__file__).parent


@pytest.fixture
def saved(tmp_path) -> tuple[MiniBertForMaskedLM, Path]:
    """A masked language model, and the folder in which it lies with its code."""
    model, folder = build("ForMaskedLM", add_pooling_layer=True, type_vocab_size=2).eval(), tmp_path / "saved"
    model.save_pretrained(folder)
    return model, folder


def test_round_trip(saved):
    model, folder = saved
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors", *FLAT_FILES}
    for name in FLAT_FILES:
        assert (folder / name).read_text() == (ROOT / name).read_text()
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"] == AUTO_MAP and "attn_implementation" not in str(config)
    loaded, report = MiniBertForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    ids = torch.randint(1, VOCAB, (2, 9))
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.decoder.weight is loaded.get_input_embeddings().weight


def test_the_auto_map_names_every_class():
    for auto_class, reference in AUTO_MAP.items():
        module, name = reference.split(".")
        assert f"{module}.py" in FLAT_FILES and hasattr(transformers, auto_class)
        assert name in modeling.__all__ or name == "MiniBertConfig"
    without = {"MiniBertPreTrainedModel", f"MiniBert{DETECTOR}"}  # Transformers has no Auto class for detectors
    assert set(modeling.__all__) - without == {r.split(".")[1] for r in AUTO_MAP.values()} - {"MiniBertConfig"}


@pytest.mark.parametrize("auto_class", [name for name in AUTO_MAP if name != "AutoConfig"])
def test_auto_classes_load_any_checkpoint(auto_class, saved):
    """The encoder arrives whichever head was saved."""
    model, folder = saved
    loaded = getattr(transformers, auto_class).from_pretrained(folder)
    assert type(loaded).__name__ == AUTO_MAP[auto_class].split(".")[1]
    for name, expected in model.base_model.named_parameters():
        assert torch.equal(loaded.base_model.get_parameter(name), expected)


WITHOUT_THE_PACKAGE = """
    import torch, transformers
    ids = torch.tensor({ids})
    config = transformers.AutoConfig.from_pretrained({folder!r}, trust_remote_code=True)
    assert type(config).__module__.startswith("transformers_modules."), type(config)
    for auto_class, reference in {auto_map}.items():
        model = getattr(transformers, auto_class).from_pretrained({folder!r}, trust_remote_code=True)
        assert type(model).__name__ == reference.split(".")[1], (auto_class, type(model))
        assert type(model).__module__.startswith("transformers_modules.")
    model = transformers.AutoModelForMaskedLM.from_pretrained({folder!r}, trust_remote_code=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = model(ids).logits.detach()
    model.train()(ids, labels=ids).loss.backward()
    optimizer.step()
    model.eval()
    model.save_pretrained({target!r})
    again = transformers.AutoModelForMaskedLM.from_pretrained({target!r}, trust_remote_code=True)
    assert torch.equal(again(ids).logits, model(ids).logits) and not torch.equal(model(ids).logits, before)
    detector = transformers.dynamic_module_utils.get_class_from_dynamic_module({detector!r}, {folder!r})
    detector.from_pretrained({folder!r}).save_pretrained({target!r} + "/detector")
    torch.save(before, {target!r} + "/before.pt")
    torch.save(again(ids).logits.detach(), {target!r} + "/after.pt")
"""


def test_loads_trains_and_saves_without_the_package(saved, tmp_path):
    """In a process with nothing but the folder: every Auto class, a step of training; saved, loaded there and here."""
    model, folder = saved
    ids, target = torch.randint(1, VOCAB, (2, 9)), tmp_path / "trained"
    auto_map = {name: reference for name, reference in AUTO_MAP.items() if name != "AutoConfig"}
    environment = {name: value for name, value in os.environ.items() if name != "HF_MODULES_CACHE"}
    environment["HF_HOME"] = str(tmp_path / "home")
    detector = f"modeling_minibert.MiniBert{DETECTOR}"
    given = dict(ids=ids.tolist(), folder=str(folder), target=str(target), auto_map=auto_map, detector=detector)
    with Python(tmp_path, environment, with_package=False) as python:
        python.run(WITHOUT_THE_PACKAGE.format(**given))
    assert {file.name for file in target.glob("*.py")} == set(FLAT_FILES)
    assert {file.name for file in target.glob("detector/*.py")} == set(FLAT_FILES)
    assert json.loads((target / "config.json").read_text())["auto_map"] == AUTO_MAP
    assert torch.equal(torch.load(target / "before.pt"), model(ids).logits)
    assert torch.equal(torch.load(target / "after.pt"), MiniBertForMaskedLM.from_pretrained(target)(ids).logits)


@pytest.mark.parametrize("name", FLAT_FILES)
def test_the_flat_files_need_nothing_but_each_other(name):
    """torch, transformers and the standard library; each other in the one form that Transformers follows."""
    allowed = {"torch", "transformers", *sys.stdlib_module_names}
    optional = {"flash_attn"}  # behind is_flash_attn_2_available()
    for node in ast.walk(ast.parse((ROOT / name).read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module.split(".")[0] in allowed | optional
        elif isinstance(node, ast.ImportFrom):
            assert (
                node.level == 1
                and f"{node.module}.py" in FLAT_FILES
                and "*" not in {alias.name for alias in node.names}
            )
    assert set(get_imports(ROOT / name)) <= allowed  # what a user of the file must have


def test_transformers_finds_all_files_from_any_class():
    found = {Path(file).name for file in get_relative_import_files(ROOT / "modeling_minibert.py")}
    assert found == set(FLAT_FILES) - {"modeling_minibert.py"}
    assert get_relative_import_files(ROOT / "configuration_minibert.py") == []


def test_every_class_says_its_config():
    for name in modeling.__all__:
        model_class = getattr(modeling, name)
        assert model_class.config_class is MiniBertConfig and model_class.base_model_prefix == "model"
    assert MiniBertModel(tiny()).config_class is MiniBertConfig


def test_a_registered_class_of_the_users_own_is_the_one_that_loads(tmp_path, monkeypatch):
    """Its file comes along, and stands in the `auto_map` beside our classes."""
    (tmp_path / "my_modeling.py").write_text(
        "from minibert import MiniBertForMaskedLM\n\n\nclass Mine(MiniBertForMaskedLM):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from my_modeling import Mine

    Mine.register_for_auto_class("AutoModelForMaskedLM")
    Mine(tiny()).save_pretrained(tmp_path / "saved")
    config = MiniBertConfig.from_pretrained(tmp_path / "saved")
    assert config.to_dict()["auto_map"] == AUTO_MAP | {"AutoModelForMaskedLM": "my_modeling.Mine"}
    assert (tmp_path / "saved" / "my_modeling.py").exists()


def test_a_folder_is_made_where_an_empty_one_is(tmp_path, monkeypatch):
    """A link, a mount, the folder that we are in."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for target, place in ((Path("../link"), tmp_path / "there"), (Path("."), Path(".")), (Path("new"), Path("new"))):
        with pytest.raises(RuntimeError), new_folder(target) as folder:
            (folder / "x").write_text("y")
            raise RuntimeError
        assert not target.exists() or not list(place.iterdir())
        with new_folder(target) as folder:
            (folder / "inner").mkdir()
            (folder / "inner" / "x").write_text("y")
        assert [path.name for path in place.iterdir()] == ["inner"] and (place / "inner" / "x").read_text() == "y"
    assert (tmp_path / "link").is_symlink()


def test_what_a_killed_command_left_is_in_the_way_of_none(tmp_path):
    (tmp_path / ".unfinishedabc").mkdir()
    check_new(tmp_path)
    (tmp_path / ".hidden").touch()
    with pytest.raises(ValueError, match="exists already"):
        check_new(tmp_path)


def test_a_head_of_another_width_is_new_in_another_task(tmp_path):
    """That of masked tokens ends at the width of the word vectors."""
    model = build("ForMaskedLM", embedding_size=8)
    model.save_pretrained(tmp_path)
    loaded, new = load_reported(modeling.MiniBertForSequenceClassification, tmp_path, head=False)
    assert {"head.dense.weight", "head.norm.weight", "classifier.weight"} <= set(new)
    assert not any(name.startswith("model.") for name in new)
    for name, expected in model.base_model.named_parameters():
        assert torch.equal(loaded.base_model.get_parameter(name), expected)
    narrow = MiniBertConfig.from_pretrained(tmp_path, intermediate_size=20)
    with pytest.raises(ValueError, match="lacks the weights model.layers"):
        load_reported(modeling.MiniBertForSequenceClassification, tmp_path, head=False, config=narrow)


def test_loading_in_two_threads_leaves_transformers_as_it_was():
    """The second begins before the first ends, and ends after it."""
    logging = transformers.utils.logging
    before, first_is_in, second_began = logging.get_verbosity(), threading.Event(), threading.Event()

    def first():
        with quietly():
            first_is_in.set()
            second_began.wait(5)

    def second():
        first_is_in.wait(5)
        threading.Timer(0.1, second_began.set).start()
        with quietly():
            thread.join(5)

    thread = threading.Thread(target=first)
    thread.start()
    second()
    assert logging.get_verbosity() == before != logging.ERROR


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_forked_while_a_thread_loads_can_load():
    done, inside = threading.Event(), threading.Event()

    def load():
        with quietly():
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=load)
    thread.start()
    inside.wait(5)

    def child():
        with quietly():
            pass

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    status = process.exitcode
    process.kill()
    done.set()
    thread.join()
    assert status == 0
