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
            "MiniBertForQuestionAnswering",
            "MiniBertForMultipleChoice",
        ),
        "modeling_minibert",
    ),
    "train_tokenizer": "tokenization",
    "MaskedLMCollator": "training.collators",
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


class _RegisterAfterImport(importlib.abc.MetaPathFinder):
    """Runs `_register` when Auto classes have been loaded: by somebody else, or on the way of loading the model."""

    waiting_for = {_AUTO_CONFIG, _AUTO_CLASSES, f"{__name__}.configuration_minibert", f"{__name__}.modeling_minibert"}
    loading: set[str] = set()

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.waiting_for:
            return None
        self.waiting_for.remove(fullname)
        spec = importlib.util.find_spec(fullname)
        load = spec.loader.exec_module

        def load_and_register(module):
            self.loading.add(fullname)
            load(module)
            self.loading.remove(fullname)
            if not self.loading:
                _register()

        spec.loader.exec_module = load_and_register
        return spec


sys.meta_path.insert(0, _RegisterAfterImport())
_register()
