"""What `minibert finetune` and `minibert evaluate` refuse before anything is trained, and what they read."""

import random
import shutil

import datasets
import pandas
import pytest
from helpers import save_model, undocumented_fields, write_rows
from safetensors.torch import load_file, save_file
from toy_reviews import prepare
from transformers import AutoTokenizer, BertJapaneseTokenizer, Trainer

import minibert
from minibert import (
    MiniBertConfig,
    MiniBertForSequenceClassification,
    MiniBertModel,
    train_tokenizer,
)
from minibert.training import cli
from minibert.training.finetuning.config import FinetuningConfig

NAMES, WORDS = ("ann", "bob"), ("runs", "sleeps", "sings", "eats", "to", "in", "the", "park")
QUICK = ["--max_steps", "2", "--disable_tqdm", "true", "--bf16", "false"]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Of large weights, so that what is predicted differs from row to row."""
    tokenizer = train_tokenizer(
        [" ".join((*NAMES, *WORDS))] * 20, vocab_size=60, show_progress=False
    )
    fields = dict(
        hidden_size=16, intermediate_size=32, max_position_embeddings=48, initializer_range=0.5
    )
    return save_model(
        tmp_path_factory.mktemp("start"),
        tokenizer,
        **fields,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )


def rows_of(kind, count=24):
    """Rows of any task; their labels follow from the first word of a text."""
    draw = random.Random(0)
    for _ in range(count):
        words = draw.choices(WORDS, k=4)
        text, i = " ".join(words), WORDS.index(words[0])
        yield {
            "classes": {"text": text, "label": "ab"[i % 2]},
            "several": {"text": text, "labels": [["a"], ["a", "b"], []][i % 3]},
            "values": {"text": text, "score": i / 8 + 0.01},
            "pairs": {
                "premise": text,
                "hypothesis": words[0],
                "label": ["entailment", "neutral"][i % 2],
            },
            "choices": {"question": text, "choices": ["runs", "sings", "eats"], "answer": i % 3},
            "entities": {
                "tokens": [draw.choice(NAMES), *words],
                "tags": ["B-PER", "O", "O", "B-LOC", "I-LOC"],
            },
            "words": {"tokens": words, "pos_tags": ["NV"[WORDS.index(word) % 2] for word in words]},
            "spans": {
                "question": "runs",
                "context": text,
                "answers": {"text": [words[0]], "answer_start": [0]},
            },
            "perhaps": {
                "question": "runs",
                "context": text,
                "answers": {"text": [words[0]] * (i % 2), "answer_start": [0] * (i % 2)},
            },
        }[kind]


TASKS = {
    "classes": "classify", "several": "classify", "values": "classify", "pairs": "nli", "choices": "choose",
    "entities": "tag", "words": "tag", "spans": "answer", "perhaps": "answer",
}  # fmt: skip


@pytest.fixture
def given(start, tmp_path):
    """A function: what is given for rows of some kind, (task, arguments)."""

    def given(kind, *arguments):
        rows = list(rows_of(kind))
        files = ["--train", write_rows(tmp_path / "train.jsonl", rows[:16])]
        files += ["--validation", write_rows(tmp_path / "validation.jsonl", rows[16:])]
        task = TASKS[kind]
        return task, ["--model", start, *files, "--output_dir", str(tmp_path / "out"), *QUICK,
                      *arguments]  # fmt: skip

    return given


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """A function: the error that a command is refused with before it trains or writes anything."""
    monkeypatch.setattr(Trainer, "train", lambda *_, **__: pytest.fail("it trains"))

    def refused(name, task, arguments):
        assert cli.main([name, task, *arguments]) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err.split("minibert: error: ")[1]

    return refused


class TestMetric:
    @pytest.mark.parametrize("kind", ["classes", "several", "entities", "perhaps"])
    def test_the_legal_names_are_those_of_the_scores(self, given, kind, refused, tmp_path):
        task, arguments = given(kind)
        trainer = prepare(task, *arguments)
        names = list(trainer.measure()["validation"])
        assert "loss" in names and trainer.task.metric_for_best_model in names

        shutil.rmtree(tmp_path / "out", ignore_errors=True)  # made by the scoring
        error = refused("finetune", task, [*arguments, "--metric_for_best_model", "acuracy"])
        assert error.startswith("metric_for_best_model: 'acuracy' is not measured; use one of")
        assert set(error.strip().split("use one of ")[1].split(", ")) == set(names)
        for name in (names[0], f"eval_{names[-1]}"):
            prepare(task, *arguments, "--metric_for_best_model", name)


class TestPredictions:
    @pytest.mark.parametrize("kind", ["choices", "entities", "perhaps"])
    def test_they_are_those_of_their_rows(self, given, kind):
        """Whatever the order that rows are trained in: Transformers would evaluate in it too."""
        task, arguments = given(kind, "--per_device_eval_batch_size", "2")
        found = []
        for more in ([], ["--train_sampling_strategy", "group_by_length"]):
            trainer = prepare(task, *arguments, *more)
            scores = trainer.measure()["validation"]
            found.append((scores, trainer.task.decode(trainer.predictions["validation"])))
        assert found[0][0] == found[1][0]
        assert list(map(str, found[0][1])) == list(map(str, found[1][1]))


class TestRefused:
    @pytest.mark.parametrize(
        ("kind", "arguments", "said"),
        [
            (
                "classes",
                ["--bf16_full_eval", "true"],
                "bf16_full_eval, fp16_full_eval: they would save the model in",
            ),
            (
                "classes",
                ["--prediction_loss_only", "true"],
                "prediction_loss_only: the metrics need the predictions",
            ),
            (
                "classes",
                ["--dataloader_drop_last", "true"],
                "dataloader_drop_last: the metrics need",
            ),
            (
                "entities",
                ["--remove_unused_columns", "false"],
                "remove_unused_columns: the metrics need",
            ),
            (
                "values",
                ["--label_smoothing_factor", "0.1"],
                "label_smoothing_factor: it needs classes",
            ),
            (
                "spans",
                ["--label_smoothing_factor", "0.1"],
                "label_smoothing_factor: it needs classes",
            ),
        ],
    )
    def test_unsupported_training_arguments_are_refused(
        self, given, refused, kind, arguments, said
    ):
        task, arguments = given(kind, *arguments)
        assert refused("finetune", task, arguments).startswith(said)

    @pytest.mark.parametrize("lacks", ["rust", "files"])
    def test_unusable_tokenizer_is_refused(self, start, given, refused, tmp_path, lacks):
        folder = shutil.copytree(start, tmp_path / "model")
        if lacks == "rust":
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (folder / name).unlink()
            (folder / "vocab.txt").write_text(
                "\n".join(AutoTokenizer.from_pretrained(start).get_vocab())
            )
            words = dict(word_tokenizer_type="basic", subword_tokenizer_type="character")
            BertJapaneseTokenizer(str(folder / "vocab.txt"), **words).save_pretrained(folder)
            said = "slow BertJapaneseTokenizer; use a fast tokenizer"
        else:
            for file in folder.glob("tokenizer*"):
                file.unlink()
            said = "model: no tokenizer in"
        task, arguments = given("classes", "--model", str(folder))
        assert said in refused("finetune", task, arguments)

    def test_other_labels_than_those_of_a_model_without_names(self, start, refused, tmp_path):
        MiniBertForSequenceClassification(
            MiniBertConfig.from_pretrained(start, num_labels=3)
        ).save_pretrained(tmp_path)
        AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path)
        test = write_rows(
            tmp_path / "test.jsonl", [{"text": "ann runs", "label": i} for i in (0, 1)]
        )
        arguments = [
            "--model",
            str(tmp_path),
            "--test",
            test,
            "--output_dir",
            str(tmp_path / "out"),
        ]
        said = refused("evaluate", "classify", [*arguments, "--labels", "a", "b"])
        assert (
            "was fine-tuned for 3 labels" in said and "not for 2 (a, b); give all of them" in said
        )

    def test_folder_with_missing_weights_is_refused(self, start, given, refused, tmp_path):
        shutil.copytree(start, tmp_path / "cut")
        weights = load_file(tmp_path / "cut/model.safetensors")
        kept = {
            name: tensor for name, tensor in weights.items() if not name.startswith("layers.1.")
        }
        save_file(kept, tmp_path / "cut/model.safetensors", {"format": "pt"})
        task, arguments = given("classes", "--model", str(tmp_path / "cut"))
        assert "lacks the weights model.layers.1.attn.Wo.bias" in refused(
            "finetune", task, arguments
        )


def flat(given):
    task, arguments = given
    return [task, *arguments]


def test_pairs_for_a_model_with_one_segment_type(start, given, tmp_path):
    """RoBERTa's one row of segments, with a tokenizer that numbers those of a pair."""
    assert 1 in AutoTokenizer.from_pretrained(start)("ann", "runs")["token_type_ids"]
    MiniBertModel(MiniBertConfig.from_pretrained(start, type_vocab_size=1)).save_pretrained(
        tmp_path / "model"
    )
    AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path / "model")
    task, arguments = given("pairs", "--model", str(tmp_path / "model"))
    assert cli.main(["finetune", task, *arguments]) == 0
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(tmp_path / "out")("ann", "runs")


@pytest.mark.parametrize(
    ("kind", "mark"),
    [("classes", -1), ("several", "missing"), ("pairs", "-"), ("perhaps", "missing")],
)
def test_test_rows_without_labels_are_left_out(given, tmp_path, capsys, kind, mark):
    """Benchmarks publish them so."""
    task, arguments = given(kind)
    column = {"perhaps": "answers", "words": "pos_tags", "several": "labels"}.get(kind, "label")
    rows = [dict(row) for row in rows_of(kind, 5)]
    for row in rows:
        label = row.pop(column)
        row |= (
            {} if mark == "missing" else {column: [mark] * len(label) if kind == "words" else mark}
        )
    test = write_rows(tmp_path / "test.jsonl", rows)
    assert {*prepare(task, *arguments, "--test", test).splits} == {"train", "validation"}
    assert f"no row of {test!r} has a label" in capsys.readouterr().out


def test_minus_one_may_be_a_label(start, tmp_path):
    """Where training has it, it is one."""
    rows = [
        {"text": f"{word} {text}", "label": label}
        for word in WORDS
        for text, label in (("ann", -1), ("bob", 1))
    ]
    files = [
        "--train",
        write_rows(tmp_path / "a.jsonl", rows),
        "--test",
        write_rows(tmp_path / "b.jsonl", rows[:3]),
    ]
    assert "test" in prepare("classify", "--model", start, *files, *QUICK).splits


def test_row_without_a_label_is_refused(given, refused, tmp_path):
    task, arguments = given("classes")
    rows = list(rows_of("classes", 3))
    rows[1]["label"] = None
    test = write_rows(tmp_path / "test.jsonl", rows)
    assert "test.jsonl, row 2: 'label' is empty" in refused(
        "finetune", task, [*arguments, "--test", test]
    )


def test_a_data_set_in_memory(start, tmp_path):
    rows = datasets.Dataset.from_list(list(rows_of("classes")))
    given = dict(model=start, max_steps=2, bf16=False)
    result = minibert.finetune("classify", train=rows, output_dir=tmp_path / "out", **given)
    assert result.report["validation"].keys() >= {"accuracy", "f1_macro"}
    args = FinetuningConfig(str(tmp_path / "again"), max_steps=2, bf16=False)
    both = datasets.DatasetDict(train=rows, test=rows)
    assert "test" in minibert.finetune("classify", model=start, data=both, args=args).report
    with pytest.raises(
        ValueError, match="unknown option 'lables' of finetune classify; close matches: label"
    ):
        minibert.finetune("classify", model=start, train=rows, lables=["a"])


def test_a_frame_and_dictionaries(start, tmp_path):
    rows = list(rows_of("classes"))
    options = dict(model=start, max_steps=1, bf16=False, output_dir=tmp_path / "out")
    result = minibert.finetune("classify", train=pandas.DataFrame(rows), validation=rows, **options)
    assert result.report["validation"].keys() >= {"accuracy", "f1_macro"}
    assert undocumented_fields(result.report) == set()
    frame = pandas.DataFrame(rows)
    scores = minibert.evaluate(
        "classify", tmp_path / "out", test=frame, bf16=False, output_dir=tmp_path / "scores"
    )
    assert scores["test"]["accuracy"] == result.report["validation"]["accuracy"]
    predicted = minibert.predict(tmp_path / "out", frame)
    assert predicted[:] == minibert.predict(tmp_path / "out", rows)[:]


def test_an_option_that_was_removed_is_refused_by_the_page_that_replaces_it(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("few_shot: true\n")
    for words in (["--few_shot", "true"], ["--few_shot=true"], ["--recipe", str(recipe)]):
        assert cli.main(["finetune", "classify", *words]) == 2
        message = capsys.readouterr().err
        assert "this option was removed" in message
        assert "Fine-tuning, Few labels" in message
        assert message.count("\n") == 1
    with pytest.raises(ValueError, match=r"^few_shot: .* Few labels"):
        minibert.finetune("classify", train="missing.jsonl", few_shot=True)
