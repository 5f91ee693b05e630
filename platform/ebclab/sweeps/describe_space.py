"""A search space in words."""

from __future__ import annotations

from ebclab.config import ExperimentConfig
from ebclab.config.check import shown
from ebclab.sweeps.space.check import own_settings
from ebclab.sweeps.space.space import Space


def describe_space(space: Space, config: ExperimentConfig) -> list[tuple[str, str, str]]:
    """Return the settings that ``space`` searches, each with its range in words and its value in ``config``.

    Args:
        space: A space that ``check_space`` found to fit.
        config: Settings of the run.
    """
    own = own_settings(space, config)
    return [(name, parameter.in_words(), _plain(own[name])) for name, parameter in space.by_name.items()]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else shown(value)
