"""The settings of a run: typed, with every mistake reported at once, and named recipes.

Start with ``sections.py`` and ``experiment.py``; ``recipes.compose`` makes settings from a command line.
"""

from ebclab.config.describe import to_yaml
from ebclab.config.experiment import ExperimentConfig, to_mapping
from ebclab.config.listings import cost_rows, listing
from ebclab.config.names import did_you_mean, nearest
from ebclab.config.overrides import apply_overrides, read_overrides
from ebclab.config.parse import parse_experiment, parse_yaml
from ebclab.config.recipes import compose, compose_for_user, list_recipes, load_recipe, recipe_text
from ebclab.config.view_recipes import VIEW_RECIPES
from ebclab.config.yaml_text import load_yaml_file

__all__ = [
    "VIEW_RECIPES",
    "ExperimentConfig",
    "apply_overrides",
    "compose",
    "compose_for_user",
    "cost_rows",
    "did_you_mean",
    "list_recipes",
    "listing",
    "load_recipe",
    "load_yaml_file",
    "nearest",
    "parse_experiment",
    "parse_yaml",
    "read_overrides",
    "recipe_text",
    "to_mapping",
    "to_yaml",
]
