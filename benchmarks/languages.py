"""One language alone, and eleven together: the runs of notebook 9.

python benchmarks/languages.py [--data FOLDER]
"""

import numpy as np
from datasets import concatenate_datasets
from small_runs import LENGTH, ROWS, SEEDS, main, pretrain, read, rows_of

from minibert import MiniBertConfig, train_tokenizer

LANGUAGES = dict.fromkeys(("ar", "el", "hi", "ru", "th", "tr"), 40) | dict.fromkeys(
    ("de", "en", "fr", "uk", "zh")
)
ALONE = ("fr", "tr")
STEPS = 400


def languages(data):
    """One language alone, and eleven together at three temperatures; six of them are cut to 40 passages."""
    texts = {
        code: read("text", data / f"multilingual/{code}/train.txt")["text"][:lines]
        for code, lines in LANGUAGES.items()
    }
    everything = [line for lines in texts.values() for line in lines]
    tokenizer = train_tokenizer(
        everything, algorithm="bpe", vocab_size=4096, model_max_length=LENGTH
    )
    rows = {code: rows_of(lines, tokenizer) for code, lines in texts.items()}
    tests = {
        code: read("text", data / f"multilingual/{code}/test.txt")["text"] for code in LANGUAGES
    }
    tests = {
        code: rows_of(lines, tokenizer).shuffle(seed=0).select(range(16))
        for code, lines in tests.items()
    }
    sizes = np.array([len(part) for part in rows.values()])
    shape = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=2, intermediate_size=96)
    for seed in SEEDS:
        for mixture in (1.0, 0.3, 0.0, *ALONE):
            chance = np.random.default_rng(seed)
            shares = (
                sizes**mixture
                if isinstance(mixture, float)
                else np.array([code == mixture for code in rows])
            )
            drawn = chance.choice(len(sizes), STEPS * ROWS, p=shares / shares.sum())
            drawn = [
                int(np.cumsum([0, *sizes])[code] + chance.integers(sizes[code])) for code in drawn
            ]
            train = concatenate_datasets(list(rows.values())).select(drawn)
            config = MiniBertConfig.minibert("tiny", **shape, max_position_embeddings=LENGTH)
            known = tests if isinstance(mixture, float) else {mixture: tests[mixture]}
            options = dict(optimizer="muon", embedding_init="cooccurrence")
            trainer, _ = pretrain(config, train, tests["en"], tokenizer, seed, STEPS, **options)
            losses = {
                code: round(trainer.evaluate(part)["eval_mlm_loss"], 4)
                for code, part in known.items()
            }
            yield dict(
                mixture=mixture,
                seed=seed,
                steps=STEPS,
                losses=losses,
                rows=dict(zip(rows, sizes.tolist())),
            )


if __name__ == "__main__":
    main(__doc__, languages=(languages, "09_many_languages.json"))
