"""`training/loading/`: new folders, weights that a checkpoint lacks, loading without messages."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from helpers import build
from transformers import TrainingArguments
from transformers.utils import logging

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import MiniBertConfig
from minibert.training.common.files import check_new_folder, new_folder
from minibert.training.loading.load_errors import wrap_load_errors
from minibert.training.loading.models import load_masked_lm, load_pretrained, saved_config
from minibert.training.loading.tokenizers import saved_tokenizer
from minibert.training.loop import arguments


def test_a_folder_is_made_where_an_empty_one_is(tmp_path, monkeypatch):
    """A link, a mount, the folder that we are in."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for target, place in (
        (Path("../link"), tmp_path / "there"),
        (Path("."), Path(".")),
        (Path("new"), Path("new")),
    ):
        with pytest.raises(RuntimeError), new_folder(target) as folder:
            (folder / "x").write_text("y")
            raise RuntimeError
        assert not target.exists() or not list(place.iterdir())
        with new_folder(target) as folder:
            (folder / "inner").mkdir()
            (folder / "inner" / "x").write_text("y")
        assert [path.name for path in place.iterdir()] == ["inner"] and (
            place / "inner" / "x"
        ).read_text() == "y"
    assert (tmp_path / "link").is_symlink()


def test_what_a_killed_command_left_is_in_the_way_of_none(tmp_path):
    (tmp_path / ".unfinishedabc").mkdir()
    check_new_folder(tmp_path)
    (tmp_path / ".hidden").touch()
    with pytest.raises(ValueError, match="exists already"):
        check_new_folder(tmp_path)


def test_a_head_of_another_width_is_new_in_another_task(tmp_path):
    """That of masked tokens ends at the width of the word vectors."""
    model = build("ForMaskedLM", embedding_size=8)
    model.save_pretrained(tmp_path)
    loaded, new = load_pretrained(modeling.MiniBertForSequenceClassification, tmp_path, head=False)
    assert {"head.dense.weight", "head.norm.weight", "classifier.weight"} <= set(new)
    assert not any(name.startswith("model.") for name in new)
    for name, expected in model.base_model.named_parameters():
        assert torch.equal(loaded.base_model.get_parameter(name), expected)
    narrow = MiniBertConfig.from_pretrained(tmp_path, intermediate_size=20)
    with pytest.raises(ValueError, match="lacks the weights model.layers"):
        load_pretrained(
            modeling.MiniBertForSequenceClassification, tmp_path, head=False, config=narrow
        )


def test_models_are_loaded_by_several_threads(tmp_path):
    """Transformers replaces `tie_weights` of the class meanwhile: of threads that load at once, one could leave it
    replaced, and every model that is loaded later would lack its tied decoder."""
    build("ForMaskedLM").save_pretrained(tmp_path)
    tie_weights = modeling.MiniBertPreTrainedModel.tie_weights
    verbosity = logging.get_verbosity()

    def load(_):
        with wrap_load_errors(tmp_path):
            return load_masked_lm(str(tmp_path), modeling.MiniBertForMaskedLM)

    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(load, range(32)))
    for model in models:
        assert model.decoder.weight is model.get_input_embeddings().weight
    assert modeling.MiniBertPreTrainedModel.tie_weights is tie_weights
    assert logging.get_verbosity() == verbosity


@pytest.mark.parametrize("load", [saved_config, saved_tokenizer])
def test_a_missing_folder_is_named(load):
    """Not looked for on the Hub, which would say that there is no connection."""
    for name in ("runs/nope", "./nope", "one/two/three"):
        with pytest.raises(ValueError, match=f"there is no folder '{name}'"):
            load(name)
    with pytest.raises(OSError, match="there is no folder 'nope' here, and from the Hub"):
        load("nope")


def test_a_missing_tracker_is_named_before_the_data_is_read(monkeypatch):
    monkeypatch.setattr(arguments, "get_available_reporting_integrations", lambda: ["mlflow"])
    arguments.check_training(TrainingArguments(report_to=["mlflow"], use_cpu=True))
    with pytest.raises(ValueError, match="report_to: wandb is not installed; pip install wandb"):
        arguments.check_training(TrainingArguments(report_to=["wandb"], use_cpu=True))
