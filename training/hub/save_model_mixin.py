"""`save_model` of every trainer of this package: the model, its results, and the push."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ..common.files import written_whole
from ..common.locks import lock_output
from .upload_mixin import HubMixin


class SaveModelMixin(HubMixin):
    """How a training ends. Put before `Trainer`, as `HubMixin`.

    A subclass has `save_results`. It has `write_model` too, if the finished model or its tokenizer
    differ from those of a checkpoint.

    Attributes:
        report: What `save_results` wrote as the report; None before.
    """

    report: dict[str, Any] | None = None

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model and its tokenizer, which appear when they are whole; then the results of
        the training, as `save_results` says. With `args.push_to_hub`, push them. A ValueError if
        another process writes in the folder."""
        if _internal_call and output_dir is not None:  # a checkpoint
            super().save_model(output_dir, _internal_call=True)
            return
        folder = Path(output_dir or self.args.output_dir)
        writing: AbstractContextManager[Path] = nullcontext(folder)
        if self.args.should_save:  # one of several processes
            writing = written_whole(folder)
        with lock_output(self.args, folder):
            with writing as written:
                self.write_model(written)
            if _internal_call:  # a part of a push, which writes the card itself
                return
            self.save_results(folder)
        if self.args.push_to_hub:
            self.push_to_hub()

    def write_model(self, folder: Path) -> None:
        """Write the finished model and its tokenizer. All processes take part."""
        super().save_model(str(folder), _internal_call=True)  # it pushes nothing

    def save_results(self, folder: Path) -> None:
        """Write the report, the card and the pictures beside the model, print the results, and
        keep the report in `report`. All processes take part; one of them writes."""
        raise NotImplementedError
