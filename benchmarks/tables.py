"""The tables of RESULTS.md and README.md, from the files in benchmarks/results.

    python benchmarks/tables.py
    python benchmarks/tables.py --check true

A table stands in a document between `<!-- table: NAME -->` and `<!-- end of table -->`. Above it
stand the command, the date, the machine and the seeds, all read from the results. The sentences of
README.md that carry figures are made the same way. `docs/race.png` is drawn anew as well.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import option, parse
from scipy.stats import t as student_t

from minibert.training.evaluation.plots import picture

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = ("README.md", "RESULTS.md")
TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
CONFIDENCE = 0.95
PEER_NAMES = {"ModernBertForMaskedLM": "ModernBERT", "BertForMaskedLM": "BERT"}
# The folders of README's race, one for each seed.
RACES = ("race_0", "race_1", "race_2")
MODERNBERT_BY_OUR_RECIPE = "ModernBERT by MiniBERT's recipe"


@dataclass
class Arguments:
    check: bool = option(False, "Write nothing; exit status 1 if a table differs from its file.")
    results: str = option(str(RESULTS), "The folder of the results.")


def main(arguments: Arguments) -> None:
    different = []
    for name in DOCUMENTS:
        file = ROOT / name
        text = file.read_text(encoding="utf-8")
        new_text = fill_tables(text, Path(arguments.results))
        if new_text != text:
            different.append(name)
            if not arguments.check:
                file.write_text(new_text, encoding="utf-8")
    are_measured = all((Path(arguments.results) / folder).is_dir() for folder in RACES)
    if are_measured and not arguments.check:
        plot_race(ROOT / "docs" / "race.png", load_seeds(Path(arguments.results), RACES))
    for name in different:
        print(f"{name}: {'differs from' if arguments.check else 'has the tables of'} the results")
    if different and arguments.check:
        sys.exit(1)


def fill_tables(text: str, results: Path) -> str:
    """The text with each table as the results have it; a ValueError for a table of another name."""

    def table_of(match: re.Match) -> str:
        begin, name, end = match.groups()
        if name not in TABLES:
            raise ValueError(f"no table {name!r}; use {', '.join(TABLES)}")
        return f"{begin}{TABLES[name](results)}\n{end}"

    return TABLE.sub(table_of, text)


# --- what all tables have ---


def load(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def load_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of a race by the name of the run."""
    runs = {}
    for file in sorted(folder.glob("*.json")):
        if file.name != "settings.json":
            runs[file.stem] = load(file)
    return runs


def load_seeds(results: Path, folders: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The results of the same race with several seeds, by the name of the run; the lowest loss
    first."""
    by_seed = [load_runs(results / folder) for folder in folders]
    runs = {}
    for name in by_seed[0]:
        runs[name] = [runs_of_seed[name] for runs_of_seed in by_seed]
    return dict(sorted(runs.items(), key=lambda item: mean_loss(item[1])))


def mean_loss(runs: Sequence[Mapping[str, Any]]) -> float:
    return statistics.mean(run["loss"] for run in runs)


def caption(facts: Mapping[str, Any], seeds: int) -> str:
    """Where figures come from, as a paragraph."""
    machine = facts["machine"]
    number = "one seed" if seeds == 1 else f"{seeds} seeds"
    return (
        f"`{facts['command']}`\\\n{machine_words(facts)}, torch {machine['torch']}, Transformers"
        f" {machine['transformers']}, {facts['date']}, {number}.\n"
    )


def machine_words(facts: Mapping[str, Any]) -> str:
    """The processor of a measurement, and how many threads computed."""
    machine = facts["machine"]
    bf16 = "with" if machine["fast_bf16"] else "without"
    threads = "one thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    return f"{machine['device']} {bf16} bf16 instructions, {threads}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mean_and_interval(values: Sequence[float], digits: int) -> str:
    """The mean, and half of the 95 % interval by Student's t; of one value, the value."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    spread = statistics.stdev(values) / len(values) ** 0.5
    half = student_t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * spread
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


# --- speed ---


def speed_table(file: str) -> Callable[[Path], str]:
    """A table of results of speed.py."""

    def table(results: Path) -> str:
        report = load(results / file)
        rows = []
        for result in report["results"]:
            rows += speed_rows(result)
        header = ["what", "precision", "MiniBERT", "other model", "speed-up"]
        return f"{caption(report, 1)}\n{markdown(header, rows)}"

    return table


def speed_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """A row for each other model of one benchmark."""
    name, shape, _ = result["benchmark"].split("/")
    rows = []
    for ratio in result["ratios"]:
        ours = result["measured"][ratio["denominator"]]["median"]
        if result["measure"] == "bytes":
            amount = f"{ours / 2**20:,.0f} MiB"
        else:
            amount = f"{ours:.3g} s"
        peer = ratio["numerator"]
        for class_name, short_name in PEER_NAMES.items():
            peer = peer.replace(class_name, short_name)
        precision = {"float32": "fp32", "bfloat16": "bf16"}[result["dtype"]]
        rows.append([f"{name}, {shape}", precision, amount, peer, f"{ratio['median']:.2f}"])
    return rows


def embedding_table(results: Path) -> str:
    report = load(results / "embedding.json")
    rows = []
    for name, engine in report["engines"].items():
        rate = statistics.median(engine["rates"])
        rows.append([name, f"{rate:.1f}", f"{engine['cosine']:.5f}"])
    header = ["engine", "texts a second", "smallest cosine"]
    return f"{caption(report, 1)}\n{markdown(header, rows)}"


# --- learning ---


def race_table(*folders: str) -> Callable[[Path], str]:
    """A table of results of learning.py, the lowest loss first; each folder is one seed."""

    def table(results: Path) -> str:
        runs_by_name = load_seeds(results, folders)
        rows = []
        for name, runs in runs_by_name.items():
            loss = mean_and_interval([run["loss"] for run in runs], 3)
            accuracy = mean_and_interval([100 * run["accuracy"] for run in runs], 1)
            tokens = f"{runs[0]['curve'][-1]['tokens']:,}"
            seconds = mean_and_interval([run["curve"][-1]["seconds"] for run in runs], 0)
            rows.append([name, loss, accuracy, tokens, seconds])
        header = ["run", "held-out loss", "accuracy, %", "tokens", "seconds"]
        facts = next(iter(runs_by_name.values()))[0]
        return f"{caption(facts, len(folders))}\n{markdown(header, rows)}"

    return table


def tuning_table(folder: str) -> Callable[[Path], str]:
    """The held-out loss of each setting: learning rates are rows, the others columns. The runs are
    named by rate, share of masks, and how documents become rows."""

    def table(results: Path) -> str:
        runs = load_runs(results / folder)
        loss_of = {}
        for name, run in runs.items():
            rate, others = name.split(", ", maxsplit=1)
            loss_of[float(rate), others] = run["loss"]
        lowest = min(loss_of.values())
        columns = sorted({others for _, others in loss_of})
        rows = []
        for rate in sorted({rate for rate, _ in loss_of}):
            row = [f"{rate:g}"]
            for others in columns:
                loss = loss_of[rate, others]
                row.append(f"**{loss:.3f}**" if loss == lowest else f"{loss:.3f}")
            rows.append(row)
        facts = next(iter(runs.values()))
        return f"{caption(facts, 1)}\n{markdown(['learning rate', *columns], rows)}"

    return table


def plot_race(path: Path, runs_by_name: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The held-out loss over seconds and over tokens: the mean of the seeds, and from the lowest to
    the highest of them."""
    num_seeds = len(next(iter(runs_by_name.values())))
    title = f"Held-out loss, mean of {num_seeds} seeds"
    with picture(path, title, panels=2, size=(11, 4.5), sharey=True) as panels:
        for axes, axis in zip(panels, ("seconds", "tokens")):
            for name, runs in runs_by_name.items():
                x = []
                losses = []
                for points in zip(*(run["curve"] for run in runs), strict=True):
                    x.append(statistics.median(point[axis] for point in points))
                    losses.append([point["loss"] for point in points])
                label = f"{name}: {mean_loss(runs):.2f}" if axis == "seconds" else None
                line_style = "--" if "run_mlm.py" in name else "-"
                means = [statistics.mean(values) for values in losses]
                lines = axes.plot(x, means, line_style, marker=".", label=label)
                lowest = [min(values) for values in losses]
                highest = [max(values) for values in losses]
                axes.fill_between(x, lowest, highest, alpha=0.3, color=lines[0].get_color())
            axes.set_xlabel(f"{axis} of training")
        panels[0].set_ylabel("loss")


def race_reason(results: Path) -> str:
    """README's sentence on the race."""
    runs_by_name = load_seeds(results, RACES)
    losses = {}
    for name, runs in runs_by_name.items():
        losses[name] = mean_and_interval([run["loss"] for run in runs], 2)
    steps = runs_by_name["MiniBERT"][0]["curve"][-1]["step"]
    return (
        f"- **Its recipe learns faster.** After {steps} steps its held-out loss is"
        f" {losses['MiniBERT']}. ModernBERT's is {losses['ModernBERT by run_mlm.py']} by"
        " `run_mlm.py` with the best of 12 settings, and"
        f" {losses[MODERNBERT_BY_OUR_RECIPE]} by MiniBERT's recipe."
    )


def race_paragraph(results: Path) -> str:
    """README's paragraph below the picture of the race."""
    runs_by_name = load_seeds(results, RACES)
    minutes = {}
    for name, runs in runs_by_name.items():
        seconds = statistics.median(run["curve"][-1]["seconds"] for run in runs)
        minutes[name] = f"{seconds / 60:.0f}"
    facts = runs_by_name["MiniBERT"][0]
    return (
        "All models are of size mini (width 256) and train for"
        f" {facts['curve'][-1]['step']} steps on 22 MB of books: MiniBERT for"
        f" {minutes['MiniBERT']} minutes, ModernBERT for"
        f" {minutes['ModernBERT by run_mlm.py']} by `run_mlm.py`\nand for"
        f" {minutes[MODERNBERT_BY_OUR_RECIPE]} by MiniBERT's recipe, BERT for"
        f" {minutes['BERT by run_mlm.py']} ({machine_words(facts)}, {facts['date']},"
        f" {len(RACES)} seeds, 95 % intervals)."
    )


def class_table(results: Path) -> str:
    """How far the losses of both classes are from each other at any step, and their seconds."""
    runs = load_runs(results / "class")
    rows = []
    for family in ("ModernBERT", "BERT"):
        ours = runs[f"MiniBERT's code, {family}"]["curve"]
        native = runs[f"Transformers' code, {family}"]["curve"]
        distance = max(abs(a["loss"] - b["loss"]) for a, b in zip(ours, native, strict=True))
        our_step = ours[-1]["seconds"] / ours[-1]["step"]
        native_step = native[-1]["seconds"] / native[-1]["step"]
        losses = f"{ours[-1]['loss']:.4f}"
        native_losses = f"{native[-1]['loss']:.4f}"
        speed_up = f"{native_step / our_step:.2f}"
        rows.append([family, losses, native_losses, f"{distance:.4f}", speed_up])
    header = [
        "architecture",
        "last loss, MiniBERT's code",
        "last loss, Transformers' code",
        "largest distance at any step",
        "speed-up of a step",
    ]
    facts = runs["MiniBERT's code, ModernBERT"]
    return f"{caption(facts, 1)}\n{markdown(header, rows)}"


# --- fine-tuning ---


def fine_tuning_table(file: str) -> Callable[[Path], str]:
    """A table of scores and seconds of both classes."""

    def table(results: Path) -> str:
        report = load(results / file)
        rows = []
        for task in dict.fromkeys(run["task"] for run in report["runs"]):
            ours = runs_of(report, task=task, code="minibert")
            theirs = runs_of(report, task=task, code="transformers")
            our_seconds = statistics.median(run["cpu_seconds"] for run in ours)
            their_seconds = statistics.median(run["cpu_seconds"] for run in theirs)
            row = [
                f"{task}, {ours[0]['metric']}",
                mean_and_interval([run["score"] for run in ours], 3),
                mean_and_interval([run["score"] for run in theirs], 3),
                str(len(ours)),
                f"{our_seconds:.0f}",
                f"{their_seconds / our_seconds:.2f}",
            ]
            rows.append(row)
        header = ["data and metric", "MiniBERT's class", "Transformers' class", "seeds"]
        header += ["MiniBERT, CPU seconds", "speed-up"]
        seeds = len({run["seed"] for run in report["runs"]})
        return f"{caption(report, seeds)}\n{markdown(header, rows)}"

    return table


def runs_of(report: Mapping[str, Any], **setting: str) -> list[Mapping[str, Any]]:
    """The runs of a report that have these values."""
    return [run for run in report["runs"] if setting.items() <= run.items()]


def pooling_table(results: Path) -> str:
    """Accuracy of a head over the first token and over the mean, by model; the difference by seed."""
    report = load(results / "pooling.json")
    models = sorted({run["model"] for run in report["runs"]})
    settings = sorted({(run["data"], run["rows"], run["trained"]) for run in report["runs"]})
    header = ["data, rows", "trained"]
    for model in models:
        header += [f"{model}: first token", "mean", "difference"]
    rows = []
    for data, num_rows, trained in settings:
        row = [f"{data}, {num_rows:,}", trained]
        for model in models:
            setting = {"model": model, "data": data, "rows": num_rows, "trained": trained}
            runs = [run for run in report["runs"] if setting.items() <= run.items()]
            row += pooling_cells(runs)
        rows.append(row)
    seeds = len({run["seed"] for run in report["runs"]})
    return f"{caption(report, seeds)}\n{markdown(header, rows)}"


def pooling_cells(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mean accuracy over the seeds with either head, and the difference with its interval."""
    first_token = {run["seed"]: run["accuracy"] for run in runs if run["pooling"] == "cls"}
    mean = {run["seed"]: run["accuracy"] for run in runs if run["pooling"] == "mean"}
    if not runs or first_token.keys() != mean.keys():
        raise ValueError(
            f"pooling.json: seeds {sorted(first_token)} have a head over the first token, seeds"
            f" {sorted(mean)} one over the mean; run benchmarks/pooling.py to its end"
        )
    differences = [mean[seed] - first_token[seed] for seed in sorted(mean)]
    return [
        f"{statistics.mean(first_token.values()):.3f}",
        f"{statistics.mean(mean.values()):.3f}",
        mean_and_interval(differences, 3),
    ]


TABLES: dict[str, Callable[[Path], str]] = {
    "speed": speed_table("speed.json"),
    "inference": speed_table("inference.json"),
    "deberta": speed_table("deberta.json"),
    "embedding": embedding_table,
    "race": race_table(*RACES),
    "race-reason": race_reason,
    "race-paragraph": race_paragraph,
    "recipe": race_table("recipe"),
    "tuning-modernbert": tuning_table("tuning_modernbert"),
    "tuning-bert": tuning_table("tuning_bert"),
    "class": class_table,
    "fine-tuning": fine_tuning_table("fine_tuning.json"),
    "fine-tuning-random": fine_tuning_table("fine_tuning_random.json"),
    "pooling": pooling_table,
}


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
