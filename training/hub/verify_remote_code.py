"""Load a published model as somebody without the package does; a script, run in a process of its
own.

    python verify_remote_code.py FOLDER

Every Auto class that the config names is loaded. The saved head has to load without a missing
weight, and is run. The last line that it prints is JSON: the saved head, the Auto classes that were
loaded, and versions.
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
LIBRARIES = ("transformers", "huggingface_hub", "tokenizers", "torch")  # whose versions are told


def load(folder: str) -> dict:
    """Load the folder by each of its Auto classes, and run the head that was saved.

    Returns:
        `saved`, the class of that head; `auto_classes`, their names; `versions` of `LIBRARIES`.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    check_vocabulary(tokenizer, config)
    saved = config.architectures[0]
    if not saved.isidentifier():
        raise SystemExit(f"config.json names the class {saved!r}, which is no name of a class")
    auto_classes = {}
    for name, reference in config.auto_map.items():
        if name != "AutoConfig":
            auto_classes[name] = reference.split(".")[-1]
    for auto_class, class_name in auto_classes.items():
        check_class(folder, getattr(transformers, auto_class), class_name, saved, tokenizer)
    if saved not in auto_classes.values():  # a head that no Auto class is for
        loader = get_class_from_dynamic_module(f"modeling_minibert.{saved}", folder)
        check_class(folder, loader, saved, saved, tokenizer)
    versions = {name: version(name) for name in LIBRARIES}
    return {"saved": saved, "auto_classes": list(auto_classes), "versions": versions}


def check_vocabulary(tokenizer, config) -> None:
    """End with a message if the model has no vector for a token, or pads by another one."""
    highest_id = max(tokenizer.get_vocab().values())
    padding_ids = {config.pad_token_id, tokenizer.pad_token_id} - {None}
    if highest_id >= config.vocab_size or len(padding_ids) > 1:
        raise SystemExit(
            f"the tokenizer does not fit the model: ids up to {highest_id} for {config.vocab_size}"
            f" word vectors, padding {padding_ids or 'none'}"
        )


def check_class(folder: str, loader, name: str, saved: str, tokenizer) -> None:
    """Load the folder by an Auto class or a class (`loader`), which must give the folder's class
    `name`. The saved one must have all of its weights, and is run."""
    is_saved = name == saved
    model, report = loader.from_pretrained(
        folder,
        attn_implementation="eager",
        trust_remote_code=True,
        output_loading_info=True,
        ignore_mismatched_sizes=not is_saved,  # another head may have other shapes
        dtype=torch.float32,
    )
    source = type(model).__module__
    if type(model).__name__ != name or not source.startswith("transformers_modules."):
        raise SystemExit(
            f"{loader.__name__} gave {source}.{type(model).__name__}, not the folder's {name}"
        )
    if is_saved:
        problems = {}
        for problem, names in report.items():
            if names:
                problems[problem] = sorted(names)
        if problems:
            raise SystemExit(f"the weights do not fit {name}: {problems}")
        run_model(model.eval(), tokenizer)


def run_model(model: torch.nn.Module, tokenizer) -> None:
    """Compute the outputs for two texts of different lengths: no NaN may be in them."""
    has_padding = tokenizer.pad_token is not None
    texts = TEXTS
    if not has_padding:
        texts = TEXTS[:1]
    batch = tokenizer(
        texts,
        padding=has_padding,
        truncation=True,
        max_length=model.config.max_position_embeddings,
        return_tensors="pt",
    )
    if "MultipleChoice" in type(model).__name__:
        batch = {name: values[None] for name, values in batch.items()}
    with torch.no_grad():
        outputs = model(**batch)
    for name, values in outputs.items():
        if values.isnan().any():
            raise SystemExit(f"the output {name} has NaNs")


if __name__ == "__main__":
    print(json.dumps(load(sys.argv[1])))
