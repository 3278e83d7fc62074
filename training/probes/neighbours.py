"""`minibert probe neighbours`: the uses of a word that lie nearest to one another, and masked tokens looked up in the
embedding matrix as if it were an index of the vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import datasets
import numpy as np
import torch
from matplotlib.figure import Figure
from transformers import PreTrainedTokenizerFast

from ...modeling_minibert import MiniBertForMaskedLM
from ..arguments.pretraining import CorpusArguments
from ..arguments.probes import NeighboursArguments, ProbeArguments
from ..data.documents import load_documents
from .data import check_positive, draw_sentences, sample, save, sentences, table, word_pattern
from .vectors import (
    Use,
    load_model,
    max_length,
    parse_layers,
    unit,
    uses_in_text,
    whole_rows,
    word_vectors,
)

# What is shown of a sentence on either side of the word, in characters.
CONTEXT = 50

# Masked positions whose scores for the whole vocabulary are computed together.
BLOCK = 64


@dataclass(frozen=True)
class Occurrence:
    """A word at the characters [start, stop) of a sentence."""

    word: str
    text: str
    start: int
    stop: int

    def __str__(self) -> str:
        before, after = self.text[: self.start], self.text[self.stop :]
        before = before if len(before) <= CONTEXT else "…" + before[1 - CONTEXT :]
        after = after if len(after) <= CONTEXT else after[: CONTEXT - 1] + "…"
        return f"{before}[{self.text[self.start : self.stop]}]{after}"


def find_occurrences(texts: Sequence[str], word: str) -> list[Occurrence]:
    """The first place in each text where the word stands as a whole, whatever its case."""
    found = ((text, word_pattern(word).search(text)) for text in texts)
    return [Occurrence(word, text, *match.span()) for text, match in found if match]


def nearest_uses(vectors: np.ndarray, queries: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
    """For each query (a row of `vectors`, [n, width]) the other rows that are nearest, with their cosines."""
    units = unit(vectors)
    found = []
    for query in queries:
        cosines = units @ units[query]
        cosines[query] = -np.inf
        order = np.argsort(-cosines, kind="stable")[: min(count, len(units) - 1)]
        found.append([(int(place), float(cosines[place])) for place in order])
    return found


def ranks(scores: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The rank of the right entry, 1 the best; entries with an equal score count as before it.

    Args:
        scores: [n, vocabulary].
        right: [n].
    """
    return (scores >= scores.gather(1, right.unsqueeze(1))).sum(1)


def recall(ranks_n: np.ndarray, at: Sequence[int]) -> dict[str, float]:
    """The share of ranks that are at most k, for every k."""
    return {str(k): float((ranks_n <= k).mean()) for k in at}


def mask_tokens(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], limit: int, rng: np.random.Generator
) -> tuple[list[Use], list[int]]:
    """One random token of every text masked: the rows, and the tokens that were there. Unknown tokens stay."""
    rows, right = [], []
    for row in whole_rows(tokenizer, texts, limit):
        places = [p for p in range(row.start, row.stop) if row.input_ids[p] != tokenizer.unk_token_id]
        if places:
            place = int(rng.choice(places))
            right.append(row.input_ids[place])
            ids = [*row.input_ids[:place], tokenizer.mask_token_id, *row.input_ids[place + 1 :]]
            rows.append(Use(ids, place, place + 1))
    return rows, right


@torch.inference_mode()
def lookup_ranks(model: MiniBertForMaskedLM, states: np.ndarray, right: Sequence[int]) -> dict[str, np.ndarray]:
    """Ranks of the right tokens, by way of looking.

    Args:
        states: [n, L + 1, width], at the masks.
        right: the tokens that were masked.

    Returns:
        "cosine" and "dot product" of every state with the embedding matrix, [L + 1, n] each; "cosine after the head's
        transform" and "MLM head", [n] each.
    """
    embeddings = model.get_input_embeddings().weight.float()
    units = torch.nn.functional.normalize(embeddings, dim=-1)
    found: dict[str, list[torch.Tensor]] = {}
    for states_nld, right_n in zip(torch.from_numpy(states).split(BLOCK), torch.tensor(right).split(BLOCK)):
        states_nld, right_n = states_nld.to(embeddings.device), right_n.to(embeddings.device)
        transformed = model.head(states_nld[:, -1].to(model.dtype))
        scores = {  # of one state after the other, since the vocabulary may be large
            "cosine": (state @ units.T for state in states_nld.unbind(1)),
            "dot product": (state @ embeddings.T for state in states_nld.unbind(1)),
            "cosine after the head's transform": [transformed.float() @ units.T],
            "MLM head": [model.decoder(transformed).float()],
        }
        for name, of_states in scores.items():
            found.setdefault(name, []).append(torch.stack([ranks(score, right_n) for score in of_states]))
    stacked = {name: torch.cat(blocks, dim=1).cpu().numpy() for name, blocks in found.items()}
    return {name: of_states if len(of_states) > 1 else of_states[0] for name, of_states in stacked.items()}


def neighbours(corpus: CorpusArguments, probe: ProbeArguments, arguments: NeighboursArguments) -> None:
    """Print the nearest uses, or the recall of masked tokens, or both; write `results.json` and plots.

    Raises:
        ValueError: bad arguments or data, a word that never occurs, no MiniBERT at the path, or no head that predicts
            masked tokens where it is needed; before any work.
    """
    check_positive(probe, "batch_tokens")
    check_positive(arguments, "uses", "show", "recall_at")
    if arguments.masked_tokens < 0:
        raise ValueError(f"masked_tokens: {arguments.masked_tokens}; legal: 0 and more")
    if not arguments.words and arguments.masked_tokens == 0:
        raise ValueError("words: none given; legal: words of the corpus, or --masked_tokens N to look masks up")
    if blank := [word for word in arguments.words if not word.strip()]:
        raise ValueError(f"words: {blank[0]!r} is blank; legal: words of the corpus")
    rng = np.random.default_rng(arguments.seed)
    documents = load_documents(**asdict(corpus))
    source = ", ".join(corpus.data) or "the built-in corpus"
    uses, queries = _collect(documents, source, arguments, rng)
    model, tokenizer = load_model(probe.model, masked_lm=arguments.masked_tokens > 0)
    limit = max_length(model, tokenizer)
    encoder = model.base_model
    layers = parse_layers(arguments.layers, model.config.num_hidden_layers)
    masked = draw_masks(documents, tokenizer, limit, arguments.masked_tokens, rng) if arguments.masked_tokens else None
    results: dict[str, Any] = {"model": probe.model, "data": source, "arguments": asdict(arguments)}
    figures = {}
    if uses:
        spans, names = [(use.start, use.stop) for use in uses], [f"data: {use}" for use in uses]
        rows = uses_in_text(tokenizer, [use.text for use in uses], spans, limit, names)
        vectors = layers(word_vectors(encoder, rows, probe.batch_tokens, arguments.subwords))
        found = nearest_uses(vectors, queries, arguments.show)
        results["uses"] = Counter(use.word for use in uses)
        results["nearest"] = [
            {
                "use": str(uses[query]),
                "nearest": [{"cosine": cosine, "word": uses[at].word, "use": str(uses[at])} for at, cosine in nearest],
            }
            for query, nearest in zip(queries, found)
        ]
        _print_uses(results)
        figures["uses"] = _draw_uses(uses, queries, vectors, layers.name)
    if masked:
        results["masked_tokens"] = retrieval(model, tokenizer, *masked, probe.batch_tokens, arguments.recall_at)
        _print_retrieval(results["masked_tokens"], arguments.recall_at)
        figures["masked_tokens"] = _draw_retrieval(results["masked_tokens"], arguments.recall_at)
    save(arguments.output_dir, results, **figures)


def _collect(
    documents: datasets.Dataset, source: str, arguments: NeighboursArguments, rng: np.random.Generator
) -> tuple[list[Occurrence], list[int]]:
    """The uses of all words, and which of them are queries: the sentences given, or the first of every word."""
    if not arguments.words:
        return [], []
    uses, queries = [], []
    texts = list(dict.fromkeys(sentences(documents)))
    for text in arguments.text:
        match = next((found for word in arguments.words for found in find_occurrences([text], word)), None)
        if match is None:
            raise ValueError(f"text: {text!r} has none of the words {', '.join(arguments.words)}")
        queries.append(len(uses))
        uses.append(match)
    for word in dict.fromkeys(arguments.words):
        found = [use for use in find_occurrences(texts, word) if use.text not in arguments.text]
        if not found:
            raise ValueError(f"words: {word!r} never occurs in {source}")
        found = sample(found, arguments.uses, rng)
        if not arguments.text:
            queries += [len(uses) + at for at in sample(range(len(found)), arguments.show, rng)]
        uses += found
    if len(uses) < 2:
        raise ValueError(f"words: {uses[0].word!r} occurs once only in {source}; two uses are needed to compare")
    return uses, queries


def draw_masks(documents, tokenizer, limit: int, count: int, rng: np.random.Generator) -> tuple[list[Use], list[int]]:
    """A token masked in each of `count` random sentences, as `mask_tokens` gives them."""
    if tokenizer.mask_token_id is None:
        raise ValueError("model: its tokenizer has no mask token")
    rows, right = mask_tokens(tokenizer, draw_sentences(documents, count, rng), limit, rng)
    if not rows:
        raise ValueError("data: no sentence of two words with a token that the tokenizer knows")
    return rows, right


def retrieval(model, tokenizer, rows, right, batch_tokens: int, at: Sequence[int]) -> dict[str, Any]:
    """Look masked tokens up: recall@k of every way of `lookup_ranks`, and of naming the most frequent tokens of these
    sentences whatever the context."""
    states = word_vectors(model.base_model, rows, batch_tokens)
    found = lookup_ranks(model, states, right)
    special = set(tokenizer.all_special_ids)
    counts = Counter(token for row in rows for token in row.input_ids if token not in special)
    by_frequency = {token: rank for rank, (token, _) in enumerate(counts.most_common(), 1)}
    unigram = np.array([by_frequency.get(token, len(tokenizer)) for token in right])
    return {
        "count": len(right),
        "states": {name: [recall(of_state, at) for of_state in found[name]] for name in ("cosine", "dot product")},
        "cosine after the head's transform": recall(found["cosine after the head's transform"], at),
        "MLM head": recall(found["MLM head"], at),
        "most frequent tokens": recall(unigram, at),
    }


def _print_uses(results: dict[str, Any]) -> None:
    counts = ", ".join(f"{count} of {word!r}" for word, count in results["uses"].items())
    print(f"Uses compared: {counts}")
    for entry in results["nearest"]:
        print(f"\n{entry['use']}")
        for near in entry["nearest"]:
            print(f"  {near['cosine']:6.3f}  {near['use']}")


def _print_retrieval(found: dict[str, Any], at: Sequence[int]) -> None:
    rows = [["looked up by", *(f"recall@{k}" for k in at)]]
    for name, of_states in found["states"].items():
        for state, entry in enumerate(of_states):
            rows.append([f"{name} with state {state}", *entry.values()])
    for name in ("cosine after the head's transform", "MLM head", "most frequent tokens"):
        rows.append([name, *found[name].values()])
    print(f"\n{found['count']:,} masked tokens, looked up in the embedding matrix:\n{table(rows)}")


def _draw_uses(uses: Sequence[Occurrence], queries: Sequence[int], vectors: np.ndarray, layers: str) -> Figure:
    """The uses on the two directions in which they differ most, the queries numbered."""
    centred = vectors - vectors.mean(0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    places = centred @ directions[:2].T
    places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    shares = singular[:2] ** 2 / max((singular**2).sum(), np.finfo(float).tiny)
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplots()
    for word in dict.fromkeys(use.word for use in uses):
        chosen = [number for number, use in enumerate(uses) if use.word == word]
        axes.scatter(*places[chosen].T, s=14, alpha=0.6, label=f"{word} ({len(chosen)})")
    for number, query in enumerate(queries, 1):
        axes.annotate(str(number), places[query], fontsize=10, fontweight="bold")
    shown = "\n".join(f"{number}  {uses[query]}" for number, query in enumerate(queries[:8], 1))
    axes.set_title(f"Uses at {layers}", fontsize=10)
    axes.set_xlabel(f"first direction ({shares[0]:.0%} of the variance)\n\n{shown}".replace("$", r"\$"), fontsize=8)
    axes.set_ylabel("second direction" + (f" ({shares[1]:.0%})" if len(shares) > 1 else ""), fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _draw_retrieval(found: dict[str, Any], at: Sequence[int]) -> Figure:
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    shown = {f"{name}, last state": of_states[-1] for name, of_states in found["states"].items()}
    shown |= {name: value for name, value in found.items() if isinstance(value, dict) and name != "states"}
    places = np.arange(len(at))
    for number, (name, entry) in enumerate(shown.items()):
        bars = [100 * entry[str(k)] for k in at]
        axes.bar(places + 0.8 * (number / len(shown) - 0.4), bars, width=0.8 / len(shown), label=name)
    axes.set(xticks=places, xticklabels=[f"recall@{k}" for k in at], ylabel=f"% of {found['count']:,} masked tokens")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize=8)
    return figure
