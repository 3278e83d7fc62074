"""What several tests use."""

import contextlib
import functools
import io
import json
import random
import re
from pathlib import Path

import torch

import minibert.modeling_minibert as modeling
from minibert.configuration_minibert import MiniBertConfig
from minibert.training import cli
from minibert.training.common.training_result import TrainingResult

# --- commands, and what they read ---

WORDS = [
    a + b for a in ("ka", "lo", "mi", "nu", "pe", "ri") for b in ("tan", "ver", "zol", "ben", "duk")
]


def sentences(count: int, seed: int = 0, longest: int = 20) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, longest))) for _ in range(count)]


def animal_sentences(count: int) -> list[str]:
    """Sentences in which the verb and the place follow from the animal."""
    habits = {
        "cat": ("sleeps", "roof"),
        "dog": ("barks", "yard"),
        "fish": ("swims", "pond"),
        "bird": ("sings", "tree"),
    }
    chance, made = random.Random(0), []
    for number in range(count):
        animal, (verb, place) = chance.choice(list(habits.items()))
        colour = chance.choice(["red", "green", "blue"])
        made.append(f"the {colour} {animal} number {number} {verb} near the old {place}")
    return made


def run(*arguments, capsys=None) -> str:
    """The command ends well; what it prints."""
    assert cli.main(list(map(str, arguments))) == 0
    return capsys.readouterr().out if capsys else ""


def refusal(capsys, *arguments) -> str:
    """The command refuses its arguments; what it says."""
    capsys.readouterr()
    assert cli.main(list(map(str, arguments))) == 2
    return capsys.readouterr().err


def snippet_and_output(card: str) -> tuple[str, str]:
    """The first snippet of a model card, and what the card says that it prints."""
    snippet = re.search(r"^```python\n(.*?\n)```$", card, re.DOTALL | re.MULTILINE)[1]
    output = re.search(r"^```text\n(.*?\n)```$", card, re.DOTALL | re.MULTILINE)[1]
    return snippet, output


def printed_by(snippet: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(snippet, {"__name__": "__main__"})
    return printed.getvalue()


def check_example(card: str) -> None:
    """The snippet prints what the card says."""
    snippet, output = snippet_and_output(card)
    assert printed_by(snippet) == output and output.strip()


def write_rows(path, rows) -> str:
    """Write jsonl, and give the name of the file back."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


# --- models ---

VOCAB, LABELS = 61, 3

HEADS = [
    name.removeprefix("MiniBert") for name in modeling.__all__ if name != "MiniBertPreTrainedModel"
]
DETECTOR = "ForReplacedTokenDetection"

BERT = dict(position_embedding_type="absolute", norm_placement="post", norm_eps=1e-12, norm_bias=True, gated_mlp=False,
            global_attn_every_n_layers=1, attention_bias=True, mlp_bias=True, head_bias=True, classifier_bias=True,
            add_pooling_layer=True, classifier_pooling="cls", type_vocab_size=2)  # fmt: skip
FAMILIES = {
    "bert": BERT, "modernbert": {}, "modernbert cls": dict(classifier_pooling="cls"), "causal": dict(is_causal=True),
}  # fmt: skip


def tiny(**fields) -> MiniBertConfig:
    """Two layers with windows shorter than the texts, and weights large enough for everything to show."""
    defaults = dict(
        vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        local_attention=4, layer_types=None, global_attn_every_n_layers=2, max_position_embeddings=40,
        initializer_range=0.2, scaled_output_init=False, num_labels=LABELS,
    )  # fmt: skip
    return MiniBertConfig(**defaults | fields)


def build(head: str, seed: int = 0, **fields):
    """A model with random norms and biases too."""
    torch.manual_seed(seed)
    model = getattr(modeling, f"MiniBert{head}")(tiny(**fields))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


# What goes to the Hub beside the weights.
CODE = {
    "attention_minibert.py",
    "compat_minibert.py",
    "configuration_minibert.py",
    "cpu_minibert.py",
    "dispatch_minibert.py",
    "losses_minibert.py",
    "modeling_minibert.py",
    "rope_minibert.py",
    "sequences_minibert.py",
}


def save_model(folder, tokenizer, preset: str = "bert", head: str = "Model", **fields) -> str:
    """A tiny random model without dropout, with its tokenizer; the name of the folder."""
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    fields = shape | dict(hidden_dropout=0.0, attention_dropout=0.0) | fields
    torch.manual_seed(0)
    config = MiniBertConfig.from_tokenizer(tokenizer, preset, "tiny", **fields)
    getattr(modeling, f"MiniBert{head}")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


# --- rows for collators ---

SYLLABLES = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]


def make_texts(count, seed):
    """Documents of 3 to 60 invented words of one to four syllables, frequent ones and rare ones."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(3000)]
    weights = [1 / rank for rank in range(1, 3001)]
    return [" ".join(rng.choices(words, weights, k=rng.randint(3, 60))) + "." for _ in range(count)]


TEXTS = make_texts(800, seed=0)


@functools.cache
def padded_rows(tokenizer):
    return [{"input_ids": ids} for ids in tokenizer(TEXTS, truncation=True)["input_ids"]]


@functools.cache
def packed_rows(tokenizer, documents_a_row=5):
    rows = []
    ids = tokenizer(TEXTS, truncation=True)["input_ids"]
    for start in range(0, len(ids), documents_a_row):
        documents = ids[start : start + documents_a_row]
        positions = [position for document in documents for position in range(len(document))]
        rows.append(
            {
                "input_ids": [token for document in documents for token in document],
                "position_ids": positions,
            }
        )
    return rows


def batches(rows, size=32):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def same(first, second):
    """Two lists of batches hold the same, key by key."""
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(first, second)
    )


def undocumented_fields(report) -> set[str]:
    """The fields of a training's report that docs/python.md and the docstring of its class lack."""
    page = (Path(__file__).parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
    prefixes = re.findall(r"`(\w+_)…`", TrainingResult.__doc__)
    undocumented = set()
    for name in report:
        in_docstring = f"`{name}`" in TrainingResult.__doc__ or name.startswith(tuple(prefixes))
        if f"`{name}`" not in page or not in_docstring:
            undocumented.add(name)
    return undocumented
