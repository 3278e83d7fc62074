"""What a training gives back."""

import dataclasses
from pathlib import Path
from typing import Any


@dataclasses.dataclass(repr=False)
class TrainingResult:
    """What `pretrain` and `finetune` return. Of several processes, only the first has a model and a
    report.

    Attributes:
        model: The model as it was saved: a MiniBERT, of `finetune embed` and `rerank` a model of
            sentence-transformers. None after `plan`.
        tokenizer: Its tokenizer.
        report: The metrics and how they came about, as they stand in the folder (`report.json`,
            of a task `metrics.json`). `warning` is what is wrong with the model, or None. The other
            fields depend on the training; a metric that is not defined is None.
            `pretrain`: `validation_loss`, `accuracy` and (but for rtd) `perplexity` at `targets`
            positions of held-out documents; the same of a simple answer, `unigram_…` or, for rtd,
            `constant_…`, and of a model that was trained before, `start_…`; of pairs of segments
            `nsp_…` or `sop_…`; `extension`, what added words are worth; `objective`, `steps`,
            `epochs`, `training_tokens`, `training_seconds`, `parameters`, `precision`.
            Tasks: the metrics and `loss` of the splits `validation` and `test`; `baseline`,
            `simple_model` and (entities) `pipeline`, the same of guesses, of a simple model and of
            `pipeline`; `by_class` (of the last split) and `intervals` (95 %); `task`, `model` (from
            where it started), `settings`, `seed`, `precision`, `best_step`, `steps`, `epochs`,
            `training_seconds`, `parameters`, `trained_parameters`.
            embed, rerank: the metrics `before` and `after`, of a `teacher` too; `metric`, which
            chose the best model; `intervals`, `arguments`, `training`,
            `steps`, `epochs`.
            `plan`: the options that it proposes.
        output_dir: The folder of the model, the tokenizer, the card and the report.
    """

    model: Any
    tokenizer: Any
    report: dict[str, Any] = dataclasses.field(default_factory=dict)
    output_dir: Path = Path()

    def __repr__(self) -> str:
        model_name = None if self.model is None else type(self.model).__name__
        fields = ", ".join(self.report)
        return (
            f"{type(self).__name__}({model_name}, output_dir={str(self.output_dir)!r},"
            f" report: {fields or 'empty'})"
        )
