"""The files of a saved model, in a folder or on the Hub."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download, is_offline_mode
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from .foreign_code import check_modules
from .linked_files import check_links
from .load_errors import wrap_load_errors

RUNS_FOLDER = "runs/"  # where commands save by default
# Where sentence-transformers looks for the longest text, first to last.
SENTENCE_CONFIGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


def find_file(source: str | Path, name: str) -> Path | None:
    """A file of a folder or a Hub repository. None if it has none, or if it is not in the cache in
    offline mode."""
    if Path(source).exists():
        path = Path(source, name)
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(str(source), name))
    except LocalEntryNotFoundError:
        if not is_offline_mode():
            raise
    except EntryNotFoundError:
        pass
    return None


def read_json(source: str | Path, name: str) -> Any:
    """The content of a JSON file that may be missing (an empty dictionary then)."""
    file = find_file(source, name)
    if file is None:
        return {}
    with wrap_load_errors(source):
        return json.loads(file.read_text(encoding="utf-8"))


def modules_of(source: str | Path) -> list[dict[str, str]]:
    """The modules of which sentence-transformers makes a model, the encoder first; none if it does
    not know it. A ValueError if they, or the files that belong to them, name code of others."""
    modules = read_json(source, "modules.json")
    if modules == {}:
        return []
    settings = {}
    check_modules(modules, settings, str(source))  # before a path of theirs is read
    names = ["config_sentence_transformers.json", *SENTENCE_CONFIGS]
    for module in modules:
        if module["path"]:
            names.append(f"{module['path']}/config.json")
    for name in names:
        settings[name] = read_json(source, name)
        if not isinstance(settings[name], dict):
            raise ValueError(f"{source}: {name} is no JSON object; save the model again")
    check_modules(modules, settings, str(source))
    return modules


def check_exists(path: str | Path) -> None:
    """Refuse (a ValueError) the name of a folder that does not exist and can be no Hub name: our
    commands save in `runs`; and a folder whose files are elsewhere (`linked_files.check_links`)."""
    name = str(path)
    if Path(name).is_dir():
        check_links(Path(name))
    is_folder_name = name.startswith((RUNS_FOLDER, ".", "/", "~")) or name.count("/") > 1
    if is_folder_name and not Path(name).expanduser().exists():
        raise ValueError(
            f"there is no folder {name!r}; give the folder of a saved model, or a Hub name"
        )


def check_no_adapter(folder: str | Path) -> None:
    """Refuse (a ValueError) a folder or Hub repository with an adapter, which would bring a model
    from elsewhere."""
    with wrap_load_errors(folder):
        file = find_file(folder, "adapter_config.json")
    if file is not None:
        raise ValueError(
            f"model: {str(folder)!r} holds an adapter without its model. Merge the two and save"
            " the result: peft.AutoPeftModel.from_pretrained(folder).merge_and_unload()"
            ".save_pretrained(new_folder)"
        )
