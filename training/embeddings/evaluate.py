"""`minibert evaluate embed`, `minibert evaluate rerank`: the measures of retrieval and of semantic similarity.

Similarity: Spearman's and Pearson's correlation of the cosine with the score (as the leader boards of STS have it, but
from 0 to 1). Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as gains, means over the queries that have a
relevant passage; a passage is its title, a space and its text.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from .. import metrics
from ..arguments.embeddings import EvaluateArguments, EvaluateRerankArguments, PoolingArguments, ReferenceArguments
from .data import Pairs, Retrieval, is_retrieval, read_pairs, read_retrieval
from .encoders import Embedder, Reranker, top_k

SHOWN = ("hit@1", "hit@10", "mrr@10", "ndcg@10")
SIMILARITY = ("spearman", "pearson")
KS = (1, 10)
RETRIEVAL = tuple(f"{name}@{k}" for k in KS for name in ("hit", "recall", "mrr", "ndcg"))
WEIGHTS = [step / 10 for step in range(11)]


def evaluate_embed(arguments: EvaluateArguments, pooling: PoolingArguments, reference: ReferenceArguments) -> None:
    """Measure an embedding model; its vectors against those of `reference.reference`, if that is given.

    Raises:
        ValueError: bad data, a model of another task.
    """
    if reference.reference_texts < 1:
        raise ValueError(f"reference_texts: {reference.reference_texts} is not legal; at least 1")
    prepare_result(arguments.result)
    task = read_task(arguments.data, arguments.split, arguments.columns)
    embedder = Embedder.from_pretrained(pooling.model, pooling.pooling, pooling.normalize, pooling.max_length)
    theirs = None if reference.reference is None else _open(reference.reference, embedder.model.device)
    started = time.perf_counter()
    result = {"model": pooling.model, "data": arguments.data, "pooling": embedder.pooling}
    if isinstance(task, Retrieval):
        ranking = Ranking.of(embedder, task, depth=10, progress=True)
        scores = retrieval_scores(ranking.names(), task)
        result |= {"split": arguments.split, "queries": len(task.queries), "passages": len(task.passages)}
    else:
        scores = similarity_scores(embedder, task, progress=True)
        result["pairs"] = len(task)
    result |= {"metrics": scores, "seconds": time.perf_counter() - started}
    print_table({Path(pooling.model).name or pooling.model: scores})
    if theirs is not None:
        result["reference"] = {"model": reference.reference} | compare(
            embedder, theirs, _texts_of(task)[: reference.reference_texts]
        )
        print("against {model}: {texts} texts, cosine at least {minimum:.7f}, mean {mean:.7f}".format(
            **result["reference"]
        ))  # fmt: skip
    write_result(result, arguments.result)


def evaluate_rerank(arguments: EvaluateArguments, how: EvaluateRerankArguments) -> None:
    """Measure what a reranker makes of the passages that an embedding model finds, beside their order before.

    Raises:
        ValueError: bad data, a model of another task, an illegal weight.
    """
    if how.weight is not None and not 0 <= how.weight <= 1:
        raise ValueError(f"weight: {how.weight} is not legal; from 0 to 1")
    for name in ("depth", "tuning_queries"):
        if getattr(how, name) < 1:
            raise ValueError(f"{name}: {getattr(how, name)} is not legal; at least 1")
    if how.metric not in RETRIEVAL:
        raise ValueError(f"metric: {how.metric!r} is not legal; one of {', '.join(RETRIEVAL)}")
    if how.weight is not None and how.tuning_data is not None:
        raise ValueError("weight: give it or the tuning_data that it is chosen on, not both")
    if not is_retrieval(arguments.data):
        raise ValueError(f"data: {arguments.data!r} is no folder with corpus.jsonl, queries and qrels")
    prepare_result(arguments.result)
    task = read_retrieval(arguments.data, arguments.split)
    tuning = read_retrieval(how.tuning_data, how.tuning_split) if how.tuning_data else None
    reranker, embedder = Reranker.from_pretrained(how.model), Embedder.from_pretrained(how.embedder)
    started = time.perf_counter()
    result = dataclasses.asdict(how) | {"data": arguments.data, "split": arguments.split}

    weight = 1.0 if how.weight is None else how.weight
    if tuning is not None:
        tuning = tuning_part(tuning, how.tuning_queries)
        ranking = Ranking.of(embedder, tuning, how.depth, progress=True).read_by(reranker, tuning, progress=True)
        tried = {w: retrieval_scores(ranking.names(w), tuning) for w in WEIGHTS}
        weight = max(WEIGHTS, key=lambda w: tried[w][how.metric])
        print(f"Share of the reranker by {how.metric} on {len(tuning.queries)} queries of {how.tuning_data}:")
        print_table({f"{w:.1f}": scores for w, scores in tried.items()})
        result["tuning"] = {str(w): scores for w, scores in tried.items()}

    ranking = Ranking.of(embedder, task, how.depth, progress=True).read_by(reranker, task, progress=True)
    before, alone = retrieval_scores(ranking.names(0.0), task), retrieval_scores(ranking.names(1.0), task)
    after = retrieval_scores(ranking.names(weight), task)
    print(f"{len(task.queries)} queries of {arguments.data}, the first {how.depth} passages put in order:")
    print_table({"found": before, "reranker alone": alone, f"with share {weight:g}": after})
    result |= {"weight": weight, "queries": len(task.queries), "passages": len(task.passages)}
    result |= {"before": before, "reranker_alone": alone, "metrics": after, "seconds": time.perf_counter() - started}
    write_result(result, arguments.result)


def read_task(data: str, split: str, columns: Sequence[str] = ()) -> Retrieval | Pairs:
    """A retrieval folder, or scored pairs of a table."""
    if not data:
        raise ValueError("data: none given; legal: a folder with corpus.jsonl, queries and qrels, or a scored table")
    if is_retrieval(data):
        return read_retrieval(data, split)
    pairs = read_pairs([data], columns)
    if pairs.scores is None:
        raise ValueError(f"data: {data!r} has no column of scores (name it by --columns)")
    return pairs


def similarity_scores(embedder: Embedder, pairs: Pairs, progress: bool = False) -> dict[str, float]:
    """`spearman` and `pearson` of the cosine with the score."""
    first, second = (embedder.embed(texts, progress="Embedding" if progress else None)
                     for texts in (pairs.first, pairs.second))  # fmt: skip
    cosines = F.cosine_similarity(first, second).tolist()
    return metrics.Spearman().compute(predictions=cosines, references=pairs.scores) | metrics.Pearson().compute(
        predictions=cosines, references=pairs.scores
    )


@dataclasses.dataclass
class Ranking:
    """The passages found for each query, best first, and what the reranker says of them.

    Args:
        ids: the names of the passages of the corpus.
        cosines, numbers, logits: each [queries, depth]; `numbers` counts the passages of the corpus.
    """

    ids: list[str]
    cosines: torch.Tensor
    numbers: torch.Tensor
    scores: torch.Tensor | None = None

    @classmethod
    def of(cls, embedder: Embedder, task: Retrieval, depth: int, progress: bool = False) -> Ranking:
        """The `depth` passages of highest cosine."""
        bar = "Embedding" if progress else None
        passages = embedder.embed([passage.text for passage in task.passages], progress=bar)
        found = top_k(embedder.embed(task.queries, progress=bar), passages, depth)
        return cls([passage.id for passage in task.passages], *found)

    def read_by(self, reranker: Reranker, task: Retrieval, progress: bool = False) -> Ranking:
        """The same with the reranker's scores."""
        pairs = [
            (query, task.passages[i].text)
            for query, numbers in zip(task.queries, self.numbers.tolist())
            for i in numbers
        ]
        scores = reranker.score(pairs, progress="Reranking" if progress else None).view_as(self.cosines)
        return dataclasses.replace(self, scores=scores)

    def names(self, weight: float = 0.0) -> list[list[str]]:
        """The passages' names in the order of weight · reranker + (1 - weight) · cosine, each of them standardised
        over the passages of a query."""
        order = torch.arange(self.numbers.shape[1]).expand_as(self.numbers)
        if self.scores is not None:
            mixed = weight * standardise(self.scores) + (1 - weight) * standardise(self.cosines)
            order = mixed.argsort(dim=-1, descending=True, stable=True)
        return [[self.ids[i] for i in row] for row in self.numbers.gather(1, order).tolist()]


def standardise(scores: torch.Tensor) -> torch.Tensor:
    """Each row with mean 0 and deviation 1; a constant row becomes 0."""
    centred = scores.double() - scores.double().mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)


def retrieval_scores(names: list[list[str]], task: Retrieval) -> dict[str, float]:
    """hit, recall, MRR and nDCG at 1 and 10."""
    return metrics.Retrieval().compute(predictions=names, references=task.references(), ks=KS)


def tuning_part(task: Retrieval, queries: int) -> Retrieval:
    """The first so many queries, against the same corpus."""
    return dataclasses.replace(task, query_ids=task.query_ids[:queries], queries=task.queries[:queries])


def _open(reference: str, device: torch.device) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(reference, device=str(device))


def compare(embedder: Embedder, reference: Any, texts: Sequence[str]) -> dict[str, Any]:
    """The cosines of our vectors with those of the SentenceTransformer `reference`."""
    theirs = reference.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)
    # in fp64, since rounding alone moves a cosine of fp32 vectors by 1e-7
    cosines = F.cosine_similarity(embedder.embed(texts).double(), theirs.cpu().double())
    return {"texts": len(texts), "minimum": cosines.min().item(), "mean": cosines.mean().item()}


def prepare_result(path: str | None) -> None:
    """Make the folder of the JSON file that is asked for, if any, before there are figures to lose.

    Raises:
        ValueError: it is a folder itself.
    """
    if path is not None:
        if Path(path).is_dir():
            raise ValueError(f"result: {path!r} is a folder; legal: a JSON file")
        Path(path).parent.mkdir(parents=True, exist_ok=True)


def write_result(result: dict[str, Any], path: str | None) -> None:
    """Write the figures to a JSON file, if one is asked for."""
    if path is not None:
        Path(path).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {path}")


def _texts_of(task: Retrieval | Pairs) -> list[str]:
    """Its different texts that are not empty."""
    texts = [p.text for p in task.passages] if isinstance(task, Retrieval) else task.first + task.second
    return [text for text in dict.fromkeys(texts) if text]


def print_table(rows: dict[str, dict[str, float]]) -> None:
    """The metrics that are shown, a row for each name."""
    columns = [name for name in (*SHOWN, *SIMILARITY) if name in next(iter(rows.values()))]
    width = max(map(len, rows))
    print(" " * width + "".join(f"{column:>10}" for column in columns))
    for name, scores in rows.items():
        print(f"{name:{width}}" + "".join(f"{scores[column]:10.4f}" for column in columns))
