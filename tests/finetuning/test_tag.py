"""Tagging: schemes, subwords, decoding; and training from end to end."""

import copy
import inspect
import itertools
import json
import random

import numpy as np
import pytest
import seqeval.scheme
import sklearn.metrics
import torch
import transformers
from foreign_tokenizers import KINDS, foreign_tokenizer
from helpers import save_model, write_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from tokenizers import pre_tokenizers
from toy_reviews import load
from transformers import AutoTokenizer, RobertaTokenizer

from minibert import MiniBertConfig, MiniBertForTokenClassification
from minibert.tokenization import adapt_tokenizer, train_tokenizer
from minibert.training import cli
from minibert.training.finetuning.config import FinetuningConfig
from minibert.training.finetuning.prediction_loop import TaskPredictor
from minibert.training.finetuning.tasks.label_schemes import (
    are_entities,
    best_path,
    may_follow,
    to_bio,
)
from minibert.training.finetuning.tasks.predictions import IS_CUT, Predictions
from minibert.training.finetuning.tasks.tagging import Tag, encode_sentences

ALPHABET = ["O", *(f"{prefix}-{kind}" for kind in ("PER", "creative-work") for prefix in "BIES")]


class TestSchemes:
    @given(tags=st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=7))
    @settings(max_examples=60, deadline=None)
    def test_entities_are_those_that_seqeval_reads(self, tags):
        converted = to_bio(tags)
        assert get_entities(converted) == get_entities(tags) and to_bio(converted) == converted
        strict = seqeval.scheme.Entities([converted], seqeval.scheme.IOB2).entities[0]
        assert [(e.tag, e.start, e.end - 1) for e in strict] == get_entities(
            tags
        )  # valid, without leniency

    @pytest.mark.parametrize("tags, entities", [
        ({"O", "B-PER"}, True), ({"O", "I-PER"}, True), ({"S-PER", "O"}, True),
        ({"O", "B-PER", "LOC"}, True),  # LOC is then not valid
        ({"NN", "VB", "O"}, False), ({"X-y", "B"}, False),
    ])  # fmt: skip
    def test_detection(self, tags, entities):
        assert are_entities(tags) == entities

    @given(length=st.integers(0, 4), seed=st.integers(0, 10_000))
    @settings(max_examples=30, deadline=None)
    def test_viterbi_is_the_best_valid_sequence(self, length, seed):
        labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
        scores = np.log(
            np.random.default_rng(seed).dirichlet(np.full(len(labels), 0.3), size=length)
        )
        paths = (list(path) for path in itertools.product(labels, repeat=length))
        valid = [path for path in paths if to_bio(path) == path]
        best = max(
            valid, key=lambda path: sum(row[labels.index(tag)] for row, tag in zip(scores, path))
        )
        assert [labels[i] for i in best_path(scores, may_follow(labels))] == best


ALGORITHMS = ("wordpiece", "bpe", "unigram")


@pytest.fixture(scope="module")
def tokenizers():
    documents = [doc for value in vars(inspect).values() if (doc := inspect.getdoc(value))]
    return {name: train_tokenizer(documents, name, 500, show_progress=False) for name in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(words=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_every_word_with_a_subword_carries_its_label_once(tokenizers, algorithm, words):
    word_ids = tokenizers[algorithm](words, is_split_into_words=True).word_ids()
    labels = [f"tag {i}" for i in range(len(words))]
    encoded = encode_sentences(tokenizers[algorithm], [words], [labels], labels=labels)
    expected = [-100 if word is None else word for word in word_ids]
    first = [-100 if word == before else word for before, word in zip([-100, *expected], expected)]
    assert encoded["labels"] == [first] and encoded["words"] == [[max(word, -1) for word in first]]


# --- the task ---


NAMES = {"PER": ["Ada", "Grace Hopper", "Alan Turing"], "LOC": ["Rome", "New York", "Oslo"]}
FRAMES = [
    "{PER} lives in {LOC} .", "In {LOC} one meets {PER} .", "{PER} and {PER} left {LOC} , {LOC} and {LOC} .",
    "Nobody came .",
]  # fmt: skip


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
    tokenizer = train_tokenizer(
        [words] * 20, "wordpiece", 104, model_max_length=64, show_progress=False
    )
    save_model(folder / "model", tokenizer, max_position_embeddings=64)
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
    splits = load(
        train=[write_rows(path / "train.jsonl", rows)], validation=[str(path / "train.jsonl")]
    )
    return task, task.read(splits)["train"]


def as_prediction(task, split, said=lambda tag: tag):
    """What evaluation would keep if the model said `said(tag)` of every subword of a word with this tag."""
    encoded = task.encode(split)
    longest = max(map(len, encoded["input_ids"]))
    kept = []
    for row in encoded:
        logits = torch.zeros(1, longest, len(task.label_names))
        label = None
        for column, here in enumerate(row["labels"]):
            label = label if here == -100 else task.label_names.index(said(task.label_names[here]))
            if label is not None:
                logits[0, column, label] = 9.0
        padding = longest - len(row["labels"])
        of_row = torch.tensor([row["labels"] + [-100] * padding])
        mask = torch.tensor([row["attention_mask"] + [0] * padding])
        logits[:, len(row["labels"]) - 1 :] = (
            torch.randn(len(task.label_names)) * 9
        )  # the last [SEP] and padding
        kept.append(task.preprocess_logits(logits, {"labels": of_row, "attention_mask": mask}))
        assert (
            kept[-1].shape[:2] == of_row.shape and not kept[-1].is_floating_point()
        )  # little, whatever is decoded
    return Predictions(split, encoded, torch.cat(kept).numpy())


class TestTask:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_what_the_model_says_of_words_is_what_is_scored(self, tokenizers, tmp_path, algorithm):
        rows = sentences(6)
        rows.insert(4, {"tokens": [], "ner_tags": []})  # which is left out
        rows.append({"tokens": ["\x00", "Ada", "\x01"], "ner_tags": ["O", "B-PER", "O"]})
        task, split = make_task(copy.deepcopy(tokenizers[algorithm]), rows, tmp_path)
        true = [row["ner_tags"] for row in rows if row["tokens"]]
        prediction = as_prediction(task, split)
        assert task.decode(prediction) == true and not any(prediction.encoded[IS_CUT])
        scores = task.compute_metrics(prediction)
        assert scores["f1"] == scores["accuracy"] == 1.0
        assert {row["f1"] for row in task.scores_by_class(true, true).values()} == {1.0}

    def test_what_is_cut_is_untagged_and_counts_as_missed(self, tokenizers, tmp_path):
        tokenizer = copy.deepcopy(tokenizers["bpe"])
        tokenizer.model_max_length = 8
        task, split = make_task(
            tokenizer, [{"tokens": ["Ada"] * 9, "tags": ["B-PER"] * 9}], tmp_path
        )
        prediction = as_prediction(task, split)
        (tags,) = task.decode(prediction)
        seen = tags.index("O")
        assert prediction.encoded[IS_CUT][:] == [True] and 0 < seen < 9 and {*tags[seen:]} == {"O"}
        assert task.compute_metrics(prediction)["recall"] == pytest.approx(seen / 9)

    def test_parts_of_speech(self, tokenizers, tmp_path):
        rows = [{"words": ["Cats", "sleep", "now"], "upos": ["NOUN", "VERB", "ADV"]},
                {"words": ["Dogs", "\x00"], "upos": ["NOUN", "VERB"]}]  # fmt: skip
        task, split = make_task(tokenizers["bpe"], rows, tmp_path)
        assert (
            task.label_names == ["NOUN", "VERB", "ADV"] and task.metric_for_best_model == "accuracy"
        )
        prediction = as_prediction(task, split, said=lambda tag: "NOUN" if tag == "NOUN" else "ADV")
        scores = task.compute_metrics(prediction)
        predicted, true = (
            ["NOUN", "ADV", "ADV", "NOUN", "ADV"],
            ["NOUN", "VERB", "ADV", "NOUN", "VERB"],
        )
        if len(task.decode(prediction)[1]) and task.decode(prediction)[1][1] == "NOUN":
            predicted[-1] = "NOUN"  # no subword at all: the most frequent class
        assert scores["accuracy"] == pytest.approx(
            np.mean([a == b for a, b in zip(predicted, true)])
        )
        assert scores["f1_macro"] == pytest.approx(
            sklearn.metrics.f1_score(true, predicted, average="macro")
        )
        task.draw(prediction, tmp_path / "pos.png")
        assert (tmp_path / "pos.png").stat().st_size > 3000

    @pytest.mark.parametrize(
        "rows, message",
        [
            ([{"tokens": ["a"], "tags": ["B-X"]}, {"tokens": ["c", "d"], "tags": ["B-PER", "LOC"]}],
             r"train.jsonl, row 2: tags\[1\]='LOC'; use O, B-TYPE or I-TYPE"),
            ([{"tokens": ["c", "d"], "tags": ["O"]}], r"row 1: tags=\['O'\]; use a list of 2"),
            ([{"tokens": "c d", "tags": ["O", "O"]}], "row 1: tokens='c d'; use a list of words"),
            ([{"tokens": ["c"], "tags": [3]}], r"row 1: tags\[0\]=3; use the name of a tag"),
            ([{"tokens": ["c"], "other": ["O"]}], "tags_column: .*train.jsonl"),
            ([{"tokens": ["c", "d", "e"], "tags": [*"BIO"]}], "tags: .* has 'I', which looks like a tag"),
            ([{"tokens": ["c"], "tags": ["O"]}], "the rows to train on have no tag but O; there is"),
        ],
    )  # fmt: skip
    def test_bad_rows_are_named(self, tokenizers, tmp_path, rows, message):
        with pytest.raises(ValueError, match=message):
            make_task(tokenizers["bpe"], rows, tmp_path)

    @pytest.mark.parametrize("tags", [["O", "I-PER", "I-PER"], ["O", "B-PER", "E-PER"]])
    def test_other_schemes_are_read_as_bio(self, tokenizers, tmp_path, tags):
        task, split = make_task(
            tokenizers["bpe"], [{"tokens": ["a", "b", "c"], "tags": tags}], tmp_path
        )
        assert split["_label"][:] == [["O", "B-PER", "I-PER"]] and task.label_names == [
            "O",
            "B-PER",
            "I-PER",
        ]

    def test_tags_to_train_on_that_the_model_cannot_give(self, tokenizers, tmp_path):
        file = write_rows(
            tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": [tag]} for tag in ("B-LOC", "B-PER")]
        )
        splits = load(train=[file], validation=[file])
        config = MiniBertConfig(id2label=dict(enumerate(["O", "B-LOC", "I-LOC"])))
        with pytest.raises(
            ValueError, match="model: it has no label for 'B-PER' .1 words.; start from"
        ):
            Tag(tokenizers["bpe"]).read(splits, config)

    @pytest.mark.parametrize(
        "kind",
        [
            "ModernBERT's",
            "after another step",
            "RoBERTa's",
            "llama3",
            "gemma",
            "Qwen2Tokenizer",
            "T5Tokenizer",
        ],
    )
    def test_the_saved_pipeline_reads_running_text_as_training_read_its_words(
        self, tokenizers, tmp_path, kind
    ):
        tokenizer = copy.deepcopy(tokenizers["bpe"])
        step = pre_tokenizers.ByteLevel(add_prefix_space=False)
        steps = (
            pre_tokenizers.Sequence([pre_tokenizers.Digits(), step])
            if kind == "after another step"
            else step
        )
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
        if kind in (
            "llama3",
            "gemma",
            "T5Tokenizer",
        ):  # nothing changes but at the beginning of a text
            assert tokenizer("the, Don't go, the king")["input_ids"][-len(alone) + 3 :] == alone[3:]
        tokenizer.save_pretrained(tmp_path)
        config = MiniBertConfig.from_tokenizer(
            tokenizer, "bert", "tiny", num_hidden_layers=1, **task.config_fields()
        )
        MiniBertForTokenClassification(config).save_pretrained(tmp_path)
        tagger = transformers.pipeline("token-classification", str(tmp_path))
        for row, encoded in zip(rows, task.encode(split)):
            (read,) = tagger.preprocess(" ".join(row["tokens"]), is_split_into_words=False)
            assert read["input_ids"].tolist() == [encoded["input_ids"]]


class TestTraining:
    def test_it_learns_and_works_in_the_pipeline(self, tagger, folder):
        report = json.loads((tagger / "metrics.json").read_text())
        assert report["test"]["f1"] > 0.95 and report["by_class"]["test"]["LOC"]["recall"] > 0.9
        assert (tagger / "predictions.png").stat().st_size > 5000
        ner = transformers.pipeline(
            "token-classification", str(tagger), aggregation_strategy="first"
        )
        rows = sentences(10, seed=5)
        for row in rows:
            text = " ".join(row["tokens"])
            found = [
                (entity["entity_group"], text[entity["start"] : entity["end"]])
                for entity in ner(text)
            ]
            expected = [
                (kind, " ".join(row["tokens"][a : b + 1]))
                for kind, a, b in get_entities(row["ner_tags"])
            ]
            assert found == expected

    def test_a_saved_model_alone_scores_the_same(self, tagger, folder, capsys):
        output = folder / "evaluated"
        assert cli.main(["evaluate", "tag", "--model", str(tagger), "--test", str(folder / "test.jsonl"),
                         "--output_dir", str(output), "--bf16", "false", "--disable_tqdm", "true"]) == 0  # fmt: skip
        trained, evaluated = (
            json.loads((path / "metrics.json").read_text())["test"] for path in (tagger, output)
        )
        assert evaluated["f1"] == trained["f1"] and evaluated["loss"] == pytest.approx(
            trained["loss"], rel=1e-4
        )

    def test_words_in_evaluation(self, folder, tmp_path):
        """Against a loop over the words of each sentence, one forward each."""
        tokenizer = AutoTokenizer.from_pretrained(folder / "model")
        task, split = make_task(tokenizer, sentences(20, seed=3), tmp_path)
        config = MiniBertConfig.from_pretrained(
            folder / "model", **task.config_fields(), initializer_range=0.5
        )
        torch.manual_seed(0)
        model = MiniBertForTokenClassification(config).eval()
        encoded = task.encode(split)
        args = FinetuningConfig(
            str(tmp_path), per_device_eval_batch_size=6, use_cpu=True, bf16=False
        )
        output = TaskPredictor(task, model, args, eval_dataset=encoded).predict(encoded)
        predictions = {"test": Predictions(split, encoded, *output.predictions)}
        expected = []
        for tokens in split["tokens"]:
            inputs = tokenizer(tokens, is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                scores = model(**inputs).logits[0].log_softmax(-1).numpy()
            first = [inputs.word_ids().index(word) for word in range(len(tokens))]
            expected.append(
                [
                    task.label_names[i]
                    for i in best_path(scores[first], may_follow(task.label_names))
                ]
            )
        prediction = predictions["test"]
        assert task.decode(prediction) == expected
        assert len({tag for tags in expected for tag in tags}) >= 3 and prediction.outputs.shape[
            2:
        ] == (2,)
