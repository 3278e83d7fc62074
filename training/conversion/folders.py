"""From folder to folder: `minibert convert`."""

import json
import shutil
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import hf_hub_download, is_offline_mode
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase
from transformers.modeling_utils import load_state_dict

from ...configuration_minibert import MiniBertConfig
from ..loading import VOCABULARIES, check_new, new_folder, reading, saved_config, saved_tokenizer
from .checkpoints import load
from .native import from_native, to_native
from .surgery import modify, parse_changes

Architecture = Literal[
    "bert", "modernbert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "nomic_bert",
    "jina_embeddings_v3", "eurobert",
]  # fmt: skip
FILES = ("tokenizer_config.json", *VOCABULARIES)  # of a tokenizer
# Where sentence-transformers looks for the longest text, first to last.
SENTENCE_CONFIGS = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "camembert", "xlm-roberta")
)
# By any of these, sentence-transformers knows a model that PyLate saved.
PYLATE_SETTINGS = {
    "query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens", "attend_to_mask_tokens",
    "query_prefix", "document_prefix", "skiplist_words",
}  # fmt: skip
MODULE_CONFIGS = {"CNN": "cnn_config.json", "LSTM": "lstm_config.json"}  # of the other modules: config.json


def convert(
    source: str | PathLike,
    target: str | PathLike,
    *,
    architecture: Architecture | None = None,
    set: list[str] | dict[str, Any] = (),
) -> Path:
    """Convert a saved model between MiniBERT and BERT, ModernBERT, RoBERTa and their like, bit for bit.

    Its tokenizer goes along, and so do the files of sentence-transformers, which say how an embedding model pools.

    Args:
        source: The model: a folder or a Hub name.
        target: The folder to write, new or empty.
        architecture: What a MiniBERT becomes; by default what it was, or can be.
        set: Change the MiniBERT that is written, field=value (position_embedding_type=rope local_attention=128): what
            is kept and what is new is printed; a field that means nothing for trained weights is refused. Mappings as
            JSON: 'rope_parameters={"rope_type": "yarn", "factor": 2.0}'.

    Returns:
        The target.

    Raises:
        ValueError: a target that holds something, an architecture for the way to MiniBERT; and whatever `load`,
            `from_native`, `to_native` and `modify` refuse. Nothing is written then.
    """
    source, target, changes = str(source), Path(target), parse_changes(set)
    check_new(target)
    ours = isinstance(saved_config(source), MiniBertConfig)
    if architecture and not ours:
        raise ValueError(f"architecture={architecture!r} is for a MiniBERT source; {source!r} is none")
    if architecture and changes:
        raise ValueError(f"set: it changes a MiniBERT; leave architecture={architecture!r} out")
    check_query_expansion(source)
    tokenizer = tokenizer_of(source)
    loaded = load(source, tokenizer)
    model = loaded if ours else from_native(loaded)
    if changes:
        model, said = modify(model, changes)
        print("\n".join(said))
    elif ours:
        model = to_native(model, architecture)
    if any(module["type"].endswith("WeightedLayerPooling") for module in modules_of(source)):
        model.config.output_hidden_states = True  # else that module would be given the last layer alone
    with new_folder(target) as written:
        model.save_pretrained(written)
        save_rest(source, tokenizer, written, changes.get("max_position_embeddings"))
    print(f"{source} → {target}: {type(model).__name__}, {model.num_parameters():,} parameters")
    return target


def tokenizer_of(source: str) -> PreTrainedTokenizerBase | None:
    return saved_tokenizer(source) if any(find_file(source, name) for name in FILES) else None


def find_file(source: str, name: str) -> str | None:
    """Where a file of a folder or a Hub name is, None if it has no such file. What nobody can be asked about is an
    OSError, or, in offline mode, taken for absent, with a word."""
    if Path(source).exists():
        return str(Path(source, name)) if Path(source, name).is_file() else None
    try:
        return hf_hub_download(source, name)
    except LocalEntryNotFoundError:
        if not is_offline_mode():
            raise
        print(f"{source} is taken to have no {name}: it is not in the cache, and this is offline mode")
    except EntryNotFoundError:
        pass
    return None


def modules_of(source: str) -> list[dict[str, str]]:
    """The modules of which sentence-transformers makes a model, the encoder first; none if it does not know it."""
    modules = find_file(source, "modules.json")
    with reading(source):
        return json.loads(Path(modules).read_text(encoding="utf-8")) if modules else []


def check_query_expansion(source: str) -> None:
    """Refuse a late-interaction model (ColBERT) that scores by query tokens which its attention mask leaves out.

    MiniBERT computes no vectors of masked tokens, so most of a query's vectors would be zero. (sentence-transformers
    refuses FlashAttention for the same reason.)

    Raises:
        ValueError: `query_expansion` of sentence-transformers, or the settings of PyLate, say so.
    """

    def read(name: str) -> dict[str, Any]:
        file = find_file(source, name)
        with reading(source):
            return dict(json.loads(Path(file).read_text(encoding="utf-8"))) if file else {}

    if not (whole := read("config_sentence_transformers.json")):
        return
    settings = [whole, *map(read, SENTENCE_CONFIGS)]
    expansion = next((given["query_expansion"] for given in settings if given.get("query_expansion")), None)
    if "query_expansion" not in whole and PYLATE_SETTINGS & whole.keys():  # PyLate, which expands by default
        attend = whole.get("attend_to_expansion_tokens", whole.get("attend_to_mask_tokens"))
        expansion = {"attend": attend} if whole.get("do_query_expansion") is not False else None
    if expansion and not expansion.get("attend"):
        raise ValueError(
            f"{source!r} is a late-interaction model whose queries are filled up with tokens that nothing attends to"
            " (query_expansion with attend=False). MiniBERT computes no vectors of masked tokens, so it cannot be"
            " converted; one trained with attend=True can be"
        )


def save_rest(source: str, tokenizer: PreTrainedTokenizerBase | None, target: Path, length: int | None = None) -> None:
    """Save what goes along with the model: its tokenizer, if there is one, and copies of what else
    `SentenceTransformer(source)` reads, so that it reads `target`; with a `length`, texts are cut off there."""
    if tokenizer is not None:
        if length is not None:
            tokenizer.model_max_length = length
        tokenizer.save_pretrained(target)
        # A tokenizer in Python may write another vocabulary than it reads: BERTweet's loses merges.
        for name in VOCABULARIES if not tokenizer.is_fast else ():
            if file := find_file(source, name):
                shutil.copyfile(file, target / name)
        # The name of the same class that Transformers 4 knows, on which other engines stand.
        settings = target / "tokenizer_config.json"
        text = settings.read_text(encoding="utf-8").replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"')
        settings.write_text(text, encoding="utf-8")
    modules = modules_of(source)
    names = ["modules.json", "config_sentence_transformers.json", *SENTENCE_CONFIGS] if modules else []
    for module in modules[1:]:
        if not (target / module["path"]).resolve().is_relative_to(target.resolve()):
            raise ValueError(f"{source}: modules.json names {module['path']!r}; use folders inside of the model's")
        package, kind = module["type"].partition(".")[0], module["type"].rpartition(".")[2]
        if package != "sentence_transformers" and find_file(source, f"{package}.py"):
            raise ValueError(f"{source}: {module['type']!r} is code beside the model, which does not come along")
        config = MODULE_CONFIGS.get(kind, "config.json")
        names += [f"{module['path']}/{name}" for name in (config, "model.safetensors")]
    for name in names:
        old = name.replace("model.safetensors", "pytorch_model.bin")
        if file := find_file(source, name):
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(file, target / name)
        elif name != old and (file := find_file(source, old)):
            with reading(source):  # tensors and nothing else, as Transformers reads it for the encoder
                weights = load_state_dict(file)
            save_file(weights, target / name, {"format": "pt"})
    for settings in (target / name for name in SENTENCE_CONFIGS if length is not None):
        given = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
        if "max_seq_length" in given:
            settings.write_text(json.dumps(given | {"max_seq_length": length}, indent=2) + "\n", encoding="utf-8")
