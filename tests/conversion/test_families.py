"""What is particular of each family: padding, rows that are dropped, published configs, folders of
sentence-transformers."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from helpers import sentences
from parity import LENGTH, TOLERANCE, VOCAB, assert_same_weights, make_native, make_rows
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    Transformer,
)
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import ModernBertConfig

import minibert.modeling_minibert as minibert
from minibert.configuration_minibert import MiniBertConfig
from minibert.tokenization import train_tokenizer
from minibert.training.conversion import convert, count_positions, from_native, to_native
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.inference import encode

ROBERTAS = ["roberta", "xlm-roberta", "camembert"]


def rows_with_padding(layout: str, padding: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    mask = make_rows(layout, 4)
    ids = torch.randint(8, VOCAB, (4, LENGTH))
    return dict(input_ids=torch.where(mask.bool(), ids, padding), attention_mask=mask)


@pytest.mark.parametrize("layout", ["right", "left"])
@pytest.mark.parametrize("architecture", ROBERTAS)
def test_roberta_counts_real_tokens_on_either_side(architecture, layout):
    """The same rows for both, without further ado."""
    native = make_native(architecture, "plain", "ForTokenClassification")
    batch = rows_with_padding(layout, native.config.pad_token_id)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        theirs, mine = native(**batch), from_native(native)(**batch)
    torch.testing.assert_close(mine.logits[real], theirs.logits[real], **TOLERANCE)


@pytest.mark.parametrize("padding", [1, 4])
def test_unused_position_rows_are_restored(padding, tmp_path):
    native = make_native("roberta", "plain", "Model", pad_token_id=padding)
    table = native.embeddings.position_embeddings.weight
    assert table[: padding + 1].any()
    ours = from_native(native)
    assert count_positions(native.config) == count_positions(ours.config) == 80 - padding - 1
    assert torch.equal(ours.embeddings.position_embeddings.weight, table[padding + 1 :])
    ours.save_pretrained(tmp_path)
    again = to_native(minibert.MiniBertModel.from_pretrained(tmp_path))
    assert_same_weights(again, native)
    with pytest.raises(ValueError, match=f"beyond max_position_embeddings={80 - padding - 1}"):
        ours(torch.full((1, 80), 9))


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_any_bert_becomes_a_roberta(head):
    """Rows that nobody reads are zero then."""
    fields = dict(
        vocab_size=VOCAB,
        hidden_size=32,
        num_attention_heads=4,
        pad_token_id=3,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    ours = getattr(minibert, f"MiniBert{head}")(MiniBertConfig.bert("tiny", **fields)).eval()
    native = to_native(ours, "roberta")
    assert native.config.max_position_embeddings == 68
    assert not native.base_model.embeddings.position_embeddings.weight[:4].any()
    batch = rows_with_padding("right", 3)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        theirs, mine = native(**batch)[0], ours(**batch)[0]
    real = real if theirs.shape[:2] == real.shape else slice(None)
    torch.testing.assert_close(mine[real], theirs[real], **TOLERANCE)
    ours.config.pad_token_id = None
    with pytest.raises(ValueError, match="roberta needs pad_token_id"):
        to_native(ours, "roberta")


# --- ALBERT ---


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForPreTraining"])
def test_packed_alberts_are_alberts_of_each_text(head):
    """The native class gets one text after the other."""
    native = make_native("albert", "plain", head)
    ours = from_native(native)
    torch.manual_seed(0)
    texts = [torch.randint(8, VOCAB, (1, length)) for length in (9, 1, 14)]
    positions_of = [torch.arange(text.shape[1])[None] for text in texts]
    with torch.no_grad():
        packed = ours(torch.cat(texts, 1), position_ids=torch.cat(positions_of, 1))
        expected = [native(text) for text in texts]
    tokens = torch.cat([outputs[0] for outputs in expected], 1)
    torch.testing.assert_close(packed[0], tokens, **TOLERANCE)
    if head != "ForMaskedLM":
        pooled = torch.cat([outputs[1] for outputs in expected])
        torch.testing.assert_close(packed[1], pooled, **TOLERANCE)


@pytest.mark.parametrize(
    "hidden_size, num_hidden_layers, num_attention_heads, millions",
    [(768, 12, 12, 12), (1024, 24, 16, 18), (2048, 24, 16, 59), (4096, 12, 64, 223)],
    ids=["base", "large", "xlarge", "xxlarge"],
)
def test_the_published_sizes_are_alberts(
    hidden_size, num_hidden_layers, num_attention_heads, millions
):
    """At full size, without weights: as many parameters as Transformers' class has. The paper's
    table 1 says 12, 18, 60 and 235 million."""
    config = transformers.AlbertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        intermediate_size=4 * hidden_size,
    )
    with torch.device("meta"):
        native = transformers.AlbertModel(config)
        ours = from_native(native)
        again = to_native(ours)
    assert round(ours.num_parameters() / 1e6) == millions
    assert ours.num_parameters() == native.num_parameters() == again.num_parameters()
    assert ours.config.num_hidden_layers == num_hidden_layers and len(ours.layers) == 1


def albert_tokenizer() -> transformers.AlbertTokenizer:
    """A Unigram tokenizer, as published ALBERTs have."""
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=80, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(sentences(200), trainer)
    vocabulary = json.loads(backend.to_str())["model"]["vocab"]
    return transformers.AlbertTokenizer(vocab=[(piece, score) for piece, score in vocabulary])


def test_an_albert_and_its_tokenizer_there_and_back(tmp_path, capsys):
    tokenizer = albert_tokenizer()
    fields = dict(vocab_size=len(tokenizer), bos_token_id=2, eos_token_id=3)
    native = make_native("albert", "plain", "ForPreTraining", **fields)
    native.save_pretrained(tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "back")
    assert capsys.readouterr().out.count("of the largest logit on ten texts") == 2
    again = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "back")
    assert_same_weights(again, native)
    assert again.config.to_diff_dict() == native.config.to_diff_dict()
    texts = [*sentences(8, seed=1), "Ka\u0301tan ``lover'' katan?", ""]
    expected = tokenizer(texts, texts[::-1])
    for folder in ("ours", "back"):
        saved = transformers.AutoTokenizer.from_pretrained(tmp_path / folder)
        assert type(saved).__name__ == "AlbertTokenizer"
        assert saved(texts, texts[::-1])["input_ids"] == expected["input_ids"]


def test_a_second_group_of_layers_is_not_left_out(tmp_path):
    """Where the config counts one group and the file holds two."""
    native = make_native("albert", "plain", "ForMaskedLM", num_hidden_groups=2)
    native.config.num_hidden_groups = 1
    native.save_pretrained(tmp_path / "source")
    with pytest.raises(ValueError, match="unknown weights: albert.encoder.albert_layer_groups.1"):
        convert(tmp_path / "source", tmp_path / "ours")


def test_an_albert_has_two_orders_of_segments_whatever_the_labels():
    fields = dict(vocab_size=VOCAB, share_layers=True, embedding_size=16, num_labels=3)
    ours = minibert.MiniBertForPreTraining(MiniBertConfig.bert("tiny", **fields))
    native = to_native(ours)
    assert isinstance(native, transformers.AlbertForPreTraining) and native.config.num_labels == 2


@pytest.mark.parametrize("embedding_size", [16, 128, None])
def test_a_minibert_with_shared_layers_becomes_an_albert(embedding_size, tmp_path):
    """An ALBERT always projects its embeddings: if they are as wide as the layers, onto themselves."""
    fields = dict(vocab_size=VOCAB, share_layers=True, embedding_size=embedding_size)
    torch.manual_seed(0)
    ours = minibert.MiniBertForMaskedLM(MiniBertConfig.bert("tiny", **fields)).eval()
    to_native(ours).save_pretrained(tmp_path)
    native = transformers.AlbertForMaskedLM.from_pretrained(tmp_path)
    ids = torch.randint(8, VOCAB, (2, 12))
    with torch.no_grad():
        torch.testing.assert_close(native(ids).logits, ours(ids).logits, **TOLERANCE)
    assert_same_weights(from_native(native), ours)
    ours.config.norm_type = "rmsnorm"
    with pytest.raises(ValueError, match="albert needs norm_type='layernorm'"):
        to_native(ours)


# --- settings that only one family has ---


def test_native_only_config_fields_are_restored(tmp_path):
    kept = dict(sparse_prediction=True, deterministic_flash_attn=True)
    native = make_native("modernbert", "plain", "ForMaskedLM", **kept)
    ours = from_native(native)
    ours.save_pretrained(tmp_path)
    read = minibert.MiniBertForMaskedLM.from_pretrained(tmp_path)
    again = to_native(read)
    assert read.config.converted_rest == ours.config.converted_rest == dict(fields=kept)
    assert {name: getattr(again.config, name) for name in kept} == kept
    assert (
        from_native(make_native("modernbert", "plain", "ForMaskedLM")).config.converted_rest is None
    )


def test_a_folder_of_sentence_transformers(tmp_path):
    """Tokenizer, pooling, normalisation and modules with weights, also those in a .bin, come along, both ways; texts
    are as long as the positions at most."""
    tokenizer = train_tokenizer(sentences(200), vocab_size=80, show_progress=False)
    fields = dict(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, max_position_embeddings=20
    )
    native = make_native("xlm-roberta", "plain", "Model", **fields)
    tokenizer.model_max_length = count_positions(native.config)
    native.save_pretrained(tmp_path / "native")
    tokenizer.save_pretrained(tmp_path / "native")
    modules = [
        Transformer(str(tmp_path / "native")),
        Pooling(32, "cls"),
        Dense(32, 16),
        Normalize(),
    ]
    SentenceTransformer(modules=modules, device="cpu").save(
        str(tmp_path / "modules"), safe_serialization=False
    )
    assert (tmp_path / "modules" / "2_Dense" / "pytorch_model.bin").exists()
    texts = [*sentences(20, seed=1, longest=30), ""]
    expected = SentenceTransformer(str(tmp_path / "modules"), device="cpu").encode(texts)
    ours, again = (tmp_path / name for name in ("ours", "again"))
    convert(str(tmp_path / "modules"), str(ours))
    convert(str(ours), str(again))
    embedder = open_encoder(str(ours))
    np.testing.assert_allclose(encode(embedder, texts), expected, atol=1e-5)
    np.testing.assert_allclose(
        SentenceTransformer(str(again), device="cpu").encode(texts), expected, atol=1e-6
    )
    assert_same_weights(SentenceTransformer(str(again), device="cpu")[0].auto_model, native)


def test_late_interaction_models(tmp_path):
    """MiniBERT has no vectors of masked tokens, which queries of some are filled up with. Others convert."""
    tokenizer = train_tokenizer(
        sentences(200), vocab_size=80, model_max_length=40, show_progress=False
    )
    make_native("bert", "plain", "Model", vocab_size=len(tokenizer)).save_pretrained(
        tmp_path / "bert"
    )
    tokenizer.save_pretrained(tmp_path / "bert")
    queries = sentences(4, seed=1)
    for attend in (False, True):
        model, folder = (
            MultiVectorEncoder(str(tmp_path / "bert"), device="cpu"),
            tmp_path / f"attend-{attend}",
        )
        model[0].query_expansion = {"strategy": "fixed", "attend": attend, "length": 32}
        model.save_pretrained(str(folder))
    ours = convert(str(folder), str(tmp_path / "ours"))
    actual = MultiVectorEncoder(str(ours), device="cpu").encode_query(queries)
    for vectors, expected in zip(actual, model.encode_query(queries)):
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    for number, settings in enumerate(
        (None, {}, {"attend_to_expansion_tokens": True}, {"do_query_expansion": False})
    ):
        source = tmp_path / "attend-False"
        if settings is not None:  # as PyLate saves them
            source = shutil.copytree(tmp_path / "bert", tmp_path / f"pylate-{number}")
            marks = {"model_type": "ColBERT", "query_prefix": "[Q] "}
            (source / "config_sentence_transformers.json").write_text(json.dumps(marks | settings))
        target = tmp_path / f"target-{number}"
        if settings:
            convert(source, target)
            continue
        with pytest.raises(
            ValueError, match="queries are filled up with tokens that nothing attends to"
        ):
            convert(source, target)


DISTIL = dict(dropout=0.1, attention_dropout=0.2, qa_dropout=0.3, seq_classif_dropout=0.4)
MODERN = dict(mlp_dropout=0.1, attention_dropout=0.2, classifier_dropout=0.3, embedding_dropout=0.4)
ALBERT = dict(
    hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2, classifier_dropout_prob=0.3
)
RATES = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2, classifier_dropout=0.3)


@pytest.mark.parametrize(
    "architecture, head, rates, classifier",
    [
        ("bert", "ForTokenClassification", RATES, 0.3),
        ("bert", "ForQuestionAnswering", RATES, 0.0),
        ("modernbert", "ForTokenClassification", MODERN, 0.3),
        ("roberta", "ForSequenceClassification", RATES, 0.3),
        ("roberta", "ForMultipleChoice", RATES, 0.1),
        ("roberta", "ForTokenClassification", RATES, 0.3),
        ("roberta", "ForQuestionAnswering", RATES, 0.0),
        ("electra", "ForSequenceClassification", RATES, 0.3),
        ("electra", "ForMultipleChoice", RATES | dict(summary_last_dropout=0.4), 0.4),
        ("electra", "ForQuestionAnswering", RATES, 0.0),
        ("albert", "ForSequenceClassification", ALBERT, 0.3),
        ("albert", "ForQuestionAnswering", ALBERT, 0.0),
        ("distilbert", "ForSequenceClassification", DISTIL, 0.4),
        ("distilbert", "ForMultipleChoice", DISTIL, 0.4),
        ("distilbert", "ForTokenClassification", DISTIL, 0.1),
        ("distilbert", "ForQuestionAnswering", DISTIL, 0.3),
        ("jina_embeddings_v3", "ForSequenceClassification", RATES, 0.3),
        ("nomic_bert", "ForSequenceClassification", RATES, 0.3),
    ],
)
def test_dropout_is_carried_over(architecture, head, rates, classifier):
    """The classifier's is what Transformers' own module has; every rate of the config comes back."""
    native = make_native(architecture, "plain", head, **rates)
    ours = from_native(native)
    again = to_native(ours)
    places = ("dropout", "drop", "classifier.dropout", "sequence_summary.last_dropout")
    assert [module.p for name, module in native.named_modules() if name in places] == [
        classifier
    ] * bool(classifier)
    assert ours.dropout.p == classifier
    assert (ours.config.hidden_dropout, ours.config.attention_dropout) == (0.1, 0.2)
    assert {name: getattr(again.config, name) for name in rates} == rates


@pytest.mark.parametrize(
    "architecture", ["distilbert", "electra", "roberta", "nomic_bert", "eurobert"]
)
def test_head_added_after_conversion_converts_back(architecture, tmp_path):
    """A masked LM that was converted, then a classifier of its weights: the native class with equal outputs."""
    from_native(make_native(architecture, "plain", "ForMaskedLM")).save_pretrained(tmp_path)
    ours = minibert.MiniBertForSequenceClassification.from_pretrained(
        tmp_path, num_labels=3, classifier_dropout=None
    )
    native = to_native(ours.eval())
    batch = rows_with_padding("right", native.config.pad_token_id)
    with torch.no_grad():
        torch.testing.assert_close(ours(**batch).logits, native(**batch).logits, **TOLERANCE)


@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_query_attention_round_trip(groups, tmp_path):
    native = make_native(
        "eurobert", "biased", "ForMaskedLM", num_attention_heads=4, num_key_value_heads=groups
    )
    batch = rows_with_padding("right", 0)
    real = batch["attention_mask"].bool()
    ours = from_native(native)
    ours.save_pretrained(tmp_path)
    again = to_native(minibert.MiniBertForMaskedLM.from_pretrained(tmp_path))
    assert again.config.num_key_value_heads == groups
    assert_same_weights(again, native)
    with torch.no_grad():
        torch.testing.assert_close(
            ours(**batch).logits[real], native(**batch).logits[real], **TOLERANCE
        )
        ours.model.layers[1].attn.Wqkv.weight[24:28] += 0.1  # as after training
    with pytest.raises(ValueError, match=f"num_key_value_heads={groups}.*converted_rest=None"):
        to_native(ours)
    ours.config.converted_rest = None
    with torch.no_grad():
        torch.testing.assert_close(
            to_native(ours)(**batch).logits[real], ours(**batch).logits[real], **TOLERANCE
        )


def test_a_eurobert_that_pools_after_its_head_is_refused():
    with pytest.raises(ValueError, match="classifier_pooling='late'.*bos, mean"):
        from_native(
            make_native("eurobert", "plain", "ForSequenceClassification", classifier_pooling="late")
        )


# --- ModernBERTs under other names ---

# The published config.json, in the keys of Transformers 4 as they lie on the Hub, without what is the same in all; and
# millions of parameters, of the encoder, as the models' cards say.
OF_ALL = dict(
    attention_bias=False, attention_dropout=0.0, classifier_activation="gelu", classifier_bias=False,
    classifier_dropout=0.0, classifier_pooling="mean", decoder_bias=True, deterministic_flash_attn=False,
    embedding_dropout=0.0, global_attn_every_n_layers=3, gradient_checkpointing=False, hidden_activation="gelu",
    initializer_cutoff_factor=2.0, initializer_range=0.02, layer_norm_eps=1e-05, local_attention=128, mlp_bias=False,
    mlp_dropout=0.0, model_type="modernbert", norm_bias=False, norm_eps=1e-05, position_embedding_type="absolute",
    sparse_pred_ignore_index=-100, sparse_prediction=False,
)  # fmt: skip
OLMO_IDS = dict(vocab_size=50368, pad_token_id=50283, bos_token_id=50281, cls_token_id=50281, eos_token_id=50282,
                sep_token_id=50282)  # fmt: skip
PUBLISHED = {
    "jhu-clsp/ettin-encoder-17m": (17, "ForMaskedLM", OLMO_IDS | dict(
        hidden_size=256, num_hidden_layers=7, num_attention_heads=4, intermediate_size=384,
        max_position_embeddings=7999, global_rope_theta=160000.0, local_rope_theta=160000.0, is_causal=False)),
    "jhu-clsp/mmBERT-base": (307, "ForMaskedLM", dict(
        vocab_size=256000, hidden_size=768, num_hidden_layers=22, num_attention_heads=12, intermediate_size=1152,
        max_position_embeddings=8192, global_rope_theta=160000, local_rope_theta=160000, pad_token_id=0,
        bos_token_id=2, cls_token_id=1, eos_token_id=1, sep_token_id=1, mask_token_id=4)),
    "ibm-granite/granite-embedding-97m-multilingual-r2": (97, "Model", dict(
        vocab_size=180000, hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536,
        max_position_embeddings=32768, hidden_activation="silu", global_rope_theta=150000.0,
        local_rope_theta=160000.0, pad_token_id=179935, bos_token_id=179934, cls_token_id=179934,
        eos_token_id=179938, sep_token_id=179938)),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_configs_are_modernberts(name):
    """At full size, without weights: the same switches, shapes and number of parameters."""
    millions, head, fields = PUBLISHED[name]
    config = ModernBertConfig.from_dict(OF_ALL | fields)
    with torch.device("meta"):
        native = getattr(transformers, f"ModernBert{head}")(config)
        ours = from_native(native)
        again = to_native(ours)
    assert type(ours) is getattr(minibert, f"MiniBert{head}")
    assert abs(ours.base_model.num_parameters() / 1e6 - millions) < 1
    assert ours.num_parameters() == native.num_parameters()
    for kind, key in (
        ("full_attention", "global_rope_theta"),
        ("sliding_attention", "local_rope_theta"),
    ):
        assert ours.config.rope_parameters[kind]["rope_theta"] == fields[key]
    kinds = [
        "sliding_attention" if i % 3 else "full_attention"
        for i in range(fields["num_hidden_layers"])
    ]
    assert ours.config.layer_types == again.config.layer_types == kinds
    assert ours.config.sliding_window == 64 and ours.config.hidden_act == config.hidden_activation
    assert {key: getattr(ours.config, key) for key in fields if key.endswith("token_id")} == {
        key: value for key, value in fields.items() if key.endswith("token_id")
    }
    assert {name: tensor.shape for name, tensor in again.state_dict().items()} == {
        name: tensor.shape for name, tensor in native.state_dict().items()
    }
