"""What a frozen model tells, by what one reads of it: probes on the rows of notebook 6's trainings.

    python benchmarks/probes.py --model minilm --data data

A probe is a logistic regression on frozen states. Sentences are learned from and measured on the
rows of benchmarks/pooling.py, entities on those of benchmarks/fine_tuning.py. The state is chosen
on validation rows. The two default tasks take about two minutes of one core.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from common import option, parse, save_figures
from datasets import load_dataset
from seqeval.metrics import f1_score
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer

import minibert  # noqa: F401, registers the model
from minibert.training.finetuning.tasks.label_schemes import best_path, may_follow

SENTENCES = {"sst2": ("text",), "nli": ("premise", "hypothesis")}
VALIDATION_ROWS = 200  # on which the state is chosen, at most
ROWS = (100,)  # training rows of a sentence task
SEEDS = (0, 1, 2)
ENTITY_ROWS = 100  # training sentences
ENTITY_TEST_ROWS = 400
MAX_LENGTH = 128


@dataclass
class Arguments:
    model: str = option("runs/minilm", "The model whose states are read.")
    data: str = option("data", "The folder of the data sets.")
    output: str = option("docs/notebooks/06_probes.json", "The file that is written.")
    tasks: list[str] = option(["sst2", "entities"], "The tasks to run.")


class Reader:
    """A frozen model, whose states are read."""

    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def read(self, columns, words=False, batch_size=32):
        """Yield for each text its encoding and its states, [tokens, layers + 1, width]."""
        for start in range(0, len(columns[0]), batch_size):
            texts = [column[start : start + batch_size] for column in columns]
            batch = self.tokenizer(
                *texts,
                is_split_into_words=words,
                truncation=True,
                max_length=MAX_LENGTH,
                padding=True,
                return_tensors="pt",
            )
            states = self.model(**batch, output_hidden_states=True).hidden_states
            states = torch.stack(states, dim=2).numpy()
            for encoding, states_of_text in zip(batch.encodings, states):
                yield encoding, states_of_text[: sum(encoding.attention_mask)]

    def sentence_vectors(self, columns):
        """The first token in the last state, [texts, width], and the mean in each state, [texts,
        states, width]."""
        first = []
        means = []
        for _, states in self.read(columns):
            first.append(states[0, -1])
            means.append(states.mean(0))
        return np.stack(first), np.stack(means)


def fit_probe(vectors, labels):
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=100))
    return probe.fit(vectors, labels)


def probe_sentences(reader, data, name):
    """Yield the runs of a classification: of each number of rows, seed and way of reading."""
    files = {split: f"{data}/{name}/{split}.jsonl" for split in ("train", "validation", "test")}
    splits = load_dataset("json", data_files=files)
    count = min(VALIDATION_ROWS, len(splits["validation"]))
    splits["validation"] = splits["validation"].shuffle(seed=0).select(range(count))
    measured = {}
    for split in ("validation", "test"):
        columns = [splits[split][column][:] for column in SENTENCES[name]]
        measured[split] = reader.sentence_vectors(columns)
    labels = {split: np.array(splits[split]["label"][:]) for split in measured}
    for seed in SEEDS:
        train = splits["train"].shuffle(seed=seed).select(range(max(ROWS)))
        first, means = reader.sentence_vectors([train[column][:] for column in SENTENCES[name]])
        train_labels = np.array(train["label"][:])
        for rows in ROWS:
            run = dict(data=name, rows=rows, seed=seed, test_rows=len(labels["test"]))
            probe = fit_probe(first[:rows], train_labels[:rows])
            accuracy = probe.score(measured["test"][0], labels["test"])
            yield run | dict(reads="cls", state=means.shape[1] - 1, accuracy=round(accuracy, 4))
            for state in range(means.shape[1]):
                probe = fit_probe(means[:rows, state], train_labels[:rows])
                scores = {}
                for split, (_, of_split) in measured.items():
                    scores[split] = round(probe.score(of_split[:, state], labels[split]), 4)
                yield run | dict(
                    reads="mean",
                    state=state,
                    accuracy=scores["test"],
                    validation_accuracy=scores["validation"],
                )


class Sentence:
    """The states of each piece of each word of a sentence, and the tags of the words."""

    def __init__(self, encoding, states, tags):
        pieces_of_words = {}
        for position, word in enumerate(encoding.word_ids):
            if word is not None:
                pieces_of_words.setdefault(word, []).append(position)
        self.words = [states[positions] for positions in pieces_of_words.values()]
        self.tags = tags[: len(self.words)]


def read_entities(reader, rows):
    sentences = []
    for (encoding, states), tags in zip(
        reader.read([rows["tokens"][:]], words=True), rows["ner_tags"][:], strict=True
    ):
        sentences.append(Sentence(encoding, states, tags))
    return sentences


def vectors_of_words(sentence, state, pieces):
    """A vector a word: that of its first piece, or the mean of its pieces."""
    if pieces == "mean":
        return [states[:, state].mean(0) for states in sentence.words]
    return [states[0, state] for states in sentence.words]


def fit_tagger(sentences, state, pieces):
    """A probe that learns from the first piece of each word, from all, or from their mean. With
    `all`, the pieces after the first one have the word's tag with I- for B-."""
    vectors = []
    tags = []
    for sentence in sentences:
        if pieces == "all":
            for states, tag in zip(sentence.words, sentence.tags):
                vectors.extend(states[:, state])
                tags += [tag] + [tag.replace("B-", "I-")] * (len(states) - 1)
        else:
            vectors += vectors_of_words(sentence, state, pieces)
            tags += sentence.tags
    return fit_probe(np.stack(vectors), tags)


def span_f1(probe, sentences, state, pieces):
    """The span F1 of the likeliest sequences of tags in which no I- comes without its B-."""
    labels = [str(label) for label in probe.classes_]
    allowed = may_follow(labels)
    predicted = []
    for sentence in sentences:
        vectors = np.stack(vectors_of_words(sentence, state, pieces))
        path = best_path(probe.predict_log_proba(vectors), allowed)
        predicted.append([labels[label] for label in path])
    return round(float(f1_score([sentence.tags for sentence in sentences], predicted)), 4)


def probe_entities(reader, data):
    """Yield the runs of entities: each state, then each way of the pieces on the chosen one."""
    files = {
        split: f"{data}/ner_wikigold/{split}.jsonl" for split in ("train", "validation", "test")
    }
    splits = load_dataset("json", data_files=files)
    test = splits["test"].shuffle(seed=0).select(range(ENTITY_TEST_ROWS))
    validation = read_entities(reader, splits["validation"])
    test = read_entities(reader, test)
    num_states = len(test[0].words[0][0])
    for seed in SEEDS:
        train = splits["train"].shuffle(seed=seed).select(range(ENTITY_ROWS))
        train = read_entities(reader, train)
        run = dict(data="entities", seed=seed, test_rows=len(test))
        f1_by_state = []
        for state in range(num_states):
            probe = fit_tagger(train, state, "first")
            f1_by_state.append(span_f1(probe, validation, state, "first"))
            yield run | dict(
                rows=ENTITY_ROWS,
                reads="first",
                state=state,
                f1=span_f1(probe, test, state, "first"),
                validation_f1=f1_by_state[-1],
            )
        state = int(np.argmax(f1_by_state))
        for pieces in ("first", "all", "mean"):
            probe = fit_tagger(train, state, pieces)
            f1 = span_f1(probe, test, state, pieces)
            yield run | dict(rows=ENTITY_ROWS, reads=pieces, state=state, f1=f1)


def main(arguments):
    reader = Reader(arguments.model)
    runs = []

    def collect(more_runs):
        for run in more_runs:
            runs.append(run)
            print(run, flush=True)
        save_figures(Path(arguments.output), runs=runs)

    for task in arguments.tasks:
        if task == "entities":
            collect(probe_entities(reader, arguments.data))
        else:
            collect(probe_sentences(reader, arguments.data, task))


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
