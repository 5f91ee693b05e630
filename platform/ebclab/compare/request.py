"""Request of a comparison: methods, datasets, budgets, and the questions specified in advance."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from ebclab.config import did_you_mean
from ebclab.methods_by_name import is_import_name
from energy_contrast.catalog import METHODS

Budget = Literal["epochs", "seconds"]
"""What is equal for all runs of a comparison."""
Metric = Literal["knn", "linear"]
FEWEST_SEEDS = 2
_PLACE = re.compile(r"([\w.:-]+)@(\d+)")


class Question(NamedTuple):
    """A difference specified in advance, between two methods, each at its batch size.

    Attributes:
        one: Method and batch size of the first side.
        other: Method and batch size of the second side.
    """

    one: tuple[str, int]
    other: tuple[str, int]

    def __str__(self) -> str:
        """Return the question in the syntax of ``--ask``."""
        return ",".join(f"{method}@{batch}" for method, batch in self)


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """Settings of a comparison; ``make_comparison`` makes a plan from them.

    Attributes:
        methods: Names of the methods, at least two.
        batch_sizes: Batch sizes to compare at.
        datasets: Names of datasets; empty means that of the settings.
        data_root: Folder that contains datasets; None means the default one.
        recipe: Name of the recipe of every run.
        assignments: Settings of every run, ``KEY=VALUE``, or of the runs of one method, ``METHOD:KEY=VALUE``.
        spaces: Custom search spaces, ``METHOD=FILE``; other methods use their shipped ones.
        epochs: Epochs of every run; None means those of the settings.
        trials: Number of random draws for each method at each batch size.
        seeds: Number of seeds that the best draw and the default settings are run with.
        metric: The probe whose accuracy on the test images is compared.
        margin: Smallest relevant difference, in percentage points.
        reference: The method that others are compared with; None means all pairs.
        questions: Further differences, also between batch sizes, ``METHOD@BATCH,METHOD@BATCH``.
        target: Held-out accuracy in per cent, for the time to reach it; None omits it.
        budget: What is equal for all runs: epochs, or the seconds that the first method's epochs take.
        practice_seconds: Training time of a second search with TPE and ASHA for each method; 0 omits it.
        repeats: Number of times that the complete search is run, each time with other draws and seeds.
        may_differ: Settings of data, views and encoder that may differ between methods.
    """

    methods: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    datasets: tuple[str, ...] = ()
    data_root: str | None = None
    recipe: str | None = None
    assignments: tuple[str, ...] = ()
    spaces: tuple[str, ...] = ()
    epochs: int | None = None
    trials: int = 24
    seeds: int = 8
    metric: Metric = "knn"
    margin: float = 0.5
    reference: str | None = None
    questions: tuple[str, ...] = ()
    target: float | None = None
    budget: Budget = "epochs"
    practice_seconds: float = 0.0
    repeats: int = 1
    may_differ: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        """Return the problems of the request that can be found without its settings, one line each."""
        lines = [
            f"METHOD: no such method, got {name}; {did_you_mean(name, METHODS)}"
            for name in self.methods
            if name not in METHODS and not is_import_name(name)
        ]
        for option, values in (
            ("METHOD", self.methods),
            ("--batch-size", self.batch_sizes),
            ("--dataset", self.datasets),
        ):
            lines += [f"{option}: twice, got {value}" for value in dict.fromkeys(values) if values.count(value) > 1]
        if len(self.methods) < 2:
            lines.append(f"METHOD: a comparison takes at least two methods, got {' '.join(self.methods) or 'none'}")
        if not self.batch_sizes:
            lines.append("--batch-size: at least one, got none; write for example --batch-size 64")
        lines += [f"--batch-size: at least 2 images, got {size}" for size in self.batch_sizes if size < 2]
        if self.trials < 1:
            lines.append(f"--trials: at least one draw for each method, got {self.trials}")
        if self.seeds < FEWEST_SEEDS:
            lines.append(f"--seeds: an interval over seeds takes at least {FEWEST_SEEDS}, got {self.seeds}; 8 is usual")
        if not 0 < self.margin < 100:
            lines.append(f"--margin: points between 0 and 100, got {self.margin:g}")
        if self.target is not None and not 0 < self.target < 100:
            lines.append(f"--target: per cent between 0 and 100, got {self.target:g}")
        if not 0 <= self.practice_seconds < math.inf:
            lines.append(f"--practice: seconds, from 0 on, got {self.practice_seconds:g} s")
        if self.repeats < 1:
            lines.append(f"--repeat: at least once, got {self.repeats}")
        for option, value, kind in (("--metric", self.metric, Metric), ("--budget", self.budget, Budget)):
            if value not in get_args(kind):
                lines.append(f"{option}: got {value}; {did_you_mean(value, get_args(kind))}")
        if self.reference is not None and self.reference not in self.methods:
            known = did_you_mean(self.reference, self.methods)
            lines.append(f"--reference: not among the methods compared, got {self.reference}; {known}")
        return lines + self._wrong_questions()

    def _wrong_questions(self) -> list[str]:
        lines = []
        for text in self.questions:
            sides = [_PLACE.fullmatch(side.strip()) for side in text.split(",")]
            if len(sides) != 2 or None in sides:
                lines.append(
                    f"--ask: not a question, got {text!r}; write METHOD@BATCH,METHOD@BATCH: flatclr@16,simclr@128"
                )
                continue
            for side in sides:
                method, batch = side[1], int(side[2])  # type: ignore[index]
                if method not in self.methods:
                    lines.append(f"--ask {text}: not compared, got {method}; {did_you_mean(method, self.methods)}")
                if batch not in self.batch_sizes:
                    known = ", ".join(map(str, self.batch_sizes))
                    lines.append(f"--ask {text}: not a batch size of this comparison, got {batch}; there are {known}")
        return lines

    @property
    def asked(self) -> tuple[Question, ...]:
        """The parsed questions."""
        sides = [[_PLACE.fullmatch(side.strip()) for side in text.split(",")] for text in self.questions]
        return tuple(Question(*((side[1], int(side[2])) for side in pair if side)) for pair in sides)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of methods whose differences are computed for each task."""
        if self.reference is not None:
            return tuple((name, self.reference) for name in self.methods if name != self.reference)
        return tuple((one, other) for i, other in enumerate(self.methods) for one in self.methods[i + 1 :])

    def assignments_for(self, method: str) -> list[str]:
        """Return the settings, ``KEY=VALUE``, for all methods, followed by those for this method only."""
        common = [text for text in self.assignments if not _named_method(text)]
        return common + [text.removeprefix(f"{method}:") for text in self.assignments if _named_method(text) == method]

    def space_for(self, method: str) -> str | None:
        """Return the file of a method's custom search space; None if it uses the shipped one."""
        given = dict(text.partition("=")[::2] for text in self.spaces)
        return given.get(method)

    def to_mapping(self) -> dict[str, Any]:
        """Return the request as plain values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def _named_method(text: str) -> str:
    """Return the method that a setting, ``METHOD:KEY=VALUE``, is for; empty if it is for all."""
    return text.partition("=")[0].rpartition(":")[0]


def wrong_names(request: ComparisonRequest) -> list[str]:
    """Return a line for each malformed space, and each setting or space for a method that is not compared."""
    named = [(f"--set {text}", _named_method(text)) for text in request.assignments if _named_method(text)]
    named += [(f"--space {text}", text.partition("=")[0]) for text in request.spaces]
    lines = [
        f"{where}: not among the methods compared, got {name}; {did_you_mean(name, request.methods)}"
        for where, name in named
        if name not in request.methods
    ]
    return lines + [f"--space {text}: no = found; write METHOD=FILE" for text in request.spaces if "=" not in text]
