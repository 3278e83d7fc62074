"""Objectives of pretraining beside masked tokens: pairs, next tokens, static masks, and going on from a model."""

import json
import math
import random
from collections import Counter
from contextlib import nullcontext

import datasets
import numpy as np
import pytest
import torch
from helpers import run
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, pipeline

from minibert import MiniBertConfig, MiniBertForCausalLM, MiniBertForMaskedLM
from minibert.training import cli
from minibert.training.data.collators import MaskedLMCollator
from minibert.training.data.packing import pack_documents
from minibert.training.data.sentences import sentences_by_line
from minibert.training.pretraining import config as settings
from minibert.training.pretraining.config import PretrainingConfig, fill_defaults
from minibert.training.pretraining.objectives import OBJECTIVES
from minibert.training.pretraining.objectives.sentence_pairs import (
    IS_NEXT,
    IS_RANDOM,
    IS_SWAPPED,
    make_sentence_pairs,
)
from minibert.training.pretraining.trainer import PretrainingTrainer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
QUICK = [
    "--size", "tiny", "--vocab_size", "150", "--seq_length", "48",
    "--per_device_train_batch_size", "8", "--disable_tqdm", "true", "--bf16", "false", "--eval_strategy", "no",
    "--save_strategy", "no",
    "--config_overrides", "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,intermediate_size=48",
]  # fmt: skip


def make(name, **fields):
    """An objective with these settings."""
    args = PretrainingConfig("unused", objective=name, use_cpu=True, **dict(seed=0) | fields)
    return OBJECTIVES[name](fill_defaults(args, is_new=True))


@pytest.fixture(scope="module")
def stories():
    """Documents of sentences in which no word occurs twice in the corpus: a token tells where it comes from."""
    draw, word = random.Random(0), 0
    documents = []
    for _ in range(400):
        lines = []
        for _ in range(draw.randint(1, 14)):
            length = draw.randint(1, 9)
            lines.append(" ".join(f"w{word + i}" for i in range(length)) + " .")
            word += length
        documents.append(draw.choice(["\n", " "]).join(lines))
    return documents, word


@pytest.fixture(scope="module")
def word_tokenizer(stories):
    """A token a word; the full stop is one too."""
    vocabulary = {
        token: i for i, token in enumerate([*SPECIAL, ".", *(f"w{i}" for i in range(stories[1]))])
    }
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def as_dataset(documents):
    return datasets.Dataset.from_dict({"text": documents})


@pytest.fixture(scope="module")
def pairs(stories, word_tokenizer):
    return make_sentence_pairs(
        as_dataset(stories[0]), word_tokenizer, seq_length=32, short_seq_prob=0.1, seed=1
    )


def test_segments_are_lines_and_sentences():
    assert sentences_by_line("One. Two!\nThree?\n\n  \nis 3.5 Four") == [
        "One.",
        "Two!",
        "Three?",
        "is 3.5 Four",
    ]
    assert sentences_by_line("“Yes!” he said. 'No.' And (so.) “Go!”")[:3] == [
        "“Yes!” he said.",
        "'No.'",
        "And (so.)",
    ]
    assert sentences_by_line('“Oui !” était-ce. "Да!" сказал') == [
        "“Oui !” était-ce.",
        '"Да!" сказал',
    ]
    assert sentences_by_line("今日は。明日も。") == ["今日は。", "明日も。"]
    assert sentences_by_line("「はい。」と彼は言った。そして帰った。") == [
        "「はい。」と彼は言った。",
        "そして帰った。",
    ]
    assert sentences_by_line("هل هذا سؤال؟ نعم. یہ ایک ہے۔ دوسرا۔") == [
        "هل هذا سؤال؟",
        "نعم.",
        "یہ ایک ہے۔",
        "دوسرا۔",
    ]


def test_pairs_are_what_their_labels_say(stories, word_tokenizer, pairs):
    documents = [word_tokenizer(text, add_special_tokens=False)["input_ids"] for text in stories[0]]
    place = {
        token: (number, i)
        for number, ids in enumerate(documents)
        for i, token in enumerate(ids)
        if token != 5
    }
    seen = {IS_NEXT: 0, IS_RANDOM: 0}
    for row in pairs:
        ids, segments, label = row["input_ids"], row["token_type_ids"], row["next_sentence_label"]
        assert len(ids) == len(segments) <= 32
        cls, sep = word_tokenizer.cls_token_id, word_tokenizer.sep_token_id
        assert ids[0] == cls and ids[-1] == sep and ids.count(sep) == 2 and ids.count(cls) == 1
        middle = ids.index(sep)
        assert segments == [0] * (middle + 1) + [1] * (len(ids) - middle - 1)
        a, b = ids[1:middle], ids[middle + 1 : -1]
        assert a and b
        found = []
        for part in (a, b):
            # a run of tokens, as it stands in one document
            first = (
                next(i for i, token in enumerate(part) if token != 5) if set(part) != {5} else None
            )
            if first is None:
                break
            number, i = place[part[first]]
            assert documents[number][i - first : i - first + len(part)] == part
            found.append((number, i - first, i - first + len(part)))
        if len(found) == 2:
            (first, _, end), (second, start, _) = found
            assert (first == second) == (label == IS_NEXT)
            if label == IS_NEXT and len(ids) < 32 - 1:  # nothing was cut away
                assert start >= end
            seen[label] += 1
    assert min(seen.values()) > 50


def test_pairs_are_balanced_and_form_does_not_tell(stories, word_tokenizer):
    """Neither the lengths of the segments nor whether the second one ends with a sentence."""
    pairs = make_sentence_pairs(
        as_dataset(stories[0] * 12), word_tokenizer, seq_length=32, short_seq_prob=0.1, seed=1
    )
    labels = np.array(pairs["next_sentence_label"])
    assert abs(labels.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(labels))
    b = np.array([sum(segments) for segments in pairs["token_type_ids"]])
    a = np.array([len(segments) for segments in pairs["token_type_ids"]]) - b
    for x in (a, b, a + b, np.array([ids[-2] == 5 for ids in pairs["input_ids"]])):
        spread = x.std() * math.sqrt(1 / (labels == 0).sum() + 1 / (labels == 1).sum())
        assert abs(x[labels == 0].mean() - x[labels == 1].mean()) < 4 * spread


def swapped_pairs(documents, tokenizer):
    return make_sentence_pairs(
        as_dataset(documents),
        tokenizer,
        seq_length=32,
        short_seq_prob=0.0,
        seed=1,
        swaps_segments=True,
    )


def test_ordered_and_swapped_pairs_follow_each_other_in_one_text(stories, word_tokenizer):
    """Half of them each; a token tells where it comes from."""
    documents = [word_tokenizer(text, add_special_tokens=False)["input_ids"] for text in stories[0]]
    places = {}
    for number, ids in enumerate(documents):
        for position, token in enumerate(ids):
            places.setdefault(token, (number, position))
    full_stop = word_tokenizer.convert_tokens_to_ids(".")
    labels = Counter()
    for row in swapped_pairs(stories[0], word_tokenizer):
        ids = row["input_ids"]
        middle = ids.index(word_tokenizer.sep_token_id)
        segments = []
        for segment in (ids[1:middle], ids[middle + 1 : -1]):
            segments.append([places[token] for token in segment if token != full_stop])
        if not all(segments):
            continue
        a, b = segments
        assert len({number for number, _ in a + b}) == 1
        is_swapped = a[0] > b[0]
        assert row["next_sentence_label"] == (IS_SWAPPED if is_swapped else IS_NEXT)
        first, second = (b, a) if is_swapped else (a, b)
        assert first[-1] < second[0]
        if len(ids) < 31:  # nothing was cut away but full stops
            assert second[0][1] - first[-1][1] <= 2
        labels[is_swapped] += 1
    total = labels.total()
    assert total > 300 and abs(labels[True] - total / 2) < 5 * math.sqrt(total / 4)


def test_the_form_of_swapped_pairs_hardly_tells(stories, word_tokenizer):
    """The sentence that fills a row is longer than others, and stands in the later segment, as in ALBERT: a small
    difference of the lengths is left."""
    pairs = swapped_pairs(stories[0] * 12, word_tokenizer)
    labels = np.array(pairs["next_sentence_label"])
    b = np.array([sum(segments) for segments in pairs["token_type_ids"]])
    a = np.array([len(segments) for segments in pairs["token_type_ids"]]) - b
    ends = np.array([ids[-2] == 5 for ids in pairs["input_ids"]])
    for x in (a, b, a + b, ends):
        assert abs(x[labels == 0].mean() - x[labels == 1].mean()) < 0.25 * x.std()


def test_one_document_makes_swapped_pairs(word_tokenizer):
    """No other document is needed."""
    pairs = swapped_pairs(["w1 w2 . w3 w4 . w5 w6 ."], word_tokenizer)
    assert len(pairs) == 1


def with_sources(documents, sources):
    """As `load_documents` makes them of several entries of --data."""
    label = datasets.ClassLabel(names=["first", "second", "third"])
    features = datasets.Features({"text": datasets.Value("string"), "source": label})
    return datasets.Dataset.from_dict({"text": documents, "source": sources}, features=features)


def test_random_segments_are_of_the_same_source(stories, word_tokenizer):
    """Two languages in the order of a mixture, without a word in common."""
    draw = random.Random(3)
    sources = [draw.choice([0, 0, 0, 0, 1]) for _ in stories[0]]
    source_of = {}
    for text, source in zip(stories[0], sources):
        source_of |= dict.fromkeys(
            word_tokenizer(text.replace(".", ""), add_special_tokens=False)["input_ids"], source
        )
    rows = make_sentence_pairs(with_sources(stories[0], sources), word_tokenizer, 32, 0.1, seed=1)
    seen = Counter()
    for row in rows:
        found = {source_of[token] for token in row["input_ids"] if token in source_of}
        assert len(found) <= 1
        seen[(row["next_sentence_label"], *found)] += 1
    assert min(seen[label, source] for label in (IS_NEXT, IS_RANDOM) for source in (0, 1)) > 20
    for source in (0, 1):
        total = seen[IS_NEXT, source] + seen[IS_RANDOM, source]
        assert abs(seen[IS_RANDOM, source] - total / 2) < 5 * math.sqrt(total / 4)


def test_a_source_without_another_document_makes_no_pairs(stories, word_tokenizer):
    documents = with_sources([*stories[0][:20], "w1. w2. w3."], [0] * 20 + [2])
    alone = make_sentence_pairs(documents, word_tokenizer, 32, 0.1, seed=1)
    rest = make_sentence_pairs(documents.select(range(20)), word_tokenizer, 32, 0.1, seed=1)
    assert alone["input_ids"][:] == rest["input_ids"][:]


def test_documents_of_one_segment_are_refused(word_tokenizer):
    for texts in (["w1 w2", "w3", "w4 w5 w6"], ["w1. w2.", "w1. w2."], ["w1. w2."]):
        with pytest.raises(
            ValueError, match="make no pair of segments; give different ones of several sentences"
        ):
            make_sentence_pairs(as_dataset(texts), word_tokenizer, 32, 0.1, seed=1)


def trained(tmp_path, objective, rows, tokenizer, batch, accumulation, architecture="bert"):
    """Two epochs without dropout; what was logged, and the weights."""
    sizes = dict(num_hidden_layers=1, hidden_dropout=0.0, attention_dropout=0.0)
    args = PretrainingConfig(
        str(tmp_path), objective=objective, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
        num_train_epochs=2, logging_steps=1, save_strategy="no", eval_strategy="no", use_cpu=True, disable_tqdm=True,
        optim="sgd", learning_rate=0.1, seed=0, bf16=False,
    )  # fmt: skip
    config = getattr(MiniBertConfig, architecture)("tiny", **sizes)
    trainer = PretrainingTrainer(
        config, args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer
    )
    trainer.train()
    return trainer.state.log_history, trainer.model.state_dict(), trainer


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_both_losses_are_logged_and_accumulation_changes_nothing(
    objective, tmp_path, word_tokenizer, pairs
):
    rows = pairs.select(range(32))
    whole, weights, _ = trained(tmp_path / "a", objective, rows, word_tokenizer, 16, 1)
    parts, other, _ = trained(tmp_path / "b", objective, rows, word_tokenizer, 4, 4)
    steps = [entry for entry in whole if "loss" in entry]
    assert len(steps) == 4
    pair_loss = f"{objective.removeprefix('mlm+')}_loss"
    for entry, accumulated in zip(steps, (entry for entry in parts if "loss" in entry)):
        assert entry["mlm_loss"] + entry[pair_loss] == pytest.approx(entry["loss"], abs=2e-4)
        for name in ("loss", "mlm_loss", pair_loss):
            assert accumulated[name] == pytest.approx(entry[name], abs=2e-4)
    for name, tensor in weights.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-4, atol=1e-5)


def test_evaluation_of_pairs_is_the_mean_over_all(tmp_path, word_tokenizer, pairs):
    rows = pairs.select(range(21))
    _, _, trainer = trained(tmp_path, "mlm+nsp", rows, word_tokenizer, 16, 1)
    figures = trainer.evaluate(rows)
    model = trainer.model.eval()
    batch = trainer.evaluation_collator([rows[i] for i in range(len(rows))])
    with torch.no_grad():
        outputs = model(**batch)
    labels = batch["labels"]
    scores = outputs.prediction_logits.double().log_softmax(-1)
    expected = -scores[labels != -100].gather(1, labels[labels != -100].unsqueeze(1)).mean()
    assert figures["eval_mlm_loss"] == pytest.approx(expected.item(), rel=1e-5)
    next_label = batch["next_sentence_label"]
    relation = outputs.seq_relationship_logits.double().log_softmax(-1)
    assert figures["eval_nsp_loss"] == pytest.approx(
        -relation[range(21), next_label].mean().item(), rel=1e-5
    )
    assert figures["eval_nsp_accuracy"] == pytest.approx(
        (relation.argmax(-1) == next_label).double().mean().item()
    )


@pytest.mark.parametrize("name", ["mlm", "rtd", "clm"])
def test_a_row_without_padding_trains_like_the_padded_batch(name, word_tokenizer, stories):
    tokenized = word_tokenizer(stories[0][:60], add_special_tokens=False)["input_ids"]
    rows = list(
        pack_documents(datasets.Dataset.from_dict({"input_ids": tokenized}), word_tokenizer, 64)
    )[:6]
    objective = make(name)
    collators = [
        objective.make_collator(word_tokenizer, unpadded=unpadded) for unpadded in (False, True)
    ]
    config = MiniBertConfig.from_tokenizer(word_tokenizer, "modernbert", "tiny", num_hidden_layers=2, hidden_size=32,
                                           local_attention=8, **objective.config_fields)  # fmt: skip
    torch.manual_seed(0)
    model = objective.make_model(config, config, word_tokenizer).train()
    found = []
    for collator in collators:
        batch = collator(rows)
        counts = objective.count_targets(batch)
        torch.manual_seed(1)
        outputs = model(**batch, **counts)
        outputs.loss.backward()
        score = objective.batch_sums(outputs, batch) if name != "clm" else torch.zeros(3)
        found.append(
            [
                outputs.loss.detach(),
                score,
                *counts.values(),
                *(p.grad.clone() for p in model.parameters()),
            ]
        )
        model.zero_grad()
    assert batch["input_ids"].shape == (1, sum(len(row["input_ids"]) for row in rows))
    for padded, unpadded in zip(*found):
        torch.testing.assert_close(unpadded, padded, rtol=1e-6, atol=1e-6)


def test_a_decoder_has_the_same_parameters_and_the_shifted_loss(word_tokenizer):
    config = MiniBertConfig.from_tokenizer(
        word_tokenizer, "modernbert", "tiny", num_hidden_layers=2
    )
    torch.manual_seed(0)
    model = MiniBertForCausalLM(config)
    assert model.num_parameters() == MiniBertForMaskedLM(config).num_parameters()
    documents = [[10, 11, 12, 13], [20, 21], [30, 31, 32]]
    packed = [[2, *documents[0], 3, 2, *documents[1], 3], [2, *documents[2], 3]]
    positions = [[0, 1, 2, 3, 4, 5, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
    rows = [{"input_ids": ids, "position_ids": place} for ids, place in zip(packed, positions)]
    batch = MaskedLMCollator(word_tokenizer, mlm=False, seed=0)(rows)
    assert (batch["labels"] != -100).sum() == sum(len(document) + 1 for document in documents)
    loss = model.eval()(**batch).loss
    total, count = 0.0, 0
    for document in documents:  # one by one, next-token cross-entropy in float64
        ids = torch.tensor([[2, *document, 3]])
        with torch.no_grad():
            scores = model(ids).logits.double().log_softmax(-1)[0]
        total -= scores[range(ids.shape[1] - 1), ids[0, 1:]].sum().item()
        count += ids.shape[1] - 1
    assert loss.item() == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_a_decoder_generates_token_by_token(architecture):
    """Greedily, for rows padded on the left, and sampled and with beams too."""
    torch.manual_seed(0)
    fields = dict(num_hidden_layers=2, vocab_size=50, initializer_range=0.5, is_causal=True)
    config = getattr(MiniBertConfig, architecture)("tiny", **fields)
    model = MiniBertForCausalLM(config).eval()
    prompts = [[7, 8, 9, 10, 11, 12], [13, 14, 15]]
    padded = torch.tensor(
        [[config.pad_token_id] * (6 - len(prompt)) + prompt for prompt in prompts]
    )
    mask = torch.tensor([[0] * (6 - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    options = {
        "attention_mask": mask,
        "max_new_tokens": 8,
        "pad_token_id": config.pad_token_id,
        "eos_token_id": None,
    }
    generated = model.generate(padded, do_sample=False, **options)
    for prompt, found in zip(prompts, generated[:, 6:].tolist()):
        with torch.no_grad():
            for token in found:
                assert model(input_ids=torch.tensor([prompt])).logits[0, -1].argmax() == token
                prompt.append(token)
    assert model.generate(padded, do_sample=True, **options).shape == (2, 14)
    assert model.generate(padded, do_sample=False, num_beams=3, **options).shape == (2, 14)


def test_smoothed_labels_are_those_of_the_masks(tmp_path, word_tokenizer, pairs):
    """The first step's loss: 0.8 of the cross-entropy at the masks, 0.2 of its mean over the vocabulary."""
    objective = make("mlm", seed=42)
    args = PretrainingConfig(
        str(tmp_path), per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=1, logging_steps=1,
        label_smoothing_factor=0.2, save_strategy="no", eval_strategy="no", use_cpu=True, disable_tqdm=True, bf16=False,
        embedding_init="random", packing="padded", seq_length=32,
    )  # fmt: skip
    config = MiniBertConfig.modernbert("tiny", num_hidden_layers=1, hidden_size=32)
    rows = pairs.select(range(16)).select_columns("input_ids")
    trainer = PretrainingTrainer(
        config, args, train_dataset=rows, eval_dataset=rows, processing_class=word_tokenizer
    )
    rows = trainer.train_dataset.select(range(16))
    trainer.train_dataset = rows
    with torch.no_grad():
        batch = objective.make_collator(word_tokenizer)([rows[i] for i in range(16)])
        labels = batch.pop("labels")
        scores = -trainer.model.eval()(**batch).logits.double().log_softmax(-1)[labels != -100]
    expected = 0.8 * scores.gather(1, labels[labels != -100][:, None]).mean() + 0.2 * scores.mean()
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    verbs, nouns = ["sees", "hears", "finds", "likes"], ["cat", "dog", "tree", "house", "river"]
    lines = [
        f"the {draw.choice(nouns)} {draw.choice(verbs)} the old {draw.choice(nouns)}."
        for _ in range(360)
    ]
    path.write_text("\n\n".join("\n".join(lines[i : i + 6]) for i in range(0, 360, 6)))
    return path


@pytest.fixture(scope="module")
def masked_lm(corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "mlm"
    assert cli.main(["pretrain", "--data", str(corpus), "--output_dir", str(output), "--max_steps", "3",
                     "--last_mlm_probability", "0.1", *QUICK]) == 0  # fmt: skip
    return output


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """Of documents that end after four tokens."""
    draw, folder = random.Random(2), tmp_path_factory.mktemp("decoder")
    documents = (
        f"the {draw.choice(['cat', 'dog', 'tree'])} {draw.choice(['sees', 'hears'])}."
        for _ in range(300)
    )
    (folder / "text.txt").write_text("\n".join(documents))
    assert cli.main(["pretrain", "--data", str(folder / "text.txt"), "--output_dir", str(folder / "run"),
                     "--objective", "clm", "--max_steps", "40", "--learning_rate", "1e-2", *QUICK]) == 0  # fmt: skip
    return folder / "run"


def test_a_decoder_stops_at_the_end_of_a_document(decoder):
    tokenizer, model = (
        AutoTokenizer.from_pretrained(decoder),
        AutoModelForCausalLM.from_pretrained(decoder),
    )
    assert (
        model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.sep_token_id
    )
    assert tokenizer.eos_token == tokenizer.sep_token and tokenizer.bos_token == tokenizer.cls_token
    assert tokenizer.convert_ids_to_tokens(tokenizer("the cat")["input_ids"]) == [
        "[CLS]",
        "the",
        "cat",
    ]
    pair = tokenizer("the", "cat")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == ["[CLS]", "the", "[CLS]", "cat"]
    prompt = tokenizer("the cat", return_tensors="pt")["input_ids"]
    ids = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=30, do_sample=False
    )[0].tolist()
    said = pipeline("text-generation", str(decoder))(
        "the cat", max_new_tokens=30, do_sample=False, return_tensors=True
    )
    assert said[0]["generated_token_ids"] == ids
    assert (
        ids[-1] == tokenizer.sep_token_id
        and ids.count(tokenizer.sep_token_id) == 1
        and len(ids) < 10
    )


def test_continued_training_with_longer_rows_and_another_rope_base(
    masked_lm, corpus, tmp_path, capsys
):
    output = tmp_path / "long"
    assert cli.main(["pretrain", "--data", str(corpus), "--output_dir", str(output),
                     "--model_name_or_path", str(masked_lm),
                     "--config_overrides",
                     '{"rope_parameters": {"full_attention": {"rope_theta": 999.0}}, "max_position_embeddings": 9000}',
                     "--learning_rate", "0", "--weight_decay", "0", "--max_steps", "1", "--seq_length", "64",
                     "--disable_tqdm", "true", "--bf16", "false", "--eval_strategy", "no"]) == 0  # fmt: skip
    config = json.loads((output / "config.json").read_text())
    assert config["rope_parameters"]["full_attention"]["rope_theta"] == 999.0
    assert config["max_position_embeddings"] == 9000
    before, after = (
        load_file(masked_lm / "model.safetensors"),
        load_file(output / "model.safetensors"),
    )
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (output / "tokenizer.json").read_text() == (masked_lm / "tokenizer.json").read_text()
    assert (
        len(AutoTokenizer.from_pretrained(output)("cat " * 9500, truncation=True)["input_ids"])
        == 9000
    )
    assert "lacks them" not in capsys.readouterr().out


def test_bad_input(masked_lm, corpus, word_tokenizer, tmp_path, capsys, monkeypatch):
    maskless = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer.backend_tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        pad_token="[PAD]",
    )  # fmt: skip
    maskless.save_pretrained(tmp_path / "maskless")
    monkeypatch.setattr(settings, "train_tokenizer", None)  # nothing is trained before the refusal
    for arguments, said in (
        (["--objective", "mlm+nsp"], "type_vocab_size: objective mlm+nsp needs 2 or more"),
        (["--objective", "mlm+sop"], "type_vocab_size: objective mlm+sop needs 2 or more"),
        (
            ["--objective", "mlm+nsp", "--model", "bert", "--short_seq_prob", "1.5"],
            "short_seq_prob must be",
        ),
        (
            ["--objective", "mlm+sop", "--model", "bert", "--seq_length", "4"],
            "seq_length: objective mlm+sop needs 5 or more",
        ),
        (
            ["--objective", "clm", "--config_overrides", "is_causal=false"],
            "is_causal: objective clm needs True",
        ),
        (
            ["--config_overrides", "is_causal=true"],
            "is_causal: objective mlm needs False, got True",
        ),
        (
            ["--objective", "clm", "--label_smoothing_factor", "0.1"],
            "label_smoothing_factor: objective clm has no",
        ),
        (
            ["--model_name_or_path", str(masked_lm), "--tokenizer", str(tmp_path / "maskless")],
            "has its own; leave",
        ),
        (
            ["--model_name_or_path", str(masked_lm), "--config_overrides", "hidden_size=64"],
            "lacks the weights",
        ),
        (["--tokenizer", str(tmp_path / "maskless")], "has no mask token"),
        (["--mlm_probability", "1.5"], "mlm_probability must be from 0 to 1, got 1.5"),
    ):
        output = tmp_path / "run"
        data = [] if "--data" in arguments else ["--data", str(corpus)]
        assert cli.main(["pretrain", *data, "--output_dir", str(output), *arguments]) == 2, (
            arguments
        )
        assert said in capsys.readouterr().err
        assert not output.exists()


@pytest.mark.parametrize(("name", "is_refused"), [("mlm", False), ("clm", False), ("rtd", True)])
def test_objectives_that_need_whole_matrices(name, is_refused, monkeypatch):
    """FSDP and DeepSpeed give each process a part of every matrix."""
    objective = make(name, optimizer="adamw")
    config = MiniBertConfig.minibert("tiny", **objective.config_fields)
    objective.check(config)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    refusal = (
        pytest.raises(ValueError, match="need whole matrices") if is_refused else nullcontext()
    )
    with refusal:
        objective.check(config)


def test_encoder_from_a_decoder_frames_texts_again(decoder, tmp_path):
    prompts, output = AutoTokenizer.from_pretrained(decoder), tmp_path / "run"
    run("pretrain", "--data", decoder.parent / "text.txt", "--model_name_or_path", decoder, "--output_dir", output,
        "--config_overrides", "is_causal=false", "--max_steps", 1, "--seq_length", 32)  # fmt: skip
    ids = AutoTokenizer.from_pretrained(output)("the cat")["input_ids"]
    assert ids == [*prompts("the cat")["input_ids"], prompts.sep_token_id]


@pytest.mark.parametrize(
    ("name", "rate", "masked"),
    [("mlm", 0.3, 0.8), ("mlm+nsp", 0.15, 0.8), ("mlm+sop", 0.15, 0.8), ("rtd", 0.15, 1.0)],
)
def test_masking_defaults(name, rate, masked):
    masking = make(name).masking_options
    assert (masking["mlm_probability"], masking["mask_replace_prob"]) == (rate, masked)
    assert make(name, mlm_probability=0.2).masking_options["mlm_probability"] == 0.2


def test_the_card_says_how_the_masking_ends(masked_lm):
    card = (masked_lm / "README.md").read_text()
    assert "last_mlm_probability 0.1," in card.replace("\\", "")


@pytest.mark.parametrize("name", ["mlm", "rtd"])
def test_a_model_that_lacks_weights_of_the_encoder_is_refused(name, word_tokenizer, tmp_path):
    config = MiniBertConfig.bert(
        "tiny", vocab_size=len(word_tokenizer), hidden_size=32, num_attention_heads=4
    )
    MiniBertForMaskedLM(config).save_pretrained(tmp_path)
    objective = make(name)
    assert objective.load(str(tmp_path), config)[0].num_parameters()
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.Wo.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="lacks the weights model.layers.1.mlp.Wo.weight"):
        objective.load(str(tmp_path), config)
