"""From folder to folder: `minibert convert`."""

import json
import shutil
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase
from transformers.modeling_utils import load_state_dict

from ...configuration_minibert import MiniBertConfig
from ..common.loading import (
    SENTENCE_CONFIGS,
    VOCABULARIES,
    check_new,
    find_file,
    modules_of,
    new_folder,
    read_json,
    saved_config,
    saved_tokenizer,
    wrap_load_errors,
)
from .checkpoints import load
from .compare import check_outputs, check_saved_tokenizer, sample_batch, sample_outputs
from .native import from_native, to_native
from .surgery import modify, parse_changes

Architecture = Literal[
    "bert", "modernbert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "nomic_bert",
    "jina_embeddings_v3", "eurobert",
]  # fmt: skip
# By any of these, sentence-transformers knows a model that PyLate saved.
PYLATE_SETTINGS = {
    "query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens", "attend_to_mask_tokens",
    "query_prefix", "document_prefix", "skiplist_words",
}  # fmt: skip


def convert(
    source: str | PathLike,
    target: str | PathLike,
    *,
    architecture: Architecture | None = None,
    set: list[str] | dict[str, Any] = (),
    no_check: bool = False,
) -> Path:
    """Convert a saved model between MiniBERT and BERT, ModernBERT, RoBERTa and their like, bit for bit.

    Its tokenizer goes along, and so do the files of sentence-transformers, which say how an embedding model pools. In
    the end, source and target compute ten texts, and the largest difference of their logits is printed.

    Args:
        source: The model: a folder or a Hub name.
        target: The folder to write, new or empty.
        architecture: The architecture that a MiniBERT becomes; by default the one that it was converted from, or one
            that fits its fields.
        set: Fields to change in the MiniBERT that is written, as field=value (position_embedding_type=rope
            local_attention=128); prints what is kept and what is new. Mappings are JSON: 'rope_parameters={"rope_type":
            "yarn", "factor": 2}'.
        no_check: Leave out the comparison of outputs, for which source and target must fit into memory in fp32. With
            `set`, there is none.

    Returns:
        The target.

    Raises:
        ValueError: The target holds something, the model cannot be converted, or the two give other outputs. Nothing
            is written then.
    """
    source, target, changes = str(source), Path(target), parse_changes(set)
    check_new(target)
    ours = isinstance(saved_config(source), MiniBertConfig)
    if architecture and not ours:
        raise ValueError(
            f"architecture={architecture!r} needs a MiniBERT as the source, and {source!r} is not one"
        )
    if architecture and changes:
        raise ValueError(f"set: it changes a MiniBERT; leave architecture={architecture!r} out")
    modules = modules_of(source)  # refuses code of others
    check_query_expansion(source)
    tokenizer = tokenizer_of(source)
    loaded = load(source, tokenizer)
    compares = not changes and not no_check
    if compares:
        batch = sample_batch(loaded, tokenizer)
        expected = sample_outputs(loaded, batch)
    model = loaded if ours else from_native(loaded)
    if changes:
        model, said = modify(model, changes)
        print("\n".join(said))
    elif ours:
        model = to_native(model, architecture)
    if any(module["type"].endswith("WeightedLayerPooling") for module in modules):
        model.config.output_hidden_states = (
            True  # without it, that module gets the last layer alone
        )
    with new_folder(target) as written:
        model.save_pretrained(written)
        save_rest(source, tokenizer, written, changes.get("max_position_embeddings"))
        if tokenizer is not None:
            check_saved_tokenizer(source, tokenizer, written)
        if compares:
            difference = check_outputs(sample_outputs(load(written), batch), expected)
            print(f"source and target differ by {difference:.1e} of the largest logit on ten texts")
    print(f"{source} → {target}: {type(model).__name__}, {model.num_parameters():,} parameters")
    return target


def tokenizer_of(source: str) -> PreTrainedTokenizerBase | None:
    files = ("tokenizer_config.json", *VOCABULARIES)
    return saved_tokenizer(source) if any(find_file(source, name) for name in files) else None


def check_query_expansion(source: str) -> None:
    """Refuse (a ValueError) a late-interaction model (ColBERT) that fills queries up with tokens that its attention
    mask leaves out: MiniBERT computes no vectors of masked tokens, so most of a query's vectors would be zero."""
    settings = read_json(source, "config_sentence_transformers.json")
    if not settings:
        return
    everywhere = [settings, *(read_json(source, name) for name in SENTENCE_CONFIGS)]
    expansion = next(
        (each["query_expansion"] for each in everywhere if each.get("query_expansion")), None
    )
    if (
        "query_expansion" not in settings and PYLATE_SETTINGS & settings.keys()
    ):  # PyLate expands by default
        attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
        expansion = {"attend": attend} if settings.get("do_query_expansion") is not False else None
    if expansion and not expansion.get("attend"):
        raise ValueError(
            f"{source!r} is a late-interaction model whose queries are filled up with tokens that nothing attends to"
            " (query_expansion with attend=False), so it cannot be converted; one trained with attend=True can be"
        )


def save_rest(
    source: str, tokenizer: PreTrainedTokenizerBase | None, target: Path, length: int | None = None
) -> None:
    """Save what goes along with the model: its tokenizer, if there is one, and copies of what else
    `SentenceTransformer(source)` reads. With a `length`, texts are cut off there."""
    if tokenizer is not None:
        if length is not None:
            tokenizer.model_max_length = length
        tokenizer.save_pretrained(target)
        # A tokenizer in Python may write another vocabulary than it reads: BERTweet's loses merges.
        for name in VOCABULARIES if not tokenizer.is_fast else ():
            if file := find_file(source, name):
                shutil.copyfile(file, target / name)
        # The name of the same class in Transformers 4, which other engines use.
        settings = target / "tokenizer_config.json"
        text = settings.read_text(encoding="utf-8").replace(
            '"TokenizersBackend"', '"PreTrainedTokenizerFast"'
        )
        settings.write_text(text, encoding="utf-8")
    modules = modules_of(source)
    names = (
        ["modules.json", "config_sentence_transformers.json", *SENTENCE_CONFIGS] if modules else []
    )
    for path in (module["path"] for module in modules[1:]):
        if not (target / path).resolve().is_relative_to(target.resolve()):
            raise ValueError(
                f"{source}: modules.json names {path!r}; use folders inside of the model's"
            )
        names += [f"{path}/config.json", f"{path}/model.safetensors"]
    for name in names:
        (target / name).parent.mkdir(exist_ok=True)
        if file := find_file(source, name):
            shutil.copyfile(file, target / name)
        elif name.endswith(".safetensors") and (
            file := find_file(source, f"{name[:-17]}pytorch_model.bin")
        ):
            with wrap_load_errors(
                source
            ):  # tensors and nothing else, as Transformers reads it for the encoder
                save_file(load_state_dict(file), target / name, {"format": "pt"})
    for name in SENTENCE_CONFIGS if length is not None else ():
        settings = read_json(str(target), name)
        if "max_seq_length" in settings:
            text = json.dumps(settings | {"max_seq_length": length}, indent=2)
            (target / name).write_text(text + "\n", encoding="utf-8")
