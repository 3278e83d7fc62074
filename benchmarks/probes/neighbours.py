"""The uses of a word that lie nearest to one another, and masked tokens looked up in the
embedding matrix as if it were an index of the vocabulary."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import datasets
import numpy as np
import regex  # comes with Transformers; its \w has the vowel signs of Hindi and the like, that of re has not
import torch
from pictures import plot_recall, plot_uses
from sentence_transformers.util import semantic_search
from sklearn.decomposition import PCA
from transformers import PreTrainedTokenizerFast
from uses import Corpus, Probe, Use, draw_sentences, option, parse, sample, save_results
from vectors import LAYERS_HELP, SUBWORDS_HELP, Row, encode_texts, encode_uses, load_model, parse_layers, word_vectors

from minibert import MiniBertForMaskedLM
from minibert.training.data.sentences import sentences
from minibert.training.embeddings.data import UNSPACED
from minibert.training.report import format_table

BLOCK = 64  # masked positions whose scores for the whole vocabulary are computed together


def find_uses(texts: Iterable[str], word: str) -> list[Use]:
    """The first place in each text where the word stands as a whole, whatever its case; scripts that put no spaces
    between words (`UNSPACED`) may go on at once."""
    spaced = rf"(?![{UNSPACED}])\w"
    begins, ends = rf"(?:(?=[{UNSPACED}])|(?<!{spaced}))", rf"(?:(?<=[{UNSPACED}])|(?!{spaced}))"
    pattern = regex.compile(rf"{begins}{regex.escape(word)}{ends}", regex.IGNORECASE)
    return [Use(text, *match.span(), lemma=word) for text in texts if (match := pattern.search(text))]


def nearest_uses(vectors: np.ndarray, queries: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
    """For each query (a row of `vectors`, [n, width]) the other rows that are nearest, with their cosines."""
    found = semantic_search(vectors[queries], vectors, top_k=count + 1)
    others = ([hit for hit in hits if hit["corpus_id"] != query] for query, hits in zip(queries, found))
    return [[(hit["corpus_id"], hit["score"]) for hit in hits[:count]] for hits in others]


def mask_tokens(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], rng: np.random.Generator
) -> tuple[list[Row], list[int]]:
    """One random token of every text masked: the rows, and the tokens that were there. Unknown tokens stay. A
    ValueError if there is no mask token, or nothing to mask."""
    if tokenizer.mask_token_id is None:
        raise ValueError("model: its tokenizer has no mask token")
    rows, right = [], []
    for row in filter(None, encode_texts(tokenizer, texts)):
        places = [p for p in range(row.start, row.stop) if row.input_ids[p] != tokenizer.unk_token_id]
        if places:
            ids, place = [*row.input_ids], int(rng.choice(places))
            right.append(ids[place])
            ids[place] = tokenizer.mask_token_id
            rows.append(Row(ids, place, place + 1))
    if not rows:
        raise ValueError("data: no sentence of two words with a token that the tokenizer knows")
    return rows, right


def ranks(scores: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The rank [n] of the right entries [n] by scores [n, vocabulary], 1 the best; equals count as before them."""
    return (scores >= scores.gather(1, right.unsqueeze(1))).sum(1)


@torch.inference_mode()
def lookup_ranks(model: MiniBertForMaskedLM, states: np.ndarray, right: Sequence[int]) -> dict[str, np.ndarray]:
    """Ranks of the right tokens [n], by way of looking, from the states [n, L + 1, width] at the masks: by the "cosine"
    and "dot product" of every state with the embedding matrix, [L + 1, n] each, if it is as wide; by the "cosine after
    the head's transform" and the "MLM head", [1, n] each."""
    embeddings = model.get_input_embeddings().weight.float()
    units = torch.nn.functional.normalize(embeddings, dim=-1)
    found: dict[str, list[torch.Tensor]] = {}
    for states_nld, right_n in zip(torch.from_numpy(states).split(BLOCK), torch.tensor(right).split(BLOCK)):
        states_nld, right_n = states_nld.to(embeddings.device), right_n.to(embeddings.device)
        transformed = model.head(states_nld[:, -1].to(model.dtype))
        scores = {}
        if states_nld.shape[-1] == embeddings.shape[1]:  # not where vectors of tokens have a width of their own
            # of one state after the other, since the vocabulary may be large
            scores["cosine"] = (state @ units.T for state in states_nld.unbind(1))
            scores["dot product"] = (state @ embeddings.T for state in states_nld.unbind(1))
        scores["cosine after the head's transform"] = [transformed.float() @ units.T]
        scores["MLM head"] = [model.decoder(transformed).float()]
        for name, of_states in scores.items():
            found.setdefault(name, []).append(torch.stack([ranks(score, right_n) for score in of_states]))
    return {name: torch.cat(blocks, dim=1).cpu().numpy() for name, blocks in found.items()}


def retrieval(model, tokenizer, rows, right, batch_tokens: int, at: Sequence[int]) -> dict[str, Any]:
    """Look masked tokens up: their "count", and the "recall" at every k of `at` by way of `lookup_ranks`, a figure for
    every state that was looked up; also of naming the most frequent tokens of these sentences whatever the context."""
    found = lookup_ranks(model, word_vectors(model.base_model, rows, batch_tokens, "Masked tokens"), right)
    special = set(tokenizer.all_special_ids)
    counts = Counter(token for row in rows for token in row.input_ids if token not in special)
    by_frequency = {token: rank for rank, (token, _) in enumerate(counts.most_common(), 1)}
    found["most frequent tokens"] = np.array([[by_frequency.get(token, len(tokenizer)) for token in right]])
    recall, table = {}, []
    for name, of_states in found.items():
        recall[name] = [{str(k): float((of_state <= k).mean()) for k in at} for of_state in of_states]
        for state, entry in enumerate(recall[name]):
            table.append([f"{name} with state {state}" if len(of_states) > 1 else name, *entry.values()])
    print(f"\n{len(right):,} masked tokens, looked up in the embedding matrix:")
    print(format_table(["looked up by", *(f"recall@{k}" for k in at)], table, 3))
    return {"count": len(right), "recall": recall}


@dataclass
class Arguments:
    words: list[str] = option([], "Words whose uses in the corpus are compared; also given without --words.")
    text: list[str] = option([], "Sentences with one of the words, to show its nearest uses of; by default drawn.")
    uses: int = option(500, "Uses of a word that are taken from the corpus at most, drawn at random.")
    show: int = option(5, "Nearest uses shown; without --text also the number of uses shown for every word.")
    layers: str = option("last_four_mean", f"The vector of a word: {LAYERS_HELP}")
    subwords: Literal["mean", "first"] = option("mean", SUBWORDS_HELP)
    masked_tokens: int = option(0, "Tokens of the corpus to mask and look up in the embedding matrix.")
    recall_at: list[int] = option([1, 5, 10, 100], "Ranks k at which the recall of masked tokens is measured.")
    seed: int = option(0, "Seed of the uses and masks that are drawn.")
    output_dir: str = option("runs/probe-neighbours", "Folder for the results and plots.")


def main(corpus: Corpus, probe: Probe, arguments: Arguments) -> dict[str, Any]:
    """Print the nearest uses, or the recall of masked tokens, or both; write plots and `results.json`, which is
    returned: "uses" (how many of every word) and "nearest" of words, "masked_tokens"."""
    if not arguments.words and not arguments.masked_tokens:
        raise ValueError("words: none given; use words of the corpus, or --masked_tokens N to look masks up")
    if blank := [word for word in arguments.words if not word.strip()]:
        raise ValueError(f"words: {blank[0]!r} is blank; use words of the corpus")
    rng = np.random.default_rng(arguments.seed)
    documents = corpus.documents()
    uses, queries = _collect(documents, corpus, arguments, rng) if arguments.words else ([], [])
    model, tokenizer = load_model(probe.model, masked_lm=arguments.masked_tokens > 0)
    layers = parse_layers(arguments.layers, model.config.num_hidden_layers)
    rows = encode_uses(tokenizer, uses, arguments.subwords) if uses else []
    if arguments.masked_tokens:
        masked = mask_tokens(tokenizer, draw_sentences(documents, arguments.masked_tokens, rng), rng)
    results, pictures = {}, {}
    if uses:
        vectors = layers(word_vectors(model.base_model, rows, probe.batch_tokens))
        results["uses"] = Counter(use.lemma for use in uses)
        print(f"Uses compared: {', '.join(f'{count} of {word!r}' for word, count in results['uses'].items())}")
        results["nearest"] = []
        for query, nearest in zip(queries, nearest_uses(vectors, queries, arguments.show)):
            print(f"\n{uses[query]}")
            for at, cosine in nearest:
                print(f"  {cosine:6.3f}  {uses[at]}")
            entries = [{"cosine": cosine, "word": uses[at].lemma, "use": str(uses[at])} for at, cosine in nearest]
            results["nearest"].append({"use": str(uses[query]), "nearest": entries})
        if len(uses) > 2:  # two points have nothing to show
            pca = PCA(n_components=2).fit(vectors)
            drawn = {"places": pca.transform(vectors), "shares": pca.explained_variance_ratio_}
            drawn |= {"words": [use.lemma for use in uses], "shown": {query: str(uses[query]) for query in queries}}
            pictures["uses"] = partial(plot_uses, **drawn)
    if arguments.masked_tokens:
        found = results["masked_tokens"] = retrieval(model, tokenizer, *masked, probe.batch_tokens, arguments.recall_at)
        pictures["masked_tokens"] = partial(plot_recall, found=found, at=arguments.recall_at)
    return save_results(results, probe, arguments, corpus, **pictures)


def _collect(
    documents: datasets.Dataset, corpus: Corpus, arguments: Arguments, rng: np.random.Generator
) -> tuple[list[Use], list[int]]:
    """The uses of all words, and which of them are queries: the sentences given, or the first of every word."""
    source = ", ".join(corpus.data) or "the built-in corpus"
    uses, queries = [], list(range(len(arguments.text)))
    for text in arguments.text:
        match = next((found for word in arguments.words for found in find_uses([text], word)), None)
        if match is None:
            raise ValueError(f"text: {text!r} has none of the words {', '.join(arguments.words)}")
        uses.append(match)
    texts = [text for text in dict.fromkeys(sentences(documents)) if text not in arguments.text]
    for word in dict.fromkeys(arguments.words):
        found = find_uses(texts, word)
        if not found:
            raise ValueError(f"words: {word!r} never occurs in {source}")
        found = sample(found, arguments.uses, rng)
        if not arguments.text:
            queries += [len(uses) + at for at in sample(range(len(found)), arguments.show, rng)]
        uses += found
    if len(uses) < 2:
        raise ValueError(f"words: {uses[0].lemma!r} occurs once only in {source}; two uses are needed to compare")
    return uses, queries


if __name__ == "__main__":
    main(*parse(__doc__, Corpus, Probe, Arguments))
