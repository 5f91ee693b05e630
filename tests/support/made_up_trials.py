"""Made-up trials of a sweep, in memory and in a log, and a display that records what it shows."""

from collections.abc import Sequence
from typing import Any

from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import Epoch, SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.preflight import SweepLaunch, WarmStart
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.results import ConfirmedSettings, StoppingSavings, SweepResult
from energy_contrast.catalog import METHODS


def made_up_trial(name: str, values: Sequence[float] = (), **changes: Any) -> Trial:
    """A running trial of ten epochs that measured ``values`` after epochs 1, 2, ..., a second each."""
    curve = {epoch: Epoch(value, float(epoch)) for epoch, value in enumerate(values, start=1)}
    facts: dict[str, Any] = {"kind": "search", "number": int(name) if name.isdigit() else 0, "point": {}}
    facts |= {"settings": {}, "seed": 0, "epochs": 10, "state": "running", "seconds": float(len(values))}
    return Trial(name, **facts | {"curve": curve} | changes)


def write(log: SweepLog, *trials: Trial) -> SweepLog:
    """Log trials, each from its proposal to its end."""
    for one in trials:
        log.propose(one)
        for epoch, point in one.curve.items():
            told = {"objective": point.objective, "seconds": point.seconds, "metrics": point.metrics}
            log.append("epoch", trial=one.id, epoch=epoch, **told)
        if one.answers is not None:
            log.append("answered", trial=one.id, **one.answers.to_mapping())
        if one.state not in ("waiting", "running"):
            log.append("ended", trial=one.id, state=one.state, reason=one.reason, seconds=one.seconds)
    return log


def made_up_result(path: str, *candidates: ConfirmedSettings, **changes: Any) -> SweepResult:
    """The result of a sweep of SimCLR on digits whose first candidate won, untested; ``changes`` replace its facts."""
    facts: dict[str, Any] = {"method": "simclr", "dataset": "digits", "objective": "holdout_knn", "test": None}
    facts |= {"trials": {"finished": 4}, "winner": candidates[0], "candidates": candidates, "seconds": 4.0}
    facts |= {"saved": StoppingSavings(0, 0, 0.0, 4.0), "finished": "2026-11-20T12:00:00+00:00"}
    return SweepResult(path=path, **facts | changes)


def launch_of(folder: SweepFolder, plan: SweepPlan, display: SweepDisplay, **given: Any) -> SweepLaunch:
    """A launch of a sweep from random weights that learns from no other; ``given`` replace its facts."""
    facts: dict[str, Any] = {"methods": METHODS, "split": None, "limits": Limits(), "weights": None}
    facts |= {"warm_start": WarmStart()}
    return SweepLaunch(folder, plan, display=display, **facts | given)


class Remembering(SweepDisplay):
    """A display that remembers its phases and notes."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []

    def start(self, name: str, objective: str, num_trials: int) -> None:
        self.phases.append(f"{name}: {num_trials}")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stop(self) -> None:
        self.phases.append("stop")
