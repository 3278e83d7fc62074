"""`minibert finetune` and `minibert evaluate` from end to end, on tiny models and made-up rules of language."""

import json
import random
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from helpers import refusal, write_rows
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from toy_reviews import BAD, GOOD, NOUNS, QUICK, finetune, load, prepare, sentences
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

import minibert
from minibert import (
    MiniBertConfig,
    MiniBertForSequenceClassification,
    MiniBertForTokenClassification,
    MiniBertModel,
)
from minibert.training import cli
from minibert.training.cli.parser import parse
from minibert.training.conversion import to_native
from minibert.training.finetuning.config import FinetuningConfig
from minibert.training.finetuning.tasks import task_class
from minibert.training.loop.early_stopping import EarlyStopping


@pytest.fixture(scope="module")
def training(start, data, tmp_path_factory):
    """A training in two epochs, as somebody does it in Python: what it returns, prints and shows as bars."""
    output = tmp_path_factory.mktemp("runs") / "classify"
    given = ["--model", start, "--data", data, "--output_dir", str(output), "--num_train_epochs", "2",
             "--learning_rate", "1e-2", "--bf16", "false", "--use_cpu", "true", "--logging_steps", "3"]  # fmt: skip
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as bars:
        result = finetune("classify", *given)
    return result, printed.getvalue(), bars.getvalue()


@pytest.fixture(scope="module")
def finished(training):
    return training[0].output_dir


def held_out_of(task, file):
    """The rows of a file that are validated on."""
    options = {"choice_columns": ["ending0", "ending1", "ending2"]} if task == "choose" else {}
    return load(task_class(task)(None, **options), train=[str(file)])["validation"]


def report_of(folder):
    return json.loads((folder / "metrics.json").read_text())


class TestClassify:
    def test_card_names_metric_split_and_data_of_every_result(self, finished, data):
        """But in the metadata there are no figures of rows that are too easy."""
        card = (finished / "README.md").read_text()
        rows = re.findall(r"^\| (\w+) \| (\S+) \((\w+)\) \|", card, re.MULTILINE)
        metrics = ("accuracy", "f1_macro", "matthews_correlation", "loss")
        splits = ("validation", "test")
        expected = {(metric, Path(data).name, split) for metric in metrics for split in splits}
        assert set(rows) == expected
        assert ModelCard(card).data.eval_results is None and "too easy" in card

    def test_it_learns_and_saves_what_any_program_can_load(self, finished):
        report = report_of(finished)
        assert report["test"]["accuracy"] > 0.95 and report["validation"]["accuracy"] > 0.95
        assert (finished / "predictions.png").stat().st_size > 5000
        assert not [
            path
            for path in finished.rglob("*")
            if path.suffix in (".bin", ".pt", ".pth") or path.is_dir()
        ]
        model = AutoModelForSequenceClassification.from_pretrained(finished)
        assert model.config.id2label == {0: "bad", 1: "good"} and model.config.label2id == {
            "bad": 0,
            "good": 1,
        }
        assert model.config.problem_type == "single_label_classification"

    def test_the_figures_are_those_of_the_saved_model(self, finished, data):
        model = AutoModelForSequenceClassification.from_pretrained(finished).eval()
        tokenizer = AutoTokenizer.from_pretrained(finished)
        rows = [json.loads(line) for line in Path(data, "test.jsonl").read_text().splitlines()]
        with torch.no_grad():
            predicted = [
                int(model(**tokenizer(row["text"], return_tensors="pt")).logits.argmax())
                for row in rows
            ]
        true = [["bad", "good"].index(row["label"]) for row in rows]
        report = report_of(finished)["test"]
        assert report["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(true, predicted))
        assert report["f1_macro"] == pytest.approx(
            sklearn.metrics.f1_score(true, predicted, average="macro")
        )

    def test_evaluate_gives_the_same_figures(self, finished, data, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(
            "minibert.training.common.precision.fast_bf16",
            lambda device: (False, "it is said here"),
        )
        arguments = [
            "--model",
            str(finished),
            "--data",
            data,
            "--output_dir",
            str(tmp_path / "out"),
            *QUICK[8:],
        ]
        function, keywords = parse("evaluate classify", arguments)
        scores = function(**keywords)
        report, expected = report_of(tmp_path / "out"), report_of(finished)
        assert scores == {name: report[name] for name in ("validation", "test")}
        assert report["test"] == pytest.approx(expected["test"]) and "train" not in report
        assert report["validation"] == pytest.approx(expected["validation"])
        # The folder has training rows.
        assert report["baseline"] == expected["baseline"]
        assert report["simple_model"] == expected["simple_model"]
        assert report["intervals"] == expected["intervals"]
        assert "too easy" in report["warning"]
        printed = capsys.readouterr().out
        assert f"{expected['test']['accuracy']:.4f}" in printed
        assert "Computing in fp32: it is said here" in printed and "Training" not in printed

    @pytest.mark.slow
    def test_regression_starts_from_berts_own_folder(self, start, tmp_path):
        """A pair, its value how much of the two is good; from a native BERT that is converted in memory."""
        native = to_native(MiniBertModel.from_pretrained(start))
        native.save_pretrained(tmp_path / "bert")
        AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path / "bert")
        pairs = list(zip(sentences(300, 1), sentences(300, 2)))
        rows = [
            {"sentence1": a[0], "sentence2": b[0], "score": 0.5 * a[1] + 2.0 * b[1]}
            for a, b in pairs
        ]
        output = tmp_path / "out"
        assert cli.main([
            "finetune", "classify", "--model", str(tmp_path / "bert"),
            "--train", write_rows(tmp_path / "train.jsonl", rows), "--output_dir", str(output), *QUICK,
            "--learning_rate", "4e-3", "--num_train_epochs", "10", "--traceback",
        ]) == 0  # fmt: skip
        report = report_of(output)["validation"]
        assert report["spearman"] > 0.8
        model = AutoModelForSequenceClassification.from_pretrained(output).eval()
        assert model.config.problem_type == "regression" and model.config.num_labels == 1
        tokenizer = AutoTokenizer.from_pretrained(output)
        held_out = held_out_of("classify", tmp_path / "train.jsonl")
        pairs = [list(held_out[column]) for column in ("sentence1", "sentence2")]
        with torch.no_grad():
            predicted = (
                model(**tokenizer(*pairs, padding=True, return_tensors="pt"))
                .logits.squeeze(-1)
                .numpy()
            )
        assert report["mse"] == pytest.approx(
            np.mean((predicted - np.array(held_out["score"])) ** 2), rel=1e-4
        )
        expected = scipy.stats.pearsonr(predicted, held_out["score"]).statistic
        # After so few steps the predictions hardly differ, so that rounding shows in their correlation.
        assert report["pearson"] == pytest.approx(expected, rel=1e-3)

    @pytest.mark.slow
    def test_several_labels(self, start, tmp_path):
        rows = [
            {
                "text": text,
                "labels": [name for name, holds in (("good", good), ("film", film)) if holds],
            }
            for text, good, film in sentences(400, 3)
        ]
        output, train_rows, test_rows = tmp_path / "out", rows[:320], rows[320:]
        finetune("classify", "--model", start, "--train", write_rows(tmp_path / "train.jsonl", train_rows),
                 "--test", write_rows(tmp_path / "test.jsonl", test_rows), "--output_dir", output, *QUICK,
                 "--num_train_epochs", 6, "--learning_rate", "4e-3")  # fmt: skip
        report = report_of(output)["test"]
        assert report["f1_micro"] > 0.9
        model = AutoModelForSequenceClassification.from_pretrained(output).eval()
        assert model.config.problem_type == "multi_label_classification"
        texts = [row["text"] for row in test_rows]
        given = AutoTokenizer.from_pretrained(output)(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            predicted = model(**given).logits.sigmoid() > 0.5
        true = np.array(
            [[name in row["labels"] for name in ("film", "good")] for row in rows[320:]]
        )
        assert model.config.id2label == {0: "film", 1: "good"}
        for average in ("micro", "macro"):
            expected = sklearn.metrics.f1_score(true, predicted.numpy(), average=average)
            assert report[f"f1_{average}"] == pytest.approx(expected)


def without_floor(trainer):
    """Patience would wait for what guessing reaches."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, EarlyStopping):
            callback.floor = None


class TestTraining:
    def prepare(self, start, data, output, *arguments):
        given = ["--model", start, "--data", data, "--output_dir", output, *arguments]
        return prepare("classify", *QUICK, *given)

    def test_the_losses_are_those_of_transformers_own_model(self, start, data, tmp_path):
        options = ("--learning_rate", "1e-3", "--pooling", "cls")  # as BERT has it
        run = self.prepare(start, data, tmp_path / "ours", *options)
        native = to_native(run.model)
        assert type(native) is BertForSequenceClassification
        run.train()
        ours = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
        assert len(ours) == 10

        arguments = TrainingArguments(
            str(tmp_path / "theirs"), num_train_epochs=1, learning_rate=1e-3, per_device_train_batch_size=32,
            warmup_steps=0.06, weight_decay=0.01, logging_steps=1, save_strategy="no", seed=0, use_cpu=True,
            disable_tqdm=True,
        )  # fmt: skip
        set_seed(0)
        trainer = Trainer(
            native, arguments, DataCollatorWithPadding(run.task.tokenizer), run.encoded["train"]
        )
        trainer.train()
        theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert ours == pytest.approx(theirs, abs=1e-4)
        assert ours[-1] < ours[0]

    @pytest.mark.parametrize("amount", ["encoder", "1"])
    def test_what_is_frozen_keeps_every_bit_and_is_not_in_the_optimizer(
        self, start, data, tmp_path, amount
    ):
        trainer = self.prepare(start, data, tmp_path, "--freeze", amount, "--max_steps", "3")
        model = trainer.model
        before = {name: value.clone() for name, value in model.state_dict().items()}
        assert (
            sum(p.numel() for p in model.parameters() if p.requires_grad) < model.num_parameters()
        )
        seen = []  # frozen parts have no dropout, and autograd records nothing of them
        resting = model.model.layers[0]
        resting.register_forward_hook(
            lambda module, _, output: seen.append((module.training, output.grad_fn))
        )
        trainer.train()
        assert (
            set(seen) == {(False, None)} and model.classifier.training is False
        )  # evaluated at the end
        rests = (
            ("model.embeddings.", "model.layers.0.")
            if amount == "1"
            else ("model.embeddings.", "model.layers.")
        )
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name]) == name.startswith(rests), name
        held = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
        assert held == {id(p) for name, p in model.named_parameters() if not name.startswith(rests)}
        assert trainer.optimizer.defaults["fused"]

    def test_the_lowest_of_shared_layers_cannot_be_frozen(self, start, data, tmp_path):
        config = json.loads(Path(start, "config.json").read_text())
        folder = shutil.copytree(start, tmp_path / "shared")
        (folder / "config.json").write_text(json.dumps(config | dict(share_layers=True)))
        with pytest.raises(ValueError, match="freeze='1': with share_layers there is one layer"):
            self.prepare(folder, data, tmp_path, "--freeze", "1")

    @pytest.mark.parametrize("given", [{"lora": 0}, {"lora": 4, "freeze": "encoder"}])
    def test_lora_without_a_rank_or_with_freezing_is_refused(self, given):
        with pytest.raises(ValueError, match="lora: .; use a rank of 1 or more, without --freeze"):
            FinetuningConfig(**given)

    @pytest.mark.slow
    def test_early_stopping(self, start, data, tmp_path):
        """At a learning rate of 0 nothing changes: after `patience` evaluations without progress it ends."""
        run = self.prepare(
            start,
            data,
            tmp_path,
            "--learning_rate",
            "0",
            "--patience",
            "2",
            "--num_train_epochs",
            "9",
        )
        without_floor(run)
        run.train()
        assert run.state.epoch == 3 and run.state.best_global_step == 10

    @pytest.mark.parametrize(
        "end",
        [
            ["--num_train_epochs", "9", "--patience", "1"],
            pytest.param(["--max_steps", "15"], marks=pytest.mark.slow),
        ],
    )
    def test_resume_after_the_last_checkpoint_does_not_train(self, start, data, tmp_path, end):
        """Killed between its last checkpoint and its end: nothing got better any more."""
        given = ["--learning_rate", "0", "--save_only_model", "false", "--save_total_limit", "9", "--save_strategy",
                 "steps", "--save_steps", "5", "--eval_strategy", "steps", "--eval_steps", "5",
                 "--num_train_epochs", "9", "--patience", "1"]  # fmt: skip
        first, resumed = (self.prepare(start, data, tmp_path, *given) for _ in range(2))
        for trainer in (first, resumed):
            without_floor(trainer)
        first.train()
        resumed.train(str(tmp_path / f"checkpoint-{first.state.global_step}"))
        assert resumed.measure() == first.measure() and resumed.state.epoch < 2
        report = first.describe_training()
        assert resumed.describe_training() == report | {"training_seconds": None}
        evaluations = [
            [entry for entry in trainer.state.log_history if "eval_loss" in entry]
            for trainer in (first, resumed)
        ]
        assert evaluations[0] == evaluations[1]

    @pytest.mark.slow
    def test_resume_with_other_optimizer_settings_is_refused(self, start, data, tmp_path):
        self.prepare(start, data, tmp_path, "--save_only_model", "false").train()
        for argument, value in (("learning_rate", "0.5"), ("lr_scheduler_type", "greedy")):
            run = self.prepare(start, data, tmp_path / "again", f"--{argument}", value)
            with pytest.raises(
                ValueError,
                match=f"^{argument}: '?{value}'?, but the checkpoint .* was trained with",
            ):
                run.train(str(tmp_path / "checkpoint-10"))

    @pytest.mark.slow
    def test_resume_with_other_rows_or_labels_is_refused(self, start, data, tmp_path):
        """They would be validated on what was trained on, or have the head's labels in another order."""
        file = shutil.copy(f"{data}/train.jsonl", tmp_path)
        more = ["--model", start, "--train", file, "--save_only_model", "false", "--validation_size",
                "40", "--output_dir", str(tmp_path / "out"), "--num_train_epochs", "2"]  # fmt: skip
        prepare("classify", *QUICK, *more).train()
        again = [*more, "--resume_from_checkpoint", "true"]
        for changed in (
            ["--seed", "1"],
            ["--labels", "good", "bad"],
            ["--validation_size", "30"],
            ["--freeze", "1"],
        ):
            with pytest.raises(ValueError, match="^(seed|labels|text|freeze): .*was trained with"):
                finetune("classify", *QUICK, *again, *changed)
        for changed in (
            ["--per_device_train_batch_size", "3"],
            ["--metric_for_best_model", "f1_macro"],
        ):
            with pytest.raises(ValueError, match=f"^{changed[0][2:]}.*: .*was trained with"):
                finetune("classify", *QUICK, *again, *changed)
        rows = Path(file).read_text()
        Path(file).write_text(rows.replace("film", "meal"))  # under the same name
        with pytest.raises(ValueError, match="^text: .*was trained with"):
            finetune("classify", *QUICK, *again)
        Path(file).write_text(rows)
        finetune("classify", *QUICK, *again, "--num_train_epochs", "3", "--patience", "9")

    def test_result_equals_the_saved_model(self, start, data, tmp_path):
        """Without autocast, which the trainer puts around a model; seeds by the names that they have in the file."""
        given = dict(model=start, data=data, bf16=True, max_steps=2)
        result = minibert.finetune("classify", **given, output_dir=tmp_path / "out")
        saved = MiniBertForSequenceClassification.from_pretrained(tmp_path / "out")
        ids = torch.randint(5, 40, (3, 9))
        with torch.no_grad():
            found, expected = result.model.eval()(ids).logits, saved(ids).logits
            assert isinstance(
                result.model(ids, return_dict=False), tuple
            )  # the decorators of `forward` are there
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        assert result.report == report_of(tmp_path / "out")

    def test_lora_saves_an_ordinary_model(self, start, data, tmp_path):
        output = tmp_path / "out"
        arguments = [
            "--model",
            start,
            "--data",
            data,
            "--output_dir",
            str(output),
            *QUICK,
            "--num_train_epochs",
            "2",
        ]
        assert cli.main(["finetune", "classify", *arguments, "--lora", "4", "--traceback"]) == 0
        report = report_of(output)
        assert report["trained_parameters"] < report["parameters"] / 2
        saved, before = (
            load_file(output / "model.safetensors"),
            load_file(f"{start}/model.safetensors"),
        )
        assert {f"model.{name}" for name in before} < saved.keys() and not [
            name for name in saved if "lora" in name
        ]
        parts = ("attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo")
        matrices = {f"layers.{i}.{part}.weight" for i in (0, 1) for part in parts}
        changed = {name for name in before if not torch.equal(saved[f"model.{name}"], before[name])}
        assert matrices <= changed and all(name in matrices or "pooler" in name for name in changed)


class TestStart:
    """What a model is trained from."""

    @pytest.mark.parametrize(
        ("architecture", "head"),
        [("bert", "ForPreTraining"), ("modernbert", "ForMaskedLM"), ("roberta", "ForMaskedLM")],
    )
    def test_native_checkpoints(self, start, data, tmp_path, architecture, head):
        config = getattr(MiniBertConfig, "modernbert" if architecture == "modernbert" else "bert")(
            "tiny", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=128,
            max_position_embeddings=32,
        )  # fmt: skip
        torch.manual_seed(3)
        native = to_native(getattr(minibert, f"MiniBert{head}")(config), architecture)
        native.save_pretrained(tmp_path / "native")
        AutoTokenizer.from_pretrained(start, model_max_length=99).save_pretrained(
            tmp_path / "native"
        )
        arguments = [*QUICK, "--model", str(tmp_path / "native"), "--data", data]
        run = prepare("classify", *arguments)
        model = run.model
        assert type(model) is MiniBertForSequenceClassification and model.config.id2label == {
            0: "bad",
            1: "good",
        }
        assert (
            run.task.tokenizer.model_max_length == 32
        )  # positions of RoBERTa begin later in its table
        inputs = {"input_ids": torch.randint(5, 80, (2, 7))}
        with torch.no_grad():
            ours = model.eval().model(**inputs).last_hidden_state
            theirs = native.base_model.eval()(**inputs).last_hidden_state
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        if (architecture, head) == (
            "modernbert",
            "ForMaskedLM",
        ):  # as Transformers does, the head is taken over
            assert torch.equal(model.head.dense.weight, native.head.dense.weight)
        if head == "ForPreTraining":
            assert torch.equal(
                model.model.pooler.dense.weight, native.base_model.pooler.dense.weight
            )
        again, other = (prepare("classify", *arguments, "--seed", seed).model for seed in (0, 1))
        assert torch.equal(again.classifier.weight, model.classifier.weight)
        assert not torch.equal(other.classifier.weight, model.classifier.weight)

    def test_bf16_checkpoint_is_trained_in_fp32(self, start, data, tmp_path):
        MiniBertModel.from_pretrained(start).to(torch.bfloat16).save_pretrained(tmp_path)
        AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path)
        run = prepare("classify", *QUICK, "--model", str(tmp_path), "--data", data)
        assert {p.dtype for p in run.model.parameters()} == {torch.float32}


class TestOtherTasks:
    def test_choose(self, start, tmp_path):
        """Right is the choice that is good."""
        draw, rows = random.Random(0), []
        for _ in range(320):
            noun, right = draw.choice(NOUNS), draw.randrange(3)
            endings = {f"ending{i}": draw.choice(GOOD if i == right else BAD) for i in range(3)}
            rows.append({"sent1": f"the {noun}", "sent2": "was very", **endings, "label": right})
        output = tmp_path / "out"
        assert cli.main([
            "finetune", "choose", "--model", start, "--train", write_rows(tmp_path / "train.jsonl", rows),
            "--output_dir", str(output), *QUICK, "--num_train_epochs", "2", "--traceback",
            "--choice_columns", "ending0", "ending1", "ending2",
        ]) == 0  # fmt: skip
        report = report_of(output)
        assert report["validation"]["accuracy"] > 0.9
        # the same with nothing but Transformers
        tokenizer = AutoTokenizer.from_pretrained(output)
        model = AutoModelForMultipleChoice.from_pretrained(output).eval()
        held_out = held_out_of("choose", tmp_path / "train.jsonl")
        right = 0
        for row in held_out:
            choices = [f"{row['sent2']} {row[f'ending{i}']}" for i in range(3)]
            given = tokenizer([row["sent1"]] * 3, choices, padding=True, return_tensors="pt")
            with torch.no_grad():
                best = model(**{k: v.unsqueeze(0) for k, v in given.items()}).logits.argmax()
            right += int(best) == row["label"]
        assert report["validation"]["accuracy"] == pytest.approx(right / len(held_out))

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ({"question": "a", "choices": ["x", "y", "z"], "answer": 0}, "a list of 2 texts"),
            (
                {"question": "a", "choices": ["x", "y"], "answer": 3},
                "answer=3; use a number from 0 to 1",
            ),
            ({"question": None, "choices": ["x", "y"], "answer": 0}, "'question' is empty"),
        ],
    )
    def test_choose_refuses(self, start, tmp_path, row, said, capsys):
        file = write_rows(
            tmp_path / "train.jsonl", [{"question": "a", "choices": ["x", "y"], "answer": 1}, row]
        )
        files = ["--train", file, "--validation", file, "--output_dir", tmp_path / "out"]
        error = refusal(capsys, "finetune", "choose", "--model", start, *files, *QUICK)
        assert said in error and "train.jsonl, row" in error


class TestBadInput:
    def refused(self, capsys, tmp_path, *arguments, name="finetune classify"):
        output = tmp_path / "refused"
        assert cli.main([*name.split(), "--output_dir", str(output), *QUICK, *arguments]) == 2
        assert not output.exists()
        error = [
            line
            for line in capsys.readouterr().err.splitlines()
            if line.startswith("minibert: error: ")
        ]
        assert len(error) == 1
        return error[0]

    def test_arguments(self, start, data, tmp_path, capsys):
        good = ["--model", start, "--data", data]
        for given, said in (
            (["--model", str(tmp_path), "--data", data], "config.json"),
            (["--model", "./nowhere", "--data", data], "'./nowhere' does not exist"),
            (
                [*good, "--max_length", "33"],
                "max_length: 33 is out of range; use 3 up to the model's 32 positions",
            ),
            ([*good, "--freeze", "3"], "freeze must be none, encoder or a number up to 2, got '3'"),
            ([*good, "--learning_rate", "nan"], "learning_rate must be a finite number"),
            ([*good, "--label_column", "tag"], "no column 'tag' (it has text, label)"),
            ([*good, "--pair_column", "text"], "pair_column"),
        ):
            assert said in self.refused(capsys, tmp_path, *given)

    def test_finished_folder_is_refused(self, finished, start, data, capsys):
        arguments = ["--model", start, "--data", data, "--output_dir", str(finished), *QUICK]
        assert cli.main(["finetune", "classify", *arguments]) == 2
        assert "holds a finished model" in capsys.readouterr().err

    def test_checkpoint_of_another_task_is_refused(self, finished, start, data, tmp_path, capsys):
        tagger = tmp_path / "tagger"
        config = MiniBertConfig.from_pretrained(
            start, id2label={0: "O", 1: "B-PER"}, label2id={"O": 0, "B-PER": 1}
        )
        MiniBertForTokenClassification(config).save_pretrained(tagger)
        AutoTokenizer.from_pretrained(start).save_pretrained(tagger)
        capsys.readouterr()
        error = self.refused(capsys, tmp_path, "--model", str(tagger), "--data", data)
        assert (
            "MiniBertForTokenClassification (labels: O, B-PER), a checkpoint of another task"
            in error
        )

        rows = [{"text": f"a {i}", "label": label} for i, label in enumerate(["yes", "no"] * 3)]
        train = write_rows(tmp_path / "train.jsonl", rows)
        error = self.refused(capsys, tmp_path, "--model", str(finished), "--train", train)
        assert "fine-tuned for the labels bad, good" in error and "train.jsonl" in error
        value = write_rows(
            tmp_path / "value.jsonl",
            [{"text": "a", "label": "good"}, {"text": "b", "label": "so so"}],
        )
        evaluated = ["--model", str(finished), "--test", value]
        assert (
            cli.main(["evaluate", "classify", "--output_dir", str(tmp_path / "e"), *evaluated]) == 2
        )
        assert "value.jsonl, row 2: label='so so'" in capsys.readouterr().err
        given = ["--output_dir", str(tmp_path / "e"), "--model", start, "--data", data]
        assert cli.main(["evaluate", "classify", *given]) == 2
        assert "a checkpoint of another task" in capsys.readouterr().err

    def test_training_goes_on_from_a_model_of_the_same_labels(
        self, finished, start, data, tmp_path
    ):
        """Numbers are read as the labels that the model has names for; its head is kept."""
        arguments = [*QUICK, "--model", str(finished), "--data", data, "--seed", "1"]
        model = prepare("classify", *arguments).model
        saved = load_file(finished / "model.safetensors")
        assert torch.equal(model.classifier.weight, saved["classifier.weight"])
        rows = [{"text": f"a {i}", "label": label} for i, label in enumerate([1, 0] * 3)]
        numbered = write_rows(tmp_path / "train.jsonl", rows)
        run = prepare("classify", *QUICK, "--model", str(finished), "--train", numbered)
        assert run.task.label_names == ["bad", "good"]


@pytest.mark.parametrize(
    ("n_gpu", "given", "error"),
    [
        (2, [], "2 GPUs need a process each: `torchrun --nproc_per_node 2"),
        (
            1,
            ["--fsdp", "full_shard"],
            "fsdp, deepspeed: fine-tuning needs the whole model in every process",
        ),
    ],
)
def test_several_gpus_without_torchrun_and_fsdp_are_refused(
    start, data, finished, tmp_path, monkeypatch, capsys, n_gpu, given, error
):
    monkeypatch.setattr(TrainingArguments, "n_gpu", n_gpu)
    for command_, model in (("finetune", start), ("evaluate", str(finished))):
        output = ["--output_dir", str(tmp_path / "out")]
        assert (
            cli.main([command_, "classify", "--model", model, "--data", data, *output, *given]) == 2
        )
        assert error in capsys.readouterr().err


def test_an_evaluation_does_not_replace_the_report_of_a_training(data, finished, capsys):
    before = (finished / "metrics.json").read_bytes()
    given = ["--model", str(finished), "--data", data, "--output_dir", str(finished)]
    assert cli.main(["evaluate", "classify", *given]) == 2
    assert "holds a model, whose metrics would be lost" in capsys.readouterr().err
    assert (finished / "metrics.json").read_bytes() == before


def test_only_a_finished_training_touches_the_hub(start, data, tmp_path, monkeypatch):
    monkeypatch.setattr(
        Trainer, "init_hf_repo", lambda *_, **__: pytest.fail("a repository was created")
    )
    given = [
        "--data",
        data,
        "--push_to_hub",
        "true",
        "--bf16",
        "false",
        "--use_cpu",
        "true",
        "--traceback",
    ]
    plan = [
        "finetune",
        "classify",
        "--model",
        start,
        "--plan",
        "--output_dir",
        str(tmp_path / "plan"),
    ]
    assert cli.main([*plan, *given]) == 0


@pytest.mark.parametrize(
    ("token", "name", "error"),
    [(None, "me/x", "no token for the Hub"), ("hf_some", "me/x/y", "'me/x/y'")],
)
def test_what_could_not_be_pushed_is_told_before_the_training(
    start, data, tmp_path, monkeypatch, capsys, token, name, error
):
    monkeypatch.setattr("minibert.training.hub.push.get_token", lambda: token)
    given = [
        "--data",
        data,
        "--output_dir",
        str(tmp_path / "out"),
        *QUICK,
        "--push_to_hub",
        "--hub_model_id",
        name,
    ]
    assert cli.main(["finetune", "classify", "--model", start, *given]) == 2
    assert error in capsys.readouterr().err and not (tmp_path / "out").exists()
