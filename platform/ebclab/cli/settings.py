"""Settings from options that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebclab.config import ExperimentConfig


def as_assignments(given: Mapping[str, object], short: Mapping[str, str], assignments: list[str]) -> list[str]:
    """Return options that are settings as ``--set`` has them, before the user's own so that these win.

    Args:
        given: Value of each option by name; None where it was left out.
        short: The options that are settings, each with the setting's key.
        assignments: The user's own.
    """
    options = {key: given[name] for name, key in short.items() if given[name] is not None}
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in options.items()] + assignments


def composed(method: str, recipe: str | None, config: str | None, overrides: list[str]) -> ExperimentConfig:
    """Return the settings that a command line asks for.

    Args:
        method: Name of the method.
        recipe: Name of a recipe.
        config: YAML file, by path or by address.
        overrides: Texts of ``--set``.

    Raises:
        UserError: A file cannot be read, or settings are wrong.
    """
    from ebclab.config import compose, load_yaml_file
    from ebclab.storage.object_store import fetched

    return compose(method, recipe, None if config is None else load_yaml_file(fetched(config)), overrides)
