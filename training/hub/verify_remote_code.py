"""Load a published model as somebody without the package does; a script, run in a process of its own.

    python verify_remote_code.py FOLDER

Every Auto class that the config names is loaded. The saved head has to load without a missing weight, and is run. The
last line that it prints is JSON: the saved head, the Auto classes that were loaded, and versions.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]
sys.modules["minibert"] = None  # `import minibert` is an ImportError from here on, installed or not

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.dynamic_module_utils import get_class_from_dynamic_module  # noqa: E402

TEXTS = ["The first text is this one.", "A second text is a little longer than the first one is."]


def load(folder: str) -> dict:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    highest, pads = (
        max(tokenizer.get_vocab().values()),
        {config.pad_token_id, tokenizer.pad_token_id} - {None},
    )
    if highest >= config.vocab_size or len(pads) > 1:
        ids = f"ids up to {highest} for {config.vocab_size} word vectors, padding {pads or 'none'}"
        raise SystemExit(f"the tokenizer does not fit the model: {ids}")
    saved = config.architectures[0]
    if not saved.isidentifier():
        raise SystemExit(f"config.json names the class {saved!r}, which is no name of a class")
    auto_classes = {name: reference.split(".")[-1] for name, reference in config.auto_map.items()}
    del auto_classes["AutoConfig"]
    loaders = {name: getattr(transformers, name) for name in auto_classes}
    if saved not in auto_classes.values():  # a head that no Auto class is for
        loaders[saved] = get_class_from_dynamic_module(f"modeling_minibert.{saved}", folder)
    for auto_class, loader in loaders.items():
        name = auto_classes.get(auto_class, saved)
        # a classifier may have as many classes as another head
        options = dict(
            output_loading_info=True, ignore_mismatched_sizes=name != saved, dtype=torch.float32
        )
        model, info = loader.from_pretrained(
            folder, attn_implementation="eager", trust_remote_code=True, **options
        )
        source = type(model).__module__
        if type(model).__name__ != name or not source.startswith("transformers_modules."):
            raise SystemExit(
                f"{auto_class} gave {source}.{type(model).__name__}, not the folder's {name}"
            )
        if name == saved:
            if wrong := {kind: sorted(names) for kind, names in info.items() if names}:
                raise SystemExit(f"the weights do not fit {name}: {wrong}")
            run(model.eval(), tokenizer)
    versions = {
        name: version(name) for name in ("transformers", "huggingface_hub", "tokenizers", "torch")
    }
    return {"saved": saved, "auto_classes": list(auto_classes), "versions": versions}


def run(model: torch.nn.Module, tokenizer) -> None:
    """Compute the outputs for two texts of different lengths: no NaN may be in them."""
    pads, longest = tokenizer.pad_token is not None, model.config.max_position_embeddings
    texts = TEXTS if pads else TEXTS[:1]
    batch = tokenizer(texts, padding=pads, truncation=True, max_length=longest, return_tensors="pt")
    if "MultipleChoice" in type(model).__name__:
        batch = {name: values[None] for name, values in batch.items()}
    with torch.no_grad():
        for name, x in model(**batch).items():
            if x.isnan().any():
                raise SystemExit(f"the output {name} has NaNs")


if __name__ == "__main__":
    print(json.dumps(load(sys.argv[1])))
