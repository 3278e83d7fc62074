"""Adapt the tokenizer of any model to pretraining: texts framed by [CLS] and [SEP], as rows are
made."""

from tokenizers import AddedToken, Tokenizer, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


def special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The ids of [CLS] and [SEP], which frame documents. A ValueError if the tokenizer has none, or
    is not fast."""
    check_fast(tokenizer)
    for name in ("cls_token", "sep_token"):
        if getattr(tokenizer, name) is None:
            raise ValueError(
                f"tokenizer: {tokenizer.name_or_path!r} has no {name},"
                " but rows need [CLS] and [SEP]"
            )
    return {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}


def adapt_tokenizer(
    tokenizer: PreTrainedTokenizerBase, pairs: bool = False
) -> PreTrainedTokenizerBase:
    """A tokenizer with the same vocabulary that encodes texts as pretraining rows are made.

    It frames a text as `[CLS] … [SEP]` and, with `pairs`, two texts as BERT's two segments. If
    words carry the space before them, [MASK] does too. A tokenizer that does all this already is
    returned as it is. A ValueError if it is not fast, or has no [CLS], [SEP] or padding token.
    """
    check_special_tokens(tokenizer)
    is_framed = frames_texts(tokenizer, pairs)
    is_mask_alone = leaves_space_before_mask(tokenizer)
    if is_framed and not is_mask_alone:
        return tokenizer
    adapted = plain_tokenizer(tokenizer)
    if pairs:
        adapted.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    if not is_framed:
        frame = processors.BertProcessing(
            (tokenizer.sep_token, tokenizer.sep_token_id),
            (tokenizer.cls_token, tokenizer.cls_token_id),
        )
        # Without the first, the offsets of byte-level tokens include the space before them.
        steps = [processors.ByteLevel(trim_offsets=True), frame]
        adapted.backend_tokenizer.post_processor = processors.Sequence(steps)
    if is_mask_alone:
        mask = AddedToken(tokenizer.mask_token, lstrip=True, normalized=False, special=True)
        adapted.add_special_tokens({"mask_token": mask})
    return adapted


def check_special_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse (a ValueError) a tokenizer without [CLS], [SEP] or padding: rows need no padding, but
    batches of texts do."""
    special_ids(tokenizer)
    if tokenizer.pad_token is None:
        raise ValueError(
            f"tokenizer: {tokenizer.name_or_path!r} has no padding token; add one with"
            " tokenizer.add_special_tokens({'pad_token': '[PAD]'})"
        )


def frames_texts(tokenizer: PreTrainedTokenizerBase, pairs: bool) -> bool:
    """Whether a text becomes `[CLS] … [SEP]` and, with `pairs`, two texts BERT's two segments."""
    cls = tokenizer.cls_token_id
    sep = tokenizer.sep_token_id
    if tokenizer("")["input_ids"] != [cls, sep]:
        return False
    if not pairs:
        return True
    pair = tokenizer("", "", return_token_type_ids=True)
    return (
        pair["input_ids"] == [cls, sep, sep]
        and pair["token_type_ids"] == [0, 0, 1]
        and "token_type_ids" in tokenizer.model_input_names
    )


def leaves_space_before_mask(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the space before [MASK] becomes a token of its own, where the one before a word
    belongs to the word."""
    if tokenizer.mask_token is None:
        return False
    length = len(tokenizer.tokenize("a"))
    space_tokens = tokenizer.tokenize(f"a {tokenizer.mask_token}")[length:-1]
    before_word = tokenizer.tokenize("a the")[length:]
    # Equal where there is none, and where every space is a token.
    return space_tokens != before_word[: len(space_tokens)]


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerFast:
    """The same tokenizer as a plain `PreTrainedTokenizerFast`. (Some classes, such as T5's, frame
    texts themselves.)"""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer_json(tokenizer)),
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=tokenizer.model_input_names,
        chat_template=tokenizer.chat_template,
        name_or_path=tokenizer.name_or_path,
        **tokenizer.special_tokens_map,
    )


def check_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a slow tokenizer: it has no offsets, and no backend that reads many texts at once."""
    if not tokenizer.is_fast:
        raise ValueError(
            f"tokenizer: {tokenizer.name_or_path!r} is a slow {type(tokenizer).__name__};"
            " use a fast tokenizer"
        )


def check_mask_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer without mask token."""
    if tokenizer.mask_token is None:
        raise ValueError(
            f"tokenizer: {tokenizer.name_or_path!r} has no mask token; add one with"
            " tokenizer.add_special_tokens({'mask_token': AddedToken('[MASK]', lstrip=True)})"
        )


def untruncated_backend(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """A copy of the backend, without truncation and padding, which calls of the tokenizer
    change."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend


def tokenizer_json(tokenizer: PreTrainedTokenizerFast) -> str:
    """`untruncated_backend` as JSON, as in tokenizer.json: a key of caches."""
    return untruncated_backend(tokenizer).to_str()
