"""Jobs that are done one after the other, and results that they share."""

import operator
import pickle

import pytest

from ebclab.errors import InterruptedRunError, RunError
from ebclab.runs.jobs import Kept, one_by_one

read: list[int] = []


def _square(job: int, *, of: int = 1) -> int:
    read.append(job)
    if job < 0:
        raise RunError(f"{job}: below 0")
    return of * job * job


def test_jobs_have_their_results_or_errors_in_their_order() -> None:
    (first, four), (second, error), (third, nine) = one_by_one(_square, [2, -1, 3])
    assert (first, second, third) == (2, -1, 3)
    assert (four, str(error), nine) == (4, "-1: below 0", 9)
    assert isinstance(error, RunError)


def test_a_request_to_stop_is_no_outcome_of_a_job() -> None:
    def stopped(job: int) -> int:
        raise InterruptedRunError("stopped")

    with pytest.raises(InterruptedRunError):
        list(one_by_one(stopped, [1, 2]))


def test_a_kept_result_is_made_once_for_equal_arguments_and_not_sent_to_other_processes() -> None:
    kept = Kept(_square)
    read.clear()
    assert [kept(2), kept(2), kept(2, of=3), kept(3)] == [4, 4, 12, 9]
    assert read == [2, 2, 3]
    copy = pickle.loads(pickle.dumps(Kept(operator.neg)))
    assert copy(1) == -1
    assert len(pickle.dumps(Kept(operator.mul))) == len(pickle.dumps(_used(Kept(operator.mul))))


def _used(kept: Kept[int]) -> Kept[int]:
    kept(3, 4)
    return kept
