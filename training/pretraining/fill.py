"""`minibert fill`: fill the masks in a text with a trained model."""

from collections.abc import Sequence
from typing import Any

from transformers import AutoModelForMaskedLM, pipeline

from ...option_checks import checked_keywords
from ..common.printable import printable
from ..loading.load_errors import wrap_load_errors
from ..loading.models import load_masked_lm, saved_config
from ..loading.tokenizers import saved_tokenizer

MASK = "[MASK]"  # in a text of the user, whatever the tokenizer calls it


@checked_keywords
def fill(
    text: str | Sequence[str], model: str = "runs/minibert", top_k: int = 5
) -> list[list[list[dict[str, Any]]]]:
    """Fill the masks in a text with a trained model, and print the candidates.

    Args:
        text: A text with [MASK] (or the tokenizer's own mask token).
        model: The trained model: a folder or a Hub name.
        top_k: Number of candidates for each mask.

    Returns:
        For each text and each of its masks, the candidates of `pipeline("fill-mask")`, best first:
        `token_str`, `score`, `token` and `sequence`.
    """
    texts = [text]
    if not isinstance(text, str):
        texts = list(text)
    filled_texts = fill_masks(texts, model, top_k)
    for masked_text, masks in zip(texts, filled_texts):
        print(printable(masked_text))
        for number, candidates in enumerate(masks, 1):
            if len(masks) > 1:
                print(f"  mask {number}")
            for candidate in candidates:
                token = printable(candidate["token_str"].strip())
                print(f"  {candidate['score']:6.1%}  {token}")
    return filled_texts


def fill_masks(
    texts: Sequence[str], model: str, top_k: int = 5
) -> list[list[list[dict[str, Any]]]]:
    """`fill` without printing."""
    saved_config(model)  # has the best messages for a wrong path
    tokenizer = saved_tokenizer(model)
    if tokenizer.mask_token is None:
        raise ValueError(
            f"model: the tokenizer of {model!r} has no mask token; use a masked language model"
        )
    masked_texts = []
    for text in texts:
        masked_text = text.replace(MASK, tokenizer.mask_token)
        if tokenizer.mask_token not in masked_text:
            raise ValueError(
                f"text: {text!r} has no {MASK}; write it where a word is to be filled in"
            )
        masked_texts.append(masked_text)
    with wrap_load_errors(model):
        loaded = load_masked_lm(model, AutoModelForMaskedLM)
        filler = pipeline("fill-mask", model=loaded, tokenizer=tokenizer, trust_remote_code=False)
    num_candidates = min(top_k, loaded.config.vocab_size)
    filled_texts = []
    for masked_text in masked_texts:
        masks = filler(masked_text, top_k=num_candidates)
        if not isinstance(masks[0], list):  # with a single mask, the pipeline gives its candidates
            masks = [masks]
        filled_texts.append(masks)
    return filled_texts
