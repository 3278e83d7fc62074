"""`minibert push FOLDER REPO`: check a saved model as a stranger would, then publish it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from huggingface_hub import CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from ..arguments.hub import PushArguments
from ..report import plot_losses
from .card import CARD, STATE, CardFacts, check_card, facts_from_state, read_facts, render_card
from .files import PICKLES, Staged, matches, measure, stage
from .trainer import hub_card

VERIFY = Path(__file__).with_name("verify_remote_code.py")


def push(arguments: PushArguments) -> None:
    """Check the model folder, say what goes up and how large it is, and upload it.

    The card is uploaded once the files are there, so that its snippets can name their commit. The folder itself is
    never changed.

    Raises:
        ValueError: the folder is no complete and clean repository, or the Hub cannot be reached or says no; then with
            the command that tries again.
    """
    if len(arguments.paths) != 2:
        raise ValueError(
            f"paths: {len(arguments.paths)} given; legal: two, the model's folder and the repository (owner/name)"
        )
    folder, repository = Path(arguments.paths[0]), arguments.paths[1]
    _check_name(repository, "paths")
    with tempfile.TemporaryDirectory() as work:
        staged = stage(folder, Path(work))
        card = prepare_card(folder, staged, repository, arguments)
        found = check_as_a_stranger(staged.folder)
        show(measure(staged), found, card is None)
        if arguments.dry_run:
            print("Dry run: nothing was uploaded")
            return
        try:
            url = upload(staged, repository, card, arguments)
        except Exception as error:  # every library below has its own for a dead line or a refusal
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{reason}; {folder} is as it was; to try again: {repeat(arguments)}") from error
    print(f"Published: {url}")


def check_push(repository: str) -> None:
    """Refuse before a training what could not be pushed behind it.

    Raises:
        ValueError: no name of a repository, or no token.
    """
    _check_name(repository, "hub_model_id")
    _check_token()


def prepare_card(folder: Path, staged: Staged, repository: str, arguments: PushArguments) -> CardFacts | None:
    """See to the staged README.md.

    Returns:
        the facts of a card that is generated; None: the folder's was edited by hand and is uploaded as it is.

    Raises:
        ValueError: the Hub would refuse the card.
    """
    path = staged.folder / CARD
    text = path.read_text(encoding="utf-8") if path.exists() else None
    facts = None if text is None else read_facts(text)
    if text is not None and facts is None and not arguments.overwrite_card:
        try:
            check_card(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{folder / CARD}: the metadata is not YAML: {error}") from None
        print(f"{folder / CARD} was edited by hand and is uploaded as it is (--overwrite-card writes a new one)")
        if f'"{folder}"' in text:
            print(f"  it still loads {str(folder)!r}, which nobody else has")
        return None
    facts = facts or read_facts(text or "", even_if_edited=True) or facts_from_state(folder)
    facts.license = arguments.license or facts.license
    if facts.license is None:
        print("The card names no licence of the weights; --license does")
    draw_curve(staged.folder)
    path.unlink(missing_ok=True)
    path.write_text(render_card(staged.folder, facts, repository, arguments.revision or "main"), encoding="utf-8")
    return facts


def draw_curve(folder: Path) -> None:
    """Draw loss.png for a checkpoint of `Trainer`, which has the figures in trainer_state.json but no picture."""
    if (folder / STATE).exists() and not (folder / "loss.png").exists():
        history = json.loads((folder / STATE).read_text(encoding="utf-8"))["log_history"]
        if any("loss" in entry for entry in history):
            plot_losses(
                history, folder / "loss.png", "mlm_loss" if any("eval_mlm_loss" in e for e in history) else "loss"
            )


def check_as_a_stranger(folder: str | Path, *arguments: str) -> dict:
    """Load the folder in a clean process without the package: every Auto class, the saved head run
    (`verify_remote_code.py`).

    Returns:
        what it found: `saved`, `auto_classes`, versions.

    Raises:
        ValueError: it does not load there; with the reason.
    """
    with tempfile.TemporaryDirectory() as modules:
        environment = os.environ | {
            "HF_MODULES_CACHE": modules,
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        command = [sys.executable, "-I", str(VERIFY), str(folder), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        reason = (result.stderr.strip() or "no reason given").splitlines()[-1]
        raise ValueError(f"without the package the model does not load: {reason}")
    return json.loads(result.stdout.splitlines()[-1])


def show(staged: Staged, found: dict, own_card: bool) -> None:
    """What goes up, how large it is, and what was checked."""
    width = max(map(len, staged.sizes))
    for name, size in staged.sizes.items():
        print(f"  {name:{width}}  {human(size):>9}")
    print(f"  {'together':{width}}  {human(sum(staged.sizes.values())):>9}")
    if staged.left_out:
        print(f"  left out: {', '.join(staged.left_out)}")
    print(
        f"A {found['saved']}; in a process without the package, {len(found['auto_classes'])} Auto classes load it; no "
        f"secrets, no pickles; the card is {'your own' if own_card else 'generated'}"
    )


def human(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def upload(staged: Staged, repository: str, facts: CardFacts | None, arguments: PushArguments) -> str:
    """Create what is missing on the Hub and commit the files, then the card with the hash of that commit.

    Returns:
        the address of the repository, or of its branch.
    """
    _check_token()
    api, revision = HfApi(library_name="minibert"), arguments.revision
    repository = api.create_repo(repository, private=arguments.private or None, exist_ok=True).repo_id
    if arguments.private and not api.repo_info(repository).private:
        raise ValueError(f"{repository} is there already, and is public: --private cannot be kept")
    if revision:
        api.create_branch(repository, branch=revision, exist_ok=True)
    before = api.repo_info(repository, revision=revision).sha
    on_hub = hub_card(repository, revision)
    edited_on_hub = on_hub is not None and read_facts(on_hub) is None and not arguments.overwrite_card
    own = (staged.folder / CARD).read_text(encoding="utf-8")
    if edited_on_hub and facts is None and on_hub != own:
        raise ValueError(
            f"{CARD} was edited by hand both here and on the Hub: `hf download {repository} {CARD} --local-dir FOLDER` "
            f"takes the Hub's, `hf upload {repository} FOLDER/{CARD} {CARD}` puts yours there, --overwrite-card writes "
            "a new one over both"
        )
    if edited_on_hub and facts is not None:
        print(f"The card of {repository} was edited by hand on the Hub and stays as it is (--overwrite-card)")
    write_card_now = facts is None and not edited_on_hub
    commit = api.upload_folder(
        repo_id=repository,
        folder_path=staged.folder,
        commit_message=arguments.commit_message,
        revision=revision,
        ignore_patterns=None if write_card_now else [CARD],
    )
    if facts is not None and not edited_on_hub:
        named = re.search(r'revision="([0-9a-f]{40})"', on_hub or "")
        pin = named[1] if named and commit.oid == before else commit.oid  # no new files, no new hash
        text = render_card(staged.folder, facts, repository, pin)
        if text != on_hub:
            api.create_commit(
                repository,
                [CommitOperationAdd(CARD, text.encode())],
                commit_message=f"Model card of {pin[:8]}",
                revision=revision,
            )
    pickles = [name for name in api.list_repo_files(repository, revision=revision) if matches(name, PICKLES)]
    if pickles:
        print(f"The repository has pickles from before: `hf repos delete-files {repository} {' '.join(pickles)}`")
    return f"{api.endpoint}/{repository}" + (f"/tree/{revision}" if revision else "")


def repeat(arguments: PushArguments) -> str:
    """The command line that says the same."""
    words = ["minibert", "push", *arguments.paths]
    for name in ("revision", "license"):
        if getattr(arguments, name):
            words += [f"--{name}", getattr(arguments, name)]
    if arguments.commit_message != PushArguments.commit_message:
        words += ["--commit_message", arguments.commit_message]
    words += [f"--{name}" for name in ("private", "overwrite_card") if getattr(arguments, name)]
    return shlex.join(words)


def _check_name(repository: str, field: str) -> None:
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ValueError(f"{field}: {repository!r} is no name of a repository: {error}") from None


def _check_token() -> None:
    if get_token() is None:
        raise ValueError("no token for the Hub (run `hf auth login`, or set HF_TOKEN)")
