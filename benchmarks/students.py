"""A student of three layers learns from a teacher of six: two tables of docs/results.

    python benchmarks/students.py --model all-MiniLM-L6-v2 --data data --output benchmarks/results/students.json

The student is the first three layers of the model. It learns the vectors of the model, as an embedder; then the scores
of a reranker, which is the model trained on scored pairs. The folder `data` holds sts and retrieval_cranfield.
"""

import tempfile
from dataclasses import dataclass
from typing import Any

from common import option, parse, read_table, save_figures
from scipy.stats import spearmanr
from sentence_transformers import CrossEncoder

import minibert

SCORED_PAIRS = 2400  # the first pairs of STS-B: to learn vectors, and to learn scores
CRANFIELD_LENGTH = 64
# Of all trainings. The validation rows choose the checkpoint.
TRAINING = {"validation_size": 200, "disable_tqdm": True}
EMBEDDER = TRAINING | {
    "num_train_epochs": 2,
    "learning_rate": 3e-4,
    "per_device_train_batch_size": 48,
}
RERANKER = TRAINING | {"learning_rate": 2e-4}
EPOCHS = 4
STEPS = 684  # of these epochs over all pairs but the validation rows, 32 pairs a step


@dataclass
class Arguments:
    model: str = option("sentence-transformers/all-MiniLM-L6-v2", "A BERT: a folder or a Hub name.")
    data: str = option("data", "The folder of the data sets.")
    output: str = option("benchmarks/results/students.json", "The file that is written.")


def main(arguments: Arguments) -> None:
    with tempfile.TemporaryDirectory() as work:
        model = str(minibert.convert(arguments.model, f"{work}/minilm"))
        student = minibert.convert(arguments.model, f"{work}/student", set={"num_hidden_layers": 3})
        embedders = measure_embedders(model, str(student), arguments.data, work)
        rerankers = measure_rerankers(model, str(student), arguments.data, work)
    save_figures(arguments.output, embedders=embedders, rerankers=rerankers)


def measure_embedders(
    teacher: str, student: str, data: str, work: str
) -> dict[str, dict[str, float]]:
    """The scores of the student before and after it learned the teacher's vectors, and of the
    teacher, by test set."""
    taught = f"{work}/embedder"
    minibert.finetune(
        "embed",
        model=student,
        teacher=teacher,
        data=read_table(f"{data}/sts/train.jsonl")[:SCORED_PAIRS],
        output_dir=taught,
        **EMBEDDER,
    )
    scores = {}
    for name, model in {"before": student, "after": taught, "teacher": teacher}.items():
        similarity = minibert.evaluate("embed", model=model, data=f"{data}/sts/test.jsonl")
        search = minibert.evaluate(
            "embed", model=model, data=f"{data}/retrieval_cranfield", max_length=CRANFIELD_LENGTH
        )
        scores[name] = {
            "STS-B": similarity["metrics"]["spearman"],
            "Cranfield": search["metrics"]["ndcg@10"],
        }
    return scores


def measure_rerankers(model: str, student: str, data: str, work: str) -> dict[str, float]:
    """Spearman's correlation of the teacher, of the student by the pairs that have scores, and of
    the student by the teacher's scores of all pairs."""
    all_pairs = read_table(f"{data}/sts/train.jsonl")
    scored_pairs = all_pairs[:SCORED_PAIRS]
    teacher = train_reranker(model, scored_pairs, f"{work}/teacher", num_train_epochs=2)
    taught = train_reranker(
        student, all_pairs, f"{work}/taught", num_train_epochs=EPOCHS, teacher=teacher
    )
    alone = train_reranker(student, scored_pairs, f"{work}/alone", max_steps=STEPS, patience=0)
    return {
        "teacher": score_reranker(teacher, data),
        "student alone": score_reranker(alone, data),
        "student taught": score_reranker(taught, data),
    }


def train_reranker(model: str, rows: list[dict[str, Any]], folder: str, **options: Any) -> str:
    """Train a reranker on scored pairs, and return its folder."""
    minibert.finetune("rerank", model=model, data=rows, output_dir=folder, **RERANKER, **options)
    return folder


def score_reranker(folder: str, data: str) -> float:
    """Spearman's correlation with the scores of the test pairs."""
    rows = read_table(f"{data}/sts/test.jsonl")
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
    predicted = CrossEncoder(folder).predict(pairs)
    return float(spearmanr(predicted, [row["score"] for row in rows]).statistic)


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
