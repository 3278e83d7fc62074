"""Search before and after training, with three seeds: the figures of notebook 8.

    python benchmarks/search.py --model minilm --data retrieval

A seed draws the pairs of question and answer to train on, and their order. The questions that are
measured, and the passages, are the same in all runs. `--reranker true` also trains a cross-encoder
with each seed, and lets it order what the embeddings of that seed find.
"""

import contextlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from common import option, parse, read_table, save_figures
from sentence_transformers import CrossEncoder
from sklearn.feature_extraction.text import TfidfVectorizer

import minibert

Ranking = list[str]  # names of passages, the most similar first

TRAINING = {
    "validation_size": 16,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "disable_tqdm": True,
}
PAIRS = 600
RERANKER_PAIRS = 300
DEPTH = 10  # passages that the reranker orders


@dataclass
class Arguments:
    model: str = option("runs/minilm", "The model that every run starts from.")
    data: str = option("retrieval", "A folder with train, corpus, queries_test and qrels_test.")
    questions: int = option(300, "Questions that are measured.")
    passages: int = option(2000, "Passages that are searched: the right ones, and random ones.")
    seeds: int = option(3, "Trainings.")
    reranker: bool = option(False, "Train a cross-encoder with each seed as well.")
    work: str = option("runs/search", "A folder for the trained models.")
    output: str = option("docs/notebooks/08_search.json", "The file that is written.")


@dataclass
class Collection:
    questions: dict[str, str]
    passages: dict[str, str]
    judgements: dict[str, dict[str, float]]  # of each question, the grades of its right passages


def draw_collection(arguments: Arguments) -> Collection:
    folder = Path(arguments.data)
    all_questions = {row["_id"]: row["text"] for row in read_table(folder / "queries_test.jsonl")}
    all_passages = {row["_id"]: row["text"] for row in read_table(folder / "corpus.jsonl")}
    generator = np.random.default_rng(0)
    names = [str(name) for name in generator.permutation(sorted(all_questions))]
    judgements: dict[str, dict[str, float]] = {name: {} for name in names[: arguments.questions]}
    for row in read_table(folder / "qrels_test.csv"):
        if row["query-id"] in judgements:
            judgements[row["query-id"]][row["corpus-id"]] = row["score"]
    relevant = sorted({name for grades in judgements.values() for name in grades})
    others = [str(name) for name in generator.permutation(sorted(set(all_passages) - {*relevant}))]
    chosen = [*relevant, *others[: arguments.passages - len(relevant)]]
    return Collection(
        {name: all_questions[name] for name in judgements},
        {name: all_passages[name] for name in chosen},
        judgements,
    )


def similarity_by_words(collection: Collection) -> np.ndarray:
    """[questions, passages], as `minibert evaluate` computes it."""
    vectorizer = TfidfVectorizer(token_pattern=r"\w+|\S").fit(collection.passages.values())
    questions = vectorizer.transform(collection.questions.values())
    passages = vectorizer.transform(collection.passages.values())
    return (questions @ passages.T).toarray()


def similarity_by_model(model: str, collection: Collection) -> np.ndarray:
    questions = minibert.embed([*collection.questions.values()], model=model, normalize=True)
    passages = minibert.embed([*collection.passages.values()], model=model, normalize=True)
    return questions @ passages.T


def rank(similarity: np.ndarray, collection: Collection) -> dict[str, Ranking]:
    names = np.array(list(collection.passages))
    rankings = {}
    for question, row in zip(collection.questions, similarity):
        rankings[question] = names[np.argsort(-row)].tolist()
    return rankings


def ndcg(ranking: Ranking, grades: dict[str, float]) -> float:
    """nDCG@10."""
    discounts = 1 / np.log2(np.arange(2, 12))
    gains = np.array([grades.get(name, 0) for name in ranking[:10]])
    best = np.sort([*grades.values()])[::-1][:10]
    return float(gains @ discounts[: len(gains)] / (best @ discounts[: len(best)]))


def train(arguments: Arguments, task: str, seed: int, num_pairs: int, **options: Any) -> str:
    """The folder of a trained model. `task`: embed or rerank."""
    folder = f"{arguments.work}/{task}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    file = f"{arguments.data}/train.jsonl"
    pairs = datasets.load_dataset("json", data_files=file, split="train")
    pairs = pairs.shuffle(seed=seed).select(range(num_pairs))
    options = TRAINING | options
    with contextlib.redirect_stdout(io.StringIO()):
        minibert.finetune(
            task, data=pairs, model=arguments.model, seed=seed, output_dir=folder, **options
        )
    return folder


def train_embedder(arguments: Arguments, seed: int) -> str:
    options = {"max_length": 64, "per_device_train_batch_size": 64}
    return train(arguments, "embed", seed, PAIRS, **options)


def train_reranker(arguments: Arguments, seed: int) -> str:
    """A cross-encoder, trained as in notebook 8."""
    options = {
        "miner": arguments.model,
        "negatives": 2,
        "max_length": 96,
        "learning_rate": 2e-4,
        "per_device_train_batch_size": 16,
    }
    return train(arguments, "rerank", seed, RERANKER_PAIRS, **options)


def standardize(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def rerank(
    folder: str, similarity: np.ndarray, collection: Collection
) -> tuple[dict[str, Ranking], dict[str, Ranking]]:
    """The first passages of each question, ordered by the cross-encoder, and by the sum of its
    standardized scores and the standardized cosines."""
    model = CrossEncoder(folder)
    names = np.array(list(collection.passages))
    by_scores = {}
    by_both = {}
    for (question, text), cosines in zip(collection.questions.items(), similarity):
        top = np.argsort(-cosines)[:DEPTH]
        inputs = [(text, collection.passages[name]) for name in names[top]]
        scores = model.predict(inputs, activation_fn=torch.nn.Identity())
        both = standardize(scores) + standardize(cosines[top])
        by_scores[question] = names[top[np.argsort(-scores)]].tolist()
        by_both[question] = names[top[np.argsort(-both)]].tolist()
    return by_scores, by_both


def compare(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """A row for each way to search and seed, with the nDCG of every question."""
    collection = draw_collection(arguments)

    def row(name: str, rankings: dict[str, Ranking], seed: int | None = None) -> dict[str, Any]:
        scores = [
            round(ndcg(rankings[question], grades), 4)
            for question, grades in collection.judgements.items()
        ]
        return {
            "search": name,
            "seed": seed,
            "mean": round(float(np.mean(scores)), 4),
            "ndcg": scores,
        }

    yield row("TF-IDF", rank(similarity_by_words(collection), collection))
    similarity = similarity_by_model(arguments.model, collection)
    yield row("embeddings", rank(similarity, collection))
    for seed in range(arguments.seeds):
        similarity = similarity_by_model(train_embedder(arguments, seed), collection)
        yield row("embeddings, trained", rank(similarity, collection), seed)
        if arguments.reranker:
            by_scores, by_both = rerank(train_reranker(arguments, seed), similarity, collection)
            yield row("reranked", by_scores, seed)
            yield row("reranked, half and half", by_both, seed)


def main(arguments: Arguments) -> None:
    runs = []
    for run in compare(arguments):
        runs.append(run)
        print({key: value for key, value in run.items() if key != "ndcg"}, flush=True)
        save_figures(
            arguments.output, questions=arguments.questions, passages=arguments.passages, runs=runs
        )


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
