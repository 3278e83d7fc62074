"""What a model is pretrained to do: each objective is its rows, its model, its collator and its
metrics."""

from .base import Objective
from .causal_lm import CausalLM
from .masked_lm import MaskedLM
from .replaced_tokens import ReplacedTokenDetection
from .sentence_pairs import MaskedLMWithNextSentence, MaskedLMWithSentenceOrder

OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective
    for objective in (
        MaskedLM,
        MaskedLMWithNextSentence,
        MaskedLMWithSentenceOrder,
        ReplacedTokenDetection,
        CausalLM,
    )
}
