"""The command line `minibert`: a command is a public function, and its options are the parameters
of that function.

`COMMANDS` says which function a command runs. The options, their types and defaults come from the
function's signature, their help from its docstring, and `HfArgumentParser` of Transformers reads
them, together with the fields of a training config where the command trains. Nothing heavy is
imported before a command is known: `minibert --help` and `minibert --version` answer at once.
"""

import contextlib
import glob
import os
import sys
from collections.abc import Iterator, Sequence

from ... import __version__
from ...option_checks import close_matches
from ..common.paths import use_writable_cache
from ..common.printable import printable
from ..data.formats import FORMATS
from .commands import COMMANDS
from .parser import build_parser, parse

# Packages that only some commands need, and what installs them.
EXTRAS = {
    "peft": "peft",
    "onnx": "onnx onnxruntime",
    "onnxruntime": "onnx onnxruntime",
    "mteb": "mteb",
}
# In the names or texts of errors of libraries that are no fault of ours.
OUT_OF_MEMORY_MARKS = (
    "MemoryError",
    "allocate memory",
    "Storage size calculation overflowed",
    "out of memory",
)
LIBRARY_ERROR_MARKS = (
    "SafetensorError",
    "PytorchStreamWriter",
    "(os error ",
    "PanicException",
    "StrictDataclass",
)
# The first words of the commands that train, which can be resumed.
TRAINING_COMMANDS = ("pretrain", "finetune")
# Options whose value is a file, a folder or a name of the Hub, and those with a list of such
# values.
PATH_OPTIONS = {
    "file",
    "model",
    "model_name_or_path",
    "tokenizer",
    "extend",
    "miner",
    "embedder",
    "reranker",
    "source",
}
PATH_LIST_OPTIONS = {"data", "train", "validation", "test", "corpus"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return the exit status.

    Bad input, a file that cannot be read or written and a package that is missing give one line and
    2; `--traceback` shows where it came from. Of several processes (torchrun, accelerate launch)
    only the first prints.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    set_up_console()
    try:
        # Refuse what Python makes of bytes that are not UTF-8: no tokenizer takes it.
        " ".join(argv).encode()
        use_writable_cache()
        with silence_other_ranks():
            run_command([word for word in argv if word != "--traceback"])
        leave_process_group()
        return 0
    except BaseException as error:
        explanation = explain(error, argv)
        if explanation is None or "--traceback" in argv:
            raise
        print(f"minibert: {printable(explanation)}", file=sys.stderr)
        return 130 if isinstance(error, KeyboardInterrupt) else 2


def set_up_console() -> None:
    """Let our tables be all that is printed, and let every terminal show them."""
    # Libraries' progress bars and notes would bury our tables; a variable that is set already
    # stays.
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # On Windows and old terminals, many cannot show an arrow. (A notebook's streams have no
    # `reconfigure`.)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")


@contextlib.contextmanager
def silence_other_ranks() -> Iterator[None]:
    """Of several processes, only the first prints."""
    if int(os.environ.get("RANK", 0)) == 0:
        yield
        return
    with open(os.devnull, "w") as devnull, contextlib.redirect_stdout(devnull):
        yield


def leave_process_group() -> None:
    """A process that ends with its group open may be aborted (pytorch#190489), and the launcher
    then kills others that may still be saving. Not called after an error: the processes could wait
    for each other."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def explain(error: BaseException, argv: Sequence[str]) -> str | None:
    """The line for an error that the user can do something about; None for a fault of ours.

    Args:
        argv: The command line.
    """
    message = " ".join(str(error).split())
    error_name = type(error).__name__
    searched = f"{error_name} {message}"
    if isinstance(error, KeyboardInterrupt):
        if argv and argv[0] in TRAINING_COMMANDS:
            return "interrupted; a training goes on with --resume_from_checkpoint true"
        return "interrupted"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"error: this needs {error.name}: pip install {EXTRAS[error.name]}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return f"error: {message}"
    if any(mark in searched for mark in OUT_OF_MEMORY_MARKS):
        return (
            "error: the memory is too small; use a smaller model, batch or seq_length: "
            f"{message[:200]}"
        )
    if any(mark in searched for mark in LIBRARY_ERROR_MARKS):
        return f"error: {error_name}: {message[:200]}"
    return None


def run_command(argv: Sequence[str]) -> None:
    """Run a command line."""
    if asks_for_overview(argv):
        print(overview())
        return
    if argv[0] == "--version":
        print(f"minibert {__version__}")
        return
    command_name, arguments = split_command(argv)
    if "-h" in arguments or "--help" in arguments:
        build_parser(command_name).print_help()
        return
    check_path_options(command_name, arguments)
    function, keywords = parse(command_name, arguments)
    function(**keywords)


def asks_for_overview(argv: Sequence[str]) -> bool:
    """Whether a command line is empty, `--help`, or `finetune --help`, which is a group of
    commands."""
    if not argv:
        return True
    if argv[0] in ("-h", "--help"):
        return len(argv) == 1
    return argv[1:] in (["-h"], ["--help"]) and argv[0] not in COMMANDS


def split_command(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The command, of one word or of two ("finetune tag"), and what follows it."""
    for num_words in (2, 1):
        command_name = " ".join(argv[:num_words])
        if command_name in COMMANDS:
            return command_name, list(argv[num_words:])
    group = argv[0]
    tasks = [name.split()[1] for name in COMMANDS if name.startswith(f"{group} ")]
    if tasks and argv[1:]:
        raise ValueError(f"task: {argv[1]!r} is unknown; use one of {', '.join(tasks)}")
    if tasks:
        raise ValueError(f"task: {group} needs one; use one of {', '.join(tasks)}")
    raise ValueError(
        f"unknown command {group!r}{close_matches(group, COMMANDS)}; "
        "`minibert --help` shows them all"
    )


def check_path_options(command_name: str, argv: Sequence[str]) -> None:
    """Refuse (a ValueError) a missing file before the imports of seconds that the command needs.
    What may be a glob or a name of the Hub is left to the command."""
    option = "".join(COMMANDS[command_name].positional[:1])
    for word in argv:
        value = word
        if word.startswith("--"):
            option, _, value = word[2:].partition("=")
        if option in PATH_OPTIONS | PATH_LIST_OPTIONS:
            check_path(option, value)
        if value and option not in PATH_LIST_OPTIONS:
            option = ""  # it has its value


def check_path(option: str, value: str) -> None:
    path = value
    if not os.path.exists(path):
        path = value.rpartition("=")[2]  # de=file.txt
    is_local = (
        option == "file"
        or path.startswith((".", "/", "~", "runs/"))
        or path.count("/") > 1
        or path.endswith(tuple(FORMATS))
    )
    if not is_local or path in ("", "-") or glob.has_magic(path):
        return
    if not os.path.exists(os.path.expanduser(path)):
        raise ValueError(f"{option}: {path!r} does not exist")


def overview() -> str:
    """The commands, each with its one-line help."""
    lines = ["usage: minibert COMMAND [options]", "", "commands:"]
    for command_name, command in COMMANDS.items():
        lines.append(f"  {command_name:19}{command.help}")
    lines.append("")
    lines.append(
        "`minibert COMMAND --help` shows its options; --version; --traceback shows where an error"
        " came from."
    )
    return "\n".join(lines)
