import random

import datasets
import matplotlib.image
import numpy as np
import pytest

from minibert.tokenization import train_tokenizer
from minibert.training.cli.main import main
from minibert.training.data import mask_stats
from minibert.training.data.collators import MaskedLMCollator
from minibert.training.data.masking import MASKING_KINDS

# The invented text has fewer words than a vocabulary can hold.
pytestmark = pytest.mark.filterwarnings("ignore:the texts gave a vocabulary")

WORDS = ["sun", "moonlight", "river", "seventeen", "of", "walks", "unbelievable", "tables", "and", "quickly"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rng = random.Random(0)
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    documents = (" ".join(rng.choices(WORDS, k=rng.randint(5, 200))) for _ in range(300))
    file.write_text("\n".join(documents), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def collator(corpus):
    texts = corpus.read_text(encoding="utf-8").splitlines()
    return MaskedLMCollator(train_tokenizer(texts, vocab_size=120, show_progress=False), seed=0, masking="whole_word")


@pytest.fixture(scope="module")
def rows(collator):
    rng = np.random.default_rng(0)
    return [{"input_ids": [2, *rng.integers(5, 60, rng.integers(1, 90)).tolist(), 3]} for _ in range(70)]


@pytest.fixture(autouse=True)
def small_and_apart(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(mask_stats, "VOCAB_SIZE", 400)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def command(corpus, folder, *more):
    data = [] if "--data" in more else ["--data", str(corpus)]
    return main(["mask-stats", *data, "--output_dir", str(folder), *more])


def test_the_command_prints_and_draws(corpus, tmp_path, capsys):
    assert command(corpus, tmp_path / "new" / "folder", "--tokens", "20000", "3000") == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines() if "±" in line]
    wanted = [
        [algorithm, kind, size]
        for algorithm in ("wordpiece", "bpe", "unigram")
        for kind in MASKING_KINDS
        for size in (3000, 20000)
    ]
    assert [line[:2] for line in lines] == [entry[:2] for entry in wanted]
    for line, (*_, size) in zip(lines, wanted):
        assert size <= int(line[2].replace(",", "")) < size + mask_stats.SEQ_LENGTH
        assert float(line[3]) == pytest.approx(15, abs=5)
        assert float(line[7]) == pytest.approx(80, abs=20)
    assert "0 of 72 rates" in printed
    written = (tmp_path / "new" / "folder" / "mask-stats.txt").read_text(encoding="utf-8")
    assert written in printed
    image = matplotlib.image.imread(tmp_path / "new" / "folder" / "mask-stats.png")
    assert image.shape[0] > 300 and image.shape[1] > 1000 and image.std() > 0.05


def test_a_wrong_rate_ends_the_command_with_1(corpus, tmp_path, capsys, monkeypatch):
    """A collator that leaves one [MASK] in ten unset."""

    class Wrong(MaskedLMCollator):
        def _mask(self, *arguments, **kwargs):
            masked, labels = super()._mask(*arguments, **kwargs)
            return np.where((masked == self.tokenizer.mask_token_id) & (labels % 10 == 0), labels, masked), labels

    monkeypatch.setattr(mask_stats, "MaskedLMCollator", Wrong)
    assert command(corpus, tmp_path, "--tokens", "20000", "--algorithms", "wordpiece", "--kinds", "token") == 1
    printed = capsys.readouterr().out
    assert "WRONG" in printed and "2 of 4 rates" in printed


def test_outcomes_are_counted(collator, rows):
    counts = mask_stats.count_outcomes(collator, rows, 1)
    assert len(counts) == mask_stats.BATCH_SIZE
    collator.set_progress(0)
    for row, found in zip(rows, counts):
        batch = collator([row])
        pairs = list(zip(row["input_ids"][1:-1], batch["input_ids"][0].tolist()[1:-1], batch["labels"][0].tolist()[1:]))
        targets = [(ids, read) for ids, read, label in pairs if label != -100]
        masked = sum(read == collator.tokenizer.mask_token_id for _, read in targets)
        kept = sum(ids == read for ids, read in targets)
        assert found.tolist() == [len(pairs), len(targets), masked, len(targets) - masked - kept, kept]


def test_counting_takes_as_many_epochs_as_it_needs(collator, rows):
    tokens = sum(len(row["input_ids"]) - 2 for row in rows)
    counts = mask_stats.count_outcomes(collator, rows, 3 * tokens)
    assert len(counts) == 3 * len(rows)
    assert counts[: len(rows), 1].tolist() != counts[len(rows) : 2 * len(rows), 1].tolist()
    with pytest.raises(ValueError, match="no document has a token"):
        mask_stats.count_outcomes(collator, [{"input_ids": [2, 3]}], 10)


def test_intervals_cover_the_truth(collator):
    """Simulated rows whose tokens share their fate in threes: 95 % of the intervals hold the expected rate."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(600):
        words = rng.integers(10, 60, size=200)
        targets = rng.binomial(words, 0.15)
        fates = np.array([rng.multinomial(target, [0.8, 0.1, 0.1]) for target in targets])
        counts = 3 * np.column_stack([words, targets, fates])
        rates = mask_stats.rates(collator, counts)
        assert list(rates) == ["chosen", "[MASK]", "random", "kept"]
        assert all(rate.deviation < mask_stats.TOLERANCE for rate in rates.values())
        covered.append([abs(rate.observed - rate.expected) <= rate.half_interval for rate in rates.values()])
    assert np.mean(covered, axis=0) == pytest.approx([0.95] * 4, abs=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "0"], "tokens: 0"),
        (["--kinds", "words"], "kinds: 'words' begins no name; use token, whole_word, span"),
        (["--algorithms", "char"], "algorithms: 'char' begins no name; use wordpiece, bpe, unigram"),
        (["--mlm_probability", "1.5"], "mlm_probability: 1.5 is no rate; use a number from 0 to 1"),
        (["--data", "missing.txt"], "'missing.txt' does not exist"),
    ],
)
def test_bad_arguments_are_refused(corpus, tmp_path, capsys, arguments, message, monkeypatch):
    monkeypatch.setattr(mask_stats, "train_tokenizer", None)  # nothing is trained before the error
    assert command(corpus, tmp_path / "out", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_is_a_file_is_refused(corpus, capsys):
    assert command(corpus, corpus) == 2
    assert "is a file; give a folder" in capsys.readouterr().err
