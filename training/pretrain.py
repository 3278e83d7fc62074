"""`minibert pretrain`: text → tokenizer → rows → masked language modelling under `Trainer` → a saved model.

Nothing but `datasets`, a collator, `Trainer` and what is written at the end: the model, the tokenizer, a model card,
the loss curve and the figures.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from ..configuration_minibert import MiniBertConfig
from ..modeling_minibert import MiniBertForMaskedLM
from ..tokenization import train_tokenizer
from .arguments import CorpusArguments, MaskingArguments, ModelArguments, RowArguments, TokenizerArguments
from .card import write_card
from .collators import MaskedLMCollator, MaskingProgress
from .data import load_documents, split_documents, tokenize_documents
from .fill import fill_masks
from .masking import unigram_counts
from .packing import fill_rate, pack_documents
from .plots import plot_losses
from .precision import fast_bf16

MINIMUM_DOCUMENTS = 10


def pretrain(
    model_arguments: ModelArguments,
    corpus: CorpusArguments,
    rows: RowArguments,
    tokenizer_arguments: TokenizerArguments,
    masking: MaskingArguments,
    training: TrainingArguments,
    overrides: dict[str, Any],
) -> None:
    """Train a tokenizer (unless one is given) and a masked language model, and save both to `training.output_dir`.

    Args:
        overrides: fields of `MiniBertConfig` that differ from the preset.

    Raises:
        ValueError: bad input; before any training, and without touching what is in the output folder.
    """
    checkpoint = checkpoint_to_resume(training)
    preset = getattr(MiniBertConfig, model_arguments.model)(model_arguments.size, **overrides)
    if rows.seq_length > preset.max_position_embeddings:
        raise ValueError(
            f"seq_length: {rows.seq_length} is beyond max_position_embeddings={preset.max_position_embeddings} of the "
            f"model; legal: at most that, or raise --max_position_embeddings"
        )
    training = settle(training)
    set_seed(training.seed)

    documents = load_documents(**dataclasses.asdict(corpus), minimum=MINIMUM_DOCUMENTS)
    splits = split_documents(documents, rows.validation_size, training.seed)
    tokenizer = prepare_tokenizer(model_arguments, tokenizer_arguments, splits["train"], rows.seq_length, preset)
    config = MiniBertConfig.from_tokenizer(tokenizer, model_arguments.model, model_arguments.size, **overrides)
    packed = {
        name: pack_documents(
            tokenize_documents(split, tokenizer, rows.num_proc), tokenizer, rows.seq_length, rows.packing, rows.num_proc
        )
        for name, split in splits.items()
    }
    collator = MaskedLMCollator(
        tokenizer, mlm_probability=masking.mlm_probability, masking=masking.masking, seed=training.seed
    )
    model = MiniBertForMaskedLM(config)
    print(
        f"{len(splits['train']):,} documents to train on, {len(splits['validation']):,} held out; "
        f"{len(packed['train']):,} rows of up to {rows.seq_length} tokens, filled to "
        f"{fill_rate(packed['train'], rows.seq_length):.1%}; {model.num_parameters():,} parameters"
    )

    trainer = MaskedLMTrainer(
        model,
        training,
        data_collator=collator,
        evaluation_collator=collator.for_evaluation(),
        train_dataset=packed["train"],
        eval_dataset=packed["validation"],
        processing_class=tokenizer,
        callbacks=[MaskingProgress(collator), TokensPerSecond()],
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    history = trainer.state.log_history
    evaluated = [entry for entry in history if "eval_targets" in entry and entry["step"] == trainer.state.global_step]
    evaluation = evaluated[-1] if evaluated else trainer.evaluate()
    if not trainer.is_world_process_zero():
        return
    baseline = unigram_baseline(packed["train"], trainer.get_eval_dataloader(), len(tokenizer))
    report = {
        "validation_loss": evaluation["eval_mlm_loss"],
        "perplexity": math.exp(evaluation["eval_mlm_loss"]),
        "accuracy": evaluation["eval_accuracy"],
        "masked_positions": int(evaluation["eval_targets"]),
        "unigram_loss": baseline[0],
        "unigram_perplexity": math.exp(baseline[0]),
        "unigram_accuracy": baseline[1],
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "training_tokens": trainer.state.num_input_tokens_seen,
        "training_seconds": result.metrics["train_runtime"],
        "parameters": model.num_parameters(),
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
    }
    output = Path(training.output_dir)
    trainer.save_model()
    (output / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing needs once training is over
    trainer.save_state()
    plot_losses(trainer.state.log_history, output / "loss.png", {"unigram baseline": baseline[0]})
    (output / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    source = ", ".join(corpus.data) or ", ".join(["the built-in corpus", *corpus.packages])
    write_card(output, config, report, source, dataclasses.asdict(rows) | dataclasses.asdict(masking), training)
    print_report(report)
    show_examples(output, splits["validation"], tokenizer)
    print(f"Saved to {output}: the model, the tokenizer, README.md (the model card), loss.png and report.json")


class MaskedLMTrainer(Trainer):
    """`Trainer` with a collator of its own for evaluation, which sees no logits but those at masked positions: of every
    batch it keeps three numbers."""

    def __init__(self, *args, evaluation_collator: MaskedLMCollator, **kwargs):
        super().__init__(*args, compute_metrics=sum_up, preprocess_logits_for_metrics=score_masked_positions, **kwargs)
        self.evaluation_collator = evaluation_collator

    def get_eval_dataloader(self, eval_dataset=None):
        training_collator, self.data_collator = self.data_collator, self.evaluation_collator
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.data_collator = training_collator

    def prediction_step(self, model, inputs, *args, **kwargs):
        return super().prediction_step(model, {**inputs, "sparse_prediction": True}, *args, **kwargs)


def score_masked_positions(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """[masked positions, vocabulary] → [1, 3]: summed loss, right guesses, masked positions."""
    labels = labels[labels != -100]
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    right = (logits.argmax(-1) == labels).sum()
    return torch.stack([loss.double(), right.double(), labels.new_tensor(len(labels)).double()]).unsqueeze(0)


def sum_up(prediction) -> dict[str, float]:
    """Means over all masked positions of the evaluation, from what `score_masked_positions` kept."""
    loss, right, targets = prediction.predictions.sum(0)
    return {"mlm_loss": loss / max(targets, 1), "accuracy": right / max(targets, 1), "targets": targets}


class TokensPerSecond(TrainerCallback):
    """Adds the rate of real tokens to what `Trainer` logs."""

    def on_train_begin(self, args, state, control, **kwargs):
        self.tokens, self.time = state.num_input_tokens_seen, time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        now = time.perf_counter()
        if "loss" in logs and state.num_input_tokens_seen > self.tokens:
            logs["tokens_per_second"] = round((state.num_input_tokens_seen - self.tokens) / (now - self.time))
        self.tokens, self.time = state.num_input_tokens_seen, now


def checkpoint_to_resume(training: TrainingArguments) -> str | None:
    """The checkpoint that `--resume_from_checkpoint` means: a path, or `true` for the last one in the output folder.

    Raises:
        ValueError: the output folder holds a finished or an unfinished run and nothing says to go on with it; or there
            is nothing to resume.
    """
    folder = Path(training.output_dir)
    wanted = training.resume_from_checkpoint
    last = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    if wanted is None or str(wanted).lower() == "false":
        if (folder / "config.json").exists():
            raise ValueError(f"output_dir: {str(folder)!r} holds a finished model; give another one, or remove it")
        if last is not None:
            raise ValueError(
                f"output_dir: {str(folder)!r} holds an unfinished run; go on with --resume_from_checkpoint true, give "
                "another one, or remove it"
            )
        return None
    if str(wanted).lower() == "true":
        if last is None:
            raise ValueError(f"resume_from_checkpoint: there is no checkpoint in {str(folder)!r}")
        return last
    if not Path(wanted).is_dir():
        raise ValueError(f"resume_from_checkpoint: {wanted!r} is no folder; legal: a checkpoint's path, or true")
    return str(wanted)


def settle(training: TrainingArguments) -> TrainingArguments:
    """Decide what the user left open: bf16 where the machine is fast at it (said once), real tokens counted."""
    bf16 = bool(training.bf16)
    if training.bf16 is None and not training.fp16:
        bf16, reason = fast_bf16()
        print(f"Training in {'bf16' if bf16 else 'fp32'}: {reason}")
    return dataclasses.replace(
        training,
        bf16=bf16,
        use_cpu=training.device.type == "cpu",  # without it Transformers refuses bf16 where there is no GPU
        include_num_input_tokens_seen="non_padding",
    )


def prepare_tokenizer(
    model_arguments: ModelArguments,
    tokenizer_arguments: TokenizerArguments,
    documents: datasets.Dataset,
    seq_length: int,
    preset: MiniBertConfig,
) -> PreTrainedTokenizerBase:
    """The tokenizer that was named, or one trained on the training documents."""
    if model_arguments.tokenizer is not None:
        return AutoTokenizer.from_pretrained(model_arguments.tokenizer)
    return train_tokenizer(
        documents["text"],
        **dataclasses.asdict(tokenizer_arguments),
        model_max_length=max(seq_length, preset.max_position_embeddings),
        token_type_ids=preset.type_vocab_size > 0,
    )


def unigram_baseline(train: datasets.Dataset, batches, vocab_size: int) -> tuple[float, float]:
    """What knowing nothing but token frequencies gives at the same masked positions.

    Returns:
        the mean loss of the add-one-smoothed frequencies of the training rows, and the accuracy of always guessing the
        most frequent token that is ever masked.
    """
    counts = unigram_counts((row["input_ids"] for row in train), vocab_size).astype(np.float64)
    labels = np.concatenate([batch["labels"][batch["labels"] != -100].cpu().numpy() for batch in batches])
    special = np.setdiff1d(np.arange(vocab_size), labels)
    frequent = np.where(np.isin(np.arange(vocab_size), special), -1, counts).argmax()
    log_probabilities = np.log((counts + 1) / (counts + 1).sum())
    return float(-log_probabilities[labels].mean()), float((labels == frequent).mean())


def print_report(report: dict[str, Any]) -> None:
    """The figures at the masked positions of the held-out documents, beside the baseline's."""
    print(f"\nAt {report['masked_positions']:,} masked positions of the held-out documents:")
    print(f"{'':10}{'loss':>8}{'perplexity':>12}{'accuracy':>10}")
    for name, prefix, loss in (("MiniBERT", "", "validation_loss"), ("unigram", "unigram_", "unigram_loss")):
        print(f"{name:10}{report[loss]:8.3f}{report[prefix + 'perplexity']:12.1f}{report[prefix + 'accuracy']:10.1%}")


def show_examples(output: Path, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> None:
    """Mask a word in a few held-out sentences and let the model that was saved fill it."""
    examples = []
    for text in documents["text"]:
        words = text.splitlines()[0].split()
        if 6 <= len(words) <= 25:
            middle = max(range(1, len(words) - 1), key=lambda i: (words[i].isalpha(), -abs(i - len(words) // 2)))
            masked = " ".join([*words[:middle], tokenizer.mask_token, *words[middle + 1 :]])
            examples.append((masked, words[middle]))
        if len(examples) == 4:
            break
    print("\nHeld-out text, filled by the saved model:")
    for (text, word), candidates in zip(examples, fill_masks([text for text, _ in examples], str(output), top_k=3)):
        guesses = ", ".join(f"{guess['token_str'].strip()} {guess['score']:.0%}" for guess in candidates[0])
        print(f"  {text}\n    was: {word}; model: {guesses}")
