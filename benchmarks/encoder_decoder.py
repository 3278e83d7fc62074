"""Encoder against decoder: the runs of notebook 5, on SST-2.

python benchmarks/encoder_decoder.py [--data FOLDER]
"""

import tempfile

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from small_runs import LENGTH, SEEDS, main, pretrain, probe, rows_of, save, sentences, vectors

import minibert
from minibert import MiniBertConfig, train_tokenizer


def accuracy(start, train, test, seed):
    """Test accuracy after fine-tuning all weights at 5e-4, once over the rows."""
    with tempfile.TemporaryDirectory() as folder:
        result = minibert.finetune(
            "classify", start, train=train, validation=test.select(range(32)), test=test, output_dir=folder, seed=seed,
            labels=["0", "1"], learning_rate=5e-4, num_train_epochs=1, save_strategy="no", eval_strategy="no",
            load_best_model_at_end=False, report_to="none", disable_tqdm=True,
        )  # fmt: skip
    return round(result.report["test"]["accuracy"], 4)


def encoder_decoder(data):
    """Pretrained on 10,000 sentences of SST-2, or not; then classifying them frozen and fine-tuned."""
    train, test = sentences(data, "train", 10_000, least=8), sentences(data, "test")
    words = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression()).fit(
        train["text"], train["label"]
    )
    yield dict(objective="bag of words", tuned=round(words.score(test["text"], test["label"]), 4))
    tokenizer = train_tokenizer(train["text"], vocab_size=2048, model_max_length=LENGTH)
    rows = rows_of(train["text"], tokenizer)
    shape = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96)
    for seed in SEEDS:
        for objective in ("mlm", "clm"):
            for steps in (200, 1):  # 1, at a rate of almost 0: not pretrained
                config = MiniBertConfig.modernbert("tiny", **shape, max_position_embeddings=LENGTH)
                options = dict(
                    objective=objective, evaluations=4, learning_rate=1e-8 if steps == 1 else 2e-3
                )
                trainer, curve = pretrain(
                    config, rows, rows.select(range(8)), tokenizer, seed, steps, **options
                )
                start, run = (
                    save(trainer),
                    dict(objective=objective, steps=steps, seed=seed, curve=curve.points),
                )
                run |= dict(parameters=trainer.model.num_parameters())
                for place, known, new in zip(
                    ("first", "last", "mean"), vectors(start, train), vectors(start, test)
                ):
                    run[f"frozen_{place}"] = probe(known, train["label"], new, test["label"])
                run["tuned"] = accuracy(start, train, test, seed)
                yield run


if __name__ == "__main__":
    main(__doc__, encoder_decoder=(encoder_decoder, "05_encoder_decoder.json"))
