"""`FinetuningTrainer` as a user of Python calls it."""

import functools
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from datasets import Dataset, load_dataset
from toy_reviews import sentences
from transformers import AutoTokenizer, TrainerCallback

import minibert
from minibert import (
    AnswerQuestions,
    Classify,
    FinetuningConfig,
    FinetuningTrainer,
    MiniBertForSequenceClassification,
    MiniBertForTokenClassification,
    Tag,
)
from minibert.training.common.locks import LOCK, lock_folder
from minibert.training.finetuning.reading import examples
from minibert.training.finetuning.saving import save_results
from minibert.training.finetuning.thresholds import ChosenThresholds
from minibert.training.loop.early_stopping import EarlyStopping
from minibert.training.optimization import clock
from minibert.training.optimization.clock import TimeBudget

SETTINGS = {
    "max_steps": 3,
    "learning_rate": 1e-2,
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "report_to": "none",
}


def rows(count, seed=0):
    return Dataset.from_list(
        [
            {"text": text, "label": "good" if good else "bad"}
            for text, good, _ in sentences(count, seed)
        ]
    )


def settings(folder, **options):
    return FinetuningConfig(str(folder), **SETTINGS | options)


class Ticking:
    """A clock that is a second on at every look at it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_it_ends_on_time(start, tmp_path, monkeypatch):
    """A minute by a clock that each step moves on, instead of three epochs."""
    ticking = Ticking()
    monkeypatch.setattr(clock, "TimeBudget", functools.partial(TimeBudget, clock=ticking))
    args = settings(tmp_path, minutes=1, max_steps=-1, logging_steps=1, patience=0)
    task = Classify(AutoTokenizer.from_pretrained(start))
    trainer = FinetuningTrainer(task, start, args, rows(200))
    trainer.train()
    assert ticking.now == pytest.approx(60, rel=0.1)
    assert trainer.state.global_step == trainer.state.max_steps > 10
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert max(rates) == pytest.approx(1e-2, rel=0.2) and rates[-1] < 2e-3
    assert trainer.resume_settings["by the clock"] is True
    assert trainer.state.best_model_checkpoint is not None
    assert args.max_steps == -1  # the user's own settings stay
    ended_at = ticking.now
    trainer.train()  # again, as in a notebook
    assert ticking.now - ended_at == pytest.approx(60, rel=0.1)
    assert trainer.state.global_step == trainer.state.max_steps > 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 0}, "minutes must be positive"),
        ({"minutes": 1, "num_train_epochs": 2.0}, "leave --num_train_epochs out"),
    ],
)
def test_minutes_that_are_none_or_not_alone_are_refused(start, tmp_path, options, message):
    args = settings(tmp_path, max_steps=-1, **options)
    with pytest.raises(ValueError, match=message):
        FinetuningTrainer(Classify(AutoTokenizer.from_pretrained(start)), start, args, rows(40))


def test_it_trains_and_measures_as_the_command_does(start, data, tmp_path):
    minibert.finetune(
        "classify", start, data=data, class_weights=["balanced"], output_dir=str(tmp_path / "command"),
        **SETTINGS,
    )  # fmt: skip
    report = json.loads((tmp_path / "command" / "metrics.json").read_text())

    splits = load_dataset("json", data_files={name: f"{data}/{name}.jsonl" for name in ("train", "validation", "test")},
                          cache_dir=str(tmp_path / "cache"))  # fmt: skip
    task = Classify(AutoTokenizer.from_pretrained(start), class_weights=["balanced"])
    trainer = FinetuningTrainer(
        task, start, settings(tmp_path / "python"), splits["train"], splits["validation"], splits["test"]
    )  # fmt: skip
    trainer.train()
    scores = trainer.measure()
    assert scores == {name: report[name] for name in ("validation", "test")}
    assert trainer.baseline_scores == {
        name: report["baseline"][name] for name in ("validation", "test")
    }

    (tmp_path / "mine").write_text("mine")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "trainer_state.json").symlink_to(tmp_path / "mine")
    trainer.save_model(str(tmp_path / "saved"))
    assert (tmp_path / "mine").read_text() == "mine"  # no link is written through
    saved = json.loads((tmp_path / "saved" / "tokenizer.json").read_text())
    assert saved["truncation"] is None and saved["padding"] is None
    trained = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(tmp_path / "saved")),
        tmp_path / "saved",
        settings(tmp_path / "measured"),
        test_dataset=splits["test"],
        baseline_dataset=splits["train"],
    )
    assert trained.measure()["test"] == pytest.approx(scores["test"])
    assert trained.baseline_scores["test"] == trainer.baseline_scores["test"]
    assert list(trained.splits) == ["test"]


def test_rows_to_validate_on_are_held_out(start, tmp_path):
    trainer = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(start)),
        start,
        settings(tmp_path),
        train_dataset=rows(60),
        validation_size=12,
    )
    assert {name: len(split) for name, split in trainer.splits.items()} == {
        "train": 48,
        "validation": 12,
    }


def test_other_rows_are_not_measured_as_those_to_validate_on(start, tmp_path):
    """Whose labels they would be compared with: as many rows, too."""
    trainer = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(start)),
        start,
        settings(tmp_path),
        train_dataset=rows(60),
        validation_size=30,
        test_dataset=rows(12),
    )
    assert len(trainer.train_dataset) == len(trainer.eval_dataset)
    for other_rows in (trainer.train_dataset, trainer.encoded["test"]):
        with pytest.raises(ValueError, match="other rows than those to validate on"):
            trainer.evaluate(other_rows)
        with pytest.raises(ValueError, match="other rows than those to validate on"):
            trainer.predict(other_rows)
    scores = trainer.evaluate()
    assert trainer.evaluate(trainer.eval_dataset)["eval_accuracy"] == scores["eval_accuracy"]
    assert trainer.predict(trainer.eval_dataset).metrics["test_accuracy"] == scores["eval_accuracy"]


def test_a_task_can_be_used_twice(start, tmp_path):
    """Its options stay as given: columns, names of labels, pooling and the longest input."""
    tokenizer = AutoTokenizer.from_pretrained(start, model_max_length=24)
    task = Classify(tokenizer, class_weights=["balanced"], max_length=8)
    options = task.options()
    first = FinetuningTrainer(task, start, settings(tmp_path), rows(60))
    assert first.task.label_names == ["bad", "good"]
    values = Dataset.from_list(
        [{"content": row["text"], "score": row["label"]} for row in rows(60)]
    )
    values = values.map(lambda row: {"score": "new" if row["score"] == "bad" else "old"})
    second = FinetuningTrainer(task, start, settings(tmp_path), values)
    assert second.task.label_names == ["new", "old"]
    assert second.task.text_columns == ["content"] and second.longest_input == 24
    assert first.task.label_names == ["bad", "good"] and first.task.text_columns == ["text"]
    assert task.options() == options == {"class_weights": ["balanced"], "max_length": 8}
    assert task.tokenizer.model_max_length == 24 and task.pooling is None
    assert first.task.options() == second.task.options() == options


@pytest.mark.parametrize("task", [Classify, Tag, AnswerQuestions])
def test_a_task_leaves_the_tokenizer_of_the_caller(task, start, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(start)
    tokenizer.model_max_length = 10**6
    tokenizer.padding_side = "left"
    before = tokenizer.backend_tokenizer.to_str()
    tagged = {"tokens": ["on", "left"], "tags": ["O", "B-X"]}
    answered = {
        "context": "on left",
        "question": "on",
        "answers": {"text": ["left"], "answer_start": [3]},
    }
    train_rows = {Classify: rows(20), Tag: [tagged] * 20, AnswerQuestions: [answered] * 20}[task]
    trainer = FinetuningTrainer(
        task(tokenizer),
        start,
        settings(tmp_path),
        train_dataset=train_rows,
        eval_dataset=train_rows,
    )
    trainer.evaluate()
    assert trainer.task.tokenizer.model_max_length == 32  # the model's
    assert tokenizer.model_max_length == 10**6
    assert tokenizer.padding_side == "left"
    assert "null_threshold" not in tokenizer.init_kwargs
    assert tokenizer.backend_tokenizer.to_str() == before


def test_thresholds_are_chosen_of_a_trained_model_only(start, tmp_path):
    """A training, the first one or a further one, begins without a threshold in the bias."""

    class FirstBias(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            seen.append((model.classifier.bias.detach().clone(), model.config.threshold_shift))

    seen = []
    task = Classify(AutoTokenizer.from_pretrained(start), tune_threshold=True)
    args = settings(tmp_path, load_best_model_at_end=False, save_strategy="no")
    rare = [row for index, row in enumerate(rows(200)) if row["label"] == "good" or index < 60]
    trainer = FinetuningTrainer(task, start, args, rare, validation_size=60)
    trainer.add_callback(FirstBias())
    before = trainer.model.classifier.bias.detach().clone()
    trainer.measure()
    assert trainer.chosen_thresholds is None and trainer.model.config.threshold_shift is None
    trainer.train()
    trained = trainer.model.classifier.bias.detach().clone()
    scores = trainer.measure()
    assert trainer.chosen_thresholds.values is not None
    assert trainer.model.config.threshold_shift[1] != 0
    assert not torch.equal(trainer.model.classifier.bias, trained)
    assert trainer.measure() == {
        name: pytest.approx(values, abs=1e-5) for name, values in scores.items()
    }
    trainer.train()
    (first_bias, first_shift), (second_bias, second_shift) = seen
    assert first_shift is None and second_shift is None
    torch.testing.assert_close(first_bias, before)
    torch.testing.assert_close(second_bias, trained)


def test_a_further_training_forgets_the_thresholds_in_the_config(start, tmp_path, monkeypatch):
    """Of a task whose thresholds do not go into the bias, as of sentence pairs."""
    monkeypatch.setattr(Classify, "thresholds_go_into_bias", False)
    choose_thresholds = Classify.choose_thresholds

    def choose_others(self, predictions):
        return ChosenThresholds([0.7, 0.3], choose_thresholds(self, predictions).choices)

    monkeypatch.setattr(Classify, "choose_thresholds", choose_others)
    task = Classify(AutoTokenizer.from_pretrained(start), tune_threshold=True)
    fields = {"max_steps": 1, "save_strategy": "no", "load_best_model_at_end": False}
    trainer = FinetuningTrainer(task, start, settings(tmp_path, **fields), rows(60))
    trainer.train()
    trainer.measure()
    assert trainer.model.config.thresholds == [0.7, 0.3]
    trainer.train()
    assert trainer.model.config.thresholds is None


def test_thresholds_are_chosen_and_predictions_decoded_once(start, tmp_path, monkeypatch, capsys):
    """In an evaluation, and from measuring to the picture of the results."""
    calls = []
    for name in ("choose_thresholds", "decode"):
        method = getattr(Classify, name)

        def counted(self, predictions, name=name, method=method):
            calls.append(name)
            return method(self, predictions)

        monkeypatch.setattr(Classify, name, counted)
    task = Classify(AutoTokenizer.from_pretrained(start), tune_threshold=True)
    trainer = FinetuningTrainer(task, start, settings(tmp_path), rows(60))
    trainer.model.classifier.weight.data.zero_()
    trainer.model.classifier.bias.data.copy_(torch.tensor([9.0, -9.0]))
    trainer.evaluate()
    assert calls == ["choose_thresholds", "decode"]
    assert "the model predicts the same for every row: bad" in capsys.readouterr().out
    calls.clear()
    trainer.measure()
    trainer.results().save({}, tmp_path / "results")
    assert calls == ["decode"]


def test_a_training_waits_for_no_baseline(start, tmp_path):
    """But for one that may stop early: it goes on until it is better than guessing."""
    without = trainer_on(tmp_path / "without", start, patience=0)
    assert "baseline_scores" not in vars(without) and "simple_scores" not in vars(without)
    trainer = trainer_on(tmp_path / "with", start, patience=2)
    assert "simple_scores" not in vars(trainer)
    (stopping,) = [
        callback
        for callback in trainer.callback_handler.callbacks
        if isinstance(callback, EarlyStopping)
    ]
    assert stopping.floor == trainer.baseline_scores["validation"]["accuracy"] > 0
    assert trainer.simple_scores["validation"]["accuracy"] > 0


def test_a_process_that_does_not_save_changes_nothing(start, tmp_path, monkeypatch):
    task = Classify(AutoTokenizer.from_pretrained(start), max_length=8)
    args = settings(tmp_path / "run", load_best_model_at_end=False, save_strategy="no")
    trainer = FinetuningTrainer(task, start, args, rows(60))
    trainer.train()
    trainer.measure()
    folder = tmp_path / "saved"
    with monkeypatch.context() as patch:
        patch.setattr(FinetuningConfig, "should_save", False)
        assert save_results(trainer, folder) == {} and not folder.exists()
    trainer.save_model(str(folder))
    assert trainer.report == json.loads((folder / "metrics.json").read_text())
    assert AutoTokenizer.from_pretrained(folder).model_max_length == 32
    assert trainer.task.tokenizer.model_max_length == 8  # the trainer's own stays


def test_results_are_saved_of_the_model_that_was_measured(start, tmp_path):
    """With the model, if it was measured since it was trained."""
    fields = {"max_steps": 1, "save_strategy": "no", "load_best_model_at_end": False}
    trainer = trainer_on(tmp_path / "run", start, **fields)
    trainer.train()
    trainer.save_model(str(tmp_path / "first"))
    trainer.measure()
    trainer.train()
    trainer.save_model(str(tmp_path / "second"))
    for name in ("first", "second"):
        files = {path.name for path in (tmp_path / name).iterdir()}
        assert {"model.safetensors", "tokenizer.json"} <= files
        assert not {"README.md", "metrics.json"} & files
    trainer.measure()
    trainer.save_model(str(tmp_path / "third"))
    files = {path.name for path in (tmp_path / "third").iterdir()}
    assert {"README.md", "metrics.json", "predictions.png", "errors.jsonl"} <= files


def test_a_model_that_was_never_saved_is_measured_by_its_own_labels(start, tmp_path):
    """Its labels are in another order than those of the rows; its pooling stays."""
    labels = {"good": 0, "bad": 1}
    model = MiniBertForSequenceClassification.from_pretrained(
        start, num_labels=2, label2id=labels, id2label={0: "good", 1: "bad"},
        classifier_pooling="cls", problem_type="single_label_classification",
    )  # fmt: skip
    model.classifier.weight.data.zero_()
    model.classifier.bias.data.copy_(torch.tensor([9.0, -9.0]))
    task = Classify(AutoTokenizer.from_pretrained(start))
    test = [row for row in rows(40) if row["label"] == "good"]
    test.append({**test[0], "label": "bad"})
    trainer = FinetuningTrainer(task, model, settings(tmp_path), test_dataset=test)
    scores = trainer.measure()["test"]
    assert scores["accuracy"] == pytest.approx((len(test) - 1) / len(test))
    assert model.config.id2label == {0: "good", 1: "bad"}
    assert model.config.classifier_pooling == model.model.pooling == "cls"


def test_a_model_in_memory(start, tmp_path):
    model = MiniBertForSequenceClassification.from_pretrained(start, num_labels=2)
    before = model.classifier.weight.detach().clone()
    trainer = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(start)), model, settings(tmp_path), rows(60)
    )
    trainer.train()
    assert trainer.model is model and not torch.equal(model.classifier.weight, before)
    assert model.config.id2label == {0: "bad", 1: "good"}


def test_a_model_that_does_not_fit_the_task_is_refused(start, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(start)
    three = MiniBertForSequenceClassification.from_pretrained(start, num_labels=3)
    with pytest.raises(ValueError, match="3 labels .* not for 2"):
        FinetuningTrainer(Classify(tokenizer), three, settings(tmp_path), rows(60))
    tagger = MiniBertForTokenClassification.from_pretrained(start)
    with pytest.raises(
        ValueError, match="a MiniBertForTokenClassification; 'classify' needs a Mini"
    ):
        FinetuningTrainer(Classify(tokenizer), tagger, settings(tmp_path), rows(60))
    with pytest.raises(ValueError, match="question_column: which column"):
        FinetuningTrainer(AnswerQuestions(tokenizer), start, settings(tmp_path), rows(60))


def test_the_tokenizer_is_cut_to_the_models_positions(start, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(start, model_max_length=10**6)
    trainer = FinetuningTrainer(Classify(tokenizer), start, settings(tmp_path), rows(60))
    assert trainer.task.tokenizer.model_max_length == 32


def test_the_longest_input_of_the_task_is_that_of_training(start, tmp_path):
    task = Classify(AutoTokenizer.from_pretrained(start), max_length=8)
    trainer = FinetuningTrainer(task, start, settings(tmp_path), rows(60))
    assert trainer.task.tokenizer.model_max_length == 8 and trainer.longest_input == 32
    assert max(map(len, trainer.encoded["train"]["input_ids"])) <= 8
    with pytest.raises(ValueError, match="max_length: 33 is out of range"):
        task = Classify(AutoTokenizer.from_pretrained(start), max_length=33)
        FinetuningTrainer(task, start, settings(tmp_path), rows(60))


def test_a_folder_of_splits(start, data, tmp_path):
    def trainer_of(**options):
        task = Classify(AutoTokenizer.from_pretrained(start))
        return FinetuningTrainer(task, start, settings(tmp_path), data=str(data), **options)

    trainer = trainer_of(test_dataset=rows(7))
    assert list(trainer.splits) == ["train", "validation", "test"]
    assert len(trainer.splits["test"]) == 7
    trainer.save_model(str(tmp_path / "saved"))
    measured = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(start)),
        tmp_path / "saved",
        settings(tmp_path),
        data=str(data),
        do_train=False,
    )
    assert list(measured.splits) == ["validation", "test"]
    assert measured.baseline_scores["validation"] == trainer.baseline_scores["validation"]


def test_validation_rows_and_a_size_of_them_exclude_each_other(start, tmp_path):
    with pytest.raises(ValueError, match="^validation_size: "):
        minibert.finetune(
            "classify", start, train="a.csv", validation="b.csv", validation_size=0.1,
            output_dir=str(tmp_path),
        )  # fmt: skip
    task = Classify(AutoTokenizer.from_pretrained(start))
    with pytest.raises(ValueError, match="^validation_size: "):
        FinetuningTrainer(
            task, start, settings(tmp_path), rows(60), rows(12), validation_size=12
        )  # fmt: skip


def test_a_size_beside_a_folder_with_a_validation_split_is_refused(start, data, tmp_path):
    """It would do nothing."""
    task = Classify(AutoTokenizer.from_pretrained(start))
    folder = tmp_path / "folder"
    shutil.copytree(data, folder)
    for source in (str(folder), load_dataset(str(folder))):
        with pytest.raises(ValueError, match="^validation_size: validation rows are given"):
            FinetuningTrainer(task, start, settings(tmp_path), data=source, validation_size=12)
    train = str(folder / "train.jsonl")
    trainer = FinetuningTrainer(task, start, settings(tmp_path), data=train, validation_size=12)
    assert list(trainer.splits) == ["train", "validation"]


def test_splits_are_loaded_once(start, data, tmp_path, monkeypatch):
    loaded = []
    load_splits = examples.load_splits

    def counted(*arguments, **options):
        loaded.append(options)
        return load_splits(*arguments, **options)

    monkeypatch.setattr(examples, "load_splits", counted)
    minibert.finetune("classify", start, data=data, output_dir=str(tmp_path / "out"), **SETTINGS)
    minibert.evaluate(
        "classify", str(tmp_path / "out"), data=data, output_dir=str(tmp_path / "measured"),
        use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    assert len(loaded) == 2


def trainer_on(folder, start, **options):
    task = Classify(AutoTokenizer.from_pretrained(start))
    return FinetuningTrainer(task, start, settings(folder, **options), rows(60))


def test_the_newest_whole_checkpoint_is_resumed(start, tmp_path, capsys):
    """One that was cut off by a kill is passed over."""
    fields = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 9}
    fields |= {"eval_strategy": "no", "load_best_model_at_end": False, "save_only_model": False}
    whole = trainer_on(tmp_path / "whole", start, **fields)
    whole.train()
    shutil.copytree(tmp_path / "whole" / "checkpoint-2", tmp_path / "broken" / "checkpoint-2")
    (tmp_path / "broken" / "checkpoint-4").mkdir()
    broken = trainer_on(tmp_path / "broken", start, **fields)
    with pytest.raises(ValueError, match="holds an unfinished run"):
        broken.train()
    broken.train(resume_from_checkpoint=True)
    assert "Skipped checkpoint-4: it was not finished" in capsys.readouterr().out
    trained = whole.model.state_dict().values()
    assert all(map(torch.equal, trained, broken.model.state_dict().values()))
    assert broken.training_seconds is None
    with pytest.raises(ValueError, match="learning_rate: 0.5"):
        other = trainer_on(tmp_path / "other", start, **fields | {"learning_rate": 0.5})
        other.train(str(tmp_path / "whole" / "checkpoint-4"))


def test_with_nothing_to_resume_a_training_begins(start, tmp_path, capsys):
    trainer = trainer_on(tmp_path / "new", start, max_steps=1)
    trainer.train(resume_from_checkpoint=True)
    assert "was finished: starting anew" in capsys.readouterr().out
    assert trainer.state.global_step == 1 and trainer.training_seconds is not None


def test_a_trainer_with_lora_trains_once(start, tmp_path):
    """Its optimizer holds adapters that are merged by then."""
    trainer = trainer_on(tmp_path / "new", start, max_steps=1, lora=2)
    trainer.train()
    with pytest.raises(ValueError, match="lora and freeze: this trainer has trained"):
        trainer.train()


def test_a_training_after_one_that_stopped_early_has_its_own_patience(start, tmp_path):
    fields = {"max_steps": 6, "learning_rate": 0.0, "patience": 1, "save_strategy": "steps"}
    fields |= {"eval_strategy": "steps", "eval_steps": 1, "save_steps": 1}
    trainer = trainer_on(tmp_path, start, metric_for_best_model="loss", **fields)
    for _ in range(2):
        trainer.train()
        assert trainer.state.global_step == 2  # the second one is no better than the first


def test_a_training_and_a_save_lock_the_folder(start, tmp_path):
    """Of two processes, one would overwrite the checkpoints of the other."""
    seen = []

    class Look(TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            seen.append((tmp_path / "run" / LOCK).exists())

    fields = {"max_steps": 1, "save_strategy": "no", "load_best_model_at_end": False}
    trainer = trainer_on(tmp_path / "run", start, **fields)
    trainer.add_callback(Look())
    trainer.train()
    assert seen == [True] and not (tmp_path / "run" / LOCK).exists()
    with ThreadPoolExecutor(1) as pool, lock_folder(tmp_path / "run"):
        for call in (trainer.train, trainer.save_model):
            with pytest.raises(ValueError, match="another thread is writing"):
                pool.submit(call).result()
    trainer.train()  # again, as in a notebook
    trainer.save_model()
    assert not (tmp_path / "run" / ".unfinished").exists()
    assert seen == [True, True] and not (tmp_path / "run" / LOCK).exists()


def test_a_finished_model_is_not_overwritten(start, tmp_path):
    fields = {"max_steps": 1, "save_strategy": "no", "load_best_model_at_end": False}
    trainer = trainer_on(tmp_path, start, **fields)
    trainer.train()
    trainer.save_model()
    with pytest.raises(ValueError, match="holds a finished model"):
        trainer_on(tmp_path, start, **fields).train()
