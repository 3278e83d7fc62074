"""What makes everything that `Trainer` pushes a repository that loads, and nothing more."""

import copy
import tempfile
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi
from transformers import PreTrainedModel
from transformers.trainer_utils import HubStrategy
from transformers.utils import PushInProgress

from ...configuration_minibert import MiniBertConfig
from ..loading.foreign_code import drop_foreign_code
from .card import card_to_upload, save_card
from .facts import CardFacts, facts_from_trainer, published_name
from .push import (
    check_private,
    check_strategy,
    hub_errors,
    is_whole_model,
    repository_of,
    upload,
    verify_remote_code,
)
from .uploaded_files import CARD_FILE, stage

# Libraries that are installed anyway. Of their classes, none brings code along in a saved folder.
LIBRARIES = ("transformers.", "peft.", "sentence_transformers.")


class HubMixin:
    """Put before `Trainer` (or any class made of it): `class MyTrainer(HubMixin, Trainer): pass`.

    `Trainer` alone uploads whatever lies in the output folder. With this, uploads after every save
    and at the end have the files that `hub.uploaded_files` allows, with the model's code. Before
    the first one, the model is loaded in a process without the package, so that every commit loads.
    With `hub_strategy="end"`, nothing touches the Hub before the end: `Trainer` would create the
    repository before the training.
    The card is that of `save_card`, and `hub_token` is not in the arguments that are saved with
    every checkpoint.
    """

    card: CardFacts | None = None  # what the card says; None: what `Trainer` knows of the run
    hub_token: str | None = None
    verified: bool = False  # whether what goes up has been loaded without the package
    is_constructed: bool = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_constructed = True
        if self.args.hub_token is not None:
            self.hub_token = self.args.hub_token
            self.args = copy.copy(self.args)
            self.args.hub_token = None
        # What a library outside of this package has loaded may name code of others.
        model_name = "the model of the trainer"
        config = getattr(self.model, "config", None)
        if config is not None:
            drop_foreign_code(vars(config), "config.json", model_name, keep_files=True)
        if hasattr(self.processing_class, "init_kwargs"):
            settings = self.processing_class.init_kwargs
            drop_foreign_code(settings, "tokenizer_config.json", model_name, keep_files=True)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """As `Trainer.init_hf_repo`; a ValueError if a private repository is asked for and the one
        there is public."""
        check_strategy(self.args)
        # `Trainer.__init__` calls this, too
        if self.args.hub_strategy == HubStrategy.END and not self.is_constructed:
            return
        if private is None:
            private = self.args.hub_private_repo
        token = token or self.hub_token or self.args.hub_token
        if private:
            self._check_private(token, repository_of(self.args))
        with self._hub_errors():
            super().init_hf_repo(token=token, private=private)

    def push_to_hub(
        self,
        commit_message: str = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **card_options,
    ) -> CommitInfo | Future | None:
        """As `Trainer.push_to_hub`. `card_options`: keywords of `create_model_card`. A ValueError
        if a private repository is asked for and the one there is public."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if self.hub_model_id is None:
            self.init_hf_repo(token, private)
        elif private:
            self._check_private(token or self.hub_token, self.hub_model_id)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        self.create_model_card(**card_options)
        self._finish_current_push()  # private: `Trainer.push_to_hub`, which this replaces, calls it
        with self._hub_errors():
            job = self._upload(self.args.output_dir, commit_message, token, revision)
            if blocking:
                return job.result()
            return job

    def _check_private(self, token: str | None, repository: str) -> None:
        """`check_private`, by one of several processes."""
        if self.is_world_process_zero():
            check_private(HfApi(token=token, library_name="minibert"), repository)

    def _hub_errors(self) -> AbstractContextManager[None]:
        """`hub_errors`, which end with the command that pushes the model if it is saved already."""
        if not Path(self.args.output_dir, "config.json").exists():
            return hub_errors()
        options = {"revision": self.args.hub_revision, "private": self.args.hub_private_repo}
        return hub_errors(self.args.output_dir, repository_of(self.args), **options)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        # private: the method that uploads after a checkpoint; `Trainer`'s uploads the whole folder
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        current = self.push_in_progress
        busy = current is not None and not current.is_done()
        if busy and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        try:
            job = self._upload(
                checkpoint_folder, f"Training in progress, step {self.state.global_step}"
            )
        except Exception as error:  # the training goes on
            print(f"{checkpoint_folder} was not uploaded: {error}")
            return
        jobs = [job]
        if current is not None:
            jobs = [*current.jobs, job]
        self.push_in_progress = PushInProgress(jobs)

    def _upload(
        self, folder: str, message: str, token: str | None = None, revision: str | None = None
    ) -> Future:
        """Upload a copy of what goes up, since a checkpoint may be deleted meanwhile."""
        temporary = tempfile.TemporaryDirectory()
        revision = revision or self.args.hub_revision
        staging_folder = Path(temporary.name)
        stage(folder, staging_folder, self._has_own_class())
        if not self.verified and is_whole_model(staging_folder):
            verify_remote_code(staging_folder)
            self.verified = True
        if Path(folder, CARD_FILE).exists() and Path(folder, "config.json").exists():
            facts = self.card or facts_from_trainer(vars(self.state), self.args)
            card = card_to_upload(staging_folder, self.hub_model_id, revision, facts=facts)
            (staging_folder / CARD_FILE).write_text(card, encoding="utf-8")

        def finish(job: Future) -> None:
            temporary.cleanup()
            error = job.exception()
            if error is not None:
                print(f"An upload to {self.hub_model_id} failed: {error}")

        api = HfApi(token=token or self.hub_token, library_name="minibert")
        job = upload(api, staging_folder, self.hub_model_id, revision, message, wait=False)
        job.add_done_callback(finish)
        return job

    def _has_own_class(self) -> bool:
        """Whether the model, or one inside of it, is of a class that the user has written: its code
        runs already, and `save_pretrained` puts it into the folder."""
        package = MiniBertConfig.__module__.rpartition(".")[0]
        model = self.accelerator.unwrap_model(self.model)
        for module in model.modules():
            is_of_library = type(module).__module__.startswith((f"{package}.", *LIBRARIES))
            if isinstance(module, PreTrainedModel) and not is_of_library:
                return True
        return False

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        finetuned_from: str | None = None,
        dataset: str | list[str] | None = None,
        **options: Any,
    ) -> None:
        """Write the card into the output folder; the arguments are those of
        `Trainer.create_model_card`."""
        folder = Path(self.args.output_dir)
        if not self.is_world_process_zero():
            return
        if not (folder / "config.json").exists():
            # an adapter alone, or nothing saved: Trainer knows what to do
            options |= {"finetuned_from": finetuned_from, "dataset": dataset}
            super().create_model_card(language, license, tags, **options)
            return
        data = ", ".join(_as_list(dataset)) or None
        facts = self.card or facts_from_trainer(vars(self.state), self.args, data)
        facts.language = language or facts.language
        facts.license = license or facts.license
        config = getattr(self.model, "config", None)
        base_model = finetuned_from or facts.base_model or getattr(config, "_name_or_path", None)
        facts.base_model = published_name(base_model)
        facts.tags = list(dict.fromkeys([*facts.tags, *_as_list(tags)]))
        save_card(folder, facts, self.hub_model_id)


def _as_list(value: str | list[str] | None) -> list[str]:
    if isinstance(value, str):
        return [value]
    return value or []
