"""Which code may go up to the Hub with a model: ours, and with `--trust_remote_code true` files
that lie in its folder. A name that leads out of the folder is never allowed."""

import re
from pathlib import Path

from ..common.printable import printable
from ..loading.code_references import FILE_AND_CLASS, LONGEST_NAME, PYLATE_PREFIX, references_in

RELATIVE_IMPORT = re.compile(r"^\s*(?:from|import)\s+\.(\S+)", re.MULTILINE)


def check_published_code(folder: Path, trust_remote_code: bool = False) -> list[str]:
    """Refuse (a ValueError) a folder that names other code than ours and that of libraries.

    With `trust_remote_code`, files of Python in the folder are allowed, too; their names are
    returned. Whether our files in the folder are as in this package, the caller checks.
    """
    own_files = []
    for reference in references_in(folder):
        if reference.is_of_library or reference.is_ours:
            continue
        is_pylate = reference.key == "type" and reference.name.startswith(PYLATE_PREFIX)
        if not FILE_AND_CLASS.fullmatch(reference.name) and not is_pylate:
            raise ValueError(
                f"{reference}, which is no class of a file in the folder: code elsewhere is never"
                " run and never published; remove the name"
            )
        if not trust_remote_code:
            raise ValueError(
                f"{reference}, which is no code of this package: remove the name; or read the code"
                " and give --trust_remote_code true, which runs and publishes it"
            )
        if not is_pylate:
            own_files.append(f"{reference.name.partition('.')[0]}.py")
    return list(dict.fromkeys(own_files))


def relative_imports(file: Path) -> list[str]:
    """The files beside a file of Python that it imports (`from .name import …`), as Transformers
    looks for them; a ValueError for one in another folder."""
    names = []
    for module in RELATIVE_IMPORT.findall(file.read_text(encoding="utf-8", errors="replace")):
        if not re.fullmatch(r"[A-Za-z_]\w*", module, re.ASCII):
            raise ValueError(
                f"{file.name} imports {printable(repr('.' + module[:LONGEST_NAME]))}; only files"
                " beside it can go up"
            )
        names.append(f"{module}.py")
    return names
