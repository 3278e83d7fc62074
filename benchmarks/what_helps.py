"""What helps? The runs of notebook 4: from BERT to MiniBERT one change at a time, shared layers,
and next-sentence prediction.

python benchmarks/what_helps.py switches
python benchmarks/what_helps.py switches_again
python benchmarks/what_helps.py references
python benchmarks/what_helps.py sharing
python benchmarks/what_helps.py objectives
"""

import time

import numpy as np
import torch
import toy_world
from datasets import Dataset
from small_runs import LENGTH, SEEDS, main, pretrain, probe, rows_of, save, vectors
from table_losses import table_losses

from minibert import MiniBertConfig, MiniBertForMaskedLM, train_tokenizer
from minibert.training.data.builtin_corpus import builtin_documents, builtin_files
from minibert.training.pretraining.cooccurrence import begin_with_word_vectors

FITTED, MEASURED = 400, 1000  # rows that a probe is fitted on, and measured on
# What is measured again with new seeds was chosen from the first runs, before the new ones began:
# each change that a comparison is made of, and the run that it follows.
NEW_SEEDS = range(3, 8)
RUN_AGAIN = (
    "BERT",
    "RoPE",
    "no biases",
    "local attention",
    "packing",
    "30 % masks",
    "MiniBERT",
)
# An objective, where the texts name their animal, and the steps.
TOY_RUNS = [
    ("none", "first", 1),
    ("mlm", "first", 3000),
    ("mlm+nsp", "first", 3000),
    ("mlm", "anywhere", 6000),
    ("mlm+nsp", "anywhere", 6000),
]


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


def switch_runs():
    """The fields of the config and the settings of the training, by the name of the run: from BERT to ModernBERT and
    on to MiniBERT, one change at a time."""
    fields = dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=2, intermediate_size=256, type_vocab_size=0,
        max_position_embeddings=LENGTH, position_embedding_type="absolute", norm_placement="post", norm_eps=1e-12,
        norm_bias=True, gated_mlp=False, global_attn_every_n_layers=1, attention_bias=True, mlp_bias=True,
        head_bias=True, scaled_output_init=False,
    )  # fmt: skip
    settings = dict(packing="padded", mlm_probability=0.15, steps=600, evaluations=6)
    changes = {
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
    }
    runs = {}
    for name, change in changes.items():
        for key, value in change.items():
            if hasattr(MiniBertConfig, key):
                fields = fields | {key: value}
            else:
                settings = settings | {key: value}
        runs[name] = (fields, settings)
    return runs


def train_switches(names, seeds):
    """Runs of `switch_runs` on the documentation of Python."""
    runs = switch_runs()
    tokenizer, rows, held_out = documentation("padded", "packed")
    for seed in seeds:
        for name in names:
            fields, settings = runs[name]
            config = MiniBertConfig.modernbert("tiny", **fields)
            trainer, curve = pretrain(
                config, rows[settings["packing"]], held_out, tokenizer, seed, **settings
            )
            yield dict(
                name=name, seed=seed, parameters=trainer.model.num_parameters(), curve=curve.points
            )


def switches(data):
    """All runs, with three seeds."""
    return train_switches(list(switch_runs()), SEEDS)


def switches_again(data):
    """The runs that a few comparisons need, with seeds that nobody has looked at."""
    return train_switches(RUN_AGAIN, NEW_SEEDS)


def references(data):
    """What the losses of `switches` and `sharing` are compared with, on all tokens of the held-out rows; then how much
    text MiniBERT's first embeddings count before the first step, and how long that takes."""
    tokenizer, rows, held_out = documentation("packed")
    frequency_loss, left_loss = table_losses(
        rows["packed"]["input_ids"],
        held_out["input_ids"],
        len(tokenizer),
        tokenizer.all_special_ids,
    )
    yield dict(name="frequencies", loss=round(float(frequency_loss), 4))
    yield dict(name="token on the left", loss=round(float(left_loss), 4))

    fields, _ = switch_runs()["MiniBERT"]
    model = MiniBertForMaskedLM(
        MiniBertConfig.from_tokenizer(tokenizer, "modernbert", "tiny", **fields)
    )
    tokens = sum(len(row["input_ids"]) for row in rows["packed"])
    started = time.process_time()
    token_ids = (row["input_ids"] for row in rows["packed"])
    begin_with_word_vectors(model, token_ids, tokenizer.all_special_ids, seed=0)
    seconds = round(time.process_time() - started, 2)
    yield dict(name="counts of neighbours", tokens=tokens, seconds=seconds)


def sharing(data):
    """ALBERT's shared layers: six layers, one layer used six times, and one layer used once, on the same rows. All else
    is MiniBERT's, which learns within these few steps: with BERT's settings, six layers learn little in 300. Of six passes
    four are local, and a single layer is global, so there is a single local one, too."""
    shape = dict(hidden_size=64, num_attention_heads=2, intermediate_size=170)
    training = dict(optimizer="muon", embedding_init="cooccurrence", evaluations=6)
    # The last one reads so much text that it computes at least as long as six passes.
    variants = {
        "six layers": (dict(num_hidden_layers=6), 600),
        "one layer, six times": (dict(num_hidden_layers=6, share_layers=True), 600),
        "one layer, once": (dict(num_hidden_layers=1), 600),
        "one local layer, once": (
            dict(num_hidden_layers=1, layer_types=["sliding_attention"]),
            600,
        ),
        "one layer, once, longer": (dict(num_hidden_layers=1), 1900),
    }
    tokenizer, rows, held_out = documentation("packed")
    for seed in SEEDS:
        for name, (fields, steps) in variants.items():
            config = MiniBertConfig.minibert("tiny", **shape, **fields)
            trainer, curve = pretrain(
                config, rows["packed"], held_out, tokenizer, seed, steps, **training
            )
            yield dict(
                name=name, seed=seed, parameters=trainer.model.num_parameters(), curve=curve.points
            )


def compare_with_rule(trainer, tokenizer):
    """How often a rule is right on the held-out pairs: "the second part is of another text if it names an animal". How
    often the model says the same as the rule, and how often the model is right where the rule is wrong."""
    names = set(tokenizer.convert_tokens_to_ids(list(toy_world.FACTS)))
    model = trainer.model.eval()
    answers, rule, labels = [], [], []
    for row in trainer.eval_dataset:
        second_part = [
            token
            for token, segment in zip(row["input_ids"], row["token_type_ids"], strict=True)
            if segment == 1
        ]
        rule.append(not names.isdisjoint(second_part))
        labels.append(bool(row["next_sentence_label"]))
        inputs = {
            "input_ids": torch.tensor([row["input_ids"]]),
            "token_type_ids": torch.tensor([row["token_type_ids"]]),
        }
        with torch.no_grad():
            logits = model(**inputs).seq_relationship_logits
        answers.append(bool(logits.argmax(-1).item()))
    answers, rule, labels = np.array(answers), np.array(rule), np.array(labels)
    is_wrong = rule != labels
    return {
        "pairs_held_out": len(labels),
        "rule_accuracy": round(float((rule == labels).mean()), 4),
        "agrees_with_rule": round(float((answers == rule).mean()), 4),
        "rule_wrong": int(is_wrong.sum()),
        "accuracy_where_rule_wrong": round(float((answers == labels)[is_wrong].mean()), 4),
    }


def objectives(data):
    """Objectives in a world of twelve animals, whose texts name the animal first, or anywhere; then
    two tasks for a probe on the frozen vectors."""
    tasks = {
        "pairs": (toy_world.pairs(FITTED, seed=2), toy_world.pairs(MEASURED, seed=3)),
        "statements": (
            toy_world.statements(FITTED, seed=4),
            toy_world.statements(MEASURED, seed=5),
        ),
    }
    shape = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=170)
    for seed in SEEDS:
        for objective, named, steps in TOY_RUNS:
            train = toy_world.texts(2_000, 0, named)
            held_out = toy_world.texts(500, 1, named)
            tokenizer = train_tokenizer(
                train,
                vocab_size=300,
                model_max_length=LENGTH,
                token_type_ids=True,
                show_progress=False,
            )
            config = MiniBertConfig.minibert(
                "tiny", **shape, type_vocab_size=2, global_attn_every_n_layers=1
            )
            options = dict(objective=objective, optimizer="muon", mlm_probability=0.15)
            if objective == "none":
                options = dict(objective="mlm", learning_rate=1e-8)
            sources = [Dataset.from_dict({"text": part}) for part in (train, held_out)]
            trainer, curve = pretrain(
                config, *sources, tokenizer, seed, steps, rows=32, packing="padded", **options
            )
            run = dict(objective=objective, named=named, seed=seed, curve=curve.points)
            for name in ("nsp_accuracy", "accuracy", "replaced", "mlm_accuracy"):
                if f"eval_{name}" in curve.metrics:
                    run[name] = round(curve.metrics[f"eval_{name}"], 4)
            if objective == "mlm+nsp":
                run |= compare_with_rule(trainer, tokenizer)
            start = save(trainer)
            for task, parts in tasks.items():
                fitted, measured = (np.hstack(vectors(start, part)[[0, 2]]) for part in parts)
                run[task] = probe(fitted, parts[0]["label"], measured, parts[1]["label"])
            yield run


if __name__ == "__main__":
    main(
        __doc__,
        switches=(switches, "04_switches.json"),
        switches_again=(switches_again, "04_switches_again.json"),
        references=(references, "04_references.json"),
        sharing=(sharing, "04_sharing.json"),
        objectives=(objectives, "04_objectives.json"),
    )
