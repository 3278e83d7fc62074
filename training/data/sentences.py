"""Documents cut into paragraphs, sentences and words.

In `sentences_across_lines` a sentence may go on in the next line; in `sentences_by_line` every line
ends one.
"""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Regex, pre_tokenizers

# Where a line is cut into sentences: after the marks that end one, and after closing quotes before
# a capital.
SENTENCE_END = re.compile(
    r"(?<=[.!?…।۔؟።։။។。！？｡])\s+"
    r"|(?<=[.!?…][”’\"')])\s+(?=[A-Z\d“‘\"'(])"
    r"|(?<=[。！？｡])(?![”’」』）])"
)
# Words are letters with their marks, digits and underscores, in any script; every other character
# that is no space stands alone. (Python's own `re` would cut the vowel signs off Indic letters.)
WORDS_AND_MARKS = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), behavior="removed", invert=True)
BLANK_LINE = r"\n[ \t\r]*\n"  # between paragraphs of a text file
PARAGRAPH_END = re.compile(r"\n\s*\n")  # a single line break may only wrap a line


def sentences_across_lines(text: str) -> Iterator[str]:
    """Yield the sentences of a document. They may go over several lines of a paragraph, and are
    joined to one line."""
    for paragraph in PARAGRAPH_END.split(text):
        for part in SENTENCE_END.split(paragraph):
            sentence = " ".join(part.split())
            if sentence:
                yield sentence


sentences_of = sentences_across_lines  # its former name


def sentences_by_line(text: str) -> list[str]:
    """The sentences of a document in which every line ends a sentence; blank ones are left out."""
    sentences = []
    for line in text.splitlines():
        for sentence in SENTENCE_END.split(line):
            if sentence.strip():
                sentences.append(sentence)
    return sentences


def strip_blank(table: pa.Table) -> pa.Table:
    """Column `text`: without white space at the ends, and without blank documents."""
    text = table["text"].cast(pa.string())  # a part of a stream may hold nothing but null
    text = pc.utf8_trim_whitespace(text)
    # null compares to null: dropped too
    return pa.table({"text": text.filter(pc.greater(pc.utf8_length(text), 0))})


def split_paragraphs(table: pa.Table) -> pa.Table:
    """Column `text`: split at lines of spaces too. (A paragraph of `datasets` ends at an empty line
    only.)"""
    paragraphs = []
    for text in table["text"].to_pylist():
        paragraphs += re.split(BLANK_LINE, text)
    return strip_blank(pa.table({"text": pa.array(paragraphs, pa.string())}))


def sentence_table(table: pa.Table) -> pa.Table:
    """Column `text`: every sentence a document of its own."""
    sentences = []
    for text in filter(None, table["text"].to_pylist()):
        sentences += sentences_across_lines(text)
    return pa.table({"text": pa.array(sentences, pa.string())})


def split_words(text: str) -> list[tuple[str, tuple[int, int]]]:
    """The words and single punctuation marks of a text, each with its first and last + 1
    character. "Mr. O'Neil" is Mr . O ' Neil."""
    return WORDS_AND_MARKS.pre_tokenize_str(text)
