"""What scripts that people already have (Transformers' examples, courses' snippets) need of a model: told with plain
Trainer, plain collators and the calls those scripts make, and held against Transformers' own BERT or a formula."""

import pytest
import torch
import transformers
from helpers import save_model
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import find_labels

import minibert.modeling_minibert as modeling
from minibert import MiniBertForMaskedLM, train_tokenizer
from minibert.training.conversion import from_native

TEXTS = [
    "the cat sat on the mat and slept", "a dog barked", "the quick brown fox jumps over the lazy dog",
    "a cat and a dog live in the old house",
]  # fmt: skip
FAMILIES = {
    "bert": dict(hidden_dropout=0.1, attention_dropout=0.1),
    "modernbert": dict(local_attention=4, global_attn_every_n_layers=2),
}
# Head of ours, the Auto class that the script calls, Transformers' own BERT of the same task.
TASKS = {
    "ForPreTraining": ("AutoModelForPreTraining", transformers.BertForPreTraining),
    "ForMaskedLM": ("AutoModelForMaskedLM", transformers.BertForMaskedLM),
    "ForCausalLM": ("AutoModelForCausalLM", transformers.BertLMHeadModel),
    "ForNextSentencePrediction": (
        "AutoModelForNextSentencePrediction",
        transformers.BertForNextSentencePrediction,
    ),
    "ForSequenceClassification": (
        "AutoModelForSequenceClassification",
        transformers.BertForSequenceClassification,
    ),
    "ForTokenClassification": (
        "AutoModelForTokenClassification",
        transformers.BertForTokenClassification,
    ),
    "ForQuestionAnswering": (
        "AutoModelForQuestionAnswering",
        transformers.BertForQuestionAnswering,
    ),
    "ForMultipleChoice": ("AutoModelForMultipleChoice", transformers.BertForMultipleChoice),
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 5, "wordpiece", 120, show_progress=False)


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tokenizer, tmp_path_factory):
    """A saved masked language model with its tokenizer: what every script is pointed at."""
    fields = (
        dict(layer_types=None, max_position_embeddings=64, initializer_range=0.2)
        | FAMILIES[request.param]
    )
    return save_model(
        tmp_path_factory.mktemp(request.param), tokenizer, request.param, "ForMaskedLM", **fields
    )


def model_for(head: str, folder, **fields):
    torch.manual_seed(0)
    return getattr(transformers, TASKS[head][0]).from_pretrained(folder, **fields)


@pytest.mark.parametrize("head", TASKS)
def test_the_labels_that_trainer_finds_are_those_of_bert(head):
    ours = find_labels(getattr(modeling, f"MiniBert{head}"))
    assert ours == find_labels(TASKS[head][1])


def test_is_decoder_and_use_cache_as_loading_options(folder):
    """`use_cache` says nothing here; with `is_decoder` a token sees none behind it, as in a BertModel."""
    ids, fields = (
        torch.randint(5, 120, (2, 9)),
        dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2),
    )
    bert = transformers.BertModel(transformers.BertConfig(is_decoder=True, **fields)).eval()
    encoder, decoder = (
        AutoModel.from_pretrained(folder, is_decoder=value) for value in (False, True)
    )
    for model in (bert, encoder, decoder):
        whole, begun = (model(x).last_hidden_state[:, :4] for x in (ids, ids[:, :4]))
        assert torch.allclose(whole, begun, atol=1e-5) == (model is not encoder)
    expected = model_for("ForCausalLM", folder)(ids).logits
    for use_cache in (True, False):
        model = model_for("ForCausalLM", folder, use_cache=use_cache)
        assert model.config.use_cache == use_cache and torch.equal(model(ids).logits, expected)


def load_as_scripts_do(auto_class: str, folder, tmp_path, **fields):
    keywords = dict(
        cache_dir=str(tmp_path / "cache"), revision="main", token=None, trust_remote_code=True
    )
    config = AutoConfig.from_pretrained(folder, finetuning_task="ner", **fields, **keywords)
    tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **keywords)
    assert isinstance(
        tokenizer, transformers.PreTrainedTokenizerFast
    )  # run_ner and run_qa ask for it
    return getattr(transformers, auto_class).from_pretrained(
        folder, from_tf=False, config=config, ignore_mismatched_sizes=True, **keywords
    )


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification"])
def test_number_and_names_of_labels_as_loading_options(head, folder, tmp_path):
    model = load_as_scripts_do(TASKS[head][0], folder, tmp_path, num_labels=3)
    assert model.config.label2id == transformers.PreTrainedConfig(num_labels=3).label2id
    model.config.label2id, model.config.id2label = (
        {"a": 0, "b": 1, "c": 2},
        {0: "a", 1: "b", 2: "c"},
    )
    model.save_pretrained(tmp_path / "labelled")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "labelled")
    again, other = (
        load_as_scripts_do(TASKS[head][0], tmp_path / "labelled", tmp_path, num_labels=n)
        for n in (3, 5)
    )
    assert (again.config.id2label, again.config.label2id) == (
        model.config.id2label,
        model.config.label2id,
    )
    assert torch.equal(again.classifier.weight, model.classifier.weight)
    assert other.classifier.out_features == len(other.config.id2label) == 5
    for name, expected in model.named_parameters():  # only the classifier is new
        assert name.startswith("classifier") or torch.equal(other.get_parameter(name), expected)


@pytest.mark.parametrize("mean_resizing", [True, False])
@pytest.mark.parametrize(
    "size, multiple, rows", [(131, None, 131), (131, 64, 192), (100, None, 100)]
)
def test_resizing_the_vocabulary(size, multiple, rows, mean_resizing, folder, tmp_path):
    model = model_for("ForMaskedLM", folder)
    before, bias = (
        model.get_input_embeddings().weight.detach().clone(),
        model.decoder.bias.detach().clone(),
    )
    model.resize_token_embeddings(size, pad_to_multiple_of=multiple, mean_resizing=mean_resizing)
    words = model.get_input_embeddings()
    kept = min(rows, len(before))
    assert words.weight.shape[0] == model.config.vocab_size == model.decoder.bias.shape[0] == rows
    assert model.decoder.weight is words.weight and model.get_output_embeddings() is model.decoder
    assert torch.equal(words.weight[:kept], before[:kept]) and torch.equal(
        model.decoder.bias[:kept], bias[:kept]
    )
    if mean_resizing and rows > kept:
        assert_close(words.weight[kept:], before.mean(0).expand(rows - kept, -1), rtol=0, atol=1e-2)
    # Training reads logits at the labelled positions alone: the loss is the dense one, and new rows learn.
    ids = torch.randint(5, rows, (2, 9))
    ids[0, 5:] = model.config.pad_token_id
    mask, labels = (
        ids != model.config.pad_token_id,
        torch.where(torch.arange(9) % 2 == 1, ids, -100),
    )
    labels[~mask], labels[1, 1] = -100, rows - 1
    model.eval()
    dense = model(ids, attention_mask=mask.long()).logits
    assert dense.shape == (2, 9, rows)
    output = model(ids, attention_mask=mask.long(), labels=labels, sparse_prediction=True)
    assert output.logits.shape == (int((labels != -100).sum()), rows)
    assert_close(output.loss, F.cross_entropy(dense.flatten(0, 1), labels.flatten()))
    for module in model.modules():  # the training path, without its dropout
        if isinstance(module, modeling.MiniBertDropout):
            module.p = 0.0
    trained = model.train()(ids, attention_mask=mask.long(), labels=labels)
    trained.loss.backward()
    assert (
        words.weight.grad.shape == words.weight.shape
        and words.weight.grad[rows - 1].abs().sum() > 0
    )
    model.save_pretrained(tmp_path / "resized")
    again = MiniBertForMaskedLM.from_pretrained(tmp_path / "resized").eval()
    assert_close(again(ids, attention_mask=mask.long()).logits, dense)


def integrated_gradients(model, layer, ids, baseline, steps=4):
    """captum's recipe: the layer's output for one text, scaled in several steps, in place of that of as many copies."""
    seen = []
    with (
        torch.no_grad(),
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output)),
    ):
        model(ids)
        model(baseline)
    scale = torch.linspace(0, 1, steps).view(-1, 1, 1)
    scaled = (seen[1] + scale * (seen[0] - seen[1])).requires_grad_()
    with layer.register_forward_hook(lambda module, inputs, output: scaled):
        logits = model(ids.expand(steps, -1)).logits
    return torch.autograd.grad(logits[:, 1].sum(), scaled)[0].mean(0, keepdim=True) * (
        seen[0] - seen[1]
    )


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_integrated_gradients_are_those_of_bert(implementation):
    torch.manual_seed(0)
    fields = dict(
        vocab_size=120,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    native = transformers.BertForSequenceClassification(transformers.BertConfig(**fields)).eval()
    ours = from_native(native).eval()
    ours.set_attn_implementation(implementation)
    ids, baseline = torch.randint(5, 120, (1, 6)), torch.zeros(1, 6, dtype=torch.long)
    layers = native.bert.embeddings, ours.model.embeddings
    for theirs, mine in (layers, (layers[0].word_embeddings, layers[1].tok_embeddings)):
        expected = integrated_gradients(native, theirs, ids, baseline)
        assert_close(
            integrated_gradients(ours, mine, ids, baseline), expected, rtol=1e-4, atol=1e-6
        )
