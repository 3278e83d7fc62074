"""The tables of docs/results and README.md, from the files in benchmarks/results.

    python benchmarks/tables.py
    python benchmarks/tables.py --check true

A table stands in a document between `<!-- table: NAME -->` and `<!-- end of table -->`. Above it
stand the command, the date, the machine and the seeds, all read from the results. The sentences of
README.md that carry figures are made the same way. The pictures `docs/race.png` and `docs/long.png`
are drawn anew as well.
"""

import json
import math
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import option, parse
from scipy.stats import t as student_t

from minibert.training.evaluation.plots import picture
from minibert.training.pretraining.cooccurrence import MAX_TOKENS_READ

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = (
    "README.md",
    "docs/results/speed.md",
    "docs/results/learning.md",
    "docs/results/fine-tuning.md",
    "docs/results/embeddings.md",
)
TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
CONFIDENCE = 0.95
# Of README's sentences, which are read in editors too.
MAX_LINE_LENGTH = 118
# Longer names first, since a shorter one may be their end.
PEER_NAMES = {
    "ModernBertForMaskedLM": "ModernBERT",
    "ModernBertModel": "ModernBERT",
    "DebertaV2Model": "DeBERTa-v3",
    "BertForMaskedLM": "BERT",
    "BertModel": "BERT",
}
# README compares the speed of engines that return the original's vectors.
MIN_COSINE = 0.999
# The folders of README's race, one for each seed.
RACES = ("race_0", "race_1", "race_2")
# The long runs by their names in races/long.yaml, and how the table calls them.
LONG_RUNS = {
    "window of 6, which is MiniBERT": "window of 6",
    "window of 128, which is ModernBERT's": "window of 128",
    "window of 6, random first vectors": "random first vectors",
}
# They are shown at these steps, and have ten times those of the race.
LONG_STEPS = (250, 750, 1500, 2250, 3000, 4500, 6000, 7500)
PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}
MODERNBERT_BY_OUR_RECIPE = "ModernBERT by MiniBERT's recipe"
# The benchmark of README's second reason, and the other model.
NATURAL_LENGTHS = (
    "train-natural/modernbert-small/fp32",
    "ModernBertForMaskedLM, sparse_prediction",
)
NO_PADDING = "train-packed/modernbert-small/fp32"
# What the benchmarks of speed.py measure, in words.
BENCHMARK_WORDS = {
    "train-natural": "training, natural lengths",
    "train-packed": "training, no padding",
    "infer-mixed": "inference, mixed lengths to 512",
    "infer-8192": "inference, one text of 8,192 tokens",
    "infer-2048-deberta": "inference, one text of 2,048 tokens",
    "infer-length-128": "inference, one text of 128 tokens",
}
# What similarity.py measures, in words.
SIMILARITY_WORDS = {
    ("sts/test.jsonl", "spearman"): "STS-B test, Spearman's correlation",
    ("retrieval_cranfield", "ndcg@10"): "Cranfield, nDCG@10",
    ("retrieval", "hit@1"): "ReQA-SQuAD test, hit@1",
}
# The test sets of students.py, in words.
STUDENT_WORDS = {
    "STS-B": "STS-B, Spearman's correlation",
    "Cranfield": "Cranfield, nDCG@10, texts cut at 64 tokens",
}


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
    if not arguments.check:
        plot_races(Path(arguments.results))
    for name in different:
        print(f"{name}: {'differs from' if arguments.check else 'has the tables of'} the results")
    if different and arguments.check:
        sys.exit(1)


def plot_races(results: Path) -> None:
    """The pictures of the races that are measured."""
    if all((results / folder).is_dir() for folder in RACES):
        title = f"Held-out loss, mean of {len(RACES)} seeds"
        race = load_seeds(results, RACES)
        plot_curves(ROOT / "docs" / "race.png", title, race, ("seconds", "tokens"))
    if (results / "long").is_dir():
        long_race = load_seeds(results, ["long"])
        plot_curves(ROOT / "docs" / "long.png", "Held-out loss, one seed", long_race, ("tokens",))


def fill_tables(text: str, results: Path) -> str:
    """The text with each table as the results have it; a ValueError for a table of another name."""

    def table_of(match: re.Match) -> str:
        begin, name, end = match.groups()
        if name not in TABLES:
            raise ValueError(f"no table {name!r}; use {', '.join(TABLES)}")
        return f"{begin}{TABLES[name](results)}\n{end}"

    return TABLE.sub(table_of, text)


# --- what all tables have ---


def in_lines(text: str, indent: str = "") -> str:
    """A paragraph in lines of `MAX_LINE_LENGTH`; those after the first begin with `indent`."""
    return textwrap.fill(
        text,
        MAX_LINE_LENGTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


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


def caption(facts: Mapping[str, Any], seeds: int | None) -> str:
    """Where figures come from, as a paragraph.

    Args:
        facts: of the results.
        seeds: the number of them; None: nothing is drawn at random.
    """
    machine = facts["machine"]
    number = {None: "", 1: ", one seed"}.get(seeds, f", {seeds} seeds")
    return (
        f"`{facts['command']}`\\\n{machine_words(facts)}, torch {machine['torch']}, Transformers"
        f" {machine['transformers']}, {facts['date']}{number}.\n"
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


def speed_table(file: str, benchmarks: str = "") -> Callable[[Path], str]:
    """A table of results of speed.py: of the benchmarks whose names begin so."""

    def table(results: Path) -> str:
        report = load(results / file)
        rows = []
        for result in report["results"]:
            is_wanted = result["benchmark"].startswith(benchmarks)
            if is_wanted and result["measure"] == "seconds":
                rows += speed_rows(result)
        header = ["what", "precision", "MiniBERT, seconds", "other model", "speed-up"]
        return f"{caption(report, None)}\n{markdown(header, rows)}"

    return table


def speed_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """A row for each other model of one benchmark of seconds."""
    name, shape, _ = result["benchmark"].split("/")
    what = f"{BENCHMARK_WORDS[name]}, {shape}"
    rows = []
    for ratio in result["ratios"]:
        seconds = result["measured"][ratio["denominator"]]["median"]
        peer = short_name(ratio["numerator"])
        times_as_fast = f"{ratio['median']:.2f}"
        rows.append([what, PRECISIONS[result["dtype"]], f"{seconds:.3g}", peer, times_as_fast])
    return rows


def short_name(model: str) -> str:
    """A model of speed.py with the name of its architecture in place of that of its class."""
    for class_name, name in PEER_NAMES.items():
        if model.startswith(class_name):
            return model.replace(class_name, name)
    return model


def memory_table(results: Path) -> str:
    """Peak memory for one text of 8,192 tokens."""
    report = load(results / "inference.json")
    rows = []
    for result in report["results"]:
        if result["measure"] == "bytes":
            row = [PRECISIONS[result["dtype"]]]
            for model in ("MiniBertModel", "ModernBertModel"):
                row.append(f"{result['measured'][model]['median'] / 2**20:,.0f}")
            rows.append(row)
    header = ["precision", "MiniBERT, MiB", "ModernBERT, MiB"]
    return f"{caption(report, None)}\n{markdown(header, rows)}"


def speed_up(report: Mapping[str, Any], benchmark: str, peer: str) -> str:
    """The speed-up over one other model in one benchmark."""
    for result in report["results"]:
        if result["benchmark"] == benchmark:
            for ratio in result["ratios"]:
                if ratio["numerator"] == peer:
                    return f"{ratio['median']:.2f}"
    raise ValueError(f"no speed-up over {peer} in {benchmark}")


def readme_speed_table(results: Path) -> str:
    """README's table of speed."""
    training = load(results / "speed.json")
    inference = load(results / "inference.json")
    embedding = load(results / "embedding.json")
    natural = speed_up(training, *NATURAL_LENGTHS)
    mixed = speed_up(inference, "infer-mixed/modernbert-base/fp32", "ModernBertModel")
    rates = embedding_rates(embedding)
    others = {}
    for name, engine in embedding["engines"].items():
        if "MiniBERT" not in name and engine["cosine"] >= MIN_COSINE:
            others[name] = rates[name]
    fastest = max(others, key=others.get)
    ours = f"{rates['MiniBERT, SentenceTransformer.encode, bf16']:.0f}"
    header = ["measured", "MiniBERT", "other", "on"]
    rows = [
        [
            "speed of a training step",
            natural,
            "1 (ModernBERT, sparse_prediction)",
            "a batch with 80 % padding, size small, fp32",
        ],
        [
            "speed of inference",
            mixed,
            "1 (ModernBERT)",
            "a batch with 48 % padding, size base, fp32",
        ],
        [
            "texts embedded in a second",
            ours,
            f"{rates[fastest]:.0f} ({fastest})",
            f"all-MiniLM-L6-v2 by `encode`, in bf16 ({fastest}: its default; the fastest with a cosine"
            f" above {MIN_COSINE}); not told apart",
        ],
    ]
    dates = {report["date"] for report in (training, inference, embedding)}
    place = f"{machine_words(training)}, {' and '.join(sorted(dates))}."
    more = "[RESULTS.md](RESULTS.md) has the commands and all other figures."
    return f"{markdown(header, rows)}\n\n{place} {more}"


def padding_reason(results: Path) -> str:
    """README's sentence on padding."""
    report = load(results / "speed.json")
    name, peer = NATURAL_LENGTHS
    natural = float(speed_up(report, name, peer))
    packed = float(speed_up(report, NO_PADDING, peer))
    result = next(result for result in report["results"] if result["benchmark"] == name)
    padding = 100 * (1 - result["tokens"] / result["places"])
    threads = report["machine"]["threads"]
    return (
        f"- **It computes no padding.** A training step is {natural:.1f} times as fast as"
        f" ModernBERT's (`sparse_prediction`) where {padding:.0f} % of a batch are padding (random"
        f" batches of Python's documentation), and {packed:.1f} times without (size small, fp32,"
        f" {threads} threads)."
    )


def embedding_sentence(results: Path) -> str:
    """README's sentence on the speed of vectors."""
    report = load(results / "embedding.json")
    rates = embedding_rates(report)
    ours = report["engines"]["MiniBERT fp32"]
    ours_bf16 = report["engines"]["MiniBERT bf16"]
    return in_lines(
        f"The vectors are those of the original (smallest cosine {ours['cosine']:.5f}; in bf16"
        f" {ours_bf16['cosine']:.4f}). `minibert embed` embeds {rates['MiniBERT fp32']:.0f} texts a"
        f" second in fp32 and {rates['MiniBERT bf16']:.0f} in bf16, `encode` of the original"
        f" {rates['sentence-transformers']:.0f} and {rates['sentence-transformers bf16']:.0f}"
        " ([how](docs/results/speed.md#embedding-texts))."
    )


def embedding_rates(report: Mapping[str, Any]) -> dict[str, float]:
    """Texts a second by engine, the median of the rounds."""
    rates = {}
    for name, engine in report["engines"].items():
        rates[name] = statistics.median(engine["rates"])
    return rates


def embedding_table(results: Path) -> str:
    report = load(results / "embedding.json")
    rows = []
    for name, rate in embedding_rates(report).items():
        rows.append([name, f"{rate:.1f}", f"{report['engines'][name]['cosine']:.5f}"])
    header = ["engine", "texts a second", "smallest cosine"]
    return f"{caption(report, None)}\n{markdown(header, rows)}"


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
        header = ["run", "held-out loss", "accuracy, %", "tokens trained on", "seconds"]
        facts = next(iter(runs_by_name.values()))[0]
        text = caption(facts, len(folders))
        if len(folders) > 1:
            seeds = " and ".join(f"`--seed {number}`" for number in range(1, len(folders)))
            text += (
                f"The other seeds: {seeds}, and other folders. The tokens are those of seed 0.\n"
            )
        return f"{text}\n{markdown(header, rows)}"

    return table


def windows_table(results: Path) -> str:
    """The same model with other windows: its loss, its grammar, and its answers."""
    runs_by_name = load_runs(results / "windows")
    has_answers = any("answers" in run for run in runs_by_name.values())
    rows = []
    for name in sorted(runs_by_name, key=lambda name: int(name.split()[-1])):
        run = runs_by_name[name]
        row = [name, f"{run['loss']:.3f}", f"{100 * run['grammar']:.1f}"]
        if has_answers:
            row.append(f"{100 * run['answers']:.1f}" if "answers" in run else "")
        rows.append(row)
    header = ["run", "held-out loss", "BLiMP, accuracy, %"]
    if has_answers:
        header.append("SQuAD's cut, F1, %")
    facts = next(iter(runs_by_name.values()))
    return f"{caption(facts, 1)}\n{markdown(header, rows)}"


def long_table(results: Path) -> str:
    """The held-out loss of each run along the way, and the differences to MiniBERT's."""
    runs = load_long_runs(results)
    first = next(iter(runs.values()))
    rows = []
    for points in zip(*(run["curve"] for run in runs.values()), strict=True):
        ours = points[0]
        if ours["step"] in LONG_STEPS:
            row = [f"{ours['step']:,}", f"{ours['tokens'] / 1e6:.1f}"]
            row += [f"{point['loss']:.3f}" for point in points]
            row += [f"{point['loss'] - ours['loss']:+.3f}" for point in points[1:]]
            rows.append(row)
    header = ["steps", "million tokens", *runs]
    header += [f"{name}, difference" for name in list(runs)[1:]]
    text = caption(first, 1)
    for name, run in runs.items():
        if run["machine"] != first["machine"]:
            text += f"{name.capitalize()}: {machine_words(run)}, {run['date']}.\n"
    return f"{text}\n{markdown(header, rows)}"


def load_long_runs(results: Path) -> dict[str, dict[str, Any]]:
    """The long runs that are measured, MiniBERT's first, by the names that they have in the table."""
    runs_by_name = load_runs(results / "long")
    return {LONG_RUNS[name]: runs_by_name[name] for name in LONG_RUNS if name in runs_by_name}


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


def warmup_table(results: Path) -> str:
    """The held-out loss of AdamW with and without a warm-up: learning rates are rows."""
    with_warmup = load_runs(results / "tuning_warmup")
    modernbert = load_runs(results / "tuning_modernbert")
    bert = load_runs(results / "tuning_bert")
    rows = []
    for rate in ("5e-4", "1e-3", "2e-3"):
        setting = f"{rate}, 30% masks, packed"
        runs = (
            with_warmup[f"ModernBERT, {rate}"],
            modernbert[setting],
            with_warmup[f"BERT, {rate}"],
            bert[setting],
        )
        rows.append([f"{float(rate):g}", *(f"{run['loss']:.3f}" for run in runs)])
    header = ["learning rate", "ModernBERT, warm-up", "without", "BERT, warm-up", "without"]
    facts = next(iter(with_warmup.values()))
    return f"{caption(facts, 1)}\n{markdown(header, rows)}"


def warmup_race_table(results: Path) -> str:
    """The held-out loss of ModernBERT by AdamW with a warm-up, and of each seed of the race, which
    has none."""
    [with_warmup] = load_runs(results / "race_warmup").values()
    runs = [("warm-up", 0, with_warmup)]
    for seed, folder in enumerate(RACES):
        run = load_runs(results / folder)["ModernBERT by run_mlm.py"]
        runs.append(("none, as in the race", seed, run))
    rows = []
    for name, seed, run in runs:
        rows.append([name, f"{run['run']['learning_rate']:g}", str(seed), f"{run['loss']:.3f}"])
    header = ["AdamW with", "learning rate", "seed", "held-out loss"]
    text = (
        f"{caption(with_warmup, 1)}The first row is of this command, the others are of the race.\n"
    )
    return f"{text}\n{markdown(header, rows)}"


def plot_curves(
    path: Path,
    title: str,
    runs_by_name: Mapping[str, Sequence[Mapping[str, Any]]],
    horizontal: Sequence[str],
) -> None:
    """The held-out loss: the mean of the seeds, and from the lowest to the highest of them.

    Args:
        horizontal: what it is drawn over, a panel each: "seconds", "tokens".
    """
    size = (5.5 * len(horizontal), 4.5)
    with picture(path, title, panels=len(horizontal), size=size, sharey=True) as panels:
        for axes, axis in zip(panels, horizontal):
            for name, runs in runs_by_name.items():
                x = []
                losses = []
                for points in zip(*(run["curve"] for run in runs), strict=True):
                    x.append(statistics.median(point[axis] for point in points))
                    losses.append([point["loss"] for point in points])
                label = f"{name}: {mean_loss(runs):.2f}" if axis == horizontal[0] else None
                line_style = "--" if "run_mlm.py" in name else "-"
                means = [statistics.mean(values) for values in losses]
                lines = axes.plot(x, means, line_style, marker=".", label=label)
                lowest = [min(values) for values in losses]
                highest = [max(values) for values in losses]
                axes.fill_between(x, lowest, highest, alpha=0.3, color=lines[0].get_color())
            axes.set_xlabel(f"{axis} of training")
        panels[0].set_ylabel("loss")


def reasons(results: Path) -> str:
    """README's first two reasons."""
    sentences = (race_reason(results), padding_reason(results))
    return "\n".join(in_lines(sentence, "  ") for sentence in sentences)


def race_reason(results: Path) -> str:
    """README's sentence on the race."""
    runs_by_name = load_seeds(results, RACES)
    losses = {}
    for name, runs in runs_by_name.items():
        losses[name] = mean_and_interval([run["loss"] for run in runs], 2)
    steps = runs_by_name["MiniBERT"][0]["curve"][-1]["step"]
    return (
        f"- **Its recipe learns faster at the beginning.** The held-out loss after {steps} steps is"
        f" {losses['MiniBERT']}. ModernBERT has {losses['ModernBERT by run_mlm.py']} by"
        " `run_mlm.py` (AdamW, best of 12 settings), and"
        f" {losses[MODERNBERT_BY_OUR_RECIPE]} by this recipe with a window of 128."
    )


def race_paragraph(results: Path) -> str:
    """README's paragraph below the picture of the race."""
    facts = load_seeds(results, RACES)["MiniBERT"][0]
    last = facts["curve"][-1]
    return in_lines(
        f"The beginning of a training: size mini (width 256), {last['step']} steps on"
        f" {last['tokens'] / 1e6:.1f} million tokens of books. Before them, MiniBERT's recipe counts which"
        f" tokens stand near each other in {MAX_TOKENS_READ / 1e6:.1f} million. Its defaults were"
        " chosen over more runs than 12,"
        f" partly on this text. BERT by `run_mlm.py` learned little ({machine_words(facts)},"
        f" {facts['date']}, {len(RACES)} seeds; ± is a 95 % interval)."
        f" {long_sentence(results)} {class_sentence(results)}"
    )


def long_sentence(results: Path) -> str:
    """README's sentence on the long race."""
    runs = load_long_runs(results)
    ours = runs["window of 6"]
    peer = runs["window of 128"]
    return (
        f"After {ours['curve'][-1]['step']:,} steps, MiniBERT's held-out loss is"
        f" {ours['loss']:.2f} with its window of 6, and {peer['loss']:.2f} with 128 (one seed)."
    )


def class_sentence(results: Path) -> str:
    """README's sentence on both classes by the same recipe."""
    comparisons = compare_classes(results)
    distance = max(comparison.distance for comparison in comparisons.values())
    shares = sorted(1 / comparison.speed_up for comparison in comparisons.values())
    ours = comparisons["ModernBERT"].ours
    return (
        f"By the same recipe both classes had the same loss to {math.ceil(100 * distance) / 100:.2f},"
        f" MiniBERT's in {shares[0]:.1f} to {shares[-1]:.1f} of the time"
        f" ({ours['curve'][-1]['step']} steps, one seed, other programs beside it; [the"
        " recipe](docs/pretraining.md#why-does-it-learn-faster))."
    )


@dataclass(frozen=True)
class ClassComparison:
    """The runs of both classes by the same recipe.

    Args:
        distance: the largest one of their losses, over all measurements.
        speed_up: of the whole run with MiniBERT's class.
    """

    ours: Mapping[str, Any]
    native: Mapping[str, Any]
    distance: float
    speed_up: float


def compare_classes(results: Path) -> dict[str, ClassComparison]:
    """The comparison by architecture."""
    runs = load_runs(results / "class")
    comparisons = {}
    for family in ("ModernBERT", "BERT"):
        ours = runs[f"MiniBERT's code, {family}"]
        native = runs[f"Transformers' code, {family}"]
        distances = []
        for our_point, native_point in zip(ours["curve"], native["curve"], strict=True):
            distances.append(abs(our_point["loss"] - native_point["loss"]))
        speed_up = native["curve"][-1]["seconds"] / ours["curve"][-1]["seconds"]
        comparisons[family] = ClassComparison(ours, native, max(distances), speed_up)
    return comparisons


def class_table(results: Path) -> str:
    """How far the losses of both classes are from each other, and their seconds."""
    comparisons = compare_classes(results)
    rows = []
    for family, comparison in comparisons.items():
        row = [
            family,
            f"{comparison.ours['loss']:.4f}",
            f"{comparison.native['loss']:.4f}",
            f"{comparison.distance:.4f}",
            f"{comparison.speed_up:.2f}",
        ]
        rows.append(row)
    facts = comparisons["ModernBERT"].ours
    header = [
        "architecture",
        "last loss, MiniBERT's code",
        "last loss, Transformers' code",
        f"largest distance in {len(facts['curve'])} measurements",
        "speed-up of the run",
    ]
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
        return f"{caption(report, None)}\n{markdown(header, rows)}"

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


def class_weights_table(results: Path) -> str:
    """Macro F1 and the recall of the rare class, by the options of the training."""
    report = load(results / "class_weights.json")
    rows = []
    for options in dict.fromkeys(run["options"] for run in report["runs"]):
        runs = runs_of(report, options=options)
        row = [
            f"`{options}`" if options.startswith("--") else options,
            mean_and_interval([run["f1_macro"] for run in runs], 3),
            mean_and_interval([run["recall"] for run in runs], 3),
        ]
        rows.append(row)
    header = ["options", "macro F1, test", "recall of the rare class, test"]
    seeds = len({run["seed"] for run in report["runs"]})
    return f"{caption(report, seeds)}\n{markdown(header, rows)}"


# --- embeddings ---


def similarity_table(results: Path) -> str:
    """The scores of an embedding model, their intervals, and those of shared words."""
    report = load(results / "similarity.json")
    rows = []
    for score in report["scores"]:
        name = SIMILARITY_WORDS[score["data"], score["metric"]]
        if score["trained_on"]:
            name += f", after `minibert finetune embed {score['trained_on']}`"
        low, high = score["interval"]
        interval = f"{low:.3f} to {high:.3f}"
        rows.append([name, f"{score['score']:.4f}", interval, f"{score['baseline']:.4f}"])
    header = ["measured", "score", "95 % interval", "shared words (TF-IDF)"]
    return f"{caption(report, 1)}\n{markdown(header, rows)}"


def students_table(results: Path) -> str:
    """The scores of a student embedder before and after, and of its teacher, by test set."""
    report = load(results / "students.json")
    embedders = report["embedders"]
    rows = []
    for data, words in STUDENT_WORDS.items():
        rows.append([words, *(f"{scores[data]:.4f}" for scores in embedders.values())])
    header = ["test set", "student before", "student after", "teacher"]
    return f"{caption(report, 1)}\n{markdown(header, rows)}"


def student_rerankers_table(results: Path) -> str:
    """Spearman's correlation of rerankers: of a teacher, and of a student with and without it."""
    rerankers = load(results / "students.json")["rerankers"]
    rows = [
        ["teacher", "2,400 scores", f"{rerankers['teacher']:.3f}"],
        ["student", "the same 2,400 scores", f"{rerankers['student alone']:.3f}"],
        ["student", "the teacher's scores of 5,669 pairs", f"{rerankers['student taught']:.3f}"],
    ]
    return markdown(["reranker", "learned from", "STS-B test, Spearman's correlation"], rows)


TABLES: dict[str, Callable[[Path], str]] = {
    "speed": speed_table("speed.json", "train-natural"),
    "speed-packed": speed_table("speed.json", "train-packed"),
    "inference": speed_table("inference.json"),
    "memory": memory_table,
    "deberta": speed_table("deberta.json"),
    "embedding": embedding_table,
    "readme-speed": readme_speed_table,
    "embedding-sentence": embedding_sentence,
    "race": race_table(*RACES),
    "reasons": reasons,
    "race-paragraph": race_paragraph,
    "recipe": race_table("recipe"),
    "other-text": race_table("other_text"),
    "small": race_table("small"),
    "long": long_table,
    "windows": windows_table,
    "tuning-modernbert": tuning_table("tuning_modernbert"),
    "tuning-bert": tuning_table("tuning_bert"),
    "tuning-warmup": warmup_table,
    "race-warmup": warmup_race_table,
    "class": class_table,
    "fine-tuning": fine_tuning_table("fine_tuning.json"),
    "fine-tuning-random": fine_tuning_table("fine_tuning_random.json"),
    "pooling": pooling_table,
    "class-weights": class_weights_table,
    "similarity": similarity_table,
    "students": students_table,
    "student-rerankers": student_rerankers_table,
}


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
