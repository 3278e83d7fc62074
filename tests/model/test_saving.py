"""What lies in the folder of a saved model: weights, configuration, and the code that loads it without the package."""

import json
import os
from pathlib import Path

import pytest
import torch
import transformers
from helpers import CODE, DETECTOR, VOCAB, build, tiny
from processes import Python

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import AUTO_MAP, MiniBertConfig
from minibert.modeling_minibert import MiniBertForMaskedLM

ROOT = Path(modeling.__file__).parent


@pytest.fixture
def saved(tmp_path) -> tuple[MiniBertForMaskedLM, Path]:
    """A masked language model, and the folder in which it lies with its code."""
    model, folder = (
        build("ForMaskedLM", add_pooling_layer=True, type_vocab_size=2).eval(),
        tmp_path / "saved",
    )
    model.save_pretrained(folder)
    return model, folder


def test_save_and_load(saved):
    model, folder = saved
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors", *CODE}
    for name in CODE:
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
        assert f"{module}.py" in CODE and hasattr(transformers, auto_class)
        assert name in modeling.__all__ or name == "MiniBertConfig"
    without = {
        "MiniBertPreTrainedModel",
        f"MiniBert{DETECTOR}",
    }  # it stands in the map of its own folders, see below
    assert set(modeling.__all__) - without == {r.split(".")[1] for r in AUTO_MAP.values()} - {
        "MiniBertConfig"
    }


@pytest.mark.parametrize("auto_class", [name for name in AUTO_MAP if name != "AutoConfig"])
def test_auto_classes_load_any_checkpoint(auto_class, saved):
    """The encoder arrives whichever head was saved."""
    model, folder = saved
    loaded = getattr(transformers, auto_class).from_pretrained(folder)
    assert type(loaded).__name__ == AUTO_MAP[auto_class].split(".")[1]
    for name, expected in model.base_model.named_parameters():
        assert torch.equal(loaded.base_model.get_parameter(name), expected)


def test_a_detector_opens_as_a_model_of_pretraining(tmp_path):
    """As ELECTRA's does. Other Auto classes, and other heads from its encoder, are as ever."""
    detector = build(DETECTOR).eval()
    detector.save_pretrained(tmp_path / "detector")
    auto_class = transformers.AutoModelForPreTraining
    loaded, report = auto_class.from_pretrained(tmp_path / "detector", output_loading_info=True)
    assert type(loaded) is type(detector) and not any(report.values())
    ids = torch.randint(1, VOCAB, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, detector(ids).logits)
    assert type(auto_class.from_config(loaded.config)) is type(detector)
    name = f"modeling_minibert.MiniBert{DETECTOR}"
    saved = json.loads((tmp_path / "detector" / "config.json").read_text())
    assert saved["auto_map"] == AUTO_MAP | {"AutoModelForPreTraining": name}

    masked = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "detector")
    assert type(masked) is MiniBertForMaskedLM
    masked.save_pretrained(tmp_path / "masked")
    saved = json.loads((tmp_path / "masked" / "config.json").read_text())
    assert saved["auto_map"] == AUTO_MAP
    pretraining = modeling.MiniBertForPreTraining
    for model in (
        pretraining.from_pretrained(tmp_path / "detector"),
        auto_class.from_pretrained(tmp_path / "masked"),
        auto_class.from_config(tiny()),
    ):
        assert type(model) is pretraining


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
    detector = detector.from_pretrained({folder!r}).eval()
    detector.save_pretrained({target!r} + "/detector")
    again = transformers.AutoModelForPreTraining.from_pretrained({target!r} + "/detector", trust_remote_code=True)
    assert type(again).__name__ == type(detector).__name__
    torch.testing.assert_close(again(ids).logits, detector(ids).logits)
    again = transformers.AutoModelForMaskedLM.from_pretrained({target!r}, trust_remote_code=True)
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
    given = dict(
        ids=ids.tolist(),
        folder=str(folder),
        target=str(target),
        auto_map=auto_map,
        detector=detector,
    )
    with Python(tmp_path, environment, with_package=False) as python:
        python.run(WITHOUT_THE_PACKAGE.format(**given))
    assert {file.name for file in target.glob("*.py")} == CODE
    assert {file.name for file in target.glob("detector/*.py")} == CODE
    assert json.loads((target / "config.json").read_text())["auto_map"] == AUTO_MAP
    assert torch.equal(torch.load(target / "before.pt"), model(ids).logits)
    assert torch.equal(
        torch.load(target / "after.pt"), MiniBertForMaskedLM.from_pretrained(target)(ids).logits
    )


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
