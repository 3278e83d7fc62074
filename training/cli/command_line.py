"""The command line `minibert`: a command is a public function, and its options are the parameters of that function.

`COMMANDS` says which function a command runs. The options, their types and defaults come from the function's signature,
their help from its docstring, and `HfArgumentParser` of Transformers reads them, together with the fields of a training
config where the command trains. Nothing heavy is imported before a command is known: `minibert --help` and
`minibert --version` answer at once.
"""

import contextlib
import glob
import os
import sys
from collections.abc import Sequence

from ... import __version__
from ..common.files import printable, use_writable_cache
from .commands import COMMANDS
from .options import close_matches
from .parser import build_parser, parse

# Packages that only some commands need, and what installs them.
EXTRAS = {
    "peft": "peft",
    "onnx": "onnx onnxruntime",
    "onnxruntime": "onnx onnxruntime",
    "mteb": "mteb",
}
# In the names or texts of errors of libraries that are no fault of ours.
OUT_OF_MEMORY = (
    "MemoryError",
    "allocate memory",
    "Storage size calculation overflowed",
    "out of memory",
)
FOREIGN = (
    "SafetensorError",
    "PytorchStreamWriter",
    "(os error ",
    "PanicException",
    "StrictDataclass",
)
# Options whose values are files, folders or names of the Hub: one each, or several.
PATHS = {
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
LISTS = {"data", "train", "validation", "test", "corpus"}
SUFFIXES = (".txt", ".json", ".jsonl", ".ndjson", ".jsonlines", ".csv", ".tsv", ".parquet")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return the exit status.

    Bad input, a file that cannot be read or written and a package that is missing give one line and 2; `--traceback`
    shows where it came from. Of several processes (torchrun, accelerate launch) only the first prints.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    # Libraries' progress bars and notes would bury our tables; a variable that is set already stays.
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if hasattr(
        sys.stdout, "reconfigure"
    ):  # on Windows and old terminals, many cannot show an arrow
        sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    try:
        " ".join(
            argv
        ).encode()  # refuses what Python makes of bytes that are not UTF-8, which no tokenizer takes
        use_writable_cache()
        first = int(os.environ.get("RANK", 0)) == 0
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(sys.stdout if first else nowhere),
        ):
            run([word for word in argv if word != "--traceback"])
        # A process that ends with its group open may be aborted (pytorch#190489), and the launcher then kills others
        # that may still be saving. Not after an error: they could wait for each other.
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
        return 0
    except BaseException as error:
        said = explain(error)
        if said is None or "--traceback" in argv:
            raise
        print(f"minibert: {printable(said)}", file=sys.stderr)
        return 130 if isinstance(error, KeyboardInterrupt) else 2


def explain(error: BaseException) -> str | None:
    """The line for an error that the user can do something about; None for a fault of ours."""
    said, name = " ".join(str(error).split()), type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; a training goes on with --resume_from_checkpoint true"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"error: this needs {error.name}: pip install {EXTRAS[error.name]}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return f"error: {said}"
    if any(mark in f"{name} {said}" for mark in OUT_OF_MEMORY):
        return f"error: the memory is too small; use a smaller model, batch or seq_length: {said[:200]}"
    return (
        f"error: {name}: {said[:200]}"
        if any(mark in f"{name} {said}" for mark in FOREIGN)
        else None
    )


def run(argv: Sequence[str]) -> None:
    """Run a command line."""
    if argv[:1] in ([], ["-h"], ["--help"]) or (
        argv[1:] in (["-h"], ["--help"]) and argv[0] not in COMMANDS
    ):
        return print(overview())
    if argv[0] == "--version":
        return print(f"minibert {__version__}")
    name, rest = split_command(argv)
    if {"-h", "--help"} & {*rest}:
        return build_parser(name).print_help()
    check_paths(name, rest)
    function, keywords = parse(name, rest)
    function(**keywords)


def split_command(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The command, of one word or of two ("finetune tag"), and what follows it."""
    for words in (2, 1):
        name = " ".join(argv[:words])
        if name in COMMANDS:
            return name, list(argv[words:])
    if tasks := [name.split()[1] for name in COMMANDS if name.startswith(f"{argv[0]} ")]:
        problem = f"Unknown task {argv[1]!r}" if argv[1:] else "Missing task"
        raise ValueError(f"minibert {argv[0]}: {problem}. Choose one of: {', '.join(tasks)}")
    raise ValueError(
        f"unknown command {argv[0]!r}{close_matches(argv[0], COMMANDS)}; `minibert --help` shows them all"
    )


def check_paths(name: str, argv: Sequence[str]) -> None:
    """Refuse (a ValueError) a missing file before the imports of seconds that the command needs. What may be a glob or
    a name of the Hub is left to the command."""
    option = "".join(COMMANDS[name].positional[:1])
    for word in argv:
        if word.startswith("--"):
            option, _, word = word[2:].partition("=")
        path = word if os.path.exists(word) else word.rpartition("=")[2]  # de=file.txt
        local = (
            option == "file"
            or path.startswith((".", "/", "~"))
            or path.count("/") > 1
            or path.endswith(SUFFIXES)
        )
        missing = local and path not in ("", "-") and not glob.has_magic(path)
        if option in PATHS | LISTS and missing and not os.path.exists(os.path.expanduser(path)):
            raise ValueError(f"{option}: {path!r} does not exist")
        if word and option not in LISTS:
            option = ""  # it has its value


def overview() -> str:
    """The commands, each with its one-line help."""
    lines = [f"  {name:19}{command.help}" for name, command in COMMANDS.items()]
    last = "`minibert COMMAND --help` shows its options; --version; --traceback shows where an error came from."
    return "\n".join(["usage: minibert COMMAND [options]", "", "commands:", *lines, "", last])
