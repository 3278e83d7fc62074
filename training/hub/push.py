"""`minibert push`: check a saved model as somebody without the package would load it, then publish
it."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, get_token
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id
from transformers import TrainingArguments
from transformers.trainer_utils import HubStrategy

from ...configuration_minibert import MiniBertConfig
from ...option_checks import checked_keywords
from ..common.printable import printable
from ..common.printing import format_table, print_next_step, warn
from ..loading.code_references import read_settings
from .card import card_to_upload
from .uploaded_files import ALLOWED, CARD_FILE, stage

VERIFY_SCRIPT = Path(__file__).with_name("verify_remote_code.py")
CONFIG_FILE = "config.json"
REQUIRED_FILES = (CONFIG_FILE, "tokenizer.json", "tokenizer_config.json")  # beside the weights
WEIGHTS_FILE = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"  # names the files of weights that are in several
PLAIN_NAME = re.compile(r"[\w.-]{1,200}\.safetensors", re.ASCII)  # of a file in the same folder
MAX_LISTED_NAMES = 20  # of files that are left out, in the message
MAX_NAME_LENGTH = 100  # of a name from a file, in an error
# What an earlier model may have left, and what would be read instead of this one, or around it.
REPLACED_FILES = [
    "model*.safetensors",
    WEIGHTS_INDEX,
    "adapter_config.json",
    "modules.json",
    "*_minibert.py",
]
# The variables of the process that runs a model's code: no token, no secret.
PASSED_VARIABLES = (
    "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG",
    "LC_ALL", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


@checked_keywords
def push(
    folder: str | os.PathLike,
    repository: str,
    revision: str | None = None,
    private: bool = False,
    license: str | None = None,
    trust_remote_code: bool = False,
    dry_run: bool = False,
    api: HfApi | None = None,
) -> dict[str, Any]:
    """Check a saved model as somebody without the package loads it, and publish it on the Hub.

    What goes up is decided by a list (`hub.uploaded_files.ALLOWED`): the weights in safetensors,
    configs, tokenizer, code, card and pictures. The folder never changes. Its README.md replaces
    the repository's; without one, a new card goes up.

    Args:
        folder: The folder of a saved model.
        repository: The repository: owner/name, or a name for your own account.
        revision: The branch to push to, made if it does not exist; by default main.
        private: Make the repository private.
        license: The licence of the weights, by its name on the Hub (apache-2.0, mit, …).
        trust_remote_code: Run and upload code in the folder that differs from this package's, or
            that its configs name.
        dry_run: Check everything and show what would be uploaded, but upload nothing.
        api: The client, from Python, with a token of its own; by default the token is that of `hf
            auth login`.

    Returns:
        `url` of the repository or its branch (None after a dry run), `files` with their sizes in
        bytes, `left_out` of the folder, and what `verify_remote_code` found (`verified`).

    Raises:
        ValueError: The folder is no complete model, names or has other code, has a path of this
            machine in a config, or does not load.
        OSError: The Hub cannot be reached or says no.
    """
    source = Path(folder).expanduser()
    api = api or HfApi(library_name="minibert")
    options = {
        "revision": revision,
        "private": private,
        "license": license,
        "trust_remote_code": trust_remote_code,
    }
    validate_repo_id(repository)
    _check_model(source, source)
    if not dry_run:
        with hub_errors(folder, repository, **options):
            user = api.whoami()["name"]
        if "/" not in repository:
            repository = f"{user}/{repository}"
    with tempfile.TemporaryDirectory() as temporary:
        staging_folder = Path(temporary)
        staged_files = stage(source, staging_folder, trust_remote_code)
        _check_model(staging_folder, source)  # the source may have changed, the copy does not
        _print_own_code(staging_folder, staged_files.own_code)
        card = card_to_upload(staging_folder, repository, revision, license)
        (staging_folder / CARD_FILE).write_text(card, encoding="utf-8")
        verified = verify_remote_code(staging_folder)
        pushed = {
            "url": None,
            "files": sizes_of(staging_folder),
            "left_out": staged_files.left_out,
            "verified": verified,
        }
        _print_contents(pushed, card)
        if dry_run:
            print("Dry run: nothing was uploaded")
            print_next_step("minibert", "push", folder, repository)
            return pushed
        with hub_errors(folder, repository, **options):
            repository = api.create_repo(repository, private=private or None, exist_ok=True).repo_id
        if private:
            check_private(api, repository)
        with hub_errors(folder, repository, **options):
            upload(api, staging_folder, repository, revision, "Upload a MiniBERT model")
    pushed["url"] = f"{api.endpoint}/{repository}"
    if revision:
        pushed["url"] += f"/tree/{revision}"
    print(f"Published: {pushed['url']}")
    return pushed


def sizes_of(folder: Path) -> dict[str, int]:
    """The size of every file below a folder, in bytes, by its path there."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    return sizes


def _print_own_code(staging_folder: Path, names: list[str]) -> None:
    if names:
        sizes = [f"{name} ({(staging_folder / name).stat().st_size:,} bytes)" for name in names]
        print(f"Code of the folder's own, which is run now and goes up: {', '.join(sizes)}")


def _print_contents(pushed: dict[str, Any], card: str) -> None:
    """Print what goes up, what does not, what loads it, and the warning of the card."""
    rows = [(name, size / 1e6) for name, size in pushed["files"].items()]
    rows.append(("together", sum(pushed["files"].values()) / 1e6))
    print(format_table(["file", "MB"], rows))
    left_out = pushed["left_out"]
    if left_out:
        names = ", ".join(map(printable, left_out[:MAX_LISTED_NAMES]))
        if len(left_out) > MAX_LISTED_NAMES:
            names += " …"
        print(f"left out: {names}")
    saved = pushed["verified"]["saved"]
    count = len(pushed["verified"]["auto_classes"])
    print(f"A {saved}; in a process without the package, {count} Auto classes load it")
    warning = re.search(r"^\*\*Warning: (.+)\*\*$", card, re.MULTILINE)
    if warning:
        warn(f"the card says: {printable(warning[1])}")


def check_push(args: TrainingArguments) -> None:
    """Refuse before a training what would make pushing its model fail.

    Raises:
        ValueError: no name of a repository, no token, a `hub_strategy` that uploads checkpoints, or
            a private repository is asked for and a public one of that name exists.
        OSError: a private repository is asked for, and the Hub cannot be reached.
    """
    repository = repository_of(args)
    validate_repo_id(repository)
    check_strategy(args)
    if (args.hub_token or get_token()) is None:
        raise ValueError("no token for the Hub (run `hf auth login`, or set HF_TOKEN)")
    if args.hub_private_repo:
        check_private(HfApi(token=args.hub_token, library_name="minibert"), repository)


def check_private(api: HfApi, repository: str) -> None:
    """Refuse (a ValueError) a repository that exists and is public; one that does not exist yet
    passes."""
    with hub_errors():
        if "/" not in repository:
            repository = f"{api.whoami()['name']}/{repository}"
        try:
            is_private = api.repo_info(repository).private
        except RepositoryNotFoundError:
            is_private = True
    if not is_private:
        raise ValueError(
            f"{repository} exists already and is public; give another name, or do not ask for a"
            " private repository"
        )


def check_strategy(args: TrainingArguments) -> None:
    """Refuse (a ValueError) a `hub_strategy` that uploads what only a training needs."""
    if args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
        name = args.hub_strategy.value
        raise ValueError(
            f"hub_strategy: {name!r} would upload pickles and optimizer state; use every_save or"
            " end"
        )


def repository_of(args: TrainingArguments) -> str:
    return args.hub_model_id or Path(args.output_dir).absolute().name


def _check_model(folder: Path, source: Path) -> None:
    """Refuse (a ValueError) a folder that holds no whole model. `source` is what the error calls
    it: a copy has the name of its original."""
    if not folder.is_dir():
        raise ValueError(f"folder: {str(source)!r} does not exist, or is not a folder")
    if (folder / "adapter_config.json").exists():
        raise ValueError(
            f"{source}: only an adapter; merge it into the model first (model.merge_and_unload())"
        )
    name = find_missing_file(folder)
    if name is not None:
        raise ValueError(
            f"{source}: {name} is missing, or is a link, which does not go up;"
            " save_pretrained(folder) of model and tokenizer writes it"
        )


def is_whole_model(folder: Path) -> bool:
    """Whether a folder has all files that `verify_remote_code` loads, of a MiniBERT. A ValueError
    if its index of weights cannot be read."""
    if find_missing_file(folder) is not None:
        return False
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    return config.get("model_type") == MiniBertConfig.model_type


def find_missing_file(folder: Path) -> str | None:
    """The name of the first file of a whole model that a folder lacks, or None. The weights are one
    file, or all those that an index names. A ValueError if that index cannot be read."""
    for name in REQUIRED_FILES:
        if not (folder / name).is_file():
            return name
    if (folder / WEIGHTS_FILE).is_file():
        return None
    if not (folder / WEIGHTS_INDEX).is_file():
        return WEIGHTS_FILE
    for name in read_shard_names(folder):
        if not (folder / name).is_file():
            return name
    return None


def read_shard_names(folder: Path) -> list[str]:
    """The files of weights that the index in a folder names.

    Raises:
        ValueError: The index is not JSON, names no file, or a name is no plain one of a file in the
            same folder.
    """
    index = read_settings(folder / WEIGHTS_INDEX, WEIGHTS_INDEX)
    weight_map = None
    if isinstance(index, dict):
        weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{folder}: {WEIGHTS_INDEX} names no file of weights; save the model again"
        )
    for name in weight_map.values():
        if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name):
            quoted_name = printable(repr(name)[:MAX_NAME_LENGTH])
            raise ValueError(
                f"{folder}: {WEIGHTS_INDEX} names {quoted_name}, which is no safetensors file"
                " beside it; save the model again"
            )
    return sorted(set(weight_map.values()))


def verify_remote_code(folder: str | Path) -> dict[str, Any]:
    """Load the folder in a clean process without the package and without secrets: every Auto class,
    the saved head run (`verify_remote_code.py`, whose findings are returned: `saved`,
    `auto_classes`, `versions`). A ValueError says why it does not load there."""
    with tempfile.TemporaryDirectory() as home:
        environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        # The token of `hf auth login` lies in the home folder.
        environment |= dict.fromkeys(("HOME", "USERPROFILE", "HF_HOME"), home)
        environment |= {
            "TRANSFORMERS_VERBOSITY": "error",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        # libraries may lie anywhere
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, str(VERIFY_SCRIPT), str(folder)]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=home)
    if result.returncode:
        reason = (result.stderr.strip() or "no reason given").splitlines()[-1]
        raise ValueError(f"without the package the model does not load: {printable(reason)}")
    return json.loads(result.stdout.splitlines()[-1])


def upload(
    api: HfApi,
    staging_folder: Path,
    repository: str,
    revision: str | None,
    message: str,
    wait: bool = True,
) -> CommitInfo | Future:
    """Commit a folder that `stage` has filled, on a branch that is made if it is not there."""
    if revision:
        api.create_branch(repository, branch=revision, exist_ok=True)
    code = [path.name for path in staging_folder.glob("*.py")]
    return api.upload_folder(
        repo_id=repository,
        folder_path=staging_folder,
        revision=revision,
        commit_message=message,
        allow_patterns=[*ALLOWED, *code],
        delete_patterns=REPLACED_FILES,
        run_as_future=not wait,
    )


@contextmanager
def hub_errors(*pushed: str | os.PathLike, **options: Any) -> Iterator[None]:
    """Make any error an OSError of one line: each library has errors of its own for a dead line or
    a refusal.

    Args:
        pushed: A folder and a repository, if the error is to end with the command that tries again.
        options: The options of that command; those that are None or false are left out.
    """
    try:
        yield
    except Exception as error:
        message = " ".join(str(error).split()) or repr(error)
        message = f"the Hub: {message}"
        if pushed:
            message += f"; to try again: {_push_command(pushed, options)}"
        raise OSError(message) from error


def _push_command(arguments: Sequence[str | os.PathLike], options: Mapping[str, Any]) -> str:
    words = ["minibert", "push", *map(str, arguments)]
    for name, value in options.items():
        if value is True:
            words += [f"--{name}", "true"]
        elif value:
            words += [f"--{name}", str(value)]
    return shlex.join(words)
