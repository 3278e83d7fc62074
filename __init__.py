"""MiniBERT: pretrain, fine-tune and publish your own BERT, with BERT and ModernBERT as two settings of one model.

`import minibert` makes the family known to Transformers' Auto classes. The import itself loads neither torch nor
Transformers (the command line answers `--help` without them): public names are loaded when they are asked for, and the
registration runs as soon as Transformers' Auto classes are there.
"""

import importlib
import importlib.abc
import importlib.util
import sys

__version__ = "0.1.0"

_PUBLIC = {
    "MiniBertConfig": "configuration_minibert",
    **dict.fromkeys(
        (
            "MiniBertPreTrainedModel",
            "MiniBertModel",
            "MiniBertForPreTraining",
            "MiniBertForMaskedLM",
            "MiniBertForCausalLM",
            "MiniBertForNextSentencePrediction",
            "MiniBertForSequenceClassification",
            "MiniBertForTokenClassification",
            "MiniBertForReplacedTokenDetection",
            "MiniBertForQuestionAnswering",
            "MiniBertForMultipleChoice",
        ),
        "modeling_minibert",
    ),
    "train_tokenizer": "tokenization",
    "MaskedLMCollator": "training.data.collators",
}
__all__ = ["__version__", *_PUBLIC]

_AUTO_CONFIG, _AUTO_CLASSES = (f"transformers.models.auto.{name}" for name in ("configuration_auto", "modeling_auto"))


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
        # No Auto class of its own; but it, too, is saved with the code.
        modeling_minibert.MiniBertForReplacedTokenDetection.register_for_auto_class("AutoModelForPreTraining")


class _RegisterAfterImport(importlib.abc.MetaPathFinder):
    """Calls `_register` when Auto classes have been loaded, by somebody or on the way of loading the model; but not
    while a module of Transformers or of ours is only half there (the model needs some that import the Auto classes
    themselves)."""

    def __init__(self):
        self.seen: set[str] = set()
        self.loading = 0
        self.registered = {_AUTO_CONFIG: False, _AUTO_CLASSES: False}

    def find_spec(self, fullname, path=None, target=None):
        if fullname in self.seen or not fullname.startswith(("transformers.", f"{__name__}.")):
            return None
        self.seen.add(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self.count(spec.loader.exec_module)
        return spec

    def count(self, load):
        def load_and_register(module):
            self.loading += 1
            try:
                load(module)
            finally:
                self.loading -= 1
            self.register_what_is_new()

        return load_and_register

    def register_what_is_new(self):
        loaded = {name: name in sys.modules for name in self.registered}
        if not self.loading and loaded != self.registered:
            self.registered = loaded
            _register()
            if all(loaded.values()) and self in sys.meta_path:
                sys.meta_path.remove(self)


sys.meta_path.insert(0, _RegisterAfterImport())
sys.meta_path[0].register_what_is_new()
