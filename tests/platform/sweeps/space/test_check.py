from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ebclab.config import ExperimentConfig, compose, parse_experiment, to_mapping
from ebclab.errors import ConfigError
from ebclab.sweeps.space import check as space_check
from ebclab.sweeps.space.check import apply_settings, check_space, own_settings
from ebclab.sweeps.space.space import Space, parse_space
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
    with pytest.raises(ConfigError) as caught:
        check_space(space(**parameters), config, searched_live_only=live)
    return caught.value.problems


def test_a_space_that_fits_passes(noisy):
    fits = space(
        method__sigma_max={"loguniform": [0.01, 0.2]},
        method__sigma_min={"uniform": [0.05, 1.0], "times": "method.sigma_max"},
        method__num_steps={"int": [1, 20]},
        training__batch_size={"choice": [32, 64]},
        optimizer__name={"choice": ["sgd", "adam"]},
        optimizer__weight_decay={"quantised": [0, 1e-3, 5e-4]},
    )
    check_space(fits, noisy, searched_live_only=False)


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("method.lambda", "no such setting; did you mean method.generative_weight (lambda in the paper)?"),
        ("lambda", "no such setting; did you mean method.generative_weight (lambda in the paper)?"),
        ("method.sigma_mx", "no such setting; did you mean method.sigma_max?"),
        ("lr", "no such setting; did you mean optimizer.learning_rate?"),
        ("optimiser.lr", "no such setting; did you mean optimizer.learning_rate?"),
        ("optimizer.speed", "no such setting; settings of optimizer: name, learning_rate"),
        ("optimizer", "a section, not a setting; settings of optimizer: name, learning_rate"),
    ],
)
def test_an_unknown_setting_gets_the_nearest_name_and_the_papers_symbols(noisy, name, rest):
    (line,) = problems_of(noisy, **{name: {"uniform": [0, 1]}})
    assert line.startswith(f"s.yaml, {name}: {rest}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("data.train_limit", "scores on different images cannot be compared"),
        ("data.name", "scores on different images cannot be compared"),
        ("evaluation.knn_neighbours", "scores measured in different ways cannot be compared"),
        ("resources.threads", "it changes nothing that is learnt"),
        ("training.log_every", "it changes nothing that is learnt"),
        ("training.epochs", "it is the budget that all trials share; write --epochs"),
        ("seed", "the best of several seeds is luck"),
        ("method.name", "a sweep is of one method"),
    ],
)
def test_what_would_change_the_meaning_of_the_score_is_refused_with_the_reason(noisy, name, reason):
    (line,) = problems_of(noisy, **{name: {"int": [1, 3]}})
    assert line.startswith(f"s.yaml, {name}: not for a sweep: {reason}")


def test_fractions_for_a_whole_number_are_refused_once(noisy):
    assert problems_of(noisy, training__batch_size={"uniform": [32, 128]}) == [
        "s.yaml, training.batch_size: wrong type, got 32.0; must be a whole number, at least 2 (unit: images)"
    ]


def test_a_fraction_of_a_whole_number_is_no_whole_number(noisy):
    (line,) = problems_of(
        noisy,
        training__batch_size={"choice": [64, 128]},
        method__num_steps={"uniform": [0.1, 0.3], "times": "training.batch_size"},
    )
    assert line.startswith("s.yaml, method.num_steps: wrong type, got 6.4; must be a whole number")


def test_ends_outside_what_a_setting_allows_are_refused_each(noisy):
    assert problems_of(noisy, method__generative_weight={"uniform": [-1, 2]}) == [
        "s.yaml, method.generative_weight: out of range, got -1.0; must be a number, at least 0, at most 1",
        "s.yaml, method.generative_weight: out of range, got 2.0; must be a number, at least 0, at most 1",
    ]


def test_a_word_that_is_no_choice_gets_the_nearest(noisy):
    assert problems_of(noisy, optimizer__name={"choice": ["sgd", "adm"]}) == [
        "s.yaml, optimizer.name: no such choice, got 'adm'; did you mean adam? Known: sgd, adam, adamw, lars"
    ]


def test_the_runs_own_value_must_lie_inside(noisy):
    assert problems_of(noisy, method__sigma_max={"loguniform": [0.1, 0.2]}) == [
        "s.yaml, method.sigma_max: the run's own value is outside the range, got 0.05; the range is 0.1 to 0.2, "
        "log scale: widen it, or set the value with --set"
    ]


def test_the_runs_own_value_of_a_derived_setting_is_shown_as_a_factor(noisy):
    (line,) = problems_of(
        noisy,
        method__sigma_max={"uniform": [0.05, 0.2]},
        method__sigma_min={"uniform": [0.5, 1], "times": "method.sigma_max"},
    )
    assert line.startswith(
        "s.yaml, method.sigma_min: the run's own value is outside the range, got 0.01, which is 0.2 times "
        "method.sigma_max; the range is 0.5 to 1 times method.sigma_max"
    )


BOX = {"method__sigma_min": {"uniform": [0.01, 0.1]}, "method__sigma_max": {"uniform": [0.05, 0.2]}}
CORNER = "s.yaml, corner method.sigma_min=0.1, method.sigma_max=0.05: method.sigma_min: must not exceed sigma_max"


def test_a_corner_that_breaks_a_rule_is_named_by_the_values_that_break_it(noisy):
    more = {
        "method__num_steps": {"int": [1, 20]},
        "optimizer__name": {"choice": ["sgd", "adam", "lars"]},
        "optimizer__learning_rate": {"loguniform": [0.01, 1]},
    }
    assert problems_of(apply_settings(noisy, {"method.sigma_max": 0.15}), **more, **BOX) == [CORNER]


def test_a_value_that_breaks_a_rule_beside_the_runs_own_is_named_alone(noisy):
    (line,) = problems_of(apply_settings(noisy, {"method.sigma_max": 0.05}), **BOX)
    assert line == CORNER.replace(", method.sigma_max=0.05", "")


def test_rules_across_sections_hold_at_corners(noisy):
    noisy = apply_settings(noisy, {"data.train_limit": 100})
    assert problems_of(noisy, training__batch_size={"choice": [64, 128, 256]}) == [
        f"s.yaml, corner training.batch_size={size}: training.batch_size: must not exceed data.train_limit, "
        f"got {size} > 100; no batch would ever be full"
        for size in (128, 256)
    ]


def test_in_a_box_of_too_many_corners_each_end_is_tried_beside_the_runs_own_values(noisy, monkeypatch):
    monkeypatch.setattr(space_check, "MOST_CORNERS", 3)
    (line,) = problems_of(apply_settings(noisy, {"method.sigma_max": 0.06}), **BOX)  # both lowest or highest are fine
    assert line == CORNER.replace(", method.sigma_max=0.05", "")


def test_in_a_box_of_too_many_corners_all_lowest_and_all_highest_are_tried(noisy, monkeypatch):
    monkeypatch.setattr(space_check, "MOST_CORNERS", 3)
    highest = {"method__sigma_min": {"uniform": [0.01, 0.04]}, "method__sigma_max": {"choice": [0.05, 0.03]}}
    lowest = {"method__sigma_min": {"choice": [0.04, 0.01]}, "method__sigma_max": {"uniform": [0.03, 0.05]}}
    for box in (highest, lowest):
        (line,) = problems_of(noisy, **box)
        assert line.startswith("s.yaml, corner method.sigma_min=0.04, method.sigma_max=0.03: ")


def test_everything_wrong_with_a_space_is_reported_at_once(noisy):
    lines = problems_of(
        apply_settings(noisy, {"method.sigma_max": 0.15}),
        **BOX,
        method__lambda={"uniform": [0, 1]},
        data__resize={"int": [8, 16]},
        optimizer__momentum={"uniform": [0.9, 1.5]},
        optimizer__learning_rate={"uniform": [0.5, 0.6]},
    )
    words = ("lambda: no such", "resize: not for", "momentum: out of", "learning_rate: the run's own", "corner")
    assert len(lines) == len(words)
    for line, word in zip(lines, words, strict=True):
        assert word in line


def test_in_mid_run_only_smooth_numbers_of_optimizer_method_and_views_may_change(noisy):
    live = space(
        optimizer__learning_rate={"loguniform": [0.01, 1]},
        method__generative_weight={"quantised": [0, 1, 0.1]},
        method__sigma_max={"uniform": [0.01, 0.2]},
        method__sigma_min={"uniform": [0.1, 1], "times": "method.sigma_max"},
        views__crop_scale_min={"uniform": [0.1, 0.5]},
    )
    noisy = apply_settings(noisy, {"views.crop_scale_min": 0.3})
    check_space(live, noisy, searched_live_only=True)


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
    check_space(space(**{name: given}), noisy, searched_live_only=False)
    (line,) = problems_of(noisy, live=True, **{name: given})
    assert line.startswith(f"s.yaml, {name}: cannot change during a run, as population based training needs: {reason}")


def test_applied_settings_are_those_of_the_config_but_for_the_ones_given(noisy):
    applied = apply_settings(noisy, {"method.num_steps": 3, "optimizer.learning_rate": 1, "optimizer.name": "adam"})
    expected = to_mapping(noisy)
    expected["method"]["num_steps"] = 3
    expected["optimizer"] |= {"learning_rate": 1.0, "name": "adam"}
    assert to_mapping(applied) == expected
    assert isinstance(applied.optimizer.learning_rate, float)


def test_applying_a_configs_own_settings_changes_nothing():
    config = compose("simclr", "fashion-mnist-small", overrides=["views.noise_std=0.1"])
    own = own_settings(
        space(
            views__recipe={"choice": ["fashion-mnist", "digits"]},
            views__blur_kernel_size={"int": [1, 3]},
            method__temperature={"uniform": [0.1, 1]},
        ),
        config,
    )
    assert own == {"views.recipe": "fashion-mnist", "views.blur_kernel_size": 3, "method.temperature": 0.2}
    assert apply_settings(config, own) == config


def test_another_view_recipe_replaces_the_view_settings_but_for_those_given():
    config = compose("simclr", "fashion-mnist-small", overrides=["views.noise_std=0.1"])
    applied = apply_settings(config, {"views.recipe": "digits", "views.flip_rate": 0.25})
    assert applied.views == replace(compose("simclr", "digits-demo").views, flip_rate=0.25)


def test_settings_that_break_rules_cannot_be_applied(noisy):
    with pytest.raises(ConfigError) as caught:
        apply_settings(noisy, {"method.sigma_min": 0.1, "optimizer.momentum": 2.0})
    assert len(caught.value.problems) == 2


def test_a_corner_with_a_view_recipe_gets_the_views_of_that_recipe(noisy):
    noisy = apply_settings(
        noisy, {"views.recipe": "moco-cifar"}
    )  # crops of 0.08 and more; those of digits 0.3 and more
    box = {"views__recipe": {"choice": ["moco-cifar", "digits"]}, "views__crop_scale_max": {"uniform": [0.1, 1.0]}}
    (line,) = problems_of(noisy, **box)
    assert line == (
        "s.yaml, corner views.recipe='digits', views.crop_scale_max=0.1: "
        "views.crop_scale_min: must not exceed crop_scale_max, got 0.3 > 0.1"
    )


def test_a_value_that_cannot_be_used_is_not_judged_by_rules_too(noisy):
    assert problems_of(noisy, method__sigma_max={"choice": ["wide", "narrow"]}, method__num_steps={"int": [1, 20]}) == [
        "s.yaml, method.sigma_max: wrong type, got 'wide'; must be a number, at least 0"
    ]


def test_names_of_timms_networks_may_be_searched_and_wrong_ones_bring_right_ones(noisy):
    right = space(encoder__name={"choice": ["small", "timm/test_resnet"]})
    check_space(right, noisy, searched_live_only=False)
    (problem,) = problems_of(noisy, encoder__name={"choice": ["small", "timm/test_resnt"]})
    assert problem.startswith("s.yaml, corner encoder.name='timm/test_resnt': encoder.name: no such network in timm")
    assert "did you mean timm/test_resnet" in problem


def test_settings_of_our_own_encoders_beside_timms_are_named_with_the_corner(noisy):
    both = {"encoder__name": {"choice": ["small", "timm/test_resnet"]}, "encoder__width": {"choice": [0, 8]}}
    (problem,) = problems_of(noisy, **both)
    assert problem.startswith("s.yaml, corner encoder.name='timm/test_resnet', encoder.width=8: encoder.width: ")


def test_the_start_is_not_searched(noisy):
    (problem,) = problems_of(noisy, init__weights={"choice": ["/one", "/other"]})
    assert problem == (
        "s.yaml, init.weights: not for a sweep: trials that start from other weights cannot be compared; "
        "sweep each start by itself"
    )
