"""The model card: true for every head, valid metadata, and nothing on it that a file could have smuggled in."""

import ast
import dataclasses
import json
import math
import re
import shutil

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from transformers import AutoTokenizer, Trainer, TrainingArguments

from minibert import MiniBertConfig, MiniBertForMaskedLM, modeling_minibert, train_tokenizer
from minibert.training.common.printable import printable
from minibert.training.data.entries import describe_data
from minibert.training.hub import push as hub_push
from minibert.training.hub.card import HEADS, card_to_upload, render_card, save_card
from minibert.training.hub.example import Example
from minibert.training.hub.facts import (
    CardFacts,
    CardMetric,
    SplitFacts,
    facts_from_trainer,
)
from minibert.training.hub.markdown import code, one_line, plain
from minibert.training.pretraining.card import pretraining_card_facts

FACTS = CardFacts(
    data="owner/corpus, notes.txt",
    training={"steps": "1,234 (2.00 epochs)", "time": "5.0 minutes"},
    results=[
        CardMetric("perplexity", 12.21, "held-out documents", "validation", 99.5),
        CardMetric("accuracy", 0.5, "SST-2", "validation"),
    ],
    baseline_name="unigram frequencies",
    base_model="owner/base",
    license="mit",
    language="en",
    max_length=64,
)
# The Hub's names of tasks, as far as its heads are concerned (huggingface.co/tasks).
TASKS = {
    "MiniBertModel": "feature-extraction", "MiniBertForPreTraining": "fill-mask", "MiniBertForMaskedLM": "fill-mask",
    "MiniBertForCausalLM": "text-generation", "MiniBertForSequenceClassification": "text-classification",
    "MiniBertForTokenClassification": "token-classification", "MiniBertForQuestionAnswering": "question-answering",
    "MiniBertForMultipleChoice": "multiple-choice",
}  # fmt: skip
SAVED = [name for name in HEADS if hasattr(modeling_minibert, name)]
VARIANTS = [(name, ("modernbert", "bert")[i % 2], {}) for i, name in enumerate(SAVED)]
VARIANTS += [("MiniBertForMaskedLM", "bert", {})]  # its mask is written otherwise
VARIANTS += [
    ("MiniBertForSequenceClassification", "modernbert", {"num_labels": 1}),
    (
        "MiniBertForSequenceClassification",
        "bert",
        {"problem_type": "multi_label_classification", "num_labels": 3},
    ),
]


@pytest.fixture(scope="module")
def tokenizers():
    texts = [
        "a good book, a dull book",
        "who wrote it? a friend of mine",
        "take an umbrella if it rains",
    ] * 20
    return {
        "bert": train_tokenizer(texts, vocab_size=60, show_progress=False),
        "modernbert": train_tokenizer(
            texts, "bpe", vocab_size=300, show_progress=False
        ),  # <mask> is written otherwise
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tokenizers):
    """Folders with saved models, made when they are asked for."""
    folders = {}

    def save(name, architecture="modernbert", changes=None):
        key = (name, architecture, str(changes))
        if key not in folders:
            folder = folders[key] = tmp_path_factory.mktemp(name) / "model"
            changes = dict(changes or {}) | (
                {"is_causal": True} if name == "MiniBertForCausalLM" else {}
            )
            config = MiniBertConfig.from_tokenizer(
                tokenizers[architecture], architecture, "tiny", num_hidden_layers=1, **changes
            )
            getattr(modeling_minibert, name)(config).save_pretrained(folder)
            tokenizers[architecture].save_pretrained(folder)
        return folders[key]

    return save


def snippets(card):
    return re.findall(r"^```python\n(.*?\n)```$", card, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "architecture", "changes"),
    VARIANTS,
    ids=["-".join(map(str, (a, b, *c))) for a, b, c in VARIANTS],
)
def test_every_snippet_runs(name, architecture, changes, saved, tmp_path, monkeypatch, capsys):
    """As it stands on the card of this very model, for every head."""
    monkeypatch.chdir(tmp_path)
    folder = saved(name, architecture, changes)
    card = render_card(folder, CardFacts(), str(folder))
    found = snippets(card)
    pretrained = ("ForPreTraining", "MaskedLM", "CausalLM", "NextSentencePrediction")
    assert len(found) == 3 if name.endswith(pretrained) else len(found) >= 1
    for snippet in found:
        compile(snippet, "card", "exec")
        exec(snippet, {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "nan" not in printed.lower()
    assert card.count("```") % 2 == 0 and "{{" not in card and "{%" not in card


def test_data_sets_of_a_mixture(saved):
    data = "de=owner/corpus:2024, de=owner/more, haw=train.txt, code=owner/code"
    card = ModelCard(
        render_card(saved(SAVED[0]), dataclasses.replace(FACTS, data=data), "owner/model")
    )
    assert card.data.datasets == ["owner/corpus", "owner/more", "owner/code"]


@pytest.mark.parametrize("name", SAVED)
def test_metadata_of_every_head(name, saved):
    card = ModelCard(render_card(saved(name), FACTS, "owner/model"))
    assert card.data.pipeline_tag == TASKS.get(name)
    assert card.data.library_name == "transformers" and "minibert" in card.data.tags
    assert (
        card.data.license == "mit"
        and card.data.base_model == "owner/base"
        and card.data.language == ["en"]
    )
    assert card.data.datasets == ["owner/corpus"]
    for snippet in snippets(card.text):
        assert (
            'model_id = "owner/model"\n' in snippet
            and 'revision="main", trust_remote_code=True' in snippet
        )


def test_results_are_a_valid_model_index(saved):
    """They read back through huggingface_hub as what went in, and are in the table."""
    text = render_card(saved("MiniBertForMaskedLM"), FACTS, "owner/model")
    metadata = yaml.safe_load(text.split("---")[1])
    name, results = model_index_to_eval_results(metadata["model-index"])
    assert name == "model"
    assert [
        (each.metric_type, each.metric_value, each.dataset_name, each.dataset_split)
        for each in results
    ] == [
        ("accuracy", 0.5, "SST-2", "validation"),
        ("perplexity", 12.21, "held-out documents", "validation"),
    ]
    assert "| perplexity | held-out documents | 12.2 | 99.5 |" in text
    assert "| accuracy | SST-2 | 0.5000 | – |" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"norm_bias": False}, "without bias"),
        ({"gated_mlp": True}, "gated MLP (gelu) of width 192"),
        ({"is_causal": True}, "decoder"),
        ({"local_attention": 32}, "16 tokens"),
        ({"embedding_size": 32}, "width 32"),
        ({"share_layers": True}, "4 passes through one layer (shared weights), width 128"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "rotary positions (RoPE), scaled (linear)",
        ),
        ({"converted_from": "bert"}, "bert checkpoint"),
    ],
)
def test_switches_in_words(changes, said, tmp_path):
    config = MiniBertConfig.modernbert("tiny", architectures=["MiniBertForMaskedLM"], **changes)
    config.save_pretrained(tmp_path)
    card = render_card(tmp_path, CardFacts(), "a/b")
    [described] = [section for section in card.split("## ") if section.startswith("Architecture")]
    assert described.startswith("Architecture") and said in described


# --- whose card it is ---


def test_a_card_is_written_anew_but_a_project_keeps_its_readme(saved, tmp_path):
    folder = saved("MiniBertForMultipleChoice")
    path = folder / "README.md"
    for license in ("mit", "apache-2.0"):
        save_card(folder, dataclasses.replace(FACTS, license=license))
        assert f"license: {license}" in path.read_text()
    for other in (b"# My project\n", b"---\na: [\n---\n", b"\xff"):
        path.write_bytes(other)
        save_card(folder, FACTS)
        assert path.read_bytes() == other
    path.unlink()


def test_what_was_written_by_hand_goes_up(saved, capsys):
    """Only what names the folder names the repository then, and the licence is added on demand."""
    folder = saved("MiniBertForMaskedLM", "bert")
    path = folder / "README.md"
    save_card(folder, FACTS)
    path.write_text(path.read_text().replace("## Limits", "## Limits\n\nIt cannot whistle."))
    text = card_to_upload(folder, "me/other", "draft", "gpl-3.0")
    card = ModelCard(text)
    assert (
        "It cannot whistle." in text and str(folder) not in text and 'model_id = "me/other"' in text
    )
    assert 'revision="draft"' in text and 'revision="main"' not in text
    assert (card.data.license, card.data.model_name, card.data.base_model) == (
        "gpl-3.0",
        "other",
        "owner/base",
    )
    path.write_text("---\ntags: [mine]\n---\n# My own\n\n`model_id = 5`\n")
    assert (
        card_to_upload(folder, "me/other") == path.read_text()
        and "no licence" in capsys.readouterr().out
    )
    path.unlink()
    assert 'model_id = "me/other"' in card_to_upload(folder, "me/other")


@pytest.mark.parametrize(
    ("kind", "task"),
    [("SentenceTransformer", "sentence-similarity"), ("CrossEncoder", "text-ranking")],
)
def test_a_card_that_sentence_transformers_generated_is_not_published(
    kind, task, saved, tmp_path, monkeypatch, capsys
):
    """It loads a placeholder, without trust_remote_code. What goes up in its place runs."""
    import sentence_transformers

    import minibert

    monkeypatch.setattr(
        hub_push, "verify_remote_code", lambda _: {"saved": "x", "auto_classes": []}
    )
    name, more = ("MiniBertModel", {}) if kind == "SentenceTransformer" else (
        "MiniBertForSequenceClassification", {"num_labels": 1}
    )  # fmt: skip
    source = saved(name, "bert", more)
    getattr(sentence_transformers, kind)(str(source), device="cpu").save_pretrained(
        str(tmp_path / "model")
    )
    before = (tmp_path / "model" / "README.md").read_text()
    assert "s_model_id" in before or "r_model_id" in before
    assert "README.md" in minibert.push(str(tmp_path / "model"), "me/x", dry_run=True)["files"]
    card = card_to_upload(tmp_path / "model", "me/x")
    assert (
        not re.search(r"\w_model_id", card)
        and (tmp_path / "model" / "README.md").read_text() == before
    )
    assert (
        ModelCard(card).data.pipeline_tag == task
        and ModelCard(card).data.library_name == "sentence-transformers"
    )
    (snippet,) = snippets(card)
    assert (
        f'{kind}(model_id, revision="main", trust_remote_code=True)' in snippet
        and 'model_id = "me/x"' in snippet
    )
    capsys.readouterr()
    exec(snippet.replace('"me/x"', repr(str(tmp_path / "model"))), {"__name__": "__main__"})
    assert len(re.findall(r"\d\.\d+", capsys.readouterr().out)) == (
        4 if kind == "SentenceTransformer" else 2
    )


# --- names and texts from files ---

HOSTILE = [
    "x](http://evil) <script>a()</script> | `b`\n---\nlicense: evil\n---\n# Title",
    "<img src=x onerror=a()>&lt;b&gt; ![x](http://evil) [y]: http://evil www.evil.example ~~z~~ **w** __v__",
    '"); import os; os.system("x") #',
    '\'\n```\n# Title\n"""\\',
    "\x1b[31mred\u202egnp.exe\u2066",
    "{{ config }}{% raw %}",
    "$$\\href{http://evil}{y}$$ WWW.evil.example",
    "z" * 100_000,
]


def prose(card):
    """The body of a card without its code, what that prints, and escaped characters."""
    body = re.sub(
        r"^```(python|text)\n.*?\n```$",
        "",
        card.split("\n---\n", 1)[1],
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"\\.", "", body)


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_card_shows_texts_as_they_are(hostile, saved):
    """In every field: no link, markup, cell, heading, code or metadata comes from it, and it is bounded."""
    fields = [field.name for field in dataclasses.fields(CardFacts)]

    def facts_of(text):
        changes = dict(
            training={text: text},
            results=[
                CardMetric(text, 0.5, text, text, 0.5, (0.4, 0.6), 0.5),
                CardMetric("x", 0.5, "x", "y"),
            ],
            tags=[text],
            by_class={text: {text: 0.5}},
            splits={text: SplitFacts(3, text, {text: 2}, 3)},
            decisions=[text],
            notes=[text],
            example=Example({"text": "x"}, text, text),
            base_languages=[text],
            datasets=[text],
            are_comparable=True,
            max_answer_length=30,
            pipeline_scores={text: 0.5},
        )
        return CardFacts(**dict.fromkeys(fields, text) | changes)

    text = render_card(saved("MiniBertForMaskedLM"), facts_of(hostile), "me/model")
    expected = render_card(saved("MiniBertForMaskedLM"), facts_of("x"), "me/model")
    metadata = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert (
        metadata["license"] == metadata["tags"][1] == metadata["language"][0] == one_line(hostile)
    )
    assert "base_model" not in metadata and metadata["library_name"] == "transformers"
    assert snippets(text) == snippets(expected)
    assert prose(text).count("\n") == prose(expected).count("\n")
    for mark in "<>`[]|#*~$":
        assert prose(text).count(mark) == prose(expected).count(mark), mark
    assert not re.search(r"://|www\.", prose(text), re.IGNORECASE)
    assert all(printable(line) == line for line in text.split("\n")) and len(text) < 40_000


def test_a_file_puts_no_code_into_the_snippets(saved, tmp_path):
    """The mask token comes from tokenizer.json, the strings of the architecture from config.json."""
    tokenizer = AutoTokenizer.from_pretrained(saved("MiniBertForMaskedLM", "bert"))
    for number, hostile in enumerate(HOSTILE[:5]):
        folder = tmp_path / str(number)
        tokenizer.add_special_tokens({"mask_token": hostile})
        config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1)
        MiniBertForMaskedLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"converted_from": hostile}))
        text = render_card(folder, CardFacts(), f"me/{hostile}")
        nodes = [node for snippet in snippets(text) for node in ast.walk(ast.parse(snippet))]
        texts = []
        for node in nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "text":
                texts.append(ast.literal_eval(node.value))
        assert texts == [f"The capital of France is {hostile}."]
        assert "os" not in {node.id for node in nodes if isinstance(node, ast.Name)}
        assert (
            "weights converted from a" in text and "<" not in prose(text) and "\u202e" not in text
        )


def test_quotes():
    assert (
        plain("seq_length 128, my_data/x.txt (50 %), f1_PER")
        == "seq_length 128, my_data/x.txt (50 %), f1_PER"
    )
    assert code("a'b") == '"a\'b"' and code('a"b\u202e') == "'a\"b\\u202e'"
    assert ast.literal_eval(code("a'\"\\\n")) == "a'\"\\\n"
    with pytest.raises(ValueError, match="characters"):
        code("x" * 10_000)


# --- what a reader sees ---


def test_headline_metrics_first_and_rounded(saved):
    """No digits that mean nothing; losses last, nothing that is no number."""
    metrics = ["loss", "precision", "f1", "accuracy"]
    results = [
        CardMetric(name, 0.123456789012345, "tweets", split)
        for split in ("validation", "test")
        for name in metrics
    ]
    results += [CardMetric("recall", math.nan, "tweets", "test")]
    card = render_card(saved("MiniBertForTokenClassification"), CardFacts(results=results), "a/b")
    shown = re.findall(r"^\| (\w+) \| tweets \((\w+)\) \|", card, re.MULTILINE)
    assert shown == [
        (x, split)
        for x in ("f1", "accuracy", "precision", "loss")
        for split in ("validation", "test")
    ]
    assert "| f1 | tweets (test) | 0.1235 |" in card and "0.12345" not in card


def test_what_guessing_reaches_is_no_headline(saved):
    """0.95 at 95 rows of 100 in one class, however well that looks."""
    figures = {"accuracy": (0.95, 0.95), "f1_macro": (0.62, 0.5), "mse": (0.2, 0.1)}
    results = [CardMetric(name, x, "reviews", "test", base) for name, (x, base) in figures.items()]
    facts = CardFacts(
        results=results, baseline_name="guessing", warning="worse than guessing *here*"
    )
    card = render_card(saved("MiniBertForSequenceClassification"), facts, "a/b")
    assert re.findall(r"^\| (\w+) \| reviews", card, re.MULTILINE) == [
        "f1_macro",
        "accuracy",
        "mse",
    ]
    assert (
        "| f1_macro | reviews | 0.6200 | 0.5000 |" in card
        and "**Warning: worse than guessing \\*here\\*.**" in card
    )


def test_a_local_base_model_is_not_named(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "base").mkdir(parents=True)
    for base in ("runs/base", "/somewhere/else", "runs/minibert/checkpoint-5"):
        card = ModelCard(render_card(saved("MiniBertModel"), CardFacts(base_model=base), "a/b"))
        assert card.data.base_model is None


def test_data_is_named_without_folders(tmp_path):
    path = tmp_path / "diary.txt"
    path.touch()
    assert (
        describe_data([str(path), "owner/corpus", "the built-in corpus"])
        == "diary.txt, owner/corpus, the built-in corpus"
    )
    elsewhere = [
        "/home/me/private/*.jsonl",
        "de=/home/me/x.txt",
        "fr=owner/corpus:fr",
        "~/notes.txt",
        "rows/of/others.txt",
    ]
    assert (
        describe_data(elsewhere) == "*.jsonl, de=x.txt, fr=owner/corpus:fr, notes.txt, others.txt"
    )
    assert describe_data(["/home/me=private/x.txt"]) == "x.txt"
    assert describe_data(["/home/me, private/x.txt", "y.txt"]) == "x.txt, y.txt"


def test_folders_whose_names_look_like_the_hubs(saved, tmp_path, monkeypatch):
    """What is a file or a folder here is named without its folder, whatever signs it has."""
    monkeypatch.chdir(tmp_path)
    names = {
        "patients/2026-01-01T10:30.csv": "2026-01-01T10:30.csv",
        "patient=Alice/notes.csv": "notes.csv",
        "patient=Alice/notes/of/Bob": "Bob",
        "patients/Alice": "Alice",
        "patients/Bob ": "Bob ",
    }
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text\nx\n")
    for name, shown in {
        **names,
        "patient=Alice/*.csv": "*.csv",
        "de=patients/Alice": "de=Alice",
    }.items():
        assert describe_data([name]) == shown
        card = ModelCard(render_card(saved(SAVED[0]), CardFacts(data=describe_data([name])), "a/b"))
        assert card.data.datasets is None
    # `datasets` loads the folder for both
    assert describe_data(["patients/Alice:default"]) == "Alice:default"
    # a name of a file is none of the Hub, even if that file is gone
    assert describe_data(["patients/gone.csv"]) == "gone.csv"


@pytest.mark.parametrize("path", [".", "..", "./", "../", "/", "de=."])
def test_a_folder_that_is_given_without_its_name_has_one(path, tmp_path, monkeypatch):
    folder = tmp_path / "corpus"
    (folder / "corpus").mkdir(parents=True)
    monkeypatch.chdir(folder / "corpus")
    expected = "/" if path == "/" else "corpus"
    assert describe_data([path]).rpartition("=")[2] == expected


# --- where facts come from ---


def test_facts_of_a_trainer(tmp_path):
    history = [
        {"loss": 2.0, "step": 10, "epoch": 0.5},
        {"eval_loss": 1.5, "eval_accuracy": 0.1, "eval_runtime": 3.0, "step": 10, "epoch": 0.5},
        {"eval_loss": 1.0, "eval_f1": 0.75, "eval_f1_time": 0.5, "eval_runtime": 3.0, "eval_samples_per_second": 3.0,
         "eval_steps_per_second": 3.0, "eval_model_preparation_time": 3.0, "eval_targets": 9, "step": 20, "epoch": 1.0},
        {"train_runtime": 90.0, "train_loss": 1.0, "step": 20, "epoch": 1.0},
    ]  # fmt: skip
    arguments = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=3e-4,
        use_cpu=True,
    )
    state = {"global_step": 20, "best_model_checkpoint": None, "log_history": history}
    facts = facts_from_trainer(state, arguments, "SST-2")
    assert {(each.metric, each.value, each.dataset) for each in facts.results} == {
        ("loss", 1.0, "SST-2"), ("f1", 0.75, "SST-2"), ("f1_time", 0.5, "SST-2")
    }  # fmt: skip
    assert facts.training["steps"] == "20 (1.00 epochs)" and facts.training["time"] == "1.5 minutes"
    assert facts.training["batch"] == "8 sequences" and "0.0003" in facts.training["optimizer"]
    assert torch.__version__ in facts.training["software"] and facts.training[
        "hardware"
    ].startswith("cpu")
    found = dataclasses.replace(
        arguments, auto_find_batch_size=True
    )  # and perhaps a smaller one than was asked for
    assert "batch" not in facts_from_trainer(state, found).training
    two = [{f"eval_{name}_loss": value, f"eval_{name}_runtime": 3.0, f"eval_{name}_steps_per_second": 3.0, "step": 20}
           for name, value in (("news", 1.0), ("web", 2.0))]  # fmt: skip
    facts = facts_from_trainer(state | {"log_history": history[:1] + two}, arguments)
    assert {(each.metric, each.value) for each in facts.results} == {
        ("news_loss", 1.0),
        ("web_loss", 2.0),
    }


@pytest.mark.parametrize(("save_steps", "kept"), [(1, 3), (2, 2)])
def test_the_figures_of_a_trainer_are_those_of_the_model_that_it_kept(save_steps, kept, tmp_path):
    """Of the best step, or of the best one that was saved: the loss is what the trainer measures once more."""
    config = MiniBertConfig.modernbert("tiny", vocab_size=20, num_hidden_layers=1, num_labels=2)
    rows = [{"input_ids": [5 + i, 6, 7], "labels": i % 2} for i in range(8)]
    scores = iter([1, 2, 5, 0, 0])
    arguments = TrainingArguments(
        str(tmp_path), max_steps=4, learning_rate=1e-2, eval_strategy="steps", eval_steps=1, save_steps=save_steps,
        load_best_model_at_end=True, metric_for_best_model="score", use_cpu=True, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        modeling_minibert.MiniBertForSequenceClassification(config), arguments, train_dataset=rows, eval_dataset=rows,
        compute_metrics=lambda _: {"score": next(scores)},
    )  # fmt: skip
    trainer.train()

    def losses(*given):
        return [
            result.value for result in facts_from_trainer(*given).results if result.metric == "loss"
        ]

    measured = {
        entry["step"]: entry["eval_loss"]
        for entry in trainer.state.log_history
        if "eval_loss" in entry
    }
    assert losses(vars(trainer.state), arguments) == [measured[kept]]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(measured[kept])


@pytest.mark.parametrize("objective", ["mlm", "mlm+nsp", "mlm+sop", "clm"])
def test_the_card_of_a_pretraining_run(objective, saved, tmp_path):
    folder = saved("MiniBertForPreTraining")
    report = {
        "validation_loss": 2.0, "perplexity": 7.389, "accuracy": 0.4, "targets": 1000, "unigram_loss": 5.0,
        "unigram_perplexity": 148.4, "unigram_accuracy": 0.1, "objective": objective, "steps": 1500, "epochs": 2.0,
        "training_tokens": 123456, "training_seconds": 120.0, "parameters": 1, "precision": "fp32",
    }  # fmt: skip
    pair_metrics = {"mlm+nsp": "nsp_accuracy", "mlm+sop": "sop_accuracy"}
    if objective in pair_metrics:
        report[pair_metrics[objective]] = 0.9
    recipe = {"seq_length": 128, "packing": "packed", "masking": "span", "mlm_probability": 0.3,
              "optimizer": "adamw"}  # fmt: skip
    training = TrainingArguments(str(tmp_path), use_cpu=True, hub_model_id="owner/model")
    start = tmp_path / "start"
    start.mkdir()
    (start / "README.md").write_text("---\nlicense: mit\nbase_model: owner/base\n---\n")
    names = ["/home/me/a,b.txt", "owner/corpus"]
    facts = pretraining_card_facts(report, names, recipe, training, started_from=str(start))
    save_card(folder, facts, training.hub_model_id)
    card = (folder / "README.md").read_text()
    (folder / "README.md").unlink()
    assert (
        "| loss | held-out documents | 2.0000 | 5.0000 |" in card and "| 0.4000 | 0.1000 |" in card
    )
    assert (
        "- arguments: seq_length 128, packing packed, masking span, mlm_probability 0.3, optimizer adamw\n"
        in card
    )
    assert "- owner/corpus\n" in card and "a,b.txt, owner/corpus" in card  # a comma is no bound
    assert (
        "At 1,000 targets" in card and "- tokens: 123,456" in card and "- time: 2.0 minutes" in card
    )
    for name, metric in pair_metrics.items():
        assert (metric in card) is (objective == name)
    metrics = [result.metric_type for result in ModelCard(card).data.eval_results]
    assert metrics[:2] == ["accuracy", "perplexity"] and metrics[-1].endswith("loss")
    assert not {"steps", "targets", "parameters"} & set(metrics)
    assert "Trained further from owner/base (its licence: mit)." in card


def test_what_a_snippet_prints_stays_in_its_block(saved):
    example = Example({"text": "x"}, "Row 1.", "```\n# Title\n\x1b[31m" + "z" * 100_000)
    card = render_card(
        saved("MiniBertForSequenceClassification"), CardFacts(example=example), "a/b"
    )
    [block] = re.findall(r"^```text\n(.*?)\n```$", card, re.DOTALL | re.MULTILINE)
    assert "# Title" in block and "\x1b" not in block and len(block) < 2_000
    assert card.count("```") == 4


def test_an_example_that_fails_is_left_out(saved, tmp_path, capsys):
    """The model is worth more than its card."""
    folder = tmp_path / "model"
    shutil.copytree(saved("MiniBertForSequenceClassification"), folder)
    (folder / "model.safetensors").write_bytes(b"")
    save_card(folder, CardFacts(example=Example({"text": "x"}, "Row 1.")))
    assert "the card has no output of its example" in capsys.readouterr().out
    assert "Row 1." not in (folder / "README.md").read_text()


def test_figures_that_cannot_be_compared_are_not_in_the_metadata(saved):
    facts = dataclasses.replace(FACTS, are_comparable=False)
    card = ModelCard(render_card(saved("MiniBertForMaskedLM"), facts, "a/b"))
    assert card.data.eval_results is None and "| accuracy | SST-2 | 0.5000" in card.text


HOSTILE = "x\"'''\n```python\nopen('trap', 'w')\n```\n"
TEXT_FIELDS = [
    field.name
    for field in dataclasses.fields(CardFacts)
    if str(field.type).startswith(("str", "list[str]", "dict[str, str]"))
]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A model whose label is hostile, too."""
    folder = tmp_path_factory.mktemp("classifier")
    tokenizer = train_tokenizer(["a b c d e f"] * 50, vocab_size=60, show_progress=False)
    config = MiniBertConfig.from_tokenizer(
        tokenizer, "bert", "tiny", num_hidden_layers=1, id2label={0: HOSTILE, 1: "good"}
    )
    modeling_minibert.MiniBertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", TEXT_FIELDS)
def test_the_example_that_is_run_is_the_templates_own(classifier, tmp_path, monkeypatch, name):
    """Whatever the texts on a card are: none of them is run as code."""
    monkeypatch.chdir(tmp_path)
    value = HOSTILE
    field_type = str(CardFacts.__dataclass_fields__[name].type)
    if field_type.startswith("list"):
        value = [HOSTILE]
    elif field_type.startswith("dict"):
        value = {HOSTILE: HOSTILE}
    example = Example({"text": HOSTILE}, HOSTILE)
    save_card(classifier, CardFacts(example=example, **{name: value}))
    assert "open(" in (classifier / "README.md").read_text()  # as text
    assert not (tmp_path / "trap").exists()
