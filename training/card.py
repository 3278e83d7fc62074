"""The model card of a pretraining run, from the template `hub_card.md`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import AutoTokenizer, TrainingArguments

from ..configuration_minibert import MiniBertConfig

TEMPLATE = Path(__file__).parent.parent / "hub_card.md"


def describe(config: MiniBertConfig) -> list[str]:
    """The architecture in words, a line a subject."""
    layers = config.layer_types
    local = layers.count("sliding_attention")
    attention = "every layer attends to the whole document"
    if local:
        attention = (
            f"{len(layers) - local} layers attend to the whole document, {local} to {config.sliding_window} tokens on "
            "either side"
        )
    positions = {
        "absolute": f"learned positions, up to {config.max_position_embeddings}",
        "sinusoidal": "sinusoidal positions",
        "rope": "rotary positions (RoPE)",
        "none": "no positions",
    }[config.position_embedding_type]
    norm = "RMSNorm" if config.norm_type == "rmsnorm" else "LayerNorm" + ("" if config.norm_bias else " without bias")
    mlp = f"gated MLP ({config.hidden_act})" if config.gated_mlp else f"MLP ({config.hidden_act})"
    return [
        f"{config.num_hidden_layers} layers, width {config.hidden_size}, {config.num_attention_heads} heads",
        f"{attention}" + (", and only to what stands before (a decoder)" if config.is_causal else ""),
        f"{positions}; {norm}, {config.norm_placement}-norm; {mlp} of width {config.intermediate_size}",
        f"vocabulary of {config.vocab_size:,} tokens; {config.type_vocab_size} segments",
    ]


def write_card(
    folder: str | Path,
    config: MiniBertConfig,
    report: dict[str, Any],
    data: str,
    recipe: dict[str, Any],
    training: TrainingArguments,
) -> None:
    """Write README.md into `folder`, beside a saved tokenizer.

    Args:
        report: the figures of `minibert pretrain`.
        data: what the model was trained on, in words.
        recipe: arguments of rows and masking.
    """
    folder = Path(folder)
    name = folder.resolve().name
    results = [
        EvalResult("fill-mask", "held-out documents", data, metric, report[key])
        for metric, key in (("perplexity", "perplexity"), ("accuracy", "accuracy"))
    ]
    card_data = ModelCardData(
        library_name="transformers", pipeline_tag="fill-mask", tags=["minibert"], model_name=name, eval_results=results
    )
    told = {
        "data": data,
        "steps": f"{report['steps']:,} ({report['epochs']:.2f} epochs)",
        "tokens": f"{report['training_tokens']:,}",
        "row length": recipe["seq_length"],
        "rows": recipe["packing"],
        "masking": f"{recipe['masking']}, {recipe['mlm_probability']:.0%}, 80/10/10",
        "batch": f"{training.train_batch_size * training.gradient_accumulation_steps * training.world_size} rows",
        "optimizer": f"{getattr(training.optim, 'value', training.optim)}, learning rate {training.learning_rate:g}, "
        f"{getattr(training.lr_scheduler_type, 'value', training.lr_scheduler_type)} schedule",
        "precision": report["precision"],
        "time": f"{report['training_seconds'] / 60:.1f} minutes",
    }
    card = ModelCard.from_template(
        card_data,
        template_path=str(TEMPLATE),
        model_name=name,
        repository=training.hub_model_id or str(folder),
        parameters=report["parameters"],
        architecture=describe(config),
        training=told,
        data=data,
        max_length=recipe["seq_length"],
        mask_token=AutoTokenizer.from_pretrained(folder).mask_token,
        masked_positions=report["masked_positions"],
        loss=report["validation_loss"],
        perplexity=report["perplexity"],
        accuracy=report["accuracy"],
        unigram_loss=report["unigram_loss"],
        unigram_perplexity=report["unigram_perplexity"],
        unigram_accuracy=report["unigram_accuracy"],
    )
    card.save(folder / "README.md")
