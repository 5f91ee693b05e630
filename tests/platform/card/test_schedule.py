"""Which job a free worker of an evaluation gets, and what is lost with one that dies; without Ray."""

from ebclab.card.ray_workers.spread import Job, Schedule
from ebclab.cluster.placement import TRIES


def _features(card: int, name: str) -> Job:
    return Job(card, name, computes=True)


def _group(card: int, name: str, *needs: str, is_long: bool = False) -> Job:
    return Job(card, name, frozenset(needs), is_long=is_long)


def _order(schedule: Schedule, card: int | None = None) -> list[str]:
    """Return the jobs that one worker does, one after the other."""
    done = []
    while (job := schedule.next(card)) is not None:
        done.append(job.what)
        schedule.done(job)
        card = job.card
    return done


def test_features_that_are_not_there_come_before_the_groups_that_look_at_them_and_are_computed_once():
    jobs = [
        _features(0, "train"),
        _features(0, "test"),
        _group(0, "classification", "train", "test"),
        _features(0, "test"),
        _group(0, "geometry", "test"),
        _features(1, "test"),  # the same encoder and images on another card
        _group(1, "geometry", "test"),
    ]
    assert _order(Schedule.of(jobs, set())) == ["train", "test", "classification", "geometry", "geometry"]
    jobs = [_features(0, "train"), _features(0, "test"), _group(0, "pictures", "train", "test")]
    assert _order(Schedule.of(jobs, {"train"})) == ["test", "pictures"]


def test_a_group_waits_while_its_features_are_under_way_and_others_begin() -> None:
    schedule = Schedule.of([_features(0, "train"), _group(0, "few", "train"), _group(0, "tuning")], set())
    computing = schedule.next(None)
    assert computing.what == "train"
    other = schedule.next(None)
    assert other.what == "tuning"
    assert schedule.next(None) is None
    schedule.done(computing)
    last = schedule.next(None)
    assert last.what == "few"


def test_long_groups_begin_first_and_a_worker_stays_with_its_card() -> None:
    jobs = [_group(0, "a"), _group(1, "b"), _group(1, "long", is_long=True), _group(1, "c"), _group(0, "d")]
    assert _order(Schedule.of(jobs, set()), card=0) == ["long", "b", "c", "a", "d"]
    assert _order(Schedule.of(jobs[:2], set()), card=1) == ["b", "a"]


def test_a_job_whose_worker_dies_is_begun_again_and_then_given_up() -> None:
    schedule = Schedule.of([_features(0, "train"), _group(0, "few", "train"), _group(0, "tuning")], set())
    for again in [True] * (TRIES - 1) + [False]:
        job = schedule.next(None)
        assert job.what == "train"
        assert schedule.died(job) is again
    assert _order(schedule) == ["few", "tuning"]  # the first says why it has no features
