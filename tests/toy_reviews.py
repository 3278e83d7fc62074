"""Made-up sentences that are good or bad, and about a film or not; and arguments of a short training on them."""

import random

QUICK = [
    "--num_train_epochs", "1", "--learning_rate", "1e-2", "--disable_tqdm", "true", "--bf16", "false", "--use_cpu",
    "true", "--logging_steps", "1",
]  # fmt: skip
NOUNS, GOOD, BAD = ("film", "book", "meal", "song"), ("great", "lovely", "fine"), ("awful", "dull", "poor")


def sentences(count, seed=0):
    """(text, whether it is good, whether it is about a film)"""
    draw = random.Random(seed)
    for _ in range(count):
        noun, good = draw.choice(NOUNS), draw.random() < 0.5
        words = ["the", noun, "was", *(["very"] * draw.randrange(4)), draw.choice(GOOD if good else BAD)]
        yield " ".join(words), good, noun == "film"
