"""Request of a comparison: methods, datasets, budgets, and the questions specified in advance."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass, replace
from functools import partial
from typing import Literal

from ebclab.config import did_you_mean
from ebclab.config.options import DATA_ROOT, given_twice, option, option_problems, seconds_of
from ebclab.formatting import count
from ebclab.methods_by_name import is_import_name

Budget = Literal["epochs", "seconds"]
"""What is equal for all runs of a comparison."""
Metric = Literal["knn", "linear"]
_PLACE = re.compile(r"([\w.:-]+)@(\d+)")

Question = tuple[tuple[str, int], tuple[str, int]]
"""A difference specified in advance, between two methods, each at its batch size."""


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """Settings of a comparison; ``make_comparison`` makes a plan from them."""

    methods: tuple[str, ...] = option(
        MISSING,
        "Methods (also package.module:Class); default: those of the comparison --name.",
        metavar="METHOD",
        is_argument=True,
    )
    batch_sizes: tuple[int, ...] = option(
        MISSING, "Batch size; repeatable.", flag="--batch-size", panel="Tasks", minimum=2
    )
    datasets: tuple[str, ...] = option((), "Dataset; repeatable.", flag="--dataset")
    data_root: str | None = option(None, DATA_ROOT, sets="data.root")
    recipe: str | None = option(None, "Named settings of every run.", panel="Settings")
    assignments: tuple[str, ...] = option(
        (), "Any setting of all runs, or of one method's runs.", flag="--set", metavar="[METHOD:]KEY=VALUE"
    )
    spaces: tuple[str, ...] = option(
        (),
        "Search space of a method; default: the one shipped with it.",
        flag="--space",
        metavar="METHOD=FILE",
    )
    epochs: int | None = option(None, "Epochs of every run.", sets="training.epochs", panel="Budget")
    trials: int = option(24, "Random search trials per method and batch size; default: 24.", minimum=1)
    seeds: int = option(8, "Seeds for the tuned and for the default settings; default: 8.", minimum=2)
    metric: Metric = option("knn", "Accuracy to compare: knn (default) or linear.", panel="Questions")
    margin: float = option(0.5, "Smallest relevant difference, in percentage points; default: 0.5.", above=0, below=100)
    reference: str | None = option(None, "Compare all others with this method; default: all pairs.", metavar="METHOD")
    questions: tuple[str, ...] = option(
        (),
        "Also compare across batch sizes, e.g. flatclr@16,simclr@128.",
        flag="--ask",
        metavar="METHOD@B,METHOD@B",
    )
    target: float | None = option(None, "Held-out accuracy in %, for the time to reach it.", above=0, below=100)
    budget: Budget = option(
        "epochs",
        "Equal budget of all runs: epochs (default), or the seconds of the first method at default settings.",
        panel="Budget",
    )
    practice_seconds: float = option(
        0.0,
        "Also tune with TPE and ASHA, for this time each, e.g. 10m.",
        flag="--practice",
        metavar="TIME",
        read=partial(seconds_of, option="--practice"),
        minimum=0,
        below=math.inf,
    )
    repeats: int = option(
        1, "Number of times that whole searches are repeated; default: 1.", flag="--repeat", minimum=1
    )
    may_differ: tuple[str, ...] = option(
        (), "Setting of views or encoder that may differ between methods.", metavar="KEY", panel="Settings"
    )

    def problems(self) -> list[str]:
        """Return the problems of the request that can be found without its settings, one line each."""
        from energy_contrast.catalog import METHODS  # imports torch

        lines = [
            f"METHOD: no such method, got {name}; "
            + ("`ebclab report RUN RUN` shows runs side by side" if "/" in name else did_you_mean(name, METHODS, ""))
            for name in dict.fromkeys(self.methods)
            if name not in METHODS and not is_import_name(name)
        ]
        for word, values in (
            ("METHOD", self.methods),
            ("--batch-size", self.batch_sizes),
            ("--dataset", self.datasets),
        ):
            lines += [f"{word}: twice, got {value}" for value in dict.fromkeys(values) if values.count(value) > 1]
        if len(self.methods) < 2:
            lines.append(f"METHOD: a comparison takes at least two methods, got {' '.join(self.methods) or 'none'}")
        if not self.batch_sizes:
            lines.append("--batch-size: at least one, got none; write for example --batch-size 64")
        lines += [*option_problems(self), *given_twice(self, self.assignments, {})]
        if self.reference is not None and self.reference not in self.methods:
            known = did_you_mean(self.reference, self.methods)
            lines.append(f"--reference: not among the methods compared, got {self.reference}; {known}")
        return lines + self._wrong_questions() + self._wrong_names()

    def as_applied(self) -> ComparisonRequest:
        """Return the request of an older version without assignments of settings that an option replaced.

        Now both are refused. A mapping that assigns other settings too is left out whole.
        """
        applied = (text for text in self.assignments if not given_twice(self, (text,), {}))
        return replace(self, assignments=tuple(applied))

    def _wrong_questions(self) -> list[str]:
        lines = []
        for text in self.questions:
            sides = _sides(text)
            if len(sides) != 2:
                lines.append(
                    f"--ask: not a question, got {text!r}; write METHOD@BATCH,METHOD@BATCH: flatclr@16,simclr@128"
                )
                continue
            for method, batch in sides:
                if method not in self.methods:
                    lines.append(f"--ask {text}: not compared, got {method}; {did_you_mean(method, self.methods)}")
                if batch not in self.batch_sizes:
                    known = ", ".join(map(str, self.batch_sizes))
                    lines.append(f"--ask {text}: not a batch size of this comparison, got {batch}; there are {known}")
        return lines

    def _wrong_names(self) -> list[str]:
        """Return a line for each malformed space, and each setting or space for a method that is not compared."""
        named = [(f"--set {text}", _named_method(text)) for text in self.assignments if _named_method(text)]
        named += [(f"--space {text}", text.partition("=")[0]) for text in self.spaces]
        lines = [
            f"{where}: not among the methods compared, got {name}; {did_you_mean(name, self.methods)}"
            for where, name in named
            if name not in self.methods
        ]
        return lines + [f"--space {text}: no = found; write METHOD=FILE" for text in self.spaces if "=" not in text]

    @property
    def margin_in_words(self) -> str:
        return count(self.margin, "point")

    @property
    def asked(self) -> tuple[Question, ...]:
        return tuple((one, other) for one, other in map(_sides, self.questions))

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of methods whose differences are computed for each task."""
        if self.reference is not None:
            return tuple((name, self.reference) for name in self.methods if name != self.reference)
        return tuple((one, other) for i, other in enumerate(self.methods) for one in self.methods[i + 1 :])

    @property
    def assignments_of(self) -> dict[str, list[str]]:
        """The settings of each method, ``KEY=VALUE``: those for all methods, followed by those for this one only."""
        named = [(_named_method(text), text) for text in self.assignments]
        common = [text for name, text in named if not name]
        return {
            method: common + [text.removeprefix(f"{method}:") for name, text in named if name == method]
            for method in self.methods
        }

    @property
    def space_of(self) -> dict[str, str]:
        """The files of custom search spaces, by method; other methods have the shipped ones."""
        return dict(text.partition("=")[::2] for text in self.spaces)


def _sides(question: str) -> list[tuple[str, int]]:
    """Return method and batch size of each side of a question; empty if one of them is malformed."""
    sides = [_PLACE.fullmatch(side.strip()) for side in question.split(",")]
    found = [(side[1], int(side[2])) for side in sides if side]
    return found if len(found) == len(sides) else []


def _named_method(text: str) -> str:
    """Return the method that a setting, ``METHOD:KEY=VALUE``, is for; empty if it is for all."""
    return text.partition("=")[0].rpartition(":")[0]
