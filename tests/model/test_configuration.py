"""The configuration: presets against the published models, every refusal, and that nothing is lost on disk."""

import ast
import json
import logging
import re
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from tokenizers import Tokenizer, models
from transformers import AutoConfig, BertConfig, ModernBertConfig, PreTrainedTokenizerFast

from minibert.configuration_minibert import MiniBertConfig
from minibert.modeling_minibert import MiniBertForMaskedLM, MiniBertForPreTraining, MiniBertModel

# What the constructor raises: ValueError for an unknown name, Transformers' strict error for a value.
REFUSED = (ValueError, StrictDataclassError)


def parameters(model_class, config) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in model_class(config).parameters())


def shape(config) -> tuple[int, ...]:
    return (
        config.hidden_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
    )


# --- presets ---


@pytest.mark.parametrize("size, layers, width, millions", [
    # Turc et al. 2019 count the pretraining heads in; BERT-large is "340M" in Devlin et al. 2018
    ("tiny", 2, 128, 4.4), ("mini", 4, 256, 11.3), ("small", 4, 512, 29.1), ("medium", 8, 512, 41.7),
    ("base", 12, 768, 110.1), ("large", 24, 1024, 336.2),
])  # fmt: skip
def test_bert_presets_have_the_published_shapes_and_sizes(size, layers, width, millions):
    config = MiniBertConfig.bert(size)
    assert shape(config) == (width, layers, width // 64, 4 * width)
    count = parameters(MiniBertForPreTraining, config)
    assert round(count / 1e6, 1) == millions
    native = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    assert count == parameters(transformers.BertForPreTraining, native)


@pytest.mark.parametrize("size, expected, millions", [
    # Ettin (Weller et al. 2025): 17M, 32M, 68M; ModernBERT (Warner et al. 2024): 149M, 395M; without heads
    ("mini", (256, 7, 4, 384), 17), ("small", (384, 10, 6, 576), 32), ("medium", (512, 19, 8, 768), 68),
    ("base", (768, 22, 12, 1152), 149), ("large", (1024, 28, 16, 2624), 395),
])  # fmt: skip
def test_modernbert_presets_have_the_published_shapes_and_sizes(size, expected, millions):
    config = MiniBertConfig.modernbert(size)
    assert shape(config) == expected
    assert round(parameters(MiniBertModel, config) / 1e6) == millions
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    native = ModernBertConfig(**dict(zip(names, expected)))
    assert parameters(MiniBertForMaskedLM, config) == parameters(
        transformers.ModernBertForMaskedLM, native
    )


@pytest.mark.parametrize("size", ["tiny", "mini", "large"])
def test_our_preset_is_a_modernbert_with_narrow_local_layers(size):
    config = MiniBertConfig.minibert(size)
    ours, theirs = config.to_dict(), MiniBertConfig.modernbert(size).to_dict()
    assert {name for name in ours if ours[name] != theirs[name]} == {
        "local_attention"
    } and config.sliding_window == 3


def test_default_config_is_modernbert_base():
    ours, theirs = MiniBertConfig(), ModernBertConfig()
    assert ours.to_dict() == MiniBertConfig.modernbert("base").to_dict()
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                 "hidden_activation", "max_position_embeddings", "initializer_range", "initializer_cutoff_factor",
                 "norm_eps", "norm_bias", "attention_bias", "mlp_bias", "decoder_bias", "layer_types",
                 "local_attention", "sliding_window", "rope_parameters", "classifier_activation",
                 "tie_word_embeddings"):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.head_bias == theirs.classifier_bias


# --- refusals ---


@pytest.mark.parametrize("build", [MiniBertConfig, MiniBertConfig.bert])
@pytest.mark.parametrize(
    "typo, meant", [("norm_typ", "norm_type"), ("zzzz", "use one of .*hidden_size.*vocab_size")]
)
def test_misspelt_field_is_refused_with_the_right_name(build, typo, meant):
    with pytest.raises(ValueError, match=rf"{typo}.*value 'x'.*{meant}"):
        build(**{typo: "x"})


@pytest.mark.parametrize("field, value, instead", [
    ("norm_type", "batchnorm", "rmsnorm"), ("norm_placement", "both", "post"),
    ("position_embedding_type", "alibi", "sinusoidal"), ("classifier_pooling", "max", "mean"),
    ("hidden_size", "768", "int"), ("gated_mlp", "yes", "bool"), ("vocab_size", 0, "at least 1"),
    ("num_attention_heads", -12, "at least 1"), ("global_attn_every_n_layers", 0, "at least 1"),
    ("type_vocab_size", -1, "0"), ("embedding_size", 0, "None for hidden_size=768"),
    ("num_attention_heads", 7, "divide hidden_size=768"), ("num_attention_heads", 256, "even head width"),
    ("local_attention", 0, "at least 2"), ("hidden_act", "sine", "gelu_new"), ("pooler_activation", "sine", "tanh"),
    ("hidden_dropout", 1.0, "p < 1"), ("classifier_dropout", 1, "p < 1"), ("norm_eps", 0.0, "above 0"),
    ("initializer_range", float("inf"), "above 0"), ("initializer_cutoff_factor", 0, "above 0"),
    ("num_hidden_layers", 10**8, "at most 10000"),  # a list of as many entries
    ("num_labels", 10**8, "from 0 to 1000000"),  # two dictionaries
    ("num_labels", -1, "from 0 to 1000000"),
])  # fmt: skip
def test_bad_value_names_field_value_and_what_to_use(field, value, instead):
    with pytest.raises(REFUSED) as refusal:
        MiniBertConfig(**{field: value})
    message = str(refusal.value)
    assert field in message and str(value) in message and instead in message


def test_bad_layer_types_and_preset_sizes_are_refused():
    for value, message in (
        (["full_attention"] * 23, "number of layer_types=23: use num_hidden_layers=22"),
        (
            ["full_attention"] * 21 + ["local"],
            "layer_types='local': use full_attention, sliding_attention",
        ),
    ):
        with pytest.raises(REFUSED, match=message):
            MiniBertConfig(layer_types=value)
    with pytest.raises(ValueError, match="size='huge'.*tiny, mini, small, medium, base, large"):
        MiniBertConfig.bert("huge")


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"full": {"rope_theta": 1e4}}, "'full'.*full_attention"),
        ({"full_attention": {"rope_type": "ntk"}}, "'ntk'.*yarn"),
        ({"full_attention": {"rope_type": "yarn"}}, "'factor'.*=None.*'yarn' needs it"),
        ({"rope_type": "linear", "factor": -2.0}, "full_attention.*factor.*=-2.0.*above 0"),
        (
            {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0] * 32},
            "short_factor.*32 numbers",
        ),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, "truncate.*=False.*only true"),
        ({"partial_rotary_factor": 0.02}, "partial_rotary_factor.*at least 2.*not 1"),
        ({"partial_rotary_factor": "half"}, "partial_rotary_factor.*='half'.*above 0"),
        ({"full_attention": {"rope_theta": 0}}, "rope_theta.*=0.*above 0"),
        ({"full_attention": {"rope_theta": True}}, "rope_theta.*=True.*above 0"),
        ({"sliding_attention": {"factor": 2.0}}, "'factor'.*=2.0.*'default' has no such key"),
        ({"full_attention": 5}, r"rope_parameters\['full_attention'\]=5: use a dictionary"),
        ({"sliding_attention": ["yarn"]}, r"\['sliding_attention'\]=\['yarn'\]: use a dictionary"),
        ({"rope_type": ["yarn"]}, r"\['rope_type'\]=\['yarn'\]: use one of default"),
        (5, "rope_parameters"),
    ],
)
def test_bad_rope_parameters_are_refused(parameters, message, tmp_path):
    with pytest.raises(REFUSED, match=message):
        MiniBertConfig(rope_parameters=parameters)
    MiniBertConfig.modernbert("tiny").save_pretrained(tmp_path)
    with pytest.raises(REFUSED, match=message):  # in place of those of a saved model
        MiniBertConfig.from_pretrained(tmp_path, rope_parameters=parameters)


def test_rope_parameters_for_both_kinds_of_layers():
    """Beside the kinds they hold for both; what Transformers derives from the length is filled in."""
    config = MiniBertConfig(
        rope_parameters={"rope_type": "yarn", "factor": 4.0, "sliding_attention": {"rope_theta": 7.0}},
        max_position_embeddings=512, num_hidden_layers=2, vocab_size=64,
    )  # fmt: skip
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    expected = {
        "full_attention": yarn | {"rope_theta": 160_000.0},
        "sliding_attention": yarn | {"rope_theta": 7.0},
    }
    assert config.rope_parameters == expected
    # as Transformers' own tests set them, one kind of scaling after the other
    config.rope_parameters.update(
        rope_type="default", rope_theta=1e4, original_max_position_embeddings=16384
    )
    with pytest.raises(REFUSED, match="factor"):  # of the scaling that was set before
        MiniBertModel(config)
    config.rope_parameters.update(rope_type="linear", factor=2.0, rope_theta=1e4)
    MiniBertModel(config)
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    assert config.rope_parameters == {"full_attention": linear, "sliding_attention": linear}


def test_rope_parameters_given_twice_are_refused(tmp_path):
    """What stands beside the kinds of layers would win over what stands in one of them."""
    MiniBertConfig.modernbert("tiny").save_pretrained(tmp_path)
    twice = {"rope_type": "linear", "factor": 2.0, "sliding_attention": {"rope_type": "default"}}
    message = "rope_parameters: 'rope_type' is given for 'sliding_attention' and for both"
    with pytest.raises(ValueError, match=message):
        MiniBertConfig.from_pretrained(tmp_path, rope_parameters=twice)
    with pytest.raises(ValueError, match=message):
        MiniBertConfig(rope_parameters=twice)


def test_rope_parameters_that_are_overridden_keep_what_the_weights_were_trained_with(tmp_path):
    """As in Transformers' ModernBERT models with bases of their own (Ettin, mmBERT, granite)."""
    full, local = {"rope_theta": 8e4, "partial_rotary_factor": 0.5}, {"rope_theta": 1.6e5}
    saved = MiniBertConfig.modernbert(
        "tiny", rope_parameters={"full_attention": full, "sliding_attention": local}
    )
    saved.save_pretrained(tmp_path)

    def loaded(**parameters):
        return MiniBertConfig.from_pretrained(tmp_path, rope_parameters=parameters).rope_parameters

    linear = {"rope_type": "linear", "factor": 2.0}
    assert loaded(**linear) == {
        "full_attention": full | linear,
        "sliding_attention": local | linear,
    }
    other = {"full_attention": full | {"rope_type": "default", "rope_theta": 999.0}}
    assert loaded(full_attention={"rope_theta": 999.0}) == saved.rope_parameters | other
    assert loaded(rope_theta=5.0)["sliding_attention"]["rope_theta"] == 5.0


def test_fields_that_contradict_each_other_are_refused():
    with pytest.raises(REFUSED, match="rope_parameters=.*_type='rope'"):
        MiniBertConfig(position_embedding_type="none", rope_parameters={"rope_theta": 1e4})
    with pytest.raises(REFUSED, match="embedding_size=8.*prediction_transform.*hidden_size=768"):
        MiniBertConfig(embedding_size=8, prediction_transform=False)
    odd_head = dict(hidden_size=9, num_attention_heads=3)
    with pytest.raises(REFUSED, match="even head width"):
        MiniBertConfig(**odd_head)
    with pytest.raises(REFUSED, match="hidden_size=9.*sinusoidal.*even"):
        MiniBertConfig(**odd_head, position_embedding_type="sinusoidal")
    assert MiniBertConfig(**odd_head, position_embedding_type="absolute").hidden_size == 9


# --- derived fields, aliases ---


def test_sliding_window_is_half_the_window_and_settable():
    config = MiniBertConfig(local_attention=9)
    assert config.sliding_window == 4
    config.sliding_window = 5
    assert (config.local_attention, config.sliding_window) == (10, 5)
    assert MiniBertConfig(sliding_window=3).local_attention == 6


@pytest.mark.parametrize("alias, field, value", [
    ("hidden_dropout_prob", "hidden_dropout", 0.25), ("attention_probs_dropout_prob", "attention_dropout", 0.25),
    ("layer_norm_eps", "norm_eps", 1e-7), ("hidden_activation", "hidden_act", "relu"),
    ("is_decoder", "is_causal", True),
])  # fmt: skip
def test_aliases_read_write_and_construct(alias, field, value, tmp_path):
    config = MiniBertConfig(**{alias: value})
    assert getattr(config, field) == getattr(config, alias) == value
    other = MiniBertConfig()
    setattr(other, alias, value)
    assert getattr(other, field) == value
    config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved[field] == value and alias not in saved
    assert getattr(MiniBertConfig.from_pretrained(tmp_path, **{alias: value}), field) == value


def test_rope_parameters_are_completed_and_absent_without_rope():
    config = MiniBertConfig(rope_parameters={"full_attention": {"rope_theta": 1e6}})
    assert config.rope_parameters == {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    for kind in ("absolute", "sinusoidal", "none"):
        assert not MiniBertConfig(position_embedding_type=kind).rope_parameters


# --- to disk and back ---

EVERY_KIND = {
    "modern": dict(),
    "classic": dict(
        position_embedding_type="absolute",
        norm_placement="post",
        gated_mlp=False,
        type_vocab_size=2,
    ),
    "rms": dict(norm_type="rmsnorm", layer_types=["sliding_attention", "full_attention"] * 2),
    "sinusoidal": dict(position_embedding_type="sinusoidal"),
    "shared": dict(share_layers=True, embedding_size=16),
    "labelled": dict(
        num_labels=5, problem_type="multi_label_classification", eos_token_id=[3, 4], is_causal=True
    ),
}


@pytest.mark.parametrize("fields", EVERY_KIND.values(), ids=EVERY_KIND)
def test_round_trip_through_json(fields, tmp_path):
    config = MiniBertConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=4, **fields)
    config.save_pretrained(tmp_path)
    again = MiniBertConfig.from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict()
    assert all(getattr(again, name) == value for name, value in fields.items())
    through_auto = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(through_auto, MiniBertConfig)
    assert through_auto.to_dict() == config.to_dict() | {"_name_or_path": str(tmp_path)}


def test_cross_attention_is_refused():
    said = "add_cross_attention=True: MiniBERT has no cross-attention"
    with pytest.raises(StrictDataclassError, match=said):
        MiniBertConfig(add_cross_attention=True)
    config = MiniBertConfig(add_cross_attention=False)
    config.add_cross_attention = True  # as sentence-transformers' DenoisingAutoEncoderLoss does
    with pytest.raises(ValueError, match=said):
        MiniBertForMaskedLM(config)


def test_from_pretrained_keeps_unknown_keys_with_a_warning(tmp_path, monkeypatch, caplog):
    MiniBertConfig(num_hidden_layers=3).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    unknown = {"written_by_another": [1, 2], "norm_typ": "x", "\x1b[2J": 1}
    path.write_text(json.dumps(json.loads(path.read_text()) | unknown))
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        config = MiniBertConfig.from_pretrained(tmp_path)
    assert r"'\x1b[2J', 'norm_typ', 'written_by_another'" in caplog.text
    assert (
        config.written_by_another == [1, 2]
        and config.norm_typ == "x"
        and config.num_hidden_layers == 3
    )
    config.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["written_by_another"] == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    "key",
    [
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_internal",
        "experts_implementation",
    ],
)
def test_config_file_cannot_choose_a_kernel(tmp_path, key):
    """It might be code of the Hub, and not what the caller asked for."""
    MiniBertModel(MiniBertConfig.bert("tiny", vocab_size=64)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: "somebody/kernel"}))
    for given in ({}, {"attn_implementation": "eager"}):
        model = MiniBertModel.from_pretrained(tmp_path, **given)
        assert model.config._attn_implementation == given.get("attn_implementation", "sdpa")
    assert "somebody" not in str(vars(MiniBertConfig.from_pretrained(tmp_path)))


def test_an_overridden_depth_rebuilds_the_pattern_unless_it_was_chosen(tmp_path):
    MiniBertConfig(num_hidden_layers=4).save_pretrained(tmp_path / "derived")
    deeper = MiniBertConfig.from_pretrained(tmp_path / "derived", num_hidden_layers=7)
    assert [kind == "full_attention" for kind in deeper.layer_types] == [True, False, False] * 2 + [
        True
    ]
    MiniBertConfig(num_hidden_layers=2, layer_types=["sliding_attention"] * 2).save_pretrained(
        tmp_path / "chosen"
    )
    with pytest.raises(REFUSED, match="number of layer_types=2: use num_hidden_layers=7"):
        MiniBertConfig.from_pretrained(tmp_path / "chosen", num_hidden_layers=7)


@pytest.mark.parametrize("preset", ["bert", "modernbert"])
def test_a_depth_that_is_set_later_rebuilds_the_pattern_too(preset, tmp_path):
    """As run_mlm.py does with `--config_overrides`, and whoever cuts layers off a model."""
    config = getattr(MiniBertConfig, preset)("tiny", vocab_size=40)
    config.update_from_string("num_hidden_layers=5")
    built = getattr(MiniBertConfig, preset)("tiny", vocab_size=40, num_hidden_layers=5)
    assert config.layer_types == built.layer_types and len(MiniBertModel(config).layers) == 5
    config.global_attn_every_n_layers = 4
    assert [kind == "full_attention" for kind in config.layer_types] == [
        True,
        False,
        False,
        False,
        True,
    ]
    config.save_pretrained(tmp_path)
    chosen = MiniBertConfig(num_hidden_layers=2, layer_types=["sliding_attention"] * 2)
    chosen.num_hidden_layers = 3
    with pytest.raises(ValueError, match="number of layer_types=2: use num_hidden_layers=3"):
        MiniBertModel(chosen)


# --- from a tokenizer ---


def make_tokenizer(words: int) -> PreTrainedTokenizerFast:
    special = dict(
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        pad_token="[PAD]",
    )
    vocabulary = [*(f"word{i}" for i in range(words - 5)), *special.values()]
    model = models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), **special)


@pytest.mark.parametrize("words, padded", [(25, 64), (64, 64), (65, 128)])
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_from_tokenizer_takes_ids_and_a_padded_vocabulary(words, padded, architecture):
    tokenizer = make_tokenizer(words)
    config = MiniBertConfig.from_tokenizer(tokenizer, architecture, "tiny", hidden_size=64)
    assert config.vocab_size == padded
    for name in ("unk", "cls", "sep", "mask", "pad", "bos", "eos"):
        assert getattr(config, f"{name}_token_id") == getattr(tokenizer, f"{name}_token_id")
    assert config.mask_token_id == words - 2 and config.hidden_size == 64
    assert (
        config.position_embedding_type == {"bert": "absolute", "modernbert": "rope"}[architecture]
    )


def test_a_vocabulary_with_gaps_needs_rows_up_to_its_highest_id():
    tokens = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "cat": 5, "dog": 900}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(tokens, unk_token="[UNK]"))
    )
    assert MiniBertConfig.from_tokenizer(tokenizer).vocab_size == 960
    with pytest.raises(
        ValueError, match="vocab_size=64 is too small: the tokenizer has ids up to 900"
    ):
        MiniBertConfig(vocab_size=64).check_tokenizer(tokenizer)


def test_from_tokenizer_refuses_what_the_tokenizer_contradicts():
    tokenizer = make_tokenizer(100)
    assert MiniBertConfig.from_tokenizer(tokenizer).vocab_size == 128
    with pytest.raises(ValueError, match="vocab_size=64 .* up to 99"):
        MiniBertConfig.from_tokenizer(tokenizer, vocab_size=64)
    with pytest.raises(ValueError, match="mask_token_id=3 .*98"):
        MiniBertConfig.from_tokenizer(tokenizer, mask_token_id=3)
    with pytest.raises(
        ValueError, match="tokenizer='gpt2': use AutoTokenizer.from_pretrained"
    ):  # not one of 4 tokens
        MiniBertConfig.from_tokenizer("gpt2")
    with pytest.raises(ValueError, match="architecture='gpt'.*bert, modernbert or minibert"):
        MiniBertConfig.from_tokenizer(tokenizer, "gpt")
    with pytest.raises(ValueError, match="hiden_size"):
        MiniBertConfig.from_tokenizer(tokenizer, hiden_size=64)


# --- documentation ---


def documented_fields() -> dict[str, str]:
    """The fields in the `Args:` section, with the default that it gives."""
    section = MiniBertConfig.__doc__.partition("    Args:\n")[2].partition("\n    Raises:")[0]
    pattern = r"^        (\w+) \(`[^`]+`, default `([^`]+)`\): \S"
    return dict(re.findall(pattern, section, re.MULTILINE))


def test_every_field_is_documented_with_its_default():
    own_fields = MiniBertConfig.__annotations__
    documented = documented_fields()
    assert list(documented) == list(own_fields)
    for name, default in documented.items():
        assert ast.literal_eval(default) == getattr(MiniBertConfig, name), name


# Fields that came after the first saved folders, with what the code of then computed. These values
# may never change; a field that comes later gets a row.
LATER_FIELDS = {
    "embedding_norm": True,
    "embedding_size": None,
    "pooler_activation": "tanh",
    "prediction_transform": True,
    "share_layers": False,
    "threshold_shift": None,
    "thresholds": None,
    "converted_rest": None,
}


@pytest.mark.parametrize("name", ["bert", "decoder", "modernbert"])
def test_a_folder_without_a_later_field_reads_as_before(name):
    folder = Path(__file__).parents[1] / "released" / name
    saved = json.loads((folder / "config.json").read_text())
    missing = MiniBertConfig.__annotations__.keys() - saved.keys()
    assert missing and missing <= LATER_FIELDS.keys()
    config = MiniBertConfig.from_pretrained(folder)
    for field in missing:
        assert getattr(config, field) == LATER_FIELDS[field], field
