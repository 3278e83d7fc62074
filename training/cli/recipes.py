"""Recipes: YAML files of options."""

import json
from pathlib import Path
from typing import Any

from .options import close_matches

MOST_LEVELS = 20  # of a recipe
RECIPES = Path(__file__).parents[1] / "pretraining" / "recipes"


def read_recipe(path: str) -> dict[str, Any]:
    """The options in a YAML file, or in the recipe of ours that has this name: scalars as text, as on the command line
    (`no`, `1e-5`), mappings and null as YAML reads them."""
    import yaml

    ours = {file.stem: file for file in RECIPES.glob("*.yaml")}
    file = Path(path) if Path(path).is_file() else ours.get(path)
    if file is None:
        known = f"use a YAML file, or one of {', '.join(sorted(ours))}"
        raise ValueError(f"recipe: there is no file {path!r}{close_matches(path, ours)}; {known}")
    text, level = file.read_bytes(), 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                event, yaml.CollectionEndEvent
            )
            if isinstance(event, yaml.AliasEvent) or level > MOST_LEVELS:
                use = "write the values out"
                raise ValueError(
                    f"recipe: {path!r} has aliases (*), or more than {MOST_LEVELS} levels; {use}"
                )
        values, texts = yaml.safe_load(text) or {}, yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"recipe: {path!r} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"recipe: {path!r} has no 'option: value' lines")
    return {
        str(key): value if isinstance(value, dict | None) else texts[str(key)]
        for key, value in values.items()
    }


def words_of(recipe: dict[str, Any], actions: dict[str, Any]) -> list[str]:
    """A recipe as words of a command line that more can follow: the last list ends where `--recipe=` begins."""
    lists, words = [], ["--recipe="]
    for key, value in recipe.items():
        if isinstance(value, list):
            if actions[key].nargs != "+":
                raise ValueError(f"{key}: {value!r} is a list; give one value")
            lists += [f"--{key}", *map(str, value)]
        elif value is not None:
            words.append(f"--{key}={json.dumps(value) if isinstance(value, dict) else value}")
    return lists + words
