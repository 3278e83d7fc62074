"""Private names of `Trainer` and its helpers that our trainers build on.

A release of Transformers, accelerate or torch may rename any of them. An override that `Trainer` no
longer calls fails silently: the tests here say which one it is, and what it was for.
"""

import ast
import inspect
from importlib.metadata import version
from pathlib import Path

import accelerate
import pytest
import torch
from transformers import Trainer
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.utils import PushInProgress

from minibert.training.common.precision import AUTOCAST_ATTRIBUTES
from minibert.training.finetuning.prediction_loop import TaskPredictor
from minibert.training.finetuning.trainer import FinetuningTrainer
from minibert.training.hub.save_model_mixin import SaveModelMixin
from minibert.training.hub.upload_mixin import HubMixin
from minibert.training.loop.checkpoint_mixin import CheckpointMixin
from minibert.training.optimization.clock import TimeBudgetMixin
from minibert.training.pretraining.data_parallel import CpuDataParallelMixin
from minibert.training.pretraining.evaluation_loop import SummedEvaluationMixin
from minibert.training.pretraining.loss_terms import LossTermsMixin
from minibert.training.pretraining.trainer import PretrainingTrainer

TRAINING = Path(__file__).parents[2] / "training"
OUR_CLASSES = (
    CheckpointMixin,
    CpuDataParallelMixin,
    FinetuningTrainer,
    HubMixin,
    LossTermsMixin,
    PretrainingTrainer,
    SaveModelMixin,
    SummedEvaluationMixin,
    TaskPredictor,
    TimeBudgetMixin,
)
# Methods of `Trainer` that we override or call, each with what is lost without it.
PRIVATE_METHODS = {
    "_save": "the pickled arguments are removed, and the labels of a task are saved",
    "_save_checkpoint": "checkpoints get a manifest, and a full disk an error that names them",
    "_run_epoch": "a training that was killed after its last step does no further one",
    "_load_optimizer_and_scheduler": "the best checkpoint is found in a folder that was moved",
    "_get_train_sampler": "a resumed training by length sees the same order",
    "_push_from_checkpoint": "only files of the list go up during a training",
    "_finish_current_push": "the last upload waits for the one before",
    "_prepare_inputs": "the batches of an evaluation are on the device",
    "_get_eval_sampler": "predictions come in the order of the rows",
    "_get_num_items_in_batch": "losses are averaged over the rows of a step",
}
# The parameters of those that do not pass on whatever they get.
PARAMETERS = {
    "_save": ("output_dir", "state_dict"),
    "_load_optimizer_and_scheduler": ("checkpoint",),
    "_push_from_checkpoint": ("checkpoint_folder",),
    "_finish_current_push": (),
    "_prepare_inputs": ("inputs",),
    "_get_eval_sampler": ("eval_dataset",),
    "_get_num_items_in_batch": ("batch_samples", "device"),
}
# Attributes of `Trainer` that our mixins read or set.
ATTRIBUTES = (
    "callback_handler",
    "control",
    "gather_function",
    "hub_model_id",
    "is_in_train",
    "model_wrapped",
    "push_in_progress",
)
SOURCE = inspect.getsource(Trainer)


def private_methods_of_trainer() -> set[str]:
    """What our code calls by `super()._name(…)`, or overrides."""
    names = set()
    for file in TRAINING.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "super()":
                names.add(node.attr)
    for our_class in OUR_CLASSES:
        names.update(vars(our_class))
    names = {name for name in names if hasattr(Trainer, name)}
    return {name for name in names if name.startswith("_") and not name.endswith("__")}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_that_our_code_takes(name):
    parameters = inspect.signature(getattr(Trainer, name)).parameters
    assert tuple(parameters) == ("self", *PARAMETERS[name])


@pytest.mark.parametrize("name", PRIVATE_METHODS)
def test_trainer_calls_what_we_override(name):
    missing = f"Transformers {version('transformers')} has no Trainer.{name}, by which"
    assert hasattr(Trainer, name), f"{missing} {PRIVATE_METHODS[name]}"
    unused = f"Trainer of Transformers {version('transformers')} does not use {name}, by which"
    # `get_train_dataloader` names the sampler's function without calling it
    assert f"self.{name}" in SOURCE, f"{unused} {PRIVATE_METHODS[name]}"


def test_every_private_method_is_listed():
    assert private_methods_of_trainer() - set(PRIVATE_METHODS) == set()


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_trainer_has_the_attributes_that_we_read(name):
    assert f"self.{name}" in SOURCE, f"Trainer has no attribute {name} any more"


def test_save_model_tells_a_checkpoint_from_the_end_of_a_training():
    assert "_internal_call" in inspect.signature(Trainer.save_model).parameters
    assert "_internal_call=True" in SOURCE


def test_uploads_are_jobs():
    push = PushInProgress([])
    assert push.jobs == [] and push.is_done()


def test_a_sampler_by_length_draws_by_its_generator():
    assert "self.generator" in inspect.getsource(LengthGroupedSampler.__iter__)


def test_accelerate_wraps_models_and_loaders_as_we_unwrap_them():
    source = inspect.getsource(accelerate.Accelerator.prepare_model)
    for name in AUTOCAST_ATTRIBUTES:
        assert f"model.{name} = " in source, f"accelerate no longer sets {name} of a model"
    assert "base_dataloader" in inspect.getsource(accelerate.data_loader.DataLoaderAdapter)
    assert "self._dataloaders" in inspect.getsource(accelerate.Accelerator)


def test_a_schedule_keeps_its_last_rates():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    assert scheduler.state_dict()["_last_lr"] == [0.5] == scheduler.get_last_lr()
