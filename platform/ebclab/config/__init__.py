"""The settings of a run: typed, with every mistake reported at once, and named recipes.

Start with ``sections.py`` and ``experiment.py``; ``recipes.compose`` makes settings from a command line.
"""

from ebclab.config.experiment import ExperimentConfig, parse_experiment, parse_yaml, to_mapping, to_yaml
from ebclab.config.names import did_you_mean
from ebclab.config.recipes import compose, compose_for_user, list_recipes, load_recipe
from ebclab.config.sections import VIEW_RECIPES
from ebclab.config.yaml_text import load_yaml_file

__all__ = [
    "VIEW_RECIPES",
    "ExperimentConfig",
    "compose",
    "compose_for_user",
    "did_you_mean",
    "list_recipes",
    "load_recipe",
    "load_yaml_file",
    "parse_experiment",
    "parse_yaml",
    "to_mapping",
    "to_yaml",
]
