"""Claims: which numbers answer them, and how; and what a study that asks for nothing is told."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from ebclab.errors import ConfigError
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import Measurements, contrast_with_chance, difference_with_chance
from ebclab.reproductions.answers import AnsweredClaim, StudyNumbers
from ebclab.reproductions.study import Study

from .conftest import refused, study_of

Values = dict[tuple[str, str], list[float]]


def _study(*claims: dict[str, Any], published: dict[str, Any] | None = None) -> Study:
    columns = {name: {"title": name.upper(), "measure": "knn"} for name in ("a", "b")}
    rows = {name: {"title": name, "method": "simclr"} for name in ("x", "y", "z")}
    given = {"x": {"a": 50.0}} if published is None else published
    return study_of(columns=columns, rows=rows, published=given, claims=[{"says": "It is so."} | c for c in claims])


def _measured(values: Values) -> dict[tuple[str, str], Measurements]:
    return {cell: Measurements.of(range(len(some)), some, [None] * len(some)) for cell, some in values.items()}


def _answer(claim: dict[str, Any], values: Values, **given: Any) -> AnsweredClaim:
    return StudyNumbers(_study(claim, **given), _measured(values), {}).answers[0]


NEAR = [0.50, 0.51, 0.49]
LOW: Values = {("x", "a"): NEAR, ("y", "a"): [0.30, 0.32, 0.28], ("z", "a"): [0.501, 0.508, 0.492]}
FOUR: Values = LOW | {("x", "b"): [0.49, 0.50, 0.49], ("y", "b"): [0.10, 0.13, 0.07]}


@pytest.mark.parametrize(
    ("claim", "answer"),
    [
        ({"above": "x/a", "below": "y/a"}, "holds"),
        ({"above": "y", "below": "x", "columns": "a"}, "does not hold"),
        ({"above": "x/a", "below": "z/a"}, "cannot be told"),  # -0.03 points, from -0.7 to 0.6
        ({"above": "x/a", "below": "y/a", "by": 15}, "holds"),
        ({"above": "x/a", "below": "y/a", "by": 25}, "does not hold"),
        ({"above": "x/a", "below": "y/a", "times": 1.2}, "holds"),
        ({"above": "x/a", "below": "y/a", "times": 2}, "does not hold"),
        ({"alike": ["x/a", "z/a"], "within": 1}, "holds"),
        ({"alike": ["x/a", "z/a"], "within": 0.1}, "cannot be told"),
        ({"alike": ["x/a", "y/a"], "within": 1}, "does not hold"),
        ({"above": "x", "below": "y", "change": ["a", "b"]}, "holds"),  # x loses 0.7 points, y loses 20
        ({"above": "y", "below": "x", "change": ["a", "b"]}, "does not hold"),
        ({"best": "x", "among": ["x", "y"], "columns": ["a", "b"]}, "holds"),
        ({"best": ["x", "y"], "among": ["x", "y", "z"], "columns": "a"}, "cannot be told"),
        ({"best": "y", "among": ["x", "y", "z"], "columns": "a"}, "does not hold"),
        ({"between": "x", "bounds": [40, 60], "columns": "a"}, "holds"),
        ({"between": "x", "bounds": [60, 70], "columns": "a"}, "does not hold"),
        ({"above": ["x", "z"], "below": "y", "columns": "a"}, "holds"),
        ({"above": "x", "below": ["y", "z"], "columns": "a"}, "cannot be told"),
        ({"untold": "nothing measures it"}, "cannot be told"),
    ],
)
def test_a_claim_is_answered_by_the_intervals_of_its_comparisons(claim: dict[str, Any], answer: str):
    assert _answer(claim, FOUR).answer == answer


def test_intervals_are_students_of_paired_gaps_and_share_the_chance_unless_they_hold():
    claim = _answer({"above": "x", "below": ["y", "z"], "columns": "a"}, LOW)
    for part, other, shared in zip(claim.parts, ("y", "z"), (1, 2), strict=True):
        gaps = 100 * (np.array(LOW["x", "a"]) - np.array(LOW[other, "a"]))
        half = stats.t.ppf(1 - 0.05 / shared / 2, 2) * gaps.std(ddof=1) / 3**0.5
        assert (part.number, part.low, part.high) == pytest.approx(
            (gaps.mean(), gaps.mean() - half, gaps.mean() + half)
        )
    assert claim.why.startswith("A, x - z: -0.03 (")
    assert "1 of 2 comparisons are open" in claim.why


@pytest.mark.parametrize(
    ("claim", "nearest"),
    [
        ({"alike": ["x/a", "y/a", "z/a"], "within": 25}, "A, y - z: -20.03 ("),  # x - z is -0.03, far from both bounds
        ({"between": ["x", "y"], "bounds": [15, 60], "columns": "a"}, "x, A: +50.00 ("),  # y is 30
    ],
)
def test_of_several_comparisons_the_one_nearest_to_its_bounds_is_said(claim: dict[str, Any], nearest: str):
    assert _answer(claim, LOW).why.startswith(nearest)


CLOUD: Values = {
    ("x", "a"): [0.31, 0.28, 0.30],
    ("y", "a"): [0.45, 0.51, 0.49],
    ("z", "a"): [0.60, 0.57, 0.62],
    ("x", "b"): [0.60, 0.65, 0.61],
    ("y", "b"): [1.05, 0.98, 1.01],
    ("z", "b"): [1.20, 1.23, 1.18],
}


@pytest.mark.parametrize(
    ("bounds", "sign", "answer"),
    [
        ([0, 1], 1, "holds"),  # the interval reaches beyond 1, which no r does
        ([0, 0.99], 1, "cannot be told"),
        ([-1, 0.5], 1, "does not hold"),
        ([0, 1], -1, "does not hold"),
    ],
)
def test_a_correlation_is_answered_by_students_interval_over_seeds(bounds: list[float], sign: int, answer: str):
    values = {cell: [sign * each if cell[1] == "b" else each for each in some] for cell, some in CLOUD.items()}
    claim = _answer({"correlate": "b", "against": "a", "bounds": bounds}, values)
    r = [
        stats.pearsonr(*([values[row, column][seed] for row in "xyz"] for column in "ba")).statistic
        for seed in range(3)
    ]
    low, high = np.clip(stats.t.interval(0.95, 2, np.mean(r), stats.sem(r)), -1, 1)
    assert claim.answer == answer
    assert (claim.parts[0].number, claim.parts[0].low, claim.parts[0].high) == pytest.approx((np.mean(r), low, high))


def test_what_leaves_a_claim_open_is_said():
    one = _answer({"above": "x/a", "below": "y/a"}, {cell: some[:1] for cell, some in LOW.items()})
    assert (one.answer, one.why) == ("cannot be told", "A, x - y: +20.00, above 0 is needed (one seed)")
    claim = {"above": "x/a", "below": "x/b"}
    missing = StudyNumbers(
        _study(claim), _measured({("x", "a"): NEAR}), {("x", "b"): "not run at this scale: large"}
    ).answers
    assert (missing[0].answer, missing[0].why) == ("cannot be told", "not run at this scale: large")
    claim = {"correlate": "b", "against": "a", "bounds": [-2, 2]}
    one_seed = _answer(claim, {cell: some[:1] for cell, some in CLOUD.items()})
    assert (one_seed.answer, "(one seed)" in one_seed.why) == ("cannot be told", True)
    assert "3 points" in _answer(claim, {cell: [1.0] * 3 for cell in CLOUD}).why


@pytest.mark.parametrize(
    ("cells", "in_print"), [((60.0, 50.0), "holds"), ((50.0, 50.0), "does not hold"), ((60.0, "~"), "cannot be told")]
)
def test_published_numbers_answer_a_claim_too(cells: tuple[Any, Any], in_print: str):
    published = {"x": {"a": cells[0]}, "y": {"a": cells[1]}}
    assert _answer({"above": "x/a", "below": "y/a"}, LOW, published=published).in_print == in_print


def test_a_contrast_of_accuracies_is_paired_by_seed_and_image():
    generator = torch.Generator().manual_seed(0)
    keys = torch.arange(400)
    settings = [
        Measurements.of(
            range(3),
            [float(right.double().mean()) for right in rights],
            [Answers.of(right[None], keys) for right in rights],
        )
        for rights in (torch.rand(4, 3, 400, generator=generator) < torch.tensor([0.5, 0.6, 0.7, 0.8])[:, None, None])
    ]
    one, other, third, fourth = settings
    pair = contrast_with_chance([(1.0, one), (-1.0, other)], 0.05)
    assert pair == difference_with_chance(one, other, 0.05)
    assert pair.images == 400
    four = contrast_with_chance([(1.0, one), (-1.0, other), (-1.0, third), (1.0, fourth)], 0.05)
    means = [np.mean(list(each.by_seed.values())) for each in settings]
    assert four.mean == pytest.approx(means[0] - means[1] - means[2] + means[3])
    assert four.low < four.mean < four.high
    weighed = contrast_with_chance([(3.0, one), (-1.0, other)], 0.05)
    assert weighed.low < weighed.mean < weighed.high
    assert four.high - four.low > pair.high - pair.low


def test_every_mistake_in_claims_is_said_at_once():
    claims = [
        {"above": "w/a", "below": "x/c"},
        {"above": "x"},
        {"alike": ["x"], "best": ["y"], "among": ["x", "z"]},
        {"says": ""},
        {"above": "x", "below": "y", "change": ["a"], "columns": ["d"]},
        {"between": "x", "bounds": [3, 1]},
        {"abov": "x", "untold": "nothing"},
        {"correlate": ["a", "b"], "against": ["a"]},
        {"correlate": "a", "against": "d", "bounds": [0, 1]},
    ]
    with pytest.raises(ConfigError) as caught:
        _study(*claims)
    lines = [line.removeprefix("table9.yaml: ") for line in caught.value.problems]
    assert [line.partition(";")[0] for line in lines] == [
        "claims.7.abov: no such key",
        "claims.1.above: no such row, got 'w/a'",
        "claims.1.below: no such cell, got x/c",
        "claims.2.above and below: one needs the other",
        "claims.3.one of above, alike, best, between, correlate and untold is needed, got alike, best",
        "claims.3.alike: at least two are needed, got 1",
        "claims.3.best: not in among, got 'y'",
        "claims.4.says: missing",
        "claims.4.one of above, alike, best, between, correlate and untold is needed, got none",
        "claims.5.change: two columns are needed, got 1",
        "claims.5.columns: no such column, got 'd'",
        "claims.5.above: no such cell, got x/d",
        "claims.5.below: no such cell, got y/d",
        "claims.6.bounds: two numbers in ascending order are needed, got [3.0, 1.0]",
        "claims.8.correlate and bounds: one needs the other",
        "claims.8.against: a column for each of correlate is needed, got 1 for 2",
        "claims.9.against: no such column, got 'd'",
    ]


def test_a_spread_without_repeats_and_columns_of_two_units_are_refused():
    claims = [{"says": "So.", "above": "cold/knn", "below": "cold/ess"}]
    lines = refused(published={"cold": {"knn": "50.0 ± 0.2"}}, claims=claims)
    assert [line.partition(";")[0] for line in lines] == [
        "published.cold.knn: a spread of 0.2, and about.repeats is 0",
        "claims.1: compares columns of different units, got percent, plain",
    ]
