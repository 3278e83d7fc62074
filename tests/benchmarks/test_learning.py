"""The benchmark of learning: the same text, masks and turns for all."""

import json

import pytest
import torch
import yaml
from learning import HELD_OUT, RACES, Arguments, main, read_runs
from learning_runs import (
    Race,
    Run,
    TransformersClassTrainer,
    make_trainer,
    native_matrices,
    with_document_masks,
)
from transformers import AutoModelForMaskedLM, TrainerCallback

from minibert import (
    MiniBertConfig,
    MiniBertForMaskedLM,
    PretrainingTrainer,
    train_tokenizer,
)
from minibert.training.conversion import to_native
from minibert.training.optimization.muon import block_matrices

NAMES = ["cat", "dog", "bird", "tree", "mat"]
LINES = [
    f"the {NAMES[i % 5]} sat under a {NAMES[i // 5 % 5]} and then {i} more of them came"
    for i in range(300)
]


@pytest.mark.parametrize("file", sorted(RACES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_runs_of_a_race_can_be_read(file):
    runs = read_runs(str(file))
    for run in runs.values():
        getattr(MiniBertConfig, run.model)("tiny", **run.fields)


def test_an_unknown_field_of_a_run_is_refused(tmp_path):
    file = tmp_path / "runs.yaml"
    file.write_text(yaml.safe_dump({"mine": {"learning_rat": 1e-3}}))
    with pytest.raises(ValueError, match="'mine' has a wrong field: .*learning_rat"):
        read_runs(str(file))


def save_questions(folder):
    """A folder of questions whose answers are in the text."""
    rows = []
    for number, line in enumerate(LINES[:20]):
        name = line.split()[1]
        answers = {"text": [name], "answer_start": [line.index(name)]}
        rows.append(
            {"id": str(number), "question": "who sat?", "context": line, "answers": answers}
        )
    folder.mkdir()
    for split in ("train", "validation", "test"):
        lines = [json.dumps(row) for row in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize("preset", ["minibert", "modernbert", "bert"])
def test_native_classes_keep_documents_apart(preset):
    torch.manual_seed(0)
    config = getattr(MiniBertConfig, preset)("tiny", vocab_size=512, local_attention=6)
    model = MiniBertForMaskedLM(config).eval()
    native = to_native(model).eval()
    positions = torch.tensor([[*range(9), *range(5), *range(16)], [*range(20), *range(10)]])
    attention_mask = torch.ones_like(positions)
    attention_mask[1, 25:] = 0
    batch = dict(
        input_ids=torch.randint(5, 512, positions.shape),
        position_ids=positions,
        attention_mask=attention_mask,
    )
    with torch.no_grad():
        expected = model(**batch).logits
        logits = native(**with_document_masks(batch, native, config.sliding_window)).logits
        without_masks = native(**batch).logits
    real = attention_mask.bool()
    torch.testing.assert_close(logits[real], expected[real], atol=1e-5, rtol=1e-4)
    assert (without_masks[real] - expected[real]).abs().max() > 1e-3


@pytest.mark.parametrize("preset", ["modernbert", "bert"])
def test_muon_takes_the_same_matrices_of_both_classes(preset):
    model = MiniBertForMaskedLM(getattr(MiniBertConfig, preset)("tiny", vocab_size=512))
    ours = block_matrices(model)
    natives = native_matrices(to_native(model))
    # queries, keys and values are one matrix in MiniBERT, and three in BERT
    assert sum(ours.values()) == sum(natives.values())
    assert sum(matrix.numel() for matrix in ours) == sum(matrix.numel() for matrix in natives)


class Losses(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:
            self.losses.append(logs["loss"])


def test_the_trainer_of_native_classes_overrides_methods_that_exist():
    for name in vars(TransformersClassTrainer):
        assert hasattr(PretrainingTrainer, name), f"PretrainingTrainer has no {name}"


@pytest.mark.slow  # six trainings
@pytest.mark.parametrize("preset", ["minibert", "modernbert", "bert"])
def test_the_recipe_trains_both_classes_alike(tmp_path, preset):
    tokenizer = train_tokenizer(LINES, vocab_size=300, model_max_length=64)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    with open(tmp_path / "train.jsonl", "w") as file:
        for line in LINES:
            file.write(json.dumps({"text": line}) + "\n")
    race = Race(tmp_path, tmp_path, "tiny", steps=8, batch_size=4, seq_length=64, seed=0)
    losses = {}
    no_dropout = dict(hidden_dropout=0.0, attention_dropout=0.0)
    for code in ("minibert", "transformers"):
        callback = Losses()
        options = dict(logging_steps=1, bf16=False)
        run = Run(code=code, model=preset, fields=no_dropout, options=options)
        make_trainer(code, run, race, callback).train()
        losses[code] = callback.losses
    assert len(losses["minibert"]) == 8
    assert losses["transformers"] == pytest.approx(losses["minibert"], abs=2e-3)


@pytest.mark.slow  # every run is a process that loads torch
def test_the_losses_are_those_of_the_saved_models(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(LINES))
    (tmp_path / "runs.yaml").write_text(
        yaml.safe_dump(
            {
                "minibert": {},
                "bert": dict(recipe="run_mlm", code="transformers", model="bert"),
                "packed": dict(
                    recipe="run_mlm", code="transformers", model="modernbert", rows="packed"
                ),
            }
        )
    )
    out = tmp_path / "runs"
    arguments = Arguments(
        data=[str(tmp_path / "text.txt")],
        runs=str(tmp_path / "runs.yaml"),
        output=str(out),
        quick=True,
    )
    results = main(arguments)
    assert {*results} == {"minibert", "bert", "packed"} and (out / "loss.png").exists()
    for name, result in results.items():
        assert [point["step"] for point in result["curve"]] == [4, 8, 12]
        assert result["curve"][-1]["tokens"] == pytest.approx(12 * 2 * 128, rel=0.2)
        # the saved model on the saved masks, by torch's own cross-entropy
        model = AutoModelForMaskedLM.from_pretrained(out / name).eval()
        loss = 0.0
        targets = 0
        for batch in json.loads((out / HELD_OUT).read_text())["batches"]:
            inputs = {name: torch.tensor(batch[name]) for name in ("input_ids", "attention_mask")}
            labels = torch.tensor(batch["labels"])
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                logits = model(**inputs).logits
            loss += torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), labels.flatten(), reduction="sum"
            )
            targets += (labels != -100).sum()
        assert result["loss"] == pytest.approx((loss / targets).item(), abs=0.01)
    assert main(arguments) == results  # what is done is not done again
    arguments.answers = str(save_questions(tmp_path / "questions"))
    answers = main(arguments)
    for name, result in answers.items():
        report = json.loads((out / f"{name}, answers" / "metrics.json").read_text())
        assert report["task"] == "answer" and report["model"] == str(out / name)
        assert result["answers"] == report["test"]["f1"]
    assert main(arguments) == answers
    arguments.seed = 1
    with pytest.raises(ValueError, match="use another --output"):
        main(arguments)
