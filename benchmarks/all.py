"""All measurements behind RESULTS.md and README.md, with the minutes that each takes.

    python benchmarks/all.py --list_measurements true
    python benchmarks/all.py --data data --model all-MiniLM-L6-v2 --only speed.json embedding.json

Each writes a file in benchmarks/results, or a folder of them, with the command, the date and the
machine. What has its file is done; delete the file to repeat it. Then `python benchmarks/tables.py` writes
the tables. Nothing else should run on the machine while seconds are measured.
"""

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from common import option, parse

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results"


@dataclass(frozen=True)
class Measurement:
    """One file of results, or a folder of them.

    Args:
        command: of a script in this folder; {data}, {model}, {results} and {work} are filled in.
        minutes: about so many on two cores of an EPYC with bf16 instructions.
        resumes: the script knows which of its runs are done.
    """

    command: str
    minutes: int
    resumes: bool = False


def race(runs: str, options: str, minutes: int) -> Measurement:
    """The runs of a file in races/."""
    command = (
        f"learning.py --data {{data}}/corpus/train.txt --runs benchmarks/races/{runs}.yaml"
        f" {options} --output {{work}} --results {{results}}"
    )
    return Measurement(command, minutes, resumes=True)


MEASUREMENTS = {
    "speed.json": Measurement(
        "speed.py --benchmarks train-natural train-packed --rounds 3 --output {results}", 30
    ),
    "inference.json": Measurement(
        "speed.py --benchmarks infer-mixed infer-8192/ infer-length-128 memory-8192/ --rounds 3"
        " --output {results}",
        15,
    ),
    "deberta.json": Measurement(
        "speed.py --benchmarks infer-2048-deberta --rounds 3 --output {results}", 4
    ),
    "embedding.json": Measurement(
        "embedding.py --model {model} --data {data}/corpus/test.txt --texts 1000 --rounds 3"
        " --output {results}",
        8,
    ),
    "fine_tuning.json": Measurement(
        "fine_tuning_classes.py --model {model} --data {data} --output {results}",
        60,
        resumes=True,
    ),
    "fine_tuning_random.json": Measurement(
        "fine_tuning_classes.py --order random --tasks WikiGold 'SST-2, 8,000 rows'"
        " --model {model} --data {data} --output {results}",
        15,
        resumes=True,
    ),
    "pooling.json": Measurement(
        "pooling.py --model {model} --data {data} --output {results}", 90, resumes=True
    ),
    "class_weights.json": Measurement(
        "class_weights.py --model {model} --data {data} --output {results}", 20
    ),
    "similarity.json": Measurement(
        "similarity.py --model {model} --data {data} --output {results}", 15
    ),
    "students.json": Measurement(
        "students.py --model {model} --data {data} --output {results}", 15
    ),
    "class": race("class", "--steps 250 --evaluations 10", 15),
    "recipe": race("recipe", "--steps 250 --evaluations 10", 15),
    "windows": race(
        "windows",
        "--steps 750 --evaluations 15 --grammar {data}/blimp/test.jsonl --answers {data}/qa",
        60,
    ),
    "other_text": Measurement(
        "learning.py --runs benchmarks/races/race.yaml --steps 250 --evaluations 5"
        " --output {work} --results {results}",
        15,
        resumes=True,
    ),
    "small": race("race", "--size small --steps 250 --evaluations 5", 35),
    "long": race("long", "--steps 7500 --evaluations 30 --turn 0", 270),
    "tuning_modernbert": race("tuning_modernbert", "--steps 250 --evaluations 5 --turn 0", 40),
    "tuning_bert": race("tuning_bert", "--steps 250 --evaluations 5 --turn 0", 40),
    "tuning_warmup": race("tuning_warmup", "--steps 250 --evaluations 5 --turn 0", 20),
    "race_0": race("race", "--steps 750 --evaluations 15 --seed 0", 30),
    "race_1": race("race", "--steps 750 --evaluations 15 --seed 1", 30),
    "race_2": race("race", "--steps 750 --evaluations 15 --seed 2", 30),
    "race_warmup": race("race_warmup", "--steps 750 --evaluations 15 --seed 0", 11),
}


@dataclass
class Arguments:
    data: str = option("data", "The folder of the data sets.")
    model: str = option("sentence-transformers/all-MiniLM-L6-v2", "A BERT: a folder or a Hub name.")
    only: list[str] = option([], "Names of measurements; by default all.")
    work: str = option("runs/all", "Folder for models and logs; trainings go on from there.")
    list_measurements: bool = option(False, "Only show the names, the minutes, and what is done.")


def main(arguments: Arguments) -> None:
    for name in arguments.only:
        if name not in MEASUREMENTS:
            raise ValueError(f"unknown measurement {name!r}; use {', '.join(MEASUREMENTS)}")
    for name in arguments.only or MEASUREMENTS:
        command = command_of(name, arguments)
        minutes = MEASUREMENTS[name].minutes
        is_done = (RESULTS / name).exists() and not MEASUREMENTS[name].resumes
        if arguments.list_measurements:
            print(f"{name:20} about {minutes:2} minutes  python {shlex.join(command)}")
        elif is_done:
            print(f"{name} is done; delete the file to repeat it")
        else:
            print(f"\n{name}: {shlex.join(command)} (about {minutes} minutes)", flush=True)
            subprocess.run([sys.executable, *command], check=True, cwd=BENCHMARKS.parent)


def command_of(name: str, arguments: Arguments) -> list[str]:
    """The script of a measurement and its options."""
    template = f"benchmarks/{MEASUREMENTS[name].command}"
    words = []
    for word in shlex.split(template):
        word = word.format(
            data=arguments.data,
            model=arguments.model,
            results=f"benchmarks/results/{name}",
            work=f"{arguments.work}/{name}",
        )
        words.append(word)
    return words


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
