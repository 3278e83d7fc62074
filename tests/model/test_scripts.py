"""What scripts that people already have (Transformers' examples, courses' snippets) need of a model: told with plain
Trainer, plain collators and the calls those scripts make, and held against Transformers' own BERT or a formula."""

import datasets
import pytest
import torch
import transformers
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel, AutoTokenizer, Trainer, TrainingArguments, default_data_collator
from transformers.utils import find_labels

import minibert.modeling_minibert as modeling
from minibert import MiniBertConfig, MiniBertForMaskedLM, train_tokenizer
from minibert.training.conversion import from_native

TEXTS = [
    "the cat sat on the mat and slept",
    "a dog barked",
    "the quick brown fox jumps over the lazy dog",
    "a cat and a dog live in the old house",
]
FAMILIES = {
    "bert": dict(hidden_dropout=0.1, attention_dropout=0.1),
    "modernbert": dict(local_attention=4, global_attn_every_n_layers=2),
}
# Head of ours, the Auto class that the script calls, Transformers' own BERT of the same task.
TASKS = {
    "ForPreTraining": ("AutoModelForPreTraining", transformers.BertForPreTraining),
    "ForMaskedLM": ("AutoModelForMaskedLM", transformers.BertForMaskedLM),
    "ForCausalLM": ("AutoModelForCausalLM", transformers.BertLMHeadModel),
    "ForNextSentencePrediction": ("AutoModelForNextSentencePrediction", transformers.BertForNextSentencePrediction),
    "ForSequenceClassification": ("AutoModelForSequenceClassification", transformers.BertForSequenceClassification),
    "ForTokenClassification": ("AutoModelForTokenClassification", transformers.BertForTokenClassification),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", transformers.BertForQuestionAnswering),
    "ForMultipleChoice": ("AutoModelForMultipleChoice", transformers.BertForMultipleChoice),
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 5, "wordpiece", 120, show_progress=False)


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tokenizer, tmp_path_factory):
    """A saved masked language model with its tokenizer: what every script is pointed at."""
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    config = MiniBertConfig.from_tokenizer(
        tokenizer, request.param, "tiny", hidden_size=32, num_hidden_layers=2, intermediate_size=32, layer_types=None,
        max_position_embeddings=64, initializer_range=0.2, **FAMILIES[request.param],
    )  # fmt: skip
    MiniBertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def arguments(output_dir, **fields) -> TrainingArguments:
    defaults = dict(
        output_dir=str(output_dir), use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no",
        per_device_train_batch_size=2, per_device_eval_batch_size=4, seed=3,
    )  # fmt: skip
    return TrainingArguments(**defaults | fields)


def features(head: str, tokenizer) -> datasets.Dataset:
    """Rows as the script of that task hands them to Trainer: padded, with what it maps from and never uses again."""
    rows = []
    for i, text in enumerate(TEXTS):
        row = dict(tokenizer(text, TEXTS[i - 1], padding="max_length", max_length=40, return_special_tokens_mask=True))
        if head == "ForQuestionAnswering":
            row |= dict(start_positions=i, end_positions=i + 2)
        else:
            row["labels"] = [token if real else -100 for token, real in zip(row["input_ids"], row["attention_mask"])]
        rows.append(row | dict(id=str(i), tokens=text.split(), sentence1=text))
    return datasets.Dataset.from_list(rows)


def model_for(head: str, folder, **fields):
    torch.manual_seed(0)
    return getattr(transformers, TASKS[head][0]).from_pretrained(folder, **fields)


@pytest.mark.parametrize("head", TASKS)
def test_the_labels_that_trainer_finds_are_those_of_bert(head):
    ours = find_labels(getattr(modeling, f"MiniBert{head}"))
    assert ours == find_labels(TASKS[head][1])


def test_what_scripts_for_decoders_hand_over_while_loading(folder):
    """`use_cache` says nothing here; with `is_decoder` a token sees none behind it, as in a BertModel."""
    ids, fields = torch.randint(5, 120, (2, 9)), dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2)
    bert = transformers.BertModel(transformers.BertConfig(is_decoder=True, **fields)).eval()
    encoder, decoder = (AutoModel.from_pretrained(folder, is_decoder=value) for value in (False, True))
    for model in (bert, encoder, decoder):
        whole, begun = (model(x).last_hidden_state[:, :4] for x in (ids, ids[:, :4]))
        assert torch.allclose(whole, begun, atol=1e-5) == (model is not encoder)
    expected = model_for("ForCausalLM", folder)(ids).logits
    for use_cache in (True, False):
        model = model_for("ForCausalLM", folder, use_cache=use_cache)
        assert model.config.use_cache == use_cache and torch.equal(model(ids).logits, expected)


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForQuestionAnswering"])
def test_a_run_goes_on_from_its_checkpoint_under_plain_trainer(head, folder, tmp_path):
    """Bit for bit as if it had not stopped, with dropout, and from a model that was loaded anew."""
    rows = features(head, AutoTokenizer.from_pretrained(folder))

    def trainer():
        return Trainer(
            model_for(head, folder),
            arguments(tmp_path, max_steps=4, save_strategy="steps", save_steps=2),
            train_dataset=rows,
            data_collator=default_data_collator,
        )

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.state.global_step == 4
    for name, expected in whole.model.named_parameters():
        assert torch.equal(resumed.model.get_parameter(name), expected), name
    if head == "ForMaskedLM":
        assert resumed.model.decoder.weight is resumed.model.get_input_embeddings().weight


LABELS = ["B-PER", "I-PER", "O"]


def load_as_scripts_do(auto_class: str, folder, tmp_path, **fields):
    keywords = dict(cache_dir=str(tmp_path / "cache"), revision="main", token=None, trust_remote_code=True)
    config = AutoConfig.from_pretrained(folder, finetuning_task="ner", **fields, **keywords)
    tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **keywords)
    assert isinstance(tokenizer, transformers.PreTrainedTokenizerFast)  # run_ner and run_qa ask for it
    return getattr(transformers, auto_class).from_pretrained(
        folder, from_tf=False, config=config, ignore_mismatched_sizes=True, **keywords
    )


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification"])
def test_the_labels_of_the_data(head, folder, tmp_path):
    model = load_as_scripts_do(TASKS[head][0], folder, tmp_path, num_labels=3)
    untouched = transformers.PreTrainedConfig(num_labels=3)
    assert model.config.label2id == untouched.label2id and model.classifier.out_features == 3
    model.config.label2id = {label: i for i, label in enumerate(LABELS)}
    model.config.id2label = dict(enumerate(LABELS))
    model.save_pretrained(tmp_path / "labelled")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "labelled")
    again = load_as_scripts_do(TASKS[head][0], tmp_path / "labelled", tmp_path, num_labels=3)
    assert again.config.id2label == dict(enumerate(LABELS))
    assert again.config.label2id == {"B-PER": 0, "I-PER": 1, "O": 2}
    assert torch.equal(again.classifier.weight, model.classifier.weight)
    # A task with another number of labels starts from the same folder with a new classifier, and only that is new.
    other = load_as_scripts_do(TASKS[head][0], tmp_path / "labelled", tmp_path, num_labels=5)
    assert other.classifier.out_features == 5 and len(other.config.id2label) == 5
    for name, expected in model.named_parameters():
        assert name.startswith("classifier") or torch.equal(other.get_parameter(name), expected)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        getattr(transformers, TASKS[head][0]).from_pretrained(tmp_path / "labelled", num_labels=5)


@pytest.mark.parametrize("mean_resizing", [True, False])
@pytest.mark.parametrize("size, multiple, rows", [(131, None, 131), (131, 64, 192), (100, None, 100)])
def test_resizing_the_vocabulary(size, multiple, rows, mean_resizing, folder, tmp_path):
    model = model_for("ForMaskedLM", folder)
    before, bias = model.get_input_embeddings().weight.detach().clone(), model.decoder.bias.detach().clone()
    model.resize_token_embeddings(size, pad_to_multiple_of=multiple, mean_resizing=mean_resizing)
    words = model.get_input_embeddings()
    kept = min(rows, len(before))
    assert words.weight.shape[0] == model.config.vocab_size == model.decoder.bias.shape[0] == rows
    assert model.decoder.weight is words.weight and model.get_output_embeddings() is model.decoder
    assert torch.equal(words.weight[:kept], before[:kept]) and torch.equal(model.decoder.bias[:kept], bias[:kept])
    if mean_resizing and rows > kept:
        assert_close(words.weight[kept:], before.mean(0).expand(rows - kept, -1), rtol=0, atol=1e-2)
    # Training reads logits at the labelled positions alone: the loss is the dense one, and new rows learn.
    ids = torch.randint(5, rows, (2, 9))
    ids[0, 5:] = model.config.pad_token_id
    mask, labels = ids != model.config.pad_token_id, torch.where(torch.arange(9) % 2 == 1, ids, -100)
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
    assert words.weight.grad.shape == words.weight.shape and words.weight.grad[rows - 1].abs().sum() > 0
    model.save_pretrained(tmp_path / "resized")
    again = MiniBertForMaskedLM.from_pretrained(tmp_path / "resized").eval()
    assert_close(again(ids, attention_mask=mask.long()).logits, dense)


def integrated_gradients(model, layer, ids, baseline, steps=4):
    """captum's recipe: the layer's output for one text, scaled in several steps, in place of that of as many copies."""
    seen = []
    with torch.no_grad(), layer.register_forward_hook(lambda module, inputs, output: seen.append(output)):
        model(ids)
        model(baseline)
    scale = torch.linspace(0, 1, steps).view(-1, 1, 1)
    scaled = (seen[1] + scale * (seen[0] - seen[1])).requires_grad_()
    with layer.register_forward_hook(lambda module, inputs, output: scaled):
        logits = model(ids.expand(steps, -1)).logits
    return torch.autograd.grad(logits[:, 1].sum(), scaled)[0].mean(0, keepdim=True) * (seen[0] - seen[1])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_integrated_gradients_are_those_of_bert(implementation):
    torch.manual_seed(0)
    fields = dict(vocab_size=120, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    native = transformers.BertForSequenceClassification(transformers.BertConfig(**fields)).eval()
    ours = from_native(native).eval()
    ours.set_attn_implementation(implementation)
    ids, baseline = torch.randint(5, 120, (1, 6)), torch.zeros(1, 6, dtype=torch.long)
    layers = native.bert.embeddings, ours.model.embeddings
    for theirs, mine in (layers, (layers[0].word_embeddings, layers[1].tok_embeddings)):
        expected = integrated_gradients(native, theirs, ids, baseline)
        assert_close(integrated_gradients(ours, mine, ids, baseline), expected, rtol=1e-4, atol=1e-6)
