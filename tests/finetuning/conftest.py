import pytest
from helpers import save_model, write_rows
from toy_reviews import sentences

from minibert import train_tokenizer


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A tiny BERT as MiniBERT, without dropout and untrained, with its tokenizer."""
    texts = [text for text, *_ in sentences(200)]
    tokenizer = train_tokenizer(
        [*texts, "nothing something new on left right"], vocab_size=120, show_progress=False
    )
    return save_model(tmp_path_factory.mktemp("start"), tokenizer, max_position_embeddings=32)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Texts that are good or bad."""
    folder = tmp_path_factory.mktemp("data")
    for seed, (name, count) in enumerate({"train": 320, "validation": 40, "test": 60}.items()):
        write_rows(folder / f"{name}.jsonl", [
            {"text": text, "label": "good" if good else "bad"} for text, good, _ in sentences(count, seed)
        ])  # fmt: skip
    return str(folder)
