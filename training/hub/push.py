"""`minibert push FOLDER REPO`: check a saved model as somebody without the package would load it, then publish it."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import HfApi, ModelCard, get_token
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import TrainingArguments

from ..arguments.tools import PushArguments
from ..report import format_table, plot_losses
from .card import CARD, FACTS, CardFacts, facts_from_trainer, mark_uploaded, read_card, save_card
from .eval_results import check_eval_results, write_eval_results
from .files import PICKLES, matches, stage
from .trainer import hub_card

SCRIPT = Path(__file__).with_name("verify_remote_code.py")
# What a model that was there before may have left, and would be read instead of this one, or around it.
REPLACED = ["model.safetensors", "model.safetensors.index.json", "adapter_config.json", "modules.json"]


def push(arguments: PushArguments) -> dict[str, Any]:
    """Check the model folder, say what goes up and how large it is, and upload it; the folder itself never changes.

    Returns:
        what was uploaded, or would be: `url` of the repository or its branch (None after a dry run), `files` with
        their sizes in bytes, `left_out` of the folder, and what `verify_remote_code` found (`verified`).

    Raises:
        ValueError: the folder is no complete and clean repository, or the Hub cannot be reached or says no; then with
            the command that tries again.
    """
    if len(arguments.paths) != 2:
        raise ValueError(f"paths: {arguments.paths} given; use two: the model's folder and the repository (owner/name)")
    folder, repository = Path(arguments.paths[0]), arguments.paths[1]
    _check_name(repository, "paths")
    check_eval_results(arguments.eval_results)
    with tempfile.TemporaryDirectory() as work:
        staged = Path(work) / "staged"
        left_out = stage(folder, staged)
        facts = prepare_card(folder, staged, repository, arguments)
        known = facts or read_card(folder).facts
        write_eval_results(staged, arguments.eval_results, known.results if known else [])
        verified = verify_remote_code(staged)
        paths = sorted(path for path in staged.rglob("*") if path.is_file())
        files = {path.relative_to(staged).as_posix(): path.stat().st_size for path in paths}
        pushed = {"url": None, "files": files, "left_out": left_out, "verified": verified}
        sizes = files | {"together": sum(files.values())}
        print(format_table(["file", "MB"], [(name, size / 1e6) for name, size in sizes.items()]))
        if left_out:
            print(f"left out: {', '.join(left_out)}")
        print(
            f"A {verified['saved']}; in a process without the package, {len(verified['auto_classes'])} Auto classes "
            f"load it; no secrets, no pickles; the card is {'your own' if facts is None else 'generated'}"
        )
        if arguments.dry_run:
            print("Dry run: nothing was uploaded")
            return pushed
        try:
            pushed["url"] = upload(staged, list(files), repository, facts, arguments)
        except Exception as error:  # every library below has its own for a dead line or a refusal
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{reason}; {folder} is as it was; to try again: {repeat(arguments)}") from error
    print(f"Published: {pushed['url']}")
    return pushed


def check_push(training: TrainingArguments) -> None:
    """Check before a training what would make pushing its model fail: a ValueError for no name of a repository, or no
    token."""
    _check_name(_repository(training), "hub_model_id")
    _check_token()


def push_arguments(training: TrainingArguments) -> PushArguments:
    """Those of pushing what a training has saved to where its own arguments say."""
    paths, private = [training.output_dir, _repository(training)], bool(training.hub_private_repo)
    return PushArguments(paths, revision=training.hub_revision, private=private)


def _repository(training: TrainingArguments) -> str:
    return training.hub_model_id or Path(training.output_dir).name


def prepare_card(folder: Path, staged: Path, repository: str, arguments: PushArguments) -> CardFacts | None:
    """Write the card that goes up into `staged`, and the loss curve of a checkpoint that has none; the facts of a card
    that was generated, None for one that was edited by hand, which stays as it is.

    Raises:
        ValueError: no model in the folder, or the metadata of a card that was edited by hand are no YAML.
    """
    card, saved = read_card(folder), folder / "trainer_state.json"
    if card.edited and not arguments.overwrite_card:
        try:
            ModelCard(card.text)
        except yaml.YAMLError as error:
            raise ValueError(f"{folder / CARD}: the metadata is not YAML: {error}") from None
        if arguments.license:
            raise ValueError(
                f"license: {arguments.license!r} has no effect on {folder / CARD}, which was edited by hand; write it"
                " there, or use --overwrite_card"
            )
        print(f"{folder / CARD} was edited by hand and is uploaded as it is (--overwrite_card writes a new one)")
        if f'"{folder}"' in card.text:
            print(f"  it still loads {str(folder)!r}, which nobody else has")
        return None
    state = json.loads(saved.read_text(encoding="utf-8")) if saved.exists() else {"global_step": 0, "log_history": []}
    history = state["log_history"]
    facts = card.facts
    if facts is None:
        facts = facts_from_trainer(state)
        if not facts.results and any("eval_loss" in entry for entry in history):
            print(
                f"The card has no figures: {saved} does not say which are this model's "
                "(`trainer.evaluate()` and `trainer.save_state()` after the training do)"
            )
    facts.license = arguments.license or facts.license
    if facts.license is None:
        print("The card names no licence of the weights; --license does")
    if any("loss" in entry for entry in history) and not (folder / "loss.png").exists():
        metric = "mlm_loss" if any("eval_mlm_loss" in entry for entry in history) else "loss"
        plot_losses(history, staged / "loss.png", metric)
    for name in (CARD, FACTS):  # links
        (staged / name).unlink(missing_ok=True)
    save_card(staged, facts, repository, arguments.revision or "main")
    return facts


def verify_remote_code(folder: str | Path) -> dict[str, Any]:
    """Load the folder in a clean process without the package: every Auto class, the saved head run
    (`verify_remote_code.py`, whose findings are returned: `saved`, `auto_classes`, `versions`). A ValueError says why
    it does not load there."""
    with tempfile.TemporaryDirectory() as modules:
        quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        environment = os.environ | quiet | {"HF_MODULES_CACHE": modules, "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # libraries may lie anywhere
        command = [sys.executable, str(SCRIPT), str(folder)]
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        reason = (result.stderr.strip() or "no reason given").splitlines()[-1]
        raise ValueError(f"without the package the model does not load: {reason}")
    return json.loads(result.stdout.splitlines()[-1])


def upload(staged: Path, files: list[str], repository: str, facts: CardFacts | None, arguments: PushArguments) -> str:
    """Create what is missing on the Hub and commit the files, then the card, so that its snippets can name the files'
    commit; the address of the repository, or of its branch.

    Args:
        files: those in `staged`, relative to it.
        facts: of a card that is generated; None: the staged one was written by hand.
    """
    _check_token()
    api, revision = HfApi(library_name="minibert"), arguments.revision
    repository = api.create_repo(repository, private=arguments.private or None, exist_ok=True).repo_id
    if arguments.private and not api.repo_info(repository).private:
        raise ValueError(f"{repository} is there already, and is public: --private cannot be kept")
    if revision:
        api.create_branch(repository, branch=revision, exist_ok=True)
    before = api.repo_info(repository, revision=revision).sha
    card = hub_card(repository, revision)
    keep = card.edited and not arguments.overwrite_card
    if keep and facts is None and not card.uploaded and card.text != (staged / CARD).read_text(encoding="utf-8"):
        raise ValueError(
            f"{CARD} was edited by hand both here and on the Hub: `hf download {repository} {CARD} --local-dir FOLDER` "
            f"takes the Hub's, `hf upload {repository} FOLDER/{CARD} {CARD}` puts yours there, --overwrite-card writes "
            "a new one over both"
        )
    commit_files = partial(api.upload_folder, repo_id=repository, folder_path=staged, revision=revision)
    cards = [CARD, FACTS]  # the library skips a commit that changes nothing
    if facts is None:
        mark_uploaded(staged)
    commit = commit_files(
        commit_message=arguments.commit_message, ignore_patterns=cards if facts else None, delete_patterns=REPLACED
    )
    if keep and facts is not None:
        print(f"The card of {repository} was edited by hand on the Hub and stays as it is (--overwrite-card)")
    elif facts is not None:
        named = re.search(r'revision="([0-9a-f]{40})"', card.text)
        # no new files, no new hash; but the card is older than they are if something else put them there
        stays = (
            named
            and commit.oid == before
            and _files_at(api, repository, named[1]) == _files_at(api, repository, before)
        )
        pin = named[1] if stays else commit.oid
        save_card(staged, facts, repository, pin)
        commit_files(commit_message=f"Model card of {pin[:8]}", allow_patterns=cards)
    there = api.list_repo_files(repository, revision=revision)
    if ignored := [name for name in files if name not in (*there, *cards)]:
        print(f"Not uploaded, since a .gitignore (of the folder, or on the Hub) names them: {', '.join(ignored)}")
    if pickles := [name for name in there if matches(name, PICKLES)]:
        print(f"The repository has pickles from before: `hf repos delete-files {repository} {' '.join(pickles)}`")
    older = [name for name in there if name.startswith(".eval_results/") and name not in files and commit.oid != before]
    if older:
        print(
            f"Figures of the files before stay: `hf repos delete-files {repository} {' '.join(older)}`, or measure anew"
        )
    return f"{api.endpoint}/{repository}" + (f"/tree/{revision}" if revision else "")


def _files_at(api: HfApi, repository: str, revision: str) -> dict[str, str]:
    """The hashes of all files but the card's, by their names; none at a revision that is no more."""
    if not api.revision_exists(repository, revision):
        return {}
    tree = api.list_repo_tree(repository, recursive=True, revision=revision)
    return {file.path: file.blob_id for file in tree if hasattr(file, "blob_id") and file.path not in (CARD, FACTS)}


def repeat(arguments: PushArguments) -> str:
    words = ["minibert", "push", *arguments.paths]
    for each in dataclasses.fields(arguments):
        value = getattr(arguments, each.name)
        if each.name != "paths" and value and value != each.default:
            values = value if isinstance(value, list) else [value] * (value is not True)
            words += [f"--{each.name}", *values]
    return shlex.join(words)


def _check_name(repository: str, field: str) -> None:
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ValueError(f"{field}: {repository!r} is no name of a repository: {error}") from None


def _check_token() -> None:
    if get_token() is None:
        raise ValueError("no token for the Hub (run `hf auth login`, or set HF_TOKEN)")
