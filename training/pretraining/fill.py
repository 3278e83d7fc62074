"""`minibert fill`: what a trained model puts where text has masks."""

from collections.abc import Sequence
from typing import Any

from transformers import AutoModelForMaskedLM, pipeline

from ..arguments import check_least
from ..arguments.pretraining import FillArguments
from ..loading import load_predictor, reading, saved_config, saved_tokenizer

MASK = "[MASK]"


def fill(arguments: FillArguments) -> list[list[list[dict[str, Any]]]]:
    """Print the best candidates for every mask of every text, and give them back (see `fill_masks`)."""
    if not arguments.text:
        raise ValueError(f"text: none given; give text with {MASK} in it")
    check_least(arguments, top_k=1)
    filled = fill_masks(arguments.text, arguments.model, arguments.top_k)
    for text, masks in zip(arguments.text, filled):
        print(text)
        for number, candidates in enumerate(masks, 1):
            if len(masks) > 1:
                print(f"  mask {number}")
            for candidate in candidates:
                print(f"  {candidate['score']:6.1%}  {candidate['token_str'].strip()}")
    return filled


def fill_masks(texts: Sequence[str], model: str, top_k: int = 5) -> list[list[list[dict[str, Any]]]]:
    """The `top_k` candidates (`token_str`, `score`, …) of `pipeline("fill-mask")` for every mask, `[MASK]` or the
    tokenizer's own, of every text, by a model in a folder or on the Hub.

    Raises:
        ValueError: a text without a mask, or no model at the path that was trained to predict masked tokens.
    """
    saved_config(model)  # says best what is wrong with a path
    tokenizer = saved_tokenizer(model)
    if tokenizer.mask_token is None:
        raise ValueError(f"model: the tokenizer of {model!r} has no mask token; use a masked language model")
    texts = [text.replace(MASK, tokenizer.mask_token) for text in texts]
    for text in texts:
        if tokenizer.mask_token not in text:
            raise ValueError(f"text: {text!r} has no {MASK}")
    with reading(model):
        loaded = load_predictor(model, AutoModelForMaskedLM)
        filler = pipeline("fill-mask", model=loaded, tokenizer=tokenizer, trust_remote_code=False)
    filled = [filler(text, top_k=min(top_k, loaded.config.vocab_size)) for text in texts]
    # with a single mask, the pipeline leaves out the list of masks
    return [masks if isinstance(masks[0], list) else [masks] for masks in filled]
