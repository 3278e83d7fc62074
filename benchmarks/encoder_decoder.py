"""Encoder against decoder: the runs of notebook 5, on SST-2.

python benchmarks/encoder_decoder.py [--data FOLDER]

Both are pretrained on the same sentences, and then read in two ways: the mean of the last states,
and one token (the encoder's first, the decoder's last). A seed takes about three minutes of one
core.
"""

import tempfile
import time

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from small_runs import LENGTH, SEEDS, main, pretrain, probe, rows_of, save, sentences, vectors
from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

from minibert import MiniBertConfig, MiniBertForSequenceClassification, train_tokenizer

SENTENCES = 30_000  # to pretrain on
LABELS = 2_000  # of them, with a label
STEPS = 1_500  # of 1,024 tokens
SHAPE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96)
# What a head reads: the name in the file, and MiniBERT's name of the pooling.
POOLINGS = {
    "mlm": {"first": "cls", "mean": "mean"},
    "clm": {"last": "last", "mean": "mean"},
}
TUNING = dict(learning_rate=5e-4, num_train_epochs=3, per_device_train_batch_size=16)


def tuned_accuracy(start, train, test, seed, pooling):
    """Test accuracy (0 to 1) after fine-tuning all weights with a head that reads this pooling."""
    tokenizer = AutoTokenizer.from_pretrained(start)
    model = MiniBertForSequenceClassification.from_pretrained(start, num_labels=2)
    model.model.pooling = pooling

    def encode(rows):
        return tokenizer(rows["text"], truncation=True)

    splits = [
        rows.map(encode, batched=True).rename_column("label", "labels") for rows in (train, test)
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **TUNING,
        )
        trainer = Trainer(
            model,
            settings,
            DataCollatorWithPadding(tokenizer),
            splits[0],
            processing_class=tokenizer,
        )
        trainer.train()
        predicted = trainer.predict(splits[1]).predictions.argmax(-1)
    return round(float((predicted == splits[1]["labels"][:]).mean()), 4)


def encoder_decoder(data):
    """Pretrained or not; then classifying frozen and fine-tuned, both read in two ways."""
    texts = sentences(data, "train", SENTENCES, least=8)
    train = texts.select(range(LABELS))
    test = sentences(data, "test")
    words = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
    words.fit(train["text"][:], train["label"][:])
    score = round(words.score(test["text"][:], test["label"][:]), 4)
    yield dict(objective="bag of words", labels=LABELS, test_rows=len(test), tuned=score)
    tokenizer = train_tokenizer(texts["text"][:], vocab_size=2048, model_max_length=LENGTH)
    rows = rows_of(texts["text"][:], tokenizer)
    held_out = rows_of(sentences(data, "validation")["text"][:], tokenizer)
    for seed in SEEDS:
        for objective in ("mlm", "clm"):
            for steps in (STEPS, 1):  # 1, at a rate of almost 0: not pretrained
                started = time.process_time()
                config = MiniBertConfig.modernbert(
                    "tiny", **SHAPE, max_position_embeddings=LENGTH, local_attention=2 * LENGTH
                )
                options = dict(optimizer="muon")
                if steps == 1:
                    options = dict(learning_rate=1e-8)
                trainer, curve = pretrain(
                    config, rows, held_out, tokenizer, seed, steps, objective=objective, **options
                )
                start = save(trainer)
                run = dict(objective=objective, steps=steps, seed=seed, sentences=len(texts))
                run |= dict(labels=LABELS, test_rows=len(test), curve=curve.points)
                run |= dict(parameters=trainer.model.num_parameters())
                for place, fitted_on, measured_on in zip(
                    ("first", "last", "mean"), vectors(start, train), vectors(start, test)
                ):
                    run[f"frozen_{place}"] = probe(
                        fitted_on, train["label"][:], measured_on, test["label"][:]
                    )
                for place, pooling in POOLINGS[objective].items():
                    run[f"tuned_{place}"] = tuned_accuracy(start, train, test, seed, pooling)
                run["cpu_seconds"] = round(time.process_time() - started)
                yield run


if __name__ == "__main__":
    main(__doc__, encoder_decoder=(encoder_decoder, "05_encoder_decoder.json"))
