"""What a person sees of a sweep: what fits, what is marked, what is said once, and nothing taken for markup."""

import io
import math
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace

import pytest
from made_up_trials import made_up_trial
from rich.cells import cell_len
from rich.console import Console

from ebclab.sweeps import display as table_module
from ebclab.sweeps.display import (
    SweepLineDisplay,
    SweepProgress,
    SweepTableDisplay,
    TrialTable,
    best_trial,
    choose_sweep_display,
    setting_in_words,
    short_names,
    varying_settings,
)
from ebclab.sweeps.log import OVER, Epoch, State, Trial

STATES: tuple[State, ...] = (*OVER, "waiting", "running", "interrupted")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that stands still until told to wait."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(table_module, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def advance(seconds: float) -> None:
        clock.now += seconds

    return advance


trial = partial(made_up_trial, settings={"optimizer.learning_rate": 0.0123456})


def printed(table: TrialTable, width: int = 80) -> list[str]:
    """The lines that a console of this width shows."""
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def many(seed: int) -> list[Trial]:
    """Trials in all states with long and short texts."""
    rng = random.Random(seed)
    found = []
    for number in range(rng.randrange(1, 40)):
        settings = {
            f"method.a{key}{'_long_name' * (key % 3)}": rng.choice([rng.random(), "word", 7]) for key in range(6)
        }
        values = [rng.random() for _ in range(rng.randrange(10))]
        reason = "".join(rng.choice("ab c[/]{}\n\x1b語") for _ in range(rng.randrange(60)))
        state = rng.choice(STATES)
        found.append(trial(f"{number:04}", values, settings=settings, state=state, reason=reason))
    return found


@pytest.mark.parametrize("width", [44, 80, 120, 200])
def test_a_table_is_never_wider_or_higher_than_the_terminal_and_shows_the_best(width: int) -> None:
    for seed in range(12):
        trials, height = many(seed), 8 + seed
        best = best_trial(trials)
        lines = printed(TrialTable(trials, trials, "holdout_knn", best, height), width)
        assert max(map(cell_len, lines)) <= width
        assert len(lines) <= height
        assert best is None or any(line.startswith(f"*{best.id}") for line in lines)
        shown = sum(line[1:5].isdigit() for line in lines)
        missing = re.search(r"… (\d+) more trial", lines[-1])
        assert shown + (int(missing[1]) if missing else 0) == len(trials)


def test_as_many_settings_as_fit_are_shown_and_the_others_counted() -> None:
    keys = ["method.temperature", "optimizer.learning_rate", "training.batch_size"]
    trials = [trial(str(n), settings=dict.fromkeys(keys, 0.5 + n), state="waiting") for n in range(2)]
    shown = {}
    for width in range(32, 80):
        lines = printed(TrialTable(trials, trials, "holdout_knn"), width)
        found = re.search(r"(\d) more setting", lines[-1])
        shown[width] = 3 - (int(found[1]) if found else 0)
    assert list(shown.values()) == sorted(shown.values())
    assert set(shown.values()) == {0, 1, 2, 3}


def test_settings_give_way_to_twenty_characters_of_a_reason_and_long_words_are_cut_in_two() -> None:
    reason = "rung 3: 0.712 is below 0.745, the best third of 8 others"
    keys = ["temperature", *(f"setting_{letter}" for letter in "abcdefgh")]
    trials = [trial(str(n), settings=dict.fromkeys(keys, n + 0.5), reason=reason, state="stopped") for n in range(2)]
    for width in range(60, 130):
        lines = printed(TrialTable(trials, trials, "holdout_knn"), width)
        assert any(f"stopped  {reason[:19]}" in line for line in lines)
    assert {"temper-", "ature"} <= set(" ".join(lines).split())


def test_only_settings_that_vary_are_shown_by_their_last_word() -> None:
    settings = {"optimizer.name": "adam", "optimizer.learning_rate": 0.1, "method.size": 1, "data.size": 1}
    trials = [trial("0", settings=settings), trial("1", settings={**settings, "optimizer.learning_rate": 0.2})]
    assert varying_settings(trials) == {"optimizer.learning_rate": "learning_rate"}
    assert list(varying_settings(trials[:1])) == list(settings)  # of one trial, all
    names = {"method.size": "method.size", "data.size": "data.size", "a.b": "b"}
    assert short_names([*names]) == names


def test_a_setting_is_shown_on_one_line_and_empty_where_a_trial_has_none() -> None:
    words = {0.0123456: "0.0123", 12.3456: "12.3", 4096.4: "4096", 2e7: "2e+07", 123456: "123456"}
    words |= {None: "null", True: "true", "cosine": "cosine", "a\nb": "a\\nb"}
    for value, text in words.items():
        assert setting_in_words(trial("1", settings={"a": value}), "a") == text
    assert setting_in_words(trial("1"), "a") == ""


def test_the_best_is_the_highest_newest_value_of_a_searching_trial_that_went_well() -> None:
    good, done = trial("1", [0.9, 0.7]), trial("8", [0.5], state="finished")
    others = [trial("2", [0.6]), trial("3", [0.8], state="failed"), trial("4", [0.8], state="diverged")]
    others += [trial("5", [0.8], kind="confirm"), trial("6", [math.nan]), trial("7")]
    assert best_trial([*others, good]) is good
    assert best_trial([*others, good, done]) is done  # the whole budget counts for more than a moment
    assert best_trial(others[1:]) is None


def test_running_trials_come_first_then_the_best_down_and_waiting_ones_last(wait: Callable[[float], None]) -> None:
    stream = Terminal()
    display = SweepTableDisplay(Console(file=stream, force_terminal=True, width=80, height=30))
    display.start("sweep", "holdout_knn", 9)
    trials = [trial("1", state="waiting"), trial("2", [0.2], state="stopped"), trial("3", [0.9], state="finished")]
    trials += [trial("4", state="failed"), trial("5", [0.1]), trial("6", [0.3], state="waiting")]
    trials += [trial("7", [0.95], state="stopped")]
    display.show(trials)
    assert re.findall(r"^\W*(?:\[\d*m)?[ *](\d)\W", stream.getvalue(), re.MULTILINE) == list("5637241")
    display.stop()


def test_the_table_is_drawn_four_times_a_second_and_as_it_stands_at_the_end(wait: Callable[[float], None]) -> None:
    stream = Terminal()
    display = SweepTableDisplay(Console(file=stream, force_terminal=True, width=80, height=24))
    display.stop()  # before a start there is nothing to stop
    display.start("sweep [x]", "holdout_knn", 2)
    assert "sweep [x]: 2 trials, objective holdout_knn" in stream.getvalue()
    for value, seconds in [(0.1, 0.2), (0.2, 0.2), (0.3, 0.2), (0.4, 0.0)]:  # at 0, 0.2, 0.4 and 0.6 s
        display.show([trial("1", [value])])
        wait(seconds)
    assert [f"0.{n}000" in stream.getvalue() for n in (1, 2, 3, 4)] == [True, False, True, False]
    display.note("resumed [bold]\x1b[31m")
    assert "resumed [bold]\\x1b[31m" in stream.getvalue()
    display.stop()
    assert "0.4000" in stream.getvalue().split("resumed")[1]


def test_drawing_a_large_table_takes_a_tenth_of_the_time(wait, monkeypatch):
    drawn: list[str] = []

    def by_interest(trials: Sequence[Trial]) -> list[Trial]:
        wait(1.0)
        drawn.extend(each.id for each in trials)
        return list(trials)

    monkeypatch.setattr(table_module, "_by_interest", by_interest)
    display = SweepTableDisplay(Console(file=Terminal(), force_terminal=True, width=80, height=24))
    display.start("sweep", "holdout_knn", 1)
    for second in range(25):
        display.show([trial(str(second), [0.1])])
        wait(1.0)
    assert drawn == ["0", "10", "20"]


def test_a_second_phase_leaves_the_table_of_the_first_on_the_screen(wait: Callable[[float], None]) -> None:
    stream = Terminal()
    display = SweepTableDisplay(Console(file=stream, force_terminal=True, width=80, height=24))
    for name in ("sweep, search", "sweep, confirm"):
        display.start(name, "holdout_knn", 1)
        display.show([trial("1", [0.5])])
        display.stop()
    second = stream.getvalue().split("sweep, confirm: 1 trials")[1]
    assert "\x1b[1A" not in second.split("1 running")[0]  # no line above is taken back before its first drawing


def test_a_pipe_or_a_dumb_terminal_gets_lines_and_a_terminal_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_sweep_display(io.StringIO()), SweepLineDisplay)
    assert isinstance(choose_sweep_display(Terminal()), SweepTableDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_sweep_display(Terminal()), SweepLineDisplay)


def test_lines_tell_when_a_trial_starts_and_ends_once_each(wait: Callable[[float], None]) -> None:
    stream = io.StringIO()
    display = SweepLineDisplay(stream)
    display.start("sweep", "holdout_knn", 3)
    known, own, late = trial("1", [0.5], state="finished"), trial("2", state="waiting"), trial("3", [0.25] * 4)
    for _ in range(2):
        display.show([known, own, late])
    own.state, own.curve = "running", {}
    for _ in range(2):
        display.show([known, own, late])
    own.curve, own.state, own.reason = {1: Epoch(0.125, 1.0)}, "stopped", "rung 1: [red]low[/red]\x1b"
    for _ in range(2):
        display.show([known, own, late])
    display.stop()
    assert stream.getvalue().splitlines() == [
        "sweep: 3 trials, objective holdout_knn",
        "trial 3 resumes after epoch 4/10: learning_rate 0.0123",
        "trial 2 starts: learning_rate 0.0123",
        "trial 2 stopped after epoch 1/10, holdout_knn 0.1250: rung 1: [red]low[/red]\\x1b",
    ]


def test_a_line_about_the_sweep_comes_every_ten_seconds_at_most(wait: Callable[[float], None]) -> None:
    stream = io.StringIO()
    display = SweepLineDisplay(stream)
    display.start("sweep", "holdout_knn", 4)
    trials = [trial("1", [0.5], state="finished"), trial("2", [0.25], state="finished")]
    for _ in range(50):
        wait(0.5)
        display.show(trials)
    lines = stream.getvalue().splitlines()[1:]
    assert [line.split(" · ")[3] for line in lines] == ["0:10 so far", "0:20 so far"]
    assert lines[0].startswith("2 finished · 2 waiting · best holdout_knn 0.5000 by 1")


def test_the_time_left_is_that_of_the_trials_left_at_the_pace_of_this_launch(wait: Callable[[float], None]) -> None:
    standing = SweepProgress("holdout_knn", 8, started=1000.0)
    before = [trial("1", [0.5], state="finished"), trial("2", [0.1] * 5)]
    standing.update(before)
    wait(60)
    assert "left" not in standing.facts()  # nothing done yet
    standing.update([before[0], trial("2", [0.1] * 9)])
    assert "left" not in standing.facts()  # less than a trial's worth
    # 1.5 trials' worth were done before; 3 are over now and one half-way: 2 in 60 s, and 4.5 are left.
    now = [trial(str(number), [0.1] * 5, state="stopped") for number in (1, 2, 3)] + [trial("4", [0.1] * 5)]
    standing.update(now)
    assert standing.facts().endswith("1:00 so far · about 2:15 left")
    standing.update([trial(str(number), state="failed") for number in range(8)])
    assert standing.facts() == "1:00 so far"


def test_every_trial_is_counted_in_one_state_those_not_proposed_yet_as_waiting() -> None:
    standing = SweepProgress(num_trials=5)
    assert standing.states() == "5 waiting"
    standing.update([trial("1", state="finished"), trial("2", state="finished"), trial("3", state="diverged")])
    assert standing.states() == "2 finished · 1 diverged · 2 waiting"
    standing.update([trial(str(number)) for number in range(6)])
    assert standing.states() == "6 running"
    assert SweepProgress().states() == "no trials"


def test_the_table_reads_no_markup_and_without_trials_has_its_header_alone() -> None:
    trials = [trial("8", [0.2], state="stopped", reason="[red]why[/red]"), trial("9", state="failed", reason="[b]")]
    lines = printed(TrialTable(trials, trials, "holdout_knn"))
    assert [line.split()[-1] for line in lines[-2:]] == ["[red]why[/red]", "[b]"]
    assert len(printed(TrialTable([], [], "holdout_knn"))) == 2
