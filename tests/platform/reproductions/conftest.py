"""A small study of our own, and its folder."""

from typing import Any

import pytest

from ebclab.errors import ConfigError
from ebclab.reproductions.study import Study, parse_study

TINY = ["data.name=digits", "data.train_limit=32", "data.holdout_rate=0.0", "encoder.width=4", "training.epochs=1"]
TINY += ["training.batch_size=16", "evaluation.knn_every=0", "resources.threads=1"]
SCALES = {"smoke": {"set": TINY}, "small": {"seeds": [0, 1, 2]}, "paper": {"not_run": "nobody has the images"}}
ABOUT = {"title": "Temperatures", "asks": "Does the temperature matter?", "source": "A paper, table 9"}


def study_mapping(**changes: Any) -> dict[str, Any]:
    """Return a whole study as plain values: two rows, two columns that share a run; sections may be replaced."""
    return {
        "about": ABOUT | {"numbers": "Printed."},
        "columns": {
            "knn": {"title": "kNN", "measure": "knn"},
            "ess": {"title": "ESS", "measure": "log/ess", "unit": "plain"},
        },
        "rows": {
            "cold": {"title": "cold", "method": "simclr", "set": ["method.temperature=0.1"]},
            "warm": {"title": "warm", "method": "simclr", "set": ["method.temperature=0.5"]},
        },
        "published": {"cold": {"knn": 50.0}},
        "scales": SCALES,
    } | changes


def study_of(**changes: Any) -> Study:
    """Return the small study; sections may be replaced."""
    return parse_study("some/table9", study_mapping(**changes), "table9.yaml")


def refused(**changes: Any) -> list[str]:
    """Return what is said of a study with mistakes in these sections."""
    with pytest.raises(ConfigError) as caught:
        study_of(**changes)
    return [line.removeprefix("table9.yaml: ") for line in caught.value.problems]


@pytest.fixture
def study() -> Study:
    """The small study."""
    return study_of()
