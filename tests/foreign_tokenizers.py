"""Small tokenizers as other projects make them: none frames a text by [CLS] and [SEP]."""

import json

from helpers import TEXTS
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    GPTNeoXTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
    T5Tokenizer,
)

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
LLAMA3 = Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")
KINDS = (
    "gpt2",
    "llama3",
    "gemma",
    "characters",
    "GPTNeoXTokenizer",
    "Qwen2Tokenizer",
    "LlamaTokenizer",
    "T5Tokenizer",
)


def trained(pre_tokenizer, alphabet=()):
    backend = Tokenizer(models.BPE(unk_token=None if alphabet else "<unk>"))
    backend.pre_tokenizer = pre_tokenizer
    special = ["<s>", "</s>", "<unk>", "<pad>"]
    options = dict(special_tokens=special, initial_alphabet=list(alphabet), show_progress=False)
    texts = [*TEXTS, "the cat the king the old man"] * 9
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, **options))
    return backend


def merged(backend):
    model = json.loads(backend.to_str())["model"]
    return dict(vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]])


def foreign_tokenizer(kind: str) -> PreTrainedTokenizerBase:
    alphabet, spaces = pre_tokenizers.ByteLevel.alphabet(), pre_tokenizers.Metaspace()
    if kind in ("gpt2", "llama3"):
        backend = trained(BYTES, alphabet)
        if kind == "llama3":
            split = pre_tokenizers.Split(LLAMA3, "isolated")
            inner = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            backend.pre_tokenizer = pre_tokenizers.Sequence([split, inner])
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    elif kind == "gemma":
        backend = trained(spaces)
        backend.normalizer = normalizers.Replace(" ", "\u2581")
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    elif kind == "characters":
        letters = ["<s>", "</s>", "<unk>", "<pad>", *" abcdefghijklmnopqrstuvwxyz"]
        letters = {letter: i for i, letter in enumerate(letters)}
        backend = Tokenizer(models.WordLevel(letters, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    elif kind == "T5Tokenizer":
        pieces = [(piece, -float(i)) for i, piece in enumerate(trained(spaces).get_vocab())]
        special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
        tokenizer = T5Tokenizer(
            vocab=[*special, *(pair for pair in pieces if not pair[0].startswith("<"))]
        )
    elif kind == "LlamaTokenizer":
        tokenizer = LlamaTokenizer(**merged(trained(spaces)))
    else:
        kind = {"GPTNeoXTokenizer": GPTNeoXTokenizer, "Qwen2Tokenizer": Qwen2Tokenizer}[kind]
        tokenizer = kind(**merged(trained(BYTES, alphabet)))
    tokenizer.add_special_tokens(
        dict(
            cls_token="<s>",
            sep_token="</s>",
            unk_token="<unk>",
            pad_token="<pad>",
            mask_token="[MASK]",
        )
    )
    return tokenizer
