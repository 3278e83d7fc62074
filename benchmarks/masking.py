"""Train small models on a few sentences with several ways of masking, and ask each of them the same questions.

    python benchmarks/masking.py

The notebook 01_masking reads the figures. Every model has the same size, sentences and number of steps.
"""

import random
import re
from dataclasses import dataclass
from itertools import chain

import torch
from common import Corpus, option, parse, save_figures

from minibert import MaskedLMCollator, MiniBertConfig, MiniBertForMaskedLM, train_tokenizer
from minibert.training.data.sentences import sentences_across_lines

PLAIN = re.compile(r"[A-Z][A-Za-z ,;'()-]{40,160}\.")  # a sentence of words, without code in it
KINDS = ("token", "whole_word", "span", "ngram")
VOCAB_SIZE, TEST_SENTENCES = 1500, 500
SHAPE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)


@dataclass
class Arguments:
    sentences: list[int] = option([500], "Numbers of sentences to train on.")
    seeds: int = option(3, "Trainings of each kind.")
    steps: int = option(600, "Steps of a training.")
    output: str = option("docs/notebooks/01_masking.json", "The file that is written.")


def main(corpus: Corpus, arguments: Arguments) -> None:
    train, test = draw_sentences(corpus, max(arguments.sentences))
    tokenizer = train_tokenizer(train, vocab_size=VOCAB_SIZE, show_progress=False)
    train, test = (tokenizer(texts)["input_ids"] for texts in (train, test))
    ways = [dict(masking=kind) for kind in KINDS] + [
        dict(masking="token", mask_replace_prob=1, random_replace_prob=0)
    ]
    runs = []
    for count in arguments.sentences:
        for seed in range(arguments.seeds):
            for way in ways:
                model = train_model(tokenizer, train[:count], way, seed, arguments.steps)
                row = {
                    "sentences": count,
                    "seed": seed,
                    "masking": way["masking"],
                    "all_masked": len(way) > 1,
                }
                runs.append(row | measure(model, tokenizer, test))
                print(runs[-1], flush=True)
                save_figures(arguments.output, steps=arguments.steps, runs=runs)


def draw_sentences(corpus: Corpus, count: int) -> tuple[list[str], list[str]]:
    """So many plain sentences to train on, and others to test with."""
    found = chain.from_iterable(map(sentences_across_lines, corpus.documents()["text"]))
    plain = [text for text in dict.fromkeys(found) if PLAIN.fullmatch(text)]
    if len(plain) < count + TEST_SENTENCES:
        raise ValueError(
            f"data: it has {len(plain)} plain sentences; use {count + TEST_SENTENCES} or more"
        )
    random.Random(0).shuffle(plain)
    return plain[TEST_SENTENCES : TEST_SENTENCES + count], plain[:TEST_SENTENCES]


def train_model(
    tokenizer, rows: list[list[int]], way: dict, seed: int, steps: int
) -> MiniBertForMaskedLM:
    """A new model after `steps` steps of 32 rows."""
    torch.manual_seed(seed)
    model = MiniBertForMaskedLM(
        MiniBertConfig.from_tokenizer(tokenizer, "minibert", "tiny", **SHAPE)
    )
    collator, draw = MaskedLMCollator(tokenizer, **way), random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 30) * (1 - step / steps)
    )
    for _ in range(steps):
        loss = model(**collator([{"input_ids": row} for row in draw.sample(rows, 32)])).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval()


@torch.inference_mode()
def measure(model: MiniBertForMaskedLM, tokenizer, rows: list[list[int]]) -> dict[str, float]:
    """Accuracy at targets that are all [MASK], by kind of masking; and of naming the original token where the text has
    no mask ("unmasked"), and where 15 % of its tokens were replaced by others ("replaced", and the rest: "others")."""

    def shares(share_masked: float, share_random: float, kind: str = "token"):
        shares = dict(mask_replace_prob=share_masked, random_replace_prob=share_random)
        collator = MaskedLMCollator(tokenizer, seed=0, masking=kind, **shares).for_evaluation()
        hits = []
        for start in range(0, len(rows), 100):
            batch = collator([{"input_ids": row} for row in rows[start : start + 100]])
            labels = batch.pop("labels")
            original = torch.where(labels == -100, batch["input_ids"], labels)
            real = original > max(tokenizer.all_special_ids)
            right = model(**batch).logits.argmax(-1) == original
            hits.append(torch.stack([right[real], labels[real] != -100]))
        right, targets = torch.cat(hits, dim=1)
        return right[targets].float().mean().item(), right[~targets].float().mean().item()

    figures = {f"accuracy_{kind}": shares(1, 0, kind)[0] for kind in KINDS}
    kept, _ = shares(0, 0)
    replaced, others = shares(0, 1)
    return figures | {"unmasked": kept, "replaced": replaced, "others": others}


if __name__ == "__main__":
    main(*parse(__doc__, Corpus, Arguments))
