"""Recipes: YAML files of options."""

import json
from pathlib import Path
from typing import Any

from ...option_checks import close_matches

MAX_YAML_DEPTH = 20
RECIPES = Path(__file__).parents[1] / "pretraining" / "recipes"


def read_recipe(path: str) -> dict[str, Any]:
    """The options in a YAML file, or in the recipe of ours that has this name: scalars as text, as
    on the command line (`no`, `1e-5`), mappings and null as YAML reads them."""
    import yaml

    file = find_recipe(path)
    source = file.read_bytes()
    try:
        check_yaml(source, path)
        values = yaml.safe_load(source) or {}
        texts = yaml.load(source, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"recipe: {path!r} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"recipe: {path!r} has no 'option: value' lines")
    options = {}
    for key, value in values.items():
        if value is None or isinstance(value, dict):
            options[str(key)] = value
        else:
            options[str(key)] = texts[str(key)]
    return options


def find_recipe(path: str) -> Path:
    """The file of a recipe, given its path or the name of one of ours."""
    if Path(path).is_file():
        return Path(path)
    builtin_recipes = {file.stem: file for file in RECIPES.glob("*.yaml")}
    if path not in builtin_recipes:
        raise ValueError(
            f"recipe: there is no file {path!r}{close_matches(path, builtin_recipes)};"
            f" use a YAML file, or one of {', '.join(sorted(builtin_recipes))}"
        )
    return builtin_recipes[path]


def check_yaml(source: bytes, path: str) -> None:
    """Refuse (a ValueError) YAML that a few bytes can make too large or too deep for memory."""
    import yaml

    depth = 0
    for event in yaml.parse(source, yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.AliasEvent) or depth > MAX_YAML_DEPTH:
            raise ValueError(
                f"recipe: {path!r} has aliases (*), or more than {MAX_YAML_DEPTH} levels; "
                "write the values out"
            )


def recipe_arguments(recipe: dict[str, Any], actions: dict[str, Any]) -> list[str]:
    """A recipe as words of a command line that others can follow. Lists come first, and `--recipe=`
    ends the last of them: it would else take in the words that follow.

    Args:
        actions: The parser's actions, by option.
    """
    list_arguments = []
    arguments = ["--recipe="]
    for key, value in recipe.items():
        if isinstance(value, list):
            if actions[key].nargs != "+":
                raise ValueError(f"{key}: {value!r} is a list; give one value")
            list_arguments += [f"--{key}", *map(str, value)]
        elif isinstance(value, dict):
            arguments.append(f"--{key}={json.dumps(value)}")
        elif value is not None:
            arguments.append(f"--{key}={value}")
    return list_arguments + arguments
