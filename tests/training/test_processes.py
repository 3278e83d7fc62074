"""Trainings of two processes (gloo, on CPU) against the same of one process; and what becomes of those that die.

This file is also the program that the processes run: `torchrun … test_processes.py NAMES FOLDER [ARGUMENTS]`.
"""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import yaml
from accelerate import PartialState
from datasets import Dataset, IterableDataset
from safetensors.torch import load_file
from torch import distributed
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close
from transformers import Trainer

import minibert
from minibert import (
    MiniBertConfig,
    MiniBertForMaskedLM,
    PretrainingConfig,
    PretrainingTrainer,
    train_tokenizer,
)
from minibert.training.common.processes import first_process_first
from minibert.training.data import mixtures
from minibert.training.loop.checkpoints import find_damage
from minibert.training.pretraining import training_data

pytestmark = pytest.mark.slow  # every process takes seconds to begin
SMALL = dict(
    size="tiny", vocab_size=150, seq_length=48, learning_rate=3e-3,
    config_overrides=dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=48,
                          hidden_dropout=0.0, attention_dropout=0.0),
)  # fmt: skip
PRETRAININGS = {
    "mlm": dict(), "accumulated": dict(gradient_accumulation_steps=2, optimizer="adamw"),
    "mlm+nsp": dict(objective="mlm+nsp", model="bert"),
    "shared layers": dict(
        objective="mlm+sop", model="bert",
        config_overrides=SMALL["config_overrides"] | dict(share_layers=True),
    ),
    "rtd": dict(objective="rtd"), "clm": dict(objective="clm"),
    "stream": dict(streaming=True), "prepared": dict(streaming=True),
}  # fmt: skip
FINETUNINGS = ("classify", "weighted", "tag", "answer", "embed", "rerank")
WEIGHTED = dict(
    class_weights=[3.0, 1.0, 0.25], gradient_accumulation_steps=2
)  # another way to classify
SPLITS = ("train", "validation")
LIMIT = 600  # seconds


def sentences(seed: int, count: int) -> list[str]:
    draw = torch.Generator().manual_seed(seed)
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    lengths = torch.randint(3, 25, (count,), generator=draw).tolist()
    return [
        " ".join(
            syllables[i] + syllables[i // 3]
            for i in torch.randint(65, (n,), generator=draw).tolist()
        )
        + "."
        for n in lengths
    ]


def write_data(folder: Path) -> None:
    lines = sentences(0, 400)
    (folder / "text.txt").write_text(
        "\n\n".join(" ".join(lines[i : i + 3]) for i in range(0, 400, 3))
    )
    for number, (split, count) in enumerate((("train", 64), ("validation", 13), ("test", 11))):
        rows = {task: [] for task in FINETUNINGS}
        for text in sentences(number + 1, count):
            words = text.split()
            rows["classify"].append(dict(text=text, label="abc"[len(words) % 3]))
            rows["tag"].append(
                dict(tokens=words, tags=["B-X" if "a" in word else "O" for word in words])
            )
            answers = dict(text=[words[-1]], answer_start=[text.rindex(words[-1])])
            rows["answer"].append(dict(id=text, question=words[0], context=text, answers=answers))
            rows["embed"].append(dict(anchor=text, positive=" ".join(reversed(words))))
        rows["rerank"], rows["weighted"] = rows["embed"], rows["classify"]
        for task, found in rows.items():
            (folder / task).mkdir(exist_ok=True)
            (folder / task / f"{split}.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in found)
            )


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
            parts = (
                zip(*columns)
                if bounds is None
                else zip(*(x[0].tensor_split(bounds[1:-1].long()) for x in columns))
            )
            seen.append(
                [
                    str((ids[ids != 0].tolist(), labels[labels != -100].tolist()))
                    for ids, labels in parts
                ]
            )
        return step(trainer, model, inputs, *args)

    Trainer.log, Trainer.training_step = recorded_log, recorded_step
    settings = dict(
        output_dir=str(output / name), per_device_train_batch_size=8 // ranks, max_steps=5,
        logging_steps=1, eval_strategy="steps", eval_steps=5, save_strategy="no", bf16=False, disable_tqdm=True,
        use_cpu=True,
    )  # fmt: skip
    if name not in ("embed", "rerank"):
        settings["per_device_eval_batch_size"] = 2
    try:
        if name in FINETUNINGS:
            data = dict(data=str(folder / name))
            if name in ("embed", "rerank"):
                data = {
                    "data" if split == "train" else split: str(folder / name / f"{split}.jsonl")
                    for split in SPLITS
                }
            kept = dict(save_strategy="steps", save_steps=5, learning_rate=1e-3)
            more |= WEIGHTED if name == "weighted" else {}
            task = "classify" if name == "weighted" else name
            minibert.finetune(task, model=str(folder / "one/mlm"), **settings | kept | data | more)
        else:
            data, arguments = str(folder / "text.txt"), SMALL | settings | PRETRAININGS[name] | more
            if name == "prepared":
                made = {each: arguments.pop(each) for each in ("vocab_size", "seq_length")}
                if output == folder / "one":
                    minibert.prepare(data=data, output_dir=str(folder / "rows"), **made)
                data = str(folder / "rows")
            minibert.pretrain(data=data, **arguments)
    finally:
        Trainer.log, Trainer.training_step = log, step
    (output / f"{name}-{rank}.json").write_text(json.dumps(dict(logs=logs, seen=seen)))


# What begins two processes on this machine.
TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc_per_node",
    "2",
)


def torchrun(*arguments, options: tuple = (), **environment) -> subprocess.Popen:
    command = [*TORCHRUN, *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **environment}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return subprocess.Popen([*command, __file__, *map(str, arguments)], env=environment, **pipes)


def finished(process: subprocess.Popen) -> str:
    """What it printed; it ends well."""
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    return said


# --- as one process ---


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of trainings by one process (`one`) and by two (`two`), and the names of these trainings."""
    folder, names = tmp_path_factory.mktemp("processes"), (*PRETRAININGS, *FINETUNINGS)
    write_data(folder)
    for name in names:  # the fine-tunings begin with the first
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
        assert sum("loss" in entry for entry in one) == 5 and any(
            key.startswith("eval_") for e in one for key in e
        )
        one, two = (
            [{key: x for key, x in entry.items() if not key.endswith(COSTS)} for entry in logs]
            for logs in (one, two)
        )
        assert two == [pytest.approx(entry, abs=1e-4) for entry in one], name


def test_each_process_has_rows_of_its_own(trained):
    """Those of one process, step by step, with the same masks."""
    folder, names = trained
    for name in set(names) & set(PRETRAININGS):
        whole, first, second = (
            read(folder / which, name, rank)["seen"]
            for which, rank in (("one", 0), ("two", 0), ("two", 1))
        )
        if name == "accumulated":  # of two batches in a step
            whole, first, second = (
                [a + b for a, b in zip(x[::2], x[1::2])] for x in (whole, first, second)
            )
        assert len(whole) == 5 and all(first) and all(second)
        assert list(map(Counter, whole)) == [Counter(a) + Counter(b) for a, b in zip(first, second)]


def test_one_process_writes(trained):
    """The same files with the same figures in them; nothing is left behind by the other."""
    folder, names = trained
    for name in names:
        one, two = (folder / which / name for which in ("one", "two"))
        files = [
            {path.relative_to(output).as_posix() for path in output.rglob("*")}
            for output in (one, two)
        ]
        assert files[0] == files[1] and "model.safetensors" in files[0]
        if (one / "report.json").exists():
            reports = [json.loads((output / "report.json").read_text()) for output in (one, two)]
            figures = [
                {k: x for k, x in r.items() if isinstance(x, float) and "seconds" not in k}
                for r in reports
            ]
            assert reports[0].get("batch_size") == reports[1].get(
                "batch_size"
            )  # of all processes together
            assert figures[1] == pytest.approx(figures[0], rel=1e-4)


def test_a_preparation_may_take_longer_than_the_timeout():
    """Of 3 seconds, after which a wait of the training's own group is given up."""
    said = finished(torchrun("patience"))
    assert said.index("first is done") < said.index("second goes on") and "given up" in said


def be_patient() -> None:
    state = PartialState(cpu=True, timeout=timedelta(seconds=3))
    with first_process_first():
        if state.is_main_process:
            time.sleep(8)
            print("first is done", flush=True)
        else:
            print("second goes on", flush=True)
            time.sleep(8)
    state.wait_for_everyone()
    if state.is_main_process:
        time.sleep(8)
        return
    try:
        state.wait_for_everyone()
    except RuntimeError:
        print("given up", flush=True)


def test_fsdp2_trains_as_the_whole_model_does():
    """Layers wrapped as docs/fsdp2.yaml says. By torch itself: accelerate does not share weights among CPUs."""
    finished(torchrun("fsdp2"))


def share_weights() -> None:
    distributed.init_process_group("gloo")
    rank, mesh = distributed.get_rank(), init_device_mesh("cpu", (2,))
    settings = yaml.safe_load((Path(__file__).parents[2] / "docs/fsdp2.yaml").read_text())[
        "fsdp_config"
    ]
    # which is what `Trainer` wraps where nobody says it
    assert MiniBertForMaskedLM._no_split_modules == [settings["fsdp_transformer_layer_cls_to_wrap"]]
    ids = torch.randint(5, 64, (4, 12), generator=torch.Generator().manual_seed(1))
    for preset, share_layers in (
        (MiniBertConfig.bert, False),
        (MiniBertConfig.modernbert, False),
        (MiniBertConfig.bert, True),
    ):
        torch.manual_seed(0)
        sizes = dict(vocab_size=64, num_hidden_layers=2, hidden_dropout=0.0, attention_dropout=0.0)
        shared = MiniBertForMaskedLM(preset("tiny", **sizes, share_layers=share_layers)).train()
        whole = copy.deepcopy(shared)
        layers = [
            m
            for m in shared.modules()
            if type(m).__name__ == settings["fsdp_transformer_layer_cls_to_wrap"]
        ]
        for module in (*layers, shared):
            fully_shard(module, mesh=mesh)
        assert len(layers) == (1 if share_layers else 2)
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (shared, whole)]
        for _ in range(3):
            losses = []
            for model, rows, optimizer in zip(
                (shared, whole), (ids[2 * rank : 2 * rank + 2], ids), optimizers
            ):
                loss = model(rows, labels=rows).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
            distributed.all_reduce(losses[0])
            assert_close(losses[0] / 2, losses[1], atol=1e-5, rtol=1e-5)
        weights = get_model_state_dict(
            shared, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        assert shared.decoder.weight is shared.get_input_embeddings().weight
        if rank == 0:
            assert_close(weights, whole.state_dict(), atol=1e-3, rtol=1e-3)
    distributed.barrier()  # torch may abort a process that leaves while the other still gathers


# --- when one dies ---


def losses(output: Path) -> list[tuple[int, float]]:
    history = json.loads((output / "mlm" / "trainer_state.json").read_text())["log_history"]
    return [(entry["step"], entry["loss"]) for entry in history if "loss" in entry]


CHECKPOINTS = dict(
    save_strategy="steps", save_steps=2, resume_from_checkpoint="true",
    config_overrides=SMALL["config_overrides"] | dict(hidden_dropout=0.1),
)  # fmt: skip


def test_a_process_that_dies_ends_all_and_a_restart_goes_on(tmp_path):
    """Killed in the third step: the launcher says which and why; told to restart, it gives what no kill would have."""
    write_data(tmp_path)
    arguments = tmp_path, tmp_path / "out", "mlm", json.dumps(CHECKPOINTS)
    process = torchrun(*arguments, DIES="3")
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and "exitcode  : -9" in said and "rank      : 1" in said
    checkpoint = tmp_path / "out" / "mlm" / "checkpoint-2"
    assert find_damage(checkpoint) is None and len(list(checkpoint.glob("rng_state_*"))) == 2
    assert "Resuming from" in finished(torchrun(*arguments))
    unbroken = tmp_path / "whole"
    finished(torchrun(tmp_path, unbroken, "mlm", json.dumps(CHECKPOINTS)))
    restarted = tmp_path / "restarted"
    arguments = tmp_path, restarted, "mlm", json.dumps(CHECKPOINTS)
    # Otherwise torch's launcher keeps the addresses of the processes that died, which a quick new one tries to reach.
    said = finished(
        torchrun(
            *arguments,
            options=("--max-restarts", "1"),
            DIES="3",
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )
    )
    assert "Resuming from" in said
    for output in (tmp_path / "out", restarted):
        assert losses(output) == losses(unbroken)
        weights, expected = (
            load_file(each / "mlm" / "model.safetensors") for each in (output, unbroken)
        )
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_sigterm_to_the_launcher_saves_and_stops(tmp_path):
    write_data(tmp_path)
    settings = dict(
        save_strategy="no", eval_strategy="no", max_steps=100_000, lr_scheduler_type="constant"
    )
    settings = CHECKPOINTS | settings | dict(dataloader_num_workers=1)
    process = torchrun(tmp_path, tmp_path / "out", "mlm", json.dumps(settings))
    for line in process.stdout:
        if line.startswith("step"):
            break
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode != 0 and "Stopped by a signal" in said
    (checkpoint,) = (tmp_path / "out" / "mlm").glob("checkpoint-*")
    assert (
        find_damage(checkpoint) is None and not (tmp_path / "out" / "mlm" / "report.json").exists()
    )
    steps = int(checkpoint.name.split("-")[1]) + 2
    finished(
        torchrun(tmp_path, tmp_path / "out", "mlm", json.dumps(settings | dict(max_steps=steps)))
    )
    finished(
        torchrun(tmp_path, tmp_path / "whole", "mlm", json.dumps(settings | dict(max_steps=steps)))
    )
    assert losses(tmp_path / "out") == losses(tmp_path / "whole")


# --- when one cannot read its rows ---


@pytest.mark.parametrize("ranks", [2, 4])
def test_an_unreadable_row_of_one_process_ends_all(tmp_path, ranks):
    """In training and evaluation, of data sets and streams: a checkpoint, and the row, on every rank."""
    said = finished(torchrun("unreadable", tmp_path, options=("--nproc_per_node", str(ranks))))
    others = "another process could not read its rows; its message says which"
    for source in ("map", "stream"):
        for phase in ("training", "evaluation"):
            lines = [line for line in said.splitlines() if line.startswith(f"{source} {phase}:")]
            assert len(lines) == ranks, said
            (checkpoint,) = (tmp_path / f"{source}-{phase}").glob("checkpoint-*")
            step = checkpoint.name.split("-")[1]
            saved = f"(step {step} is saved; repair the data and resume with --resume_from_checkpoint true)"
            assert sum(f"part.jsonl, line 7: not JSON {saved}" in line for line in lines) == 1
            assert sum(f"{others} {saved}" in line for line in lines) == ranks - 1
            assert find_damage(checkpoint) is None
    lines = [line for line in said.splitlines() if line.startswith("empty training:")]
    assert len(lines) == ranks
    assert all("some processes have no rows left while others have" in line for line in lines)


def read_unreadable(folder: Path) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    texts = sentences(0, 200)
    tokenizer = train_tokenizer(texts, vocab_size=150, show_progress=False)
    reads = {"left": -1}  # of the last rank, before one fails; negative: none fails

    def read(batch):
        if rank == ranks - 1:
            reads["left"] -= 1
            if reads["left"] == 0:
                raise ValueError("part.jsonl, line 7: not JSON")
        return batch

    def stream_rows(shards):
        for shard in shards:
            for number in range(10_000):
                if shard == ranks - 1 and phase == "training":
                    read(None)
                yield {"text": texts[number % 200]}

    def stream_empty(shards):
        for shard in shards:
            for number in range(100 if shard == 0 else 0):
                yield {"text": texts[number]}

    mixtures.SAMPLE_ROWS = training_data.SAMPLE_ROWS = 4
    rows = Dataset.from_dict({"input_ids": [list(range(5, 25))] * 400}).add_column(
        "position_ids", [list(range(20))] * 400
    )
    held_out = rows.select(range(32))
    shards = {"shards": list(range(ranks))}
    for source in ("map", "stream", "empty"):
        for phase in ("training", "evaluation") if source != "empty" else ("training",):
            train, evaluation = rows, held_out
            if source == "stream":
                train = IterableDataset.from_generator(stream_rows, gen_kwargs=shards)
            elif source == "empty":
                train = IterableDataset.from_generator(stream_empty, gen_kwargs=shards)
            elif phase == "training":
                train = rows.with_transform(read)
            if phase == "evaluation":
                evaluation = held_out.with_transform(read)
            args = PretrainingConfig(
                str(folder / f"{source}-{phase}"), max_steps=500,
                per_device_eval_batch_size=2, seq_length=48, bf16=False, eval_strategy="steps", eval_steps=3,
                save_strategy="no", embedding_init="random", report_to="none", disable_tqdm=True,
                per_device_train_batch_size=32 if source == "stream" else 2,
            )  # fmt: skip
            config = MiniBertConfig.minibert("tiny", **SMALL["config_overrides"])
            reads["left"] = -1
            trainer = PretrainingTrainer(config, args, None, train, evaluation, tokenizer)
            # a stream is filtered by 1,000 documents, and tokenized and packed by 4,096
            reads["left"] = 2 if phase == "evaluation" else 7000 if source == "stream" else 10
            try:
                trainer.train()
            except ValueError as error:
                print(f"{source} {phase}: {error}\n", end="", flush=True)
            PartialState().wait_for_everyone()


# --- as documented ---


def test_documented_commands_run(tmp_path):
    """Those of docs/pretraining.md on a machine without a GPU, as they stand but for two processes."""
    page = (Path(__file__).parents[2] / "docs" / "pretraining.md").read_text()
    commands = [line.split() for line in page.splitlines() if line.startswith("torchrun ")]
    assert len(commands) == 2
    (tmp_path / "text.txt").write_text("\n".join(sentences(0, 60)))
    minibert.prepare(
        str(tmp_path / "text.txt"), output_dir=str(tmp_path / "runs/rows"), vocab_size=150
    )
    package = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": package, "CUDA_VISIBLE_DEVICES": ""}
    port = 20_000 + os.getpid() % 10_000
    for command in commands:
        machines = 2 if "--nnodes" in command else 1
        command[command.index("--nproc_per_node") + 1] = str(2 // machines)
        command = [word.replace("host1:29500", f"localhost:{port}") for word in command]
        command = [word.replace("/shared/run", str(tmp_path / "run")) for word in command]
        options = dict(cwd=tmp_path, env=environment, text=True)
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        program = [sys.executable, "-m", "torch.distributed.run", *command[1:]]
        launchers = [subprocess.Popen(program, **options, **pipes) for _ in range(machines)]
        said = "".join(finished(launcher) for launcher in launchers)
        assert said.count("Saved to") == 1, said
        assert (tmp_path / command[-1] / "report.json").exists()


@pytest.mark.parametrize("job", ["classify", "embed", "rerank"])
def test_finetune_without_a_gpu(trained, tmp_path, job):
    """`torchrun … finetune`, without --use_cpu."""
    folder, _ = trained
    command = [*TORCHRUN, "-m"]
    command += ["minibert.training.cli", "finetune", job, "--model", str(folder / "one/mlm")]
    data = folder / job if job == "classify" else folder / job / "train.jsonl"
    command += ["--data", str(data), "--max_steps", "2", "--output_dir", str(tmp_path / "out")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = finished(subprocess.Popen(command, env=environment, **pipes))
    assert said.count("Saved to") == 1, said


def main(data: str, output: str = "", *names: str) -> None:
    if data in ("fsdp2", "patience"):
        return share_weights() if data == "fsdp2" else be_patient()
    if data == "unreadable":
        return read_unreadable(Path(output))
    more = json.loads(names[-1]) if names[-1].startswith("{") else {}
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1"
    if "DIES" in os.environ and first:
        PretrainingTrainer.get_batch_samples = killed_at(int(os.environ["DIES"]))
    for name in names[:-1] if more else names:
        train(name, Path(data), Path(output), **more)


def killed_at(step: int):
    plain = PretrainingTrainer.get_batch_samples

    def get_batch_samples(trainer, *args, **kwargs):
        if trainer.state.global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(trainer, *args, **kwargs)

    return get_batch_samples


if __name__ == "__main__":
    main(*sys.argv[1:])
    distributed.destroy_process_group()  # as every script should
