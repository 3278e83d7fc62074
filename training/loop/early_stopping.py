"""When a training stops because it no longer gets better."""

from transformers import EarlyStoppingCallback


class EarlyStopping(EarlyStoppingCallback):
    """Stop after `patience` evaluations without a better one. Evaluations count only once the
    metric is above `floor`, the score of a simple baseline. A resumed training continues the count
    of its checkpoint; one that begins, also a second one of the same trainer, counts from 0."""

    def __init__(self, patience: int, floor: float | None = None):
        super().__init__(patience)
        self.floor = floor

    def check_metric_value(self, args, state, control, metric_value):
        super().check_metric_value(args, state, control, metric_value)
        best_value = metric_value
        if state.best_metric is not None:
            best_value = max(metric_value, state.best_metric)
        if self.floor is not None and best_value <= self.floor:
            self.early_stopping_patience_counter = 0

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        if state.global_step == 0:
            self.early_stopping_patience_counter = 0
            return
        # a checkpoint that was trained without patience has no such state
        saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        self.early_stopping_patience_counter = saved["attributes"][
            "early_stopping_patience_counter"
        ]
        control.should_training_stop |= (
            self.early_stopping_patience_counter >= self.early_stopping_patience
        )
