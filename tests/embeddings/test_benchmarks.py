"""`minibert evaluate embed --tasks`: what mteb measures by itself."""

import shutil

import pytest
from helpers import refusal, sentences
from sentence_transformers import SentenceTransformer

import minibert
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.measuring.mteb_tasks import evaluate_mteb_tasks
from minibert.training.embeddings.measuring.retrieval import Retrieval
from minibert.training.hub.card import save_card
from minibert.training.hub.facts import CardFacts

pytestmark = pytest.mark.slow  # to load mteb takes seconds


@pytest.fixture(scope="module", autouse=True)
def mteb():
    return pytest.importorskip("mteb", reason="the extra mteb is not installed")


def describe(name, kind, metric):
    from mteb.abstasks.task_metadata import TaskMetadata

    none = dict.fromkeys(["reference", "date", "domains", "task_subtypes", "license", "annotations_creators", "dialect",
                          "sample_creation", "bibtex_citation"])  # fmt: skip
    return TaskMetadata(
        name=name, dataset={"path": "local/none", "revision": "1"}, description="A test.", type=kind, category="t2t",
        modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score=metric, **none,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tasks(toy):
    """An STS task of random texts, and the toy language as a retrieval task."""
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.sts import AbsTaskSTS

    class Similar(AbsTaskSTS):
        metadata = describe("Similar", "STS", "cosine_spearman")
        min_score, max_score = 0, 1

        def load_data(self, **_):
            texts = sentences(40)
            rows = dict(
                sentence1=texts[:20], sentence2=texts[20:], score=[i % 7 / 6 for i in range(20)]
            )
            self.dataset, self.data_loaded = {"test": Dataset.from_dict(rows)}, True

    class Found(AbsTaskRetrieval):
        metadata = describe("Found", "Retrieval", "ndcg_at_10")

        def load_data(self, **_):
            task = Retrieval.from_folder(toy / "test", "test")
            split = dict(
                queries=Dataset.from_list(
                    [dict(id=name, text=text) for name, text in task.queries.items()]
                ),
                corpus=Dataset.from_list(
                    [dict(id=each.id, text=each.text, title="") for each in task.passages]
                ),
                relevant_docs={
                    name: {x: int(y) for x, y in own.items()} for name, own in task.relevant.items()
                },
                top_ranked=None,
            )
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    return [Similar, Found]


def test_local_tasks_equal_what_mteb_measures(mteb, toy, folder, tasks, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    save_card(tmp_path / "model", CardFacts())
    for _ in range(2):  # the second table takes the place of the first
        found = minibert.evaluate(
            "embed", tasks=[task() for task in tasks], model=str(tmp_path / "model")
        )
    alone = mteb.evaluate(
        SentenceTransformer(folder, device="cpu"), [task() for task in tasks], cache=None
    )
    expected = {each.task_name: each.get_score() for each in alone.task_results}
    assert found["metrics"] == pytest.approx(expected, abs=1e-5)
    assert found["tasks"] == {"Similar": "cosine_spearman", "Found": "ndcg_at_10"}
    held_out = Retrieval.from_folder(toy / "test", "test")
    ours = held_out.score(held_out.predict(open_encoder(folder)))["ndcg@10"]
    assert found["metrics"]["Found"] == pytest.approx(ours, abs=1e-4)
    card = (tmp_path / "model/README.md").read_text()
    assert card.count(
        "## MTEB"
    ) == 1 and f"| Found | ndcg\\_at\\_10 | {ours:.4f} |" in card.replace(
        "ndcg_at", "ndcg\\_at"
    ).replace("_10", "\\_10")


def test_unknown_tasks_are_refused_before_work(toy, capsys):
    error = refusal(capsys, "evaluate", "embed", "--tasks", "STSBenchmrk", "--model", toy / "model")
    assert (
        "tasks: mteb has no benchmark, and no task: " in error
        and "Did you mean: 'STSBenchmark'?" in error
    )
    for given in ([], ["--tasks", "STS12", "--data", toy / "test"]):
        error = refusal(capsys, "evaluate", "embed", "--model", toy / "model", *given)
        assert "data: give data, or --tasks of mteb" in error


def test_a_benchmark_stands_for_its_tasks():
    from minibert.training.embeddings.measuring.mteb_tasks import find_mteb_tasks

    names = [task.metadata.name for task in find_mteb_tasks(["NanoBEIR", "STSBenchmark"])]
    assert (
        names[-1] == "STSBenchmark"
        and len(names) == 14
        and all(name.startswith("Nano") for name in names[:-1])
    )


def test_a_task_that_needs_one_vector_of_a_text_is_refused(toy, tasks):
    model = open_encoder(str(toy / "model"), "multi-vector")
    with pytest.raises(ValueError, match=r"^tasks: Similar \(STS\) needs one vector of each text"):
        evaluate_mteb_tasks([task() for task in tasks], "model", model)
    assert evaluate_mteb_tasks([tasks[1]()], str(toy / "model"), model)["metrics"].keys() == {
        "Found"
    }
