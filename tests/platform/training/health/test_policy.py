"""Decisions on a run's health: what each kind of series asks for, and that the healthy ones ask for nothing."""

import math
import random
from dataclasses import replace

import pytest

from ebclab.training.health.findings import energy_scale
from ebclab.training.health.policy import MAX_LOWERED, MAX_ROLLED_BACK, Decision, HealthState, make_decision


def healthy(epochs: int, seed: int = 0, noise: float = 0.0) -> list[dict[str, float]]:
    """Return epochs like those of a good run: energies of a few nats, chains that stay among pixels."""
    draw = random.Random(seed)

    def noisy(value: float, factor: float = 1.0) -> float:
        return value * math.exp(noise * factor * draw.gauss(0, 1))

    return [
        {
            "energy_data": -noisy(4 / (1 + 0.1 * epoch)),
            "energy_chains": -noisy(4.2 / (1 + 0.1 * epoch)),
            "energy_gap": noise * 3 * draw.gauss(0, 1),
            "chain_saturation": min(0.4, noisy(0.02 + 0.002 * epoch)),
            "chain_gradient_norm": noisy(0.2 * (1 + epoch), factor=2),
            "chain_movement": noisy(0.02),
            "bank_movement": noisy(0.08),
            "effective_rank": noisy(10 + epoch),
            "embedding_spread": min(1.0, noisy(0.3)),
        }
        for epoch in range(epochs)
    ]


def changed(series: list[dict[str, float]], **tails: list[float]) -> list[dict[str, float]]:
    """Return the series with the last values of some metrics replaced."""
    copy = [dict(values) for values in series]
    for name, tail in tails.items():
        for values, value in zip(copy[len(copy) - len(tail) :], tail, strict=True):
            values[name] = value
    return copy


def replay(series: list[dict[str, float]]) -> list[tuple[int, Decision]]:
    """Return every decision but to continue with the number of epochs done, as if nothing were done about it."""
    state, found = HealthState(), []
    for epochs in range(1, len(series) + 1):
        decision = make_decision(series[:epochs], state)
        state = state.after(decision.kind)
        if decision.kind != "continue":
            found.append((epochs, decision))
    return found


def test_a_healthy_run_goes_on_and_may_be_come_back_to_after_every_epoch() -> None:
    series = healthy(30)
    decisions = [make_decision(series[:epochs], HealthState()) for epochs in range(1, 31)]
    assert decisions == [Decision("continue", "", healthy=True)] * 30


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_asks_for_nothing(seed: int) -> None:
    assert replay(healthy(60, seed, noise=0.5)) == []


def test_one_strange_epoch_asks_for_nothing_but_is_no_place_to_come_back_to() -> None:
    series = changed(healthy(10), chain_saturation=[0.6])
    assert make_decision(series, HealthState()) == Decision("continue", "", healthy=False)


def test_a_second_strange_epoch_lowers_the_step_and_says_why() -> None:
    series = changed(healthy(10), chain_saturation=[0.6, 0.7])
    decision = make_decision(series, HealthState())
    assert decision.kind == "lower_step"
    assert decision.reason == "chain_saturation 0.70, above 0.5 of all pixels for 2 epochs"
    apart = changed(changed(healthy(10), chain_saturation=[0.6, 0.1]), chain_gradient_norm=[100.0])
    assert make_decision(apart, HealthState()).kind == "continue"  # two epochs, two metrics


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("chain_saturation", 0.95, "chain_saturation 0.95, above 0.9 of all pixels"),
        ("energy_chains", -450.0, "energy_chains -450, above 100 times the start's 4.2"),
        ("energy_gap", 120.0, "energy_gap 120, above 100 times the start's 1"),
        ("chain_gradient_norm", 1000.0, "chain_gradient_norm 1e+03, above 300 times the usual 1"),
    ],
)
def test_an_explosion_goes_back_at_once(name: str, value: float, words: str) -> None:
    decision = make_decision(changed(healthy(10), **{name: [value]}), HealthState())
    assert decision == Decision("roll_back", words, healthy=False)


def test_a_gradient_that_grows_before_there_is_a_usual_one_is_no_sign() -> None:
    series = changed(healthy(3), chain_gradient_norm=[0.001, 1.0, 1.0])
    assert make_decision(series[:2], HealthState()) == Decision("continue", "", healthy=True)


def test_a_slow_explosion_lowers_the_step_first_and_then_goes_back() -> None:
    series = changed(healthy(20), energy_data=[4 * 1.6**epoch for epoch in range(15)])
    assert [decision.kind for _, decision in replay(series)] == ["lower_step", "lower_step", "roll_back"]


@pytest.mark.parametrize(("name", "value"), [("effective_rank", 1.02), ("embedding_spread", 0.001)])
def test_a_collapse_must_last_before_the_run_goes_back(name: str, value: float) -> None:
    series = changed(healthy(12), **{name: [value] * 5})
    (epochs, decision), *_ = replay(series)
    assert (epochs, decision.kind) == (10, "roll_back")
    assert decision.reason.startswith(f"collapsed: {name} {value:.3g}, below")
    assert not make_decision(series[:8], HealthState()).healthy  # its first epoch is none to come back to


def test_a_network_that_never_spread_its_images_is_left_to_learn() -> None:
    assert replay(changed(healthy(8), effective_rank=[1.1] * 8)) == []


@pytest.mark.parametrize("name", ["chain_movement", "bank_movement"])
def test_a_bank_that_freezes_goes_back_and_one_that_never_moved_stops(name: str) -> None:
    freezes, never = changed(healthy(9), **{name: [1e-6] * 3}), changed(healthy(3), **{name: [1e-6] * 3})
    assert [(epochs, decision.kind) for epochs, decision in replay(freezes)] == [(9, "roll_back")]
    assert [(epochs, decision.kind) for epochs, decision in replay(never)] == [(3, "stop")]
    assert replay(never)[0][1].reason == f"frozen: {name} 1e-06, below 0.0001 for 3 epochs"


def test_no_second_decision_comes_within_the_cool_down() -> None:
    unhealthy = changed(healthy(12), chain_saturation=[0.95] * 8)
    assert [epochs for epochs, _ in replay(unhealthy)] == [5, 8, 11]


def test_numbers_that_are_not_finite_do_not_wait_for_the_cool_down() -> None:
    series = changed(healthy(4), loss=[math.nan])
    decision = make_decision(series, HealthState(waiting=2))
    assert (decision.kind, decision.reason) == ("roll_back", "loss is nan")


def test_a_run_that_went_back_often_enough_stops() -> None:
    unhealthy = changed(healthy(5), chain_saturation=[0.95])
    often = HealthState(rolled_back=MAX_ROLLED_BACK)
    assert make_decision(unhealthy, replace(often, rolled_back=2)).kind == "roll_back"
    assert make_decision(unhealthy, often) == Decision(
        "stop", "chain_saturation 0.95, above 0.9 of all pixels, after going back 3 times", healthy=False
    )


def test_the_step_is_lowered_a_limited_number_of_times() -> None:
    strange = changed(healthy(40), chain_saturation=[0.6] * 36)
    assert [decision.kind for _, decision in replay(strange)] == ["lower_step"] * MAX_LOWERED


def test_a_method_without_chains_has_nothing_to_decide_but_its_collapse() -> None:
    assert replay([{"loss": 1.0, "effective_rank": 20.0}] * 5) == []
    assert make_decision([], HealthState()) == Decision("continue", "", healthy=True)


def test_the_scale_of_an_energy_is_its_largest_size_and_at_least_a_nat() -> None:
    assert energy_scale([-3.0, 2.0]) == 3.0
    assert energy_scale([0.1, -0.2]) == energy_scale([]) == 1.0
    assert energy_scale([math.inf, math.nan, -2.0]) == 2.0


def test_at_its_bound_a_metric_is_still_on_the_better_side() -> None:
    def judged(name: str, value: float, epochs: int = 1) -> Decision:
        return make_decision(changed(healthy(10), **{name: [value] * epochs}), HealthState())

    well, strange = Decision("continue", "", healthy=True), Decision("continue", "", healthy=False)
    assert judged("chain_saturation", 0.5) == well
    assert judged("chain_saturation", 0.9) == strange  # above it the run would go back
    assert judged("effective_rank", 1.5, epochs=5) == well
    assert judged("bank_movement", 1e-4, epochs=5) == well
