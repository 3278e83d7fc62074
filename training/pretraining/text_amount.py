"""How much text a pretraining has: its rows in a line, and warnings where they are few."""

from collections.abc import Sequence

import datasets
import numpy as np

from ..common.printing import warn
from ..data.mixtures import SAMPLE_ROWS
from ..data.packing import fill_rate, unigram_counts
from .config import PretrainingConfig

# Fewer tokens for each parameter of a new model, or fewer occurrences of a new word, get a
# warning.
MIN_TOKENS_PER_PARAMETER = 2
MIN_OCCURRENCES_OF_NEW_WORD = 50
# Text that a trained model gains little from; a million words are more tokens.
MIN_TOKENS_TO_CONTINUE = 1_000_000


def print_size(
    rows: datasets.Dataset, seq_length: int, parameters: int, streaming: bool = False
) -> None:
    """Print the number of rows (if `streaming`, they are the first ones of a stream) and
    parameters."""
    filled = fill_rate(rows, seq_length)
    amount = f"{len(rows):,}"
    if streaming:
        amount = f"the first {amount}"
    print(
        f"{amount} rows of up to {seq_length} tokens, filled to {filled:.1%}; {parameters:,}"
        " parameters"
    )


def count_tokens(rows: datasets.Dataset, vocab_size: int) -> np.ndarray:
    """How often each token stands in the rows, about: float64 [vocab_size]."""
    stride = -(-len(rows) // SAMPLE_ROWS)  # all rows may be a terabyte
    some_rows = rows.select(range(0, len(rows), stride))
    counts = unigram_counts(some_rows, vocab_size)
    return counts * (len(rows) / len(some_rows))


def expected_passes(args: PretrainingConfig, num_rows: int) -> float:
    """How often a training will see each row, about. By the clock, it is one epoch."""
    if args.minutes is not None:
        return 1
    if args.max_steps > 0:
        step_rows = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return args.max_steps * step_rows / num_rows
    return args.num_train_epochs


def warn_of_little_text(num_tokens: float, parameters: int) -> None:
    """Warn of too few tokens for a new model; `num_tokens`: in all passes over the text."""
    tokens_per_parameter = num_tokens / parameters
    if tokens_per_parameter < MIN_TOKENS_PER_PARAMETER:
        warn(
            f"about {num_tokens:,.0f} tokens for {parameters:,} parameters"
            f" ({tokens_per_parameter:.1f} for each) are few; below {MIN_TOKENS_PER_PARAMETER},"
            " use a smaller --size, or train longer and on more text"
        )


def warn_of_little_text_to_continue(num_tokens: float) -> None:
    """Warn of too few tokens for a trained model; `num_tokens`: in the text."""
    if num_tokens < MIN_TOKENS_TO_CONTINUE:
        warn(
            f"about {num_tokens:,.0f} tokens of text are few to continue a training"
            " with; expect little below a million words"
        )


def warn_of_rare_words(counts: np.ndarray, new_ids: Sequence[int]) -> None:
    """Warn of new words that hardly occur; `counts`: of all tokens, in all passes over the text."""
    num_occurrences = np.median(counts[new_ids])
    if num_occurrences < MIN_OCCURRENCES_OF_NEW_WORD:
        warn(
            f"half of the {len(new_ids):,} new words are trained on {num_occurrences:.0f}"
            " times or less and learn little; use a smaller --extend_vocabulary, or more"
            " text"
        )
