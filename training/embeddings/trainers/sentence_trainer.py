"""What the trainers of embedding models and of rerankers share: safe checkpoints, the clock, and
the measures before and after."""

from pathlib import Path
from typing import Any

from accelerate.utils import extract_model_from_parallel

from ...common.locks import lock_output
from ...data.entries import describe_data
from ...evaluation.intervals import Interval
from ...hub.save_model_mixin import SaveModelMixin
from ...loading.models import load_sentence_transformer
from ...loop.callbacks import add_callbacks, common_callbacks
from ...loop.checkpoint_mixin import CheckpointMixin
from ...loop.early_stopping import EarlyStopping
from ...loop.resume_guard import ResumeGuardCallback, rows_checksum, settings_of_steps
from ...optimization.clock import TimeBudget, TimeBudgetMixin
from ..saving import save_results
from .setups import SentenceSetup


class SentenceTrainerMixin(SaveModelMixin, CheckpointMixin, TimeBudgetMixin):
    """A mixin that stands before a trainer of sentence-transformers. `train` measures the model
    before it trains it, `measure` does so afterwards. A subclass is made of a setup and settings.

    Args:
        setup: The rows and the models, for the report. A checkpoint of another setup is not
            resumed.
        budget: The clock of `args.minutes`, or None.
        teacher_to_measure: A teacher whose metrics stand beside those of the model, or None.
        has_new_weights: Whether some weights begin untrained.
        options: Those of the trainer: model, args (as `trainer_settings` returns them),
            train_dataset, loss, and as evaluator a `HeldOutEvaluator`.

    Attributes:
        data_name: The names of the rows, without folders of this machine.
        scores: The metrics by name of "teacher" (if it is measured) and "before", since `train`;
            of "after", and of shortened vectors, since `measure`.
        intervals: Since `measure`, the 95 % intervals of those of "after".
        resume_guard: The settings that must be the same when the training is resumed.
        report: Since `save_model`, the report.
        card: Since `save_model`, what the card says.
    """

    def __init__(
        self,
        *,
        setup: SentenceSetup,
        budget: TimeBudget | None,
        teacher_to_measure: Any = None,
        has_new_weights: bool = False,
        **options: Any,
    ):
        super().__init__(**options)
        self.setup = setup
        self.data_name = describe_data(setup.data_names)
        self.budget = budget
        self.teacher_to_measure = teacher_to_measure
        self.has_new_weights = has_new_weights
        self.scores: dict[str, dict[str, float]] = {}
        self.intervals: dict[str, Interval] = {}
        self.resume_guard = ResumeGuardCallback(self.settings_to_resume())
        self._add_own_callbacks()

    def settings_to_resume(self) -> dict[str, Any]:
        """All that must be the same when the training is resumed."""
        settings = {
            **self.setup.arguments(),
            "max_length": self.args.max_length,
            **settings_of_steps(self.args),
        }
        settings["by the clock"] = self.budget is not None
        if not self.setup.labels_are_computed:
            settings["text"] = rows_checksum(self.train_dataset)
        return settings

    def _add_own_callbacks(self) -> None:
        callbacks = common_callbacks(self.budget, self.has_new_weights)
        callbacks.append(self.resume_guard)
        if self.args.patience and self.args.eval_strategy != "no":
            callbacks.append(EarlyStopping(self.args.patience))
        add_callbacks(self, callbacks)

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any):
        """Measure the teacher and the model, then train as `Trainer.train` does; True resumes from
        the newest whole checkpoint. A ValueError if the output folder holds another run, another
        process writes in it, or the checkpoint was trained with other settings."""
        with lock_output(self.args):
            checkpoint = self.find_checkpoint(resume_from_checkpoint)
            self._forget_training()
            self._measure_before()
            return self._train(checkpoint, **options)

    def _forget_training(self) -> None:
        """Forget what an earlier `train` or `measure` of this trainer has left. The scores before
        the first training stay, and those of the teacher."""
        for name in list(self.scores):
            if name not in ("teacher", "before"):
                del self.scores[name]
        self.intervals = {}
        self.report = None
        self.card = None

    def _measure_before(self) -> None:
        """Measure the model, and a teacher that is measured as the model is. A further training has
        the start of the first one."""
        if "before" in self.scores:
            return
        if self.teacher_to_measure is not None:
            self.scores["teacher"] = self.evaluator.measure_scores(self.teacher_to_measure)
        self.scores["before"] = self.evaluator(self.model)

    def _train(self, checkpoint: str | None, **options: Any):
        """Train on texts of `max_length`. The model reads longer ones afterwards, also if an error
        or Ctrl-C ended the training."""
        model = self.model
        full_length = model.max_seq_length
        model.max_seq_length = self.args.max_length or full_length
        try:
            self.warn_of_cut_texts()
            result = super().train(resume_from_checkpoint=checkpoint, **options)
        finally:
            model.max_seq_length = full_length
        # else autocast stays on it, and it is not measured as it is saved and as it began
        extract_model_from_parallel(model, keep_fp32_wrapper=False)
        return result

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        """Take the weights of a checkpoint. It may be a stranger's, so it is opened as any saved
        model is: without its code, and without a pickle."""
        model = getattr(self.model, "_orig_mod", self.model)
        checkpoint = load_sentence_transformer(type(model), str(checkpoint_path))
        model.load_state_dict(checkpoint.state_dict())

    def warn_of_cut_texts(self) -> None:
        """Warn if many of the rows are longer than what the model reads in training."""
        raise NotImplementedError

    def measure(self) -> dict[str, dict[str, float]]:
        """Measure the trained model. Returns `scores`."""
        measured = self.evaluator.measure(self.model)
        self.scores["after"] = measured.scores
        self.intervals = measured.intervals
        return self.scores

    # --- saving: see `SaveModelMixin.save_model` ---

    def write_model(self, folder: Path) -> None:
        """Write the model with its tokenizer, without the card of sentence-transformers."""
        if self.args.should_save:
            self.model.save_pretrained(str(folder), create_model_card=False)

    def save_results(self, folder: Path) -> None:
        """Write the results beside the model, and print them, after `train` and `measure`."""
        if "after" in self.scores:
            self.report = save_results(self, folder)
