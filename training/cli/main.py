"""The console command `minibert`: finds the command, prints help and errors. `parsing` reads the arguments."""

import contextlib
import os
import re
import sys
from collections.abc import Sequence

from ..files import use_writable_cache
from .commands import COMMANDS
from .parsing import build_parser, close_matches, run_command

# What libraries say of themselves would bury our tables; set these yourself to hear it.
QUIET = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return the exit status.

    Bad input (ValueError, OSError) and a package that is missing (ImportError) are printed as one line and give 2;
    `--traceback` shows where it came from instead. Of several processes (torchrun, accelerate launch) only the first
    one prints.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    use_writable_cache()
    if hasattr(sys.stdout, "reconfigure"):  # of Windows and old terminals, many cannot show an arrow
        sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    try:
        for word in argv:
            if re.search("[\ud800-\udfff]", word):  # what Python makes of other bytes, and no tokenizer takes
                raise ValueError(f"{word!r} is not UTF-8; give text in UTF-8, and rename a file or folder")
        rank = int(os.environ.get("RANK", 0))
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere if rank > 0 else sys.stdout):
            status = run([argument for argument in argv if argument != "--traceback"])
        # A process that ends with its group open may be aborted (pytorch#190489), and the launcher then kills others
        # that may still be saving. Not after an error: they could wait for each other.
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
        return status
    except (KeyboardInterrupt, ValueError, OSError, ImportError) as error:
        if "--traceback" in argv:
            raise
        if isinstance(error, KeyboardInterrupt):
            print("\nminibert: interrupted; what was saved until now is where it was", file=sys.stderr)
            return 130
        print(f"minibert: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def run(argv: list[str]) -> int:
    """Run a command line and return the exit status: a result's `exit_status`, or the result, if it is a number."""
    group = argv[0] if argv and argv[0] not in COMMANDS and _tasks(argv[0]) else None
    if argv[:1] in ([], ["-h"], ["--help"]) or (group and argv[1:2] in (["-h"], ["--help"])):
        print(overview(group))
        return 0
    name, rest = split_command(argv)
    if {"-h", "--help", "--help-all"} & {*rest}:
        build_parser(name, everything="--help-all" in rest).print_help()
        return 0
    result = run_command(name, rest)
    return result if isinstance(result, int) else getattr(result, "exit_status", 0)


def split_command(argv: list[str]) -> tuple[str, list[str]]:
    """The command, of one word or of two ("finetune tag"), and what follows it."""
    for words in (2, 1):
        name = " ".join(argv[:words])
        if name in COMMANDS:
            return name, argv[words:]
    tasks = _tasks(argv[0])
    if tasks:
        given = f"{argv[1]!r} is unknown" if argv[1:] else "of what?"
        raise ValueError(f"minibert {argv[0]}: {given}; use one of {', '.join(tasks)}")
    raise ValueError(f"unknown command {argv[0]!r}{close_matches(argv[0], COMMANDS)}; use one of {', '.join(COMMANDS)}")


def _tasks(group: str) -> list[str]:
    """The second words of the commands that begin with `group` (such as "finetune")."""
    return [name.split()[1] for name in COMMANDS if name.startswith(f"{group} ")]


def overview(group: str | None = None) -> str:
    """What `minibert --help` prints, or `minibert GROUP --help` (as of "finetune") of its commands."""
    shown = {name: command for name, command in COMMANDS.items() if group in (None, name.split()[0])}
    width = max(map(len, shown))
    lines = [f"  {name:{width}}  {command.help}" for name, command in shown.items()]
    usage = f"usage: minibert {group} TASK [arguments]" if group else "usage: minibert COMMAND [arguments]"
    last = "minibert COMMAND --help shows its arguments; --traceback shows where an error came from."
    return "\n".join([usage, "", "commands:", *lines, "", last])
