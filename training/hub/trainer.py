"""What makes everything that `Trainer` pushes a repository that loads."""

import contextlib
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from .card import (
    CARD,
    FACTS,
    CardFacts,
    SavedCard,
    facts_from_trainer,
    mark_uploaded,
    published_name,
    read_card,
    save_card,
)
from .files import write_code, write_gitignore


class HubReady:
    """Put before `Trainer` (or any class made of it): `class MyTrainer(HubReady, Trainer): pass`.

    `Trainer` alone uploads `training_args.bin`, a pickle; its commits in mid-run have no code, so nobody can load them;
    it writes its own card over whatever there is, and fails if the branch `hub_revision` does not exist. With this,
    the output folder has the code files and a `.gitignore` (the Hub goes by it) from the beginning, branches are made,
    and the card is the one of `save_card`; one that was edited by hand stays, also one edited on the Hub.
    """

    card: CardFacts | None = None  # what the card says; None: what `Trainer` knows of the run
    of_this_push: tuple[str | None, str | None] = None, None  # the token and the branch that one push was given

    def init_hf_repo(self, *args, **kwargs):
        try:
            super().init_hf_repo(*args, **kwargs)
            token, branch = self._token_and_branch()
            if self.is_world_process_zero() and branch:
                HfApi(token=token).create_branch(self.hub_model_id, branch=branch, exist_ok=True)
        except Exception as error:  # the libraries below have their own for a dead line
            raise OSError(f"push_to_hub: {' '.join(str(error).split())}") from error

    def push_to_hub(self, commit_message="End of training", blocking=True, token=None, revision=None, *args, **kwargs):
        self.of_this_push = token, revision
        try:
            return super().push_to_hub(commit_message, blocking, token, revision, *args, **kwargs)
        finally:
            self.of_this_push = None, None

    def train(self, *args, **kwargs):
        self._prepare_folder()
        return super().train(*args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs):
        if self.args.push_to_hub and self.args.hub_strategy in ("checkpoint", "all_checkpoints"):
            self._finish_current_push()  # of the checkpoint that may be deleted now
        super()._save_checkpoint(*args, **kwargs)

    def _finish_current_push(self):
        super()._finish_current_push()
        push = getattr(self, "push_in_progress", None)
        for error in filter(None, (job.exception() for job in (push.jobs if push is not None else ()))):
            print(f"An upload to {self.hub_model_id} failed: {error}")

    def _prepare_folder(self) -> None:
        if self.is_world_process_zero():
            folder = Path(self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            write_code(folder)
            write_gitignore(folder, keep_checkpoints=self.args.hub_strategy == "all_checkpoints")

    def create_model_card(self, language=None, license=None, tags=None, **given) -> None:
        """Write the card into the output folder, beside the saved model. `push_to_hub` hands its keywords on to here;
        of those of `Trainer.create_model_card`, language, license, tags, finetuned_from and dataset are on the card."""
        if not self.is_world_process_zero():
            return
        folder = Path(self.args.output_dir)
        if not (folder / "config.json").exists():  # an adapter alone, or nothing saved: Trainer knows what to do
            return super().create_model_card(language, license, tags, **given)
        self._prepare_folder()
        token, branch = self._token_and_branch()
        there, here = hub_card(self.hub_model_id, branch, token), read_card(folder)
        if there.edited and (not here.edited or here.uploaded):
            print(f"The card of {self.hub_model_id} was edited by hand and stays as it is")
            (folder / CARD).write_text(there.text, encoding="utf-8")
            mark_uploaded(folder)
            return
        tags, data = ([x] if isinstance(x, str) else x or [] for x in (tags, given.get("dataset")))
        facts = self.card or facts_from_trainer(vars(self.state), self.args, ", ".join(data) or None)
        facts.language = language or facts.language
        facts.license = license or facts.license
        base = given.get("finetuned_from") or facts.base_model
        facts.base_model = base or published_name(self.model.config._name_or_path)
        facts.tags = list(dict.fromkeys([*facts.tags, *tags]))
        save_card(folder, facts, self.hub_model_id, branch or "main")

    def _token_and_branch(self) -> tuple[str | None, str | None]:
        token, branch = self.of_this_push
        return token or self.args.hub_token, branch or self.args.hub_revision


def hub_card(repository: str | None, revision: str | None, token: str | None = None) -> SavedCard:
    if repository is None:
        return SavedCard()
    api = HfApi(token=token)
    try:
        # At a commit: of a branch, what was downloaded before is taken where the Hub does not answer.
        revision = api.repo_info(repository, revision=revision).sha
        path = api.hf_hub_download(repository, CARD, revision=revision)
    except (RemoteEntryNotFoundError, RevisionNotFoundError, RepositoryNotFoundError):
        return SavedCard()
    with contextlib.suppress(RemoteEntryNotFoundError):  # put beside it; a card that is not ours has none
        api.hf_hub_download(repository, FACTS, revision=revision)
    return read_card(Path(path).parent)
