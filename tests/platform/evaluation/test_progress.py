"""Long work tells how far it is, and not too often."""

from __future__ import annotations

from ebclab.evaluation.progress import in_lines


def test_a_line_comes_every_ten_seconds_whatever_the_work() -> None:
    times, written = iter([0.0, 4.0, 9.9, 10.0, 19.9, 20.1]), list[str]()
    on_progress = in_lines(written.append, lambda: next(times))
    for done, what in ((1, "features"), (2, "features"), (1_200, "features"), (1, "knn"), (5_000, "linear")):
        on_progress(done, 10_000, what)
    assert written == ["features: 1,200 of 10,000", "linear: 5,000 of 10,000"]
