"""From folder to folder: `minibert convert`."""

import json
import shutil
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase
from transformers.modeling_utils import load_state_dict

from ...configuration_minibert import MiniBertConfig
from ...option_checks import checked_keywords
from ..common.files import check_new_folder, new_folder
from ..common.printing import print_next_step
from ..hub.card import save_card, save_native_card
from ..hub.facts import CardFacts
from ..hub.origin import read_origin
from ..loading.load_errors import wrap_load_errors
from ..loading.models import saved_config
from ..loading.saved_files import SENTENCE_CONFIGS, find_file, modules_of, read_json
from ..loading.tokenizers import VOCABULARY_FILES, saved_tokenizer
from .compare import check_outputs, check_saved_tokenizer, sample_batch, sample_outputs
from .families import ArchitectureName
from .load_native import load_checkpoint
from .native import from_native, to_native
from .surgery import modify, parse_changes

# By any of these, sentence-transformers knows a model that PyLate saved.
PYLATE_SETTINGS = {
    "query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
    "attend_to_mask_tokens", "query_prefix", "document_prefix", "skiplist_words",
}  # fmt: skip

# The classes of models that are fine-tuned next.
PRETRAINED_CLASSES = ("MiniBertModel", "MiniBertForMaskedLM", "MiniBertForPreTraining")


@checked_keywords
def convert(
    source: str | PathLike,
    target: str | PathLike,
    *,
    architecture: ArchitectureName | None = None,
    set: list[str] | dict[str, Any] = (),
    no_check: bool = False,
) -> Path:
    """Convert a saved model between MiniBERT and BERT, ModernBERT, RoBERTa and their like, bit for
    bit.

    Its tokenizer goes along, and so do the files of sentence-transformers, which say how an
    embedding model pools. In the end, source and target compute ten texts, and the largest
    difference of their logits is printed.

    Args:
        source: The model: a folder or a Hub name.
        target: The folder to write, new or empty.
        architecture: The architecture that a MiniBERT becomes; by default the one that it was
            converted from, or one that fits its fields.
        set: Fields to change in the MiniBERT that is written, as field=value
            (position_embedding_type=rope local_attention=128); prints what is kept and what is new.
            Mappings are JSON: 'rope_parameters={"rope_type": "yarn", "factor": 2}'.
        no_check: Leave out the comparison of outputs, for which source and target must fit into
            memory in fp32. With `set`, there is none.

    Returns:
        The target.

    Raises:
        ValueError: The target holds something, the model cannot be converted, or the two give other
            outputs. Nothing is written then.
    """
    source = str(source)
    target = Path(target)
    changes = parse_changes(set)
    check_new_folder(target)
    is_minibert = isinstance(saved_config(source), MiniBertConfig)
    if architecture and not is_minibert:
        raise ValueError(
            f"architecture={architecture!r} needs a MiniBERT as the source, and {source!r} is not"
            " one"
        )
    if architecture and changes:
        raise ValueError(f"set: it changes a MiniBERT; leave architecture={architecture!r} out")
    modules = modules_of(source)  # refuses code of others
    check_query_expansion(source)
    tokenizer = tokenizer_of(source)
    source_model = load_checkpoint(source, tokenizer)
    checks_outputs = not changes and not no_check
    if checks_outputs:
        batch = sample_batch(source_model, tokenizer)
        expected = sample_outputs(source_model, batch)

    if not is_minibert:
        model = from_native(source_model)
    elif changes:  # it stays a MiniBERT
        model = source_model
    else:
        model = to_native(source_model, architecture)
    if changes:
        model, messages = modify(model, changes)
        print("\n".join(messages))
    if any(module["type"].endswith("WeightedLayerPooling") for module in modules):
        # without it, that module gets the last layer alone
        model.config.output_hidden_states = True

    with new_folder(target) as unfinished:
        model.save_pretrained(unfinished)
        length = changes.get("max_position_embeddings")
        save_tokenizer_and_modules(source, tokenizer, unfinished, length)
        save_source_card(source, unfinished, target, isinstance(model.config, MiniBertConfig))
        # an error from here on leaves nothing in the target
        if tokenizer is not None:
            check_saved_tokenizer(source, tokenizer, unfinished)
        if checks_outputs:
            outputs = sample_outputs(load_checkpoint(unfinished), batch)
            difference = check_outputs(outputs, expected)
            print(f"source and target differ by {difference:.1e} of the largest logit on ten texts")
    print(f"{source} → {target}: {type(model).__name__}, {model.num_parameters():,} parameters")
    if modules and isinstance(model.config, MiniBertConfig):
        print_next_step("minibert", "embed", "TEXT", "--model", target)
    elif type(model).__name__ in PRETRAINED_CLASSES:
        print_next_step("minibert", "finetune", "classify", "--model", target, "--data", "FOLDER")
    return target


def tokenizer_of(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a folder or a Hub repository; None if it has no file of one."""
    for name in ("tokenizer_config.json", *VOCABULARY_FILES):
        if find_file(source, name):
            return saved_tokenizer(source)
    return None


def check_query_expansion(source: str) -> None:
    """Refuse (a ValueError) a late-interaction model (ColBERT) that fills queries up with tokens
    that its attention mask leaves out: MiniBERT computes no vectors of masked tokens, so most of a
    query's vectors would be zero."""
    expansion = _query_expansion(source)
    if expansion and not expansion.get("attend"):
        raise ValueError(
            f"{source!r} is a late-interaction model whose queries are filled up with tokens that"
            " nothing attends to (query_expansion with attend=False), so it cannot be converted;"
            " one trained with attend=True can be"
        )


def _query_expansion(source: str) -> dict[str, Any] | None:
    """How a late-interaction model fills queries up (`attend`: whether tokens attend to these), as
    sentence-transformers or PyLate saved it; None if it does not."""
    settings = read_json(source, "config_sentence_transformers.json")
    if not settings:
        return None
    if "query_expansion" not in settings and PYLATE_SETTINGS & settings.keys():
        if settings.get("do_query_expansion") is False:  # by default it does
            return None
        attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
        return {"attend": attend}
    expansion = settings.get("query_expansion")
    for name in SENTENCE_CONFIGS:
        expansion = expansion or read_json(source, name).get("query_expansion")
    return expansion


# --- what goes along with the model ---


def save_source_card(source: str, folder: Path, target: Path, is_minibert: bool) -> None:
    """Write a card that remembers where the model is from, with the facts of its source's card:
    licence, languages, data sets and base model.

    Args:
        folder: Where the model is now.
        target: Where it will be.
    """
    source_facts = read_origin(source)
    facts = CardFacts(
        base_model=source_facts.base_model,
        origin="Converted from",
        license=source_facts.license,
        language=source_facts.languages,
        datasets=source_facts.datasets,
    )
    if is_minibert:
        save_card(folder, facts, str(target))
    else:
        save_native_card(folder, facts)


def save_tokenizer_and_modules(
    source: str, tokenizer: PreTrainedTokenizerBase | None, target: Path, length: int | None = None
) -> None:
    """Save what goes along with the model: its tokenizer, if there is one, and copies of the
    modules of sentence-transformers, if there are any. With a `length`, texts are cut off there."""
    if tokenizer is not None:
        if length is not None:
            tokenizer.model_max_length = length
        _save_tokenizer(source, tokenizer, target)
    _copy_modules(source, target)
    if length is not None:
        _cut_texts(target, length)


def _save_tokenizer(source: str, tokenizer: PreTrainedTokenizerBase, target: Path) -> None:
    tokenizer.save_pretrained(target)
    if not tokenizer.is_fast:
        # One in Python may write another vocabulary than it reads: BERTweet's loses merges.
        for name in VOCABULARY_FILES:
            file = find_file(source, name)
            if file:
                shutil.copyfile(file, target / name)
    # The name of the same class in Transformers 4, which other engines use.
    settings = target / "tokenizer_config.json"
    text = settings.read_text(encoding="utf-8")
    text = text.replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"')
    settings.write_text(text, encoding="utf-8")


def _copy_modules(source: str, target: Path) -> None:
    """Copy the settings and the modules of sentence-transformers, whose weights become
    safetensors."""
    modules = modules_of(source)
    if not modules:
        return
    names = ["modules.json", "config_sentence_transformers.json", *SENTENCE_CONFIGS]
    for module in modules[1:]:
        path = module["path"]
        names.append(f"{path}/config.json")
        names.append(f"{path}/model.safetensors")
    for name in names:
        (target / name).parent.mkdir(exist_ok=True)
        file = find_file(source, name)
        if file:
            shutil.copyfile(file, target / name)
            continue
        if not name.endswith("/model.safetensors"):
            continue
        pickled = find_file(source, name.replace("/model.safetensors", "/pytorch_model.bin"))
        if pickled:
            with wrap_load_errors(source):
                # tensors and nothing else, as Transformers reads it for the encoder
                save_file(load_state_dict(pickled), target / name, {"format": "pt"})


def _cut_texts(target: Path, length: int) -> None:
    """Have sentence-transformers cut texts off at `length` tokens."""
    for name in SENTENCE_CONFIGS:
        settings = read_json(str(target), name)
        if "max_seq_length" in settings:
            settings["max_seq_length"] = length
            text = json.dumps(settings, indent=2)
            (target / name).write_text(f"{text}\n", encoding="utf-8")
