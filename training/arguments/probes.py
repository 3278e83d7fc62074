"""The arguments of `minibert probe …`; nothing here may import torch."""

from dataclasses import dataclass
from typing import Literal

from . import argument

LAYERS_HELP = "last, last_four_mean, last_four_sum, a state's number (0: embeddings), or a range's mean (2-5)."
SUBWORDS_HELP = "A word of several tokens is their mean, or the first of them."


@dataclass
class ProbeArguments:
    model: str = argument("runs/minibert", "A saved MiniBERT (for grammar any language model): a folder or a Hub name.")
    batch_tokens: int = argument(4096, "Tokens in a batch, padding included.")


@dataclass
class NeighboursArguments:
    """Show a word's nearest uses in a corpus, and look masked tokens up in the embedding matrix."""

    words: list[str] = argument([], "Words whose uses in the corpus are compared; also given without --words.")
    text: list[str] = argument([], "Sentences with one of the words, to show its nearest uses of; by default drawn.")
    uses: int = argument(500, "Uses of a word that are taken from the corpus at most, drawn at random.")
    show: int = argument(5, "Nearest uses shown; without --text also the number of uses shown for every word.")
    layers: str = argument("last_four_mean", f"The vector of a word: {LAYERS_HELP}")
    subwords: Literal["mean", "first"] = argument("mean", SUBWORDS_HELP)
    masked_tokens: int = argument(0, "Tokens of the corpus to mask and look up in the embedding matrix.")
    recall_at: list[int] = argument([1, 5, 10, 100], "Ranks k at which the recall of masked tokens is measured.")
    seed: int = argument(0, "Seed of the uses and masks that are drawn.")
    output_dir: str = argument("runs/probe-neighbours", "Folder for the results and plots.")


@dataclass
class WsdArguments:
    """Tell the senses of words from their nearest labelled uses, beside a bag of words."""

    train: str | None = argument(None, "Labelled uses (columns tokens, target_index, lemma, sense) to learn from.")
    test: list[str] = argument([], "Files that are measured.")
    validation: str | None = argument(None, "Labelled uses that the best setting is chosen on; without it none is.")
    layers: list[str] = argument(["last_four_mean"], f"The vector of a word: {LAYERS_HELP} Several are measured each.")
    subwords: Literal["mean", "first"] = argument("mean", SUBWORDS_HELP)
    output_dir: str = argument("runs/probe-wsd", "Folder for the results and the plot.")


@dataclass
class SimilarityArguments:
    """Compare uses of the same word: static against contextual vectors, and the cosine's error by frequency."""

    uses: str | None = argument(None, "Labelled uses (columns tokens, target_index, lemma, sense), paired at random.")
    pairs: int = argument(4000, "Pairs of uses, half of them of the same sense.")
    subwords: Literal["mean", "first"] = argument("mean", SUBWORDS_HELP)
    words: int = argument(300, "Words of the corpus, spread over the frequencies, whose uses are compared.")
    uses_per_word: int = argument(10, "Uses of each of these words.")
    seed: int = argument(0, "Seed of the pairs, words and uses that are drawn.")
    output_dir: str = argument("runs/probe-similarity", "Folder for the results and plots.")


@dataclass
class IsotropyArguments:
    """Measure how alike the vectors of random tokens are, before and after z-scoring."""

    tokens: int = argument(2000, "Random tokens compared, one a sentence; as many more give means and deviations.")
    sts: str | None = argument(None, "Sentence pairs (columns sentence1, sentence2, score) to measure the effect on.")
    seed: int = argument(0, "Seed of the sentences and tokens that are drawn.")
    output_dir: str = argument("runs/probe-isotropy", "Folder for the results and plots.")


@dataclass
class GrammarArguments:
    """Tell grammatical sentences from ungrammatical ones (BLiMP), with any language model of Transformers."""

    data: str | None = argument(
        None, "A table: sentence_good, sentence_bad, and UID, linguistics_term to group them by."
    )
    pairs: int = argument(0, "Pairs of each UID at most, evenly spaced; 0: all.")
    masking: Literal["token", "word"] = argument(
        "token", "Mask one token at a time, or with it those behind it in its word (Kauf & Ivanova 2023)."
    )
    bf16: bool | None = argument(None, "Compute in bf16; by default where the hardware is fast at it.")
    output_dir: str = argument("runs/probe-grammar", "Folder for the results and the plot.")
