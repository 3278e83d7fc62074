# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""MiniBERT: embeddings, attention, layers, the encoder and every head, from top to bottom.

What happens to a batch: `MiniBertModel.forward` describes it (`BatchDocuments`), chooses what the
layers run over (the real tokens as one `UnpaddedRow` wherever that is possible, else `PaddedRows`),
embeds that, plans the attention of each kind of layer, and runs the layers. The heads work on the
unpadded tokens; in the training of masked language models, logits over the vocabulary are computed
at the labelled positions only. The result is padded only for callers who need padded rows.

What this file takes from the others, in short: `rotate` turns queries and keys by their positions
(`rope`), `dispatch.attend` is attention over unpadded tokens (`attention`), `project` is a linear
with its activation (`cpu`), and the losses are those of `torch.nn.functional` (`losses`).

Shape suffixes in all model files: `hidden_td` is [tokens, width].

    b   rows of the padded batch        t   tokens: unpadded, or all columns if padding is kept
    s   columns of the padded batch     n   documents; a row that is not packed is one document
    d   width, of the model or a head   h   heads
    q   queries                         k   keys
    v   vocabulary                      c   classes
    r   packed rows of one call         p   slots of the packed rows of all calls
    g   blocks of a local layer         1   one

The layers take [b, s, d]: padded rows, or the unpadded tokens as one row, so that b is 1 and s
counts the tokens. Arguments and outputs of `forward` bear the names of Transformers, without a
suffix.
"""

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

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

from .attention_minibert import AttentionDispatch, choose_dispatch
from .compat_minibert import (
    attention_backend,
    needs_static_shapes,
    needs_traceable_ops,
    register_causal_model,
)
from .configuration_minibert import MiniBertConfig
from .cpu_minibert import MiniBertDropout, num_filler_tokens, project, repeat_last
from .losses_minibert import (
    answer_loss,
    classification_loss,
    count_targets,
    cross_entropy,
    detection_loss,
    scale_by_targets,
)
from .rope_minibert import MiniBertRotary, rotate, sinusoidal_positions
from .sequences_minibert import (
    BatchDocuments,
    PaddedRows,
    UnpaddedRow,
    UnpaddedTokens,
    check_inputs,
    check_shapes,
    find_outside,
    refuse_cache,
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
    wrong = find_outside(ids, table_size) if table_size else None
    if wrong is not None:
        raise ValueError(f"{name} has {wrong}: use numbers from 0 to {table_size - 1}")
    return table(ids)


def restore_shape(x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    """The output of an embedding in the shape of `position_ids`, [b, s, d], whatever a hook made of
    it.

    Libraries that explain models (integrated gradients) run the model on several copies of a text,
    and replace the output of an embedding by a hook, which returns [copies, tokens, d]. Where the
    tokens are unpadded, [1, copies · tokens, d] is needed in its place.
    """
    return x.reshape(*position_ids.shape, x.shape[-1])


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
            x = restore_shape(x, position_ids)
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                token_type_ids = position_ids.new_zeros(1, 1)
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
    wide = torch.promote_types(scores.dtype, torch.float32)
    probs = F.softmax(scores, dim=-1, dtype=wide).to(query.dtype)
    probs = F.dropout(probs, dropout)
    return torch.matmul(probs, value).transpose(1, 2).contiguous(), probs


class MiniBertAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017) with one projection for queries, keys and
    values."""

    def __init__(self, config: MiniBertConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_width = config.hidden_size // config.num_attention_heads
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
        rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
        dispatch: AttentionDispatch | None = None,
        attention_mask: torch.Tensor | None = None,
        backend: str = "eager",
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend over the unpadded tokens (`dispatch`), or over padded rows with a mask
        (`backend`).

        Args:
            hidden_states: [b, s, d]; with a `dispatch`, b is 1 and s counts the unpadded tokens.
            rotary: the cosines and sines that `rotate` takes.
            dispatch: how the layers of this kind attend over the unpadded tokens in this forward.
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
        if rotary is not None:
            qk = rotate(qk, *rotary)
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


class AttentionKey(NamedTuple):
    """What decides how a layer attends: layers with the same key share an `AttentionDispatch`."""

    layer_type: str
    dropout: float  # the current rate


class MiniBertLayer(GradientCheckpointingLayer):
    """Attention and MLP with residuals; norms before (Xiong et al. 2020) or after (Vaswani et al.
    2017)."""

    def __init__(self, config: MiniBertConfig, layer_idx: int):
        super().__init__()
        self.pre_norm = config.norm_placement == "pre"
        self.attention_type = config.layer_types[layer_idx]
        # The first layer gets embeddings that are normed already, unless it is all layers.
        is_first = layer_idx == 0 and not config.share_layers
        is_normed = self.pre_norm and is_first and config.embedding_norm
        self.attn_norm = nn.Identity() if is_normed else build_norm(config)
        self.attn = MiniBertAttention(config, layer_idx)
        self.mlp_norm = build_norm(config)
        self.mlp = MiniBertMLP(config)
        self.dropout = MiniBertDropout(config.hidden_dropout)

    @property
    def attention_key(self) -> AttentionKey:
        return AttentionKey(self.attention_type, self.attn.dropout_rate)

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
    """Output of `MiniBertModel`. The last three are there with `padded_output=False`;
    `last_hidden_state` is then returned only if all `hidden_states` or `attentions` are.

    Args:
        unpadded: the final states of the unpadded tokens, [tokens, width].
        tokens: the `UnpaddedTokens` that place those states in the batch. In a captured graph all
            columns count as tokens: `AllColumns`.
        layer_arguments: how each kind of layer attended, by `AttentionKey`: what
            `_attention_arguments` returned.
    """

    unpadded: torch.Tensor | None = None
    tokens: Any = None
    layer_arguments: Any = None


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

    def encode(self, *inputs: torch.Tensor | None, **kwargs) -> MiniBertModelOutput:
        """Run the encoder without padding its output."""
        return self.model(*inputs, padded_output=False, return_dict=True, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            return super()._init_weights(module)
        weight = module.weight
        padding_idx = getattr(module, "padding_idx", None)
        padding_before = None if padding_idx is None else weight[padding_idx].clone()
        std = getattr(module, "init_std", self.config.initializer_range)
        cutoff = self.config.initializer_cutoff_factor
        # These functions of Transformers leave weights alone that were loaded.
        if cutoff is None:
            init.normal_(weight, mean=0.0, std=std)
        else:
            init.trunc_normal_(weight, mean=0.0, std=std, a=-cutoff * std, b=cutoff * std)
        if getattr(module, "bias", None) is not None:
            init.zeros_(module.bias)
        if padding_idx is None or weight.is_meta:
            return
        # Whether weights were loaded is recorded for the whole table only, so this row is zeroed
        # only if it was drawn just now.
        was_drawn = not torch.equal(weight[padding_idx], padding_before)
        if was_drawn:
            init.zeros_(weight[padding_idx])


def query_dtype(hidden_states: torch.Tensor) -> torch.dtype:
    """The type of queries, keys and values, which autocast may decide."""
    device_type = hidden_states.device.type
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return hidden_states.dtype


def count_visible(window: int | None) -> int | None:
    """The window as Transformers counts it: the tokens seen on one side, and the token itself."""
    return None if window is None else window + 1


def state_indices(wanted: bool | int | list[int] | None, num_states: int) -> set[int]:
    """The indices of the hidden states that `output_hidden_states` asks for: True for all of them;
    or, as in Transformers, one index or several, where -1 is the last state. Indices out of range
    select nothing."""
    if wanted is True:
        return set(range(num_states))
    if not wanted:
        return set()
    indices = [wanted] if isinstance(wanted, int) else wanted
    return {index % num_states for index in indices if -num_states <= index < num_states}


def keyword_or_field(keywords: dict[str, Any], config: MiniBertConfig, name: str) -> Any:
    """What the caller asks for by a keyword; None, or no keyword, means the field of the config."""
    value = keywords.get(name)
    return getattr(config, name) if value is None else value


class LayerOutputs:
    """The outputs of every layer that the caller, or else the config, asks for. They are collected
    while the layers run.

    Attributes:
        wants_states: whether hidden states are kept, those of `kept_states`.
        wants_attentions: whether the probabilities are kept.
        are_wanted: whether anything is kept.
    """

    def __init__(self, config: MiniBertConfig, caller_keywords: dict[str, Any], num_layers: int):
        wanted_states = keyword_or_field(caller_keywords, config, "output_hidden_states")
        wanted_attentions = keyword_or_field(caller_keywords, config, "output_attentions")
        self.config = config
        self.kept_states = state_indices(wanted_states, num_layers + 1)
        self.wants_states = bool(wanted_states)
        self.wants_attentions = bool(wanted_attentions)
        self.are_wanted = self.wants_states or self.wants_attentions
        self._states: list[torch.Tensor | None] = []
        self._attentions: list[torch.Tensor] = []

    def add_state(self, hidden_bsd: torch.Tensor) -> None:
        is_kept = len(self._states) in self.kept_states
        self._states.append(hidden_bsd if is_kept else None)

    def add_attention(self, probs: torch.Tensor | None) -> None:
        if probs is not None:  # some backends give none
            self._attentions.append(probs)

    def hidden_states(
        self, last_hidden_state: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...] | None:
        """All states; None in place of those that are not kept. The last one is
        `last_hidden_state`, behind the final norm, unless the config says otherwise."""
        if not self.wants_states:
            return None
        states = list(self._states)
        is_tied = getattr(self.config, "tie_last_hidden_states", None) is not False
        if is_tied and states[-1] is not None:
            states[-1] = last_hidden_state
        return tuple(states)

    def attentions(self) -> tuple[torch.Tensor, ...] | None:
        return tuple(self._attentions) if self.wants_attentions else None


class MiniBertModel(MiniBertPreTrainedModel):
    """The encoder.

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
        pooler = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = MiniBertPooler(config) if pooler else None
        # The last token of a decoder is the only one that has seen all others.
        self.pooling = "last" if config.is_causal else config.classifier_pooling
        # For each kind of layer: how far its tokens see (None: everywhere), and its rotary angles.
        self.windows: dict[str, int | None] = {}
        for layer_type in config.layer_types:
            is_local = layer_type == "sliding_attention"
            self.windows[layer_type] = config.sliding_window if is_local else None
        self.rotary: dict[str, MiniBertRotary] = {}
        if config.position_embedding_type == "rope":
            for layer_type in self.windows:
                self.rotary[layer_type] = MiniBertRotary(config, layer_type)
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None,
        cu_seq_lens_q: torch.Tensor | None = None, cu_seq_lens_k: torch.Tensor | None = None,
        max_length_q: int | None = None, max_length_k: int | None = None,
        padded_output: bool = True, is_causal: bool | None = None, **kwargs,
    ) -> MiniBertModelOutput:  # fmt: skip
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
            cu_seq_lens_k, max_length_k: the same in self-attention, and ignored.
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
        layer_outputs = LayerOutputs(self.config, kwargs, len(self._passes()))

        # Describe the batch, and choose what the layers run over.
        batch = BatchDocuments(
            *inputs.shape[:2], inputs.device, attention_mask, position_ids, seq_idx,
            cu_seq_lens_q, max_length_q,
        )  # fmt: skip
        rows = self._choose_rows(batch, inputs, layer_outputs.are_wanted)
        hidden_bsd, positions_bs = self._embed(rows, input_ids, inputs_embeds, token_type_ids)

        # Choose how each kind of layer attends, then run the layers.
        attention_keywords = kwargs | {"output_attentions": layer_outputs.wants_attentions}
        attention_keywords["is_causal"] = self.config.is_causal if is_causal is None else is_causal
        layer_arguments = self._attention_arguments(
            rows, hidden_bsd, positions_bs, attention_keywords
        )
        hidden_bsd = self._run_layers(hidden_bsd, layer_arguments, layer_outputs)
        hidden_bsd = self.final_norm(hidden_bsd).to(inputs.device)  # `device_map` may have moved it

        # After the layers, the tokens stand one after the other in either case.
        hidden_td = rows.to_tokens(hidden_bsd)
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(rows.tokens.pool(hidden_td, self.pooling))
        last_hidden_state = None
        if padded_output or layer_outputs.are_wanted:
            last_hidden_state = rows.tokens.pad(hidden_td)
        states = layer_outputs.hidden_states(last_hidden_state)
        attentions = layer_outputs.attentions()
        # By keyword: a new field of Transformers' class would move what stands after it.
        return MiniBertModelOutput(
            last_hidden_state=last_hidden_state,
            pooler_output=pooled,
            hidden_states=states,
            attentions=attentions,
            unpadded=None if padded_output else hidden_td,
            tokens=None if padded_output else rows.tokens,
            layer_arguments=None if padded_output else layer_arguments,
        )

    # --- what forward does, in order ---

    def _choose_rows(
        self, batch: BatchDocuments, inputs: torch.Tensor, wants_every_layer: bool
    ) -> UnpaddedRow | PaddedRows:
        """What the layers run over: the unpadded tokens as one row wherever that is possible, else
        the padded rows."""
        if needs_static_shapes(inputs):  # a graph of static shapes cannot drop padding
            return PaddedRows(batch.keep_columns())
        tokens = batch.find_tokens()
        needs_rows = wants_every_layer or batch.mask_4d is not None
        if needs_rows or not self._attends_unpadded(tokens):
            return PaddedRows(tokens)
        return UnpaddedRow(tokens)

    def _attends_unpadded(self, tokens: UnpaddedTokens) -> bool:
        """Whether the attention backend works on these unpadded tokens."""
        backend = attention_backend(self.config)
        if backend == "sdpa":
            return True
        if "flash" not in backend:
            return False
        # Flash attention needs at least one token, and measures the window in tokens, not
        # positions.
        if not len(tokens.document_ids):
            return False
        return tokens.order == "contiguous" or not any(self.windows.values())

    def _embed(
        self,
        rows: UnpaddedRow | PaddedRows,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The embeddings of the rows, [b, s, d], and their positions, [b, s]. An `UnpaddedRow` may
        get filler tokens at its end, see `num_filler_tokens`."""
        batch = rows.tokens.batch
        if self.embeddings.position_embeddings is not None:
            batch.check_positions(self.embeddings.position_embeddings.num_embeddings)
        if token_type_ids is not None:
            token_type_ids = token_type_ids.expand(batch.shape)
        positions_bs = rows.positions_bs
        hidden_bsd = self.embeddings(
            rows.arrange(input_ids),
            rows.arrange(inputs_embeds),
            rows.arrange(token_type_ids),
            positions_bs,
        )
        if isinstance(rows, PaddedRows):
            return hidden_bsd, positions_bs
        hidden_bsd = restore_shape(hidden_bsd, positions_bs)
        num_filler = num_filler_tokens(hidden_bsd[0], self.training)
        if num_filler:
            hidden_bsd = repeat_last(hidden_bsd, num_filler, 1)
            positions_bs = F.pad(positions_bs, (0, num_filler))
        return hidden_bsd, positions_bs

    def _passes(self) -> list[tuple[MiniBertLayer, AttentionKey]]:
        """The layers in the order in which they run, each with its `attention_key`. Shared layers
        are one layer (Lan et al. 2019), which attends in every pass as `layer_types` say."""
        if not self.config.share_layers:
            return [(layer, layer.attention_key) for layer in self.layers]
        layer = self.layers[0]
        rate = layer.attn.dropout_rate
        return [(layer, AttentionKey(name, rate)) for name in self.config.layer_types]

    def _attention_arguments(
        self,
        rows: UnpaddedRow | PaddedRows,
        hidden_bsd: torch.Tensor,
        positions_bs: torch.Tensor,
        attention_keywords: dict[str, Any],
    ) -> dict[AttentionKey, dict[str, Any]]:
        """How each kind of layer attends: the arguments of `MiniBertLayer.forward` beside the
        states.

        Args:
            attention_keywords: what the caller passes on to Transformers' attention functions, and
                `output_attentions` and `is_causal`. Where one has the name of an argument that is
                decided here, the caller's wins.
        """
        dtype = query_dtype(hidden_bsd)
        rotary = {name: angles(positions_bs, dtype) for name, angles in self.rotary.items()}
        layer_arguments = {}
        for layer, key in self._passes():
            if key in layer_arguments:
                continue
            window = self.windows[key.layer_type]
            if isinstance(rows, PaddedRows):
                arguments = self._padded_arguments(rows, hidden_bsd, window, attention_keywords)
            elif attention_backend(self.config) == "sdpa":
                causal = attention_keywords["is_causal"]
                head_width = layer.attn.head_width
                dispatch = choose_dispatch(
                    rows.tokens, window, causal, key.dropout, dtype, head_width
                )
                arguments = {"dispatch": dispatch}
            else:
                arguments = self._flash_arguments(rows, window, attention_keywords)
            layer_arguments[key] = arguments | {"rotary": rotary.get(key.layer_type)}
        return layer_arguments

    def _padded_arguments(
        self,
        rows: PaddedRows,
        hidden_bsd: torch.Tensor,
        window: int | None,
        attention_keywords: dict[str, Any],
    ) -> dict[str, Any]:
        """The arguments of Transformers' attention functions on padded rows with a mask. They serve
        eager attention, flex attention, functions that a user registered, outputs of every layer,
        and graphs that are captured."""
        batch = rows.tokens.batch
        backend = attention_backend(self.config)
        causal = attention_keywords["is_causal"]
        mask = None
        if "attention_instances" in attention_keywords:  # vLLM keeps its requests apart itself
            self._check_vllm()
        elif "flash" not in backend or batch.needs_mask:
            if "flash" in backend:
                backend = "sdpa"  # flash attention takes no mask over pairs of tokens
            mask = batch.mask_for_backend(backend, self.config, hidden_bsd, window, causal)
        # Without a mask, flash attention goes by the window and the direction.
        arguments = {
            "backend": backend,
            "attention_mask": mask,
            "sliding_window": count_visible(window),
        }
        return arguments | attention_keywords

    def _flash_arguments(
        self, row: UnpaddedRow, window: int | None, attention_keywords: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments of Transformers' flash attention on the unpadded tokens."""
        arguments = {
            "backend": attention_backend(self.config),
            "attention_mask": None,
            "sliding_window": count_visible(window),
            "cu_seq_lens_q": row.tokens.cu_seq_lens,
            "cu_seq_lens_k": row.tokens.cu_seq_lens,
            "max_length_q": row.tokens.max_length,
            "max_length_k": row.tokens.max_length,
        }
        return arguments | attention_keywords

    def _check_vllm(self):
        """Refuse what vLLM would compute wrongly: it has one window for a layer."""
        if self.config.share_layers and len(self.windows) > 1:
            raise ValueError(
                f"share_layers=True with layer_types={self.config.layer_types}: vLLM has one "
                "window for a layer; use layer_types of one kind"
            )

    def _run_layers(
        self,
        hidden_bsd: torch.Tensor,
        layer_arguments: dict[AttentionKey, dict[str, Any]],
        layer_outputs: LayerOutputs,
    ) -> torch.Tensor:
        """Run the layers one after the other, and collect their outputs in `layer_outputs`."""
        for layer, key in self._passes():
            layer_outputs.add_state(hidden_bsd)
            if layer_outputs.wants_attentions:
                hidden_bsd, probs = layer(hidden_bsd, **layer_arguments[key])
                layer_outputs.add_attention(probs)
            else:
                hidden_bsd = layer(hidden_bsd, **layer_arguments[key])
        layer_outputs.add_state(hidden_bsd)
        return hidden_bsd


# --- language modelling ---

LogitsAndLoss = tuple[torch.Tensor, torch.Tensor | None]


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
        labels_t: torch.Tensor | None,
        sparse_prediction: bool | None,
        num_items_in_batch: int | torch.Tensor | None = None,
        masked_lm_positions: torch.Tensor | None = None,
    ) -> LogitsAndLoss:
        """Logits and loss, as `MiniBertForMaskedLM.forward` describes them. `labels_t`, [tokens],
        and `masked_lm_positions` refer to the unpadded tokens."""
        hidden_td = outputs.unpadded
        positions = self._predicted_positions(
            hidden_td, labels_t, sparse_prediction, masked_lm_positions
        )
        if positions is None:
            logits_tv, loss = self._decode(hidden_td, labels_t, num_items_in_batch)
            return outputs.tokens.pad(logits_tv), loss
        if labels_t is not None:
            labels_t = labels_t[positions]
        return self._decode(hidden_td[positions], labels_t, num_items_in_batch)

    def _predicted_positions(
        self,
        hidden_td: torch.Tensor,
        labels_t: torch.Tensor | None,
        sparse_prediction: bool | None,
        masked_lm_positions: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """The tokens whose logits are computed, [labelled positions]; None: all tokens. The
        arguments are those of `predict_tokens`."""
        is_default = sparse_prediction is None
        is_sparse = sparse_prediction
        if is_default:
            is_sparse = self.training and labels_t is not None
        if not is_sparse:
            return None
        if masked_lm_positions is not None:
            return masked_lm_positions
        if labels_t is None:
            return None
        # In a graph, positions cannot be looked for: their number depends on values.
        if is_default and needs_traceable_ops(hidden_td):
            return None
        return (labels_t != -100).nonzero().squeeze(1)

    def _decode(
        self,
        hidden_td: torch.Tensor,
        labels_t: torch.Tensor | None,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> LogitsAndLoss:
        """The logits of these tokens, [tokens, vocabulary], and the loss if they have labels."""
        num_filler = num_filler_tokens(hidden_td)
        if num_filler:
            hidden_td = repeat_last(hidden_td, num_filler, 0)
        logits_tv = project(self.decoder, self.head(hidden_td))
        loss = None
        if labels_t is not None:
            if num_filler:
                labels_t = F.pad(labels_t, (0, num_filler), value=-100)
            loss = cross_entropy(logits_tv, labels_t, num_items_in_batch)
        if num_filler:
            logits_tv = logits_tv[:-num_filler]
        return logits_tv, loss


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
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds,
            seq_idx, **kwargs,
        )  # fmt: skip
        labels_t = outputs.tokens.unpad_labels(labels)
        num_targets = count_targets(outputs.tokens, num_items_in_batch, labels, labels_t)
        logits, loss = self.predict_tokens(
            outputs, labels_t, sparse_prediction, num_targets, masked_lm_positions
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
            num_items_in_batch: masked tokens over all micro-batches of an optimizer step (`Trainer`
                counts them).
            num_rows_in_batch: `next_sentence_label`s over all micro-batches. Without it, a
                micro-batch is weighted in the NSP loss by its share of masked tokens, which is
                exact if all hold equally many.
        """
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds,
            seq_idx, **kwargs,
        )  # fmt: skip
        labels_t = outputs.tokens.unpad_labels(labels)
        num_targets = count_targets(outputs.tokens, num_items_in_batch, labels, labels_t)
        logits, mlm_loss = self.predict_tokens(outputs, labels_t, sparse_prediction, num_targets)
        relationship = self.seq_relationship(outputs.pooler_output)
        nsp_loss = None
        if next_sentence_label is not None:
            nsp_loss = cross_entropy(relationship, next_sentence_label.view(-1), num_rows_in_batch)
            if num_rows_in_batch is None:
                counted_labels = next_sentence_label if labels is None else labels
                nsp_loss = scale_by_targets(nsp_loss, counted_labels, num_items_in_batch)
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
        # What `encode` gets is left alone: the head runs later, on the tokens that need it.
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
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds,
            seq_idx, **kwargs,
        )  # fmt: skip
        must_shift = shift_labels is None
        if not must_shift:
            labels = shift_labels
        labels_t = outputs.tokens.unpad_labels(labels, must_shift)
        num_targets = count_targets(
            outputs.tokens, num_items_in_batch, labels, labels_t, must_shift
        )
        logits, loss = self.predict_tokens(outputs, labels_t, sparse_prediction, num_targets)
        return CausalLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


register_causal_model("minibert", "MiniBertForCausalLM")


# --- classifiers ---


# What `MiniBertTaskModel.forward` returns. sentence-transformers reads from that annotation that
# there are `logits`, so it must name classes that have them: `ModelOutput` would not do.
HeadOutput = (
    NextSentencePredictorOutput
    | SequenceClassifierOutput
    | MultipleChoiceModelOutput
    | TokenClassifierOutput
)


class MiniBertTaskModel(MiniBertPreTrainedModel):
    """Base of the models that take one kind of `labels`. A subclass builds the encoder and the
    head, and defines `output_class` and `_predict`."""

    output_class: type[HeadOutput]

    @can_return_tuple
    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None,
        labels: torch.Tensor | None = None, num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> HeadOutput:  # fmt: skip
        """The inputs of `MiniBertModel`, and `labels` as `_predict` describes them."""
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds,
            seq_idx, **kwargs,
        )  # fmt: skip
        logits, loss = self._predict(outputs, labels, num_items_in_batch)
        return self.output_class(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _predict(
        self,
        outputs: MiniBertModelOutput,
        labels: torch.Tensor | None,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> LogitsAndLoss:
        """Compute the logits, and the loss if there are labels.

        Args:
            outputs: what `encode` returns.
            labels: as the subclass describes them.
            num_items_in_batch: the targets over all micro-batches, see `mean_loss`.
        """
        raise NotImplementedError


def build_classifier_head(config: MiniBertConfig) -> nn.Module:
    """What comes before the dropout and the last linear of a classifier: nothing in BERT, a dense
    layer with activation and norm in ModernBERT."""
    return nn.Identity() if config.add_pooling_layer else MiniBertPredictionHead(config)


def build_classifier(config: MiniBertConfig, classes: int) -> nn.Linear:
    """The last linear of a classifier. ModernBERT initializes it with 1/√width; BERT as all other
    layers."""
    std = config.hidden_size**-0.5 if config.scaled_output_init else config.initializer_range
    return build_linear(config.hidden_size, classes, config.classifier_bias, std)


class MiniBertClassifier(MiniBertTaskModel):
    """Base of the models that classify sequences or tokens: head, dropout, linear.

    Args:
        classes: the number of logits.
        add_pooling_layer: as for `MiniBertModel`; False for classifiers of tokens.
    """

    def __init__(self, config: MiniBertConfig, classes: int, add_pooling_layer: bool | None = None):
        super().__init__(config)
        self.num_labels = classes
        self.model = MiniBertModel(config, add_pooling_layer=add_pooling_layer)
        self.head = build_classifier_head(config)
        self.dropout = build_dropout(config, config.classifier_dropout)
        self.classifier = build_classifier(config, classes)
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

    def _predict(self, outputs, labels, num_items_in_batch) -> LogitsAndLoss:
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

    def _predict(self, outputs, labels, num_items_in_batch) -> LogitsAndLoss:
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

    def encode(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        **kwargs,
    ) -> MiniBertModelOutput:
        """Encode each choice as a row; the pooled output is [batch, choices, width]."""
        dimensions = ("batch", "choices", "length")
        words = check_inputs(input_ids, inputs_embeds, self.model.embeddings.width, dimensions)
        inputs = (
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            seq_idx,
        )
        rows = [None if x is None else x.flatten(0, 1) for x in inputs]
        outputs = super().encode(*rows, **kwargs)
        outputs.pooler_output = self._pool(outputs).unflatten(0, (-1, words.shape[1]))
        return outputs

    def _predict(self, outputs, labels, num_items_in_batch) -> LogitsAndLoss:
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

    def _predict(self, outputs, labels, num_items_in_batch) -> LogitsAndLoss:
        """`labels`: [batch, length], -100 where there is nothing to predict."""
        logits_tc = self.classify(outputs.unpadded)
        labels_t = outputs.tokens.unpad_labels(labels)
        num_targets = count_targets(outputs.tokens, num_items_in_batch, labels, labels_t)
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
    # It has no Auto class of its own, but is saved with its code all the same.
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

    def _predict(self, outputs, labels, num_items_in_batch) -> LogitsAndLoss:
        """`labels`: [batch, length], 1 where a token was replaced, 0 where it was not, -100 where
        it is ignored."""
        logits_t1 = self.detector(self.act(self.dense(outputs.unpadded)))
        labels_t = outputs.tokens.unpad_labels(labels)
        num_targets = count_targets(outputs.tokens, num_items_in_batch, labels, labels_t)
        loss = None
        if labels_t is not None:
            loss = detection_loss(logits_t1.squeeze(1), labels_t, num_targets)
        return outputs.tokens.pad(logits_t1).squeeze(-1), loss


class MiniBertForQuestionAnswering(MiniBertPreTrainedModel):
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
        super().__init__(config)
        self.num_labels = 2
        self.model = MiniBertModel(config, add_pooling_layer=False)
        self.head = build_classifier_head(config)
        self.dropout = build_dropout(config, config.classifier_dropout)
        self.classifier = build_classifier(config, 2)  # the start, the end
        self.post_init()

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
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds,
            seq_idx, **kwargs,
        )  # fmt: skip
        logits_tc = self.classifier(self.dropout(self.head(outputs.unpadded)))
        logits = outputs.tokens.pad(logits_tc, fill=torch.finfo(logits_tc.dtype).min)
        start_logits, end_logits = logits.unbind(-1)
        start_logits = start_logits.contiguous()
        end_logits = end_logits.contiguous()
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
