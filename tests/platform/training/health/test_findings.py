"""Findings: which numbers of epochs say that a run has collapsed or learns nothing, and which do not."""

from dataclasses import replace

import pytest

from ebclab.training.health.findings import FindingRules, find
from ebclab.training.health.policy import Decision, HealthRecord, open_findings

LIMITS = FindingRules(chance=0.1, images=400)
HEALTHY = {
    "effective_rank": 16.0,
    "embedding_spread": 0.9,
    "info_nce": 3.0,
    "log_k_saturation": 0.25,
    "holdout_knn": 0.9,
    "weight_growth": 1.2,
}
AT_LOG_K = {"info_nce": 3.43, "log_k_saturation": 0.0}


def of(epochs: list[dict[str, float]], limits: FindingRules = LIMITS) -> dict[str, str]:
    return dict(find(dict(enumerate(epochs, 1)), limits))


@pytest.mark.parametrize(
    ("sick", "kind", "text"),
    [
        ({"effective_rank": 1.1}, "collapsed", "collapsed: effective_rank 1.1, below 1.5 for 3 epochs"),
        ({"embedding_spread": 0.001}, "collapsed", "collapsed: embedding_spread 0.001, below 0.005 for 3 epochs"),
        (
            AT_LOG_K,
            "learns nothing",
            "learns nothing: InfoNCE 3.43 is no better than chance, log K = 3.43, for 3 epochs",
        ),
        (
            {"info_nce": 1e29, "log_k_saturation": -2.5e28},
            "learns nothing",
            "learns nothing: InfoNCE 1e+29 is no better than chance, log K = 4, for 3 epochs",
        ),
        (
            {"holdout_knn": 0.12},  # within two standard errors of 0.015
            "kNN at chance",
            "kNN at chance: 12.0% of held-out images right, the most frequent class is 10.0% of them",
        ),
        (
            {"holdout_knn": 0.274},
            "kNN fell",
            "kNN fell: 27.4% of held-out images right after 90.0%, the most frequent class is 10.0% of them",
        ),
    ],
)
def test_a_sign_that_lasts_three_epochs_is_a_finding(sick: dict[str, float], kind: str, text: str) -> None:
    epochs = [HEALTHY, HEALTHY, *[{**HEALTHY, **sick}] * 3]
    assert of(epochs) == {kind: text}
    assert of(epochs[:-1]) == {}
    assert of([*epochs, HEALTHY]) == {}


def test_weights_far_from_their_start_are_a_finding_at_once() -> None:
    assert of([{**HEALTHY, "weight_growth": 4000.0}]) == {
        "weights grew": "weights grew: their norm is 4,000 times that of their start"
    }
    assert of([{**HEALTHY, "weight_growth": 99.0}]) == {}


@pytest.mark.parametrize(
    ("epochs", "limits"),
    [
        ([HEALTHY] * 30, LIMITS),
        ([{**HEALTHY, **AT_LOG_K, "effective_rank": 1.0}] * 5 + [HEALTHY] * 2, replace(LIMITS, warmup_epochs=5)),
        ([{**HEALTHY, **AT_LOG_K, "effective_rank": 1.0}] * 7, replace(LIMITS, warmup_epochs=5)),  # two after it
        ([{}] * 9, LIMITS),
        ([{**HEALTHY, "holdout_knn": 0.0}] * 9, replace(LIMITS, chance=1.0)),  # no labels, or a single class
        ([{**HEALTHY, "holdout_knn": value} for value in (0.6, 0.3, 0.3, 0.3)], replace(LIMITS, images=20)),  # noise
        ([{**HEALTHY, "holdout_knn": value} for value in (0.9, 0.81, 0.81, 0.81)], LIMITS),  # more than 7/8 is left
    ],
)
def test_what_is_no_finding(epochs: list[dict[str, float]], limits: FindingRules) -> None:
    assert all(of(epochs[:count], limits) == {} for count in range(1, len(epochs) + 1))


SEEN: dict[str, tuple[list[float], bool]] = {
    "SimSiam, SGD 30": ([0.879, 0.801, 0.816, 0.702, 0.759, 0.759], True),
    "SimSiam, Adam 30": ([0.929, 0.865, 0.844, 0.787, 0.773, 0.787], True),
    "SimCLR without norm, 16 images": ([0.837, 0.773, 0.66, 0.631, 0.723, 0.645, 0.695, 0.695, 0.674], True),
    "BYOL, healthy": ([0.901, 0.872, 0.887, 0.851, 0.865, 0.837, 0.809, 0.816, 0.872, 0.922], False),
}
"""kNN of runs on digits, 141 held-out images, after each epoch, and whether training spoilt the encoder."""


@pytest.mark.parametrize("run", SEEN)
def test_runs_that_spoil_their_encoder_are_told_from_those_that_recover(run: str) -> None:
    curve, spoilt = SEEN[run]
    epochs = [{**HEALTHY, "holdout_knn": value} for value in curve]
    found = [of(epochs[:count], replace(LIMITS, images=141)) for count in range(1, len(epochs) + 1)]
    assert {kind for kinds in found for kind in kinds} == ({"kNN fell"} if spoilt else set())


def record_of(*epochs: dict[str, float], step: int = 200) -> HealthRecord:
    """A record of these epochs, examined after each, the last one at ``step``."""
    record = HealthRecord()
    for number, numbers in enumerate(epochs, 1):
        record.add(numbers)
        record.close_epoch(decides=False)
        measured = {name: numbers[name] for name in ("holdout_knn", "weight_growth")}
        record.examine(step + number - len(epochs), measured, LIMITS, stops=False)
    return record


SICK = {**HEALTHY, "effective_rank": 1.1}


def test_a_finding_is_told_once_and_again_only_after_it_is_past() -> None:
    lasting = record_of(*[HEALTHY] * 300, *[SICK] * 9, step=400)
    (event,) = lasting.events
    assert (event["action"], event["finding"], event["step"]) == ("warn", "collapsed", 394)
    assert open_findings(lasting.events).keys() == {"collapsed"}
    past = record_of(*[SICK] * 9, *[HEALTHY] * 3, *[SICK] * 4, step=400)
    assert [(event["action"], event["step"]) for event in past.events] == [
        ("warn", 387),
        ("recovered", 396),
        ("warn", 399),
    ]
    assert open_findings(past.events[:2]) == {}


@pytest.mark.parametrize(("step", "num_events"), [(199, 0), (200, 1)])
def test_the_first_200_steps_are_not_judged(step: int, num_events: int) -> None:
    assert len(record_of(*[SICK] * 4, step=step).events) == num_events


@pytest.mark.parametrize(("acted", "told"), [(False, 0), (True, 1)])
def test_a_collapse_that_watching_a_sampler_names_is_not_told_twice(acted: bool, told: int) -> None:
    record = record_of(HEALTHY, SICK, SICK)
    record.series.append(SICK)
    decision = Decision("roll_back", "collapsed: effective_rank 1.1, below 1.5 for 3 epochs", healthy=False)
    record.add_event(decision, 300, acted=acted)
    assert len(record.examine(300, {}, LIMITS, stops=False)) == told
