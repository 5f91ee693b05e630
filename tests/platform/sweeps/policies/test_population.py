"""Who resumes from whom, and with which settings: against Ray Tune's quantiles, closed forms and limits."""

import math
import random
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_trials import made_up_trial

from ebclab.sweeps.log import Trial
from ebclab.sweeps.policies.population import at_exchange, exploit, explore
from ebclab.sweeps.space.space import Parameter, Space

SPACE = Space(
    (
        Parameter("lr", "loguniform", low=1e-4, high=1.0),
        Parameter("tau", "uniform", low=-1.0, high=1.0),
        Parameter("batch", "choice", choices=(64, 128)),
        Parameter("layers", "int", low=1, high=4),
    ),
    "test",
)
POINT = {"lr": 0.01, "tau": 0.5, "batch": 64, "layers": 2}


@dataclass(frozen=True)
class RayTrial:
    """As much of a Ray trial as its scheduler reads."""

    number: int

    def is_finished(self) -> bool:
        return False


def trial(name: str, value: float, *, epochs_done: int = 2, **changes: Any) -> Trial:
    """A trial of ten epochs whose objective was ``value`` in each of ``epochs_done``."""
    return made_up_trial(name, [value] * epochs_done, point=POINT, **changes)


def population(*values: float, **changes: Any) -> list[Trial]:
    """Trials named 0, 1, ... with these objectives."""
    return [trial(str(number), value, **changes) for number, value in enumerate(values)]


@pytest.mark.parametrize("num_trials", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("quantile", [0.2, 0.25, 0.5])
def test_both_ends_are_those_of_ray_tunes_population_based_training(num_trials: int, quantile: float) -> None:
    from ray.tune.schedulers import PopulationBasedTraining

    rng = random.Random(num_trials)
    values = [rng.random() for _ in range(num_trials)]
    rays = PopulationBasedTraining("epoch", "score", "max", quantile_fraction=quantile, hyperparam_mutations={"x": [1]})
    names = [RayTrial(number) for number in range(num_trials)]
    rays._trial_state = {name: SimpleNamespace(last_score=values[name.number]) for name in names}
    low, high = ({name.number for name in end} for end in rays._quantiles())
    ours = population(*values)
    donors = {one.id: exploit(one, ours, quantile) for one in ours}
    assert {int(name) for name, donor in donors.items() if donor} == low
    assert {int(donor.id) for donor in donors.values() if donor} <= high


def test_every_trial_of_the_upper_end_may_give_and_the_choice_is_repeatable() -> None:
    others = population(*[0.9, 0.8] + [0.5] * 5)
    receivers = [trial(f"r{number}", 0.1) for number in range(200)]
    donors = [exploit(one, [*others, one], 0.25) for one in receivers]
    counts = Counter(donor.id for donor in donors if donor)
    assert counts.keys() == {"0", "1"}
    assert min(counts.values()) > 65  # 100 of 200 expected; this is five standard deviations below
    assert donors == [exploit(one, [one, *reversed(others)], 0.25) for one in receivers]


def test_an_exchange_is_at_the_end_of_an_interval_before_the_last_epoch() -> None:
    assert [epoch for epoch in range(11) if at_exchange(trial("a", 0.5, epochs_done=epoch), 3)] == [3, 6, 9]
    assert not at_exchange(trial("a", 0.5, epochs_done=10), 2)


@pytest.mark.parametrize(
    ("state", "gives"), [("failed", False), ("diverged", False), ("stopped", False), ("running", True)]
)
def test_nobody_goes_on_from_a_trial_that_went_wrong(state: str, gives: bool) -> None:
    own = trial("a", 0.1)
    assert (exploit(own, [own, trial("b", 0.9, state=state)], 0.25) is not None) == gives


def test_what_becomes_of_a_trial_later_makes_nobody_else_change() -> None:
    ours = population(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    before = [one.id for one in ours if exploit(one, ours, 0.25)]
    ours[0].state = "failed"
    assert before == ["0", "1"]
    assert [one.id for one in ours[1:] if exploit(one, ours, 0.25)] == ["1"]
    ours[6].state = ours[7].state = "failed"
    assert exploit(ours[1], ours, 0.25) is None  # nobody of the upper end is left to give


def test_an_equal_trial_gives_nothing_and_a_number_is_better_than_none() -> None:
    equal = population(0.5, 0.5)
    assert [exploit(one, equal, 0.25) for one in equal] == [None, None]
    lost, fine = population(math.nan, 0.1)
    assert exploit(lost, [lost, fine], 0.25) is fine
    assert exploit(fine, [lost, fine], 0.25) is None


def test_coordinates_are_multiplied_and_stay_in_their_range() -> None:
    def near(**point: float) -> set[tuple[float, ...]]:
        found = [
            explore({**POINT, **point}, SPACE, seed=0, trial_id=str(i), epoch=2, resample_rate=0.0) for i in range(40)
        ]
        return {tuple(new[name] for name in point) for new in found}

    assert near(lr=0.01) == {(0.008,), (0.0125,)}
    assert near(lr=0.9) == {(0.72,), (1.0,)}
    assert near(lr=1.1e-4) == {(1e-4,), (1.375e-4,)}
    assert near(tau=-0.9) == {(-0.72,), (-1.0,)}
    assert len(near(lr=0.01, tau=0.5)) == 4  # each coordinate has its own draw


def test_quantised_numbers_move_to_a_level_of_their_range() -> None:
    levels = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    space = Space((Parameter("rate", "quantised", low=0.0, high=0.8, step=0.1),), "test")

    def near(rate: float, resample_rate: float = 0.0) -> set[float]:
        asked = {"seed": 0, "epoch": 2, "resample_rate": resample_rate}
        return {explore({"rate": rate}, space, trial_id=str(i), **asked)["rate"] for i in range(200)}

    assert near(0.1) == {0.0, 0.2}  # 0.08 and 0.125 lie at 0.1: the next levels
    assert near(0.6) == {0.5, 0.7}  # 0.48 and 0.75; 0.7 and 0.8 are as near, up to rounding
    assert near(0.8) == {0.6, 0.8}  # 0.64, and there is nothing above
    assert near(0.0) == {0.0, 0.1}
    assert near(0.3, resample_rate=1.0) == set(levels)


def test_new_draws_are_spread_as_the_range_says() -> None:
    new = [explore(POINT, SPACE, seed=3, trial_id=str(i), epoch=2, resample_rate=1.0) for i in range(2000)]
    shares = {
        "lr": [math.log10(point["lr"]) / 4 + 1 for point in new],  # 1e-4 ... 1: the logarithm is uniform
        "tau": [(point["tau"] + 1) / 2 for point in new],
    }
    for values in shares.values():
        counts = Counter(int(value * 10) for value in values)
        assert set(counts) == set(range(10))
        assert all(abs(count - 200) < 5 * math.sqrt(2000 * 0.1 * 0.9) for count in counts.values())


def test_the_rate_of_new_draws_is_the_one_asked_for() -> None:
    new = [explore(POINT, SPACE, seed=1, trial_id=str(i), epoch=4, resample_rate=0.25)["lr"] for i in range(1000)]
    drawn = sum(value not in (0.008, 0.0125) for value in new)
    assert abs(drawn - 250) < 5 * math.sqrt(1000 * 0.25 * 0.75)
    assert abs(new.count(0.008) - new.count(0.0125)) < 5 * math.sqrt(750)


def test_exploring_leaves_choices_whole_numbers_and_the_donors_point_alone() -> None:
    point = dict(POINT)
    new = explore(point, SPACE, seed=0, trial_id="a", epoch=2, resample_rate=1.0)
    assert (new["batch"], new["layers"]) == (64, 2)
    assert list(new) == list(POINT)
    assert point == POINT


def test_exploring_depends_on_seed_trial_and_epoch_alone() -> None:
    def new(**changes: Any) -> dict[str, Any]:
        return explore(POINT, SPACE, **{"seed": 0, "trial_id": "0012", "epoch": 2, "resample_rate": 1.0} | changes)

    assert new() == new()
    drawn = [new()["lr"], new(seed=1)["lr"], new(trial_id="0013")["lr"], new(epoch=4)["lr"]]
    assert len(set(drawn)) == 4
    reordered = Space(tuple(reversed(SPACE.parameters)), "test")
    assert explore(POINT, reordered, seed=0, trial_id="0012", epoch=2, resample_rate=1.0) == new()
