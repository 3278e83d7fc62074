"""Checkpoints that are whole, and the one that a training resumes from, in any `Trainer`."""

from itertools import islice
from pathlib import Path
from typing import NoReturn

import torch
from accelerate import PartialState
from transformers import TrainerState
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import rotate_checkpoints

from .checkpoints import RESUME_ADVICE, checkpoint_to_resume, write_manifest
from .resume_guard import ResumeGuardCallback
from .signals import SaveAndStop
from .stepwise_loader import StepwiseLoader, check_batches


class CheckpointMixin:
    """A mixin that stands before `Trainer`. Every checkpoint gets a manifest before an older one is
    removed. If a checkpoint cannot be written, an OSError names it; if rows cannot be read, one is
    saved before the error.

    `Trainer` has no public method for these moments: its private ones are overridden, and
    tests/loop/test_private_names.py lists them.

    Attributes:
        resume_guard: The settings that must be the same when a training is resumed.
    """

    resume_guard: ResumeGuardCallback

    def find_checkpoint(self, resume_from_checkpoint: str | bool | None) -> str | None:
        """Find the checkpoint that `train` resumes from; True stands for the newest whole one.
        Returns None for a new training, and for one that goes on in the same process.

        Raises:
            ValueError: the output folder holds another run, no checkpoint is whole, or the
                checkpoint was trained with other settings.
        """
        is_first = not self.state.global_step  # `train` may be called again in a notebook
        if not is_first and not resume_from_checkpoint:
            return None
        checkpoint = checkpoint_to_resume(self.args, resume_from_checkpoint or False)
        if checkpoint is not None:
            self.resume_guard.check(checkpoint)
        return checkpoint

    def train(self, *args, **kwargs):
        try:
            return super().train(*args, **kwargs)
        finally:  # after an exception too: in a notebook the process goes on
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, SaveAndStop):
                    callback.end_training(self.args)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches = []
        error = None
        try:
            for batch in islice(epoch_iterator, num_batches):
                batches.append(batch)
        except Exception as raised:
            error = raised
        try:
            check_batches(len(batches), error)  # before `Trainer` gathers the number of targets
        except Exception as raised:
            self._stop_with_checkpoint(raised)
        return super().get_batch_samples(iter(batches), num_batches, device)

    def evaluation_loop(self, dataloader, *args, **kwargs):
        loader = StepwiseLoader(dataloader)
        try:
            return super().evaluation_loop(loader, *args, **kwargs)
        except Exception as error:
            if error is loader.error and self.is_in_train:
                self._stop_with_checkpoint(error)
            raise

    def _stop_with_checkpoint(self, error: Exception) -> NoReturn:
        """Save a checkpoint, unless there is nothing to save, and raise the error of the rows."""
        step = self.state.global_step
        if step == 0:
            raise error
        if not (Path(self.args.output_dir) / f"checkpoint-{step}").exists():
            save_only_model = self.args.save_only_model
            self.args.save_only_model = False
            try:
                # private: the public `save_model` saves neither optimizer nor progress
                self._save_checkpoint(self.model_wrapped, None)
                self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            finally:
                self.args.save_only_model = save_only_model
        # the traceback of a worker ends with the reason
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise ValueError(
            f"{reason} (step {step} is saved; repair the data and {RESUME_ADVICE})"
        ) from error

    def _save(self, output_dir=None, *args, **kwargs):
        # private: all that writes a folder ends here, checkpoints too
        super()._save(output_dir, *args, **kwargs)
        pickled = Path(output_dir or self.args.output_dir, TRAINING_ARGS_NAME)
        pickled.unlink(missing_ok=True)  # nothing reads it

    def _run_epoch(self, *args, **kwargs):
        # Private: a training that was killed after its last step does no further one when it is
        # resumed. No callback is asked before the first step of an epoch.
        self.control.should_training_stop |= self.state.global_step >= self.state.max_steps
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        # Private: Transformers silently forgets the best checkpoint if the folder was moved. The
        # state of the checkpoint is loaded just before this method is called.
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        if state.best_model_checkpoint is None:
            self.state.best_model_checkpoint = None
            return
        best = Path(checkpoint).with_name(Path(state.best_model_checkpoint).name)
        self.state.best_model_checkpoint = str(best)
        if self.args.load_best_model_at_end and not best.is_dir():
            raise ValueError(
                f"resume_from_checkpoint: the best one, {best.name}, is missing; restore it, or"
                " train in another folder"
            )

    def _get_train_sampler(self, *args, **kwargs):
        sampler = super()._get_train_sampler(*args, **kwargs)
        if isinstance(sampler, LengthGroupedSampler):
            # private: it has no seed, so that a resumed training would see another order
            seed = self.args.data_seed
            if seed is None:
                seed = self.args.seed
            sampler.generator = torch.Generator()
            sampler.set_epoch = lambda epoch: sampler.generator.manual_seed(seed + epoch)
        return sampler

    def _save_checkpoint(self, *args, **kwargs):
        # private: `on_save` comes too late, when older checkpoints are removed
        folder = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        limit = self.args.save_total_limit
        self.args.save_total_limit = None  # older ones are removed once this one is whole
        try:
            super()._save_checkpoint(*args, **kwargs)
            PartialState().wait_for_everyone()  # every rank writes its random state
            if self.state.is_world_process_zero:
                write_manifest(folder / name)
        except Exception as error:
            # torch, `safetensors` and `tokenizers` raise errors of their own for a full disk
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise OSError(
                f"{name} could not be written to {str(folder)!r} ({reason}); earlier checkpoints"
                f" are whole: make room and {RESUME_ADVICE}"
            ) from error
        finally:
            self.args.save_total_limit = limit
        if self.args.should_save:
            best = self.state.best_model_checkpoint
            rotate_checkpoints(self.args.output_dir, limit, best, use_mtime=True)
