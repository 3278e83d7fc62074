"""MiniBERT: pretrain, fine-tune and publish your own BERT, with BERT and ModernBERT as two settings of one model.

`import minibert` makes the family known to Transformers' Auto classes. The import itself loads neither torch nor
Transformers (the command line answers `--help` without them): public names are loaded when they are asked for, and the
registration runs as soon as the Auto classes are there.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys

__version__ = "0.1.0"

# Where each public name is defined.
_PUBLIC = {
    name: module
    for module, names in {
        "configuration_minibert": "MiniBertConfig",
        "modeling_minibert": "MiniBertPreTrainedModel MiniBertModel MiniBertForPreTraining MiniBertForMaskedLM"
        " MiniBertForCausalLM MiniBertForNextSentencePrediction MiniBertForSequenceClassification"
        " MiniBertForTokenClassification MiniBertForReplacedTokenDetection MiniBertForQuestionAnswering"
        " MiniBertForMultipleChoice",
        "training.api": "pretrain prepare finetune evaluate embed search rerank convert export push",
        "training.pretraining.fill": "fill",
        "tokenization": "extend_tokenizer train_tokenizer",
        "training.data.collators": "MaskedLMCollator",
    }.items()
    for name in names.split()
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_AUTO_CONFIG, _AUTO_CLASSES = (f"transformers.models.auto.{name}" for name in ("configuration_auto", "modeling_auto"))


def _register() -> None:
    """Tell the Auto classes that are loaded about MiniBERT, and saved models about the code they need on the Hub."""
    if _AUTO_CONFIG in sys.modules:
        from transformers import AutoConfig

        from .configuration_minibert import AUTO_MAP, MiniBertConfig

        AutoConfig.register(MiniBertConfig.model_type, MiniBertConfig, exist_ok=True)
        MiniBertConfig.register_for_auto_class()
    if _AUTO_CLASSES in sys.modules:
        import transformers

        from . import modeling_minibert

        for auto_class, reference in AUTO_MAP.items():
            if auto_class != "AutoConfig":
                model_class = getattr(modeling_minibert, reference.split(".")[1])
                getattr(transformers, auto_class).register(MiniBertConfig, model_class, exist_ok=True)
                model_class.register_for_auto_class(auto_class)


_PEFT = "peft.utils.constants"
# Our model needs `modeling_layers`, which imports the Auto classes itself, and our own modules may be what loads these:
# the registration waits until none of the five is only half there.
_WATCHED = {
    *(_AUTO_CONFIG, _AUTO_CLASSES, "transformers.modeling_layers", _PEFT),
    *(f"{__name__}.configuration_minibert", f"{__name__}.modeling_minibert"),
}


class _AfterImport(importlib.abc.MetaPathFinder):
    """Registers the family when the modules of `_WATCHED` have been loaded."""

    loading = 0  # how many of them are being loaded, one from within the other

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _WATCHED:
            return None
        # not by all of `sys.meta_path`: two finders of this kind, as after a reload, would ask each other for ever
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader.exec_module = functools.partial(self.load, spec.loader.exec_module)
        return spec

    def load(self, exec_module, module):
        self.loading += 1
        try:
            exec_module(module)
        finally:
            self.loading -= 1
        self.loaded(module.__name__)

    def loaded(self, name):
        if name == _PEFT:
            importlib.import_module(".training.peft_targets", __name__).register_peft()
        elif not self.loading:
            _register()


_after_import = _AfterImport()
sys.meta_path.insert(0, _after_import)
for _name in _WATCHED & sys.modules.keys():
    _after_import.loaded(_name)
