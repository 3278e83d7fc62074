import pytest
import torch
from helpers import write_rows
from toy_reviews import sentences

from minibert import MiniBertConfig, MiniBertModel, train_tokenizer


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A tiny BERT as MiniBERT, without dropout and untrained, with its tokenizer."""
    folder = tmp_path_factory.mktemp("start")
    texts = [text for text, *_ in sentences(200)]
    tokenizer = train_tokenizer([*texts, "nothing something new on left right"], vocab_size=120, show_progress=False)
    torch.manual_seed(0)
    config = MiniBertConfig.from_tokenizer(
        tokenizer, "bert", "tiny", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    MiniBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Texts that are good or bad."""
    folder = tmp_path_factory.mktemp("data")
    for seed, (name, count) in enumerate({"train": 320, "validation": 40, "test": 60}.items()):
        write_rows(folder / f"{name}.jsonl", [
            {"text": text, "label": "good" if good else "bad"} for text, good, _ in sentences(count, seed)
        ])  # fmt: skip
    return str(folder)
