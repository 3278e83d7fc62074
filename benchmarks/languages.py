"""Languages that share a model: the runs of notebook 9.

python benchmarks/languages.py temperature|company [--data FOLDER]

`temperature`: eleven languages together, drawn in proportion to size**alpha, 8 rows a step. Within a
language all rows are drawn before one comes again. The losses are those at the end. The seeds are
new: which means are compared was chosen after runs with the seeds 0 to 2.

`company`: French and Turkish, each alone, and both with four other languages. Each language has 5
rows a step, on average, so that it has the same amount of text and the same number of steps alone
and in company. The batch grows with the company. The losses are measured on the way, on validation
rows and on test rows: so one can stop at the best validation loss, and look at the test loss there.
"""

from itertools import chain

import numpy as np
import torch
from datasets import concatenate_datasets
from small_runs import LENGTH, ROWS, SEEDS, main, pretrain, read, rows_of
from transformers import TrainerCallback

from minibert import MaskedLMCollator, MiniBertConfig, train_tokenizer

SMALL = ("ar", "el", "hi", "ru", "th", "tr")  # cut to 40 passages
LARGE = ("de", "en", "fr", "uk", "zh")
SMALL_PASSAGES = 40
SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 96,
}
TRAINING = {"optimizer": "muon", "embedding_init": "cooccurrence"}

TEMPERATURES = (1.0, 0.3)
TEMPERATURE_SEEDS = range(3, 6)
TEMPERATURE_STEPS = 400
EVALUATION_ROWS = 16

WATCHED = ("fr", "tr")  # one large language, one small one
COMPANIES = (("fr",), ("tr",), (*WATCHED, "de", "en", "ru", "ar"))
COMPANY_STEPS = 240
EVALUATE_EVERY = 20
ROWS_PER_LANGUAGE = 5  # of a step, on average
VALIDATION_ROWS = 16
TEST_ROWS = 32


class Languages:
    """The rows of each language, for one tokenizer."""

    def __init__(self, data):
        self.data = data
        texts = {}
        for code in SMALL + LARGE:
            lines = self.read(code, "train")
            texts[code] = lines[:SMALL_PASSAGES] if code in SMALL else lines
        self.tokenizer = train_tokenizer(
            chain.from_iterable(texts.values()),
            algorithm="bpe",
            vocab_size=4096,
            model_max_length=LENGTH,
        )
        self.rows = {code: rows_of(lines, self.tokenizer) for code, lines in texts.items()}
        self.all_rows = concatenate_datasets(list(self.rows.values()))
        self.sizes = np.array([len(of_language) for of_language in self.rows.values()])
        self.first_rows = np.cumsum(self.sizes) - self.sizes  # of each language, in `all_rows`

    def read(self, code, split):
        return read("text", self.data / f"multilingual/{code}/{split}.txt")["text"][:]

    def held_out(self, code, split, count):
        return rows_of(self.read(code, split), self.tokenizer).shuffle(seed=0).select(range(count))

    def draw(self, alpha, count, generator):
        """The numbers of rows in `all_rows`: a language by its share, its rows in turns."""
        shares = self.sizes**alpha / (self.sizes**alpha).sum()
        waiting = [[] for _ in self.sizes]  # the rows of this turn that were not drawn yet
        drawn = []
        for language in generator.choice(len(shares), count, p=shares):
            if not waiting[language]:
                turn = self.first_rows[language] + generator.permutation(self.sizes[language])
                waiting[language] = turn.tolist()
            drawn.append(waiting[language].pop())
        return drawn

    def row_counts(self):
        return {code: len(of_language) for code, of_language in self.rows.items()}


def new_config():
    return MiniBertConfig.minibert("tiny", **SHAPE, max_position_embeddings=LENGTH)


def temperature(data):
    languages = Languages(data)
    tests = {code: languages.held_out(code, "test", EVALUATION_ROWS) for code in languages.rows}
    for seed in TEMPERATURE_SEEDS:
        for alpha in TEMPERATURES:
            generator = np.random.default_rng(seed)
            drawn = languages.draw(alpha, TEMPERATURE_STEPS * ROWS, generator)
            trainer, _ = pretrain(
                new_config(), languages.all_rows.select(drawn), tests["en"], languages.tokenizer,
                seed, TEMPERATURE_STEPS, **TRAINING,
            )  # fmt: skip
            losses = {}
            for code, rows in tests.items():
                losses[code] = round(trainer.evaluate(rows)["eval_mlm_loss"], 4)
            yield {
                "mixture": alpha,
                "seed": seed,
                "steps": TEMPERATURE_STEPS,
                "losses": losses,
                "rows": languages.row_counts(),
            }


class LossesOnTheWay(TrainerCallback):
    """The losses of some languages, at regular steps of a training.

    Args:
        batches: {"validation" or "test": {language: a masked batch}}.
    """

    def __init__(self, batches):
        self.batches = batches
        self.steps = []
        self.losses = {part: {code: [] for code in of_part} for part, of_part in batches.items()}

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % EVALUATE_EVERY:
            return
        model.eval()
        self.steps.append(state.global_step)
        for part, of_part in self.batches.items():
            for code, batch in of_part.items():
                self.losses[part][code].append(round(model(**batch).loss.item(), 4))
        model.train()


def held_out_batches(languages, codes):
    """A masked batch of each language, of validation and of test rows: the same in every run."""
    collator = MaskedLMCollator(languages.tokenizer, seed=0).for_evaluation()
    batches = {}
    for split, count in (("validation", VALIDATION_ROWS), ("test", TEST_ROWS)):
        batches[split] = {}
        for code in codes:
            rows = languages.held_out(code, split, count)["input_ids"]
            batches[split][code] = collator([{"input_ids": row} for row in rows])
    return batches


def company(data):
    languages = Languages(data)
    batches = held_out_batches(languages, WATCHED)
    for seed in SEEDS:
        for codes in COMPANIES:
            generator = np.random.default_rng(seed)
            numbers = [number for number, code in enumerate(languages.rows) if code in codes]
            numbers = np.tile(numbers, COMPANY_STEPS * ROWS_PER_LANGUAGE)  # the trainer shuffles
            drawn = languages.first_rows[numbers] + generator.integers(languages.sizes[numbers])
            watched = {
                split: {code: of_split[code] for code in WATCHED if code in codes}
                for split, of_split in batches.items()
            }
            losses = LossesOnTheWay(watched)
            pretrain(
                new_config(), languages.all_rows.select(drawn), languages.all_rows.select(range(1)),
                languages.tokenizer, seed, COMPANY_STEPS, rows=ROWS_PER_LANGUAGE * len(codes),
                callbacks=[losses], **TRAINING,
            )  # fmt: skip
            yield {
                "company": codes,
                "seed": seed,
                "rows_per_language": ROWS_PER_LANGUAGE,
                "rows": languages.row_counts(),
                "steps": losses.steps,
                **losses.losses,
            }


if __name__ == "__main__":
    main(
        __doc__,
        temperature=(temperature, "09_many_languages.json"),
        company=(company, "09_company.json"),
    )
