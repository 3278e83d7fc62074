"""Search before and after training, with three seeds: the figures of notebook 8.

    python benchmarks/search.py --model minilm --data retrieval --reranker true

A seed draws the pairs of question and answer to train on, and their order. The questions that are
measured, and the passages, are the same in all runs; no question is one that the notebook measures.
`--reranker true` also trains a cross-encoder with each seed, by the loop of the notebook, and lets
it order what the embeddings of that seed find.

The searches by words count each sign as a word. `minibert evaluate` leaves signs out, so its
baseline has other figures. The notebook measures what the signs cost.
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
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from torch.nn import functional as F

import minibert

Ranking = list[str]  # names of passages, the most similar first

WORDS_AND_SIGNS = r"\w+|\S"
TRAINING = {
    "validation_size": 16,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "disable_tqdm": True,
}
PAIRS = 600
RERANKER_PAIRS = 300  # the first of them
RERANKER_BATCH = 16
RERANKER_LENGTH = 96  # tokens of a question and a passage, in training
MARGIN = 0.95  # a negative is less similar than this share of the right passage's similarity
DEPTH = 10  # passages that the reranker orders


@dataclass
class Arguments:
    model: str = option("runs/minilm", "The model that every run starts from.")
    data: str = option("retrieval", "A folder with train, corpus, queries_test and qrels_test.")
    questions: int = option(300, "Questions that are measured.")
    skip: int = option(500, "Questions that are left out before: those of the notebook.")
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
    names = names[arguments.skip : arguments.skip + arguments.questions]
    judgements: dict[str, dict[str, float]] = {name: {} for name in names}
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
    """[questions, passages], by TF-IDF."""
    vectorizer = TfidfVectorizer(token_pattern=WORDS_AND_SIGNS).fit(collection.passages.values())
    questions = vectorizer.transform(collection.questions.values())
    passages = vectorizer.transform(collection.passages.values())
    return (questions @ passages.T).toarray()


def similarity_by_bm25(collection: Collection) -> np.ndarray:
    """[questions, passages], with the formula of the notebook."""
    counter = CountVectorizer(token_pattern=WORDS_AND_SIGNS)
    counts = counter.fit_transform(collection.passages.values()).toarray()  # [passages, words]
    frequencies = (counts > 0).sum(0)
    rarity = np.log(1 + (len(counts) - frequencies + 0.5) / (frequencies + 0.5))
    lengths = counts.sum(1, keepdims=True)
    saturation = 1.2 * (1 - 0.75 + 0.75 * lengths / lengths.mean())
    weights = rarity * counts * (1.2 + 1) / (counts + saturation)
    return counter.transform(collection.questions.values()) @ weights.T


def ranks(similarity: np.ndarray) -> np.ndarray:
    """[questions, passages]: 1 is the most similar passage."""
    return (-similarity).argsort(axis=1).argsort(axis=1) + 1


def fuse(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Reciprocal rank fusion of two similarities."""
    return 1 / (60 + ranks(first)) + 1 / (60 + ranks(second))


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


def draw_pairs(arguments: Arguments, seed: int) -> datasets.Dataset:
    """The columns query and positive."""
    file = f"{arguments.data}/train.jsonl"
    pairs = datasets.load_dataset("json", data_files=file, split="train")
    return pairs.shuffle(seed=seed).select(range(PAIRS))


def train_embedder(arguments: Arguments, seed: int) -> str:
    """The folder of the trained model. It reads as many tokens as before the training."""
    folder = f"{arguments.work}/embed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        minibert.finetune(
            "embed",
            data=draw_pairs(arguments, seed),
            model=arguments.model,
            seed=seed,
            output_dir=folder,
            max_length=64,
            per_device_train_batch_size=64,
            **TRAINING,
        )
    return folder


def mine(arguments: Arguments, queries: list[str], positives: list[str]) -> list[list[str]]:
    """For each of the first queries, its passage and the two nearest ones that are less similar."""
    pool = list(dict.fromkeys(positives))
    queries = queries[:RERANKER_PAIRS]
    query_vectors = minibert.embed(queries, model=arguments.model, normalize=True)
    pool_vectors = minibert.embed(pool, model=arguments.model, normalize=True)
    similarity = query_vectors @ pool_vectors.T
    texts = []
    for row, positive in zip(similarity, positives):
        too_near = row > MARGIN * row[pool.index(positive)]
        nearest = np.argsort(-np.where(too_near, -1, row))[:2]
        texts.append([positive, *(pool[number] for number in nearest)])
    return texts


def train_reranker(arguments: Arguments, seed: int) -> CrossEncoder:
    """A cross-encoder, trained by the loop of notebook 8: the cross-entropy of three scores."""
    pairs = draw_pairs(arguments, seed)
    queries = pairs["query"][:]
    texts = mine(arguments, queries, pairs["positive"][:])
    torch.manual_seed(seed)
    reranker = CrossEncoder(arguments.model, num_labels=1)
    reranker.train()
    optimizer = torch.optim.AdamW(reranker.parameters(), lr=2e-4)
    order = torch.randperm(RERANKER_PAIRS).tolist()
    for start in range(0, RERANKER_PAIRS, RERANKER_BATCH):
        rows = []
        for number in order[start : start + RERANKER_BATCH]:
            rows += [(queries[number], text) for text in texts[number]]
        inputs = reranker.tokenizer(
            rows, padding=True, truncation=True, max_length=RERANKER_LENGTH, return_tensors="pt"
        )
        scores = reranker.model(**inputs).logits.view(-1, 3)
        F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return reranker.eval()


def standardize(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def rerank(
    model: CrossEncoder, similarity: np.ndarray, collection: Collection
) -> tuple[dict[str, Ranking], dict[str, Ranking]]:
    """The first passages of each question, ordered by the cross-encoder, and by the sum of its
    standardized scores and the standardized cosines."""
    names = np.array(list(collection.passages))
    top = np.argsort(-similarity)[:, :DEPTH]
    inputs = []
    for text, numbers in zip(collection.questions.values(), top):
        inputs += [(text, collection.passages[name]) for name in names[numbers]]
    scores = model.predict(inputs, activation_fn=torch.nn.Identity()).reshape(top.shape)
    by_scores = {}
    by_both = {}
    for question, numbers, row, cosines in zip(collection.questions, top, scores, similarity):
        both = standardize(row) + standardize(cosines[numbers])
        by_scores[question] = names[numbers[np.argsort(-row)]].tolist()
        by_both[question] = names[numbers[np.argsort(-both)]].tolist()
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
    bm25 = similarity_by_bm25(collection)
    yield row("BM25", rank(bm25, collection))
    similarity = similarity_by_model(arguments.model, collection)
    yield row("embeddings", rank(similarity, collection))
    yield row("BM25 and embeddings", rank(fuse(bm25, similarity), collection))
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
            arguments.output,
            questions=arguments.questions,
            skipped=arguments.skip,
            passages=arguments.passages,
            runs=runs,
        )


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
