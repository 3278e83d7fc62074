"""The model card: true for every head, valid metadata, never written over what somebody edited."""

import dataclasses
import json
import math
import re

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from transformers import AutoTokenizer, Trainer, TrainingArguments

from minibert import (
    MiniBertConfig,
    MiniBertForMaskedLM,
    MiniBertForSequenceClassification,
    modeling_minibert,
    train_tokenizer,
)
from minibert.training.hub import card
from minibert.training.hub.card import (
    HEADS,
    CardFacts,
    Result,
    describe_data,
    facts_from_trainer,
    read_card,
    render_card,
    save_card,
    write_card,
)

FACTS = CardFacts(
    data="owner/corpus, notes.txt",
    training={"steps": "1,234 (2.00 epochs)", "time": "5.0 minutes"},
    results=[
        Result("perplexity", 12.21, "held-out documents", "validation", 99.5),
        Result("accuracy", 0.5, "SST-2", "validation"),
    ],
    baseline="unigram frequencies",
    base_model="owner/base",
    license="mit",
    language="en",
    max_length=64,
)
# The Hub's names of tasks, as far as its heads are concerned (huggingface.co/tasks).
TASKS = {
    "MiniBertModel": "feature-extraction",
    "MiniBertForPreTraining": "fill-mask",
    "MiniBertForMaskedLM": "fill-mask",
    "MiniBertForCausalLM": "text-generation",
    "MiniBertForSequenceClassification": "text-classification",
    "MiniBertForTokenClassification": "token-classification",
    "MiniBertForQuestionAnswering": "question-answering",
    "MiniBertForMultipleChoice": "multiple-choice",
}
SAVED = [name for name in HEADS if hasattr(modeling_minibert, name)]
VARIANTS = [(name, ("modernbert", "bert")[i % 2], {}) for i, name in enumerate(SAVED)]
VARIANTS += [("MiniBertForMaskedLM", "bert", {})]  # its mask is written otherwise
VARIANTS += [
    ("MiniBertForSequenceClassification", "modernbert", {"num_labels": 1}),
    ("MiniBertForSequenceClassification", "bert", {"problem_type": "multi_label_classification", "num_labels": 3}),
]


@pytest.fixture(scope="module")
def tokenizers():
    texts = ["a good book, a dull book", "who wrote it? a friend of mine", "take an umbrella if it rains"] * 20
    return {
        "bert": train_tokenizer(texts, vocab_size=60, show_progress=False),
        "modernbert": train_tokenizer(texts, "bpe", vocab_size=300, show_progress=False),  # <mask> is written otherwise
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tokenizers):
    """Folders with saved models, made when they are asked for."""
    folders = {}

    def save(name, architecture="modernbert", changes=None):
        key = (name, architecture, str(changes))
        if key not in folders:
            folder = folders[key] = tmp_path_factory.mktemp(name) / "model"
            changes = dict(changes or {}) | ({"is_causal": True} if name == "MiniBertForCausalLM" else {})
            config = MiniBertConfig.from_tokenizer(
                tokenizers[architecture], architecture, "tiny", num_hidden_layers=1, **changes
            )
            getattr(modeling_minibert, name)(config).save_pretrained(folder)
            tokenizers[architecture].save_pretrained(folder)
        return folders[key]

    return save


def snippets(card):
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


@pytest.mark.parametrize(
    ("name", "architecture", "changes"), VARIANTS, ids=["-".join(map(str, (a, b, *c))) for a, b, c in VARIANTS]
)
def test_every_snippet_runs(name, architecture, changes, saved, tmp_path, monkeypatch, capsys):
    """As it stands on the card of this very model, for every head."""
    monkeypatch.chdir(tmp_path)
    folder = saved(name, architecture, changes)
    card = render_card(folder, CardFacts(), str(folder))
    found = snippets(card)
    assert len(found) >= 2 or name in ("MiniBertModel", "MiniBertForReplacedTokenDetection")
    for snippet in found:
        compile(snippet, "card", "exec")
        exec(snippet, {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "nan" not in printed.lower()
    assert card.count("```") % 2 == 0 and "{{" not in card and "{%" not in card


@pytest.mark.parametrize(
    ("data", "language", "names", "datasets"),
    [
        ("de=owner/corpus:2024, de=owner/more, haw=train.txt, code=owner/code", None, ["de", "haw"],
         ["owner/corpus", "owner/more", "owner/code"]),
        ("de=owner/corpus", "fr", "fr", ["owner/corpus"]),
        ("owner/corpus, train.txt", None, None, ["owner/corpus"]),
        (None, None, None, None),
    ],
)  # fmt: skip
def test_languages_and_data_sets_of_a_mixture(data, language, names, datasets, saved):
    facts = dataclasses.replace(FACTS, data=data, language=language)
    card = ModelCard(render_card(saved(next(iter(SAVED))), facts, "owner/model"))
    assert (card.data.language, card.data.datasets) == (names, datasets)


@pytest.mark.parametrize("name", SAVED)
def test_metadata_of_every_head(name, saved):
    card = ModelCard(render_card(saved(name), FACTS, "owner/model"))
    assert card.data.pipeline_tag == TASKS.get(name)
    assert card.data.library_name == "transformers" and "minibert" in card.data.tags
    assert card.data.license == "mit" and card.data.base_model == "owner/base" and card.data.language == "en"
    assert card.data.datasets == ["owner/corpus"]
    for snippet in snippets(card.text):
        for line in snippet.splitlines():
            if '"owner/model"' in line:
                assert 'revision="main", trust_remote_code=True' in line
        assert '"owner/model"' in snippet


def test_results_are_a_valid_model_index(saved):
    """They read back through huggingface_hub as what went in, and are in the table."""
    text = render_card(saved("MiniBertForMaskedLM"), FACTS, "owner/model")
    metadata = yaml.safe_load(text.split("---")[1])
    name, results = model_index_to_eval_results(metadata["model-index"])
    assert name == "model"
    assert [(each.metric_type, each.metric_value, each.dataset_name, each.dataset_split) for each in results] == [
        ("accuracy", 0.5, "SST-2", "validation"),
        ("perplexity", 12.21, "held-out documents", "validation"),
    ]
    assert "| perplexity | held-out documents | 12.2 | 99.5 |" in text
    assert "| accuracy | SST-2 | 0.5000 | – |" in text


def test_it_says_what_the_files_say(saved):
    folder = saved("MiniBertForMaskedLM", "bert")
    config = MiniBertConfig.from_pretrained(folder)
    card = render_card(folder, FACTS, "owner/model")
    parameters = MiniBertForMaskedLM(config).num_parameters()
    assert f"{parameters:,} parameters" in card
    assert "(loss.png)" not in card
    assert f"- 1 layers, width {config.hidden_size}, 2 heads\n- every layer attends to the whole document\n" in card
    for said in ("- steps: 1,234 (2.00 epochs)", "- data: owner/corpus, notes.txt", "longer than 64 tokens were",
                 f"longer than {config.max_position_embeddings} tokens", "The weights: mit",
                 r"\url{https://huggingface.co/owner/model}", "Fine-tuned from owner/base"):  # fmt: skip
        assert said in card


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"position_embedding_type": "rope"}, "rotary positions"),
        ({"position_embedding_type": "none"}, "no positions"),
        ({"norm_type": "rmsnorm"}, "RMSNorm"),
        ({"norm_bias": False}, "LayerNorm without bias, pre-norm"),
        ({"norm_placement": "post"}, "post-norm"),
        ({"gated_mlp": True}, "gated MLP (gelu) of width 192"),
        ({"is_causal": True}, "a decoder"),
        ({"global_attn_every_n_layers": 1}, "every layer attends to the whole document"),
        ({"local_attention": 32}, "2 to 16 tokens on either side"),
        ({"type_vocab_size": 2}, "2 segments"),
        ({"mlp_bias": True}, "biases in MLP"),
        ({"embedding_size": 32}, "tokens with vectors of width 32;"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rotary positions (RoPE), scaled (linear);"),
        ({"converted_from": "bert"}, "converted from a bert checkpoint"),
    ],
)
def test_switches_in_words(changes, said, tmp_path):
    config = MiniBertConfig.modernbert("tiny", architectures=["MiniBertForMaskedLM"], **changes)
    config.save_pretrained(tmp_path)
    described = render_card(tmp_path, CardFacts(), "a/b").split("## ")[1]
    assert described.startswith("Architecture") and said in described


def test_the_loss_curve_is_shown_if_there_is_one(saved):
    folder = saved("MiniBertForTokenClassification")
    (folder / "loss.png").write_bytes(b"x")
    assert "![training and validation loss](loss.png)" in render_card(folder, FACTS, "a/b")
    (folder / "loss.png").unlink()


def test_an_embedding_model(saved, tmp_path, capsys):
    """A folder as sentence-transformers saves it; its snippet runs."""
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "embedding"
    SentenceTransformer(str(saved("MiniBertModel", "bert")), device="cpu").save_pretrained(str(folder))
    card = ModelCard(render_card(folder, CardFacts(), str(folder)))
    assert card.data.pipeline_tag == "sentence-similarity" and card.data.library_name == "sentence-transformers"
    found = snippets(card.text)
    assert len(found) == 1 and "SentenceTransformer(" in found[0]
    capsys.readouterr()
    exec(found[0], {"__name__": "__main__"})
    similarity = [float(number) for number in re.findall(r"-?\d\.\d+", capsys.readouterr().out)]
    assert len(similarity) == 4 and similarity[0] == pytest.approx(1.0, abs=1e-3)


def test_a_reranker(saved, tmp_path, capsys):
    """The same of a `CrossEncoder`, whose folder has modules too."""
    from sentence_transformers import CrossEncoder

    folder = tmp_path / "reranker"
    config = MiniBertConfig.from_pretrained(saved("MiniBertForMaskedLM"), num_labels=1)
    MiniBertForSequenceClassification(config).save_pretrained(tmp_path / "plain")
    AutoTokenizer.from_pretrained(saved("MiniBertForMaskedLM")).save_pretrained(tmp_path / "plain")
    CrossEncoder(str(tmp_path / "plain"), device="cpu").save_pretrained(str(folder), create_model_card=False)
    card = ModelCard(render_card(folder, CardFacts(), str(folder)))
    assert card.data.pipeline_tag == "text-ranking" and card.data.library_name == "sentence-transformers"
    (found,) = snippets(card.text)
    capsys.readouterr()
    exec(found, {"__name__": "__main__"})
    assert len(re.findall(r"\d\.\d+", capsys.readouterr().out)) == 2


# --- hands off ---


def test_a_card_is_written_anew_until_somebody_edits_it(saved, capsys):
    folder = saved("MiniBertForMultipleChoice")
    path = folder / "README.md"
    assert save_card(folder, FACTS)
    assert read_card(folder).facts == FACTS and not read_card(folder).edited
    assert save_card(folder, dataclasses.replace(FACTS, license="apache-2.0"))
    assert "apache-2.0" in path.read_text()
    for edit in (
        lambda card: card.replace("## Limits", "## Limits\n\nNone."),
        lambda card: card.replace("license: apache-2.0", "license: gpl-3.0"),
        lambda card: "# My own\n",
    ):
        path.unlink()
        save_card(folder, dataclasses.replace(FACTS, license="apache-2.0"))
        edited = edit(path.read_text())
        assert edited != path.read_text()
        path.write_text(edited)
        capsys.readouterr()
        assert not save_card(folder, FACTS)
        assert path.read_text() == edited and "edited by hand" in capsys.readouterr().out
        assert read_card(folder).facts.license == "apache-2.0"  # for a card that is written anew on demand
    (folder / "model_card.json").unlink()  # a card of unknown origin
    assert read_card(folder).edited and not save_card(folder, FACTS)
    path.unlink()
    assert not read_card(folder).text


@pytest.mark.parametrize("broken", ["write_json", "whole"])
def test_a_card_that_breaks_off_is_not_taken_for_one_by_hand(broken, saved, monkeypatch):
    folder = saved("MiniBertForMaskedLM")
    assert save_card(folder, FACTS)

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(card, broken, full)
        save_card(folder, dataclasses.replace(FACTS, license="gpl-3.0"))
    assert not read_card(folder).edited
    assert save_card(folder, FACTS) and read_card(folder).facts == FACTS


def test_other_line_ends_are_no_edit(saved):
    folder = saved("MiniBertModel")
    save_card(folder, FACTS)
    card = (folder / "README.md").read_text()
    for written in (card.replace("\n", "\r\n"), card + "\n"):
        (folder / "README.md").write_bytes(written.encode())
        assert not read_card(folder).edited
    (folder / "README.md").unlink()


# --- what a reader sees ---


def test_headline_metrics_first_and_rounded(saved):
    """Not the figures of every class, and no digits that mean nothing; losses last, nothing that is no number."""
    metrics = ["loss", "precision", "f1", "precision_PER", "f1_PER", "f1_LOC", "accuracy"]
    results = [Result(name, 0.123456789012345, "tweets", split) for split in ("validation", "test") for name in metrics]
    results += [Result("recall", math.nan, "tweets", "test"), Result("f1_macro", 1 / 3, "tweets", "test")]
    card = render_card(saved("MiniBertForTokenClassification"), CardFacts(results=results), "a/b")
    shown = re.findall(r"^\| (\w+) \| tweets \((\w+)\) \|", card, re.MULTILINE)
    assert shown == [
        (name, split) for name in ("f1", "accuracy", "precision", "loss") for split in ("validation", "test")
    ]
    assert "| f1 | tweets (test) | 0.1235 |" in card and "0.12345" not in card


def test_no_state_stands_in_the_card(saved):
    card = render_card(saved("MiniBertForMaskedLM"), FACTS, "a/b")
    assert "<!--" not in card and "sha256" not in card


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("the capital of france is a city and paris is the capital of france", "The capital of France is [MASK]."),
        ("return the length of the list or return the number of the items", "Return the length of the [MASK]."),
        ("die hauptstadt von frankreich ist eine stadt und paris ist die hauptstadt", "Die Hauptstadt von Frankreich"),
    ],
)
def test_the_example_is_in_the_language_of_the_tokenizer(text, example, tmp_path):
    tokenizer = train_tokenizer([text] * 50, vocab_size=58, show_progress=False)
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1)
    MiniBertForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert f'print(fill("{example}' in render_card(tmp_path, CardFacts(), "a/b")


def test_a_local_base_model_is_not_named(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "base").mkdir(parents=True)
    for base in ("runs/base", "/somewhere/else", "runs/minibert/checkpoint-5"):
        card = ModelCard(render_card(saved("MiniBertModel"), CardFacts(base_model=base), "a/b"))
        assert card.data.base_model is None


def test_data_is_named_without_folders(tmp_path):
    path = tmp_path / "diary.txt"
    path.touch()
    assert describe_data(f"{path}, owner/corpus, the built-in corpus") == "diary.txt, owner/corpus, the built-in corpus"
    elsewhere = "/home/me/private/*.jsonl, de=/home/me/x.txt, fr=owner/corpus:fr, ~/notes.txt, rows/of/others.txt"
    assert describe_data(elsewhere) == "*.jsonl, de=x.txt, fr=owner/corpus:fr, notes.txt, others.txt"


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
        str(tmp_path), per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=3e-4, use_cpu=True
    )
    state = {"global_step": 20, "best_model_checkpoint": None, "log_history": history}
    facts = facts_from_trainer(state, arguments, "SST-2")
    assert {(each.metric, each.value, each.dataset) for each in facts.results} == {
        ("loss", 1.0, "SST-2"), ("f1", 0.75, "SST-2"), ("f1_time", 0.5, "SST-2")
    }  # fmt: skip
    assert facts.training["steps"] == "20 (1.00 epochs)" and facts.training["time"] == "1.5 minutes"
    assert facts.training["batch"] == "8 sequences" and "0.0003" in facts.training["optimizer"]
    assert torch.__version__ in facts.training["software"] and facts.training["hardware"].startswith("cpu")
    found = dataclasses.replace(arguments, auto_find_batch_size=True)  # and perhaps a smaller one than was asked for
    assert "batch" not in facts_from_trainer(state, found).training
    assert facts_from_trainer({"global_step": 0, "log_history": []}) == CardFacts()
    two = [{f"eval_{name}_loss": value, f"eval_{name}_runtime": 3.0, f"eval_{name}_steps_per_second": 3.0, "step": 20}
           for name, value in (("news", 1.0), ("web", 2.0))]  # fmt: skip
    facts = facts_from_trainer(state | {"log_history": history[:1] + two}, arguments)
    assert {(each.metric, each.value) for each in facts.results} == {("news_loss", 1.0), ("web_loss", 2.0)}


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
        return [result.value for result in facts_from_trainer(*given).results if result.metric == "loss"]

    state = dict(vars(trainer.state), log_history=list(trainer.state.log_history))
    measured = {entry["step"]: entry["eval_loss"] for entry in state["log_history"] if "eval_loss" in entry}
    assert losses(state, arguments) == [measured[kept]] == [pytest.approx(trainer.evaluate()["eval_loss"])]
    assert losses(state) == []  # without the arguments nobody knows which model this is
    again = [trainer.state.log_history[-1]["eval_loss"]]
    assert losses(vars(trainer.state)) == losses(vars(trainer.state), arguments) == again
    for step in range(save_steps, 5, save_steps):  # the model of a checkpoint is that of its step
        saved = json.loads((tmp_path / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert losses(saved) == losses(saved, arguments) == [measured[step]]
    assert losses({**saved, "global_step": 5}) == []  # later than it was evaluated


@pytest.mark.parametrize("objective", ["mlm", "mlm+nsp", "clm"])
def test_the_card_of_a_pretraining_run(objective, saved, tmp_path):
    folder = saved("MiniBertForPreTraining")
    report = {
        "validation_loss": 2.0, "perplexity": 7.389, "accuracy": 0.4, "targets": 1000, "unigram_loss": 5.0,
        "unigram_perplexity": 148.4, "unigram_accuracy": 0.1, "objective": objective, "steps": 1500, "epochs": 2.0,
        "training_tokens": 123456, "training_seconds": 120.0, "parameters": 1, "precision": "fp32",
    } | ({"nsp_accuracy": 0.9} if objective == "mlm+nsp" else {})  # fmt: skip
    recipe = {"seq_length": 128, "packing": "packed", "masking": "span", "mlm_probability": 0.3,
              "optimizer": "adamw"}  # fmt: skip
    training = TrainingArguments(str(tmp_path), use_cpu=True, hub_model_id="owner/model")
    facts = write_card(folder, report, "some text", recipe, training)
    card, kept = (folder / "README.md").read_text(), read_card(folder)
    (folder / "README.md").unlink()
    assert kept.facts == facts and not kept.edited
    assert "| loss | held-out documents | 2.0000 | 5.0000 |" in card and "| 0.4000 | 0.1000 |" in card
    masking = "" if objective == "clm" else ", masking span, mlm_probability 0.3"
    assert f"- arguments: seq_length 128, packing packed{masking}, optimizer adamw\n" in card
    assert "At 1,000 targets" in card and "- tokens: 123,456" in card and "- time: 2.0 minutes" in card
    assert ("nsp_accuracy" in card) is (objective == "mlm+nsp")
    metrics = [result.metric_type for result in ModelCard(card).data.eval_results]
    assert (
        metrics[:2] == ["accuracy", "perplexity"]
        and metrics[-1].endswith("loss")
        and not {"steps", "targets", "parameters"} & set(metrics)
    )
