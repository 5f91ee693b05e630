"""What a person sees: a bar in a terminal, quiet lines elsewhere."""

import io

import pytest

from ebclab.formatting import clock
from ebclab.training import display as display_module
from ebclab.training.display import BarDisplay, LineDisplay, choose_display, describe, images_in_words


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3599.6, "1:00:00"), (36061, "10:01:01")])
def test_times_read_like_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_facts_that_are_unknown_are_left_out() -> None:
    metrics = {"images_per_second": 1234.5, "info_nce": 3.14159}
    assert describe(metrics, 0.876) == "1,234 img/s  info_nce 3.142  kNN 87.6%"
    assert describe({}, None) == ""
    assert describe({"images_per_second": 0.432}, None) == "0.43 img/s"  # photographs on a busy processor
    assert describe({"images_per_second": 10.0, "accuracy": 0.9876}, None) == "10 img/s  accuracy 98.8%"


def test_what_whole_batches_leave_out_is_said() -> None:
    some = images_in_words(407, 45, 2, 256, 32)  # 407 = 256 + 151, and 151 / 407 = 37.1 %
    assert some == (
        "452 images of 2 classes, 45 held out; 1 batch of 256 images an epoch, views of 32 x 32 pixels; "
        "151 images (37%) are left out of each epoch, because batches are whole; a smaller training.batch_size leaves "
        "out fewer"
    )
    assert "of 1 class (any kNN is right about it, so none is measured), " in images_in_words(
        512, 0, 1, 256, 32
    )  # datasets#5153
    none = images_in_words(512, 0, 0, 256, 32)
    assert none == "512 images without labels, 0 held out; 2 batches of 256 images an epoch, views of 32 x 32 pixels"
    assert images_in_words(1025, 0, 0, 256, 32).endswith(
        "1 image (0%) is left out of each epoch, because batches are whole"
    )


def test_lines_come_every_ten_seconds_and_scores_every_three(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(display_module.time, "monotonic", lambda: now)
    stream = io.StringIO()
    lines = LineDisplay(stream)
    lines.start(0, 100, 2)
    for step in (1, 2, 3):  # the first update is due at once, the next two fall within ten seconds
        lines.on_log(step, 0, {"info_nce": 5.0})
        now += 1
    now += 10
    lines.on_log(50, 1, {"info_nce": 4.0})
    lines.on_log(50, 1, {"holdout_knn": 0.8})  # too soon
    now += 3
    lines.on_log(55, 1, {"holdout_knn": 0.9})
    text = stream.getvalue().splitlines()
    assert len(text) == 3
    assert text[1].startswith("epoch 1/2  step 50/100  info_nce 4.000  ")
    assert text[1].endswith("0:13 left")  # 13 seconds for 50 steps, 50 to go
    assert "kNN 90.0%" in text[2]


def test_a_pipe_gets_lines_and_a_terminal_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(choose_display(io.StringIO()), LineDisplay)
    assert isinstance(choose_display(Terminal()), BarDisplay)


def test_the_bar_shows_rate_loss_and_score(capsys: pytest.CaptureFixture[str]) -> None:
    bar = BarDisplay()
    bar.start(0, 10, 1)
    bar.on_log(10, 1, {"images_per_second": 3000.0, "info_nce": 4.2, "holdout_knn": 0.5})
    bar.note("resuming [at] step 3")
    bar.stop()
    shown = capsys.readouterr().err
    assert "resuming [at] step 3" in shown
    assert "kNN 50.0%" in shown
