"""What `minibert finetune` and `minibert evaluate` refuse of their arguments before anything is trained; and test rows
without labels, as public benchmarks publish them: predicted, not scored."""

import dataclasses
import json
import random
import shutil
from pathlib import Path

import datasets
import pytest
import torch
from helpers import write_rows
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertJapaneseTokenizer,
    Trainer,
)

from minibert import MiniBertConfig, MiniBertForSequenceClassification, MiniBertModel, train_tokenizer
from minibert.training.arguments.finetuning import AnswerArguments
from minibert.training.cli import main as cli
from minibert.training.finetuning import run as command
from minibert.training.finetuning.freezing import SeenEmbedding
from minibert.training.finetuning.tasks.answering import answer_question
from minibert.training.finetuning.tasks.base import Task
from minibert.training.finetuning.trainer import TaskTrainer, score
from minibert.training.old_cli import parsing

NAMES, WORDS = ("ann", "bob"), ("runs", "sleeps", "sings", "eats", "to", "in", "the", "park")
QUICK = ["--max_steps", "2", "--disable_tqdm", "true", "--bf16", "false"]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    tokenizer = train_tokenizer([" ".join((*NAMES, *WORDS))] * 20, vocab_size=60, show_progress=False)
    config = MiniBertConfig.from_tokenizer(
        tokenizer, "bert", "tiny", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=48, initializer_range=0.5,  # so that what is predicted differs from row to row
    )  # fmt: skip
    torch.manual_seed(0)
    MiniBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


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
            "pairs": {"premise": text, "hypothesis": words[0], "label": ["entailment", "neutral"][i % 2]},
            "choices": {"question": text, "choices": ["runs", "sings", "eats"], "answer": i % 3},
            "entities": {"tokens": [draw.choice(NAMES), *words], "tags": ["B-PER", "O", "O", "B-LOC", "I-LOC"]},
            "words": {"tokens": words, "pos_tags": ["NV"[WORDS.index(word) % 2] for word in words]},
            "spans": {"question": "runs", "context": text, "answers": {"text": [words[0]], "answer_start": [0]}},
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
SHORT_QUESTIONS = {"answer": ["--max_question_length", "4"]}


@pytest.fixture
def given(start, tmp_path):
    """A function: what is given for rows of some kind, (task, arguments)."""

    def given(kind, *arguments):
        rows = list(rows_of(kind))
        files = ["--train", write_rows(tmp_path / "train.jsonl", rows[:16])]
        files += ["--validation", write_rows(tmp_path / "validation.jsonl", rows[16:])]
        task = TASKS[kind]
        return task, ["--model", start, *files, "--output_dir", str(tmp_path / "out"), *QUICK,
                      *SHORT_QUESTIONS.get(task, []), *arguments]  # fmt: skip

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
    @pytest.mark.parametrize("kind", TASKS)
    def test_the_legal_names_are_those_of_the_scores(self, given, kind, refused, tmp_path):
        task, arguments = given(kind)
        run = command.prepare(*parsing.parse(f"finetune {task}", arguments))
        _, scores = score(run, run.initial_model())
        names = list(scores["validation"])
        assert "loss" in names and run.task.metric_for_best_model in names

        (tmp_path / "out").rmdir()  # made by the scoring
        error = refused("finetune", task, [*arguments, "--metric_for_best_model", "acuracy"])
        assert error.startswith("metric_for_best_model: 'acuracy' is not measured; use one of")
        assert set(error.strip().split("use one of ")[1].split(", ")) == set(names)
        for name in (names[0], f"eval_{names[-1]}"):
            training = parsing.parse(f"finetune {task}", [*arguments, "--metric_for_best_model", name])[-1]
            command.resolve_training(dataclasses.replace(run, training=training))

    def test_it_trains_by_the_loss(self, given, tmp_path):
        task, arguments = given("classes", "--metric_for_best_model", "eval_loss", "--seeds", "2", "--traceback")
        assert cli.main(["finetune", task, *arguments]) == 0
        report = json.loads((tmp_path / "out" / "metrics.json").read_text())
        losses = {seed: each["validation"]["loss"] for seed, each in report["seeds"].items()}
        assert str(report["seed"]) == min(losses, key=losses.get)

    def test_a_plan_refuses_it_too(self, given, refused):
        task, arguments = given("classes", "--plan", "--metric_for_best_model", "f1")
        assert "is not measured; use one of loss, accuracy, f1_macro" in refused("finetune", task, arguments)


class TestPredictions:
    @pytest.mark.parametrize("kind", ["values", "choices", "entities", "perhaps"])
    def test_they_are_those_of_their_rows(self, given, kind):
        """Whatever the order that rows are trained in: Transformers would evaluate in it too."""
        task, arguments = given(kind, "--per_device_eval_batch_size", "2")
        found = []
        for more in ([], ["--train_sampling_strategy", "group_by_length"]):
            run = command.prepare(*parsing.parse(f"finetune {task}", [*arguments, *more]))
            predictions, scores = score(run, run.initial_model())
            found.append((scores["validation"], run.task.decode(predictions["validation"])))
        assert found[0][0] == found[1][0]
        assert list(map(str, found[0][1])) == list(map(str, found[1][1]))

    def test_a_model_that_shows_its_layers_is_trained_as_any(self, start, given, tmp_path):
        """Such as an embedder saved with the mean of its last four."""
        folder = shutil.copytree(start, tmp_path / "model")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"output_hidden_states": True}))
        scores = []
        for model in (start, folder):
            task, arguments = given("classes")
            run = command.prepare(*parsing.parse(f"finetune {task}", [*arguments, "--model", str(model)]))
            scores.append(score(run, run.initial_model())[1])
        assert scores[0] == scores[1]


class TestRefused:
    @pytest.mark.parametrize(
        ("kind", "arguments", "said"),
        [
            ("classes", ["--neftune_noise_alpha", "5"], "neftune_noise_alpha: a batch is one row, whose length"),
            (
                "classes",
                ["--lr_scheduler_kwargs", '{"num_warmup_steps": 3}'],
                "lr_scheduler_kwargs: linear has no 'num_warmup_steps'; use none; the warmup is --warmup_steps",
            ),
            (
                "classes",
                ["--lr_scheduler_type", "polynomial", "--lr_scheduler_kwargs", '{"power": 2, "lr_and": 0}'],
                "lr_scheduler_kwargs: polynomial has no 'lr_and'; use lr_end, power;",
            ),
            ("classes", ["--bf16_full_eval", "true"], "bf16_full_eval: use false; evaluation would leave the model"),
            ("classes", ["--fp16_full_eval", "true"], "fp16_full_eval: use false"),
            ("classes", ["--prediction_loss_only", "true"], "prediction_loss_only: use false"),
            ("classes", ["--dataloader_drop_last", "true"], "dataloader_drop_last: use false"),
            ("classes", ["--eval_do_concat_batches", "false"], "eval_do_concat_batches: use true"),
            ("classes", ["--label_names", "labels"], "label_names: leave it out"),
            ("choices", ["--include_for_metrics", "inputs"], "include_for_metrics: leave it out; the metrics of"),
            ("classes", ["--dataloader_in_order", "false"], "dataloader_in_order: use true; predictions are known by"),
            ("entities", ["--remove_unused_columns", "false"], "remove_unused_columns: use true; rows carry columns"),
            ("classes", ["--hub_token", "abc"], "hub_token: leave it out; log in"),
            ("classes", ["--greater_is_better", "false"], "greater_is_better: false contradicts"),
            ("classes", ["--patience", "-1"], "patience: -1 is too small; use 0 or more"),
            (
                "classes",
                ["--patience", "2", "--eval_strategy", "no", "--load_best_model_at_end", "false"],
                "patience: 2 has no effect",
            ),
            ("classes", ["--validation_size", "0.3"], "validation_size: 0.3 has no effect where rows to validate on"),
            ("words", ["--repair_tags", "true"], "repair_tags: True has no effect on classes of words"),
            ("words", ["--decoding", "greedy"], "decoding: 'greedy' has no effect on classes of words"),
            ("classes", ["--compare_rounds", "3"], "compare_rounds: 3 has no effect without --compare"),
            (
                "classes",
                ["--freeze", "encoder", "--layerwise_lr_decay", "0.9"],
                "layerwise_lr_decay: 0.9 has no effect with --freeze encoder",
            ),
            ("values", ["--labels", "low", "high"], "labels: low, high cannot name the values of 'score'"),
            ("values", ["--label_smoothing_factor", "0.1"], "label_smoothing_factor: 0.1 needs labels of classes"),
            ("several", ["--label_smoothing_factor", "0.1"], "label_smoothing_factor: 0.1 needs labels of classes"),
            ("spans", ["--label_smoothing_factor", "0.1"], "label_smoothing_factor: 0.1 needs labels of classes"),
            ("words", ["--tag_names", "N", "V"], "tag_names: the tags of"),
        ],
    )
    def test_what_would_be_ignored_or_do_harm(self, given, refused, kind, arguments, said):
        task, arguments = given(kind, *arguments)
        assert refused("finetune", task, arguments).startswith(said)

    @pytest.mark.parametrize("arguments", [["--bf16_full_eval", "true"], ["--lora", "0"], ["--freeze", "9"]])
    def test_a_plan_refuses_what_no_training_could_have(self, given, refused, arguments):
        task, arguments = given("classes", "--plan", *arguments)
        assert "use " in refused("finetune", task, arguments)

    @pytest.mark.parametrize("lacks", ["rust", "padding", "agreement", "files"])
    @pytest.mark.parametrize("kind", ["classes", "entities"])
    def test_a_tokenizer_that_cannot_serve(self, start, given, refused, tmp_path, kind, lacks):
        folder = shutil.copytree(start, tmp_path / "model")
        if lacks == "rust":
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (folder / name).unlink()
            (folder / "vocab.txt").write_text("\n".join(AutoTokenizer.from_pretrained(start).get_vocab()))
            words = dict(word_tokenizer_type="basic", subword_tokenizer_type="character")
            BertJapaneseTokenizer(str(folder / "vocab.txt"), **words).save_pretrained(folder)
            said = "slow BertJapaneseTokenizer; use a fast tokenizer"
        elif lacks == "agreement":
            settings = json.loads((folder / "config.json").read_text()) | {"pad_token_id": 7}
            (folder / "config.json").write_text(json.dumps(settings))
            said = "has pad_token_id=7 in config.json, 0 in the tokenizer; correct the one"
        elif lacks == "files":
            for file in folder.glob("tokenizer*"):
                file.unlink()
            said = "holds no tokenizer; tokenizer.save_pretrained(folder) writes it"
        else:
            settings = json.loads((folder / "tokenizer_config.json").read_text())
            del settings["pad_token"]
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
            said = "has no pad_token, which batches need"
        task, arguments = given(kind, "--model", str(folder))
        assert said in refused("finetune", task, arguments)

    def test_a_model_of_another_problem(self, start, given, refused, tmp_path):
        config = MiniBertConfig.from_pretrained(
            start, problem_type="single_label_classification", id2label={0: "a", 1: "b"}, label2id={"a": 0, "b": 1}
        )
        MiniBertForSequenceClassification(config).save_pretrained(tmp_path / "model")
        AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path / "model")
        task, arguments = given("classes", "--model", str(tmp_path / "model"), "--problem_type", "regression")
        assert refused("finetune", task, arguments).startswith("problem_type: 'regression' is asked for")

    def test_other_labels_than_those_of_a_model_without_names(self, start, refused, tmp_path):
        MiniBertForSequenceClassification(MiniBertConfig.from_pretrained(start, num_labels=3)).save_pretrained(tmp_path)
        AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path)
        test = write_rows(tmp_path / "test.jsonl", [{"text": "ann runs", "label": i} for i in (0, 1)])
        arguments = ["--model", str(tmp_path), "--test", test, "--output_dir", str(tmp_path / "out")]
        said = refused("evaluate", "classify", [*arguments, "--labels", "a", "b"])
        assert "was fine-tuned for 3 labels" in said and "not for 2 (a, b); give all of them" in said

    def test_a_folder_that_lacks_weights(self, start, given, refused, tmp_path):
        """They would be random numbers: those of the encoder always, a head's where the model is to be used."""
        shutil.copytree(start, tmp_path / "cut")
        weights = load_file(tmp_path / "cut/model.safetensors")
        kept = {name: tensor for name, tensor in weights.items() if not name.startswith("layers.1.")}
        save_file(kept, tmp_path / "cut/model.safetensors", {"format": "pt"})
        task, arguments = given("classes", "--model", str(tmp_path / "cut"))
        assert "lacks the weights model.layers.1.attn.Wo.bias" in refused("finetune", task, arguments)
        with pytest.raises(ValueError, match="lacks the weights classifier.bias"):
            answer_question(start, "runs", "ann runs")

    def test_evaluate(self, start, refused, tmp_path):
        train = write_rows(tmp_path / "train.jsonl", rows_of("classes"))
        arguments = ["--model", start, "--output_dir", str(tmp_path / "out"), "--test", train]
        said = refused("evaluate", "classify", [*arguments, "--train", train])
        assert said.startswith("train: nothing is trained here")
        said = refused("evaluate", "classify", [*arguments, "--prediction_loss_only", "true"])
        assert said.startswith("prediction_loss_only: use false")


def parsed(given):
    task, arguments = given
    return f"finetune {task}", arguments


def test_smoothed_labels_of_classes(given):
    for kind in ("classes", "choices", "words"):
        command.prepare(*parsing.parse(*parsed(given(kind, "--label_smoothing_factor", "0.1"))))


def test_tokens_are_counted_where_that_is_asked_for(given):
    run = command.prepare(*parsing.parse(*parsed(given("classes", "--include_num_input_tokens_seen", "true"))))
    assert run.training.include_num_input_tokens_seen == "all"
    run = command.prepare(*parsing.parse(*parsed(given("classes"))))
    assert run.training.include_num_input_tokens_seen == "no"


@pytest.mark.parametrize("kind", ["entities", "perhaps"])
def test_rows_are_tokenized_once(given, kind, tmp_path, cache, monkeypatch):
    name, arguments = parsed(given(kind))
    if kind == "perhaps":  # trained on a nested file, whose rows are made in memory
        answered = [{"question": "who", "answers": [{"text": "ann", "answer_start": 0}]}] * 2
        nested = {"data": [{"paragraphs": [{"context": "ann runs", "qas": answered}]}]}
        arguments[arguments.index("--train") + 1] = write_rows(tmp_path / "nested.json", [nested])

    def prepared(*more):
        """The encoded rows, and the files that they lie in."""
        encoded = command.prepare(*parsing.parse(name, [*arguments, *more])).encoded.values()
        return [split[:] for split in encoded], [split.cache_files for split in encoded]

    first = prepared()
    with monkeypatch.context() as patch:
        patch.setattr(datasets.Dataset, "_map_single", lambda *_, **__: pytest.fail("it tokenizes again"))
        assert prepared() == first
    assert prepared("--max_length", "20")[1] != first[1]
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"# another version")
    other = prepared()
    assert other[0] == first[0] and other[1] != first[1]


def test_a_value_of_minus_100_counts(given, tmp_path):
    """The loss of a step is its mean over all rows, those of this value too; as a class it would stand for none."""
    name, arguments = parsed(given("values"))
    write_rows(tmp_path / "train.jsonl", [{"text": "ann runs", "score": score} for score in (-100, -100, 0.5, 1)])
    run = command.prepare(*parsing.parse(name, arguments))
    trainer = TaskTrainer(run, run.initial_model(), trains=True)
    _, count = trainer.get_batch_samples(iter(trainer.get_train_dataloader()), 1, trainer.args.device)
    assert count == 4


@pytest.mark.parametrize("kind", ["pairs", "choices"])
def test_two_segments_for_a_model_of_one(start, given, tmp_path, kind):
    """RoBERTa's one row of segments, with a tokenizer that numbers those of a pair."""
    assert 1 in AutoTokenizer.from_pretrained(start)("ann", "runs")["token_type_ids"]
    MiniBertModel(MiniBertConfig.from_pretrained(start, type_vocab_size=1)).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path / "model")
    task, arguments = given(kind, "--model", str(tmp_path / "model"))
    assert cli.main(["finetune", task, *arguments]) == 0
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(tmp_path / "out")("ann", "runs")


def test_low_rank_updates_need_no_table_of_seen_words(given):
    for arguments, kind in (([], SeenEmbedding), (["--lora", "2"], None)):
        run = command.prepare(*parsing.parse(*parsed(given("classes", *arguments))))
        model = run.initial_model()
        embedding = model.get_input_embeddings()
        TaskTrainer(run, model, trains=True)
        now = model.get_input_embeddings()
        assert isinstance(now, SeenEmbedding) if kind else now is embedding


# --- test rows without labels ---

LABEL_COLUMNS = ("label", "labels", "score", "answer", "tags", "pos_tags", "answers")


def without_label(row, mark):
    """The row with no label column (mark "missing"), or with `mark` for its label."""
    row = dict(row)
    for name in LABEL_COLUMNS:
        if name in row and mark == "missing":
            del row[name]
        elif name in row:
            row[name] = [mark] * len(row[name]) if name in ("tags", "pos_tags") else mark
    return row


def finetune(start, kind, folder, test, *arguments):
    rows = list(rows_of(kind))
    files = {"train": rows[:16], "validation": rows[16:], "test": test}
    files = {name: of for name, of in files.items() if f"--{name}" not in arguments}
    files = [word for name, of in files.items() for word in (f"--{name}", write_rows(folder / f"{name}.jsonl", of))]
    task = TASKS[kind]
    return cli.main(["finetune", task, "--model", start, *files, "--output_dir", str(folder / "out"), *QUICK,
                     *SHORT_QUESTIONS.get(task, []), "--learning_rate", "1e-3", *arguments])  # fmt: skip


def predicted_by_transformers(kind, folder, rows):
    """The same from the saved model with nothing of ours but the model."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if kind == "choices":
        model = AutoModelForMultipleChoice.from_pretrained(folder).eval()
    elif kind in ("classes", "several", "values", "pairs"):
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for row in rows:
        with torch.no_grad():
            if kind == "choices":
                inputs = tokenizer([row["question"]] * 3, row["choices"], padding=True, return_tensors="pt")
                found.append(int(model(**{k: v.unsqueeze(0) for k, v in inputs.items()}).logits.argmax()))
                continue
            if kind in ("perhaps", "spans"):
                arguments = AnswerArguments(max_question_length=4)
                found.append(answer_question(folder, row["question"], row["context"], arguments).text)
                continue
            texts = [row["premise"], row["hypothesis"]] if kind == "pairs" else [row["text"]]
            logits = model(**tokenizer(*texts, return_tensors="pt")).logits[0]
        names = model.config.id2label
        if kind == "values":
            found.append(pytest.approx(float(logits), abs=1e-5))
        elif kind == "several":
            found.append([names[i] for i, value in enumerate(logits) if value.sigmoid() > 0.5])
        else:
            found.append(names[int(logits.argmax())])
    return found


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        ("classes", -1),
        ("several", "missing"),
        ("values", -1.0),
        ("pairs", "-"),
        ("choices", -1),
        ("spans", {"text": [], "answer_start": []}),
        ("perhaps", "missing"),
    ],
)
def test_they_are_read_once_and_predicted(start, tmp_path, capsys, monkeypatch, kind, mark):
    test = [{**without_label(row, mark), "idx": i, "note": "ä/b"} for i, row in enumerate(rows_of(kind, 11))]
    reads, read = [], Task.read_unlabelled
    monkeypatch.setattr(Task, "read_unlabelled", lambda task, split: reads.append(split) or read(task, split))
    assert finetune(start, kind, tmp_path, test, "--traceback") == 0 and len(reads) == 1
    printed, output = capsys.readouterr().out, tmp_path / "out"
    assert f"no row of {str(tmp_path / 'test.jsonl')!r} has a label" in printed and "not scored" in printed
    assert str(output / "test_predictions.jsonl") in printed
    report = json.loads((output / "metrics.json").read_text())
    assert "validation" in report and "test" not in report
    saved = [json.loads(line) for line in (output / "test_predictions.jsonl").read_text().splitlines()]
    assert [{name: row[name] for name in row if name != "prediction"} for row in saved] == test
    assert "ä/b" in (output / "test_predictions.jsonl").read_text()
    predicted = [row["prediction"] for row in saved]
    assert len(set(map(str, predicted))) > 1
    assert predicted == predicted_by_transformers(kind, output, test)

    # the saved model alone
    measured = ["--validation", str(tmp_path / "validation.jsonl"), "--test", str(tmp_path / "test.jsonl")]
    assert cli.main(["evaluate", TASKS[kind], "--model", str(output), *measured, *QUICK[2:], "--output_dir",
                     str(tmp_path / "again"), *SHORT_QUESTIONS.get(TASKS[kind], []), "--traceback"]) == 0  # fmt: skip
    again = [json.loads(line) for line in (tmp_path / "again" / "test_predictions.jsonl").read_text().splitlines()]
    if kind == "values":  # in batches of another size: sums are rounded otherwise
        saved = [row | {"prediction": pytest.approx(row["prediction"], abs=1e-5)} for row in saved]
    assert again == saved
    measured_again = json.loads((tmp_path / "again" / "metrics.json").read_text())["validation"]
    assert measured_again == pytest.approx(report["validation"], abs=1e-5)


def test_a_table_with_an_empty_column_of_labels(start, tmp_path, capsys):
    test = tmp_path / "test.csv"
    test.write_text("text,label\nthe park,\neats in the park,\n")
    assert finetune(start, "classes", tmp_path, [], "--test", str(test), "--traceback") == 0
    assert f"no row of {str(test)!r} has a label" in capsys.readouterr().out
    saved = (tmp_path / "out" / "test_predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["prediction"] in ("a", "b") for line in saved] == [True, True]


@pytest.mark.parametrize(("kind", "mark"), [("entities", "missing"), ("words", -1)])
def test_a_tag_for_every_word(start, tmp_path, kind, mark):
    """What is predicted for words without tags is what is predicted for the same words with tags."""
    rows = list(rows_of(kind, 9))
    test = [without_label(row, mark) for row in rows]
    assert finetune(start, kind, tmp_path, test, "--traceback") == 0
    saved = [json.loads(line) for line in (tmp_path / "out" / "test_predictions.jsonl").read_text().splitlines()]
    predicted = [row["prediction"] for row in saved]
    assert [len(tags) for tags in predicted] == [len(row["tokens"]) for row in rows]
    card = ModelCard((tmp_path / "out" / "README.md").read_text())
    per_class = {"f1", "precision", "recall"} if kind == "entities" else {"f1_macro"}
    assert {result.metric_type for result in card.data.eval_results} == {"accuracy", "loss", *per_class}
    column = "tags" if kind == "entities" else "pos_tags"
    as_said = [{**row, column: tags} for row, tags in zip(rows, predicted)]
    test = write_rows(tmp_path / "said.jsonl", as_said)
    assert cli.main(["evaluate", "tag", "--model", str(tmp_path / "out"), "--test", test, *QUICK[2:], "--output_dir",
                     str(tmp_path / "again")]) == 0  # fmt: skip
    assert json.loads((tmp_path / "again" / "metrics.json").read_text())["test"]["accuracy"] == 1.0


def test_a_sentence_without_words_has_no_tags_to_lack(start, tmp_path, capsys):
    test = [{"tokens": ["ann", "runs"], "tags": ["", ""]}, {"tokens": [], "tags": []}]
    assert finetune(start, "entities", tmp_path, test, "--traceback") == 0
    assert "not scored" in capsys.readouterr().out
    saved = [json.loads(line) for line in (tmp_path / "out" / "test_predictions.jsonl").read_text().splitlines()]
    assert [len(row["prediction"]) for row in saved] == [2, 0]


def test_a_plan_counts_them(start, tmp_path, capsys):
    rows = list(rows_of("classes"))
    test = [without_label(row, "missing") for row in rows[:3]]
    assert finetune(start, "classes", tmp_path, test, "--plan", "--traceback") == 0
    page = (tmp_path / "out" / "plan.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("| test "))
    distinct = len({row["text"] for row in rows[:3]})
    assert line.split("|")[2].strip() == "3" and line.split("|")[5].strip() == str(distinct)  # all are in train
    assert "not scored" in capsys.readouterr().out


class TestUnlabelledRefused:
    def said(self, capsys, start, kind, folder, test, *arguments):
        assert finetune(start, kind, folder, test, *arguments) == 2
        assert not (folder / "out").exists()
        return capsys.readouterr().err

    def test_other_splits_need_labels(self, start, tmp_path, capsys):
        rows = list(rows_of("classes"))
        for name in ("train", "validation"):
            folder = tmp_path / name
            folder.mkdir()
            for mark, said in (("missing", "label_column: "), (-1, "-1")):
                bad = write_rows(folder / "bad.jsonl", [without_label(row, mark) for row in rows])
                error = self.said(capsys, start, "classes", folder, rows[:3], f"--{name}", bad)
                assert said in error and "bad.jsonl" in error

    def test_pairs_without_any_gold_label(self, start, tmp_path, capsys):
        bad = write_rows(tmp_path / "bad.jsonl", [without_label(row, "-") for row in rows_of("pairs")])
        error = self.said(capsys, start, "pairs", tmp_path, list(rows_of("pairs", 3)), "--validation", bad)
        assert "no pair of" in error and "bad.jsonl" in error and "gold label" in error

    def test_some_rows_without_a_label_are_bad_rows(self, start, tmp_path, capsys):
        test = list(rows_of("classes", 3))
        test[1]["label"] = None
        assert "test.jsonl, row 2: 'label' is empty" in self.said(capsys, start, "classes", tmp_path, test)

    def test_their_texts_are_checked_before_training(self, start, tmp_path, capsys):
        test = [{"text": "the park"}, {"text": None}]
        assert "test.jsonl, row 2: 'text' is empty" in self.said(capsys, start, "classes", tmp_path, test)
        assert "no column 'text'" in self.said(capsys, start, "classes", tmp_path, [{"words": "the park"}])

    def test_minus_one_may_be_a_label(self, start, tmp_path, capsys):
        """Where training has it, it is one."""
        rows = [
            {"text": f"{word} {text}", "label": label} for word in WORDS for text, label in (("ann", -1), ("bob", 1))
        ]
        files = [
            "--train",
            write_rows(tmp_path / "a.jsonl", rows),
            "--test",
            write_rows(tmp_path / "b.jsonl", rows[:3]),
        ]
        arguments = ["--model", start, *files, "--output_dir", str(tmp_path / "out"), *QUICK, "--traceback"]
        assert cli.main(["finetune", "classify", *arguments]) == 0
        assert "test" in json.loads((tmp_path / "out" / "metrics.json").read_text())
