"""Encoder against decoder: the runs of notebook 5, on SST-2.

python benchmarks/encoder_decoder.py three_seeds [--data FOLDER]
python benchmarks/encoder_decoder.py again [--data FOLDER]

Both are pretrained on the same sentences, and then read in two ways: the mean of the last states,
and one token (the encoder's first, the decoder's last). A seed takes about three minutes of one
core. `again` fine-tunes the pretrained models of new seeds, and does nothing else: its four
comparisons were chosen from the first three seeds, before it began.
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
NEW_SEEDS = range(3, 8)
NOT_PRETRAINED = dict(steps=1, learning_rate=1e-8)  # one step, at a rate of almost 0
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


class Sentences:
    """The sentences of SST-2, and what both models read of them."""

    def __init__(self, data):
        self.texts = sentences(data, "train", SENTENCES, least=8)
        self.train = self.texts.select(range(LABELS))
        self.test = sentences(data, "test")
        self.tokenizer = train_tokenizer(
            self.texts["text"][:], vocab_size=2048, model_max_length=LENGTH
        )
        self.rows = rows_of(self.texts["text"][:], self.tokenizer)
        self.held_out = rows_of(sentences(data, "validation")["text"][:], self.tokenizer)

    def pretrain(self, objective, seed, **options):
        """The folder of a model that has read the sentences, and what its run has to say so far."""
        config = MiniBertConfig.modernbert(
            "tiny", **SHAPE, max_position_embeddings=LENGTH, local_attention=2 * LENGTH
        )
        trainer, curve = pretrain(
            config,
            self.rows,
            self.held_out,
            self.tokenizer,
            seed,
            objective=objective,
            **options,
        )
        run = dict(
            objective=objective,
            steps=options["steps"],
            seed=seed,
            sentences=len(self.texts),
            labels=LABELS,
            test_rows=len(self.test),
            curve=curve.points,
            parameters=trainer.model.num_parameters(),
        )
        return save(trainer), run

    def probe_frozen(self, start):
        """Accuracy of a logistic regression on the vectors of the model as it is, by what is read."""
        fitted_on = vectors(start, self.train)
        measured_on = vectors(start, self.test)
        scores = {}
        for number, place in enumerate(("first", "last", "mean")):
            scores[f"frozen_{place}"] = probe(
                fitted_on[number],
                self.train["label"][:],
                measured_on[number],
                self.test["label"][:],
            )
        return scores

    def fine_tune(self, start, objective, seed):
        """Accuracy after fine-tuning, by what the head reads."""
        return {
            f"tuned_{place}": tuned_accuracy(start, self.train, self.test, seed, pooling)
            for place, pooling in POOLINGS[objective].items()
        }

    def bag_of_words(self):
        """Accuracy of a logistic regression on words and pairs of words."""
        words = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
        words.fit(self.train["text"][:], self.train["label"][:])
        score = round(words.score(self.test["text"][:], self.test["label"][:]), 4)
        return dict(objective="bag of words", labels=LABELS, test_rows=len(self.test), tuned=score)


def three_seeds(data):
    """Pretrained or not; then classifying frozen and fine-tuned, both read in two ways."""
    sst2 = Sentences(data)
    yield sst2.bag_of_words()
    for seed in SEEDS:
        for objective in POOLINGS:
            for options in (dict(steps=STEPS, optimizer="muon"), NOT_PRETRAINED):
                started = time.process_time()
                start, run = sst2.pretrain(objective, seed, **options)
                run |= sst2.probe_frozen(start)
                run |= sst2.fine_tune(start, objective, seed)
                run["cpu_seconds"] = round(time.process_time() - started)
                yield run


def again(data):
    """Pretrained and fine-tuned only, with seeds that nobody has looked at."""
    sst2 = Sentences(data)
    for seed in NEW_SEEDS:
        for objective in POOLINGS:
            started = time.process_time()
            start, run = sst2.pretrain(objective, seed, steps=STEPS, optimizer="muon")
            run |= sst2.fine_tune(start, objective, seed)
            run["cpu_seconds"] = round(time.process_time() - started)
            yield run


if __name__ == "__main__":
    main(
        __doc__,
        three_seeds=(three_seeds, "05_encoder_decoder.json"),
        again=(again, "05_encoder_decoder_again.json"),
    )
