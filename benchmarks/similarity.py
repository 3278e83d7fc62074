"""How good an embedding model is, before and after a training for search: a table of docs/results.

    python benchmarks/similarity.py --model all-MiniLM-L6-v2 --data data --output benchmarks/results/similarity.json

The folder `data` holds sts, retrieval_cranfield and retrieval, as `minibert evaluate embed` reads them.
"""

import tempfile
from dataclasses import dataclass
from typing import Any

from common import option, parse, save_figures

import minibert

# The data, the metric that is reported, and what is trained on before.
SIMILARITY = ("sts/test.jsonl", "spearman", None)
CRANFIELD = ("retrieval_cranfield", "ndcg@10", None)
SEARCH = ("retrieval", "hit@1", None)
TRAINED_SEARCH = ("retrieval", "hit@1", "retrieval/train.jsonl")


@dataclass
class Arguments:
    model: str = option("sentence-transformers/all-MiniLM-L6-v2", "A BERT: a folder or a Hub name.")
    data: str = option("data", "The folder of the data sets.")
    output: str = option("benchmarks/results/similarity.json", "The file that is written.")


def main(arguments: Arguments) -> None:
    scores: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        converted = str(minibert.convert(arguments.model, f"{work}/minilm"))
        for data, metric, train in (SIMILARITY, CRANFIELD, SEARCH, TRAINED_SEARCH):
            model = converted
            if train:
                model = f"{work}/trained"
                minibert.finetune(
                    "embed",
                    model=converted,
                    data=f"{arguments.data}/{train}",
                    output_dir=model,
                    disable_tqdm=True,
                )
            report = minibert.evaluate("embed", model=model, data=f"{arguments.data}/{data}")
            score = {
                "data": data,
                "trained_on": train,
                "metric": metric,
                "score": report["metrics"][metric],
                "interval": report["intervals"][metric],
                "baseline": report["baseline"][metric],
            }
            scores.append(score)
    save_figures(arguments.output, scores=scores)


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
