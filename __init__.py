"""MiniBERT: pretrain, fine-tune and publish your own BERT, with BERT and ModernBERT as two settings
of one model.

`import minibert` registers the model family with Transformers' Auto classes. The import itself
loads neither torch nor Transformers, so that the command line answers at once: public names are
loaded on demand, and the registration runs as soon as the Auto classes are loaded.
"""

import functools
import importlib
import importlib.machinery
import sys

__version__ = "0.2.0"

# The public names, by the module that defines them.
_PUBLIC_NAMES = {
    "configuration_minibert": ["MiniBertConfig"],
    "modeling_minibert": [
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
    ],
    "training.pretraining.pretrain": ["pretrain"],
    "training.pretraining.config": ["PretrainingConfig", "RowsConfig", "TokenizerConfig"],
    "training.pretraining.trainer": ["PretrainingTrainer"],
    "training.finetuning.finetune": ["finetune"],
    "training.finetuning.evaluate": ["evaluate"],
    "training.finetuning.predict": ["predict"],
    "training.finetuning.config": ["FinetuningConfig", "EvaluationConfig"],
    "training.finetuning.trainer": ["FinetuningTrainer"],
    "training.finetuning.tasks.classification": ["Classify"],
    "training.finetuning.tasks.nli": ["Nli"],
    "training.finetuning.tasks.choice": ["Choose"],
    "training.finetuning.tasks.tagging": ["Tag"],
    "training.finetuning.tasks.answering": ["AnswerQuestions"],
    "training.finetuning.tasks.base": ["Task"],
    "training.hub.push": ["push"],
    "training.embeddings.config": ["EmbeddingConfig", "RerankerConfig"],
    "training.embeddings.reading.passages": ["Passage"],
    "training.embeddings.embed": ["embed"],
    "training.embeddings.search": ["search", "rerank"],
    "training.conversion.folders": ["convert"],
    "training.conversion.export": ["export"],
    "training.pretraining.fill": ["fill"],
    "training.pretraining.prepare": ["prepare"],
    "tokenization": ["Extension", "extend_tokenizer", "train_tokenizer"],
    "training.data.collators": ["MaskedLMCollator"],
    "training.data.masking_progress": ["MaskingProgress"],
    "training.data.corpus": ["Corpus"],
    "training.data.prepared": ["PreparedRows"],
    "training.common.training_result": ["TrainingResult"],
    "option_checks": ["UnknownOptionError"],
}
_MODULE_OF = {name: module for module, names in _PUBLIC_NAMES.items() for name in names}
__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str):
    if name not in _MODULE_OF:
        from .option_checks import close_matches

        advice = close_matches(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")
    module = importlib.import_module(f".{_MODULE_OF[name]}", __name__)
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# --- the registration ---

_AUTO_CONFIG = "transformers.models.auto.configuration_auto"
_AUTO_CLASSES = "transformers.models.auto.modeling_auto"
_MODEL_FILES = (
    "configuration",
    "rope",
    "compat",
    "sequences",
    "dispatch",
    "cpu",
    "losses",
    "attention",
    "modeling",
)
# `modeling_layers` and our model files import the Auto classes, and any of them may be imported
# first: the registration waits until none of these is loaded half.
_WATCHED = {
    _AUTO_CONFIG,
    _AUTO_CLASSES,
    "transformers.modeling_layers",
    *(f"{__name__}.{name}_minibert" for name in _MODEL_FILES),
}


class _AfterImport:
    """An import hook that calls `_register` whenever modules of `_WATCHED` have been loaded."""

    loading = 0  # how many of them are being loaded, one from within the other

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _WATCHED:
            return None
        # Not by all of `sys.meta_path`: two hooks of this kind, as after a reload, would call each
        # other forever.
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
        if not self.loading:
            _register()


def _register() -> None:
    """Register MiniBERT with the Auto classes that are loaded, and its code with the models that it
    saves."""
    if _AUTO_CONFIG in sys.modules:
        from transformers import AutoConfig

        from .configuration_minibert import AUTO_MAP, MiniBertConfig

        AutoConfig.register(MiniBertConfig.model_type, MiniBertConfig, exist_ok=True)
        MiniBertConfig.register_for_auto_class()
    if _AUTO_CLASSES in sys.modules:
        import transformers

        from . import modeling_minibert

        for auto_class_name, reference in AUTO_MAP.items():
            if auto_class_name == "AutoConfig":
                continue
            class_name = reference.split(".")[1]
            model_class = getattr(modeling_minibert, class_name)
            auto_class = getattr(transformers, auto_class_name)
            auto_class.register(MiniBertConfig, model_class, exist_ok=True)
            model_class.register_for_auto_class(auto_class_name)
        transformers.AutoModelForPreTraining.register(
            MiniBertConfig, _pretraining_class(), exist_ok=True
        )


def _pretraining_class() -> type:
    """What `AutoModelForPreTraining` opens: the detector of replaced tokens where one was saved,
    else the model of BERT's objectives. (Without the package, the folder's `auto_map` says it.)

    Transformers would choose by `architectures` among a tuple of classes, too, but it fails on a
    config that has none.
    """
    from .configuration_minibert import DETECTOR
    from .modeling_minibert import MiniBertForPreTraining, MiniBertForReplacedTokenDetection

    def saved_class(config):
        if config.architectures == [DETECTOR]:
            return MiniBertForReplacedTokenDetection
        return MiniBertForPreTraining

    class SavedPretrainingModel(MiniBertForPreTraining):
        """It has no instances: both methods, which Auto classes call, build one of the two."""

        @classmethod
        def from_pretrained(cls, *args, config, **kwargs):
            return saved_class(config).from_pretrained(*args, config=config, **kwargs)

        @classmethod
        def _from_config(cls, config, **kwargs):
            return saved_class(config)._from_config(config, **kwargs)

    return SavedPretrainingModel


sys.meta_path.insert(0, _AfterImport())
_register()
