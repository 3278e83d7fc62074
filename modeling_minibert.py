# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""MiniBERT: the encoder and every head.

What happens to a batch: `MiniBertModel.forward` describes it (`PackedSequences`), drops padding, embeds the real
tokens, plans the attention of each kind of layer, and runs the layers over the unpadded tokens. It pads the result only
for callers who need padded rows. The heads work on the unpadded tokens; in training, logits over the vocabulary are
computed at the labelled positions only.

Shape suffixes: b batch, s columns of the padded batch, t tokens (unpadded, or all columns if padding was kept), n rows
or documents, d width, v vocabulary, c classes.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.generation import GenerationMixin
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    CausalLMOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import ModelOutput, can_return_tuple, logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention_minibert import InterfacePlan, MiniBertAttention, output_std, plan_attention
from .configuration_minibert import MiniBertConfig
from .cpu_minibert import CrossEntropyByRows, MiniBertDropout, bucket_rows, project, repeat_last
from .embeddings_minibert import MiniBertEmbeddings, MiniBertRotary, build_linear, build_norm
from .sequences_minibert import PackedSequences, at_least_fp32, is_captured, is_traced

MaybeTensor = torch.Tensor | None

logger = logging.get_logger(__name__)


# --- the block ---


class MiniBertMLP(nn.Module):
    """Wo(act(Wi x)), or gated (Shazeer 2020): Wo(act(a) · b) with a, b the halves of Wi x."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        self.gated = config.gated_mlp
        inner = config.intermediate_size
        self.Wi = build_linear(
            config.hidden_size,
            inner * (2 if self.gated else 1),
            config.mlp_bias,
            config.initializer_range,
        )
        self.act = ACT2FN[config.hidden_act]
        self.Wo = build_linear(inner, config.hidden_size, config.mlp_bias, output_std(config))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return project(self.Wo, project(self.Wi, hidden_states, self.act, self.gated))


class MiniBertLayer(GradientCheckpointingLayer):
    """Attention and MLP with residuals; norms before (Xiong et al. 2020) or after (Vaswani et al. 2017)."""

    def __init__(self, config: MiniBertConfig, layer_idx: int):
        super().__init__()
        self.pre_norm = config.norm_placement == "pre"
        self.attention_type = config.layer_types[layer_idx]
        # The first layer gets embeddings that are normed already.
        is_normed = self.pre_norm and layer_idx == 0 and config.embedding_norm
        self.attn_norm = nn.Identity() if is_normed else build_norm(config)
        self.attn = MiniBertAttention(config, layer_idx)
        self.mlp_norm = build_norm(config)
        self.mlp = MiniBertMLP(config)
        self.dropout = MiniBertDropout(config.hidden_dropout)

    @property
    def kind(self) -> tuple[str, float]:
        """The attention type and the current attention dropout. Layers of one kind share an attention plan."""
        dropout = self.attn.dropout
        return self.attention_type, getattr(dropout, "p", 0.0) if dropout.training else 0.0

    def forward(self, hidden_states: torch.Tensor, **kwargs) -> torch.Tensor:
        """[b, s, d] → [b, s, d]; `kwargs` are those of `MiniBertAttention.forward`."""
        if self.pre_norm:
            hidden_states = hidden_states + self.dropout(
                self.attn(self.attn_norm(hidden_states), **kwargs)[0]
            )
            return hidden_states + self.dropout(self.mlp(self.mlp_norm(hidden_states)))
        hidden_states = self.attn_norm(
            hidden_states + self.dropout(self.attn(hidden_states, **kwargs)[0])
        )
        return self.mlp_norm(hidden_states + self.dropout(self.mlp(hidden_states)))


class MiniBertPooler(nn.Module):
    """BERT's dense layer and activation on the pooled vector."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        self.dense = build_linear(
            config.hidden_size, config.hidden_size, True, config.initializer_range
        )
        self.act = ACT2FN[config.pooler_activation]

    def forward(self, pooled_nd: torch.Tensor) -> torch.Tensor:
        return self.act(self.dense(pooled_nd))


class MiniBertPredictionHead(nn.Module):
    """Dense layer, activation and norm, before the decoder and before ModernBERT's classifiers."""

    def __init__(self, config: MiniBertConfig, width: int | None = None):
        super().__init__()
        self.dense = build_linear(
            config.hidden_size, width or config.hidden_size, config.head_bias, output_std(config)
        )
        self.act = ACT2FN[config.classifier_activation]
        self.norm = build_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.norm(project(self.dense, hidden_states, self.act))


# --- the encoder ---


@dataclass
class MiniBertModelOutput(BaseModelOutputWithPooling):
    """Output of `MiniBertModel`. The last three are there with `padded_output=False`; `last_hidden_state` is then
    returned only if all `hidden_states` are.

    Args:
        unpadded: the final states of the unpadded tokens, [tokens, width].
        sequences: the `PackedSequences` that place those tokens in the batch.
        plans: the attention plan of each kind of layer.
    """

    unpadded: torch.Tensor | None = None
    sequences: Any = None
    plans: Any = None


@dataclass
class MiniBertForPreTrainingOutput(ModelOutput):
    """Output of `MiniBertForPreTraining`.

    Args:
        loss: the sum of `mlm_loss` and `nsp_loss`, or one of them if only its labels were given.
        prediction_logits: [batch, length, vocabulary], or [labelled positions, vocabulary] with `sparse_prediction`.
        seq_relationship_logits: [batch, 2]; class 0 means that segment B follows segment A.
    """

    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    mlm_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None


class MiniBertPreTrainedModel(PreTrainedModel):
    config: MiniBertConfig
    base_model_prefix = "model"
    _input_embed_layer = "tok_embeddings"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MiniBertLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": MiniBertLayer, "attentions": MiniBertAttention}

    def encode(self, *inputs: torch.Tensor | None, **kwargs) -> "MiniBertModelOutput":
        """Run the encoder without padding its output."""
        return self.model(*inputs, padded_output=False, return_dict=True, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            return super()._init_weights(module)
        std, cutoff = (
            getattr(module, "init_std", self.config.initializer_range),
            self.config.initializer_cutoff_factor,
        )
        if cutoff is None:
            init.normal_(module.weight, mean=0.0, std=std)
        else:
            init.trunc_normal_(module.weight, mean=0.0, std=std, a=-cutoff * std, b=cutoff * std)
        if getattr(module, "bias", None) is not None:
            init.zeros_(module.bias)
        padding_idx = getattr(module, "padding_idx", None)
        if padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
            init.zeros_(module.weight[padding_idx])


class MiniBertModel(MiniBertPreTrainedModel):
    """The encoder.

    Args:
        add_pooling_layer: whether the model has BERT's pooler; None: as the config says.
    """

    def __init__(self, config: MiniBertConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        config.convert_rope_params_to_dict()  # fields may have been set after the config was built
        config.validate_architecture()
        config.validate_layer_type()
        self.embeddings = MiniBertEmbeddings(config)
        self.layers = nn.ModuleList(
            [MiniBertLayer(config, i) for i in range(config.num_hidden_layers)]
        )
        self.final_norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        pooler = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = MiniBertPooler(config) if pooler else None
        # The last token of a decoder is the only one that has seen all others.
        self.pooling = "last" if config.is_causal else config.classifier_pooling
        self.windows = {layer.attention_type: layer.attn.window for layer in self.layers}
        self.head_width = self.layers[0].attn.head_width
        with_rope = self.windows if config.position_embedding_type == "rope" else ()
        self.rotary = {name: MiniBertRotary(config, name) for name in with_rope}
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self, input_ids: MaybeTensor = None, attention_mask: MaybeTensor = None, token_type_ids: MaybeTensor = None,
        position_ids: MaybeTensor = None, inputs_embeds: MaybeTensor = None, seq_idx: MaybeTensor = None,
        cu_seq_lens_q: MaybeTensor = None, cu_seq_lens_k: MaybeTensor = None, max_length_q: int | None = None,
        max_length_k: int | None = None, padded_output: bool = True, is_causal: bool | None = None, **kwargs,
    ) -> MiniBertModelOutput:  # fmt: skip
        """Encode a batch.

        Args:
            input_ids, inputs_embeds: [batch, length] or [batch, length, width]; exactly one of them.
            attention_mask: [batch, length], non-zero at real tokens (padding left, right or in holes); or
                [batch, 1, length, length], boolean (True: seen) or floating (added to the scores).
            token_type_ids: [batch, length]; ignored by a model without segments.
            position_ids: [batch or 1, length]; by default real tokens are counted. Where a position is not the previous
                one plus 1, another document of the row starts. Documents never see each other.
            seq_idx: [batch, length], the document number of each token; takes precedence over `position_ids`.
            cu_seq_lens_q, max_length_q: [documents + 1], where documents start in the flattened batch, and the tokens
                of the longest one. (`cu_seq_lens_k` and `max_length_k` are the same in self-attention, and ignored.)
            padded_output: False returns the unpadded tokens, see `MiniBertModelOutput`.
            is_causal: replaces the value of the config.

        Returns:
            `last_hidden_state` [batch, length, width], zero at padding; `pooler_output` [rows or documents, width].
        """
        for name in (
            "past_key_values",
            "cache",
            "encoder_hidden_states",
        ):  # "cache": from Transformers 5.24
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"{name}: there is no cache and no cross-attention; pass the whole text at every step"
                )
        columns = dict(token_type_ids=token_type_ids, position_ids=position_ids, seq_idx=seq_idx)
        inputs = self._check_inputs(input_ids, inputs_embeds, attention_mask, columns)
        mask_2d = (
            attention_mask if attention_mask is not None and attention_mask.dim() == 2 else None
        )
        sequences = PackedSequences(
            *inputs.shape[:2],
            inputs.device,
            mask_2d,
            position_ids,
            seq_idx,
            cu_seq_lens_q,
            max_length_q,
        )
        wants_layers = any(
            kwargs.get(name, getattr(self.config, name, False)) not in (None, False)
            for name in ("output_hidden_states", "output_attentions")
        )
        captured, has_4d_mask = is_captured(inputs), attention_mask is not None and mask_2d is None
        needs_rows = wants_layers or captured or has_4d_mask
        unpad = not needs_rows and self._can_unpad(sequences)
        self._check_positions(sequences, position_ids)
        if token_type_ids is not None:
            token_type_ids = token_type_ids.expand(sequences.shape)
        position_bs = sequences.position_bs
        if unpad:
            input_ids, token_type_ids, position_bs, inputs_embeds = (
                None if x is None else sequences.unpad(x).unsqueeze(0)
                for x in (input_ids, token_type_ids, position_bs, inputs_embeds)
            )

        hidden = self.embeddings(input_ids, inputs_embeds, token_type_ids, position_bs)
        if (
            unpad
        ):  # a hook on the embeddings may have made several rows (see `MiniBertEmbeddings.forward`)
            hidden = hidden.reshape(1, -1, hidden.shape[-1])
        extra = bucket_rows(hidden[0], self.training) if unpad else 0
        if extra:
            hidden, position_bs = repeat_last(hidden, extra, 1), F.pad(position_bs, (0, extra))
        device = hidden.device.type
        dtype = (
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        )  # of queries
        rotary = {name: angles(position_bs, dtype) for name, angles in self.rotary.items()}
        causal = self.config.is_causal if is_causal is None else is_causal
        plans = self._plan(sequences, hidden, attention_mask, causal, dtype, unpad, kwargs)
        for layer in self.layers:
            hidden = layer(hidden, plan=plans[layer.kind], rotary=rotary.get(layer.attention_type))
        hidden = self.final_norm(hidden).to(
            inputs.device
        )  # with `device_map`, the last layer may be elsewhere

        # The heads get unpadded tokens, except in a captured graph: it has no shape for them, so padding stays.
        if unpad:
            hidden_td = hidden.flatten(0, 1)[: hidden.shape[1] - extra]
        else:
            hidden_td = hidden.flatten(0, 1) if captured else sequences.find_tokens().unpad(hidden)
        pooled = (
            None if self.pooler is None else self.pooler(sequences.pool(hidden_td, self.pooling))
        )
        if padded_output:
            return MiniBertModelOutput(
                last_hidden_state=sequences.pad(hidden_td), pooler_output=pooled
            )
        padded = sequences.pad(hidden_td) if wants_layers else None
        return MiniBertModelOutput(
            padded, pooled, unpadded=hidden_td, sequences=sequences, plans=plans
        )

    def _check_inputs(
        self,
        input_ids: MaybeTensor,
        inputs_embeds: MaybeTensor,
        attention_mask: MaybeTensor,
        columns: dict[str, Any],
    ) -> torch.Tensor:
        """Refuse inputs of the wrong shape or type; return `input_ids` or `inputs_embeds`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass exactly one of input_ids and inputs_embeds")
        inputs, name, form = input_ids, "input_ids", "[batch, length]"
        if inputs_embeds is not None:
            width = self.config.embedding_size or self.config.hidden_size
            inputs, name, form = inputs_embeds, "inputs_embeds", f"[batch, length, {width}]"
        shape = tuple(inputs.shape[:2])
        fits = (
            inputs.dim() == 2
            if inputs_embeds is None
            else inputs.dim() == 3 and inputs.shape[2] == width
        )
        if not fits or 0 in shape:
            raise ValueError(
                f"{name} has the shape {tuple(inputs.shape)}: use {form}, with at least one token"
            )
        if (
            attention_mask is not None
            and attention_mask.dim() != 4
            and tuple(attention_mask.shape) != shape
        ):
            raise ValueError(
                f"attention_mask has the shape {tuple(attention_mask.shape)}, the inputs {shape}: use "
                "[batch, length] or [batch, 1, length, length]"
            )
        is_number = (
            attention_mask is not None
            and attention_mask.dim() == 4
            and attention_mask.dtype != torch.bool
        )
        if is_number and not attention_mask.is_floating_point():
            raise ValueError(
                f"attention_mask is {attention_mask.dtype}: a 4D mask holds booleans, or floats to add"
            )
        for name, x in columns.items():
            if x is not None and (x.shape not in (shape, (1, shape[1])) or x.dtype == torch.bool):
                raise ValueError(
                    f"{name} is {x.dtype} of the shape {tuple(x.shape)}: use numbers, {list(shape)}"
                )
        return inputs

    def _check_positions(self, sequences: PackedSequences, position_ids: MaybeTensor):
        """Refuse positions that the table of learned positions does not have."""
        if self.embeddings.position_embeddings is None or is_captured(sequences.position_bs):
            return
        table = self.embeddings.position_embeddings.num_embeddings
        if (position_ids is not None or sequences.longest > table) and int(
            sequences.position_bs.max()
        ) >= table:
            raise ValueError(
                f"position {int(sequences.position_bs.max())} is beyond max_position_embeddings={table}: truncate to "
                f"{table} tokens (tokenizer(..., truncation=True, max_length={table}))"
            )

    def _can_unpad(self, sequences: PackedSequences) -> bool:
        """Whether the attention backend works on unpadded tokens; if so, `sequences` has them afterwards."""
        backend = self.config._attn_implementation
        if backend == "sdpa":
            sequences.find_tokens()
            return True
        # Flash attention needs at least one token, and measures the window in tokens, not in positions.
        is_flash = "flash" in backend and len(sequences.find_tokens().id_t) > 0
        return is_flash and (sequences.order == "contiguous" or not any(self.windows.values()))

    def _plan(
        self, sequences, hidden, attention_mask, causal, dtype, unpadded, keywords
    ) -> dict[Any, Any]:
        """The plan of each kind of layer (`MiniBertLayer.kind`)."""
        backend, plans = self.config._attn_implementation, {}
        if unpadded and backend != "sdpa":  # flash attention
            keywords = keywords | dict.fromkeys(
                ("cu_seq_lens_q", "cu_seq_lens_k"), sequences.cu_seq_lens
            )
            keywords = keywords | dict.fromkeys(("max_length_q", "max_length_k"), sequences.longest)
        for kind in {layer.kind for layer in self.layers}:
            window, dropout = self.windows[kind[0]], kind[1]
            if unpadded and backend == "sdpa":
                plans[kind] = plan_attention(
                    sequences, window, causal, dropout, dtype, self.head_width
                )
            else:
                # The attention functions of vLLM (`attention_instances`) keep its requests apart themselves.
                needs_no_mask = unpadded or "attention_instances" in keywords
                mask = (
                    None
                    if needs_no_mask
                    else self._mask(sequences, hidden, attention_mask, window, causal)
                )
                plans[kind] = InterfacePlan(
                    backend, mask, window, dropout, is_causal=causal, **keywords
                )
        return plans

    def _mask(self, sequences, hidden, attention_mask, window, causal):
        """The mask of one kind of layer for padded rows, in the form that the backend takes."""
        backend = self.config._attn_implementation
        if attention_mask is not None and attention_mask.dim() == 4:
            seen = sequences.dense_mask(window, causal)
            if seen is None:
                return attention_mask
            if attention_mask.dtype == torch.bool:
                return attention_mask & seen
            return attention_mask.masked_fill(~seen, torch.finfo(attention_mask.dtype).min)
        if sequences.id_bs is None and ("flash" in backend or (window is None and not causal)):
            return None  # flash attention takes window and direction as arguments
        if (
            backend in ("eager", "sdpa")
            or "flash" in backend
            or backend not in ALL_MASK_ATTENTION_FUNCTIONS
        ):
            return sequences.dense_mask(window, causal)
        sees = sequences.mask_function(window, causal)
        return create_bidirectional_mask(
            self.config, hidden, attention_mask=None, and_mask_function=sees
        )


# --- losses ---


def mean_loss(
    loss_sum: torch.Tensor, count: int | torch.Tensor, num_items_in_batch: int | torch.Tensor | None
) -> torch.Tensor:
    """Divide the sum of the losses of a micro-batch by its number of targets, or by that of all steps of gradient
    accumulation (`Trainer` passes it, and then does not divide the loss itself). Without any target the loss is 0."""
    total = count if num_items_in_batch is None else num_items_in_batch
    return loss_sum / (
        total.to(loss_sum.device).clamp(min=1) if isinstance(total, torch.Tensor) else max(total, 1)
    )


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None, ignore_index: int = -100
) -> torch.Tensor:
    """The mean cross-entropy of [targets, classes], in fp32 (or fp64), without the labels `ignore_index`. On CPU, a
    label that is no class is a ValueError."""
    labels = labels.to(logits.device)
    if labels.shape != logits.shape[:1] or labels.dtype not in (torch.long, torch.int):
        wrong = f"{labels.dtype} of the shape {tuple(labels.shape)}"
        raise ValueError(
            f"labels: {wrong} for {len(logits)} predictions; use torch.long, one for each"
        )
    labels = labels.long()
    counted = labels != ignore_index
    if labels.device.type == "cpu" and len(labels) and not is_captured(labels):
        low, high = map(int, labels.masked_fill(~counted, 0).aminmax())
        if low < 0 or high >= logits.shape[1]:
            known = f"0 to {logits.shape[1] - 1}, or {ignore_index} for none"
            raise ValueError(f"labels: {low if low < 0 else high} is not a class; use {known}")
    if is_traced(logits) or logits.device.type != "cpu" or not len(logits):
        loss_sum = F.cross_entropy(
            at_least_fp32(logits), labels, ignore_index=ignore_index, reduction="sum"
        )
    else:
        loss_sum, _ = CrossEntropyByRows.apply(logits, labels.masked_fill(~counted, -1))
    return mean_loss(loss_sum, counted.sum(), num_items_in_batch)


def classification_loss(
    config: MiniBertConfig, logits_nc: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None
) -> torch.Tensor:
    """The loss of regression, single-label or multi-label classification, by `config.problem_type`. If that is None, it
    is set from the number of labels and the type of these labels, as in Transformers."""
    if config.problem_type is None:
        if config.num_labels == 1:
            config.problem_type = "regression"
        elif labels.dtype in (torch.long, torch.int):
            config.problem_type = "single_label_classification"
        else:
            config.problem_type = "multi_label_classification"
    if config.problem_type == "single_label_classification":
        return cross_entropy(logits_nc, labels.view(-1), num_items_in_batch)
    losses = {
        "regression": F.mse_loss,
        "multi_label_classification": F.binary_cross_entropy_with_logits,
    }
    if config.problem_type not in losses:
        raise ValueError(
            f"problem_type={config.problem_type!r}: use single_label_classification, {', '.join(losses)}"
        )
    logits_nc = at_least_fp32(logits_nc)
    if labels.numel() != logits_nc.numel() or labels.shape[:1] not in ((), logits_nc.shape[:1]):
        wrong, kind = f"{labels.dtype}, of the shape {tuple(labels.shape)}", config.problem_type
        raise ValueError(
            f"labels: {wrong}, for problem_type={kind!r}; use {tuple(logits_nc.shape)}"
        )
    labels = labels.to(logits_nc).view(logits_nc.shape)
    loss_sum = losses[config.problem_type](logits_nc, labels, reduction="sum")
    return mean_loss(loss_sum, labels.numel(), num_items_in_batch)


# --- language modelling ---


class MiniBertLanguageModel(MiniBertPreTrainedModel):
    """Base of the models that predict tokens: head, decoder, and logits at the labelled positions only."""

    _tied_weights_keys = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}

    def __init__(self, config: MiniBertConfig, add_pooling_layer: bool = False):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=add_pooling_layer)
        transform = config.prediction_transform
        self.head = (
            MiniBertPredictionHead(config, config.embedding_size) if transform else nn.Identity()
        )
        width, std = config.embedding_size or config.hidden_size, output_std(config)
        self.decoder = build_linear(width, config.vocab_size, config.decoder_bias, std)

    def get_output_embeddings(self) -> nn.Linear:
        return self.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear):
        self.decoder = new_embeddings

    def predict_tokens(
        self,
        outputs: MiniBertModelOutput,
        labels_t: torch.Tensor | None,
        sparse_prediction: bool | None,
        num_items_in_batch=None,
        masked_lm_positions: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits and loss, as `MiniBertForMaskedLM.forward` describes them. `labels_t`, [tokens], and
        `masked_lm_positions` refer to the unpadded tokens."""
        hidden_td = outputs.unpadded
        if sparse_prediction is None:
            cannot_find = masked_lm_positions is None and is_traced(hidden_td)
            sparse_prediction = self.training and labels_t is not None and not cannot_find
        if sparse_prediction and masked_lm_positions is None and labels_t is not None:
            masked_lm_positions = (labels_t != -100).nonzero().squeeze(1)
        sparse = sparse_prediction and masked_lm_positions is not None
        if sparse:
            hidden_td, labels_t = (
                None if x is None else x[masked_lm_positions] for x in (hidden_td, labels_t)
            )
        extra = bucket_rows(hidden_td)
        if extra:
            hidden_td = repeat_last(hidden_td, extra, 0)
            labels_t = None if labels_t is None else F.pad(labels_t, (0, extra), value=-100)
        logits_tv = project(self.decoder, self.head(hidden_td))
        loss = None if labels_t is None else cross_entropy(logits_tv, labels_t, num_items_in_batch)
        logits_tv = logits_tv[:-extra] if extra else logits_tv
        return (logits_tv if sparse else outputs.sequences.pad(logits_tv)), loss


class MiniBertForMaskedLM(MiniBertLanguageModel):
    """The encoder with a masked-language-modelling head."""

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        if config.is_causal:
            logger.warning_once(
                "is_causal=True: masked tokens see only what comes before them; set it to False"
            )
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: MaybeTensor = None, attention_mask: MaybeTensor = None, token_type_ids: MaybeTensor = None,
        position_ids: MaybeTensor = None, inputs_embeds: MaybeTensor = None, seq_idx: MaybeTensor = None,
        labels: MaybeTensor = None, sparse_prediction: bool | None = None, masked_lm_positions: MaybeTensor = None,
        num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> MaskedLMOutput:  # fmt: skip
        """Predict masked tokens.

        Args:
            labels: [batch, length], the original id at masked positions, -100 elsewhere.
            sparse_prediction: return logits at labelled positions only, [labelled positions, vocabulary], in the order
                of the flattened batch. None: True in training with labels (in a compiled graph: with
                `masked_lm_positions`).
            masked_lm_positions: [labelled positions], the indices in the flattened, unpadded batch whose `labels` are
                not -100. By default they are found here, which waits for the device.
        """
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            seq_idx,
            **kwargs,
        )
        labels_t, count = outputs.sequences.unpad_labels(labels, num_items_in_batch)
        logits, loss = self.predict_tokens(
            outputs, labels_t, sparse_prediction, count, masked_lm_positions
        )
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MiniBertForPreTraining(MiniBertLanguageModel):
    """The encoder with BERT's two objectives, masked language modelling and next-sentence prediction. The loss is the
    sum of those whose labels are given."""

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, add_pooling_layer=True)
        self.seq_relationship = build_linear(config.hidden_size, 2, True, config.initializer_range)
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: MaybeTensor = None, attention_mask: MaybeTensor = None, token_type_ids: MaybeTensor = None,
        position_ids: MaybeTensor = None, inputs_embeds: MaybeTensor = None, seq_idx: MaybeTensor = None,
        labels: MaybeTensor = None, next_sentence_label: MaybeTensor = None, sparse_prediction: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None, num_rows_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> MiniBertForPreTrainingOutput:  # fmt: skip
        """Predict masked tokens and whether segment B follows segment A.

        Args:
            labels: [batch, length], the original id at masked positions, -100 elsewhere.
            next_sentence_label: [batch]; 0: B follows A, 1: B is random.
            num_items_in_batch: masked tokens over all micro-batches of an optimizer step (`Trainer` counts them).
            num_rows_in_batch: `next_sentence_label`s over all micro-batches. Without it, a micro-batch is weighted in
                the NSP loss by its share of masked tokens, which is exact if all hold equally many.
        """
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            seq_idx,
            **kwargs,
        )
        labels_t, count = outputs.sequences.unpad_labels(labels, num_items_in_batch)
        logits, mlm_loss = self.predict_tokens(outputs, labels_t, sparse_prediction, count)
        relationship = self.seq_relationship(outputs.pooler_output)
        nsp_loss = None
        if next_sentence_label is not None:
            nsp_loss = cross_entropy(relationship, next_sentence_label.view(-1), num_rows_in_batch)
            if num_rows_in_batch is None and num_items_in_batch is not None:
                counted = labels if labels is not None else next_sentence_label
                nsp_loss = mean_loss(nsp_loss * (counted != -100).sum(), 1, num_items_in_batch)
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        loss = sum(losses) if losses else None
        return MiniBertForPreTrainingOutput(
            loss,
            logits,
            relationship,
            outputs.hidden_states,
            outputs.attentions,
            mlm_loss,
            nsp_loss,
        )


class MiniBertForCausalLM(MiniBertLanguageModel, GenerationMixin):
    """The same layers as a decoder: every token predicts the next one of its document. Always causal. Without a cache,
    generation runs the whole text at every step."""

    _is_stateful = (
        True  # without a cache, tokens cannot be taken back: `generate` refuses assisted decoding
    )

    def __init__(self, config: MiniBertConfig):
        config = copy.deepcopy(config)
        config.is_causal = True
        super().__init__(config)
        # Libraries for decoders (TRL, vLLM, fused losses) compute logits as `decoder(model(...).last_hidden_state)`.
        self.model.register_forward_hook(self._finish_states)
        self.post_init()

    def _finish_states(self, module: nn.Module, inputs: tuple, outputs: Any) -> Any:
        if isinstance(outputs, tuple):
            return (self.head(outputs[0]), *outputs[1:])
        if outputs.unpadded is None:  # otherwise the head runs later, on the tokens that need it
            outputs.last_hidden_state = self.head(outputs.last_hidden_state)
        return outputs

    def get_decoder(self) -> nn.Module:
        """The encoder. (Transformers would return the attribute `decoder`, which here is the last projection.)"""
        return self.model

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, next_sequence_length: int | None = None,
        past_key_values: Any = None, cache: Any = None, **kwargs,
    ) -> dict[str, Any]:  # fmt: skip
        """Keep the whole text: without a cache, `generate` must not pass the new tokens only."""
        return super().prepare_inputs_for_generation(input_ids, **kwargs)

    @can_return_tuple
    def forward(
        self, input_ids: MaybeTensor = None, attention_mask: MaybeTensor = None, token_type_ids: MaybeTensor = None,
        position_ids: MaybeTensor = None, inputs_embeds: MaybeTensor = None, seq_idx: MaybeTensor = None,
        labels: MaybeTensor = None, sparse_prediction: bool = False,
        num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> CausalLMOutput:  # fmt: skip
        """Predict next tokens.

        Args:
            labels: [batch, length], usually `input_ids`; shifted here. The last token of a document predicts nothing.
            sparse_prediction: return logits at labelled positions only, [labelled positions, vocabulary].
        """
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            seq_idx,
            **kwargs,
        )
        labels_t, count = outputs.sequences.unpad_labels(labels, num_items_in_batch, shift=True)
        logits, loss = self.predict_tokens(outputs, labels_t, sparse_prediction, count)
        return CausalLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


# --- classifiers ---


# sentence-transformers reads the names of outputs from annotations.
HeadOutput = (
    NextSentencePredictorOutput
    | SequenceClassifierOutput
    | MultipleChoiceModelOutput
    | TokenClassifierOutput
)


class MiniBertTaskModel(MiniBertPreTrainedModel):
    """Base of the models that take one kind of `labels`. A subclass builds the head and returns the logits and the loss
    from `_predict`."""

    output_class: type[HeadOutput]

    @can_return_tuple
    def forward(
        self, input_ids: MaybeTensor = None, attention_mask: MaybeTensor = None, token_type_ids: MaybeTensor = None,
        position_ids: MaybeTensor = None, inputs_embeds: MaybeTensor = None, seq_idx: MaybeTensor = None,
        labels: MaybeTensor = None, num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> HeadOutput:  # fmt: skip
        """The inputs of `MiniBertModel`, and `labels` as `_predict` describes them."""
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            seq_idx,
            **kwargs,
        )
        logits, loss = self._predict(outputs, labels, num_items_in_batch)
        return self.output_class(loss, logits, outputs.hidden_states, outputs.attentions)


class MiniBertClassifier(MiniBertTaskModel):
    """Base of the models that classify sequences or (`pooled=False`) tokens: head, dropout, linear."""

    def __init__(self, config: MiniBertConfig, classes: int, pooled: bool = True):
        super().__init__(config)
        self.num_labels = classes
        self.model = MiniBertModel(config, add_pooling_layer=None if pooled else False)
        self.head = nn.Identity() if config.add_pooling_layer else MiniBertPredictionHead(config)
        rate = (
            config.hidden_dropout
            if config.classifier_dropout is None
            else config.classifier_dropout
        )
        self.dropout = MiniBertDropout(rate)
        # ModernBERT initializes its classifiers with 1/√width; BERT as all other layers.
        std = config.hidden_size**-0.5 if config.scaled_output_init else config.initializer_range
        self.classifier = build_linear(config.hidden_size, classes, config.classifier_bias, std)
        self.post_init()

    def classify(self, states: torch.Tensor) -> torch.Tensor:
        """[…, width] → […, classes]"""
        return self.classifier(self.dropout(self.head(states)))

    def _pool(self, outputs: MiniBertModelOutput) -> torch.Tensor:
        """One vector for each row or document, [n, width]."""
        if outputs.pooler_output is not None:
            return outputs.pooler_output
        return outputs.sequences.pool(outputs.unpadded, self.model.pooling)


class MiniBertForNextSentencePrediction(MiniBertTaskModel):
    """The encoder with BERT's next-sentence classifier: does segment B follow segment A?"""

    output_class = NextSentencePredictorOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=True)
        self.seq_relationship = build_linear(config.hidden_size, 2, True, config.initializer_range)
        self.post_init()

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch]; 0: B follows A, 1: B is random."""
        logits = self.seq_relationship(outputs.pooler_output)
        loss = (
            None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        )
        return logits, loss


class MiniBertForSequenceClassification(MiniBertClassifier):
    """The encoder with a classifier (or regressor) for texts or pairs of texts: one prediction for each row, or for
    each document if a row holds several."""

    output_class = SequenceClassifierOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, config.num_labels)

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch], class numbers or (`num_labels=1`) values; or [batch, num_labels], floating, values or
        0/1."""
        logits = self.classify(self._pool(outputs))
        loss = (
            None
            if labels is None
            else classification_loss(self.config, logits, labels, num_items_in_batch)
        )
        return logits, loss


class MiniBertForMultipleChoice(MiniBertClassifier):
    """The encoder with a score for each of several choices: [batch, choices, length] → [batch, choices]."""

    output_class = MultipleChoiceModelOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, 1)

    def encode(self, *inputs: MaybeTensor, **kwargs) -> MiniBertModelOutput:
        """Encode each choice as a row; the pooled output is [batch, choices, width]."""
        outputs = super().encode(
            *(None if x is None else x.flatten(0, 1) for x in inputs), **kwargs
        )
        choices = next(x.shape[1] for x in inputs if x is not None)
        outputs.pooler_output = self._pool(outputs).unflatten(0, (-1, choices))
        return outputs

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch], the number of the right choice."""
        logits = self.classify(outputs.pooler_output).squeeze(-1)
        loss = None if labels is None else cross_entropy(logits, labels, num_items_in_batch)
        return logits, loss


class MiniBertForTokenClassification(MiniBertClassifier):
    """The encoder with a classifier for each token (NER, POS)."""

    output_class = TokenClassifierOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, config.num_labels, pooled=False)

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch, length], -100 where there is nothing to predict."""
        logits_tc = self.classify(outputs.unpadded)
        labels_t, count = outputs.sequences.unpad_labels(labels, num_items_in_batch)
        loss = None if labels_t is None else cross_entropy(logits_tc, labels_t, count)
        return outputs.sequences.pad(logits_tc), loss


class MiniBertForReplacedTokenDetection(MiniBertTaskModel):
    """The encoder with ELECTRA's head (Clark et al. 2020, arXiv 2003.10555): was this token in the text, or did a
    generator put it there? The logits, [batch, length], are above 0 where a token looks replaced."""

    output_class = TokenClassifierOutput
    _auto_class = "AutoModelForPreTraining"  # it has no Auto class of its own, but is saved with its code all the same

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=False)
        # The names differ from those of other heads, which cannot use these weights.
        self.dense = build_linear(
            config.hidden_size, config.hidden_size, True, config.initializer_range
        )
        self.act = ACT2FN[config.classifier_activation]
        self.detector = build_linear(config.hidden_size, 1, True, config.initializer_range)
        self.post_init()

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch, length], 1 where a token was replaced, 0 where it was not, -100 where it is ignored."""
        logits_t1 = self.detector(self.act(self.dense(outputs.unpadded)))
        labels_t, count = outputs.sequences.unpad_labels(labels, num_items_in_batch)
        loss = None
        if labels_t is not None:
            labels_t = labels_t.to(logits_t1.device)
            counted, logits_t = labels_t != -100, at_least_fp32(logits_t1.squeeze(1))
            loss_sum = F.binary_cross_entropy_with_logits(
                logits_t,
                labels_t.clamp(min=0).to(logits_t),
                weight=counted.to(logits_t),
                reduction="sum",
            )
            loss = mean_loss(loss_sum, counted.sum(), count)
        return outputs.sequences.pad(logits_t1).squeeze(-1), loss


class MiniBertForQuestionAnswering(MiniBertClassifier):
    """The encoder with scores for the start and the end of an answer (extractive question answering). The scores of
    padding are the lowest number of their type."""

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, 2, pooled=False)

    @can_return_tuple
    def forward(
        self, input_ids: MaybeTensor = None, attention_mask: MaybeTensor = None, token_type_ids: MaybeTensor = None,
        position_ids: MaybeTensor = None, inputs_embeds: MaybeTensor = None, seq_idx: MaybeTensor = None,
        start_positions: MaybeTensor = None, end_positions: MaybeTensor = None,
        num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> QuestionAnsweringModelOutput:  # fmt: skip
        """Find the answer.

        Args:
            start_positions, end_positions: [batch], columns. An answer on padding or outside the row is ignored.
        """
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            seq_idx,
            **kwargs,
        )
        logits_tc = self.classify(outputs.unpadded)
        logits = outputs.sequences.pad(logits_tc, fill=torch.finfo(logits_tc.dtype).min)
        start_logits, end_logits = (x.contiguous() for x in logits.unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            answers = zip((start_logits, end_logits), (start_positions, end_positions))
            losses = [
                self._loss(x, y.view(-1), outputs.sequences.real_bs, num_items_in_batch)
                for x, y in answers
            ]
            loss = sum(losses) / 2
        return QuestionAnsweringModelOutput(
            loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions
        )

    @staticmethod
    def _loss(logits_bs, column_b, real_bs, num_items_in_batch) -> torch.Tensor:
        length = logits_bs.shape[1]
        column_b = column_b.clamp(0, length)
        if real_bs is not None:
            column_b = column_b.to(real_bs.device)
            real_b = F.pad(real_bs, (0, 1)).gather(1, column_b.unsqueeze(1)).squeeze(1)
            column_b = column_b.masked_fill(~real_b, length)
        return cross_entropy(logits_bs, column_b, num_items_in_batch, ignore_index=length)


# With `label_smoothing_factor`, `Trainer` computes the loss itself, and shifts the labels of the models in this table
# only.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["minibert"] = "MiniBertForCausalLM"

__all__ = [  # noqa: RUF022 - in reading order
    "MiniBertPreTrainedModel",
    "MiniBertModel",
    "MiniBertForPreTraining",
    "MiniBertForMaskedLM",
    "MiniBertForCausalLM",
    "MiniBertForNextSentencePrediction",
    "MiniBertForSequenceClassification",
    "MiniBertForTokenClassification",
    "MiniBertForReplacedTokenDetection",
    "MiniBertForQuestionAnswering",
    "MiniBertForMultipleChoice",
]
