"""Adapt the tokenizer of any model to pretraining: texts framed by [CLS] and [SEP], as rows are made."""

from tokenizers import AddedToken, Tokenizer, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


def special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The ids of [CLS] and [SEP], which frame documents. A ValueError if the tokenizer has none, or is not fast."""
    check_fast(tokenizer)
    for name in ("cls_token", "sep_token"):
        if getattr(tokenizer, name) is None:
            raise ValueError(
                f"tokenizer: {tokenizer.name_or_path!r} has no {name}, but rows need [CLS] and [SEP]"
            )
    return {name: getattr(tokenizer, name) for name in ("cls_token_id", "sep_token_id")}


def adapt_tokenizer(
    tokenizer: PreTrainedTokenizerBase, pairs: bool = False
) -> PreTrainedTokenizerBase:
    """A tokenizer with the same vocabulary that encodes texts as pretraining rows are made.

    It frames a text as `[CLS] … [SEP]` and, with `pairs`, two texts as BERT's two segments. If words carry the space
    before them, [MASK] does too. A tokenizer that does all this already is returned as it is. A ValueError if it is not
    fast, or has no [CLS], [SEP] or padding token.
    """
    cls, sep = special_ids(tokenizer).values()
    if tokenizer.pad_token is None:  # rows need none, but batches of texts do
        call = "tokenizer.add_special_tokens({'pad_token': '[PAD]'})"
        raise ValueError(
            f"tokenizer: {tokenizer.name_or_path!r} has no padding token; add one with {call}"
        )
    mask, length = tokenizer.mask_token, len(tokenizer.tokenize("a"))
    framed = tokenizer("")["input_ids"] == [cls, sep]
    if pairs:
        pair = tokenizer("", "", return_token_type_ids=True)
        framed &= [pair["input_ids"], pair["token_type_ids"]] == [[cls, sep, sep], [0, 0, 1]]
        framed &= "token_type_ids" in tokenizer.model_input_names
    # the tokens of the space before [MASK], if any
    spaces = [] if mask is None else tokenizer.tokenize(f"a {mask}")[length:-1]
    if (
        spaces == tokenizer.tokenize("a the")[length:][: len(spaces)]
    ):  # also where every space is a token
        spaces = []
    if framed and not spaces:
        return tokenizer
    adapted = plain_tokenizer(tokenizer)
    if pairs:
        adapted.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    if not framed:
        around = processors.BertProcessing((tokenizer.sep_token, sep), (tokenizer.cls_token, cls))
        # Without the first, the offsets of byte-level tokens include the space before them.
        steps = [processors.ByteLevel(trim_offsets=True), around]
        adapted.backend_tokenizer.post_processor = processors.Sequence(steps)
    if spaces:
        adapted.add_special_tokens(
            {"mask_token": AddedToken(mask, lstrip=True, normalized=False, special=True)}
        )
    return adapted


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerFast:
    """The same tokenizer as a plain `PreTrainedTokenizerFast`. (Some classes, such as T5's, frame texts themselves.)"""
    names = (
        "model_max_length",
        "padding_side",
        "truncation_side",
        "model_input_names",
        "chat_template",
    )
    options = {name: getattr(tokenizer, name) for name in (*names, "name_or_path")} | dict(
        tokenizer.special_tokens_map
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer_backend(tokenizer)), **options
    )


def check_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a slow tokenizer: it has no offsets, and no backend that reads many texts at once."""
    if not tokenizer.is_fast:
        kind = type(tokenizer).__name__
        raise ValueError(
            f"tokenizer: {tokenizer.name_or_path!r} is a slow {kind}; use a fast tokenizer"
        )


def check_mask_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer without mask token."""
    if tokenizer.mask_token is None:
        call = "tokenizer.add_special_tokens({'mask_token': AddedToken('[MASK]', lstrip=True)})"
        raise ValueError(
            f"tokenizer: {tokenizer.name_or_path!r} has no mask token; add one with {call}"
        )


def plain_backend(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """A copy of the backend, without truncation and padding, which calls of the tokenizer change."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend


def tokenizer_backend(tokenizer: PreTrainedTokenizerFast) -> str:
    """`plain_backend` as JSON: a key of caches."""
    return plain_backend(tokenizer).to_str()
