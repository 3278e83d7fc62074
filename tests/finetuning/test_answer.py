"""Extractive question answering: n-best decoding, windows over long contexts; and training from end to end."""

import copy
import inspect
import json
import random

import numpy as np
import pytest
import torch
from helpers import save_model, write_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from toy_reviews import load
from transformers import AutoTokenizer

from minibert import MiniBertConfig
from minibert.tokenization import train_tokenizer
from minibert.training import cli
from minibert.training.finetuning.tasks.answer_windows import answer_tokens, best_answer
from minibert.training.finetuning.tasks.answering import AnswerQuestions
from minibert.training.finetuning.tasks.predictions import Predictions

CONTEXT = "one two three four five six seven eight nine ten"
OFFSETS = [(i, i + len(word)) for word in CONTEXT.split() for i in [CONTEXT.index(word)]]


NO_CONTEXT = (-1, -1)
ALGORITHMS = ["wordpiece", "bpe", "unigram"]


def window(rng, tokens):
    """A window of the context that shows `tokens`, behind three tokens of a question, which score higher; and the
    scores of all spans in it."""
    logits = np.concatenate([rng.normal(size=(3, 2)) + 9, rng.normal(size=(len(tokens), 2))])
    start, end = logits[3:].T
    spans = {
        (OFFSETS[a][0], OFFSETS[b][1]): start[i] + end[j]
        for i, a in enumerate(tokens)
        for j, b in enumerate(tokens)
        if i <= j
    }
    padding = np.full((4, 2), -100.0)  # as Trainer pads what it gathers
    return (
        np.concatenate([logits, padding]),
        [NO_CONTEXT] * 3 + [OFFSETS[token] for token in tokens],
    ), spans


class TestBestAnswer:
    @given(st.integers(0, 10_000), st.integers(1, 10))
    @settings(max_examples=30, deadline=None)
    def test_against_all_spans_of_all_windows(self, seed, longest):
        rng = np.random.default_rng(seed)
        windows, scores = zip(*(window(rng, tokens) for tokens in (range(6), range(3, 10))))
        best = {}
        for of_window in scores:
            for span, score in of_window.items():
                if len(CONTEXT[slice(*span)].split()) <= longest:
                    best[span] = max(best.get(span, -np.inf), score)
        assert (
            best_answer(windows, CONTEXT, max_answer_length=longest)
            == CONTEXT[slice(*max(best, key=best.get))]
        )

    def test_spaces_of_byte_level_tokens_are_no_part_of_an_answer(self):
        logits = np.array([[0.0, 0.0], [1.0, -9.0], [-9.0, 1.0]])
        assert best_answer([(logits, [NO_CONTEXT, (3, 7), (7, 13)])], CONTEXT) == "two three"

    @pytest.mark.parametrize(
        "threshold, first", [(None, "one"), (0.0, ""), (0.9, ""), (1.0, "one"), (1.1, "one")]
    )
    def test_no_answer_where_its_lowest_score_is_higher_by_the_threshold(self, threshold, first):
        windows = [([[null, 0.0], [1.0, 1.0]], [NO_CONTEXT, OFFSETS[0]]) for null in (9.0, 3.0)]
        for order in (windows, windows[::-1]):
            assert best_answer(order, CONTEXT, null_threshold=threshold) == first

    def test_a_question_without_any_valid_span_has_the_empty_answer(self):
        assert best_answer([([[0.5, 0.0]], [NO_CONTEXT])], CONTEXT) == ""
        blank = [([[0.5, 0.0], [1.0, 1.0]], [NO_CONTEXT, (3, 4)])]
        assert best_answer(blank, CONTEXT) == ""


@pytest.fixture(scope="module")
def tokenizers():
    documents = [doc for value in vars(inspect).values() if (doc := inspect.getdoc(value))]
    return {name: train_tokenizer(documents, name, 500, show_progress=False) for name in ALGORITHMS}


class TestAnswerTokens:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @given(data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_tokens_of_words_give_the_words_back(self, tokenizers, algorithm, data):
        words = data.draw(
            st.lists(st.text("abcdeéß漢.-", min_size=1, max_size=9), min_size=1, max_size=8)
        )
        context = " ".join(words)
        first = data.draw(st.integers(0, len(words) - 1))
        last = data.draw(st.integers(first, len(words) - 1))
        start = len(" ".join(words[:first])) + (first > 0)
        end = start + len(" ".join(words[first : last + 1]))
        offsets = tokenizers[algorithm](context, return_offsets_mapping=True)["offset_mapping"]
        offsets = [NO_CONTEXT, *offsets[1:-1], NO_CONTEXT]
        found = answer_tokens(offsets, start, end)
        assert found is not None
        assert context[offsets[found[0]][0] : offsets[found[1]][1]].strip() == context[start:end]

    def test_an_answer_that_a_window_cuts_is_not_in_it(self):
        offsets = [NO_CONTEXT, NO_CONTEXT, *OFFSETS[2:6], NO_CONTEXT]
        assert answer_tokens(offsets, OFFSETS[2][0], OFFSETS[3][1]) == (2, 3)
        assert answer_tokens(offsets, OFFSETS[1][0], OFFSETS[3][1]) is None
        assert answer_tokens(offsets, OFFSETS[5][0], OFFSETS[6][1]) is None
        assert answer_tokens(offsets, OFFSETS[8][0], OFFSETS[9][1]) is None
        assert answer_tokens([NO_CONTEXT], 0, 3) is None
        assert answer_tokens([(0, 3), (3, 6), (6, 9)], 3, 6) == (1, 1)  # its neighbours touch it

    def test_characters_of_no_token_belong_to_the_answer(self):
        """Accents that a normalizer drops; in the middle of a window, not at its ends."""
        context = "a cafe\u0301 is \u0301red"
        offsets = [NO_CONTEXT, (0, 1), (2, 6), (8, 10), (12, 15), NO_CONTEXT]
        assert answer_tokens(offsets, 2, 7) == (2, 2) and answer_tokens(offsets, 11, 15) == (4, 4)
        assert (
            answer_tokens(offsets[:3], 2, 7) is None and answer_tokens(offsets[4:], 11, 15) is None
        )
        logits = np.full((6, 2), -9.0)
        logits[2] = 9.0
        assert best_answer([(logits, offsets)], context) == "cafe\u0301"


# --- the task ---

COLOURS, THINGS = ["red", "green", "blue", "grey", "white"], ["cat", "dog", "fish", "bird"]
FILL = "and so it was on every day of that long year"


def questions(count, seed=0, length=1):
    """Rows whose answer is the colour of the thing asked for."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        things = draw.sample(THINGS, 2)
        facts = (f"The {thing} is dark {draw.choice(COLOURS)} , {FILL} ." for thing in things)
        context = "  ".join([*facts, *[FILL] * length])
        sentence = context.index(f"The {things[1]} is ")
        start = sentence + len(f"The {things[1]} is ")
        text = context[start : context.index(" ,", start)]
        rows.append({"id": str(number), "question": f"What colour has the {things[1]} ?", "context": context,
                     "answers": {"text": [text], "answer_start": [start]}})  # fmt: skip
    return rows


def make_task(tokenizer, rows, path, max_length=64, **arguments):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length, tokenizer.padding_side = max_length, "left"  # which the task mends
    task = AnswerQuestions(tokenizer, max_length=max_length, **arguments)
    file = write_rows(path / "train.jsonl", rows)
    return task, task.read(load(train=[file], validation=[file]))["train"]


def as_prediction(task, split):
    """What evaluation would keep if the model knew where the answers are, and found the question even more likely."""
    kept = []
    encoded = task.encode(split)
    for row in encoded:
        logits = torch.full((2, 1, task.tokenizer.model_max_length), -1.0)
        logits[:, 0, [i for i, (first, _) in enumerate(row["offsets"]) if first < 0]] = 5.0
        logits[:, 0, 0] = 0.0
        if row["end_positions"]:
            logits[0, 0, row["start_positions"]] = logits[1, 0, row["end_positions"]] = 3.0
        kept.append(task.preprocess_logits((logits[0], logits[1]), {}).numpy())
    return Predictions(split, encoded, np.concatenate(kept))


class TestTask:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_windows_lose_nothing_of_the_context_and_keep_the_answers(
        self, tokenizers, tmp_path, algorithm
    ):
        rows = questions(4, length=5) + questions(2, seed=1, length=0)
        task, split = make_task(tokenizers[algorithm], rows, tmp_path)
        encoded = task.encode(split)
        assert len(encoded) > 12 and max(map(len, encoded["input_ids"])) <= 64
        texts, answered = [set()], 0
        for window in encoded:
            context = rows[len(texts) - 1]["context"]
            characters = {i for a, b in window["offsets"] if a >= 0 for i in range(a, b)}
            assert not texts[-1] or characters & texts[-1]  # neighbours share some
            texts[-1] |= characters
            start, end = window["start_positions"], window["end_positions"]
            if end:
                answered += 1
                found = context[window["offsets"][start][0] : window["offsets"][end][1]].strip()
                assert found == rows[len(texts) - 1]["answers"]["text"][0]
            assert window["token_type_ids"][1] == 0 and window["token_type_ids"][-1] == 1
            if window["is_last"]:
                assert {i for i, c in enumerate(context) if c != " "} <= texts[-1]
                texts.append(set())
        assert len(texts) - 1 == len(rows) <= answered

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_a_model_that_knows_is_right(self, tokenizers, tmp_path, algorithm):
        rows = questions(5, length=4)
        task, split = make_task(tokenizers[algorithm], rows, tmp_path)
        prediction = as_prediction(task, split)
        assert task.compute_metrics(prediction) == {"exact_match": 1.0, "f1": 1.0}
        task.draw(prediction, tmp_path / "answers.png")
        assert (tmp_path / "answers.png").exists()

    def test_every_answer_lies_in_the_context(self, tokenizers, tmp_path):
        """None on padding, on a special token or in the question: the loss would be infinite there."""
        rows = questions(6, length=4) + questions(
            3, seed=1, length=0
        )  # of one part, and of several
        rows[1]["answers"] = {"text": [], "answer_start": []}
        task, split = make_task(tokenizers["bpe"], rows, tmp_path)
        encoded = task.encode(split)
        features = [
            {k: v for k, v in row.items() if k not in ("offsets", "is_last")} for row in encoded
        ]
        batch = task.collator_class(task.tokenizer)(features)
        assert (batch["attention_mask"] == 0).any()
        for side in ("start_positions", "end_positions"):
            assert batch["attention_mask"].gather(1, batch[side][:, None]).all()
            for row in encoded:
                assert row[side] == 0 or row["offsets"][row[side]][0] >= 0
            assert (batch[side] > 0).sum() >= len(rows) - 1

    def test_questions_without_an_answer(self, tokenizers, tmp_path):
        rows = questions(4)
        rows[1]["answers"] = {"text": [], "answer_start": []}
        task, split = make_task(tokenizers["wordpiece"], rows, tmp_path)
        prediction = as_prediction(task, split)
        assert list(task.decode(prediction))[1] == ""
        assert task.compute_metrics(prediction)["f1_unanswerable"] == 1.0

    @pytest.mark.parametrize("answerable, expected", [(False, 0.0), (True, None)])
    def test_the_threshold_of_the_training_is_saved(
        self, tokenizers, tmp_path, answerable, expected
    ):
        sides = {
            True: questions(2),
            False: [questions(1)[0] | {"answers": {"text": [], "answer_start": []}}],
        }
        rows = sides[True] if answerable else sides[True] + sides[False]
        make_task(tokenizers["bpe"], rows, tmp_path)[0].tokenizer.save_pretrained(tmp_path)
        task = AnswerQuestions(AutoTokenizer.from_pretrained(tmp_path))
        task.use_labels_of(MiniBertConfig())
        assert task.learned.null_threshold == expected
        other = write_rows(
            tmp_path / "test.jsonl", sides[not answerable]
        )  # says nothing of how the model was trained
        task.read(load(test=[other]), MiniBertConfig())
        assert task.learned.null_threshold == expected

    @pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
    def test_long_questions_leave_room(self, tokenizers, tmp_path, algorithm):
        """Also of characters of several tokens."""
        for question in ("\u6f22" * 30, "What \U0001f600\u6f22\u6f22" * 9):
            rows = [questions(1)[0] | {"question": question}]
            task, split = make_task(tokenizers[algorithm], rows, tmp_path, max_length=32)
            for window in task.encode(split):
                assert (
                    len(window["input_ids"]) <= 32
                    and 3 < window["token_type_ids"].count(0) <= 8 + 2
                )

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"answers": {"text": ["purple"], "answer_start": [3]}},
             "train.jsonl, row 2: answers='purple' of question '1' with answer_start 3 does not match"),
            ({"answers": {"text": ["The", "a"], "answer_start": [0]}}, "row 2: answers={.* use {.*, or for no"),
            ({"answers": {"text": ["The"], "answer_start": [-3]}}, "row 2: answers='The' .* with answer_start -3"),
            ({"answers": {"text": ["The"], "answer_start": [None]}}, r"row 2: answers=.*\[None\].* use {.text.:"),
            ({"context": None}, "row 2: 'context' is empty"),
        ],
    )  # fmt: skip
    def test_bad_rows_are_named(self, tokenizers, tmp_path, change, message):
        rows = questions(3)
        rows[1] |= change
        with pytest.raises(ValueError, match=message):
            make_task(tokenizers["bpe"], rows, tmp_path)

    def test_bad_columns_are_named(self, tokenizers, tmp_path):
        with pytest.raises(ValueError, match="answers_column: .*train.jsonl"):
            make_task(tokenizers["bpe"], [{"question": "a", "context": "b"}], tmp_path)
        with pytest.raises(ValueError, match="row 1: answers='b'; use {.text.:"):
            make_task(
                tokenizers["bpe"], [{"question": "a", "context": "b", "answers": "b"}], tmp_path
            )

    def test_answers_that_cannot_be_given(self, tokenizers, tmp_path, capsys):
        rows = questions(3)
        with pytest.raises(
            ValueError, match="max_answer_length: 3 of 3 answers of the .* longer than 0 tokens"
        ):
            make_task(tokenizers["bpe"], rows, tmp_path, max_answer_length=0)
        start = rows[0]["answers"]["answer_start"][0]
        rows[0]["answers"]["text"] = [rows[0]["context"][start : start + 40]]
        make_task(tokenizers["bpe"], rows, tmp_path, max_answer_length=6)
        assert (
            "1 of 3 answers of the train rows are longer than 6 tokens" in capsys.readouterr().out
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answer")
    rows = questions(8, length=0)
    write_rows(folder / "train.jsonl", rows * 4)
    write_rows(folder / "validation.jsonl", rows)
    tokenizer = train_tokenizer(
        [row["context"] + " " + row["question"] for row in rows] * 9,
        "wordpiece",
        104,
        show_progress=False,
    )
    tokenizer.model_max_length = 64
    shape = dict(
        hidden_size=48, num_attention_heads=4, intermediate_size=96, max_position_embeddings=64
    )
    save_model(folder / "model", tokenizer, **shape)
    return folder


QUICK = ["--bf16", "false", "--disable_tqdm", "true", "--use_cpu", "true"]
TRAIN = ["--per_device_train_batch_size", "16", "--learning_rate", "5e-3", "--num_train_epochs", "12",
         "--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "false"]  # fmt: skip


@pytest.mark.slow
def test_it_learns_a_handful_by_heart_and_scores_the_same_alone(folder):
    output, alone = folder / "answerer", folder / "alone"
    given = ["--data", str(folder), "--output_dir", str(output), "--max_length", "40"]
    assert (
        cli.main(["finetune", "answer", "--model", str(folder / "model"), *given, *TRAIN, *QUICK])
        == 0
    )
    report = json.loads((output / "metrics.json").read_text())
    assert report["validation"]["f1"] > 0.9
    backend = Tokenizer.from_file(str(output / "tokenizer.json"))
    assert (
        backend.truncation is backend.padding is None
    )  # that of questions would be an error for longer texts
    assert (output / "predictions.png").stat().st_size > 3000
    given = [
        "--test",
        str(folder / "validation.jsonl"),
        "--output_dir",
        str(alone),
        "--max_length",
        "40",
    ]
    assert cli.main(["evaluate", "answer", "--model", str(output), *given, *QUICK]) == 0
    evaluated = json.loads((alone / "metrics.json").read_text())
    assert evaluated["test"]["f1"] == report["validation"]["f1"]
