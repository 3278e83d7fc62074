"""How each run of benchmarks/learning.py is trained: whose code it uses, and which recipe.

Shape suffixes: b rows, s tokens of a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from torch import nn
from transformers import (
    AutoTokenizer,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.modernbert.modeling_modernbert import ModernBertEncoderLayer
from workloads import with_sparse_head

from minibert import (
    MaskedLMCollator,
    MiniBertConfig,
    MiniBertForMaskedLM,
    PretrainingConfig,
    PretrainingTrainer,
)
from minibert.training.common.precision import fast_bf16
from minibert.training.conversion import to_native
from minibert.training.data.packing import pack_documents
from minibert.training.data.tokenized import tokenize_documents

# The text of all runs, in the folder of the results; benchmarks/learning.py writes it.
TEXT = "train.jsonl"
TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class Run:
    """A model and how it is trained.

    Args:
        recipe: "minibert": as `PretrainingTrainer` trains a new model; "run_mlm": as Transformers'
            example script run_mlm.py does it.
        code: whose class is trained. With the recipe "minibert", both classes get the same first
            weights, rows and masks.
        model: the architecture, a preset of `MiniBertConfig`.
        fields: of `MiniBertConfig`, in which the model departs from its preset.
        options: of `PretrainingConfig`, in which the recipe "minibert" departs from its defaults.
        learning_rate, mlm_probability: of the recipe "run_mlm".
        arguments: of `TrainingArguments`, in which the recipe "run_mlm" departs from the script.
        rows: of the recipe "run_mlm". "joined": documents joined and cut into rows, in which they
            see each other, as run_mlm.py has it; "packed": rows in which each document sees itself
            alone.
    """

    recipe: Literal["minibert", "run_mlm"] = "minibert"
    code: Literal["minibert", "transformers"] = "minibert"
    model: Literal["minibert", "modernbert", "bert"] = "minibert"
    fields: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float = 5e-5
    mlm_probability: float = 0.15
    arguments: dict[str, Any] = field(default_factory=dict)
    rows: Literal["joined", "packed"] = "joined"


@dataclass(frozen=True)
class Race:
    """What all runs of a race have in common.

    Args:
        folder: with the text and the tokenizer; the run writes a folder of its own in it.
        results: the folder of a file for each run.
        size: a size of the presets.
        steps: optimizer steps.
        batch_size: rows of a step.
        seq_length: tokens of a row.
        seed: of the weights, the order of the rows, and the masks.
    """

    folder: Path
    results: Path
    size: str
    steps: int
    batch_size: int
    seq_length: int
    seed: int


def make_trainer(name: str, run: Run, race: Race, callback: TrainerCallback) -> Trainer:
    """The trainer of a run, which is ready to train."""
    if run.recipe == "run_mlm":
        return run_mlm_trainer(name, run, race, callback)
    preset = getattr(MiniBertConfig, run.model)
    options = dict(
        output_dir=str(race.folder / name),
        max_steps=race.steps,
        per_device_train_batch_size=race.batch_size,
        seq_length=race.seq_length,
        seed=race.seed,
        validation_size=8,  # documents for its own report
        eval_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer_class = PretrainingTrainer if run.code == "minibert" else TransformersClassTrainer
    return trainer_class(
        preset(race.size, **run.fields),
        PretrainingConfig(**options | run.options),
        train_dataset=str(race.folder / TEXT),
        processing_class=load_tokenizer(race),
        callbacks=[callback],
    )


def load_tokenizer(race: Race) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(race.folder / TOKENIZER, trust_remote_code=False)


# --- Transformers' classes by MiniBERT's recipe ---


class TransformersClassTrainer(PretrainingTrainer):
    """`PretrainingTrainer` with Transformers' own class in place of MiniBERT's: the same first
    weights, rows, masks, optimizer and schedule. Documents are kept apart by masks over pairs of
    tokens, since these classes take no bounds of documents on a CPU."""

    def _make_model(self, *arguments: Any) -> tuple[PreTrainedModel, list[str]]:
        model, new_weights = super()._make_model(*arguments)
        # what the masks need; None without local attention
        self.window = model.config.sliding_window
        return with_sparse_head(to_native(model)), new_weights

    def _make_collator(
        self, collator: None, tokenizer: PreTrainedTokenizerBase, args: PretrainingConfig
    ) -> MaskedLMCollator:
        args.include_num_input_tokens_seen = "non_padding"
        return self.objective.make_collator(tokenizer, unpadded=False)

    def _may_halve(self) -> bool:
        return False  # a padded batch is computed whole, by all cores

    def settings_to_resume(self) -> dict[str, Any]:
        return {}  # these are fields of a MiniBertConfig, and no run is resumed

    def _prepare_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return with_document_masks(super()._prepare_inputs(inputs), self.model, self.window)

    def muon_matrices(self) -> dict[nn.Parameter, int]:
        return native_matrices(self.model)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        Trainer.save_model(self, output_dir, _internal_call)


def with_document_masks(
    batch: Mapping[str, Any], model: PreTrainedModel, window: int | None
) -> dict[str, Any]:
    """A padded batch of packed rows in the form in which BERT and ModernBERT keep documents apart.

    Args:
        batch: `input_ids`, `attention_mask` and `position_ids` [b, s], which restart at every
            document.
        window: the largest distance at which tokens see each other in ModernBERT's local layers.
    """
    batch = dict(batch)
    positions = batch["position_ids"]
    real = batch["attention_mask"] != 0
    starts = positions.diff(dim=1, prepend=positions[:, :1] - 1) != 1
    # Padding sees itself alone, so that no row of the mask is empty.
    documents = torch.where(real, starts.cumsum(1), -1)
    same_document = documents.unsqueeze(2) == documents.unsqueeze(1)
    mask = same_document.unsqueeze(1)
    if isinstance(model, BertForMaskedLM):
        batch["attention_mask"] = mask
        return batch
    distance = (positions.unsqueeze(2) - positions.unsqueeze(1)).abs()
    is_near = (distance <= window).unsqueeze(1)
    batch["attention_mask"] = dict(full_attention=mask, sliding_attention=mask & is_near)
    return batch


def native_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices of BERT's or ModernBERT's layers, and of how many parts by rows each is made: as
    `block_matrices` has it for MiniBERT."""
    parts: dict[nn.Parameter, int] = {}
    for layer in model.modules():
        if isinstance(layer, ModernBertEncoderLayer):
            heads = layer.attn.config.num_attention_heads
            parts[layer.attn.Wqkv.weight] = 3 * heads
            parts[layer.attn.Wo.weight] = 1
            parts[layer.mlp.Wi.weight] = 2
            parts[layer.mlp.Wo.weight] = 1
        elif isinstance(layer, BertLayer):
            attention = layer.attention.self
            for projection in (attention.query, attention.key, attention.value):
                parts[projection.weight] = attention.num_attention_heads
            parts[layer.attention.output.dense.weight] = 1
            parts[layer.intermediate.dense.weight] = 1
            parts[layer.output.dense.weight] = 1
    return parts


# --- run_mlm.py's recipe ---


class DocumentMaskTrainer(Trainer):
    """A `Trainer` for packed rows, in which Transformers' classes keep documents apart.

    Args:
        window: see `with_document_masks`.
    """

    def __init__(self, *arguments: Any, window: int | None, **options: Any):
        super().__init__(*arguments, **options)
        self.window = window

    def _prepare_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return with_document_masks(super()._prepare_inputs(inputs), self.model, self.window)


def run_mlm_trainer(name: str, run: Run, race: Race, callback: TrainerCallback) -> Trainer:
    """A plain `Trainer` with run_mlm.py's settings: AdamW with a linear decay and, unless
    `run.arguments` has it, no warm-up. The logits are computed at the masked tokens alone, which
    costs less and changes no loss."""
    tokenizer = load_tokenizer(race)
    rows, collator = make_rows(run, race, tokenizer)
    args = TrainingArguments(
        output_dir=str(race.folder / name),
        max_steps=race.steps,
        per_device_train_batch_size=race.batch_size,
        learning_rate=run.learning_rate,
        bf16=fast_bf16()[0],
        use_cpu=not torch.accelerator.is_available(),
        seed=race.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        include_num_input_tokens_seen="non_padding",
        **run.arguments,
    )
    set_seed(race.seed)
    config = MiniBertConfig.from_tokenizer(tokenizer, run.model, race.size, **run.fields)
    model = MiniBertForMaskedLM(config)
    trainer_class = Trainer
    if run.code == "transformers":
        native = to_native(model)
        set_seed(race.seed)
        model = with_sparse_head(type(native)(native.config))  # with first weights of its own
        if run.rows == "packed":
            trainer_class = partial(DocumentMaskTrainer, window=config.sliding_window)
    return trainer_class(
        model,
        args,
        data_collator=collator,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=[callback],
    )


def make_rows(
    run: Run, race: Race, tokenizer: PreTrainedTokenizerBase
) -> tuple[datasets.Dataset, DataCollatorForLanguageModeling]:
    """The rows of a run by run_mlm.py's recipe, and the collator that masks them."""
    documents = datasets.load_dataset("json", data_files=str(race.folder / TEXT), split="train")
    documents = tokenize_documents(documents, tokenizer, None)
    probability = run.mlm_probability
    if run.rows == "packed":
        rows = pack_documents(documents, tokenizer, race.seq_length, "packed")
        # Transformers' collator does not pad position ids.
        return rows, MaskedLMCollator(tokenizer, mlm_probability=probability, seed=race.seed)
    rows = join_documents(documents, tokenizer, race.seq_length)
    return rows, DataCollatorForLanguageModeling(tokenizer, mlm_probability=probability)


def join_documents(
    documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, row_length: int
) -> datasets.Dataset:
    """Rows of documents joined and cut, in which they see each other, as run_mlm.py makes them."""

    def group_texts(batch: Mapping[str, list]) -> dict[str, list[list[int]]]:
        ids: list[int] = []
        for document in batch["input_ids"]:
            if document:
                ids += [tokenizer.cls_token_id, *document, tokenizer.sep_token_id]
        starts = range(0, len(ids), row_length)
        return {"input_ids": [ids[start : start + row_length] for start in starts]}

    return documents.map(group_texts, batched=True, batch_size=4096)
