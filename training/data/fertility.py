"""`minibert fertility`: how many tokens several tokenizers make of the same text in several languages.

A language is a file of passages, one a line. Where line n means the same in every file, tokens per passage compare
languages whatever their script; tokens per word ("fertility", Ács 2019; Rust et al. 2021) do so for languages that put
spaces between words, and tokens per character for the rest.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from ..arguments.pretraining import FertilityArguments
from ..files import check_folder
from ..loading import saved_tokenizer
from ..report import format_table, plot_tokens
from .documents import load_sources
from .sources import files_in, language_of
from .tables import LOADERS, TABLES


def fertility(arguments: FertilityArguments) -> dict[str, dict[str, dict[str, float]]]:
    """Count, print a table, and save it as JSON with a bar plot: the figures of `count_tokens` by tokenizer (the last
    part of its path, or the whole where two would be alike) and language.

    Raises:
        ValueError: tokenizers or languages that are missing or named alike, a tokenizer that cannot be loaded, or
            passages that are not parallel; before any counting.
    """
    paths, output = arguments.tokenizers, Path(arguments.output_dir)
    check_folder(output)
    if not paths:
        raise ValueError("tokenizers: none given; use folders or Hub names, such as runs/tokenizer")
    if repeated := [path for path in paths if paths.count(path) > 1]:
        raise ValueError(f"tokenizers: {repeated[0]!r} is given twice; leave one out")
    passages = load_passages(arguments.data)
    last = [Path(path).name for path in paths]
    tokenizers = {}
    for path, name in zip(paths, last):
        try:
            tokenizers[name if last.count(name) == 1 else path] = saved_tokenizer(path)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"tokenizers: {path!r} cannot be loaded: {reason}") from error
    figures = {
        name: {
            language: count_tokens(tokenizer, texts)
            for language, texts in tqdm(passages.items(), desc=name, unit=" languages", delay=1, leave=False)
        }
        for name, tokenizer in tokenizers.items()
    }
    output.mkdir(parents=True, exist_ok=True)
    (output / "fertility.json").write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    plot_tokens(figures, output / "fertility.png")
    shown = {"tokens_per_passage": 1, "tokens_per_word": 2, "tokens_per_character": 3, "unknown_share": 3}
    for figure, digits in shown.items():
        rows = [(language, *(of[language][figure] for of in figures.values())) for language in passages]
        rows.append(("mean", *(np.mean(column).item() for column in list(zip(*rows))[1:])))
        print(format_table((figure.replace("_", " "), *figures), rows, digits), end="\n\n")
    print(f"Saved to {output}: fertility.json and fertility.png")
    return figures


def count_tokens(tokenizer: PreTrainedTokenizerBase, passages: Sequence[str]) -> dict[str, float]:
    """Tokens per passage, per word (between spaces) and per character of one language, and the share of unknown ones;
    special tokens are not counted."""
    ids = tokenizer(list(passages), add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    tokens = sum(map(len, ids))
    unknown = sum(row.count(tokenizer.unk_token_id) for row in ids)
    return {
        "tokens_per_passage": tokens / len(passages),
        "tokens_per_word": tokens / sum(len(text.split()) for text in passages),
        "tokens_per_character": tokens / sum(map(len, passages)),
        "unknown_share": unknown / tokens if tokens else 0.0,
    }


def load_passages(data: Sequence[str]) -> dict[str, list[str]]:
    """The passages of every language: each file is one, named as it is (`de.txt`) or as given (`de=file.txt`)."""
    files: dict[str, str] = {}
    for item in data:
        language, path = language_of(item)
        for file in files_in(path, LOADERS) if os.path.isdir(path) else [path]:
            if (name := language or Path(file).stem) in files:
                raise ValueError(f"data: two files of the language {name!r}; give one, or name it (de2=file.txt)")
            files[name] = file
    if not files:
        raise ValueError(f"data: no file of passages in {', '.join(data) or 'nothing'}; give one file a language")
    sources = load_sources(list(files.values()), sample_by="line")
    passages = {language: source["text"][:] for language, source in zip(files, sources)}
    counts = {language: len(texts) for language, texts in passages.items()}
    if len(set(counts.values())) > 1 or not all(counts.values()):
        listed = ", ".join(f"{language} {count}" for language, count in counts.items())
        raise ValueError(f"data: the files are not parallel: {listed} passages; give as many in each, one a line")
    texts = [file for file in files.values() if Path(file).suffix.lower() not in TABLES]
    blank = [_blank_lines(file) for file in texts]
    for file, lines in zip(texts, blank):
        if lines != blank[0]:
            differs = f"line {min(lines ^ blank[0])} is blank in one of {texts[0]!r} and {file!r} alone"
            raise ValueError(f"data: the files are not parallel: {differs}; leave it out of both")
    return passages


def _blank_lines(file: str) -> set[int]:
    lines = Path(file).read_text(encoding="utf-8-sig").rstrip().split("\n")
    return {number for number, line in enumerate(lines, 1) if not line.strip()}
