"""Pretraining by Transformers' own `Trainer`, and by `PretrainingTrainer`: the same documents, model
size, tokenizer, steps and seed.

    python benchmarks/plain_trainer.py plain ours --size tiny --steps 200

Prints the held-out loss (15 % masks, the same documents and masks for both) and the seconds of
processor time that the training took.
"""

import argparse
import tempfile
import time

from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments, set_seed

from minibert import (
    Corpus,
    MiniBertConfig,
    MiniBertForMaskedLM,
    PretrainingConfig,
    PretrainingTrainer,
    train_tokenizer,
)
from minibert.training.data.mixtures import split_corpus

# The mean document of the built-in corpus has 73 tokens: about as many in a batch as 4 packed rows.
DOCUMENTS_OF_A_BATCH = 28
VALIDATION_SIZE = 0.05
MAX_LENGTH = 512


def make_trainer(name: str, folder: str, documents, tokenizer, options: argparse.Namespace):
    """`plain`: nothing of ours but the model. `ours`: `PretrainingTrainer` with its defaults."""
    if name == "ours":
        return our_trainer(MiniBertConfig.minibert(options.size), folder, tokenizer, options)
    rows = documents.train.map(
        lambda batch: tokenizer(batch["text"], truncation=True, max_length=MAX_LENGTH),
        batched=True,
        remove_columns=documents.train.column_names,
    )
    config = MiniBertConfig.from_tokenizer(tokenizer, "minibert", options.size)
    set_seed(options.seed)
    return Trainer(
        model=MiniBertForMaskedLM(config),
        args=TrainingArguments(
            folder,
            max_steps=options.steps,
            per_device_train_batch_size=DOCUMENTS_OF_A_BATCH,
            learning_rate=1e-3,
            warmup_steps=0.06,
            weight_decay=0.01,
            bf16=options.bf16,
            use_cpu=True,
            seed=options.seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3),
        train_dataset=rows,
        processing_class=tokenizer,
    )


def our_trainer(model, folder: str, tokenizer, options: argparse.Namespace) -> PretrainingTrainer:
    args = PretrainingConfig(
        folder,
        max_steps=options.steps,
        bf16=options.bf16,
        use_cpu=True,
        seed=options.seed,
        validation_size=VALIDATION_SIZE,
        eval_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )
    return PretrainingTrainer(model, args, train_dataset=Corpus(), processing_class=tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=["plain", "ours"])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    documents = split_corpus(Corpus(), validation_size=VALIDATION_SIZE, seed=options.seed)
    tokenizer = train_tokenizer(documents.tokenizer_sample["text"], vocab_size=8192, model_max_length=MAX_LENGTH)  # fmt: skip
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(name, folder, documents, tokenizer, options)
            start = time.process_time()
            trainer.train()
            seconds = time.process_time() - start
            measured = our_trainer(trainer.model, f"{folder}/measured", tokenizer, options)
            loss = measured.evaluate()["eval_mlm_loss"]
            print(f"{name}: held-out loss {loss:.3f} after {options.steps} steps, {seconds:.0f} s of processor time", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
