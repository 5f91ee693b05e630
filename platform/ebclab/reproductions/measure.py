"""The metrics of a study's columns, and their measurement on a finished run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast, get_args

from ebclab.card.evaluate import measure_cards
from ebclab.card.groups import GROUPS
from ebclab.card.groups.classification import HELD_OUT
from ebclab.card.measuring import CardOptions
from ebclab.card.request import CardRequest
from ebclab.config.names import did_you_mean
from ebclab.errors import UnmeasuredError
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.evaluate import PROBES
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.runs.evaluate import evaluate_run
from ebclab.runs.folder import RunFolder
from ebclab.training.pretrain import RunResult
from ebclab.training.sample_request import SampleRequest, SampleSource
from ebclab.training.samples import sample_chains

PAPER_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "flatnce": {"protocol": "flatnce-adam", "size": 224, "resampling": "bicubic", "fine_tuning": "flatnce"},
}
"""Options of evaluation by name of the protocol; empty: the usual ones."""

_HELD_OUT = "holdout_"  # of metrics of held-out images
_COUNTED = re.compile(r"calibration/[a-z-]+-(\d+)(?:-scaled|-own)?")  # a calibration error with its bins
_TIMES = ("seconds-per-epoch", "seconds-per-run")
_GAP = "energy-gap"
_OF_SAMPLES = ("saturation", _GAP, "diversity", "nearest", "entropy")
_OTHERS = ("log/METRIC", "card/GROUP/NUMBER", "samples/FROM/NUMBER", "seconds-to/PROBE/TARGET", "efficiency/ROW/COLUMN")
_KINDS = [*PROBES, *_TIMES, *_OTHERS]
_TARGET = re.compile(r"0?\.\d{1,9}")  # a share below 1

TO_TARGET = "seconds-to"
"""Kind of a column of times to a target: ``seconds-to/PROBE/TARGET``."""

SECONDS = "log/seconds"
"""Training time at the last step of an epoch, which is always logged, before the epoch is scored and saved."""


@dataclass(frozen=True)
class Wanted:
    """A metric to measure on a run."""

    measure: str  # the metric, as written in a study
    dataset: str  # dataset that the frozen encoder is evaluated on; empty means the run's own
    epoch: int = 0  # epoch after which it is measured; 0 means the last
    outside: str = ""  # images from outside, of a card; empty means none
    attacked: int = CardOptions.attacked_images  # number of test images that are attacked, of a card; 0 means all
    protocol: str = ""  # key in ``PAPER_OPTIONS``


@dataclass(frozen=True)
class Found:
    """A measured value."""

    value: float  # the value; shares are in [0, 1]
    detail: str  # how it was measured, in words
    answers: Answers | None = None  # per-image correctness; None if the value is not the score of a probe


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run."""

    seconds: float = 0.0  # training time over all launches
    numbers: dict[Wanted, Found] = field(default_factory=dict)  # its measured values
    machine: str = ""  # machine and versions of its first launch, in words
    command: str = ""  # command of its first launch
    commit: str = ""  # source commit of its first launch
    images: str = ""  # its dataset, with the digest of its training and held-out images
    problem: str = ""  # why it has no values; empty if it has


def measure_problem(measure: str) -> str | None:
    """Return why ``measure`` is not a valid metric of a study; None if it is."""
    kind, _, rest = measure.partition("/")
    if measure in PROBES or measure in _TIMES or (kind == "log" and rest):
        return None
    group, _, number = rest.partition("/")
    if kind == TO_TARGET:
        return _target_problem(group, number)
    known = {"efficiency": bool(group), "card": group in GROUPS, "samples": group in get_args(SampleSource)}
    if known.get(kind) and number and (kind != "samples" or number in _OF_SAMPLES):
        return None
    if kind == "card" and group and group not in GROUPS:
        return f"no such group of the card, got {group!r}; {did_you_mean(group, GROUPS)}"
    return f"no such measure, got {measure!r}; {did_you_mean(measure, _KINDS)}"


def _target_problem(probe: str, target: str) -> str | None:
    if probe not in PROBES:
        return f"no such probe, got {probe!r}; {did_you_mean(probe, PROBES)}"
    is_share = _TARGET.fullmatch(target) and float(target) > 0
    return None if is_share else f"not a target between 0 and 1, got {target!r}; write 0.9 for 90 %"


def target_of(measure: str) -> tuple[str, float] | None:
    """Return probe and target of a valid ``seconds-to/PROBE/TARGET``; None for another measure."""
    kind, _, rest = measure.partition("/")
    probe, _, target = rest.partition("/")
    return (probe, float(target)) if kind == TO_TARGET else None


def first_kept(scores: Mapping[int, float], target: float) -> int | None:
    """Return the first of some epochs after which no score is below ``target`` any more; None if the last one is.

    A score that falls below it again does not count, so that no lucky epoch is chosen, unlike by a maximum.
    """
    lost = max((epoch for epoch, score in scores.items() if score < target), default=0)
    return min((epoch for epoch in scores if epoch > lost), default=None)


def measure_run(
    run: RunResult, wanted: Sequence[Wanted], data_root: str | None = None, on_progress: OnProgress = silent
) -> Iterator[dict[Wanted, Found]]:
    """Measure a finished run; yield what is found as soon as it is. All probes on a dataset are evaluated together."""
    left = list(wanted)
    while left:
        found = _measured_with(run, left[0], left, data_root, on_progress)
        yield found
        left = [each for each in left if each not in found]


def _measured_with(
    run: RunResult, each: Wanted, wanted: Sequence[Wanted], data_root: str | None, on_progress: OnProgress
) -> dict[Wanted, Found]:
    """Return one of the wanted values, and those that are measured together with it."""
    if each.measure in PROBES:
        alike = (each.dataset, each.epoch, each.protocol)
        probed = [other for other in wanted if other.measure in PROBES]
        together = [other for other in probed if (other.dataset, other.epoch, other.protocol) == alike]
        return _probed(run, together, data_root, on_progress)
    if each.measure.startswith("card/"):
        return {each: _on_card(run, each, data_root, on_progress)}
    if each.measure.startswith("samples/"):
        source = each.measure.rpartition("/")[0]
        together = [other for other in wanted if other.measure.startswith(f"{source}/")]
        return _of_samples(run, together, data_root, on_progress)
    return {each: _in_log(run, each) if each.epoch else _in_summary(run, each.measure)}


def _probed(
    run: RunResult, wanted: Sequence[Wanted], data_root: str | None, on_progress: OnProgress
) -> dict[Wanted, Found]:
    dataset, epoch, options = wanted[0].dataset, wanted[0].epoch, PAPER_OPTIONS[wanted[0].protocol]
    after = f"after epoch {epoch}: " if epoch else ""
    scores = evaluate_run(
        run.address,
        dataset=dataset or None,
        data_root=data_root,
        only=list(dict.fromkeys(each.measure for each in wanted)),
        kept_step=_step(run, epoch) if epoch else None,
        protocol=options.get("protocol"),
        scaling=(options["size"], options["resampling"]) if options else None,
        must_have_test=True,
        on_progress=lambda done, total, what: on_progress(done, total, f"{after}{what}"),
    )
    (row,) = scores.rows.values()
    where = f"{scores.num_train:,} training and {scores.num_test:,} test images of {scores.dataset}"
    where += f", after epoch {epoch}" if epoch else ""
    where += f", scaled to {options['size']} pixels, {options['resampling']}" if options else ""
    return {
        each: Found(row[each.measure].value, f"{row[each.measure].detail}; {where}", row[each.measure].answers)
        for each in wanted
    }


def _on_card(run: RunResult, wanted: Wanted, data_root: str | None, on_progress: OnProgress) -> Found:
    _, group, name = wanted.measure.split("/", 2)
    datasets = (wanted.dataset,) if wanted.dataset else ()
    if group == "transfer":
        datasets = (run.summary.dataset, *datasets)
    request = CardRequest(
        (run.address,),
        datasets,
        outside=(wanted.outside,) if wanted.outside else (),
        only=(group,),
        seeds=1,
        data_root=data_root,
        attacked_images=wanted.attacked,
        **PAPER_OPTIONS[wanted.protocol],
        bins=int(counted[1]) if (counted := _COUNTED.fullmatch(f"{group}/{name}")) else CardOptions.bins,
    )
    card = measure_cards(request, on_progress=on_progress).cards[0]
    if card.tests_held_out and group != "transfer":
        raise UnmeasuredError(_no_test_part(run, card.dataset, card.num_test))
    numbers = {number.name: number for number in card.numbers(group)}
    if wanted.outside or group == "transfer":  # the one set of other images is part of every name
        name = next((each for each in numbers if each.endswith(f"-{name}")), name)
    if name not in numbers:
        problem = next((result.problem for result in card.results if result.problem), did_you_mean(name, numbers))
        raise UnmeasuredError(f"{run.address}: the card's {group} has no number {name}; {problem}")
    found = numbers[name]
    if group == "transfer" and HELD_OUT in found.protocol:
        raise UnmeasuredError(_no_test_part(run, wanted.dataset, found.num_images))
    return Found(found.value, found.protocol)


def _no_test_part(run: RunResult, dataset: str, count: int) -> str:
    return f"{run.address}: {dataset} has no test images, got {count:,} held-out ones; name a dataset with a test part"


def _of_samples(
    run: RunResult, wanted: Sequence[Wanted], data_root: str | None, on_progress: OnProgress
) -> dict[Wanted, Found]:
    """Return measures of chains from one source after the steps that ``ebclab sample`` takes."""
    source = cast(SampleSource, wanted[0].measure.split("/")[1])
    done, found = sample_chains(run.address, SampleRequest(source), data_root=data_root, on_progress=on_progress), {}
    last, real = (asdict(each) for each in (done.samples[done.request.num_steps], done.test_images))
    chains = f"{done.request.count} chains from {source} after {done.request.num_steps} steps without restarts"
    for each in wanted:
        name = each.measure.rpartition("/")[2]
        value = last["energy"] - real["energy"] if name == _GAP else last[name]
        if value is None:
            raise UnmeasuredError(f"{run.address}: samples have no {name} without training labels of two classes")
        found[each] = Found(value, chains if name == _GAP else f"{chains}; {done.real_images} {real[name]:.3g}")
    return found


def _step(run: RunResult, epoch: int) -> int:
    """Return the optimizer steps of the first epochs of a run."""
    return run.summary.steps // run.summary.epochs * epoch


def _in_log(run: RunResult, wanted: Wanted) -> Found:
    """Return the last logged value of a metric, of training or of held-out images, within an epoch."""
    name, last = wanted.measure.removeprefix("log/"), _step(run, wanted.epoch)
    kind = "epoch" if name.startswith(_HELD_OUT) else "train"
    values = [
        record[name]
        for record in RunFolder.at(run.path).metrics.records()
        if record["kind"] == kind and _step(run, wanted.epoch - 1) < record["step"] <= last and name in record
    ]
    if not values or not isinstance(values[-1], int | float):
        raise UnmeasuredError(f"{run.address}: no finite {name} in its log of epoch {wanted.epoch}")
    return Found(float(values[-1]), f"{name} at the last step that was logged in epoch {wanted.epoch}")


def _in_summary(run: RunResult, measure: str) -> Found:
    """Return a time, or the last logged value of a metric of training or of held-out images."""
    summary = run.summary
    if measure == "seconds-per-run":
        return Found(summary.seconds, "training time over all launches, on this machine")
    if measure == "seconds-per-epoch":
        return Found(summary.seconds / summary.epochs, "training time over epochs, on this machine")
    name = measure.removeprefix("log/")
    metrics: Mapping[str, float] = (summary.scores if name.startswith(_HELD_OUT) else summary.metrics) or {}
    if name not in metrics:
        raise UnmeasuredError(f"{run.address}: no metric {name} in its log; {did_you_mean(name, metrics)}")
    if not math.isfinite(metrics[name]):
        raise UnmeasuredError(f"{run.address}: the metric {name} is {metrics[name]}")
    return Found(metrics[name], f"{name} at the last step that was logged")
