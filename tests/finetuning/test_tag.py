"""Tagging: schemes, subwords, long sentences, decoding; and training from end to end."""

import copy
import functools
import inspect
import itertools
import json
import random
import warnings

import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics
import torch
import transformers
from foreign_tokenizers import KINDS, foreign_tokenizer
from helpers import write_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from tokenizers import pre_tokenizers
from toy_reviews import load
from transformers import AutoTokenizer, RobertaTokenizer

from minibert import MiniBertConfig, MiniBertForTokenClassification, MiniBertModel
from minibert.tokenization import adapt_tokenizer, train_tokenizer
from minibert.training import cli
from minibert.training.finetuning.config import FinetuningConfig
from minibert.training.finetuning.tasks.base import Predictions
from minibert.training.finetuning.tasks.label_schemes import (
    PREFIXES,
    best_path,
    convert_tags,
    cut_into_windows,
    detect_scheme,
    labels_of,
    transitions,
)
from minibert.training.finetuning.tasks.tagging import Tag, encode_sentences
from minibert.training.finetuning.trainer import Run, score

SCHEMES = ("bio", "io", "bioes")
SEQEVAL = {"bio": seqeval.scheme.IOB2, "bioes": seqeval.scheme.IOBES}
TYPES = ("PER", "creative-work")


def alphabet(scheme):
    return ["O", *(f"{prefix}-{kind}" for kind in TYPES for prefix in PREFIXES[scheme])]


@st.composite
def entities(draw):
    """A sentence's length and entities that do not overlap, as seqeval has them: type, first and last word."""
    length = draw(st.integers(0, 9))
    borders = sorted(draw(st.sets(st.integers(0, length), max_size=6)))
    pieces = list(itertools.pairwise(borders))
    kinds = [draw(st.sampled_from([None, *TYPES])) for _ in pieces]
    return length, [(kind, first, last - 1) for kind, (first, last) in zip(kinds, pieces) if kind]


def as_bio(length, entities):
    tags = ["O"] * length
    for kind, first, last in entities:
        tags[first : last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
    return tags


def is_valid(tags, scheme):
    """Whether the steps of a sequence, from its begin to its end, are those that decoding may take."""
    if not set(tags) <= set(alphabet(scheme)):
        return False
    steps, ids = transitions(alphabet(scheme)), [alphabet(scheme).index(tag) for tag in tags]
    return all(steps[a, b] == 0 for a, b in itertools.pairwise([-1, *ids, -1]))


class TestSchemes:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @given(sentence=entities())
    def test_there_and_back(self, scheme, sentence):
        length, there = sentence
        tags = convert_tags(as_bio(length, there), scheme)
        assert len(tags) == length and is_valid(tags, scheme)
        neighbours = any(a[0] == b[0] and a[2] + 1 == b[1] for a, b in itertools.pairwise(there))
        if scheme != "io" or not neighbours:
            assert get_entities(tags) == there and convert_tags(tags, "bio") == as_bio(length, there)
        else:  # one entity instead of several, over the same words
            words = [{w for _, a, b in found for w in range(a, b + 1)} for found in (get_entities(tags), there)]
            assert words[0] == words[1]

    @pytest.mark.parametrize("scheme", ["bio", "bioes"])
    @given(data=st.data())
    def test_valid_is_what_strict_and_lenient_seqeval_read_alike(self, scheme, data):
        tags = data.draw(st.lists(st.sampled_from(alphabet(scheme)), min_size=1, max_size=7))
        strict = {
            (entity.tag, entity.start, entity.end - 1)
            for entity in seqeval.scheme.Entities([tags], SEQEVAL[scheme]).entities[0]
        }
        words = sum(last - first + 1 for _, first, last in strict)
        valid = words == sum(tag != "O" for tag in tags)  # every tag belongs to an entity that is valid
        assert is_valid(tags, scheme) == (convert_tags(tags, scheme) == tags) == valid

    @pytest.mark.parametrize("scheme", SCHEMES)
    @given(data=st.data())
    @settings(max_examples=50, deadline=None)
    def test_repair_is_seqevals(self, scheme, data):
        tags = data.draw(st.lists(st.sampled_from(alphabet(scheme)), min_size=1, max_size=7))
        repaired = convert_tags(tags, scheme)
        assert is_valid(repaired, scheme)
        assert get_entities(repaired) == get_entities(tags) or scheme == "io"
        assert convert_tags(repaired, scheme) == repaired
        true = data.draw(st.lists(st.sampled_from(alphabet("bio")), min_size=len(tags), max_size=len(tags)))
        true = convert_tags(true, "bio")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lenient = seqeval.metrics.f1_score([true], [tags])
            strict = seqeval.metrics.f1_score(
                [true], [convert_tags(tags, "bio")], mode="strict", scheme=seqeval.scheme.IOB2
            )
        assert lenient == strict

    @pytest.mark.parametrize(
        "tags, scheme",
        [
            ({"O", "B-PER"}, "bio"),
            ({"O", "I-PER", "B-PER"}, "bio"),
            ({"O", "I-PER"}, "io"),
            ({"O", "B-PER", "E-PER", "S-PER"}, "bioes"),
            ({"S-PER", "O"}, "bioes"),
            ({"NN", "VB", "O"}, "none"),
            ({"O", "B-PER", "LOC"}, "bio"),  # which is then not valid
        ],
    )
    def test_detection(self, tags, scheme):
        assert detect_scheme(tags) == scheme

    def test_labels(self):
        assert labels_of(["O", "I-B", "B-A"], "bio") == ["O", "B-A", "I-A", "B-B", "I-B"]
        assert labels_of(["B-A"], "bioes") == ["O", "B-A", "I-A", "E-A", "S-A"]
        assert labels_of(["VB", "NN", "VB", "DT"], "none") == ["VB", "DT", "NN"]
        for scheme in SCHEMES:
            assert detect_scheme(labels_of(["B-A"], scheme)) == scheme


ALGORITHMS = ("wordpiece", "bpe", "unigram")


@pytest.fixture(scope="module")
def tokenizers():
    documents = [doc for value in vars(inspect).values() if (doc := inspect.getdoc(value))]
    return {name: train_tokenizer(documents, name, 500, show_progress=False) for name in ALGORITHMS}


class TestSubwords:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @given(words=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8))
    @settings(max_examples=25, deadline=None)
    def test_every_word_with_a_subword_carries_its_label_once(self, tokenizers, algorithm, words):
        word_ids = tokenizers[algorithm](words, is_split_into_words=True).word_ids()
        labels = [f"tag {i}" for i in range(len(words))]
        encode = functools.partial(encode_sentences, tokenizers[algorithm], [words], [labels], labels=labels, stride=0)
        expected = [-100 if word is None else word for word in word_ids]
        first = [-100 if word == before else word for before, word in zip([-100, *expected], expected)]
        assert encode(training=False)["labels"] == [first]
        assert encode(training=True)["labels"] == ([first] if max(first) >= 0 else [])  # none: there is no subword


class TestWindows:
    @given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 15), st.integers(0, 20))
    @settings(max_examples=100, deadline=None)
    def test_no_word_is_lost_and_all_fit(self, lengths, room, stride):
        windows = cut_into_windows(lengths, room, stride)
        assert [w for window in windows for w in range(window.own_first, window.own_last)] == list(range(len(lengths)))
        for window in windows:
            assert window.first <= window.own_first <= window.own_last <= window.last
            assert sum(min(length, room) for length in lengths[window.first : window.last]) <= room
        for one, other in itertools.pairwise(windows):
            assert sum(min(length, room) for length in lengths[other.first : one.last]) <= stride

    def test_words_at_a_border_have_context_on_both_sides(self):
        windows = cut_into_windows([1] * 100, room=20, stride=10)
        assert all(window.own_first - window.first == 5 for window in windows[1:])
        assert all(window.last - window.own_last == 5 for window in windows[:-1])


class TestDecoding:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @given(length=st.integers(1, 4), seed=st.integers(0, 10_000))
    @settings(max_examples=30, deadline=None)
    def test_viterbi_is_the_best_valid_sequence(self, scheme, length, seed):
        labels = labels_of(["B-PER"] if scheme == "bioes" else ["B-PER", "B-LOC"], scheme)
        scores = np.log(np.random.default_rng(seed).dirichlet(np.full(len(labels), 0.3), size=length))
        paths = itertools.product(range(len(labels)), repeat=length)
        tags = ([labels[i] for i in path] for path in paths)
        valid = [path for path in tags if convert_tags(path, scheme) == path]
        best = max(valid, key=lambda path: sum(row[labels.index(tag)] for row, tag in zip(scores, path)))
        assert [labels[i] for i in best_path(scores, transitions(labels))] == best


# --- the task ---


def save_model(folder, tokenizer, positions=64, **overrides):
    torch.manual_seed(0)
    tokenizer.model_max_length = positions
    config = MiniBertConfig.from_tokenizer(
        tokenizer, "bert", "tiny", num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=positions, hidden_dropout=0.0, attention_dropout=0.0, **overrides,
    )  # fmt: skip
    MiniBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


NAMES = {"PER": ["Ada", "Grace Hopper", "Alan Turing"], "LOC": ["Rome", "New York", "Oslo"]}
FRAMES = [
    "{PER} lives in {LOC} .",
    "In {LOC} one meets {PER} .",
    "{PER} and {PER} left {LOC} , {LOC} and {LOC} .",
    "Nobody came .",
]


def sentences(count, seed=0):
    """Rows in which entities are known by their words."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        tokens, tags = [], []
        for word in draw.choice(FRAMES).split():
            kind = word.strip("{}") if "{" in word else None
            words = draw.choice(NAMES[kind]).split() if kind else [word]
            tokens += words
            tags += [f"{'B' if i == 0 else 'I'}-{kind}" if kind else "O" for i in range(len(words))]
        rows.append({"tokens": tokens, "ner_tags": tags})
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tag")
    for split, count in (("train", 60), ("validation", 12), ("test", 14)):
        write_rows(folder / f"{split}.jsonl", sentences(count, seed=count))
    words = " ".join(word for row in sentences(200) for word in row["tokens"])
    tokenizer = train_tokenizer([words] * 20, "wordpiece", 104, show_progress=False)
    save_model(folder / "model", tokenizer)
    return folder


QUICK = ["--per_device_train_batch_size", "8", "--learning_rate", "5e-3", "--num_train_epochs", "5", "--bf16", "false",
         "--disable_tqdm", "true", "--use_cpu", "true", "--eval_strategy", "no", "--save_strategy", "no",
         "--load_best_model_at_end", "false"]  # fmt: skip


@pytest.fixture(scope="module")
def tagger(folder):
    output = folder / "tagger"
    assert cli.main(["finetune", "tag", "--model", str(folder / "model"), "--data", str(folder),
                     "--output_dir", str(output), *QUICK]) == 0  # fmt: skip
    return output


def make_task(tokenizer, rows, path, **arguments):
    """A task that has read `rows` as its training split, and that split."""
    task = Tag(tokenizer, **arguments)
    splits = load(train=[write_rows(path / "train.jsonl", rows)], validation=[str(path / "train.jsonl")])
    return task, task.read(splits)["train"]


def as_prediction(task, split, said=lambda tag: tag):
    """What evaluation would keep if the model said `said(tag)` of every subword of a word with this tag."""
    encoded = task.encode(split, training=False)
    longest = max(map(len, encoded["input_ids"]))
    kept = []
    for row in encoded:
        logits = torch.zeros(1, longest, len(task.labels))
        label = None
        for column, here in enumerate(row["labels"]):
            label = label if here == -100 else task.labels.index(said(task.labels[here]))
            if label is not None:
                logits[0, column, label] = 9.0
        padding = longest - len(row["labels"])
        of_row = torch.tensor([row["labels"] + [-100] * padding])
        mask = torch.tensor([row["attention_mask"] + [0] * padding])
        logits[:, len(row["labels"]) - 1 :] = torch.randn(len(task.labels)) * 9  # the last [SEP] and padding
        kept.append(task.preprocess_logits(logits, {"labels": of_row, "attention_mask": mask}))
        assert kept[-1].shape == of_row.shape and not kept[-1].is_floating_point()  # little, whatever is decoded
    return Predictions(split, encoded, torch.cat(kept).numpy())


def labelled_words(task, windows):
    """For each sentence, the words that carry a label, in order, with that label."""
    sentence = []
    for row in windows:
        pairs = zip(row["words"], row["labels"])
        sentence += [(word, task.labels[label]) for word, label in pairs if label != -100]
        if row["is_last"]:
            yield sentence
            sentence = []


class TestTask:
    @pytest.mark.parametrize(
        "algorithm, scheme",
        [("wordpiece", "bio"), ("wordpiece", "bioes"), ("bpe", "io"), ("bpe", "bio"), ("unigram", "bioes")],
    )
    def test_what_the_model_says_of_words_is_what_is_scored(self, tokenizers, tmp_path, algorithm, scheme):
        rows = sentences(6)
        long = {key: [item for row in sentences(40) for item in row[key]] for key in rows[0]}  # many windows
        rows.insert(2, long)
        rows.insert(4, {"tokens": [], "ner_tags": []})
        rows.append({"tokens": ["\x00", "Ada", "\x01"], "ner_tags": ["O", "B-PER", "O"]})
        rows = [row | {"ner_tags": convert_tags(row["ner_tags"], scheme)} for row in rows]
        tokenizer = copy.deepcopy(tokenizers[algorithm])
        tokenizer.model_max_length = 60
        task, split = make_task(tokenizer, rows, tmp_path, stride=25)
        windows = task.encode(split, training=True)
        assert max(map(len, windows["input_ids"])) <= 60
        for row, labels in zip([row for row in rows if row["tokens"]], labelled_words(task, windows)):
            there = row["ner_tags"]
            without = {word for word, token in enumerate(row["tokens"]) if not token.isprintable()}
            assert [word for word, _ in labels if word not in without] == [
                word for word in range(len(there)) if word not in without
            ]  # each word once, whatever window it is seen in
            assert all(label == there[word] for word, label in labels)
        true = [row["ner_tags"] for row in rows]
        prediction = as_prediction(task, split)
        assert task.decode(prediction) == true
        scores = task.compute_metrics(prediction)
        if scheme != "io":
            assert scores["f1"] == scores["accuracy"] == 1.0
            assert {row["f1"] for row in task.by_class(true, true).values()} == {1.0}

    def test_parts_of_speech(self, tokenizers, tmp_path):
        rows = [{"words": ["Cats", "sleep", "now"], "upos": ["NOUN", "VERB", "ADV"]},
                {"words": ["Dogs", "\x00"], "upos": ["NOUN", "VERB"]}]  # fmt: skip
        task, split = make_task(tokenizers["bpe"], rows, tmp_path)
        assert task.labels == ["NOUN", "VERB", "ADV"] and task.metric_for_best_model == "accuracy"
        prediction = as_prediction(task, split, said=lambda tag: "NOUN" if tag == "NOUN" else "ADV")
        scores = task.compute_metrics(prediction)
        predicted, true = ["NOUN", "ADV", "ADV", "NOUN", "ADV"], ["NOUN", "VERB", "ADV", "NOUN", "VERB"]
        if len(task.decode(prediction)[1]) and task.decode(prediction)[1][1] == "NOUN":
            predicted[-1] = "NOUN"  # no subword at all: the most frequent class
        assert scores["accuracy"] == pytest.approx(np.mean([a == b for a, b in zip(predicted, true)]))
        assert scores["f1_macro"] == pytest.approx(sklearn.metrics.f1_score(true, predicted, average="macro"))
        task.draw(prediction, tmp_path / "pos.png")
        assert (tmp_path / "pos.png").stat().st_size > 3000

    @pytest.mark.parametrize(
        "rows, arguments, message",
        [
            ([{"tokens": ["a", "b"], "tags": ["O", "I-PER"]}, {"tokens": ["c"], "tags": ["B-PER"]}], {},
             r"train.jsonl, row 1: tags\[1\]='I-PER' of 'b' after 'O' is not valid in scheme 'bio'; use 'B-PER', or "),
            ([{"tokens": ["a"], "tags": ["B-X"]}, {"tokens": ["c", "d"], "tags": ["B-PER", "LOC"]}], {},
             r"train.jsonl, row 2: tags\[1\]='LOC' of 'd' .* use O, B-TYPE"),
            ([{"tokens": ["c", "d"], "tags": ["S-X", "B-X"]}], {},
             r"row 1: tags\[1\]='B-X' of 'd' .* use 'S-X'"),
            ([{"tokens": ["c", "d"], "tags": ["O"]}], {}, r"row 1: tags=\['O'\]; use a list of 2"),
            ([{"tokens": "c d", "tags": ["O", "O"]}], {}, "row 1: tokens='c d'; use a list of words"),
            ([{"tokens": ["c"], "tags": [3]}], {}, r"row 1: tags\[0\]=3; use a text, or a number whose name"),
            ([{"tokens": ["c"], "tags": [3]}], {"tag_names": ["O", "B-X"]}, "use a number below 2"),
            ([{"tokens": ["c"], "other": ["O"]}], {}, "tags_column: .*train.jsonl"),
            ([{"tokens": ["c"], "tags": ["NN"]}], {"stride": -5}, "stride: -5 is too small; use 0 or more"),
            ([{"tokens": ["c", "d", "e"], "tags": [*"BIO"]}], {}, "tags: .* has 'B', which looks like a tag"),
            ([{"tokens": ["c"], "tags": ["O"]}], {}, "the rows to train on have no tag but O; there is"),
        ],
    )  # fmt: skip
    def test_bad_rows_are_named(self, tokenizers, tmp_path, rows, arguments, message):
        with pytest.raises(ValueError, match=message):
            make_task(tokenizers["bpe"], rows, tmp_path, **arguments)

    def test_repair_on_request(self, tokenizers, tmp_path):
        rows = [{"tokens": ["a", "b", "c"], "tags": ["O", "I-PER", "I-PER"]}, {"tokens": ["a"], "tags": ["B-PER"]}]
        _, split = make_task(tokenizers["bpe"], rows, tmp_path, repair_tags=True)
        assert split["_label"][:] == [["O", "B-PER", "I-PER"], ["B-PER"]]

    def test_tags_to_train_on_that_the_model_cannot_give(self, tokenizers, tmp_path):
        file = write_rows(tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": [tag]} for tag in ("B-LOC", "B-PER")])
        splits = load(train=[file], validation=[file])
        config = MiniBertConfig(id2label=dict(enumerate(["O", "B-LOC", "I-LOC", "I-PER"])))
        with pytest.raises(ValueError, match="model: it has no label for 'B-PER' .1 words. of .*a.jsonl"):
            Tag(tokenizers["bpe"]).read(splits, config)

    @pytest.mark.parametrize(
        "kind", ["ModernBERT's", "after another step", "RoBERTa's", "llama3", "gemma", "Qwen2Tokenizer", "T5Tokenizer"]
    )
    def test_the_saved_pipeline_reads_running_text_as_training_read_its_words(self, tokenizers, tmp_path, kind):
        tokenizer = copy.deepcopy(tokenizers["bpe"])
        step = pre_tokenizers.ByteLevel(add_prefix_space=False)
        steps = pre_tokenizers.Sequence([pre_tokenizers.Digits(), step]) if kind == "after another step" else step
        tokenizer.backend_tokenizer.pre_tokenizer = steps
        if kind == "RoBERTa's":
            model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
            vocab, merges = model["vocab"], [tuple(pair) for pair in model["merges"]]
            names = tokenizer.special_tokens_map
            tokenizer = RobertaTokenizer(vocab=vocab, merges=merges, model_max_length=64, **names)
        if kind in KINDS:
            tokenizer = adapt_tokenizer(foreign_tokenizer(kind))
            tokenizer.model_max_length = 64
        else:
            assert tokenizer("Ada")["input_ids"] != tokenizer(" Ada")["input_ids"]
        rows = sentences(5)
        alone = tokenizer("Don't go, the king")["input_ids"]
        task, split = make_task(tokenizer, rows, tmp_path)
        tokenizer = task.tokenizer
        if kind in ("llama3", "gemma", "T5Tokenizer"):  # nothing changes but at the beginning of a text
            assert tokenizer("the, Don't go, the king")["input_ids"][-len(alone) + 3 :] == alone[3:]
        tokenizer.save_pretrained(tmp_path)
        config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1, **task.config_fields())
        MiniBertForTokenClassification(config).save_pretrained(tmp_path)
        tagger = transformers.pipeline("token-classification", str(tmp_path))
        for row, encoded in zip(rows, task.encode(split, training=True)):
            (read,) = tagger.preprocess(" ".join(row["tokens"]), is_split_into_words=False)
            assert read["input_ids"].tolist() == [encoded["input_ids"]]


class TestTraining:
    def test_it_learns_and_works_in_the_pipeline(self, tagger, folder):
        report = json.loads((tagger / "metrics.json").read_text())
        assert report["test"]["f1"] > 0.95 and report["by_class"]["test"]["LOC"]["recall"] > 0.9
        assert (tagger / "predictions.png").stat().st_size > 5000
        ner = transformers.pipeline("token-classification", str(tagger), aggregation_strategy="first")
        rows = sentences(10, seed=5)
        for row in rows:
            text = " ".join(row["tokens"])
            found = [(entity["entity_group"], text[entity["start"] : entity["end"]]) for entity in ner(text)]
            expected = [(kind, " ".join(row["tokens"][a : b + 1])) for kind, a, b in get_entities(row["ner_tags"])]
            assert found == expected

    def test_a_saved_model_alone_scores_the_same(self, tagger, folder, capsys):
        output = folder / "evaluated"
        assert cli.main(["evaluate", "tag", "--model", str(tagger), "--test", str(folder / "test.jsonl"),
                         "--output_dir", str(output), "--bf16", "false", "--disable_tqdm", "true"]) == 0  # fmt: skip
        trained, evaluated = (json.loads((path / "metrics.json").read_text())["test"] for path in (tagger, output))
        assert evaluated["f1"] == trained["f1"] and evaluated["loss"] == pytest.approx(trained["loss"], rel=1e-4)

    def test_words_in_evaluation(self, folder, tmp_path):
        """Against a loop over the words of each sentence, one forward each."""
        tokenizer = AutoTokenizer.from_pretrained(folder / "model")
        task, split = make_task(tokenizer, sentences(20, seed=3), tmp_path)
        config = MiniBertConfig.from_pretrained(folder / "model", **task.config_fields(), initializer_range=0.5)
        model = MiniBertForTokenClassification(config).eval()
        encoded = {"test": task.encode(split, training=False)}
        args = FinetuningConfig(str(tmp_path), per_device_eval_batch_size=6, use_cpu=True, bf16=False)
        predictions, _ = score(Run(task, {"test": split}, encoded, "", args, {}, {}), model)
        expected = []
        for tokens in split["tokens"]:
            inputs = tokenizer(tokens, is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                scores = model(**inputs).logits[0].log_softmax(-1).numpy()
            first = [inputs.word_ids().index(word) for word in range(len(tokens))]
            expected.append([task.labels[i] for i in best_path(scores[first], task.transitions)])
        prediction = predictions["test"]
        assert task.decode(prediction) == expected
        assert len({tag for tags in expected for tag in tags}) >= 3 and prediction.outputs.ndim == 2
