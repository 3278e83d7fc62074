"""The data of notebooks 6 to 9: the folder in MINIBERT_DATA, or public data sets from the Hub and
GitHub.

A notebook calls `data_folder("sst2", "nli")`. Only `datasets` is needed.
"""

import itertools
import json
import os
import re
from pathlib import Path

from datasets import Dataset, load_dataset

FOLDER = Path("runs/data")  # beside the notebook; where it is laid out
SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z0-9\"“(])")
TITLE = re.compile(r"= [^=].*[^=] =")  # of an article of WikiText; sections have more signs
SENSES = "https://raw.githubusercontent.com/danlou/bert-disambiguation/master/data/CoarseWSD-20"
SENSE_WORDS = [
    "apple", "arm", "bank", "bass", "bow", "chair", "club", "crane", "deck", "digit",
    "hood", "java", "mole", "pitcher", "pound", "seal", "spring", "square", "trunk", "yard",
]  # fmt: skip
LARGE_LANGUAGES = ("de", "en", "fr", "uk", "zh")
SMALL_LANGUAGES = ("ar", "el", "hi", "ru", "th", "tr")
PARALLEL_LANGUAGES = ("ar", "de", "el", "en", "hi", "ru", "th", "tr", "zh")
PARAGRAPHS = {"test": 80, "validation": 40, "train": 140}  # of a small language
TRAIN_PAIRS = 7_000
TEST_QUESTIONS = 2_500


def data_folder(*names):
    """The folder that has a subfolder for each of these data sets.

    Args:
        names: keys of `PUBLIC_SETS`.

    Returns the folder in MINIBERT_DATA, as it is. Where that is unset, it returns `runs/data`, and
    first downloads what is missing there. It prints where each data set comes from.

    Raises FileNotFoundError if the folder in MINIBERT_DATA lacks one of them.
    """
    unknown = [name for name in names if name not in PUBLIC_SETS]
    if unknown:
        raise ValueError(f"unknown data sets {unknown}; there are {list(PUBLIC_SETS)}")
    folder = os.environ.get("MINIBERT_DATA")
    if folder:
        missing = [name for name in names if not Path(folder, name).is_dir()]
        if missing:
            raise FileNotFoundError(
                f"MINIBERT_DATA: {folder!r} has no folders {missing}; add them, or unset"
                " MINIBERT_DATA to download public data sets"
            )
        return folder
    print(f"MINIBERT_DATA is not set: public data sets are downloaded into {FOLDER}")
    for name in names:
        source, description, lay_out = PUBLIC_SETS[name]
        print(f"{name}: {description}, from {source}")
        if not (FOLDER / name).exists():
            unfinished = FOLDER / f"{name}.unfinished"  # renamed when all files are complete
            unfinished.mkdir(parents=True, exist_ok=True)
            lay_out(unfinished)
            unfinished.rename(FOLDER / name)
    return str(FOLDER)


def write_rows(path, rows):
    Dataset.from_list(rows).to_json(path, force_ascii=False)


def lay_out_sst2(folder):
    for split, rows in load_dataset("SetFit/sst2").items():
        rows = [{"text": row["text"], "label": row["label"]} for row in rows]
        write_rows(folder / f"{split}.jsonl", rows)


def lay_out_nli(folder):
    labels = ("entailment", "neutral", "contradiction")
    for split, rows in load_dataset("stanfordnlp/snli").items():
        pairs = []
        for row in rows:
            if row["label"] >= 0:  # -1: the annotators did not agree
                pair = {"premise": row["premise"], "hypothesis": row["hypothesis"]}
                pairs.append(pair | {"label": labels[row["label"]]})
        write_rows(folder / f"{split}.jsonl", pairs)


def lay_out_entities(folder):
    splits = load_dataset("milistu/Wikigold-NER-conll")
    parts = splits["train"].train_test_split(test_size=0.1, seed=0)  # it has no validation rows
    splits = {"train": parts["train"], "validation": parts["test"], "test": splits["test"]}
    for split, rows in splits.items():
        names = rows.features["ner_tags"].feature.names
        sentences = []
        for row in rows:
            tags = begin_with_b([names[tag] for tag in row["ner_tags"]])
            sentences.append({"tokens": row["words"], "ner_tags": tags})
        write_rows(folder / f"{split}.jsonl", sentences)


def begin_with_b(tags):
    """Tags in which each entity begins with B-; in the older scheme IOB1, most begin with I-."""
    previous = "O"
    result = []
    for tag in tags:
        continues = previous[2:] == tag[2:]
        if tag.startswith("I-") and not continues:
            result.append(f"B-{tag[2:]}")
        else:
            result.append(tag)
        previous = tag
    return result


def lay_out_senses(folder):
    for split in ("train", "test"):
        uses = []
        for word in SENSE_WORDS:
            (sense_names,) = lines_of(f"{SENSES}/{word}/classes_map.txt")
            sense_names = json.loads(sense_names)  # {"0": "bank_bank", …}
            sentences = lines_of(f"{SENSES}/{word}/{split}.data.txt")
            senses = lines_of(f"{SENSES}/{word}/{split}.gold.txt")
            for sentence, sense in zip(sentences, senses, strict=True):
                position, text = sentence.split("\t")
                use = {"tokens": text.split(), "target_index": int(position)}
                at_position = use["tokens"][int(position) : int(position) + 1]
                if at_position == [word]:  # a few positions are wrong
                    uses.append(use | {"lemma": word, "sense": sense_names[sense]})
        write_rows(folder / f"{split}.jsonl", uses)


def lines_of(address):
    return load_dataset("text", data_files=address, split="train")["text"][:]


def lay_out_sts(folder):
    for split, rows in load_dataset("sentence-transformers/stsb").items():
        pairs = []
        for row in rows:
            pairs.append(row | {"score": 5 * row["score"]})  # there from 0 to 1
        write_rows(folder / f"{split}.jsonl", pairs)


def lay_out_corpus(folder):
    """A paragraph a line, and an empty line before each article. The headings are left out."""
    rows = load_dataset("Salesforce/wikitext", "wikitext-2-raw-v1", split="test")
    lines = []
    for text in rows["text"]:
        text = text.strip()
        if TITLE.fullmatch(text) and lines:
            lines.append("")
        if text and not text.startswith("="):
            lines.append(text)
    write_lines(folder / "test.txt", lines)


def lay_out_retrieval(folder):
    """ReQA-SQuAD: the answer to a question is the sentence of the passage that has it."""
    squad = load_dataset("rajpurkar/squad")
    pairs = []
    for row in squad["train"].shuffle(seed=0).select(range(min(TRAIN_PAIRS, len(squad["train"])))):
        pairs.append({"query": row["question"], "positive": answer_sentence(row)})
    write_rows(folder / "train.jsonl", pairs)

    names = {}  # of each sentence
    for passage in dict.fromkeys(squad["validation"]["context"]):
        for sentence in SENTENCE_END.split(passage):
            names.setdefault(sentence, f"d{len(names)}")
    write_rows(
        folder / "corpus.jsonl",
        [{"_id": name, "text": sentence} for sentence, name in names.items()],
    )
    questions = []
    judgements = []
    rows = squad["validation"].shuffle(seed=0)
    for number, row in enumerate(rows.select(range(min(TEST_QUESTIONS, len(rows))))):
        questions.append({"_id": f"q{number}", "text": row["question"]})
        relevant = names[answer_sentence(row)]
        judgements.append({"query-id": f"q{number}", "corpus-id": relevant, "score": 1})
    write_rows(folder / "queries_test.jsonl", questions)
    Dataset.from_list(judgements).to_csv(folder / "qrels_test.csv", index=False)


def answer_sentence(row):
    """The sentence in which the first answer begins."""
    position = row["answers"]["answer_start"][0]
    start = 0
    for end in SENTENCE_END.finditer(row["context"]):
        if end.end() > position:
            return row["context"][start : end.start()]
        start = end.end()
    return row["context"][start:]


def lay_out_languages(folder):
    for code in LARGE_LANGUAGES + SMALL_LANGUAGES:
        articles = load_dataset(
            "wikimedia/wikipedia", f"20231101.{code}", split="train", streaming=True
        )
        paragraphs = long_paragraphs(articles)
        (folder / code).mkdir(exist_ok=True)
        for split, count in PARAGRAPHS.items():
            if split == "train" and code in LARGE_LANGUAGES:
                count = 1_000
            lines = list(itertools.islice(paragraphs, count))
            write_lines(folder / code / f"{split}.txt", lines)
    (folder / "parallel").mkdir(exist_ok=True)
    for code in PARALLEL_LANGUAGES:
        rows = load_dataset("google/xquad", f"xquad.{code}", split="validation")
        passages = [" ".join(context.split()) for context in rows["context"]]
        write_lines(folder / "parallel" / f"{code}.txt", list(dict.fromkeys(passages)))


def long_paragraphs(articles):
    """One after the other; only as many articles are read as are taken."""
    for article in articles:
        for line in article["text"].splitlines():
            if len(line) >= 200:
                yield line


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


PUBLIC_SETS = {  # name: where it lies, what it is, the function that lays it out
    "sst2": ("SetFit/sst2", "SST-2, sentiment of film reviews", lay_out_sst2),
    "nli": ("stanfordnlp/snli", "SNLI, inference between two sentences", lay_out_nli),
    "ner_wikigold": ("milistu/Wikigold-NER-conll", "WikiGold, entities", lay_out_entities),
    "wsd": (SENSES, "CoarseWSD-20, senses of 20 nouns (not for commercial use)", lay_out_senses),
    "sts": ("sentence-transformers/stsb", "STS benchmark, similar sentences", lay_out_sts),
    "corpus": ("Salesforce/wikitext", "WikiText-2, text of Wikipedia", lay_out_corpus),
    "retrieval": ("rajpurkar/squad", "SQuAD, questions and sentences", lay_out_retrieval),
    "multilingual": (
        "wikimedia/wikipedia and google/xquad",
        "Wikipedia in 11 languages, and the same passages in 9",
        lay_out_languages,
    ),
}
