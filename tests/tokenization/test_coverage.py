"""What tokenizers lose is counted and refused; hostile ones are refused in one line, in bounded time."""

import json
import random
import re
from collections import Counter

import datasets
import pytest
from helpers import TEXTS, refusal, run
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from minibert import MiniBertConfig, PretrainingConfig, PretrainingTrainer
from minibert.tokenization import (
    check_coverage,
    check_loaded_tokenizer,
    measure_coverage,
    train_tokenizer,
)
from minibert.training.data.documents import load_sources
from minibert.training.data.tokenized import check_tokenization
from minibert.training.loading.tokenizers import saved_tokenizer

pytestmark = pytest.mark.usefixtures("cache")
MARKED = {
    "hi": ["में", "म", "दिन", "दीन"],
    "th": ["เสือ", "เสื้อ", "เสื่อ", "ไกล", "ใกล้"],
    "vi": ["ma", "má", "mà", "mả", "mã", "mạ"],
    "de": ["schon", "schön"],
}


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("language", MARKED)
def test_words_that_marks_tell_apart_stay_apart(language, algorithm):
    words = MARKED[language]
    for strip in (False, True):
        tokenizer = train_tokenizer(
            [" ".join(words)] * 50,
            algorithm,
            400,
            strip_accents=strip,
            lowercase=True,
            show_progress=False,
        )
        ids = {tuple(tokenizer(word)["input_ids"]) for word in words}
        coverage = check_coverage(tokenizer, words)  # what is asked for is not refused
        assert (len(ids) == len(words)) == (not strip)
        assert bool(coverage.lost) == strip and coverage.lost_marks == coverage.lost.total()


def test_coverage_counts():
    tokenizer = train_tokenizer(
        ["one two , three four do not"] * 9, vocab_size=70, show_progress=False
    )
    coverage = measure_coverage(tokenizer, ["one TWO", "one, thrée do not", "ßx one"])
    # [UNK] for thrée and ßx: 6 + 3 characters (é is e with a mark, ß is ss) of 6 + 4 + 6 + 5 + 3 + 3
    assert (
        coverage.num_words,
        coverage.num_tokens,
        coverage.num_unknown,
        coverage.num_characters,
    ) == (8, 9, 2, 27)
    assert coverage.lost == Counter("thre\u0301essx") and coverage.lost_marks == 1
    assert coverage.num_tokens / coverage.num_words == 9 / 8 and coverage.lost_share == 9 / 27
    assert (
        "22.22% of the tokens are unknown; 33.33% of the characters are lost" in coverage.describe()
    )


def test_text_without_spaces_is_refused(tmp_path, capsys):
    draw = random.Random(1)
    lines = ["".join(draw.choices("ACGT", k=draw.randint(50, 400))) for _ in range(200)]
    text = tmp_path / "dna.txt"
    text.write_text("\n".join(lines))
    for command in ("pretrain", "tokenizer"):
        said = refusal(capsys, command, "--data", text, "--output_dir", tmp_path / command)
        assert "of the characters are lost" in said and "--algorithm bpe or unigram" in said
        assert not (tmp_path / command / "tokenizer.json").exists()
    said = run(
        "tokenizer",
        "--data",
        text,
        "--algorithm",
        "bpe",
        "--vocab_size",
        400,
        "--output_dir",
        tmp_path / "bpe",
    )
    stream = load_sources([str(text)], streaming=True)[0]
    with pytest.raises(ValueError, match="of the characters are lost"):
        check_tokenization(stream, train_tokenizer(lines, vocab_size=400, show_progress=False))


def test_a_tokenizer_of_another_language_is_refused(capsys):
    """As a tokenizer that is given for text in another script; a few rare characters are only told."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=500, show_progress=False)
    with pytest.raises(ValueError, match="100.00% of the tokens are unknown"):
        check_coverage(tokenizer, ["Ένα κείμενο"] * 9)
    documents = datasets.Dataset.from_dict({"text": [*TEXTS[:300], "一"]})
    coverage = check_tokenization(documents, tokenizer)
    assert coverage.lost == Counter("一") and coverage.num_unknown == 1
    assert f"Tokenizer: {coverage.describe()}\n" == capsys.readouterr().out


def test_long_words_are_refused_where_other_losses_are_not():
    """Thai has spaces between clauses: WordPiece is trained on it, but reads no clause of more than 100 characters.
    English with some Chinese and emoji in it loses as much."""
    draw, letters = random.Random(1), "".join(map(chr, range(0x0E01, 0x0E11)))
    lengths = ([120] + [30] * 99) * 3
    thai = ["".join(draw.choices(letters, k=length)) for length in lengths]
    tokenizer = train_tokenizer(thai, vocab_size=100, show_progress=False)
    coverage = measure_coverage(tokenizer, thai)
    assert (
        coverage.lost.total() == coverage.num_in_long_words == 360
        and coverage.num_characters == sum(lengths)
    )
    with pytest.raises(
        ValueError, match="no word of more than 100 characters.* --max_lost_text 0.04"
    ):
        check_coverage(tokenizer, thai)
    check_coverage(tokenizer, thai, max_lost_text=0.04)
    check_coverage(train_tokenizer(thai, "unigram", 300, show_progress=False), thai)

    english = train_tokenizer(TEXTS, vocab_size=500, show_progress=False)
    mixed = [text + (" 一二三四五六七八 🎉" if i % 2 == 0 else "") for i, text in enumerate(TEXTS)]
    assert 0.02 < check_coverage(english, mixed).lost_share < 0.05


def test_max_lost_text_allows_a_lossy_tokenizer(tmp_path, capsys):
    """As with bert-base-uncased, which does not say `strip_accents`, on Czech or Vietnamese."""
    czech = [f"příliš žluťoučký kůň úpěl ďábelské ódy {i}" for i in range(60)]
    tokenizer = train_tokenizer(czech, vocab_size=150, strip_accents=True, show_progress=False)
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.save_pretrained(tmp_path / "uncased")
    (tmp_path / "text.txt").write_text("\n".join(czech), encoding="utf-8")
    rows = [
        "--tokenizer",
        tmp_path / "uncased",
        "--data",
        tmp_path / "text.txt",
        "--output_dir",
        tmp_path / "rows",
    ]
    said = refusal(capsys, "prepare", *rows)
    limit = re.search(r"--max_lost_text (0\.\d+)", said)
    run("prepare", *rows, *limit[0].split())
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="max_lost_text must be from 0 to 1"):
            check_coverage(tokenizer, czech, wrong)
    config = PretrainingConfig(
        tmp_path / "trained", report_to="none", max_steps=1, seq_length=32, use_cpu=True
    )
    model = MiniBertConfig.minibert("tiny", num_hidden_layers=1)
    train = datasets.Dataset.from_dict({"text": czech})
    with pytest.raises(ValueError, match="--max_lost_text"):
        PretrainingTrainer(model, config, train_dataset=train, processing_class=tokenizer)
    config.max_lost_text = 0.9
    PretrainingTrainer(model, config, train_dataset=train, processing_class=tokenizer)


def replace(content, times, pattern=None):
    steps = [{"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}] * times
    return {"type": "Sequence", "normalizers": steps}


@pytest.mark.parametrize(
    "change, said",
    [
        ({}, r"cannot read text: WordPiece error: Missing \[UNK\]"),
        (dict(pre_tokenizer={"type": "FixedLength", "length": 0}), "cannot read text: chunk size"),
        (dict(normalizer=replace("a" * 50, 9)), "the normalizer of .* multiplies a text"),
        (dict(normalizer=replace("aa", 60)), "the normalizer of .* multiplies a text"),
        (dict(normalizer=replace("b" * 10**6, 1)), "multiplies a text"),
        (dict(normalizer=replace("ab" * 90, 2, {"Regex": ""})), "multiplies a text"),
        (
            dict(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "cannot be read",
        ),
    ],
)
def test_hostile_tokenizers_are_refused(tmp_path, change, said, capfd):
    """The saved state of a WordPiece tokenizer, changed; or without its [UNK]."""
    train_tokenizer(TEXTS[:50], vocab_size=200, show_progress=False).save_pretrained(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text()) | change
    if not change:
        del state["model"]["vocab"]["[UNK]"]
        state["added_tokens"] = [
            token for token in state["added_tokens"] if token["content"] != "[UNK]"
        ]
        settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
        settings.pop("unk_token")
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=said):
        saved_tokenizer(tmp_path)


@pytest.mark.parametrize("longest", [0, -5, "512", True])
def test_a_length_without_room_is_refused(tmp_path, longest):
    train_tokenizer(TEXTS[:50], vocab_size=200, show_progress=False).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(settings | {"model_max_length": longest})
    )
    with pytest.raises(
        ValueError, match=f"model_max_length={longest!r}; put its longest input there"
    ):
        saved_tokenizer(tmp_path)


def test_ordinary_replacements_are_not_refused():
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    pairs = [("``", '"'), ("…", "..."), ("½", "1/2"), ("&", " and "), ("№", "number")] * 20
    backend.normalizer = normalizers.Sequence([normalizers.Replace(*pair) for pair in pairs])
    check_loaded_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"))
