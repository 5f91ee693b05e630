"""A study: one table or figure of a paper as our runs, their metrics, and the published numbers; or a question of ours.

about      question, source, and origin of the published numbers
columns    the metric, and the settings that a column adds to a run
rows       a method with its recipe and settings
published  numbers by row and column
claims     what the paper says of its numbers, as inequalities between cells
scales     changes at the scales smoke, quick, small and paper; quick has those of small, and one seed, if it has none
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ebclab.config.check import Problems, check_section, settings_of, shown
from ebclab.config.names import did_you_mean, is_folder_name
from ebclab.config.yaml_text import Plain, load_yaml_file, mapping_from_yaml
from ebclab.errors import ConfigError, UserError
from ebclab.evaluation.evaluate import PROBES
from ebclab.methods_by_name import catalogue
from ebclab.reproductions.claims import Claim, ColumnsOf, clauses, problems_of
from ebclab.reproductions.measure import PAPER_OPTIONS, TO_TARGET, measure_problem
from ebclab.reproductions.request import SCALES, Scale
from energy_contrast.settings import setting

Unit = Literal["percent", "plain", "seconds", "hours"]

FACTORS: Mapping[Unit, float] = {"percent": 100.0, "plain": 1.0, "seconds": 1.0, "hours": 1 / 3600}
"""What a measured value (a share, a number, seconds) is multiplied by."""

OWN = "own"
"""What names of studies in a user's files begin with; such a study is of no paper."""

_OF_NO_PAPER = (OWN, "ablations")

EFFICIENCY = "efficiency"
"""Kind of a column of efficiencies: ``efficiency/ROW/COLUMN``."""

_REPLACED = {"card": "numbers of a card", TO_TARGET: "times to a target"}
_COLLAPSED = "~"
_WITH_SPREAD = re.compile(r"(\d+(?:\.\d+)?) ± (\d+(?:\.\d+)?)")

Assignments = tuple[str, ...]
"""Assignments in the form of ``--set``: ``training.batch_size=16``."""


@dataclass(frozen=True)
class StudyAbout:
    """Description of a study, and the origin of the published numbers."""

    title: str = setting("", "What the table or figure shows.")
    asks: str = setting("", "The question that it answers.")
    source: str = setting("", "Paper, and number of the table or figure where that is known.")
    numbers: str = setting(
        "", "How the published numbers are known: printed, or read off a plot, and of how many runs."
    )
    repeats: int = setting(0, "Runs behind each published number, as printed; 0: not said.", minimum=0, maximum=100)
    unknown: str = setting("", "What is not known of the published numbers, and why.")
    released: tuple[str, ...] = setting((), "What the released code does differently from the paper.")


@dataclass(frozen=True)
class StudyColumn:
    """The metric of a column, and the settings that the column adds to a run."""

    title: str = setting("", "Heading of the column.")
    measure: str = setting(
        "linear",
        "knn, linear, top5, ebclr-knn, log/METRIC, card/GROUP/NUMBER, samples/FROM/NUMBER, seconds-per-epoch, "
        "seconds-per-run, "
        "seconds-to/PROBE/TARGET: training time to the first kept checkpoint from which on PROBE stays at TARGET, or "
        "efficiency/ROW/COLUMN: the share of its epochs after which ROW has in COLUMN what this row ends with.",
    )
    dataset: str = setting("", "Dataset that the frozen encoder is measured on; empty means the run's own.")
    epoch: int = setting(0, "Epoch of the run after which it is measured; 0: the last.", minimum=0)
    outside: str = setting("", "Images from outside that a card measures against, as ``--ood`` takes them.")
    unit: Unit = setting("percent", "Unit of the published numbers.")
    set: tuple[str, ...] = setting((), "Settings.")


@dataclass(frozen=True)
class SettingsOfSome:
    """Settings of a subset of runs: of one row, of one method, or of one column of a row."""

    set: tuple[str, ...] = setting((), "Settings.")


@dataclass(frozen=True)
class CellOfRow(SettingsOfSome):
    """A column of one row: its settings, and another number of a card where the row has its own."""

    measure: str = setting("", "card/GROUP/NUMBER in place of the column's, in the same unit; empty: the column's.")


@dataclass(frozen=True)
class StudyRow:
    """A method with its recipe and settings; columns with settings of their own have a separate run."""

    title: str = setting("", "Heading of the row.")
    method: str = setting("", "Method.")
    recipe: str = setting("", "Named settings; empty means those of the paper's studies, or the defaults.")
    beside: str = setting("", "Row of the published numbers that it is compared with; empty: its own name.")
    only: tuple[str, ...] = setting((), "Columns that the row has; empty: all.")
    set: tuple[str, ...] = setting((), "Settings.")
    columns: dict[str, CellOfRow] = field(default_factory=dict)


@dataclass(frozen=True)
class ColumnAtScale:
    """Changes of a scale in a column."""

    here: str = setting("", "What replaces what the paper measured; empty: nothing.")
    measure: str = setting("", "seconds-to/PROBE/TARGET in place of the column's; empty: the column's.")
    dataset: str = setting("", "Dataset that is measured on in place of the paper's.")
    epoch: int = setting(0, "Epoch in place of the paper's; 0: the paper's.", minimum=0)
    outside: str = setting("", "Images from outside in place of the paper's.")
    attacked: int = setting(1_000, "Test images that are attacked; 0: all.", minimum=0)
    protocol: str = setting("", "flatnce: measured by FlatNCE's transfer and fine-tuning protocols; empty: as usual.")
    not_run: str = setting("", "Why it is not run at this scale, and what to put where; empty where it is run.")
    set: tuple[str, ...] = setting((), "Settings over all others.")


@dataclass(frozen=True)
class StudyScale:
    """The scale at which a study is run."""

    seeds: tuple[int, ...] = setting(
        (), "Seeds of each run; empty: 0, and at scale paper as many as the paper has runs (about.repeats).", minimum=0
    )
    differs: tuple[str, ...] = setting((), "What differs from the paper at this scale.")
    not_run: str = setting("", "Why nothing is run at this scale, and what to put where; empty where it is run.")
    only: tuple[str, ...] = setting((), "Columns that are run at this scale; empty: all.")
    others: str = setting("left out to be quick; use a larger --scale", "Why the others are not.")
    set: tuple[str, ...] = setting((), "Settings of all runs.")
    rows: dict[str, SettingsOfSome] = field(default_factory=dict)
    columns: dict[str, ColumnAtScale] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedNumber:
    """A number as printed."""

    value: float | None  # the number; None if the training collapsed
    spread: float | None = None  # the standard deviation that is printed with it; None without one


@dataclass(frozen=True)
class Study:
    """One table or figure."""

    name: str  # paper and table or figure, e.g. ``ebclr/table1``
    about: StudyAbout  # its description
    columns: Mapping[str, StudyColumn]  # columns by name, with what is measured
    rows: Mapping[str, StudyRow]  # rows by name, with what is trained
    # published numbers by row and column, in the unit of the column
    published: Mapping[str, Mapping[str, PublishedNumber]]
    claims: tuple[Claim, ...]  # what the paper says of them
    scales: Mapping[Scale, StudyScale]  # changes of each scale

    @property
    def has_numbers(self) -> bool:
        """Whether numbers are published."""
        return any(self.published.values())

    @property
    def is_own(self) -> bool:
        return self.name.partition("/")[0] == OWN

    @property
    def is_of_paper(self) -> bool:
        return self.name.partition("/")[0] not in _OF_NO_PAPER

    def published_number(self, row: str, column: str) -> PublishedNumber | None:
        """Return the published number of a cell; None if there is none."""
        return self.published.get(self.rows[row].beside or row, {}).get(column)

    def reference_of(self, column: str) -> str:
        """Return the row that the efficiencies of a column are of; empty for another column."""
        kind, _, rest = self.columns[column].measure.partition("/")
        return rest.partition("/")[0] if kind == EFFICIENCY else ""

    @property
    def columns_of(self) -> ColumnsOf:
        return {
            name: tuple(column for column in self.columns if not row.only or column in row.only)
            for name, row in self.rows.items()
        }

    def has(self, row: str, column: str) -> bool:
        """Return whether the study has a cell."""
        return column in self.columns_of.get(row, ())


@dataclass(frozen=True)
class Shared:
    """Defaults of all studies of a paper, or of all studies at a scale; a study's own settings take precedence."""

    cite: str = setting("", "Title, authors, year and address of the paper.")
    recipe: str = setting("", "Named settings of rows that name none.")
    set: tuple[str, ...] = setting((), "Settings of all runs.")
    methods: dict[str, SettingsOfSome] = field(default_factory=dict)
    differs: tuple[str, ...] = setting((), "What differs from the paper.")
    released: tuple[str, ...] = setting((), "What the released code does differently from the paper.")


def parse_study(name: str, given: Mapping[str, Any], where: str) -> Study:
    """Return the validated study in the plain values of its YAML file, which messages call ``where``."""
    problems = Problems()
    _refuse_others(given, ("about", "columns", "rows", "published", "claims", "scales"), problems)
    about = _section("about", StudyAbout, given.get("about"), problems)
    columns = _sections("columns", StudyColumn, given.get("columns"), problems)
    rows = _sections("rows", StudyRow, given.get("rows"), problems)
    by_scale = _mapping("scales", given.get("scales"), problems)
    _refuse_others(by_scale, SCALES, problems, "scales.")
    scales = {scale: _section(f"scales.{scale}", StudyScale, by_scale.get(scale), problems) for scale in SCALES}
    published, claims = _published(given.get("published"), problems), _claims(given.get("claims"), problems)
    study = Study(name, about, columns, rows, published, claims, scales)
    problems.lines += _gaps(study) + _names_of_nothing(study) + _wrong_measures(study) + _wrong_claims(study)
    if problems.lines:
        raise ConfigError([f"{where}: {line}" for line in problems.lines])
    if not by_scale.get("quick"):  # small's own mistakes are told once
        return replace(study, scales={**scales, "quick": replace(scales["small"], seeds=())})
    return study


def parse_common(given: Mapping[str, Any], where: str) -> tuple[dict[str, Shared], dict[Scale, Shared]]:
    """Return the defaults that studies share, by paper and by scale; arguments and errors as in ``parse_study``."""
    problems = Problems()
    _refuse_others(given, ("papers", "scales"), problems)
    papers, scales = (_mapping(key, given.get(key), problems) for key in ("papers", "scales"))
    _refuse_others(scales, SCALES, problems, "scales.")
    by_paper = {name: _section(f"papers.{name}", Shared, inner, problems) for name, inner in papers.items()}
    by_scale = {scale: _section(f"scales.{scale}", Shared, scales.get(scale), problems) for scale in SCALES}
    by_scale["quick"] = _over(by_scale["small"], by_scale["quick"])
    if problems.lines:
        raise ConfigError([f"{where}: {line}" for line in problems.lines])
    return by_paper, by_scale


def _over(base: Shared, changes: Shared) -> Shared:
    """Return ``changes`` with the settings of ``base`` before its own."""
    none = SettingsOfSome()
    methods = {
        name: SettingsOfSome(base.methods.get(name, none).set + changes.methods.get(name, none).set)
        for name in base.methods | changes.methods
    }
    return replace(changes, set=base.set + changes.set, methods=methods)


def _mapping(key: str, value: Any, problems: Problems) -> Plain:
    """Return the content of a section; empty if the section is empty or invalid, which is reported."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.add(key, f"not a section, got {shown(value)}; write names with a colon, indented below it")
        return {}
    return {str(name): inner for name, inner in value.items()}


def _section(key: str, kind: type, value: Any, problems: Problems) -> Any:
    """Return a section as ``kind``, whose fields that are dictionaries hold subsections."""
    own = _mapping(key, value, problems)
    parts = {name: get_args(hint)[1] for name, hint in get_type_hints(kind).items() if get_origin(hint) is dict}
    inner = {name: _sections(f"{key}.{name}", part, own.pop(name, None), problems) for name, part in parts.items()}

    def unknown(name: str) -> str:
        return f"{key}.{name}: no such key; {did_you_mean(name, settings_of(kind))}"

    return replace(check_section(key, kind, own, unknown, problems), **inner)


def _sections(key: str, kind: type, value: Any, problems: Problems) -> dict[str, Any]:
    """Return the subsections of a section by name; names must be valid folder names."""
    found = _mapping(key, value, problems)
    for name in found:
        if not is_folder_name(name):
            problems.lines.append(f"{key}.{name}: not a name, got {shown(name)}; use letters, digits and hyphens")
    return {name: _section(f"{key}.{name}", kind, inner, problems) for name, inner in found.items()}


def _refuse_others(given: Mapping[str, Any], known: tuple[str, ...], problems: Problems, prefix: str = "") -> None:
    problems.lines += [
        f"{prefix}{name}: no such section; {did_you_mean(str(name), known)}" for name in given if name not in known
    ]


def _published(value: Any, problems: Problems) -> dict[str, dict[str, PublishedNumber]]:
    return {
        row: {
            column: _number(f"published.{row}.{column}", number, problems)
            for column, number in _mapping(f"published.{row}", cells, problems).items()
        }
        for row, cells in _mapping("published", value, problems).items()
    }


def _number(key: str, given: Any, problems: Problems) -> PublishedNumber:
    """Return a published number written as 1.5, as 1.5 ± 0.2 with its standard deviation, or as ~ for a collapse."""
    if isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given):
        return PublishedNumber(float(given))
    if isinstance(given, str) and (parts := _WITH_SPREAD.fullmatch(given)):
        return PublishedNumber(float(parts[1]), float(parts[2]))
    if given != _COLLAPSED:
        problems.lines.append(
            f'{key}: wrong type, got {shown(given)}; must be a number, NUMBER ± SPREAD, or "~" for a collapse'
        )
    return PublishedNumber(None)


def _claims(value: Any, problems: Problems) -> tuple[Claim, ...]:
    given = [] if value is None else value
    if not isinstance(given, list):
        problems.add("claims", f"not a list, got {shown(given)}; begin each claim with a hyphen")
        return ()
    return tuple(
        _section(f"claims.{place}", Claim, {key: _listed(key, inner) for key, inner in each.items()}, problems)
        if isinstance(each, Mapping)
        else _section(f"claims.{place}", Claim, each, problems)
        for place, each in enumerate(given, start=1)
    )


def _listed(key: str, value: Any) -> Any:
    is_listed = key in ("above", "below", "alike", "best", "among", "between", "correlate", "against", "columns")
    return [value] if is_listed and isinstance(value, str) else value


def _gaps(study: Study) -> list[str]:
    """Return a line for each required entry that is missing from a study."""
    required = ("title", "asks", "source") if study.is_of_paper else ("title", "asks")
    missing = [f"about.{name}" for name in required if not getattr(study.about, name)]
    missing += [name for name in ("columns", "rows") if not getattr(study, name)]
    missing += [f"columns.{name}.title" for name, column in study.columns.items() if not column.title]
    missing += [
        f"rows.{name}.{key}" for name, row in study.rows.items() for key in ("title", "method") if not getattr(row, key)
    ]
    lines = [f"{key}: missing; write it" for key in missing]
    for kind, titles in (
        ("rows", [(name, row.title) for name, row in study.rows.items()]),
        ("columns", [(name, column.title) for name, column in study.columns.items()]),
    ):
        first = {title: name for name, title in reversed(titles)}
        lines += [
            f"{kind}.{name}.title: that of {kind}.{first[title]} too, got {shown(title)}; give each its own"
            for name, title in titles
            if title and first[title] != name
        ]
    if study.is_of_paper and not study.has_numbers and not study.about.unknown:
        lines.append("published: no number, and about.unknown does not say why; write one of them")
    if study.has_numbers and not study.about.numbers:
        lines.append("about.numbers: missing; say how the published numbers are known")
    if study.about.repeats < 2:
        lines += [
            f"published.{row}.{column}: a spread of {number.spread:g}, and about.repeats is {study.about.repeats}; "
            "write how many runs it is of"
            for row, cells in study.published.items()
            for column, number in cells.items()
            if number.spread is not None
        ]
    return lines


def _names_of_nothing(study: Study) -> list[str]:
    """Return a line for each name that refers to an unknown row or column."""
    rows, columns = study.rows, study.columns
    printed = {row.beside or name for name, row in rows.items()}
    named: list[tuple[str, Collection[str], Collection[str], str]] = [("published", study.published, printed, "row")]
    named += [(f"published.{row}", cells, columns, "column") for row, cells in study.published.items()]
    for name, row in rows.items():
        named += [(f"rows.{name}.{key}", getattr(row, key), columns, "column") for key in ("only", "columns")]
    for scale, changes in study.scales.items():
        named.append((f"scales.{scale}.rows", changes.rows, rows, "row"))
        named += [(f"scales.{scale}.{key}", getattr(changes, key), columns, "column") for key in ("only", "columns")]
    lines = [
        f"{key}.{name}: no such {what}; {did_you_mean(name, known)}"
        for key, names, known, what in named
        for name in names
        if name not in known
    ]
    lines += [
        f"published.{row}.{name}: the row has no such column, by rows.{row}.only; take it out of one of them"
        for row, cells in study.published.items()
        for name in cells
        if row in rows and name in columns and not study.has(row, name)
    ]
    return lines + [
        f"rows.{name}.beside: no published row of this name, got {row.beside!r}; "
        f"{did_you_mean(row.beside, study.published)}"
        for name, row in rows.items()
        if row.beside and row.beside not in study.published
    ]


def _wrong_measures(study: Study) -> list[str]:
    found = {name: measure_problem(column.measure) for name, column in study.columns.items()}
    lines = [f"columns.{name}.measure: {problem}" for name, problem in found.items() if problem]
    lines += [
        f"scales.{scale}.columns.{name}.protocol: no such protocol, got {change.protocol!r}; "
        f"{did_you_mean(change.protocol, [each for each in PAPER_OPTIONS if each])}"
        for scale, changes in study.scales.items()
        for name, change in changes.columns.items()
        if change.protocol not in PAPER_OPTIONS
    ]
    changes: list[tuple[str, str, Mapping[str, CellOfRow | ColumnAtScale]]] = [
        *((f"rows.{row}", "card", each.columns) for row, each in study.rows.items()),
        *((f"scales.{scale}", TO_TARGET, each.columns) for scale, each in study.scales.items()),
    ]
    for key, kind, columns in changes:
        for name, own in ((name, change.measure) for name, change in columns.items() if change.measure):
            replaced = study.columns[name].measure if name in found else ""
            problem = measure_problem(own)
            if not problem and not all(text.startswith(f"{kind}/") for text in (own, replaced)):
                problem = f"replaces {_REPLACED[kind]} alone, got {own} for {replaced}; leave it out"
            if problem:
                lines.append(f"{key}.columns.{name}.measure: {problem}")
    for name, column in study.columns.items():
        kind, _, rest = column.measure.partition("/")
        row, _, reached = rest.partition("/")
        if kind == EFFICIENCY and not study.has(row, reached):
            lines.append(f"columns.{name}.measure: no such cell, got {rest!r}; write efficiency/ROW/COLUMN")
        lines += _not_of_its_kind(f"columns.{name}", column, column.measure)
    return lines + [
        line
        for scale, changes in study.scales.items()
        for name, change in changes.columns.items()
        if name in study.columns
        for line in _not_of_its_kind(
            f"scales.{scale}.columns.{name}", change, change.measure or study.columns[name].measure
        )
    ]


def _not_of_its_kind(place: str, column: StudyColumn | ColumnAtScale, measure: str) -> list[str]:
    """Return a line for each key of a column, in the study or at a scale, that its measure would ignore."""
    kind, lines = measure.partition("/")[0], []
    if column.epoch and kind not in (*PROBES, "log"):
        lines.append(f"{place}.epoch: {kind} is measured at the end alone, got {column.epoch}; leave it out")
    if kind.startswith("seconds-") and isinstance(column, StudyColumn) and column.unit == "percent":
        lines.append(f"{place}.unit: a time is not in per cent, got {measure}; write seconds or hours")
    if column.outside and kind != "card":
        lines.append(f"{place}.outside: {kind} has no images from outside; choose a measure of a card")
    return lines


def _wrong_claims(study: Study) -> list[str]:
    """Return a line for each mistake in the claims: of their form, their cells, and units that do not fit together."""
    lines = []
    for place, claim in enumerate(study.claims, start=1):
        problems = problems_of(claim, study.columns_of, study.columns)
        lines += [f"claims.{place}.{problem}" for problem in problems]
        if problems:
            continue
        parts = [part for clause in clauses(claim, study.columns_of) for some in clause for part in some]
        units = [{study.columns[column].unit for (_, column), _ in part.weights} for part in parts]
        if mixed := next((each for each in units if len(each) > 1), None):
            lines.append(f"claims.{place}: compares columns of different units, got {', '.join(sorted(mixed))}")
        if not parts and not claim.untold and not claim.correlate:
            lines.append(f"claims.{place}: compares nothing; its rows have no column in common")
    return lines


_IN_COMMON, _WITHOUT = "common.yaml", "no-study.yaml"

_NUMBERED = re.compile(r"(table|figure)(-s)?(\d+)([a-z]?)")


def _folder() -> Traversable:
    return files("ebclab").joinpath("studies")


def list_studies() -> list[str]:
    """Return the names of all studies by paper: figures and tables in numerical order, then the rest."""
    names = [
        f"{paper.name}/{entry.name.removesuffix('.yaml')}"
        for paper in _folder().iterdir()
        if paper.is_dir()
        for entry in paper.iterdir()
        if entry.name.endswith(".yaml")
    ]
    return sorted(names, key=_order)


def _order(name: str) -> tuple[str, bool, str, int, str]:
    """Return the sort key of a study: ``table2`` before ``table12``, and both before names without a number."""
    paper, _, row = name.partition("/")
    found = _NUMBERED.fullmatch(row)
    if found is None:
        return paper, True, row, 0, ""
    kind, supplement, digits, letter = found.groups(default="")
    return paper, False, kind + supplement, int(digits), letter


def load_study(name: str) -> Study:
    """Return a study by paper and table or figure, e.g. ``ebclr/table1``, or one in a user's YAML file."""
    if name.endswith((".yaml", ".yml")):
        return _own_study(Path(name))
    known, without = list_studies(), without_study()
    if name in without:
        raise UserError(f"{name}: no study, since {without[name]}")
    if name not in known:
        raise UserError(f"reproduce: no such study, got {name!r}; {did_you_mean(name, known)}")
    paper, _, row = name.partition("/")
    where = f"studies/{name}.yaml"
    text = _folder().joinpath(paper, f"{row}.yaml").read_text(encoding="utf-8")
    return parse_study(name, mapping_from_yaml(text, where), where)


def _own_study(path: Path) -> Study:
    """Return the study in a user's file. It may be a stranger's, so that it decides nothing that is imported."""
    if not is_folder_name(path.stem):
        raise UserError(f"{path}: not the name of a study, got {path.stem!r}; use letters, digits and hyphens")
    study = parse_study(f"{OWN}/{path.stem}", load_yaml_file(path), str(path))
    known = catalogue()
    wrong = [
        f"{path}: rows.{name}.method: no method of the catalogue, got {row.method!r}; {did_you_mean(row.method, known)}"
        for name, row in study.rows.items()
        if row.method not in known
    ]
    if wrong:
        raise ConfigError(wrong)
    return study


@cache
def _in_common() -> tuple[dict[str, Shared], dict[Scale, Shared]]:
    where = f"studies/{_IN_COMMON}"
    text = _folder().joinpath(_IN_COMMON).read_text(encoding="utf-8")
    return parse_common(mapping_from_yaml(text, where), where)


def paper_of(study: Study) -> Shared:
    """Return the defaults of the study's paper, the first part of its name."""
    return _in_common()[0].get(study.name.partition("/")[0], Shared())


def shared_at(study: Study, scale: Scale) -> Shared:
    """Return the defaults of all studies at a scale; a user's own has its own, except at smoke."""
    return _in_common()[1][scale] if scale == "smoke" or not study.is_own else Shared()


@cache
def without_study() -> Mapping[str, str]:
    """Return the tables and figures without a study, each with the reason."""
    text = _folder().joinpath(_WITHOUT).read_text(encoding="utf-8")
    return {name: str(reason) for name, reason in mapping_from_yaml(text, f"studies/{_WITHOUT}").items()}
