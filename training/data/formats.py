"""How a file is read, by its suffix. The command line imports this: it imports nothing itself."""

# As a table by `_read_file` in `tables`, as texts by `_load_texts` in `documents`. A further format
# needs a branch in both, and its records one in `records`, unless a library reads them.
FORMATS = {
    ".txt": "text", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".jsonlines": "json",
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
}  # fmt: skip
TABLE_SUFFIXES = tuple(suffix for suffix, file_format in FORMATS.items() if file_format != "text")
CSV_SUFFIXES = tuple(suffix for suffix, file_format in FORMATS.items() if file_format == "csv")
# Tagged words in columns, which are told by their contents, too.
CONLL_SUFFIXES = (".conll", ".conllu", ".conll03", ".bio", ".iob", ".iob2", ".bioes")
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")
