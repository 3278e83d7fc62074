"""MiniBERT under Transformers' own common tests of models, unmodified; run by `test_suite.py`, which fetches them.

As for a model of the library: a small config, inputs, and the names of the heads in the tables by which the common
tests tell what a head takes.
"""

import unittest

import torch
from transformers.models.auto import modeling_auto
from transformers.testing_utils import torch_device
from transformers_tests.test_modeling_common import (
    ModelTesterMixin,
    ids_tensor,
    random_attention_mask,
)

import minibert.modeling_minibert as modeling
from minibert import MiniBertConfig

HEADS = {
    "MODEL_FOR_PRETRAINING": "ForPreTraining", "MODEL_FOR_MASKED_LM": "ForMaskedLM",
    "MODEL_FOR_CAUSAL_LM": "ForCausalLM", "MODEL_FOR_NEXT_SENTENCE_PREDICTION": "ForNextSentencePrediction",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION": "ForSequenceClassification", "MODEL_FOR_MULTIPLE_CHOICE": "ForMultipleChoice",
    "MODEL_FOR_TOKEN_CLASSIFICATION": "ForTokenClassification", "MODEL_FOR_QUESTION_ANSWERING": "ForQuestionAnswering",
}  # fmt: skip
for table, head in HEADS.items():
    getattr(modeling_auto, f"{table}_MAPPING_NAMES")["minibert"] = f"MiniBert{head}"
modeling_auto.MODEL_MAPPING_NAMES["minibert"] = "MiniBertModel"


class Tester:
    """What the common tests ask for a config and inputs."""

    batch_size, seq_length, num_choices, is_training = 13, 7, 4, True
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4

    def __init__(self, parent, **fields):
        self.parent, self.fields = parent, fields

    def get_config(self):
        return MiniBertConfig(
            vocab_size=99, hidden_size=self.hidden_size, num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads, intermediate_size=37, max_position_embeddings=512,
            **self.fields,
        )  # fmt: skip

    def prepare_config_and_inputs_for_common(self):
        inputs = {
            "input_ids": ids_tensor([self.batch_size, self.seq_length], 99),
            "attention_mask": random_attention_mask([self.batch_size, self.seq_length]),
        }
        if self.fields.get("type_vocab_size"):
            inputs["token_type_ids"] = ids_tensor([self.batch_size, self.seq_length], 2)
        return self.get_config(), {name: x.to(torch_device) for name, x in inputs.items()}


BERT = dict(
    position_embedding_type="absolute", norm_placement="post", norm_eps=1e-12, norm_bias=True, gated_mlp=False,
    global_attn_every_n_layers=1, attention_bias=True, mlp_bias=True, head_bias=True, classifier_bias=True,
    add_pooling_layer=True, classifier_pooling="cls", type_vocab_size=2, hidden_dropout=0.1, attention_dropout=0.1,
)  # fmt: skip
CORNERS = {
    "Bert": BERT,
    "ModernBert": dict(global_attn_every_n_layers=2, local_attention=4),
    "Decoder": dict(
        is_causal=True,
        norm_type="rmsnorm",
        gated_mlp=True,
        hidden_act="silu",
        tie_word_embeddings=False,
    ),
    # with weights large enough for attention to show beside what a post-norm makes of each word
    "PostRms": dict(
        norm_placement="post", norm_type="rmsnorm", type_vocab_size=2, initializer_range=0.1
    ),
    "Sinusoidal": dict(
        position_embedding_type="sinusoidal",
        local_attention=2,
        classifier_pooling="cls",
        mlp_bias=True,
    ),
    "NoPositions": dict(
        position_embedding_type="none",
        decoder_bias=False,
        scaled_output_init=False,
        hidden_dropout=0.1,
    ),
}
ALL = tuple(
    getattr(modeling, name) for name in modeling.__all__ if name != "MiniBertPreTrainedModel"
)


class Corner(ModelTesterMixin):
    all_model_classes = ALL
    # The distribution has no tests of `generate`; ours are in tests/model/test_scripts.py.
    all_generative_model_classes = ()

    def setUp(self):
        self.model_tester = Tester(self, **self.fields)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels)
        # As BERT's own test does; no table has a head that finds replaced tokens.
        detector = modeling.MiniBertForReplacedTokenDetection
        if return_labels and model_class in (modeling.MiniBertForPreTraining, detector):
            inputs["labels"] = torch.zeros(
                inputs["input_ids"].shape, dtype=torch.long, device=torch_device
            )
        if return_labels and model_class is modeling.MiniBertForPreTraining:
            inputs["next_sentence_label"] = torch.zeros(
                self.model_tester.batch_size, dtype=torch.long
            )
        return inputs


class CornerWithoutRope(Corner):
    """The tests of RoPE are for configs that have `rope_parameters`; here they are None."""


for name in [name for name in dir(Corner) if name.startswith("test_model_rope_")]:
    setattr(CornerWithoutRope, name, unittest.skip("no rotary positions")(lambda self: None))

for name, fields in CORNERS.items():
    globals()[f"{name}Test"] = type(
        f"{name}Test",
        (
            Corner
            if fields.get("position_embedding_type", "rope") == "rope"
            else CornerWithoutRope,
            unittest.TestCase,
        ),
        {"fields": fields},
    )
