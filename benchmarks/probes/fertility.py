"""How many tokens several tokenizers make of the same text in several languages.

    python benchmarks/probes/fertility.py --tokenizers runs/minibert bert-base-cased --data de.txt fr.txt en.txt

A language is a file of passages, one a line. Where line n means the same in every file, tokens per passage compare
languages whatever their script; tokens per word ("fertility", Ács 2019; Rust et al. 2021) do so for languages that put
spaces between words, and tokens per character for the rest.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pictures import plot_tokens
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from uses import option, parse

from minibert.training.report import format_table


@dataclass
class Arguments:
    tokenizers: list[str] = option([], "Tokenizers to compare: folders or Hub names.")
    data: list[str] = option([], "The same passages, one a line: files named by their languages.")
    output_dir: str = option("runs/fertility", "Folder for the table and the plot.")


def main(arguments: Arguments) -> dict[str, dict[str, dict[str, float]]]:
    """Count, print a table, and save it as JSON with a bar plot: the figures of `count_tokens` by tokenizer and
    language."""
    passages = {Path(file).stem: Path(file).read_text(encoding="utf-8").splitlines() for file in arguments.data}
    if len({len(texts) for texts in passages.values()}) != 1:
        raise ValueError(
            f"the files are not parallel: { ({name: len(texts) for name, texts in passages.items()}) } lines"
        )
    figures = {}
    for path in arguments.tokenizers:
        tokenizer = AutoTokenizer.from_pretrained(path)
        figures[path] = {language: count_tokens(tokenizer, texts) for language, texts in passages.items()}
    output = Path(arguments.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    (output / "fertility.json").write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    plot_tokens(figures, output / "fertility.png")
    shown = {"tokens_per_passage": 1, "tokens_per_word": 2, "tokens_per_character": 3, "unknown_share": 3}
    for figure, digits in shown.items():
        rows = [(language, *(of[language][figure] for of in figures.values())) for language in passages]
        rows.append(("mean", *(np.mean(column).item() for column in list(zip(*rows))[1:])))
        print(format_table((figure.replace("_", " "), *figures), rows, digits), end="\n\n")
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


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
