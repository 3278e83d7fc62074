# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""MiniBERT: embeddings, attention, layers, the encoder and every head, from top to bottom.

What happens to a batch: `MiniBertModel.forward` describes it (`BatchDocuments`), chooses what the
layers run over (the real tokens as one `UnpaddedRow` wherever that is possible, else `PaddedRows`),
embeds that, chooses how the global layers attend and how the local ones, and runs the layers. The
heads work on the unpadded tokens. The result is padded only for callers who need padded rows. In
training, masked language models compute logits over the vocabulary at the labelled positions only.

What this file takes from the others, in short: `rotate` turns queries and keys by their positions
(`rope`), `dispatch.attend` is attention over unpadded tokens (`dispatch`), `project` is a linear
with its activation (`cpu`), and the losses are those of `torch.nn.functional` (`losses`).

Shape suffixes in all model files: `hidden_td` is [tokens, width].

    b   rows of the padded batch        t   tokens: unpadded, or all columns if padding is kept
    s   columns of the padded batch     n   documents; a row that is not packed is one document
    d   width, of the model or a head   h   heads
    q   queries                         k   keys
    v   vocabulary                      c   classes
    1   one

The layers take [b, s, d]: padded rows, or the unpadded tokens as one row, so that b is 1 and s
counts the tokens. Arguments and outputs of `forward` bear the names of Transformers, without a
suffix.
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
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils import ModelOutput, can_return_tuple, logging

from .attention_minibert import (
    AttentionSettings,
    attention_arguments,
    choose_layer_input,
    query_dtype,
)
from .compat_minibert import needs_static_shapes, needs_traceable_ops, register_causal_model
from .configuration_minibert import MiniBertConfig
from .cpu_minibert import (
    MiniBertDropout,
    append_filler_targets,
    append_filler_tokens,
    drop_filler,
    project,
)
from .dispatch_minibert import AttentionDispatch
from .losses_minibert import (
    answer_loss,
    classification_loss,
    count_all_targets,
    cross_entropy,
    detection_loss,
    next_sentence_loss,
)
from .rope_minibert import MiniBertRotary, rotate, sinusoidal_positions
from .sequences_minibert import (
    BatchDocuments,
    BatchTokens,
    LayerInput,
    PaddedRows,
    check_inputs,
    check_shapes,
    find_out_of_range,
    layers_to_keep,
    refuse_cache,
    restore_shape,
)

logger = logging.get_logger(__name__)


# --- parts of every layer ---


def build_linear(inputs: int, outputs: int, bias: bool, std: float) -> nn.Linear:
    """A linear that carries the standard deviation of its initialization.

    Transformers calls `_init_weights` of a model from outside its tree only on modules that have
    parameters of their own. An initialization that is written for a module that holds others, such
    as `MiniBertAttention`, would never run: so each linear must know its own.
    """
    linear = nn.Linear(inputs, outputs, bias=bias)
    linear.init_std = std
    return linear


def build_norm(config: MiniBertConfig, width: int | None = None) -> nn.Module:
    """The norm of the config, over `width` (by default the hidden size)."""
    width = width or config.hidden_size
    if config.norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=config.norm_eps)
    return nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias)


def build_dropout(config: MiniBertConfig, rate: float | None) -> MiniBertDropout:
    """Dropout at this rate; None: at the `hidden_dropout` of the config."""
    return MiniBertDropout(config.hidden_dropout if rate is None else rate)


def output_std(config: MiniBertConfig) -> float:
    """The initial standard deviation of projections into the residual stream (Radford et al. 2019;
    Shoeybi et al. 2019)."""
    if not config.scaled_output_init:
        return config.initializer_range
    return config.initializer_range / (2 * config.num_hidden_layers) ** 0.5


# --- embeddings ---


def look_up(table: nn.Embedding, ids: torch.Tensor, name: str) -> torch.Tensor:
    """Rows of an embedding: [b, s] → [b, s, d]. On CPU, an id without a row is a ValueError."""
    table_size = getattr(table, "num_embeddings", None)  # adapters may wrap the embedding
    invalid_id = find_out_of_range(ids, table_size) if table_size else None
    if invalid_id is not None:
        raise ValueError(f"{name} has {invalid_id}: use numbers from 0 to {table_size - 1}")
    return table(ids)


class MiniBertEmbeddings(nn.Module):
    """Word embeddings, plus learned or sinusoidal positions and segments if the config has them;
    then norm, dropout and projection."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        width = config.embedding_size or config.hidden_size
        padding = config.pad_token_id
        if padding is not None and not 0 <= padding < config.vocab_size:
            raise ValueError(
                f"pad_token_id={padding}: it must be below vocab_size={config.vocab_size}"
            )
        self.width = width
        self.tok_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=padding)
        self.position_embeddings = None
        if config.position_embedding_type == "absolute":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.sinusoidal = config.position_embedding_type == "sinusoidal"
        self.token_type_embeddings = None
        if config.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.norm = build_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = build_dropout(config, config.embedding_dropout)
        self.projection = nn.Identity()
        if width != config.hidden_size:
            self.projection = build_linear(
                width, config.hidden_size, True, config.initializer_range
            )

    def forward(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Embed the tokens: [b, s] → [b, s, d]."""
        x = inputs_embeds
        if x is None:
            x = look_up(self.tok_embeddings, input_ids, "input_ids")
        if not needs_static_shapes(x):
            x = restore_shape(x, position_ids)  # a hook on `tok_embeddings` may have changed it
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                token_type_ids = position_ids.new_zeros(1, 1)  # segment 0 for all tokens
            x = x + look_up(self.token_type_embeddings, token_type_ids, "token_type_ids")
        if self.position_embeddings is not None:
            x = x + look_up(self.position_embeddings, position_ids, "position_ids")
        elif self.sinusoidal:
            x = x + sinusoidal_positions(position_ids, x.shape[-1]).to(x.dtype)
        return self.projection(self.dropout(self.norm(x)))


# --- attention ---


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q kᵀ · scaling) v (Vaswani et al. 2017, eq. 1) for [b, h, s, d].

    Args:
        attention_mask: boolean, True where a query sees a key; or floating, added to the scores.

    Returns:
        The output, [b, s, h, d], and the probabilities, [b, h, s, s].
    """
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, key.transpose(-2, -1)) * scaling
    # Not -inf: a row of a caller's mask may hide everything, and its NaN would reach every token.
    lowest = torch.finfo(scores.dtype).min
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, lowest)
    elif attention_mask is not None:
        scores = (scores + attention_mask).clamp(min=lowest)
    softmax_dtype = torch.promote_types(scores.dtype, torch.float32)
    probs = F.softmax(scores, dim=-1, dtype=softmax_dtype).to(query.dtype)
    probs = F.dropout(probs, dropout)
    return torch.matmul(probs, value).transpose(1, 2).contiguous(), probs


class MiniBertAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017) with one projection for queries, keys and
    values."""

    def __init__(self, config: MiniBertConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.head_width = config.hidden_size // config.num_attention_heads
        # Attention functions of Transformers and vLLM read these three.
        self.layer_idx = layer_idx
        self.scaling = self.head_width**-0.5
        self.is_causal = False  # without a mask, SDPA must not assume a causal one
        width = config.hidden_size
        bias = config.attention_bias
        self.Wqkv = build_linear(width, 3 * width, bias, config.initializer_range)
        self.Wo = build_linear(width, width, bias, output_std(config))
        # It holds the rate and the mode; kernels do the dropping.
        self.dropout = nn.Dropout(config.attention_dropout)

    @property
    def dropout_rate(self) -> float:
        """The current rate on the attention probabilities: 0 outside training."""
        return getattr(self.dropout, "p", 0.0) if self.dropout.training else 0.0

    def forward(
        self,
        hidden_states: torch.Tensor,
        cos_sin: tuple[torch.Tensor, torch.Tensor] | None = None,
        dispatch: AttentionDispatch | None = None,
        attention_mask: torch.Tensor | None = None,
        backend: str = "eager",
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend over the unpadded tokens (`dispatch`), or over padded rows with a mask
        (`backend`).

        Args:
            hidden_states: [b, s, d]; with a `dispatch`, b is 1 and s counts the unpadded tokens.
            cos_sin: the cosines and sines that `rotate` takes.
            dispatch: how layers like this one attend over the unpadded tokens in this forward.
            attention_mask: the mask of padded rows, in the form that the backend takes.
            backend: the name of one of Transformers' attention functions.
            kwargs: passed on to that function.

        Returns:
            The output, [b, s, d], and the probabilities, [b, h, s, s], if the backend returns them.
        """
        batch_size, length, width = hidden_states.shape
        heads = self.config.num_attention_heads
        # Queries and keys stay together until they are rotated.
        qk, v = project(self.Wqkv, hidden_states).split((2 * width, width), dim=-1)
        qk = qk.view(batch_size, length, 2 * heads, self.head_width)
        v = v.view(batch_size, length, heads, self.head_width)
        if cos_sin is not None:
            qk = rotate(qk, *cos_sin)
        q, k = qk.split(heads, dim=2)
        if dispatch is not None:
            out = dispatch.attend(q.squeeze(0), k.squeeze(0), v.squeeze(0))
            return project(self.Wo, out.reshape(hidden_states.shape)), None
        attention_interface = ALL_ATTENTION_FUNCTIONS.get_interface(
            backend, eager_attention_forward
        )
        out, probs = attention_interface(
            self,
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attention_mask,
            dropout=self.dropout_rate,
            scaling=self.scaling,
            **kwargs,
        )
        return project(self.Wo, out.reshape(hidden_states.shape)), probs


# --- the layer ---


class MiniBertMLP(nn.Module):
    """Wo(act(Wi x)), or gated (Shazeer 2020): Wo(act(a) · b) with a, b the halves of Wi x."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        self.gated = config.gated_mlp
        width = config.hidden_size
        inner = config.intermediate_size
        projected = 2 * inner if self.gated else inner
        self.Wi = build_linear(width, projected, config.mlp_bias, config.initializer_range)
        self.act = ACT2FN[config.hidden_act]
        self.Wo = build_linear(inner, width, config.mlp_bias, output_std(config))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return project(self.Wo, project(self.Wi, hidden_states, self.act, self.gated))


class MiniBertLayer(GradientCheckpointingLayer):
    """Attention and MLP with residuals; norms before (Xiong et al. 2020) or after (Vaswani et al.
    2017)."""

    def __init__(self, config: MiniBertConfig, layer_idx: int):
        super().__init__()
        self.pre_norm = config.norm_placement == "pre"
        self.attention_type = config.layer_types[layer_idx]
        # The first layer gets embeddings that are normed already, unless it is all layers.
        is_first = layer_idx == 0 and not config.share_layers
        input_is_normed = self.pre_norm and is_first and config.embedding_norm
        self.attn_norm = nn.Identity() if input_is_normed else build_norm(config)
        self.attn = MiniBertAttention(config, layer_idx)
        self.mlp_norm = build_norm(config)
        self.mlp = MiniBertMLP(config)
        self.dropout = MiniBertDropout(config.hidden_dropout)

    @property
    def attention_settings(self) -> AttentionSettings:
        return AttentionSettings(self.attention_type, self.attn.dropout_rate)

    def forward(
        self, hidden_states: torch.Tensor, output_attentions: bool = False, **kwargs
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """[b, s, d] → [b, s, d], with `output_attentions` and the probabilities; `kwargs` are those
        of `MiniBertAttention.forward`."""
        attention_input = self.attn_norm(hidden_states) if self.pre_norm else hidden_states
        attended, probs = self.attn(attention_input, **kwargs)
        hidden_states = hidden_states + self.dropout(attended)
        if self.pre_norm:
            hidden_states = hidden_states + self.dropout(self.mlp(self.mlp_norm(hidden_states)))
        else:
            hidden_states = self.attn_norm(hidden_states)
            hidden_states = self.mlp_norm(hidden_states + self.dropout(self.mlp(hidden_states)))
        return (hidden_states, probs) if output_attentions else hidden_states


# --- parts of heads ---


class MiniBertPooler(nn.Module):
    """BERT's dense layer and activation on the pooled vector."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        width = config.hidden_size
        self.dense = build_linear(width, width, True, config.initializer_range)
        self.act = ACT2FN[config.pooler_activation]

    def forward(self, pooled_nd: torch.Tensor) -> torch.Tensor:
        return self.act(self.dense(pooled_nd))


class MiniBertPredictionHead(nn.Module):
    """Dense layer, activation and norm, before the decoder and before ModernBERT's classifiers."""

    def __init__(self, config: MiniBertConfig, width: int | None = None):
        super().__init__()
        outputs = width or config.hidden_size
        std = output_std(config)
        self.dense = build_linear(config.hidden_size, outputs, config.head_bias, std)
        self.act = ACT2FN[config.classifier_activation]
        self.norm = build_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.norm(project(self.dense, hidden_states, self.act))


# --- the encoder ---


@dataclass
class MiniBertModelOutput(BaseModelOutputWithPooling):
    """Output of `MiniBertModel`. The last two are there with `padded_output=False`;
    `last_hidden_state` is then returned only if all `hidden_states` or `attentions` are.

    Args:
        unpadded: the final states of the unpadded tokens, [tokens, width].
        tokens: the `UnpaddedTokens` that place those states in the batch. In a captured graph all
            columns count as tokens: `AllColumns`.
    """

    unpadded: torch.Tensor | None = None
    tokens: Any = None


class MiniBertPreTrainedModel(PreTrainedModel):
    """What Transformers must know about all MiniBERT models, and how weights are initialized."""

    config: MiniBertConfig
    base_model_prefix = "model"
    _input_embed_layer = "tok_embeddings"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MiniBertLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def run_encoder(self, *inputs: torch.Tensor | None, **kwargs) -> MiniBertModelOutput:
        """Run the encoder (this model, or the one in it) without padding its output."""
        return self.base_model(*inputs, padded_output=False, return_dict=True, **kwargs)

    def encode(self, *inputs: torch.Tensor | None, **kwargs) -> MiniBertModelOutput:
        """The former name of `run_encoder`."""
        return self.run_encoder(*inputs, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            return super()._init_weights(module)
        weight = module.weight
        padding_idx = getattr(module, "padding_idx", None)
        std = getattr(module, "init_std", self.config.initializer_range)
        cutoff = self.config.initializer_cutoff_factor
        # These functions of Transformers leave weights alone that were loaded.
        if cutoff is None:
            init.normal_(weight, mean=0.0, std=std)
        else:
            init.trunc_normal_(weight, mean=0.0, std=std, a=-cutoff * std, b=cutoff * std)
        if getattr(module, "bias", None) is not None:
            init.zeros_(module.bias)
        if padding_idx is not None:
            # The whole table is copied: of a row alone, nobody knows whether it was loaded.
            with_zeros = weight.clone()
            with_zeros[padding_idx] = 0
            init.copy_(weight, with_zeros)


class MiniBertModel(MiniBertPreTrainedModel):
    """The encoder.

    Rotary positions have no weights and are no module, so that `print(model)` does not show them:
    `rotary` computes them for each type of layer.

    Args:
        add_pooling_layer: whether the model has BERT's pooler; None: as the config says.

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertModel
        >>> model = MiniBertModel(MiniBertConfig.modernbert("tiny", vocab_size=100)).eval()
        >>> input_ids = torch.tensor([[1, 7, 8, 9, 2], [1, 5, 2, 0, 0]])
        >>> attention_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
        >>> outputs = model(input_ids, attention_mask=attention_mask)
        >>> outputs.last_hidden_state.shape
        torch.Size([2, 5, 128])
    """

    def __init__(self, config: MiniBertConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        config.convert_rope_params_to_dict()  # fields may have been set after the config was built
        config.validate_architecture()
        config.validate_layer_type()
        self.embeddings = MiniBertEmbeddings(config)
        num_layers = 1 if config.share_layers else config.num_hidden_layers
        self.layers = nn.ModuleList([MiniBertLayer(config, index) for index in range(num_layers)])
        self.final_norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        if add_pooling_layer is None:
            add_pooling_layer = config.add_pooling_layer
        self.pooler = MiniBertPooler(config) if add_pooling_layer else None
        # The last token of a decoder is the only one that has seen all others.
        self.pooling = "last" if config.is_causal else config.classifier_pooling
        # For each type of layer: how far its tokens see on one side (None: everywhere), and its
        # rotary positions.
        self.reach: dict[str, int | None] = {}
        self.rotary: dict[str, MiniBertRotary] = {}
        for layer_type in sorted(set(config.layer_types)):
            is_local = layer_type == "sliding_attention"
            self.reach[layer_type] = config.sliding_window if is_local else None
            if config.position_embedding_type == "rope":
                self.rotary[layer_type] = MiniBertRotary(config, layer_type)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        cu_seq_lens_q: torch.Tensor | None = None,
        cu_seq_lens_k: torch.Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        padded_output: bool = True,
        is_causal: bool | None = None,
        **kwargs,
    ) -> MiniBertModelOutput:
        """Encode a batch.

        Args:
            input_ids, inputs_embeds: [batch, length] or [batch, length, width]; exactly one of
                them.
            attention_mask: [batch, length], non-zero at real tokens (padding left, right or in
                holes); or [batch, 1, length, length], boolean (True: seen) or floating (added to
                the scores).
            token_type_ids: [batch or 1, length]; ignored by a model without segments.
            position_ids: [batch or 1, length]; by default real tokens are counted. Where a
                position is not the previous one plus 1, another document of the row starts.
                Documents never see each other.
            seq_idx: [batch or 1, length], the document number of each token; takes precedence over
                `position_ids`.
            cu_seq_lens_q: [documents + 1], where documents start in the flattened batch.
            max_length_q: the tokens of the longest document.
            cu_seq_lens_k, max_length_k: accepted for Transformers' collators, and ignored.
            padded_output: False returns the unpadded tokens, see `MiniBertModelOutput`.
            is_causal: replaces the value of the config.
            kwargs: `output_hidden_states`, `output_attentions` and `return_dict`, by default as the
                config says; all others are passed on to Transformers' attention functions. A list
                of indices as `output_hidden_states` keeps these states, and None for the others.

        Returns:
            `last_hidden_state` [batch, length, width], zero at padding; `pooler_output` [rows or
            documents, width].
        """
        refuse_cache(kwargs)
        inputs = check_inputs(input_ids, inputs_embeds, self.embeddings.width)
        check_shapes(inputs, attention_mask, token_type_ids, position_ids, seq_idx)
        passes = self._passes()
        kept_states, keeps_attentions = layers_to_keep(kwargs, self.config, len(passes))
        keeps_layers = kept_states is not None or keeps_attentions
        if is_causal is None:
            is_causal = self.config.is_causal

        # Describe the batch, choose what the layers run over, and embed it.
        batch_size, length = inputs.shape[:2]
        batch = BatchDocuments(
            batch_size,
            length,
            inputs.device,
            attention_mask=attention_mask,
            position_ids=position_ids,
            seq_idx=seq_idx,
            cu_seq_lens=cu_seq_lens_q,
            max_length=max_length_q,
        )
        layer_input = choose_layer_input(
            batch, inputs, self.config, self.reach.values(), is_causal, keeps_layers
        )
        hidden_bsd, positions_bs = self._embed(
            layer_input, input_ids, inputs_embeds, token_type_ids
        )

        # Choose how the global layers attend and how the local ones, then run the layers.
        layer_arguments = self._layer_arguments(
            layer_input, hidden_bsd, positions_bs, passes, is_causal, kwargs
        )
        hidden_bsd, states, attentions = self._run_layers(
            hidden_bsd, passes, layer_arguments, kept_states, keeps_attentions
        )
        hidden_bsd = self.final_norm(hidden_bsd).to(inputs.device)  # `device_map` may have moved it

        # After the layers, the tokens stand one after the other in either case.
        hidden_td = layer_input.to_tokens(hidden_bsd)
        return self._build_output(layer_input.tokens, hidden_td, states, attentions, padded_output)

    # --- what forward does, in order ---

    def _passes(self) -> list[tuple[MiniBertLayer, AttentionSettings]]:
        """The layers in the order in which they run, each with its settings. Shared layers are one
        layer (Lan et al. 2019), which attends in every pass as `layer_types` say."""
        if not self.config.share_layers:
            return [(layer, layer.attention_settings) for layer in self.layers]
        layer = self.layers[0]
        rate = layer.attn.dropout_rate
        return [
            (layer, AttentionSettings(layer_type, rate)) for layer_type in self.config.layer_types
        ]

    def _embed(
        self,
        layer_input: LayerInput,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The embeddings, [b, s, d], and the positions, [b, s], of what the layers run over."""
        batch = layer_input.tokens.batch
        if self.embeddings.position_embeddings is not None:
            batch.check_positions(self.embeddings.position_embeddings.num_embeddings)
        if token_type_ids is not None:
            token_type_ids = token_type_ids.expand(batch.shape)
        positions_bs = layer_input.positions_bs
        hidden_bsd = self.embeddings(
            layer_input.arrange(input_ids),
            layer_input.arrange(inputs_embeds),
            layer_input.arrange(token_type_ids),
            positions_bs,
        )
        if isinstance(layer_input, PaddedRows):
            return hidden_bsd, positions_bs
        hidden_bsd = restore_shape(hidden_bsd, positions_bs)
        return append_filler_tokens(hidden_bsd, positions_bs, self.training)  # on a CPU

    def _layer_arguments(
        self,
        layer_input: LayerInput,
        hidden_bsd: torch.Tensor,
        positions_bs: torch.Tensor,
        passes: list[tuple[MiniBertLayer, AttentionSettings]],
        is_causal: bool,
        kwargs: dict[str, Any],
    ) -> dict[AttentionSettings, dict[str, Any]]:
        """For the layers of each settings, the arguments of `MiniBertLayer.forward` beside the
        states. `kwargs` are passed on to Transformers' attention functions."""
        dtype = query_dtype(hidden_bsd)
        cos_sin = {}
        for layer_type, rotary in self.rotary.items():
            cos_sin[layer_type] = rotary(positions_bs, dtype)
        layer_arguments = {}
        for _, settings in passes:
            if settings in layer_arguments:
                continue
            reach = self.reach[settings.layer_type]
            arguments = attention_arguments(
                layer_input, hidden_bsd, reach, is_causal, settings.dropout, self.config, kwargs
            )
            layer_arguments[settings] = arguments | {"cos_sin": cos_sin.get(settings.layer_type)}
        return layer_arguments

    def _run_layers(
        self,
        hidden_bsd: torch.Tensor,
        passes: list[tuple[MiniBertLayer, AttentionSettings]],
        layer_arguments: dict[AttentionSettings, dict[str, Any]],
        kept_states: set[int] | None,
        keeps_attentions: bool,
    ) -> tuple[torch.Tensor, list[torch.Tensor | None] | None, list[torch.Tensor] | None]:
        """Run the layers one after the other. `kept_states` and `keeps_attentions` are what
        `layers_to_keep` returns.

        Returns:
            The last state; the state before each layer and the last one, with None in place of
            those that are not kept; and the probabilities. Each list is None if `kept_states` is
            None, or `keeps_attentions` False.
        """
        states = None if kept_states is None else []
        attentions = [] if keeps_attentions else None
        for number, (layer, settings) in enumerate(passes):
            arguments = layer_arguments[settings]
            if states is not None:
                states.append(hidden_bsd if number in kept_states else None)
            if attentions is None:
                hidden_bsd = layer(hidden_bsd, **arguments)
            else:
                hidden_bsd, probs = layer(hidden_bsd, output_attentions=True, **arguments)
                if probs is not None:  # some backends give none
                    attentions.append(probs)
        if states is not None:
            states.append(hidden_bsd if len(passes) in kept_states else None)
        return hidden_bsd, states, attentions

    def _build_output(
        self,
        tokens: BatchTokens,
        hidden_td: torch.Tensor,
        states: list[torch.Tensor | None] | None,
        attentions: list[torch.Tensor] | None,
        padded_output: bool,
    ) -> MiniBertModelOutput:
        """Pool and pad the final states, [tokens, width]."""
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(tokens.pool(hidden_td, self.pooling))
        last_hidden_state = None
        if padded_output or states is not None or attentions is not None:
            last_hidden_state = tokens.pad(hidden_td)
        if states is not None:
            # The last state is the one behind the final norm, unless the config says otherwise.
            is_tied = getattr(self.config, "tie_last_hidden_states", None) is not False
            if is_tied and states[-1] is not None:
                states[-1] = last_hidden_state
        # By keyword: a new field of Transformers' class would move what stands after it.
        return MiniBertModelOutput(
            last_hidden_state=last_hidden_state,
            pooler_output=pooled,
            hidden_states=None if states is None else tuple(states),
            attentions=None if attentions is None else tuple(attentions),
            unpadded=None if padded_output else hidden_td,
            tokens=None if padded_output else tokens,
        )


# --- language modelling ---

LogitsAndLoss = tuple[torch.Tensor, torch.Tensor | None]
Count = int | torch.Tensor | None  # of targets, or rows, over all micro-batches


class MiniBertLanguageModel(MiniBertPreTrainedModel):
    """Base of the models that predict tokens: head, decoder, and logits at the labelled positions
    only."""

    _tied_weights_keys = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}

    def __init__(self, config: MiniBertConfig, add_pooling_layer: bool = False):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=add_pooling_layer)
        self.head = nn.Identity()
        if config.prediction_transform:
            self.head = MiniBertPredictionHead(config, config.embedding_size)
        width = config.embedding_size or config.hidden_size
        std = output_std(config)
        self.decoder = build_linear(width, config.vocab_size, config.decoder_bias, std)

    def get_output_embeddings(self) -> nn.Linear:
        return self.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear):
        self.decoder = new_embeddings

    def predict_tokens(
        self,
        outputs: MiniBertModelOutput,
        labels: torch.Tensor | None,
        sparse_prediction: bool | None,
        num_items_in_batch: int | torch.Tensor | None = None,
        masked_lm_positions: torch.Tensor | None = None,
        shift: bool = False,
    ) -> LogitsAndLoss:
        """Logits and loss, as `MiniBertForMaskedLM.forward` describes them. With `shift`, a token
        predicts the label of the next one."""
        hidden_td = outputs.unpadded
        labels_t = outputs.tokens.unpad_labels(labels, shift)
        num_targets = count_all_targets(outputs.tokens, num_items_in_batch, labels, labels_t, shift)
        labelled_indices = self._labelled_indices(
            hidden_td, labels_t, sparse_prediction, masked_lm_positions
        )
        if labelled_indices is not None:
            hidden_td = hidden_td[labelled_indices]
            if labels_t is not None:
                labels_t = labels_t[labelled_indices]
        filled_td, labels_t = append_filler_targets(hidden_td, labels_t)  # on a CPU
        logits_tv = project(self.decoder, self.head(filled_td))
        loss = None
        if labels_t is not None:
            loss = cross_entropy(logits_tv, labels_t, num_targets)
        logits_tv = drop_filler(logits_tv, hidden_td)
        if labelled_indices is None:
            logits_tv = outputs.tokens.pad(logits_tv)
        return logits_tv, loss

    def _labelled_indices(
        self,
        hidden_td: torch.Tensor,
        labels_t: torch.Tensor | None,
        sparse_prediction: bool | None,
        masked_lm_positions: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """The tokens whose logits are computed, [labelled positions]; None: all tokens. `labels_t`,
        [tokens], and `masked_lm_positions` refer to the unpadded tokens."""
        if sparse_prediction is None:
            sparse_prediction = self.training and labels_t is not None
            # In a graph they cannot be looked for: their number depends on values.
            if masked_lm_positions is None and needs_traceable_ops(hidden_td):
                sparse_prediction = False
        if not sparse_prediction:
            return None
        if masked_lm_positions is not None:
            return masked_lm_positions
        if labels_t is None:
            return None
        return (labels_t != -100).nonzero().squeeze(1)


class MiniBertForMaskedLM(MiniBertLanguageModel):
    """The encoder with a masked-language-modelling head.

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForMaskedLM
        >>> model = MiniBertForMaskedLM(MiniBertConfig.modernbert("tiny", vocab_size=100)).eval()
        >>> input_ids = torch.tensor([[1, 7, 4, 9, 2]])  # 4: the id of [MASK]
        >>> labels = torch.tensor([[-100, -100, 8, -100, -100]])
        >>> outputs = model(input_ids, labels=labels)
        >>> outputs.logits.shape
        torch.Size([1, 5, 100])
        >>> prediction = outputs.logits[0, 2].argmax()
    """

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        if config.is_causal:
            logger.warning_once(
                "is_causal=True: masked tokens see only what comes before them; set it to False"
            )
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None,
        labels: torch.Tensor | None = None, sparse_prediction: bool | None = None,
        masked_lm_positions: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> MaskedLMOutput:  # fmt: skip
        """Predict masked tokens.

        Args:
            labels: [batch, length], the original id at masked positions, -100 elsewhere.
            sparse_prediction: return logits at labelled positions only, [labelled positions,
                vocabulary], in the order of the flattened batch. None: True in training with labels
                (in a compiled graph: with `masked_lm_positions`). Without labels and
                `masked_lm_positions`, all logits are returned.
            masked_lm_positions: [labelled positions], the indices in the flattened, unpadded batch
                whose `labels` are not -100. By default they are found here, which waits for the
                device. Where all logits are returned, as in evaluation, they are not used.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx)
        outputs = self.run_encoder(*inputs, **kwargs)
        logits, loss = self.predict_tokens(
            outputs, labels, sparse_prediction, num_items_in_batch, masked_lm_positions
        )
        return MaskedLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


@dataclass
class MiniBertForPreTrainingOutput(ModelOutput):
    """Output of `MiniBertForPreTraining`.

    Args:
        loss: the sum of `mlm_loss` and `nsp_loss`, or one of them if only its labels were given.
        prediction_logits: [batch, length, vocabulary], or [labelled positions, vocabulary] with
            `sparse_prediction`.
        seq_relationship_logits: [batch, 2]; class 0 means that segment B follows segment A.
    """

    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    mlm_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None


class MiniBertForPreTraining(MiniBertLanguageModel):
    """The encoder with BERT's two objectives, masked language modelling and next-sentence
    prediction. The loss is the sum of those whose labels are given.

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForPreTraining
        >>> model = MiniBertForPreTraining(MiniBertConfig.bert("tiny", vocab_size=100)).eval()
        >>> input_ids = torch.tensor([[1, 7, 4, 2, 5, 6, 2]])  # [CLS] A [SEP] B [SEP]
        >>> token_type_ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
        >>> labels = torch.tensor([[-100, -100, 8, -100, -100, -100, -100]])
        >>> outputs = model(
        ...     input_ids,
        ...     token_type_ids=token_type_ids,
        ...     labels=labels,
        ...     next_sentence_label=torch.tensor([0]),
        ... )
        >>> outputs.prediction_logits.shape, outputs.seq_relationship_logits.shape
        (torch.Size([1, 7, 100]), torch.Size([1, 2]))
    """

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, add_pooling_layer=True)
        self.seq_relationship = build_linear(config.hidden_size, 2, True, config.initializer_range)
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None,
        labels: torch.Tensor | None = None, next_sentence_label: torch.Tensor | None = None,
        sparse_prediction: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        num_rows_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> MiniBertForPreTrainingOutput:  # fmt: skip
        """Predict masked tokens and whether segment B follows segment A.

        Args:
            labels: [batch, length], the original id at masked positions, -100 elsewhere.
            next_sentence_label: [batch]; 0: B follows A, 1: B is random.
            sparse_prediction: as for `MiniBertForMaskedLM`.
            num_items_in_batch: masked tokens over all micro-batches of an optimizer step (`Trainer`
                counts them).
            num_rows_in_batch: `next_sentence_label`s over all micro-batches. Without it, a
                micro-batch is weighted in the NSP loss by its share of masked tokens, which is
                exact if all hold equally many.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx)
        outputs = self.run_encoder(*inputs, **kwargs)
        logits, mlm_loss = self.predict_tokens(
            outputs, labels, sparse_prediction, num_items_in_batch
        )
        relationship = self.seq_relationship(outputs.pooler_output)
        nsp_loss = None
        if next_sentence_label is not None:
            nsp_loss = next_sentence_loss(
                relationship, next_sentence_label, num_rows_in_batch, labels, num_items_in_batch
            )
        loss = mlm_loss
        if nsp_loss is not None:
            loss = nsp_loss if loss is None else loss + nsp_loss
        return MiniBertForPreTrainingOutput(
            loss=loss,
            prediction_logits=logits,
            seq_relationship_logits=relationship,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
        )


class MiniBertForCausalLM(MiniBertLanguageModel, GenerationMixin):
    """The same layers as a decoder: every token predicts the next one of its document. Always
    causal. Without a cache, generation runs the whole text at every step.

    The encoder in it, `model`, returns a `last_hidden_state` that has been through the head, so
    that `decoder(last_hidden_state)` gives the logits. Its `hidden_states` have not, nor have the
    states of a `MiniBertModel` from the same folder.

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForCausalLM
        >>> model = MiniBertForCausalLM(MiniBertConfig.modernbert("tiny", vocab_size=100)).eval()
        >>> input_ids = torch.tensor([[1, 7, 8]])
        >>> loss = model(input_ids, labels=input_ids).loss
        >>> model.generate(input_ids, max_new_tokens=4, do_sample=False).shape
        torch.Size([1, 7])
    """

    # Without a cache, tokens cannot be taken back: `generate` refuses assisted decoding.
    _is_stateful = True

    def __init__(self, config: MiniBertConfig):
        config = copy.deepcopy(config)
        config.is_causal = True
        super().__init__(config)
        # Libraries for decoders (TRL, fused losses) call the encoder themselves and compute logits
        # as `decoder(model(...).last_hidden_state)`, without the head. So what the encoder returns
        # to them has been through the head. A hook does that, as the head belongs to this class,
        # and its weights are saved under this class's names: the encoder cannot hold it.
        self.model.register_forward_hook(self._apply_head)
        self.post_init()

    def _apply_head(self, module: nn.Module, inputs: tuple, outputs: Any) -> Any:
        """The hook: `outputs` of the encoder, with the head applied to `last_hidden_state`."""
        if isinstance(outputs, tuple):
            return (self.head(outputs[0]), *outputs[1:])
        # What `run_encoder` gets is left alone: the head runs later, on the tokens that need it.
        if outputs.unpadded is None:
            outputs.last_hidden_state = self.head(outputs.last_hidden_state)
        return outputs

    def get_decoder(self) -> nn.Module:
        """The encoder. (Transformers would return the attribute `decoder`, which here is the last
        projection.)"""
        return self.model

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        next_sequence_length: int | None = None,
        past_key_values: Any = None,
        cache: Any = None,
        **kwargs,
    ) -> dict[str, Any]:
        """Keep the whole text: without a cache, `generate` must not pass the new tokens only."""
        return super().prepare_inputs_for_generation(input_ids, **kwargs)

    @can_return_tuple
    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None,
        labels: torch.Tensor | None = None, sparse_prediction: bool = False,
        num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> CausalLMOutput:  # fmt: skip
        """Predict next tokens.

        Args:
            labels: [batch, length], usually `input_ids`; shifted here. The last token of a document
                predicts nothing.
            shift_labels: [batch, length], in place of `labels`: labels that are shifted already.
            sparse_prediction: return logits at labelled positions only, [labelled positions,
                vocabulary].

        Raises:
            ValueError: `is_causal` is False.
        """
        if kwargs.get("is_causal") is False:
            raise ValueError(
                "is_causal=False: every token would see the token that it must predict; use "
                "MiniBertForMaskedLM"
            )
        # In the signature, `Trainer` would take it for a label that every batch has.
        shift_labels = kwargs.pop("shift_labels", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx)
        outputs = self.run_encoder(*inputs, **kwargs)
        must_shift = shift_labels is None
        if not must_shift:
            labels = shift_labels
        logits, loss = self.predict_tokens(
            outputs, labels, sparse_prediction, num_items_in_batch, shift=must_shift
        )
        return CausalLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


register_causal_model("minibert", "MiniBertForCausalLM")


# --- models for tasks ---


# What `MiniBertTaskModel.forward` returns. sentence-transformers reads from that annotation that
# there are `logits`, so it must name classes that have them: `ModelOutput` would not do.
TaskOutput = (
    NextSentencePredictorOutput
    | SequenceClassifierOutput
    | MultipleChoiceModelOutput
    | TokenClassifierOutput
)


class MiniBertTaskModel(MiniBertPreTrainedModel):
    """Base of the models that take one kind of `labels`. A subclass builds the encoder and the
    head, and defines `output_class` and `_predict`."""

    output_class: type[TaskOutput]

    @can_return_tuple
    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None,
        labels: torch.Tensor | None = None, num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> TaskOutput:  # fmt: skip
        """The inputs of `MiniBertModel`, and `labels` as `_predict` describes them."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx)
        outputs = self.run_encoder(*inputs, **kwargs)
        logits, loss = self._predict(outputs, labels, num_items_in_batch)
        return self.output_class(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _predict(
        self, outputs: MiniBertModelOutput, labels: torch.Tensor | None, num_items_in_batch: Count
    ) -> LogitsAndLoss:
        """Compute the logits, and the loss if there are labels.

        Args:
            outputs: what `run_encoder` returns.
            labels: as the subclass describes them.
            num_items_in_batch: the targets over all micro-batches, see `mean_loss`.
        """
        raise NotImplementedError


class MiniBertClassifier(MiniBertTaskModel):
    """Base of the models that classify sequences or tokens: head, dropout, linear.

    Args:
        num_classes: the number of logits.
        add_pooling_layer: as for `MiniBertModel`; False for classifiers of tokens.
    """

    def __init__(
        self, config: MiniBertConfig, num_classes: int, add_pooling_layer: bool | None = None
    ):
        super().__init__(config)
        self.num_labels = num_classes
        self.model = MiniBertModel(config, add_pooling_layer=add_pooling_layer)
        # BERT has no head here, ModernBERT a dense layer with activation and norm.
        self.head = nn.Identity()
        if not config.add_pooling_layer:
            self.head = MiniBertPredictionHead(config)
        self.dropout = build_dropout(config, config.classifier_dropout)
        # BERT initializes it as all other layers, ModernBERT with 1/√width.
        std = config.initializer_range
        if config.scaled_output_init:
            std = config.hidden_size**-0.5
        self.classifier = build_linear(config.hidden_size, num_classes, config.classifier_bias, std)
        self.post_init()

    def classify(self, states: torch.Tensor) -> torch.Tensor:
        """[…, width] → […, classes]"""
        return self.classifier(self.dropout(self.head(states)))

    def _pool(self, outputs: MiniBertModelOutput) -> torch.Tensor:
        """One vector for each row or document, [n, width]."""
        if outputs.pooler_output is not None:
            return outputs.pooler_output
        return outputs.tokens.pool(outputs.unpadded, self.model.pooling)


class MiniBertForNextSentencePrediction(MiniBertTaskModel):
    """The encoder with BERT's next-sentence classifier: does segment B follow segment A?

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForNextSentencePrediction
        >>> config = MiniBertConfig.bert("tiny", vocab_size=100)
        >>> model = MiniBertForNextSentencePrediction(config).eval()
        >>> input_ids = torch.tensor([[1, 7, 8, 2, 5, 6, 2]])  # [CLS] A [SEP] B [SEP]
        >>> token_type_ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
        >>> outputs = model(input_ids, token_type_ids=token_type_ids, labels=torch.tensor([1]))
        >>> outputs.logits.shape  # class 0: B follows A
        torch.Size([1, 2])
    """

    output_class = NextSentencePredictorOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=True)
        self.seq_relationship = build_linear(config.hidden_size, 2, True, config.initializer_range)
        self.post_init()

    def _predict(
        self, outputs: MiniBertModelOutput, labels: torch.Tensor | None, num_items_in_batch: Count
    ) -> LogitsAndLoss:
        """`labels`: [batch]; 0: B follows A, 1: B is random."""
        logits = self.seq_relationship(outputs.pooler_output)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return logits, loss


class MiniBertForSequenceClassification(MiniBertClassifier):
    """The encoder with a classifier (or regressor) for texts or pairs of texts: one prediction for
    each row, or for each document if a row holds several.

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForSequenceClassification
        >>> config = MiniBertConfig.modernbert("tiny", vocab_size=100, num_labels=3)
        >>> model = MiniBertForSequenceClassification(config).eval()
        >>> input_ids = torch.tensor([[1, 7, 8, 2], [1, 5, 6, 2]])
        >>> outputs = model(input_ids, labels=torch.tensor([0, 2]))
        >>> outputs.logits.shape
        torch.Size([2, 3])
    """

    output_class = SequenceClassifierOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, config.num_labels)

    def _predict(
        self, outputs: MiniBertModelOutput, labels: torch.Tensor | None, num_items_in_batch: Count
    ) -> LogitsAndLoss:
        """`labels`: [batch], class numbers or (`num_labels=1`) values; or [batch, num_labels],
        floating, values or 0/1."""
        logits = self.classify(self._pool(outputs))
        loss = None
        if labels is not None:
            loss = classification_loss(self.config, logits, labels, num_items_in_batch)
        return logits, loss


class MiniBertForMultipleChoice(MiniBertClassifier):
    """The encoder with a score for each of several choices: [batch, choices, length] → [batch,
    choices].

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForMultipleChoice
        >>> config = MiniBertConfig.modernbert("tiny", vocab_size=100)
        >>> model = MiniBertForMultipleChoice(config).eval()
        >>> input_ids = torch.tensor([[[1, 7, 8, 2], [1, 7, 5, 2], [1, 7, 6, 2]]])
        >>> outputs = model(input_ids, labels=torch.tensor([1]))
        >>> outputs.logits.shape
        torch.Size([1, 3])
    """

    output_class = MultipleChoiceModelOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, 1)

    def run_encoder(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None, **kwargs,
    ) -> MiniBertModelOutput:  # fmt: skip
        """Encode each choice as a row; the pooled output is [batch, choices, width]."""
        dimensions = ("batch", "choices", "length")
        words = check_inputs(input_ids, inputs_embeds, self.model.embeddings.width, dimensions)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx)
        rows = [None if x is None else x.flatten(0, 1) for x in inputs]
        outputs = super().run_encoder(*rows, **kwargs)
        outputs.pooler_output = self._pool(outputs).unflatten(0, (-1, words.shape[1]))
        return outputs

    def _predict(
        self, outputs: MiniBertModelOutput, labels: torch.Tensor | None, num_items_in_batch: Count
    ) -> LogitsAndLoss:
        """`labels`: [batch], the number of the right choice."""
        logits = self.classify(outputs.pooler_output).squeeze(-1)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return logits, loss


class MiniBertForTokenClassification(MiniBertClassifier):
    """The encoder with a classifier for each token (NER, POS).

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForTokenClassification
        >>> config = MiniBertConfig.modernbert("tiny", vocab_size=100, num_labels=5)
        >>> model = MiniBertForTokenClassification(config).eval()
        >>> input_ids = torch.tensor([[1, 7, 8, 2]])
        >>> outputs = model(input_ids, labels=torch.tensor([[-100, 0, 4, -100]]))
        >>> outputs.logits.shape
        torch.Size([1, 4, 5])
    """

    output_class = TokenClassifierOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, config.num_labels, add_pooling_layer=False)

    def _predict(
        self, outputs: MiniBertModelOutput, labels: torch.Tensor | None, num_items_in_batch: Count
    ) -> LogitsAndLoss:
        """`labels`: [batch, length], -100 where there is nothing to predict."""
        logits_tc = self.classify(outputs.unpadded)
        labels_t = outputs.tokens.unpad_labels(labels)
        num_targets = count_all_targets(outputs.tokens, num_items_in_batch, labels, labels_t)
        loss = None
        if labels_t is not None:
            loss = cross_entropy(logits_tc, labels_t, num_targets)
        return outputs.tokens.pad(logits_tc), loss


class MiniBertForReplacedTokenDetection(MiniBertTaskModel):
    """The encoder with ELECTRA's head (Clark et al. 2020, arXiv 2003.10555): was this token in the
    text, or did a generator put it there? The logits, [batch, length], are above 0 where a token
    looks replaced.

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForReplacedTokenDetection
        >>> config = MiniBertConfig.bert("tiny", vocab_size=100)
        >>> model = MiniBertForReplacedTokenDetection(config).eval()
        >>> input_ids = torch.tensor([[1, 7, 8, 2]])
        >>> outputs = model(input_ids, labels=torch.tensor([[-100, 0, 1, -100]]))
        >>> looks_replaced = outputs.logits > 0
        >>> looks_replaced.shape
        torch.Size([1, 4])
    """

    output_class = TokenClassifierOutput
    # A class without an Auto class would be saved without its code. Transformers has none for
    # detectors, and opens ELECTRA's with this one.
    _auto_class = "AutoModelForPreTraining"

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=False)
        width = config.hidden_size
        # The names differ from those of other heads, which cannot use these weights.
        self.dense = build_linear(width, width, True, config.initializer_range)
        self.act = ACT2FN[config.classifier_activation]
        self.detector = build_linear(width, 1, True, config.initializer_range)
        self.post_init()

    def _predict(
        self, outputs: MiniBertModelOutput, labels: torch.Tensor | None, num_items_in_batch: Count
    ) -> LogitsAndLoss:
        """`labels`: [batch, length], 1 where a token was replaced, 0 where it was not, -100 where
        it is ignored."""
        logits_t1 = self.detector(self.act(self.dense(outputs.unpadded)))
        labels_t = outputs.tokens.unpad_labels(labels)
        num_targets = count_all_targets(outputs.tokens, num_items_in_batch, labels, labels_t)
        loss = None
        if labels_t is not None:
            loss = detection_loss(logits_t1.squeeze(1), labels_t, num_targets)
        return outputs.tokens.pad(logits_t1).squeeze(-1), loss


class MiniBertForQuestionAnswering(MiniBertClassifier):
    """The encoder with scores for the start and the end of an answer (extractive question
    answering). The scores of padding are the lowest number of their type.

    Example:

        >>> import torch
        >>> from minibert import MiniBertConfig, MiniBertForQuestionAnswering
        >>> config = MiniBertConfig.modernbert("tiny", vocab_size=100)
        >>> model = MiniBertForQuestionAnswering(config).eval()
        >>> input_ids = torch.tensor([[1, 7, 8, 2, 5, 6, 9, 2]])  # question, text
        >>> outputs = model(
        ...     input_ids, start_positions=torch.tensor([4]), end_positions=torch.tensor([5])
        ... )
        >>> outputs.start_logits.shape, outputs.end_logits.shape
        (torch.Size([1, 8]), torch.Size([1, 8]))
    """

    def __init__(self, config: MiniBertConfig):
        # Two classes: the start of the answer, and its end.
        super().__init__(config, 2, add_pooling_layer=False)

    @can_return_tuple
    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None, end_positions: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> QuestionAnsweringModelOutput:  # fmt: skip
        """Find the answer.

        Args:
            start_positions, end_positions: [batch], columns. An answer on padding or beyond the row
                is ignored. A number below 0 counts as column 0, as in Transformers.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx)
        outputs = self.run_encoder(*inputs, **kwargs)
        logits_tc = self.classify(outputs.unpadded)
        logits = outputs.tokens.pad(logits_tc, fill=torch.finfo(logits_tc.dtype).min)
        start_logits = logits[..., 0].contiguous()
        end_logits = logits[..., 1].contiguous()
        loss = None
        if start_positions is not None and end_positions is not None:
            real_bs = outputs.tokens.batch.real_bs
            start_loss = answer_loss(start_logits, start_positions, real_bs, num_items_in_batch)
            end_loss = answer_loss(end_logits, end_positions, real_bs, num_items_in_batch)
            loss = (start_loss + end_loss) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = [  # noqa: RUF022 - in reading order
    "MiniBertPreTrainedModel",
    "MiniBertModel",
    "MiniBertForMaskedLM",
    "MiniBertForPreTraining",
    "MiniBertForCausalLM",
    "MiniBertForNextSentencePrediction",
    "MiniBertForSequenceClassification",
    "MiniBertForMultipleChoice",
    "MiniBertForTokenClassification",
    "MiniBertForReplacedTokenDetection",
    "MiniBertForQuestionAnswering",
]
