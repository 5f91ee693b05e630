from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ebclab.config import ExperimentConfig, compose, parse_experiment, to_mapping
from ebclab.errors import ConfigError
from ebclab.sweeps.space import check as space_check
from ebclab.sweeps.space.check import apply_settings, describe_space, space_problems
from ebclab.sweeps.space.space import Space, own_settings, parse_space
from energy_contrast.settings import setting


@dataclass(frozen=True)
class NoisyConfig:
    """Settings with a rule across two of them."""

    sigma_min: float = setting(0.01, "Smallest noise.", minimum=0.0)
    sigma_max: float = setting(0.05, "Largest noise.", minimum=0.0)
    generative_weight: float = setting(0.1, "Weight.", minimum=0.0, maximum=1.0)
    num_steps: int = setting(10, "Steps.", minimum=1)

    def problems(self) -> list[str]:
        """Smallest and largest are what they are called."""
        return ["sigma_min: must not exceed sigma_max"] if self.sigma_min > self.sigma_max else []


@pytest.fixture
def noisy() -> ExperimentConfig:
    """Settings of a method that the catalogue does not have."""
    methods: Any = {"noisy": SimpleNamespace(Config=NoisyConfig)}
    return parse_experiment({"method": {"name": "noisy"}, "training": {"batch_size": 64}}, methods)


def space(**parameters: Any) -> Space:
    return parse_space({"parameters": {key.replace("__", "."): value for key, value in parameters.items()}}, "s.yaml")


def problems_of(config: ExperimentConfig, *, live: bool = False, **parameters: Any) -> list[str]:
    return space_problems(space(**parameters), config, searched_live_only=live)


UNIT = {"uniform": [0, 1]}
INT = {"int": [1, 3]}
WORDS = {"choice": ["wide", "narrow"]}


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("method.lambda", UNIT, "no such setting; did you mean method.generative_weight (lambda in the paper)?"),
        ("lambda", UNIT, "no such setting; did you mean method.generative_weight (lambda in the paper)?"),
        ("method.sigma_mx", UNIT, "no such setting; did you mean method.sigma_max?"),
        ("lr", UNIT, "no such setting; did you mean optimizer.learning_rate?"),
        ("optimiser.lr", UNIT, "no such setting; did you mean optimizer.learning_rate?"),
        ("optimizer.speed", UNIT, "no such setting; settings of optimizer: name, learning_rate"),
        ("optimizer", UNIT, "a section, not a setting; settings of optimizer: name, learning_rate"),
        ("data.train_limit", INT, "not for a sweep: scores on different images cannot be compared"),
        ("evaluation.knn_neighbours", INT, "not for a sweep: scores measured in different ways cannot be compared"),
        ("resources.threads", INT, "not for a sweep: it changes nothing that is learnt"),
        ("training.log_every", INT, "not for a sweep: it changes nothing that is learnt"),
        ("training.epochs", INT, "not for a sweep: it is the budget that all trials share; write --epochs"),
        ("seed", INT, "not for a sweep: the best of several seeds is luck"),
        ("init.weights", INT, "not for a sweep: trials that start from other weights cannot be compared"),
        ("method.name", INT, "not for a sweep: a sweep is of one method"),
        ("training.batch_size", {"uniform": [32, 64]}, "wrong type, got 32.0; must be a whole number, at least 2"),
        ("method.sigma_max", WORDS, "wrong type, got 'wide'; must be a number, at least 0"),  # said of the first alone
        ("method.generative_weight", {"uniform": [0.1, 2]}, "out of range, got 2.0; must be a number, at least 0, at"),
        ("optimizer.name", {"choice": ["sgd", "adm"]}, "no such choice, got 'adm'; did you mean adam? Known: sgd"),
        ("method.sigma_max", {"uniform": [0.1, 0.2]}, "the run's own value is outside the range, got 0.05; the"),
    ],
)
def test_a_setting_that_cannot_be_searched_is_one_line(noisy, name, given, problem):
    (line,) = problems_of(noisy, **{name: given})
    assert line.startswith(f"s.yaml, {name}: {problem}")


BOX = {"method.sigma_min": {"uniform": [0.01, 0.1]}, "method.sigma_max": {"uniform": [0.05, 0.2]}}
CORNER = "corner method.sigma_min=0.1, method.sigma_max=0.05: method.sigma_min: must not exceed sigma_max"
ALONE = CORNER.replace(", method.sigma_max=0.05", "")
SIZES = {"training.batch_size": {"choice": [64, 128]}}
OWN = "method.sigma_min: the run's own value is outside the range, got 0.01, which is 0.2 times method.sigma_max; the "
MORE = {"method.num_steps": {"int": [1, 20]}, "optimizer.name": {"choice": ["sgd", "adam", "lars"]}}
CROPS = {"views.recipe": {"choice": ["moco-cifar", "digits"]}, "views.crop_scale_max": {"uniform": [0.1, 1.0]}}
FOREIGN = {"encoder.name": {"choice": ["small", "timm/test_resnet"]}, "encoder.width": {"choice": [0, 8]}}
ALL_WRONG = {**BOX, "method.lambda": UNIT, "data.resize": INT, "optimizer.momentum": {"uniform": [0.9, 1.5]}}
ALL_WRONG |= {"optimizer.learning_rate": {"uniform": [0.5, 0.6]}}


def times(name: str, given: dict[str, Any], low: float, high: float) -> dict[str, Any]:
    return {name: {"uniform": [low, high], "times": next(iter(given))}, **given}


@pytest.mark.parametrize(
    ("own", "searched", "problems"),
    [
        ({}, times("method.num_steps", SIZES, 0.1, 0.3), ["method.num_steps: wrong type, got 6.4; must be a whole"]),
        ({}, times("method.sigma_min", {"method.sigma_max": {"uniform": [0.05, 0.2]}}, 0.5, 1), [OWN]),
        ({}, {"method.sigma_max": WORDS, **MORE}, ["method.sigma_max: wrong type"]),  # and no rule is judged
        ({"method.sigma_max": 0.15}, {**MORE, **BOX}, [CORNER]),  # the fewest values that break a rule
        ({"method.sigma_max": 0.05}, BOX, [ALONE]),
        (
            {"data.train_limit": 100},
            SIZES,
            ["corner training.batch_size=128: training.batch_size: must not exceed data.train_limit, got 128 > 100"],
        ),
        (  # crops of 0.08 and more in one recipe, of 0.3 and more in the other
            {"views.recipe": "moco-cifar"},
            CROPS,
            ["corner views.recipe='digits', views.crop_scale_max=0.1: views.crop_scale_min: must not exceed crop"],
        ),
        ({}, FOREIGN, ["corner encoder.name='timm/test_resnet', encoder.width=8: encoder.width: "]),
        (
            {"method.sigma_max": 0.15},
            ALL_WRONG,
            ["method.lambda: no", "data.resize: not", "optimizer.momentum: ", "optimizer.learning_rate: ", "corner"],
        ),
    ],
    ids=str,
)
def test_every_mistake_of_a_space_is_one_line(noisy, own, searched, problems):
    found = problems_of(apply_settings(noisy, own), **searched)
    starts = [f"s.yaml, {line}" for line in problems]
    assert [line[: len(start)] for line, start in zip(found, starts, strict=True)] == starts


@pytest.mark.parametrize(
    ("own", "searched", "problem"),
    [
        ({"method.sigma_max": 0.06}, BOX, ALONE),  # each end beside the run's own values; all lowest and highest fit
        *(  # all highest, all lowest
            ({}, box, "corner method.sigma_min=0.04, method.sigma_max=0.03: ")
            for box in (
                {"method.sigma_min": {"uniform": [0.01, 0.04]}, "method.sigma_max": {"choice": [0.05, 0.03]}},
                {"method.sigma_min": {"choice": [0.04, 0.01]}, "method.sigma_max": {"uniform": [0.03, 0.05]}},
            )
        ),
    ],
)
def test_of_too_many_corners_the_outermost_and_each_end_are_tried(noisy, monkeypatch, own, searched, problem):
    monkeypatch.setattr(space_check, "MOST_CORNERS", 3)
    (line,) = problems_of(apply_settings(noisy, own), **searched)
    assert line.startswith(f"s.yaml, {problem}")


def test_in_mid_run_only_smooth_numbers_of_optimizer_method_and_views_may_change(noisy):
    live = space(
        optimizer__learning_rate={"loguniform": [0.01, 1]},
        method__generative_weight={"quantised": [0, 1, 0.1]},
        method__sigma_max={"uniform": [0.01, 0.2]},
        method__sigma_min={"uniform": [0.1, 1], "times": "method.sigma_max"},
        views__crop_scale_min={"uniform": [0.1, 0.5]},
    )
    noisy = apply_settings(noisy, {"views.crop_scale_min": 0.3})
    assert space_problems(live, noisy, searched_live_only=True) == []


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("training.batch_size", {"choice": [32, 64]}, "the batch size sets the number of steps"),
        ("encoder.width", {"int": [0, 64]}, "only settings of optimizer, method, views can change then"),
        ("method.num_steps", {"int": [1, 20]}, "only numbers with fractions move smoothly; others may change shapes"),
        ("optimizer.name", {"choice": ["sgd", "adam"]}, "only numbers with fractions move smoothly"),
        ("method.sigma_max", {"choice": [0.05, 0.1]}, "choice does not move smoothly: write uniform, loguniform or"),
        ("method.sigma_max", {"uniform": [0.02, 0.1], "also": 0.2}, "it jumps to 0.2, outside the range"),
        ("views.crop_ratio_max", {"int": [1, 2]}, "int does not move smoothly: write uniform, loguniform or"),
    ],
)
def test_what_cannot_change_in_mid_run_is_refused_with_the_reason(noisy, name, given, reason):
    noisy = apply_settings(noisy, {"views.crop_ratio_max": 2.0})
    assert space_problems(space(**{name: given}), noisy, searched_live_only=False) == []
    (line,) = problems_of(noisy, live=True, **{name: given})
    assert line.startswith(f"s.yaml, {name}: cannot change during a run, as population based training needs: {reason}")


def test_applied_settings_are_those_of_the_config_but_for_the_ones_given_and_keep_its_rules(noisy):
    applied = apply_settings(noisy, {"method.num_steps": 3, "optimizer.learning_rate": 1, "optimizer.name": "adam"})
    expected = to_mapping(noisy)
    expected["method"]["num_steps"] = 3
    expected["optimizer"] |= {"learning_rate": 1.0, "name": "adam"}
    assert to_mapping(applied) == expected
    assert isinstance(applied.optimizer.learning_rate, float)
    with pytest.raises(ConfigError) as caught:
        apply_settings(noisy, {"method.sigma_min": 0.1, "optimizer.momentum": 2.0})
    assert len(caught.value.problems) == 2


def test_own_settings_change_nothing_and_another_view_recipe_replaces_those_of_views_but_for_the_given():
    config = compose("simclr", "fashion-mnist-small", overrides=["views.noise_std=0.1"])
    searched = {"views.recipe": {"choice": ["fashion-mnist", "digits"]}, "views.blur_kernel_size": {"int": [1, 3]}}
    own = own_settings(space(**searched, method__temperature={"uniform": [0.1, 1]}), config)
    assert own == {"views.recipe": "fashion-mnist", "views.blur_kernel_size": 3, "method.temperature": 0.2}
    assert apply_settings(config, own) == config
    applied = apply_settings(config, {"views.recipe": "digits", "views.flip_rate": 0.25})
    assert applied.views == replace(compose("simclr", "digits-demo").views, flip_rate=0.25)


def test_names_of_timms_networks_may_be_searched_and_wrong_ones_bring_right_ones(noisy):
    right = space(encoder__name={"choice": ["small", "timm/test_resnet"]})
    assert space_problems(right, noisy, searched_live_only=False) == []
    (problem,) = problems_of(noisy, encoder__name={"choice": ["small", "timm/test_resnt"]})
    assert problem.startswith("s.yaml, corner encoder.name='timm/test_resnt': encoder.name: no such network in timm")
    assert "did you mean timm/test_resnet" in problem


def test_a_space_is_described_by_setting_range_and_the_runs_own_value():
    given = space(
        optimizer__learning_rate={"loguniform": [1e-3, 0.1]},
        optimizer__name={"choice": ["sgd", "adam"]},
        training__batch_size={"choice": [64, 256]},
        training__compile={"choice": [True, False]},
    )
    assert describe_space(given, compose("simclr", "fashion-mnist-small")) == [
        ("optimizer.learning_rate", "0.001 to 0.1, log scale", "0.004"),
        ("optimizer.name", "sgd or adam", "adam"),
        ("training.batch_size", "64 or 256", "256"),
        ("training.compile", "true or false", "false"),
    ]
