"""Comparisons without training: sweeps whose logs are written by hand, so that every number is known beforehand."""

import copy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch

from ebclab.comparisons.findings import ComparisonFindings, read_findings
from ebclab.comparisons.plan import ComparisonFolder, ComparisonPlan, PlannedSweep, make_comparison
from ebclab.comparisons.request import ComparisonRequest
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import Measurements
from ebclab.runs.references import PIXELS, UNTRAINED, Protocol, Reference, References
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import write_plan
from ebclab.sweeps.results import BASELINE, SeedScores, SettingsTest, confirming_run, to_confirm
from ebclab.sweeps.scheduler import SearchProposals

IMAGES = 200
KEYS = torch.arange(IMAGES)

Scores = Mapping[str, Any]
"""What a made-up sweep measures: ``default`` and ``draws``, held-out scores of the search; ``tuned_runs`` and
``default_runs``, the number of images that the run of each seed is right about, None for one that diverged, or
COLLAPSED for one that was stopped."""
COLLAPSED = -1


def request_for(*methods: str, **more: Any) -> ComparisonRequest:
    """Return a small request on digits."""
    asked: dict[str, Any] = {"recipe": "digits-demo", "batch_sizes": (64,), "trials": 3, "seeds": 3, "epochs": 2}
    return ComparisonRequest(methods=methods, **(asked | more))


def right(count: int, shift: int = 0) -> Answers:
    """Return the answers of a run that is right about ``count`` images, the first ones when not shifted."""
    bits = torch.zeros(1, IMAGES, dtype=torch.bool)
    bits[0, (torch.arange(count) + shift) % IMAGES] = True
    return Answers.of(bits, KEYS)


def write_search(log: SweepLog, planned: PlannedSweep, scores: Scores) -> None:
    """Write the trials of the search, the default settings first."""
    proposals = SearchProposals(planned.plan)
    for score in (scores["default"], *scores["draws"]):
        trial = proposals.propose(log.of_kind("search"))
        event = {key: getattr(trial, key) for key in ("kind", "number", "point", "settings", "seed", "epochs")}
        log.append("trial", trial=trial.id, **event)
        if score is None:
            log.append("ended", trial=trial.id, state="diverged", reason="diverged: nan", seconds=1.0)
            continue
        log.append("epoch", trial=trial.id, epoch=1, objective=score / 2, seconds=1.0, metrics={})
        log.append("epoch", trial=trial.id, epoch=2, objective=score, seconds=2.0, metrics={})
        log.append("ended", trial=trial.id, state="finished", reason="", seconds=2.0)


def write_confirmation(log: SweepLog, planned: PlannedSweep, scores: Scores) -> None:
    """Write the runs of the chosen and of the default settings, and their answers on the test images."""
    for source, settings in to_confirm(planned.plan, log).items():
        counts = scores["default_runs" if source == BASELINE else "tuned_runs"]
        done: dict[int, Answers] = {}
        for seed, count in enumerate(counts, start=planned.plan.config.seed + 1):
            name = confirming_run(source, seed)
            log.append("trial", trial=name, kind="confirm", number=0, point={}, settings=settings, seed=seed, epochs=2)
            if count is None:
                log.append("ended", trial=name, state="diverged", reason="diverged: nan", seconds=1.0)
                continue
            if count == COLLAPSED:
                log.append("epoch", trial=name, epoch=1, objective=0.1, seconds=1.5, metrics={})
                log.append("ended", trial=name, state="stopped", reason="collapsed: effective rank", seconds=1.5)
                continue
            done[seed] = right(count, seed)
            log.append("epoch", trial=name, epoch=1, objective=count / IMAGES / 2, seconds=1.5, metrics={})
            log.append("epoch", trial=name, epoch=2, objective=count / IMAGES, seconds=3.0, metrics={})
            log.append("answered", trial=name, **done[seed].to_mapping())
            log.append("ended", trial=name, state="finished", reason="", seconds=3.0)
        if not done:
            continue
        values = [count / IMAGES for count in counts if count not in (None, COLLAPSED)]
        scored = SeedScores.of(Measurements.of(list(done), values, list(done.values())), 2)
        log.append("test_read", runs=[confirming_run(source, seed) for seed in done])
        SettingsTest(source, tuple(done), {"knn": scored, "linear": scored}).write(log)


class MadeUp:
    """A comparison whose sweeps measure what a test says."""

    def __init__(self, path: Path, request: ComparisonRequest) -> None:
        self.plan: ComparisonPlan = make_comparison(request)
        self.folder = ComparisonFolder(path)
        path.mkdir(parents=True)
        self.folder.write_plan(self.plan)

    def copied(self, path: Path) -> Self:
        """Return the same comparison in another folder, where it may change."""
        other = copy.copy(self)
        other.folder = ComparisonFolder(Path(shutil.copytree(self.folder.path, path)))
        return other

    def measure(self, planned: PlannedSweep, **scores: Any) -> None:
        """Write the log of a sweep; what is left out is the same for every method."""
        usual = {
            "default": 0.5,
            "draws": (0.4, 0.6, 0.3),
            "tuned_runs": (150, 152, 151),
            "default_runs": (140, 141, 139),
        }
        sweep = self.folder.sweep(planned.name)
        sweep.trials.mkdir(parents=True)
        write_plan(sweep.plan, planned.plan)
        log = SweepLog(sweep.log)
        write_search(log, planned, usual | scores)
        write_confirmation(log, planned, usual | scores)

    def refer(self, **counts: int) -> None:
        """Say about how many images ``pixels`` and ``untrained``, at every seed, are right."""
        names = {"pixels": PIXELS, "untrained": UNTRAINED}
        rows = dict[tuple[str, str, int], Reference]()
        for planned in self.plan.sweeps:
            config = planned.plan.config
            protocol = Protocol(config, config.data.train_limit, self.plan.request.metric)
            for each, count in counts.items():
                name = names[each]
                for seed in planned.plan.confirming_seeds if name == UNTRAINED else (0,):
                    made = Reference(name, protocol.key(name), seed, count / IMAGES, right(count, seed))
                    rows[name, made.key, seed] = made
        References(tuple(rows.values())).write(self.folder.references)

    def findings(self) -> ComparisonFindings:
        """Return what the comparison found."""
        return read_findings(self.folder, self.plan)
