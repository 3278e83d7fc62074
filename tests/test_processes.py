"""Trainings of two processes (gloo, on CPU) against the same of one process; and what becomes of those that die.

This file is also the program that the processes run: `torchrun … test_processes.py NAMES FOLDER [ARGUMENTS]`.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import Trainer

from minibert.training import api

SMALL = dict(
    size="tiny", num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=48, vocab_size=150,
    seq_length=48, hidden_dropout=0.0, attention_dropout=0.0, learning_rate=3e-3,
)  # fmt: skip
PRETRAININGS = {
    "mlm": dict(),
    "accumulated": dict(gradient_accumulation_steps=2, optimizer="adamw", weight_average=0.9),
    "mlm+nsp": dict(objective="mlm+nsp", model="bert"),
    "rtd": dict(objective="rtd"),
    "clm": dict(objective="clm"),
    "stream": dict(streaming=True),
}
FINETUNINGS = ("classify", "tag", "answer", "embed", "rerank")
SPLITS = ("train", "validation")
LIMIT = 600  # seconds


def sentences(seed: int, count: int) -> list[str]:
    draw = torch.Generator().manual_seed(seed)
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    lengths = torch.randint(3, 25, (count,), generator=draw).tolist()
    return [
        " ".join(syllables[i] + syllables[i // 3] for i in torch.randint(65, (n,), generator=draw).tolist()) + "."
        for n in lengths
    ]


def write_data(folder: Path) -> None:
    lines = sentences(0, 400)
    (folder / "text.txt").write_text("\n\n".join(" ".join(lines[i : i + 3]) for i in range(0, 400, 3)))
    for number, (split, count) in enumerate((("train", 64), ("validation", 13), ("test", 11))):
        rows = {task: [] for task in FINETUNINGS}
        for text in sentences(number + 1, count):
            words = text.split()
            rows["classify"].append(dict(text=text, label="abc"[len(words) % 3]))
            rows["tag"].append(dict(tokens=words, tags=["B-X" if "a" in word else "O" for word in words]))
            answers = dict(text=[words[-1]], answer_start=[text.rindex(words[-1])])
            rows["answer"].append(dict(id=text, question=words[0], context=text, answers=answers))
            rows["embed"].append(dict(anchor=text, positive=" ".join(reversed(words))))
        rows["rerank"] = rows["embed"]
        for task, found in rows.items():
            (folder / task).mkdir(exist_ok=True)
            (folder / task / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))


def train(name: str, folder: Path, output: Path, **more) -> None:
    """Train on batches of 8 rows in all, and write what this process has logged, and of pretraining what documents it
    saw in every step, masked."""
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    logs, seen = [], []
    log, step = Trainer.log, Trainer.training_step

    def recorded_log(trainer, entry, *args):
        logs.append(dict(entry))
        return log(trainer, entry, *args)

    def recorded_step(trainer, model, inputs, *args):
        if name in PRETRAININGS:
            columns, bounds = (inputs["input_ids"], inputs["labels"]), inputs.get("cu_seq_lens_q")
            parts = zip(*columns) if bounds is None else zip(*(x[0].tensor_split(bounds[1:-1].long()) for x in columns))
            seen.append([str((ids[ids != 0].tolist(), labels[labels != -100].tolist())) for ids, labels in parts])
        return step(trainer, model, inputs, *args)

    Trainer.log, Trainer.training_step = recorded_log, recorded_step
    settings = dict(
        output_dir=str(output / name), per_device_train_batch_size=8 // ranks, per_device_eval_batch_size=2,
        max_steps=5, logging_steps=1, eval_strategy="steps", eval_steps=5, save_strategy="no", bf16=False,
        disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    try:
        if name in FINETUNINGS:
            data = dict(data=str(folder / name))
            if name in ("embed", "rerank"):
                data = {
                    "data" if split == "train" else split: str(folder / name / f"{split}.jsonl") for split in SPLITS
                }
            kept = dict(save_strategy="steps", save_steps=5, learning_rate=1e-3)
            api.finetune(name, model=str(folder / "one/mlm"), **settings | kept | data | more)
        else:
            api.pretrain(data=str(folder / "text.txt"), **SMALL | settings | PRETRAININGS[name] | more)
    finally:
        Trainer.log, Trainer.training_step = log, step
    (output / f"{name}-{rank}.json").write_text(json.dumps(dict(logs=logs, seen=seen)))


def torchrun(*arguments, options: tuple = (), **environment) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return subprocess.Popen([*command, __file__, *map(str, arguments)], env=environment, **pipes)


def finished(process: subprocess.Popen) -> str:
    """What it printed; it ends well."""
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    return said


# --- as one process ---


QUICK = ("mlm", "rtd", "classify")
REST = tuple(name for name in (*PRETRAININGS, *FINETUNINGS) if name not in QUICK)


@pytest.fixture(scope="module", params=[QUICK, pytest.param(REST, marks=pytest.mark.slow)], ids=["quick", "rest"])
def trained(request, tmp_path_factory):
    """A folder of trainings by one process (`one`) and by two (`two`), and the names of these trainings."""
    folder, names = tmp_path_factory.mktemp("processes"), request.param
    write_data(folder)
    for name in dict.fromkeys(("mlm", *names)):  # the fine-tunings begin with the first
        train(name, folder, folder / "one")
    finished(torchrun(folder, folder / "two", *names))
    return folder, names


def read(folder: Path, name: str, rank: int = 0) -> dict:
    return json.loads((folder / f"{name}-{rank}.json").read_text())


COSTS = ("runtime", "per_second", "preparation_time", "flos")


def test_two_processes_train_and_measure_as_one(trained):
    """Losses of every step and metrics of every evaluation; each row of training and evaluation counts once."""
    folder, names = trained
    for name in names:
        one, two = (read(folder / which, name)["logs"] for which in ("one", "two"))
        assert sum("loss" in entry for entry in one) == 5 and any(key.startswith("eval_") for e in one for key in e)
        one, two = (
            [{key: x for key, x in entry.items() if not key.endswith(COSTS)} for entry in logs] for logs in (one, two)
        )
        assert two == [pytest.approx(entry, abs=1e-4) for entry in one], name


def test_each_process_has_rows_of_its_own(trained):
    """Those of one process, step by step, with the same masks."""
    folder, names = trained
    for name in set(names) & set(PRETRAININGS):
        whole, first, second = (
            read(folder / which, name, rank)["seen"] for which, rank in (("one", 0), ("two", 0), ("two", 1))
        )
        if name == "accumulated":  # of two batches in a step
            whole, first, second = ([a + b for a, b in zip(x[::2], x[1::2])] for x in (whole, first, second))
        assert len(whole) == 5 and all(first) and all(second)
        assert list(map(Counter, whole)) == [Counter(a) + Counter(b) for a, b in zip(first, second)]


def test_one_process_writes(trained):
    """The same files with the same figures in them; nothing is left behind by the other."""
    folder, names = trained
    for name in names:
        one, two = (folder / which / name for which in ("one", "two"))
        files = [{path.relative_to(output).as_posix() for path in output.rglob("*")} for output in (one, two)]
        assert files[0] == files[1] and "model.safetensors" in files[0]
        if name in PRETRAININGS:
            reports = [json.loads((output / "report.json").read_text()) for output in (one, two)]
            figures = [{k: x for k, x in r.items() if isinstance(x, float) and "seconds" not in k} for r in reports]
            assert figures[1] == pytest.approx(figures[0], rel=1e-4)


if __name__ == "__main__":
    data, output, *names = sys.argv[1:]
    for name in names:
        train(name, Path(data), Path(output))
