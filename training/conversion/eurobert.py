"""EuroBERT: a decoder's blocks, read in both directions."""

from typing import Any

import torch
from transformers import EuroBertConfig, PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import DECODER_LAYERS, Architecture, class_names, field_names, kept_fields, logger

POOLINGS = {"bos": "cls", "mean": "mean"}


class EuroBertArchitecture(Architecture):
    """EuroBERT (Boizard et al. 2025). Keys and values that several heads share are repeated for each of them."""

    config_class = EuroBertConfig
    classes = class_names("EuroBert", "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    fields = field_names(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act"
        " max_position_embeddings initializer_range tie_word_embeddings attention_bias attention_dropout mlp_bias"
        " rope_parameters",
        rms_norm_eps="norm_eps",
    )
    switches = dict(
        position_embedding_type="rope", norm_type="rmsnorm", norm_placement="pre", gated_mlp=True, type_vocab_size=0,
        is_causal=False, embedding_norm=False, prediction_transform=False,
    )  # fmt: skip
    defaults = dict(
        global_attn_every_n_layers=1, classifier_bias=True, hidden_dropout=0.0, initializer_cutoff_factor=None,
        scaled_output_init=False, pooler_activation="gelu",
    )  # fmt: skip
    modules = DECODER_LAYERS | {
        "model.embeddings.tok_embeddings": ("model.embed_tokens",),
        "model.layers.N.attn_norm": ("model.layers.N.input_layernorm",),
        "model.layers.N.mlp_norm": ("model.layers.N.post_attention_layernorm",),
        "model.final_norm": ("model.norm",),
        "model.pooler.dense": ("dense",),
        "decoder": ("lm_head",),
    }

    def join(self, name: str, parts: list[torch.Tensor], native: PreTrainedConfig) -> torch.Tensor:
        groups, heads = native.num_key_value_heads, native.num_attention_heads
        if ".attn.Wqkv." in name and groups != heads:
            shared = (part.unflatten(0, (groups, -1)) for part in parts[1:])
            parts = [parts[0], *(part.repeat_interleave(heads // groups, 0).flatten(0, 1) for part in shared)]
        return super().join(name, parts, native)

    def split(self, name: str, tensor: torch.Tensor, parts: int, config: MiniBertConfig) -> list[torch.Tensor]:
        split, heads = super().split(name, tensor, parts, config), config.num_attention_heads
        groups = self._groups(config)
        if ".attn.Wqkv." not in name or groups == heads:
            return split
        for number, part in enumerate(split[1:], 1):
            of_heads = part.unflatten(0, (groups, heads // groups, -1))
            if not torch.equal(of_heads, of_heads[:, :1].expand_as(of_heads)):
                shared = f"num_key_value_heads={groups}: the heads of {name} no longer share their keys and values"
                raise ValueError(f"{shared}, since they were trained; config.converted_rest=None gives each its own")
            split[number] = of_heads[:, 0].flatten(0, 1)
        return split

    def _groups(self, config: MiniBertConfig) -> int:
        return kept_fields(config, self).get("num_key_value_heads") or config.num_attention_heads

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        config, pooled = native.config, head == "ForSequenceClassification"
        if pooled and config.classifier_pooling not in POOLINGS:
            pooling = f"classifier_pooling={config.classifier_pooling!r} is not convertible"
            raise ValueError(f"{pooling}: MiniBERT pools before its head; train with one of {', '.join(POOLINGS)}")
        return dict(
            decoder_bias=config.mlp_bias,
            add_pooling_layer=head != "Model",
            classifier_pooling=POOLINGS.get(config.classifier_pooling, "mean"),
        )

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        for name in ("hidden_dropout", "embedding_dropout", "classifier_dropout"):
            if rate := getattr(config, name):
                logger.warning(f"EuroBERT drops units of the attention only: {name}={rate} is lost")
        fields = dict(
            head_dim=config.hidden_size // config.num_attention_heads,
            num_key_value_heads=self._groups(config),
        )
        if head == "ForSequenceClassification":
            pooling = {ours: native for native, ours in POOLINGS.items()}
            fields["classifier_pooling"] = pooling[config.classifier_pooling]
        return fields

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        required = super().required(model, head)
        if head == "ForSequenceClassification":
            required |= dict(pooler_activation="gelu")
        if head == "ForMaskedLM":
            required |= dict(decoder_bias=model.config.mlp_bias)
        return required
