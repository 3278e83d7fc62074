"""Does a language model prefer the grammatical one of two sentences that differ in one point?

    python benchmarks/grammar.py --model MODEL --data blimp.jsonl --pairs 100

Minimal pairs such as those of BLiMP (Warstadt et al. 2020, arXiv 1912.00582), for any language model of Transformers. A
masked language model's score of a sentence is its pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659), a
decoder's its log-likelihood.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from common import option, parse, read_table
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from minibert.modeling_minibert import MiniBertLanguageModel
from minibert.tokenization.words import word_start_table
from minibert.training.common.files import write_json
from minibert.training.common.precision import fast_bf16
from minibert.training.common.printing import format_table
from minibert.training.data.packing import group_by_length
from minibert.training.evaluation.plots import picture

DECODERS = ("CausalLM", "LMHeadModel")  # what the names of their classes end in
COLUMNS = ("sentence_good", "sentence_bad")
# What groups the pairs, where the file has it: BLiMP's paradigms and the phenomena that they belong to.
PARADIGM, PHENOMENON = "UID", "linguistics_term"


class Target(NamedTuple):
    """A token of a row that is predicted, and the number of the sentence whose score it adds to."""

    place: int
    label: int
    sentence: int


@dataclass
class Arguments:
    model: str = option(
        "runs/minibert", "A masked language model or a decoder: a folder or a Hub name."
    )
    data: str = option(
        "blimp.jsonl",
        "A table: sentence_good, sentence_bad, and UID, linguistics_term to group by.",
    )
    pairs: int = option(0, "Pairs of each UID at most, evenly spaced; 0: all.")
    masking: Literal["token", "word"] = option(
        "token",
        "Mask one token at a time, or with it those behind it in its word (Kauf & Ivanova 2023).",
    )
    batch_tokens: int = option(4096, "Tokens in a batch, padding included.")
    bf16: bool | None = option(
        None, "Compute in bf16; by default where the hardware is fast at it."
    )
    output_dir: str = option("runs/grammar", "Folder for the results and the plot.")


def main(arguments: Arguments) -> dict[str, Any]:
    """Measure; print a table; write a plot and `results.json`."""
    found = measure_accuracy(
        **{name: x for name, x in vars(arguments).items() if name != "output_dir"}
    )
    rows = [[name, 100 * share] for name, share in found["phenomena"].items()]
    print(
        format_table(
            ["phenomenon", "accuracy"], [*rows, ["all", 100 * found["accuracy"]]], digits=1
        )
    )
    folder = Path(arguments.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", {"arguments": asdict(arguments), **found})
    plot(folder / "grammar.png", found)
    return found


def measure_accuracy(
    model: str,
    data: str,
    pairs: int = 0,
    masking: str = "token",
    batch_tokens: int = 4096,
    bf16: bool | None = None,
) -> dict[str, Any]:
    """`accuracy` over all `pairs` (a tie is a half), and that of each of the file's `paradigms` and `phenomena`."""
    rows = read_minimal_pairs(data, pairs)
    bf16 = fast_bf16()[0] if bf16 is None else bf16
    language_model, tokenizer = load_language_model(
        model, torch.bfloat16 if bf16 else torch.float32
    )
    sentences = [row[column] for row in rows for column in COLUMNS]
    scores = score_sentences(language_model, tokenizer, sentences, masking, batch_tokens).reshape(
        -1, 2
    )
    points = (scores[:, 0] > scores[:, 1]) + 0.5 * (scores[:, 0] == scores[:, 1])
    found: dict[str, Any] = {"pairs": len(rows), "accuracy": float(points.mean())}
    for name, column in (("paradigms", PARADIGM), ("phenomena", PHENOMENON)):
        groups = np.array([str(row.get(column, "all")) for row in rows])
        found[name] = {str(x): float(points[groups == x].mean()) for x in dict.fromkeys(groups)}
    return found


def read_minimal_pairs(file: str, pairs: int) -> list[dict[str, Any]]:
    """The rows of a table with the columns sentence_good and sentence_bad; of each paradigm at most `pairs`, evenly
    spaced (0: all)."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in read_table(file):
        groups.setdefault(row.get(PARADIGM), []).append(row)
    rows = []
    for group in groups.values():
        count = min(pairs or len(group), len(group))
        rows += [group[place * len(group) // count] for place in range(count)]
    return rows


def load_language_model(
    path: str, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A masked language model or a decoder of any architecture of Transformers, for inference, and its tokenizer."""
    decoder = any(
        name.endswith(DECODERS) for name in AutoConfig.from_pretrained(path).architectures or []
    )
    auto = AutoModelForCausalLM if decoder else AutoModelForMaskedLM
    model, loaded = auto.from_pretrained(path, dtype=dtype, output_loading_info=True)
    if loaded["missing_keys"]:
        raise ValueError(f"{path!r} has no head that predicts tokens")
    if "attention_mask" not in inspect.signature(model.forward).parameters:  # FNet
        raise ValueError(
            f"{path!r} is a {type(model).__name__}, which takes no attention_mask: padding would count"
        )
    tokenizer = AutoTokenizer.from_pretrained(path)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


@torch.inference_mode()
def score_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sentences: Sequence[str],
    masking: str = "token",
    batch_tokens: int = 4096,
) -> np.ndarray:
    """The (pseudo-)log-likelihood of each sentence, [sentences], in nats; special tokens are not counted. Of a masked
    language model `masking` masks one "token" at a time, or by "word" with it those behind it in its word (Kauf &
    Ivanova 2023, arXiv 2305.10588), as else a rare word is easily told from its own pieces. A ValueError names a
    sentence with no token to predict, or with more than the model takes."""
    decoder = type(model).__name__.endswith(DECODERS)
    if decoder and masking != "token":
        raise ValueError(f"masking: {masking!r} has no effect on a decoder; use token")
    if decoder:
        rows_of = _decoder_row
    else:
        within = (
            _within_words(tokenizer)
            if masking == "word"
            else lambda encoding: [False] * len(encoding)
        )
        rows_of = partial(_masked_rows, within=within)
    numbers: dict[tuple[int, ...], int] = {}  # of sentences that differ in their tokens
    owners: list[int] = []
    # Rows and what is predicted in them: two sentences that differ in one token are one row where that one is masked.
    targets: dict[tuple[int, ...], list[Target]] = {}
    kind = getattr(model.config, "position_embedding_type", "absolute")
    learned = kind == "absolute" and not getattr(
        model.config, "rope_parameters", None
    )  # others have no end
    longest = min(
        tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", np.inf)
    )
    encodings = tokenizer(list(sentences), return_special_tokens_mask=True, verbose=False).encodings
    for sentence, encoding in zip(sentences, encodings):
        made = list(rows_of(encoding, tokenizer))
        if not made:  # 0 would be the best score
            raise ValueError(f"data: the sentence {sentence!r} has no token that is predicted")
        if learned and len(made[0][0]) > longest:
            given = f"the sentence {sentence[:60]!r} … has {len(made[0][0])} tokens"
            raise ValueError(f"data: {given}; the model takes {longest}")
        ids = tuple(encoding.ids)
        if ids not in numbers:
            numbers[ids] = len(numbers)
            for row, place, label in made:
                targets.setdefault(row, []).append(Target(place, label, numbers[ids]))
        owners.append(numbers[ids])
    rows = list(targets.items())
    scores = torch.zeros(len(numbers), dtype=torch.float64)
    with tqdm(total=len(rows), desc="Sentences", unit=" rows", leave=False, delay=1) as bar:
        for chosen in group_by_length([len(row) for row, _ in rows], batch_tokens):
            batch = [rows[number] for number in chosen]
            labels, owner = torch.tensor(
                [[x.label, x.sentence] for _, found in batch for x in found]
            ).T
            logits = _logits(model, batch, tokenizer.pad_token_id or 0).float()
            losses = F.cross_entropy(logits, labels.to(logits.device), reduction="none")
            scores.index_add_(0, owner, losses.double().cpu(), alpha=-1)
            bar.update(len(batch))
    return scores[owners].numpy()


def _within_words(tokenizer: PreTrainedTokenizerFast) -> Callable[[Any], Sequence[bool]]:
    """Of an encoding, whether each token goes on with the word before it."""
    if len({*tokenizer("a a", add_special_tokens=False).word_ids()}) == 2:
        return lambda encoding: [
            False,
            *(a == b is not None for a, b in itertools.pairwise(encoding.word_ids)),
        ]
    starts = word_start_table(tokenizer)  # it does not split texts, as Llama's
    return lambda encoding: ~starts[encoding.ids]


def _masked_rows(
    encoding: Any, tokenizer: PreTrainedTokenizerFast, within: Callable[[Any], Sequence[bool]]
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """The sentence once for each of its tokens, with that token masked, and those behind it that are still `within` its
    word; the token's place and the token."""
    ids, special, mask = (
        tuple(encoding.ids),
        encoding.special_tokens_mask,
        (tokenizer.mask_token_id,),
    )
    goes_on = within(encoding)
    for place, token in enumerate(ids):
        if special[place]:
            continue
        stop = place + 1
        while stop < len(ids) and not special[stop] and goes_on[stop]:
            stop += 1
        yield (*ids[:place], *mask * (stop - place), *ids[stop:]), place, token


def _decoder_row(encoding: Any, tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple]:
    """The sentence with each of its tokens and the place before it; the first token is predicted from the one that
    begins texts, where there is one."""
    ids, special = tuple(encoding.ids), encoding.special_tokens_mask
    if tokenizer.bos_token_id not in (None, ids[0]):
        ids, special = (tokenizer.bos_token_id, *ids), [1, *special]
    return ((ids, place - 1, ids[place]) for place in range(1, len(ids)) if not special[place])


def _logits(
    model: PreTrainedModel, batch: list[tuple[tuple[int, ...], list[Target]]], pad: int
) -> torch.Tensor:
    """Logits [targets, vocabulary] of a batch."""
    lengths = [len(row) for row, _ in batch]
    longest = max(lengths)
    inputs = {
        "input_ids": torch.tensor(
            [row + (pad,) * (longest - len(row)) for row, _ in batch], device=model.device
        )
    }
    if min(lengths) < longest:
        real = torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)
        inputs["attention_mask"] = real.long().to(model.device)
    unpadded = isinstance(model, MiniBertLanguageModel)
    starts = itertools.accumulate(lengths if unpadded else [longest] * len(batch), initial=0)
    places = torch.tensor(
        [start + x.place for start, (_, found) in zip(starts, batch) for x in found]
    )
    places = places.to(model.device)
    if unpadded:  # the vocabulary at the targets alone
        return model.predict_tokens(
            model.run_encoder(**inputs), None, True, masked_lm_positions=places
        )[0]
    return model(**inputs).logits.flatten(0, 1)[places]


def plot(path: str | Path, results: Mapping[str, Any]) -> None:
    """The accuracy of each phenomenon as a bar, beside chance and the mean over all pairs."""
    names, values = zip(*sorted(results["phenomena"].items(), key=lambda item: item[1]))
    with picture(
        path, "Grammatical against ungrammatical sentences", size=(8, 1.5 + 0.3 * len(names))
    ) as axes:
        axes.barh(names, values)
        axes.axvline(0.5, color="grey", linestyle=":", label="chance")
        label = f"all {results['pairs']:,} pairs: {results['accuracy']:.1%}"
        axes.axvline(results["accuracy"], color="black", label=label)
        axes.set(xlim=(0, 1), xlabel="accuracy")


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
