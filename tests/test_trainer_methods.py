"""Private methods of Transformers' `Trainer` that our trainers override or call: each may go in any release."""

import ast
import inspect

import pytest
from transformers import Trainer

from minibert import FinetuningTrainer, PretrainingTrainer

# By name the parameters that our code relies on. Of `_run_epoch` it passes on whatever comes.
PARAMETERS = {
    "_finish_current_push": (),
    "_get_eval_sampler": ("eval_dataset",),
    "_get_num_items_in_batch": ("batch_samples", "device"),
    "_get_train_sampler": ("train_dataset",),
    "_load_optimizer_and_scheduler": ("checkpoint",),
    "_prepare_inputs": ("inputs",),
    "_push_from_checkpoint": ("checkpoint_folder",),
    "_run_epoch": None,
    "_save": ("output_dir", "state_dict"),
    "_save_checkpoint": ("model", "trial"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_is_as_our_code_takes_it(name):
    method = getattr(Trainer, name, None)
    assert method is not None, f"Trainer.{name} is gone: see the classes that override it"
    if PARAMETERS[name] is not None:
        assert tuple(inspect.signature(method).parameters) == ("self", *PARAMETERS[name])


def test_every_one_is_listed():
    used = set()
    for trainer_class in (*FinetuningTrainer.__mro__, *PretrainingTrainer.__mro__):
        if not trainer_class.__module__.startswith("minibert."):
            continue
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(trainer_class)))):
            name = getattr(node, "attr", getattr(node, "name", None))  # what is called or defined
            if isinstance(name, str) and name.startswith("_") and not name.startswith("__"):
                used.add(name)
    of_trainer = {name for name in used if hasattr(Trainer, name)}
    assert of_trainer == set(PARAMETERS)
