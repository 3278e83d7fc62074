"""What helps? The runs of notebook 4: from BERT to MiniBERT one change at a time, shared layers, and four objectives.

python benchmarks/what_helps.py switches
python benchmarks/what_helps.py sharing
python benchmarks/what_helps.py objectives [--data FOLDER]
"""

from itertools import pairwise

import numpy as np
from datasets import Dataset
from small_runs import LENGTH, SEEDS, main, pretrain, probe, read, rows_of, save, sentences, vectors

from minibert import MiniBertConfig, train_tokenizer
from minibert.training.data.builtin_corpus import builtin_documents, builtin_files
from minibert.training.data.sentences import split_sentences

FITTED, MEASURED = 2000, 1200  # rows that a probe is fitted on, and measured on


def documentation(*packings):
    """A tokenizer of the documentation of Python, its rows to train on by packing, and 64 held-out rows."""
    texts = list(builtin_documents(builtin_files()[:200]))
    held_out, train = texts[::10], [text for number, text in enumerate(texts) if number % 10]
    tokenizer = train_tokenizer(
        train, vocab_size=1024, model_max_length=LENGTH, show_progress=False
    )
    held_out = rows_of(held_out, tokenizer).shuffle(seed=0).select(range(64))
    rows = {packing: rows_of(train, tokenizer, packing) for packing in packings}
    return tokenizer, rows, held_out


def switches(data):
    """From BERT to ModernBERT and on to MiniBERT, one change at a time, on the documentation of Python."""
    fields = dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=2, intermediate_size=256, type_vocab_size=0,
        max_position_embeddings=LENGTH, position_embedding_type="absolute", norm_placement="post", norm_eps=1e-12,
        norm_bias=True, gated_mlp=False, global_attn_every_n_layers=1, attention_bias=True, mlp_bias=True,
        head_bias=True, scaled_output_init=False,
    )  # fmt: skip
    settings, runs = dict(packing="padded", mlm_probability=0.15, steps=600, evaluations=6), {}
    for name, change in {
        "BERT": {},
        "RoPE": dict(position_embedding_type="rope"),
        "pre-norm": dict(norm_placement="pre", norm_eps=1e-5, scaled_output_init=True),
        "GeGLU": dict(gated_mlp=True, intermediate_size=170),
        "no biases": dict(attention_bias=False, mlp_bias=False, norm_bias=False, head_bias=False),
        "local attention": dict(global_attn_every_n_layers=3, local_attention=16),
        "packing": dict(packing="packed"),
        "30 % masks": dict(mlm_probability=0.3),
        "RMSNorm": dict(norm_type="rmsnorm"),
        "MiniBERT": dict(
            norm_type="layernorm",
            local_attention=6,
            optimizer="muon",
            embedding_init="cooccurrence",
        ),
    }.items():
        fields = fields | {
            key: value for key, value in change.items() if hasattr(MiniBertConfig, key)
        }
        settings = settings | {
            key: value for key, value in change.items() if not hasattr(MiniBertConfig, key)
        }
        runs[name] = (fields, settings)
    tokenizer, rows, held_out = documentation("padded", "packed")
    for seed in SEEDS:
        for name, (fields, settings) in runs.items():
            config = MiniBertConfig.modernbert("tiny", **fields)
            trainer, curve = pretrain(
                config, rows[settings["packing"]], held_out, tokenizer, seed, **settings
            )
            yield dict(
                name=name, seed=seed, parameters=trainer.model.num_parameters(), curve=curve.points
            )


def sharing(data):
    """ALBERT's shared layers: six layers, one layer used six times, and one layer used once, on the same rows. All else
    is MiniBERT's, which learns within these few steps: with BERT's settings, six layers learn little in 300."""
    shape = dict(hidden_size=64, num_attention_heads=2, intermediate_size=170)
    training = dict(optimizer="muon", embedding_init="cooccurrence", steps=600, evaluations=6)
    variants = {
        "six layers": dict(num_hidden_layers=6),
        "one layer, six times": dict(num_hidden_layers=6, share_layers=True),
        "one layer, once": dict(num_hidden_layers=1),
    }
    tokenizer, rows, held_out = documentation("packed")
    for seed in SEEDS:
        for name, fields in variants.items():
            config = MiniBertConfig.minibert("tiny", **shape, **fields)
            trainer, curve = pretrain(config, rows["packed"], held_out, tokenizer, seed, **training)
            yield dict(
                name=name, seed=seed, parameters=trainer.model.num_parameters(), curve=curve.points
            )


def in_order(texts, count):
    """Neighbouring sentences of these documents, every second pair the wrong way round (label 1)."""
    pairs = [
        pair
        for text in texts
        for line in text.split("\n")
        for pair in pairwise(split_sentences(line))
    ]
    pairs = [pair for pair in pairs if max(len(part.split()) for part in pair) <= 25]
    chosen = np.random.default_rng(0).permutation(len(pairs))[:count]
    rows = [
        (pairs[place][:: -1 if number % 2 else 1], number % 2)
        for number, place in enumerate(chosen)
    ]
    return Dataset.from_list(
        [dict(sentence1=a, sentence2=b, label=label) for (a, b), label in rows]
    )


def objectives(data):
    """A minute of computing with every objective, or none; then three tasks for a probe on the frozen vectors."""
    train, test = (
        read("text", data / f"corpus/{split}.txt").shuffle(seed=0)["text"]
        for split in ("train", "validation")
    )
    nli = [read("json", data / f"nli/{split}.jsonl").shuffle(seed=0) for split in ("train", "test")]
    tasks = {
        "sst2": (sentences(data, "train", least=8), sentences(data, "test")),
        "nli": nli,
        "order": (in_order(train[200:], 4000), in_order(test, 1500)),
    }
    train, test = train[:200], test[:3]
    tokenizer = train_tokenizer(
        train, vocab_size=2048, model_max_length=LENGTH, token_type_ids=True
    )
    shape = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=2, intermediate_size=256)
    for seed in SEEDS:
        for objective in ("none", "mlm", "mlm+nsp", "rtd"):
            config = MiniBertConfig.bert("tiny", **shape, hidden_dropout=0.0, attention_dropout=0.0)
            texts = [Dataset.from_dict({"text": part}) for part in (train, test)]
            options = dict(steps=5000, budget=60, mlm_probability=0.15, objective=objective)
            if objective == "none":
                options |= dict(objective="mlm", steps=1, learning_rate=1e-8)
            trainer, curve = pretrain(config, *texts, tokenizer, seed, **options)
            run = dict(objective=objective, seed=seed, curve=curve.points)
            run |= {
                key: curve.metrics[key]
                for key in ("eval_nsp_accuracy", "eval_accuracy")
                if key in curve.metrics
            }
            start = save(trainer)
            for task, parts in tasks.items():
                parts = [
                    part.select(range(min(len(part), count)))
                    for part, count in zip(parts, (FITTED, MEASURED))
                ]
                known, new = (np.hstack(vectors(start, part)[[0, 2]]) for part in parts)
                run[task] = probe(known, parts[0]["label"], new, parts[1]["label"])
            yield run


if __name__ == "__main__":
    main(
        __doc__,
        switches=(switches, "04_switches.json"),
        sharing=(sharing, "04_sharing.json"),
        objectives=(objectives, "04_objectives.json"),
    )
