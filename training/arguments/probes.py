"""The arguments of `minibert probe …`; nothing here may import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .pretraining import argument

LAYERS_HELP = (
    "last, last_four_mean, last_four_sum, the number of a state (0 is the embeddings), or a range such as 2-5 (its"
    " mean)."
)
SUBWORDS_HELP = "A word of several tokens is their mean, or the first of them."


@dataclass
class ProbeArguments:
    """The model that is probed."""

    model: str = argument("runs/minibert", "A saved MiniBERT: a folder or a Hub name.")
    batch_tokens: int = argument(4096, "Tokens in a batch, padding included.")


@dataclass
class NeighboursArguments:
    """What `minibert probe neighbours` looks for."""

    words: list[str] = argument([], "Words whose uses in the corpus are compared; also given without --words.")
    text: list[str] = argument(
        [], "Sentences with one of the words, whose nearest uses are shown; by default some of the corpus."
    )
    uses: int = argument(500, "Uses of a word that are taken from the corpus at most, drawn at random.")
    show: int = argument(5, "Nearest uses shown; without --text also the number of uses shown for every word.")
    layers: str = argument("last_four_mean", f"The vector of a word: {LAYERS_HELP}")
    subwords: Literal["mean", "first"] = argument("mean", SUBWORDS_HELP)
    masked_tokens: int = argument(
        0, "Mask this many tokens of the corpus and look them up in the embedding matrix, beside the MLM head."
    )
    recall_at: list[int] = argument([1, 5, 10, 100], "Ranks k at which the recall of masked tokens is measured.")
    seed: int = argument(0, "Seed of the uses and masks that are drawn.")
    output_dir: str = argument("runs/probe-neighbours", "Folder for the results and plots.")


@dataclass
class WsdArguments:
    """What `minibert probe wsd` reads: files with the columns tokens, target_index, lemma and sense."""

    train: str | None = argument(None, "Labelled uses that the sense vectors are made of.")
    test: list[str] = argument([], "Files that are measured.")
    validation: str | None = argument(None, "Labelled uses that the best setting is chosen on; without it none is.")
    layers: list[str] = argument(["last_four_mean"], f"The vector of a word: {LAYERS_HELP} Several are measured each.")
    subwords: Literal["mean", "first"] = argument("mean", SUBWORDS_HELP)
    output_dir: str = argument("runs/probe-wsd", "Folder for the results and the plot.")


@dataclass
class SimilarityArguments:
    """What `minibert probe similarity` compares."""

    uses: str | None = argument(
        None, "Labelled uses (columns tokens, target_index, lemma, sense), of which pairs are made."
    )
    pairs: int = argument(4000, "Pairs of uses, half of them of the same sense.")
    subwords: Literal["mean", "first"] = argument("mean", SUBWORDS_HELP)
    words: int = argument(300, "Words of the corpus, spread over the frequencies, whose uses are compared.")
    uses_per_word: int = argument(10, "Uses of each of these words.")
    seed: int = argument(0, "Seed of the pairs, words and uses that are drawn.")
    output_dir: str = argument("runs/probe-similarity", "Folder for the results and plots.")


@dataclass
class IsotropyArguments:
    """What `minibert probe isotropy` measures."""

    tokens: int = argument(
        2000,
        "Random tokens that are compared, each of another sentence; as many sentences more give means and deviations.",
    )
    sts: str | None = argument(None, "Sentence pairs (columns sentence1, sentence2, score) to measure the effect on.")
    seed: int = argument(0, "Seed of the sentences and tokens that are drawn.")
    output_dir: str = argument("runs/probe-isotropy", "Folder for the results and plots.")


@dataclass
class GrammarArguments:
    """What `minibert probe grammar` reads: minimal pairs, such as BLiMP's."""

    data: str | None = argument(
        None, "A table with the columns sentence_good and sentence_bad, and UID and linguistics_term to group them by."
    )
    pairs: int = argument(0, "Pairs of each UID at most, evenly spaced; 0: all.")
    masking: Literal["token", "word"] = argument(
        "token", "Mask one token at a time, or with it those behind it in its word (Kauf & Ivanova 2023)."
    )
    bf16: bool | None = argument(None, "Compute in bf16; by default where the hardware is fast at it.")
    output_dir: str = argument("runs/probe-grammar", "Folder for the results and the plot.")
