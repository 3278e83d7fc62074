"""`minibert tokenizer`: train a tokenizer on text, or add words to a trained one."""

import os
from pathlib import Path
from typing import Literal

from transformers import PreTrainedTokenizerBase

from ...tokenization import extend_tokenizer, train_tokenizer
from ..data.documents import check_sources, check_tokenization
from ..data.mixtures import Corpus, load_sample
from ..files import check_folder
from ..loading import new_folder, saved_tokenizer


def make_tokenizer(
    data: str | os.PathLike | list[str] = (),
    *,
    output_dir: str = "runs/tokenizer",
    algorithm: Literal["wordpiece", "bpe", "unigram"] = "wordpiece",
    vocab_size: int = 8192,
    lowercase: bool | None = None,
    strip_accents: bool = False,
    max_lost_text: float | None = None,
    extend: str | None = None,
    extend_vocabulary: int = 1000,
    text_column: str | None = None,
    sample_by: Literal["auto", "line", "paragraph", "document", "sentence"] = "auto",
    weights: list[float] = (),
    sampling_alpha: float | None = None,
    streaming: bool = False,
    shuffle_buffer: int = 10_000,
) -> PreTrainedTokenizerBase:
    """Train a tokenizer on text, or add words to a trained one, and save it; print its tokens a word, what it loses of
    the text, and an example.

    Args:
        data: The text: text, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data sets (owner/name or
            owner/name:config). Without it, the built-in corpus: the documentation in this Python installation.
        output_dir: Folder that the tokenizer is saved in.
        algorithm: How the tokenizer splits words.
        vocab_size: Size of the tokenizer's vocabulary.
        lowercase: Lower-case all text; by default wordpiece does, the others do not.
        strip_accents: Drop the marks on letters, as bert-base-uncased does (accents, vowels, tones).
        max_lost_text: Share of the characters that the tokenizer may lose; by default 0.05, and 0.01 in
            words of more than 100 characters.
        extend: A trained tokenizer (folder or Hub name) that words are added to, instead of a new one.
        extend_vocabulary: How many words to add: those of the text that it cuts most.
        text_column: The column of the text; by default "text", or the only one of strings.
        sample_by: A document in a text file (document: all of it); auto: paragraphs if it has blank lines, else lines;
            sentence: every sentence of any kind of data.
        weights: A weight for every entry of data: its share of the documents; by default their number.
        sampling_alpha: Draw sources with p ∝ weight^alpha (0: all alike); by default 0.3 where every entry stands
            behind its language (de=folder fr=file.txt), else 1.
        streaming: Read the text as it is needed, the first 100,000 documents of it.
        shuffle_buffer: Documents that a stream mixes at a time; 0 keeps their order.

    Raises:
        ValueError: bad input, before any work; or the folder holds a tokenizer.
    """
    output = Path(output_dir)
    corpus = Corpus(data, text_column, sample_by, weights, sampling_alpha, streaming, shuffle_buffer)
    check_sources(corpus.data)
    check_folder(output)
    if (output / "tokenizer.json").exists():
        raise ValueError(f"output_dir: {str(output)!r} holds a tokenizer; give another one, or remove it")
    given = None if extend is None else saved_tokenizer(extend)
    documents = load_sample(corpus)
    if given is None:
        options = dict(algorithm=algorithm, vocab_size=vocab_size, lowercase=lowercase, strip_accents=strip_accents)
        tokenizer = train_tokenizer(documents["text"], **options)
    else:
        extension = extend_tokenizer(given, documents["text"], extend_vocabulary)
        tokenizer = extension.tokenizer
        print(extension.describe())
    check_tokenization(documents, tokenizer, max_lost_text)
    with new_folder(output) as written:
        tokenizer.save_pretrained(written)
    example = next(iter(documents))["text"].splitlines()[0][:80]
    print(f"{len(tokenizer):,} tokens, saved to {output}\n{example}\n{' '.join(tokenizer.tokenize(example))}")
    return tokenizer
