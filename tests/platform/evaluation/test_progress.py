"""Long work tells how far it is, and not too often."""

from __future__ import annotations

from ebclab.evaluation.progress import ProgressRates, in_lines


def test_a_line_comes_every_ten_seconds_whatever_the_work() -> None:
    times, written = iter([0.0, 4.0, 9.9, 10.0, 19.9, 20.1]), list[str]()
    on_progress = in_lines(written.append, lambda: next(times))
    for done, what in ((1, "features"), (2, "features"), (1_200, "features"), (1, "knn"), (5_000, "linear")):
        on_progress(done, 10_000, what)
    # 1,199 images in 6 s, 8,800 to go: 44.04 s; of linear nothing but its beginning has been seen
    assert written == ["features: 1,200 of 10,000, 200/s, 0:44 left", "linear: 5,000 of 10,000"]


def test_work_that_begins_again_or_in_the_middle_has_a_rate_of_its_own() -> None:
    rates = ProgressRates()
    seen = [rates.seen(done, "features", now) for done, now in ((0, 0.0), (20, 10.0), (0, 100.0), (5, 101.0))]
    assert seen == [0.0, 2.0, 0.0, 5.0]
    continued = [rates.seen(done, "images", now) for done, now in ((1000, 0.0), (1300, 30.0))]
    assert continued == [0.0, 10.0]
