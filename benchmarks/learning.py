"""What the same number of steps teaches MiniBERT and Transformers' own models, each by a recipe.

    python benchmarks/learning.py --data my-text/ --runs benchmarks/races/race.yaml --output runs/learning

All runs read the same text with the same tokenizer and are measured on the same held-out documents
under the same masks. Each is a process of its own, and only one trains at a time, a few steps in
turn, so that a machine that stalls stalls them all. A run that is done has a file in the folder of
results and is not repeated. Another `--seed` needs other folders.
"""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import datasets
import yaml
from common import Corpus, option, parse
from grammar import measure_accuracy, read_minimal_pairs
from learning_runs import TEXT, TOKENIZER, Race, Run
from learning_turns import HELD_OUT, take_turns
from transformers import DataCollatorForLanguageModeling

from minibert import finetune, train_tokenizer
from minibert.training.common.files import write_json
from minibert.training.common.printing import format_table
from minibert.training.evaluation.plots import picture

MLM_PROBABILITY = 0.15  # of the held-out rows
SETTINGS = "settings.json"  # in the folders of models and of results
RACES = Path(__file__).parent / "races"
# What must be alike for runs to be compared.
FIXED = ("data", "size", "vocab_size", "steps", "rows", "seq_length", "documents", "seed")
QUICK = dict(
    size="tiny",
    vocab_size=1024,
    steps=12,
    evaluations=3,
    documents=40,
    turn=2,
    rows=2,
    seq_length=128,
)


@dataclass
class Arguments(Corpus):
    runs: str = option(
        str(RACES / "race.yaml"), "YAML file of the runs: a name, and the fields of `Run`, each."
    )
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = option(
        "mini", "The size of all models."
    )
    vocab_size: int = option(8192, "Size of the vocabulary that is trained for all.")
    steps: int = option(500, "Optimizer steps of every run.")
    rows: int = option(4, "Rows of a step.")
    seq_length: int = option(512, "Longest row, in tokens.")
    evaluations: int = option(10, "How often the held-out loss is measured, evenly over the steps.")
    documents: int = option(400, "Held-out documents: so many, but at most one in twenty.")
    turn: int = option(
        5, "Steps that a run takes before it is the next one's turn; 0: one run after the other."
    )
    seed: int = option(0, "Seed of the weights, the order of the rows and their masks.")
    grammar: str | None = option(
        None, "Minimal pairs (BLiMP) that every trained model is measured on as well."
    )
    answers: str | None = option(
        None, "Folder of questions (SQuAD) that every trained model is fine-tuned on as well."
    )
    output: str = option("runs/learning", "Folder of the text, the models, and their logs.")
    results: str | None = option(
        None, "Folder of a file a run; a run that has one is done. By default that of --output."
    )
    quick: bool = option(False, "Tiny models, few steps: shows that all runs, not who learns.")


def main(arguments: Arguments) -> dict[str, dict[str, Any]]:
    """Train all that is not done yet; print a table, and draw `loss.png`.

    Returns:
        by name of a run: its `Run`, its `curve`, `loss`, `accuracy` and `bits_per_byte`, and where
        and when it was measured.

    Raises:
        ValueError: one of the folders has runs with other settings.
    """
    if arguments.quick:
        arguments = replace(arguments, **QUICK)
    if arguments.grammar:
        read_minimal_pairs(arguments.grammar, 1)  # refuses a wrong file before the training
    runs = read_runs(arguments.runs)
    folder = Path(arguments.output)
    results_folder = Path(arguments.results or arguments.output)
    check_settings(folder, arguments, "--output")
    check_settings(results_folder, arguments, "--results")
    if not (folder / HELD_OUT).exists():
        write_text(arguments, folder)
    race = Race(
        folder=folder,
        results=results_folder,
        size=arguments.size,
        steps=arguments.steps,
        batch_size=arguments.rows,
        seq_length=arguments.seq_length,
        seed=arguments.seed,
    )
    files = {name: results_folder / f"{name}.json" for name in runs}
    missing = {name: run for name, run in runs.items() if not files[name].exists()}
    if arguments.turn:
        take_turns(missing, race, arguments.evaluations, arguments.turn)
    else:
        for name, run in missing.items():
            take_turns({name: run}, race, arguments.evaluations, arguments.steps)
    results = {name: json.loads(file.read_text()) for name, file in files.items()}
    if arguments.grammar:
        add_grammar(results, files, folder, arguments.grammar)
    if arguments.answers:
        add_answers(results, files, folder, arguments.answers, arguments.seed)
    results = dict(sorted(results.items(), key=lambda item: final_loss(item[1])))
    plot_losses(folder / "loss.png", results)
    print(results_table(results))
    return results


def read_runs(file: str) -> dict[str, Run]:
    """The runs of a YAML file by name; a ValueError for fields that `Run` does not have."""
    runs = {}
    for name, fields in yaml.safe_load(Path(file).read_text(encoding="utf-8")).items():
        try:
            runs[name] = Run(**(fields or {}))
        except TypeError as error:
            raise ValueError(f"{file}: the run {name!r} has a wrong field: {error}") from None
    return runs


def check_settings(folder: Path, arguments: Arguments, option_name: str) -> None:
    """Write what must be alike for all runs of a folder; a ValueError if it has others."""
    settings = {name: getattr(arguments, name) for name in FIXED}
    settings["data"] = [Path(path).name for path in arguments.data]
    file = folder / SETTINGS
    if not file.exists():
        write_json(file, settings)
        return
    old_settings = json.loads(file.read_text())
    if old_settings != settings:
        raise ValueError(
            f"{folder} has runs with {old_settings}, not {settings}; use another {option_name}"
        )


def add_grammar(
    results: Mapping[str, dict[str, Any]],
    files: Mapping[str, Path],
    folder: Path,
    pairs_file: str,
) -> None:
    """Measure the trained models on minimal pairs, where that is not done yet."""
    for name, result in results.items():
        if result.get("grammar_data") != pairs_file:
            scores = measure_accuracy(str(folder / name), pairs_file, pairs=100)
            result["grammar"] = scores["accuracy"]
            result["grammar_data"] = pairs_file
            write_json(files[name], result)


def add_answers(
    results: Mapping[str, dict[str, Any]],
    files: Mapping[str, Path],
    folder: Path,
    data: str,
    seed: int,
) -> None:
    """Fine-tune the trained models to answer questions, where that is not done yet, and add the F1
    on the test rows."""
    for name, result in results.items():
        if result.get("answers_data") != data:
            tuned = finetune(
                "answer",
                model=folder / name,
                data=data,
                output_dir=str(folder / f"{name}, answers"),
                seed=seed,
                disable_tqdm=True,
                resume_from_checkpoint=True,
            )
            result["answers"] = tuned.report["test"]["f1"]
            result["answers_data"] = data
            write_json(files[name], result)


def final_loss(result: Mapping[str, Any]) -> float:
    """Of a run that diverged to NaN it is infinite, so that no run is worse."""
    return math.inf if math.isnan(result["loss"]) else result["loss"]


def results_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The runs as aligned text, in the order of `results`."""
    header = ["run", "loss", "bits per byte", "accuracy", "tokens", "seconds", "grammar", "answers"]
    rows = []
    for name, result in results.items():
        last = result["curve"][-1]
        grammar = result.get("grammar")
        answers = result.get("answers")
        row = [
            name,
            result["loss"],
            result["bits_per_byte"],
            f"{result['accuracy']:.1%}",
            last["tokens"],
            f"{last['seconds']:.0f}",
            "" if grammar is None else f"{grammar:.1%}",
            "" if answers is None else f"{answers:.1%}",
        ]
        rows.append(row)
    return format_table(header, rows, digits=3)


def plot_losses(path: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Held-out loss over seconds of training and over tokens, a curve a run."""
    title = "Held-out loss at 15 % masks"
    with picture(path, title, panels=2, size=(11, 4.5), sharey=True) as panels:
        for axes, axis in zip(panels, ("seconds", "tokens")):
            for name, result in results.items():
                x = [point[axis] for point in result["curve"]]
                y = [point["loss"] for point in result["curve"]]
                style = "-" if result["run"]["code"] == "minibert" else "--"
                label = f"{name}: {result['loss']:.2f}" if axis == "seconds" else None
                axes.plot(x, y, style, marker=".", label=label)
            axes.set_xlabel(f"{axis} of training")
        panels[0].set_ylabel("loss")


# --- the text ---


def write_text(arguments: Arguments, folder: Path) -> None:
    """Save the documents to train on, the tokenizer, and held-out documents, each cut to a row,
    with their masks. The same documents are held out for every seed."""
    documents = Corpus(arguments.data).documents()["text"][:]
    different_texts = sorted(set(documents))
    random.Random(0).shuffle(different_texts)
    number = max(1, min(arguments.documents, len(different_texts) // 20))
    held_out_texts = different_texts[:number]
    train_texts = [text for text in documents if text not in set(held_out_texts)]
    folder.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict({"text": train_texts}).to_json(folder / TEXT)
    tokenizer = train_tokenizer(
        train_texts, vocab_size=arguments.vocab_size, model_max_length=arguments.seq_length
    )
    tokenizer.save_pretrained(folder / TOKENIZER)

    encoded = tokenizer(held_out_texts, truncation=True, return_special_tokens_mask=True)
    num_bytes = 0
    num_tokens = 0
    rows = []
    for number, text in enumerate(held_out_texts):
        row = {name: column[number] for name, column in encoded.items()}
        rows.append(row)
        text_end = max(end for _, end in encoded.encodings[number].offsets)
        num_bytes += len(text[:text_end].encode())
        num_tokens += row["special_tokens_mask"].count(0)
    rows.sort(key=lambda row: len(row["input_ids"]))
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MLM_PROBABILITY, seed=0)
    batches = []
    for start in range(0, len(rows), 8):
        batch = collator(rows[start : start + 8])
        batches.append({name: column.tolist() for name, column in batch.items()})
    held_out = {"bytes_per_token": num_bytes / num_tokens, "batches": batches}
    write_json(folder / HELD_OUT, held_out)


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
