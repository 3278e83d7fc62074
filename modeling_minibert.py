# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""MiniBERT: the encoder and every head, read from top to bottom.

What happens to a batch: `MiniBertModel.forward` describes its documents (`Documents`), drops padding, embeds the real
tokens, plans the attention of each kind of layer, runs the layers over the unpadded tokens, and pads again only for
callers who need the padded shape. Heads work on the unpadded tokens: while training, the vocabulary is computed at the
labelled positions alone.

Shape suffixes: b batch, s columns of the padded batch, t tokens (unpadded, or all columns where nothing was dropped),
n rows or documents, d width, v vocabulary, c classes.
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

from .attention_minibert import (
    Documents,
    InterfacePlan,
    MiniBertAttention,
    MiniBertDropout,
    bucket_rows,
    build_linear,
    is_captured,
    is_traced,
    output_std,
    plan_attention,
    project,
    repeat_last,
)
from .configuration_minibert import MiniBertConfig
from .embeddings_minibert import MiniBertEmbeddings, MiniBertRotary, build_norm

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
            config.hidden_size, inner * (2 if self.gated else 1), config.mlp_bias, config.initializer_range
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
        normed = self.pre_norm and layer_idx == 0 and config.embedding_norm  # the embeddings end in a norm already
        self.attn_norm = nn.Identity() if normed else build_norm(config)
        self.attn = MiniBertAttention(config, layer_idx)
        self.mlp_norm = build_norm(config)
        self.mlp = MiniBertMLP(config)
        self.dropout = MiniBertDropout(config.hidden_dropout)

    @property
    def kind(self) -> tuple[str, float]:
        """Layers of one kind share an attention plan: those of one pattern that drop as much now."""
        dropout = self.attn.dropout
        return self.attention_type, getattr(dropout, "p", 0.0) if dropout.training else 0.0

    def forward(self, hidden_states: torch.Tensor, **kwargs) -> torch.Tensor:
        if self.pre_norm:
            hidden_states = hidden_states + self.dropout(self.attn(self.attn_norm(hidden_states), **kwargs)[0])
            return hidden_states + self.dropout(self.mlp(self.mlp_norm(hidden_states)))
        hidden_states = self.attn_norm(hidden_states + self.dropout(self.attn(hidden_states, **kwargs)[0]))
        return self.mlp_norm(hidden_states + self.dropout(self.mlp(hidden_states)))


class MiniBertPooler(nn.Module):
    """BERT's layer over the pooled vector."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        self.dense = build_linear(config.hidden_size, config.hidden_size, True, config.initializer_range)
        self.act = ACT2FN[config.pooler_activation]

    def forward(self, pooled_nd: torch.Tensor) -> torch.Tensor:
        return self.act(self.dense(pooled_nd))


class MiniBertPredictionHead(nn.Module):
    """Dense, activation, norm: what stands before the decoder, and before ModernBERT's classifiers."""

    def __init__(self, config: MiniBertConfig, width: int | None = None):
        super().__init__()
        self.dense = build_linear(config.hidden_size, width or config.hidden_size, config.head_bias, output_std(config))
        self.act = ACT2FN[config.classifier_activation]
        self.norm = build_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.norm(project(self.dense, hidden_states, self.act))


# --- the encoder ---


@dataclass
class MiniBertModelOutput(BaseModelOutputWithPooling):
    """What `MiniBertModel` returns. With `padded_output=False`, for the heads, `unpadded` are the final states of the
    unpadded tokens, [tokens, width], `documents` says where those tokens belong, and `plans` how the layers attended;
    `last_hidden_state` is there only beside the other `hidden_states`."""

    unpadded: torch.Tensor | None = None
    documents: Any = None
    plans: Any = None


@dataclass
class MiniBertForPreTrainingOutput(ModelOutput):
    """Output of `MiniBertForPreTraining`.

    Args:
        loss: the sum of the losses whose labels were given; `mlm_loss` and `nsp_loss` are its terms.
        prediction_logits: [batch, length, vocabulary], or [labelled positions, vocabulary] with `sparse_prediction`.
        seq_relationship_logits: [batch, 2]; class 0 says that segment B follows segment A.
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

    def _check_and_adjust_attn_implementation(self, attn_implementation: str | None, *args, **kwargs) -> str:
        """A kernel of the Hub that cannot be had here stops nobody: sdpa computes the same."""
        try:
            return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)
        except (ImportError, ValueError) as error:
            if "/" not in str(attn_implementation):
                raise
            logger.warning(f"attn_implementation={attn_implementation!r} cannot be had, sdpa takes its place: {error}")
            return "sdpa"

    def encode(self, *inputs: torch.Tensor | None, **kwargs) -> "MiniBertModelOutput":
        """What every head starts with: the unpadded tokens of `MiniBertModel`."""
        return self.model(*inputs, padded_output=False, return_dict=True, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            return super()._init_weights(module)
        std, cutoff = getattr(module, "init_std", self.config.initializer_range), self.config.initializer_cutoff_factor
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
        add_pooling_layer: whether to own BERT's pooler; None: as the config says.
    """

    def __init__(self, config: MiniBertConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        config.convert_rope_params_to_dict()  # fields may have been set since the config was built
        config.validate_architecture()
        config.validate_layer_type()
        self.embeddings = MiniBertEmbeddings(config)
        self.layers = nn.ModuleList([MiniBertLayer(config, i) for i in range(config.num_hidden_layers)])
        self.final_norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        pooler = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = MiniBertPooler(config) if pooler else None
        # A decoder's first token has seen nothing, its last one everything.
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
            position_ids: [batch or 1, length]; counted over real tokens if left out. A row holds several documents,
                which never see each other, if a position is not the previous one plus 1.
            seq_idx: [batch, length], the document of each token (wins over `position_ids`).
            cu_seq_lens_q: [documents + 1], where documents start in the flattened batch; `max_length_q`: tokens of the
                longest one, for kernels. (Those of the keys, of the same convention, add nothing for self-attention.)
            padded_output: False returns the unpadded tokens, see `MiniBertModelOutput`.
            is_causal: overrides the config's.

        Returns:
            `last_hidden_state` [batch, length, width], zero at padding; `pooler_output` [rows or documents, width].
        """
        for name in ("past_key_values", "cache", "encoder_hidden_states"):  # "cache" is since Transformers 5.24
            if kwargs.get(name) is not None:
                raise ValueError(f"{name}: there is no cache and no cross-attention; give the whole text at every step")
        columns = dict(token_type_ids=token_type_ids, position_ids=position_ids, seq_idx=seq_idx)
        inputs = self._check_inputs(input_ids, inputs_embeds, attention_mask, columns)
        mask_2d = attention_mask if attention_mask is not None and attention_mask.dim() == 2 else None
        documents = Documents(
            *inputs.shape[:2], inputs.device, mask_2d, position_ids, seq_idx, cu_seq_lens_q, max_length_q
        )
        wants_layers = any(
            kwargs.get(name, getattr(self.config, name, False)) not in (None, False)
            for name in ("output_hidden_states", "output_attentions")
        )
        captured = is_captured(inputs)
        unpad = not (wants_layers or captured) and (attention_mask is None or mask_2d is not None)
        unpad = unpad and self._drop_padding(documents)
        self._check_positions(documents, position_ids)
        if token_type_ids is not None:
            token_type_ids = token_type_ids.expand(documents.shape)
        position_bs = documents.position_bs
        if unpad:
            input_ids, token_type_ids, position_bs, inputs_embeds = (
                None if x is None else documents.select(x).unsqueeze(0)
                for x in (input_ids, token_type_ids, position_bs, inputs_embeds)
            )

        hidden = self.embeddings(input_ids, inputs_embeds, token_type_ids, position_bs)
        extra = bucket_rows(hidden[0], self.training) if unpad else 0
        if extra:
            hidden, position_bs = repeat_last(hidden, extra, 1), F.pad(position_bs, (0, extra))
        rotary = {name: angles(position_bs) for name, angles in self.rotary.items()}
        causal = self.config.is_causal if is_causal is None else is_causal
        plans = self._plan(documents, hidden, attention_mask, causal, unpad, kwargs)
        for layer in self.layers:
            hidden = layer(hidden, plan=plans[layer.kind], rotary=rotary.get(layer.attention_type))
        hidden = self.final_norm(hidden).to(inputs.device)  # with `device_map` the last layer may be on another one

        hidden_td = hidden.flatten(0, 1)[: hidden.shape[1] - extra] if unpad else hidden.flatten(0, 1)
        if not (unpad or captured):  # from here on unpadded like any other
            hidden_td = documents.unpad().select(hidden)
        pooled = None if self.pooler is None else self.pooler(documents.pool(hidden_td, self.pooling))
        if padded_output:
            return MiniBertModelOutput(last_hidden_state=documents.restore(hidden_td), pooler_output=pooled)
        padded = documents.restore(hidden_td) if wants_layers else None
        return MiniBertModelOutput(padded, pooled, unpadded=hidden_td, documents=documents, plans=plans)

    def _check_inputs(
        self, input_ids: MaybeTensor, inputs_embeds: MaybeTensor, attention_mask: MaybeTensor, columns: dict[str, Any]
    ) -> torch.Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        inputs, name, form = input_ids, "input_ids", "[batch, length]"
        if inputs_embeds is not None:
            width = self.config.embedding_size or self.config.hidden_size
            inputs, name, form = inputs_embeds, "inputs_embeds", f"[batch, length, {width}]"
        shape = tuple(inputs.shape[:2])
        right = inputs.dim() == 2 if inputs_embeds is None else inputs.dim() == 3 and inputs.shape[2] == width
        if not right or 0 in shape:
            raise ValueError(f"{name} has the shape {tuple(inputs.shape)}: give {form}, at least one token")
        if attention_mask is not None and attention_mask.dim() != 4 and tuple(attention_mask.shape) != shape:
            raise ValueError(
                f"attention_mask has the shape {tuple(attention_mask.shape)}, the inputs {shape}: give "
                "[batch, length] or [batch, 1, length, length]"
            )
        numbers = attention_mask is not None and attention_mask.dim() == 4 and attention_mask.dtype != torch.bool
        if numbers and not attention_mask.is_floating_point():
            raise ValueError(f"attention_mask is {attention_mask.dtype}: of pairs, give booleans, or floats to add")
        for name, x in columns.items():
            if x is not None and (x.shape not in (shape, (1, shape[1])) or x.dtype == torch.bool):
                raise ValueError(f"{name} is {x.dtype} of the shape {tuple(x.shape)}: give numbers, {list(shape)}")
        return inputs

    def _drop_padding(self, documents: Documents) -> bool:
        """Drop padding, if the backend can do without it; whether it was dropped."""
        backend = self.config._attn_implementation
        if backend == "sdpa":
            documents.unpad()
            return True
        # flash attention needs a token, and counts the window in tokens, not in positions
        is_flash = "flash" in backend and len(documents.unpad().id_t) > 0
        return is_flash and (documents.order == "contiguous" or not any(self.windows.values()))

    def _plan(self, documents, hidden, attention_mask, causal, unpadded, keywords) -> dict[Any, Any]:
        """For each kind of layer how it attends."""
        backend, device, plans = self.config._attn_implementation, hidden.device.type, {}
        if unpadded and backend != "sdpa":  # flash attention
            keywords = keywords | dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), documents.cu_seqlens)
            keywords = keywords | dict.fromkeys(("max_length_q", "max_length_k"), documents.longest)
        for kind in {layer.kind for layer in self.layers}:
            window, dropout = self.windows[kind[0]], kind[1]
            if unpadded and backend == "sdpa":
                dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
                plans[kind] = plan_attention(documents, window, causal, dropout, dtype, self.head_width)
            else:
                isolated = unpadded or "attention_instances" in keywords  # vLLM's, which know their requests themselves
                mask = None if isolated else self._mask(documents, hidden, attention_mask, window, causal)
                plans[kind] = InterfacePlan(backend, mask, window, dropout, is_causal=causal, **keywords)
        return plans

    def _check_positions(self, documents: Documents, position_ids: MaybeTensor):
        """Learned positions end somewhere; say so before an index error does."""
        if self.embeddings.position_embeddings is None or is_captured(documents.position_bs):
            return
        table = self.embeddings.position_embeddings.num_embeddings
        if (position_ids is not None or documents.longest > table) and int(documents.position_bs.max()) >= table:
            raise ValueError(
                f"position {int(documents.position_bs.max())} is beyond max_position_embeddings={table}: truncate to "
                f"{table} tokens (tokenizer(..., truncation=True, max_length={table}))"
            )

    def _mask(self, documents, hidden, attention_mask, window, causal):
        """The mask of one kind of layer for padded rows, in the form the backend takes."""
        backend = self.config._attn_implementation
        if attention_mask is not None and attention_mask.dim() == 4:
            seen = documents.dense_mask(window, causal)
            if seen is None:
                return attention_mask
            if attention_mask.dtype == torch.bool:
                return attention_mask & seen
            return attention_mask.masked_fill(~seen, torch.finfo(attention_mask.dtype).min)
        if documents.id_bs is None and ("flash" in backend or (window is None and not causal)):
            return None  # flash attention takes window and direction as arguments
        if backend in ("eager", "sdpa") or "flash" in backend or backend not in ALL_MASK_ATTENTION_FUNCTIONS:
            return documents.dense_mask(window, causal)
        rule = documents.visible(window, causal)
        return create_bidirectional_mask(self.config, hidden, attention_mask=None, and_mask_function=rule)


# --- losses ---


def mean_loss(
    loss_sum: torch.Tensor, count: int | torch.Tensor, num_items_in_batch: int | torch.Tensor | None
) -> torch.Tensor:
    """The sum of the losses of a (micro-)batch over the number of targets: those of the whole batch, if `Trainer` says
    how many there are over all steps of gradient accumulation (it does where `forward` takes **kwargs, and then divides
    by nothing itself), else its own. No target at all gives 0, not NaN."""
    total = count if num_items_in_batch is None else num_items_in_batch
    return loss_sum / (total.to(loss_sum.device).clamp(min=1) if isinstance(total, torch.Tensor) else max(total, 1))


def at_least_fp32(x: torch.Tensor) -> torch.Tensor:
    """Half precision as fp32, anything else as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _CrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of [targets, classes] in fp32 on CPU, a few rows at a time: what it needs beside the logits
    stays in the processor's cache, where separate operators write four tensors of the logits' size and read them
    back."""

    ROWS = 64

    @staticmethod
    def forward(logits, labels):
        log_sums = torch.cat([at_least_fp32(rows).logsumexp(-1) for rows in logits.split(_CrossEntropy.ROWS)])
        at_labels = at_least_fp32(logits.gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1))
        return (log_sums - at_labels).masked_fill(labels < 0, 0).sum(), log_sums

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        logits, labels, log_sums = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again
            probs = at_least_fp32(logits).softmax(-1)
            hits = F.one_hot(labels.clamp(min=0), logits.shape[1])
            return ((probs - hits) * (grad * (labels >= 0)).unsqueeze(1)).to(logits.dtype), None
        out = torch.empty_like(logits)
        parts = (x.split(_CrossEntropy.ROWS) for x in (out, logits, labels, log_sums))
        for to, rows, label, log_sum in zip(*parts):
            probs = (at_least_fp32(rows) - log_sum.unsqueeze(1)).exp_()
            probs.scatter_add_(1, label.clamp(min=0).unsqueeze(1), probs.new_full((len(label), 1), -1))
            to.copy_(probs.mul_((grad * (label >= 0)).unsqueeze(1)))
        return out, None


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None, ignore_index: int = -100
) -> torch.Tensor:
    """Mean cross-entropy of [targets, classes] in fp32 (fp64 stays), labels `ignore_index` left out. A ValueError for
    labels of another shape or type, and on CPU for those that are no class."""
    labels = labels.to(logits.device)
    if labels.shape != logits.shape[:1] or labels.dtype not in (torch.long, torch.int):
        given = f"{labels.dtype} of the shape {tuple(labels.shape)}"
        raise ValueError(f"labels: {given} for {len(logits)} predictions; give torch.long, one for each")
    labels = labels.long()
    counted = labels != ignore_index
    if labels.device.type == "cpu" and len(labels) and not is_captured(labels):
        low, high = map(int, labels.masked_fill(~counted, 0).aminmax())
        if low < 0 or high >= logits.shape[1]:
            known = f"0 to {logits.shape[1] - 1}, or {ignore_index} for none"
            raise ValueError(f"labels: {low if low < 0 else high} is no class; give {known}")
    if is_traced(logits) or logits.device.type != "cpu" or not len(logits):
        wide = at_least_fp32(logits)
        loss_sum = F.cross_entropy(wide, labels, ignore_index=ignore_index, reduction="sum")
    else:
        loss_sum, _ = _CrossEntropy.apply(logits, labels.masked_fill(~counted, -1))
    return mean_loss(loss_sum, counted.sum(), num_items_in_batch)


def classification_loss(
    config: MiniBertConfig, logits_nc: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None
) -> torch.Tensor:
    """Regression, single-label or multi-label, as `config.problem_type` says; where it says nothing it is resolved, as
    in Transformers, by the number of labels and the type of the first labels seen."""
    if config.problem_type is None:
        if config.num_labels == 1:
            config.problem_type = "regression"
        elif labels.dtype in (torch.long, torch.int):
            config.problem_type = "single_label_classification"
        else:
            config.problem_type = "multi_label_classification"
    if config.problem_type == "single_label_classification":
        return cross_entropy(logits_nc, labels.view(-1), num_items_in_batch)
    losses = {"regression": F.mse_loss, "multi_label_classification": F.binary_cross_entropy_with_logits}
    if config.problem_type not in losses:
        raise ValueError(f"problem_type={config.problem_type!r}: use single_label_classification, {', '.join(losses)}")
    logits_nc = at_least_fp32(logits_nc)
    if labels.numel() != logits_nc.numel() or labels.shape[:1] not in ((), logits_nc.shape[:1]):
        given, kind = f"{labels.dtype}, of the shape {tuple(labels.shape)}", config.problem_type
        raise ValueError(f"labels: {given}, for problem_type={kind!r}; give {tuple(logits_nc.shape)}")
    labels = labels.to(logits_nc).view(logits_nc.shape)
    loss_sum = losses[config.problem_type](logits_nc, labels, reduction="sum")
    return mean_loss(loss_sum, labels.numel(), num_items_in_batch)


# --- language modelling ---


class MiniBertLanguageModel(MiniBertPreTrainedModel):
    """What the models that predict tokens share: head, decoder, and logits at the labelled positions only."""

    _tied_weights_keys = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}

    def __init__(self, config: MiniBertConfig, add_pooling_layer: bool = False):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=add_pooling_layer)
        transform = config.prediction_transform
        self.head = MiniBertPredictionHead(config, config.embedding_size) if transform else nn.Identity()
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
        """Logits and loss, as `MiniBertForMaskedLM.forward` describes them; `labels_t` [tokens] and
        `masked_lm_positions` are of the unpadded tokens."""
        hidden_td = outputs.unpadded
        if sparse_prediction is None:
            cannot_look = masked_lm_positions is None and is_traced(hidden_td)
            sparse_prediction = self.training and labels_t is not None and not cannot_look
        if sparse_prediction and masked_lm_positions is None and labels_t is not None:
            masked_lm_positions = (labels_t != -100).nonzero().squeeze(1)
        sparse = sparse_prediction and masked_lm_positions is not None
        if sparse:
            hidden_td, labels_t = (None if x is None else x[masked_lm_positions] for x in (hidden_td, labels_t))
        extra = bucket_rows(hidden_td)
        if extra:
            hidden_td = repeat_last(hidden_td, extra, 0)
            labels_t = None if labels_t is None else F.pad(labels_t, (0, extra), value=-100)
        logits_tv = project(self.decoder, self.head(hidden_td))
        loss = None if labels_t is None else cross_entropy(logits_tv, labels_t, num_items_in_batch)
        logits_tv = logits_tv[:-extra] if extra else logits_tv
        return (logits_tv if sparse else outputs.documents.restore(logits_tv)), loss


class MiniBertForMaskedLM(MiniBertLanguageModel):
    """The encoder with a masked-language-modelling head."""

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        if config.is_causal:
            logger.warning_once("is_causal=True: each masked token sees only what stands before it; set it to False")
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
            sparse_prediction: logits at labelled positions only, [labelled positions, vocabulary], in the order of the
                flattened batch; None: in training, given labels (in a compiled graph: given `masked_lm_positions`).
            masked_lm_positions: [labelled positions], where `labels` are not -100 in a flattened batch without padding;
                found here if left out, which waits for the device. With `sparse_prediction` they need no labels.
        """
        outputs = self.encode(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx, **kwargs)
        labels_t, count = outputs.documents.select_labels(labels, num_items_in_batch)
        logits, loss = self.predict_tokens(outputs, labels_t, sparse_prediction, count, masked_lm_positions)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MiniBertForPreTraining(MiniBertLanguageModel):
    """BERT's two objectives: masked language modelling and next-sentence prediction. The loss is the sum of those whose
    labels are given."""

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
            num_rows_in_batch: `next_sentence_label`s over the same. Without it, the share of a micro-batch in the NSP
                loss is taken to be its share of masked tokens: exact if all micro-batches hold equally many.
        """
        outputs = self.encode(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx, **kwargs)
        labels_t, count = outputs.documents.select_labels(labels, num_items_in_batch)
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
            loss, logits, relationship, outputs.hidden_states, outputs.attentions, mlm_loss, nsp_loss
        )


class MiniBertForCausalLM(MiniBertLanguageModel, GenerationMixin):
    """The same blocks as a decoder: every token predicts the next one of its document. Always causal. There is no
    cache: generation runs the whole text at every step."""

    _is_stateful = True  # no cache to take tokens back from: `generate` refuses assisted decoding

    def __init__(self, config: MiniBertConfig):
        config = copy.deepcopy(config)
        config.is_causal = True
        super().__init__(config)
        # Libraries for decoders (TRL, vLLM, fused losses) take `decoder(model(…).last_hidden_state)` for the logits.
        self.model.register_forward_hook(self._finish_states)
        self.post_init()

    def _finish_states(self, module: nn.Module, inputs: tuple, outputs: Any) -> Any:
        if isinstance(outputs, tuple):
            return (self.head(outputs[0]), *outputs[1:])
        if outputs.unpadded is None:  # else the head comes later, on the tokens that need it
            outputs.last_hidden_state = self.head(outputs.last_hidden_state)
        return outputs

    def get_decoder(self) -> nn.Module:
        """The blocks (where Transformers takes what is called `decoder`, here the last projection)."""
        return self.model

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, next_sequence_length: int | None = None,
        past_key_values: Any = None, cache: Any = None, **kwargs,
    ) -> dict[str, Any]:  # fmt: skip
        """Without a cache, `generate` must not cut the text down to its new tokens."""
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
            shift_labels: [batch, length], labels that are shifted already (as sequence parallelism hands them); they
                replace `labels`. Not in the signature, since Trainer evaluates no loss unless a batch has every label
                that the signature names.
            sparse_prediction: logits at labelled positions only, [labelled positions, vocabulary], which the device is
                waited for; worth it where few tokens have labels.
        """
        shift_labels = kwargs.pop("shift_labels", None)
        outputs = self.encode(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx, **kwargs)
        given, shift = (labels, True) if shift_labels is None else (shift_labels, False)
        labels_t, count = outputs.documents.select_labels(given, num_items_in_batch, shift)
        logits, loss = self.predict_tokens(outputs, labels_t, sparse_prediction, count)
        return CausalLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


# --- classifiers ---


# (sentence-transformers reads names of outputs from annotations.)
HeadOutput = NextSentencePredictorOutput | SequenceClassifierOutput | MultipleChoiceModelOutput | TokenClassifierOutput


class MiniBertHead(MiniBertPreTrainedModel):
    """What the models with one kind of labels share: `forward`. Their `_predict` gives the logits and the loss."""

    output_class: type[HeadOutput]

    @can_return_tuple
    def forward(
        self, input_ids: MaybeTensor = None, attention_mask: MaybeTensor = None, token_type_ids: MaybeTensor = None,
        position_ids: MaybeTensor = None, inputs_embeds: MaybeTensor = None, seq_idx: MaybeTensor = None,
        labels: MaybeTensor = None, num_items_in_batch: int | torch.Tensor | None = None, **kwargs,
    ) -> HeadOutput:  # fmt: skip
        """The inputs of `MiniBertModel`, and `labels` as `_predict` describes them."""
        outputs = self.encode(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx, **kwargs)
        logits, loss = self._predict(outputs, labels, num_items_in_batch)
        return self.output_class(loss, logits, outputs.hidden_states, outputs.attentions)


class MiniBertClassifier(MiniBertHead):
    """What the models that judge sequences, or (`pooled=False`) tokens, share: head, dropout, a linear."""

    def __init__(self, config: MiniBertConfig, classes: int, pooled: bool = True):
        super().__init__(config)
        self.num_labels = classes
        self.model = MiniBertModel(config, add_pooling_layer=None if pooled else False)
        self.head = nn.Identity() if config.add_pooling_layer else MiniBertPredictionHead(config)
        rate = config.hidden_dropout if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = MiniBertDropout(rate)
        # ModernBERT starts its classifiers at 1/√width; BERT like everything else.
        std = config.hidden_size**-0.5 if config.scaled_output_init else config.initializer_range
        self.classifier = build_linear(config.hidden_size, classes, config.classifier_bias, std)
        self.post_init()

    def classify(self, states: torch.Tensor) -> torch.Tensor:
        """[…, width] → […, classes]"""
        return self.classifier(self.dropout(self.head(states)))

    def _pool(self, outputs: MiniBertModelOutput) -> torch.Tensor:
        """[rows or documents, width]"""
        if outputs.pooler_output is not None:
            return outputs.pooler_output
        return outputs.documents.pool(outputs.unpadded, self.model.pooling)


class MiniBertForNextSentencePrediction(MiniBertHead):
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
        loss = None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return logits, loss


class MiniBertForSequenceClassification(MiniBertClassifier):
    """The encoder with a classifier (or regressor) over texts or pairs of texts: a row, or a document where a row holds
    several."""

    output_class = SequenceClassifierOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, config.num_labels)

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch] class numbers or (`num_labels=1`) values; [batch, num_labels] values or 0/1, floating."""
        logits = self.classify(self._pool(outputs))
        loss = None if labels is None else classification_loss(self.config, logits, labels, num_items_in_batch)
        return logits, loss


class MiniBertForMultipleChoice(MiniBertClassifier):
    """The encoder with a score for each of several choices: of inputs [batch, choices, length], [batch, choices]."""

    output_class = MultipleChoiceModelOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, 1)

    def encode(self, *inputs: MaybeTensor, **kwargs) -> MiniBertModelOutput:
        """The choices as rows; what is pooled of them is [batch, choices, width]."""
        outputs = super().encode(*(None if x is None else x.flatten(0, 1) for x in inputs), **kwargs)
        choices = next(x.shape[1] for x in inputs if x is not None)
        outputs.pooler_output = self._pool(outputs).unflatten(0, (-1, choices))
        return outputs

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch], the number of the right choice."""
        logits = self.classify(outputs.pooler_output).squeeze(-1)
        loss = None if labels is None else cross_entropy(logits, labels, num_items_in_batch)
        return logits, loss


class MiniBertForTokenClassification(MiniBertClassifier):
    """The encoder with a classifier over tokens (NER, POS)."""

    output_class = TokenClassifierOutput

    def __init__(self, config: MiniBertConfig):
        super().__init__(config, config.num_labels, pooled=False)

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch, length], -100 where there is nothing to predict."""
        logits_tc = self.classify(outputs.unpadded)
        labels_t, count = outputs.documents.select_labels(labels, num_items_in_batch)
        loss = None if labels_t is None else cross_entropy(logits_tc, labels_t, count)
        return outputs.documents.restore(logits_tc), loss


class MiniBertForReplacedTokenDetection(MiniBertHead):
    """The encoder with ELECTRA's head (Clark et al. 2020, arXiv 2003.10555): was this token in the text, or did a
    generator put it there? The logits are [batch, length], above 0 where a token looks replaced."""

    output_class = TokenClassifierOutput
    _auto_class = "AutoModelForPreTraining"  # it has none of its own; but it, too, is saved with the code

    def __init__(self, config: MiniBertConfig):
        super().__init__(config)
        self.model = MiniBertModel(config, add_pooling_layer=False)
        # names of their own: what they learn is of no use to other heads
        self.dense = build_linear(config.hidden_size, config.hidden_size, True, config.initializer_range)
        self.act = ACT2FN[config.classifier_activation]
        self.detector = build_linear(config.hidden_size, 1, True, config.initializer_range)
        self.post_init()

    def _predict(self, outputs, labels, num_items_in_batch):
        """`labels`: [batch, length], 1 where a token was replaced, 0 where it was not, -100 where it does not count."""
        logits_t1 = self.detector(self.act(self.dense(outputs.unpadded)))
        labels_t, count = outputs.documents.select_labels(labels, num_items_in_batch)
        loss = None
        if labels_t is not None:
            labels_t = labels_t.to(logits_t1.device)
            counted, logits_t = labels_t != -100, at_least_fp32(logits_t1.squeeze(1))
            loss_sum = F.binary_cross_entropy_with_logits(
                logits_t, labels_t.clamp(min=0).to(logits_t), weight=counted.to(logits_t), reduction="sum"
            )
            loss = mean_loss(loss_sum, counted.sum(), count)
        return outputs.documents.restore(logits_t1).squeeze(-1), loss


class MiniBertForQuestionAnswering(MiniBertClassifier):
    """The encoder with the start and the end of an answer (extractive question answering). Padding is no candidate: its
    logits are the lowest number of their type."""

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
            start_positions, end_positions: [batch], columns; padding and what lies behind the row are not learned from.
        """
        outputs = self.encode(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, seq_idx, **kwargs)
        logits_tc = self.classify(outputs.unpadded)
        logits = outputs.documents.restore(logits_tc, fill=torch.finfo(logits_tc.dtype).min)
        start_logits, end_logits = (x.contiguous() for x in logits.unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            answers = zip((start_logits, end_logits), (start_positions, end_positions))
            losses = [self._loss(x, y.view(-1), outputs.documents.real_bs, num_items_in_batch) for x, y in answers]
            loss = sum(losses) / 2
        return QuestionAnsweringModelOutput(loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions)

    @staticmethod
    def _loss(logits_bs, column_b, real_bs, num_items_in_batch) -> torch.Tensor:
        length = logits_bs.shape[1]
        column_b = column_b.clamp(0, length)
        if real_bs is not None:
            column_b = column_b.to(real_bs.device)
            real_b = F.pad(real_bs, (0, 1)).gather(1, column_b.unsqueeze(1)).squeeze(1)
            column_b = column_b.masked_fill(~real_b, length)
        return cross_entropy(logits_bs, column_b, num_items_in_batch, ignore_index=length)


# `Trainer` knows by this table which models predict the next token: with `label_smoothing_factor` it computes the loss
# itself, and would otherwise compare each token with its own input.
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
