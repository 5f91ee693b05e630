"""A study: one table or figure of a paper as our runs, their metrics, and the published numbers.

about      question, source, and origin of the published numbers
columns    the metric, and the settings that a column adds to a run
rows       a method with its recipe and settings
published  numbers by row and column
scales     changes at the scales smoke, small and paper
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

from ebclab.config.check import Problems, check_section, shown
from ebclab.config.experiment import settings_of
from ebclab.config.names import did_you_mean, is_folder_name
from ebclab.errors import ConfigError
from ebclab.reproduce.measure import measure_problem
from energy_contrast.settings import setting

Scale = Literal["smoke", "small", "paper"]

SCALES: tuple[Scale, ...] = get_args(Scale)

Unit = Literal["percent", "plain", "seconds"]

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
    unknown: str = setting("", "What is not known of the published numbers, and why.")
    released: tuple[str, ...] = setting((), "What the released code does differently from the paper.")


@dataclass(frozen=True)
class StudyColumn:
    """The metric of a column, and the settings that the column adds to a run."""

    title: str = setting("", "Head of the column.")
    measure: str = setting(
        "linear", "knn, linear, ebclr-knn, log/METRIC, card/GROUP/NUMBER, seconds-per-epoch or seconds-per-run."
    )
    dataset: str = setting("", "Dataset that the frozen encoder is measured on; empty means the run's own.")
    unit: Literal["percent", "plain", "seconds"] = setting("percent", "How the published numbers are printed.")
    set: tuple[str, ...] = setting((), "Settings.")


@dataclass(frozen=True)
class SettingsOfSome:
    """Settings of a subset of runs: of one row, of one method, or of one column of a row."""

    set: tuple[str, ...] = setting((), "Settings.")


@dataclass(frozen=True)
class StudyRow:
    """A method with its recipe and settings; columns with settings of their own have a separate run."""

    title: str = setting("", "Head of the row.")
    method: str = setting("", "Method.")
    recipe: str = setting("", "Named settings; empty means those of the paper's studies, or the defaults.")
    beside: str = setting("", "Row of the published numbers that it stands beside; empty means its own name.")
    set: tuple[str, ...] = setting((), "Settings.")
    columns: dict[str, SettingsOfSome] = field(default_factory=dict)


@dataclass(frozen=True)
class ColumnAtScale:
    """Changes of a scale in a column."""

    here: str = setting("", "What stands here in place of what the paper measured; empty where nothing does.")
    dataset: str = setting("", "Dataset that is measured on in place of the paper's.")
    not_run: str = setting("", "Why it is not run at this scale, and what to put where; empty where it is run.")
    set: tuple[str, ...] = setting((), "Settings over all others.")


@dataclass(frozen=True)
class StudyScale:
    """The scale at which a study is run."""

    seeds: tuple[int, ...] = setting((0,), "Seeds of each run.", minimum=0)
    differs: tuple[str, ...] = setting((), "What differs from the paper at this scale.")
    not_run: str = setting("", "Why nothing is run at this scale, and what to put where; empty where it is run.")
    set: tuple[str, ...] = setting((), "Settings of all runs.")
    rows: dict[str, SettingsOfSome] = field(default_factory=dict)
    columns: dict[str, ColumnAtScale] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """One table or figure.

    Attributes:
        name: Paper and table or figure, e.g. ``ebclr/table1``.
        about: Its description.
        columns: Columns by name, with what is measured.
        rows: Rows by name, with what is trained.
        published: Published numbers by row and column, in the unit of the column.
        scales: Changes of each scale.
    """

    name: str
    about: StudyAbout
    columns: Mapping[str, StudyColumn]
    rows: Mapping[str, StudyRow]
    published: Mapping[str, Mapping[str, float]]
    scales: Mapping[Scale, StudyScale]

    def published_number(self, row: str, column: str) -> float | None:
        """Return the published number of a cell; None if it is not known."""
        return self.published.get(self.rows[row].beside or row, {}).get(column)


@dataclass(frozen=True)
class Shared:
    """Defaults of all studies of a paper, or of all studies at a scale; a study's own settings take precedence."""

    recipe: str = setting("", "Named settings of rows that name none.")
    set: tuple[str, ...] = setting((), "Settings of all runs.")
    methods: dict[str, SettingsOfSome] = field(default_factory=dict)
    differs: tuple[str, ...] = setting((), "What differs from the paper.")
    released: tuple[str, ...] = setting((), "What the released code does differently from the paper.")


@dataclass(frozen=True)
class InCommon:
    """Defaults that studies share.

    Attributes:
        papers: Defaults by paper, the first part of a study's name.
        scales: Defaults by scale.
    """

    papers: Mapping[str, Shared]
    scales: Mapping[Scale, Shared]


def parse_study(name: str, given: Mapping[str, Any], where: str) -> Study:
    """Return the validated study in ``given``.

    Args:
        name: Its name.
        given: Plain values of its YAML file.
        where: Name of the file in messages.

    Raises:
        ConfigError: The study is invalid; lists every problem.
    """
    problems = Problems()
    _refuse_others(given, ("about", "columns", "rows", "published", "scales"), problems)
    about = _section("about", StudyAbout, given.get("about"), problems)
    columns = _sections("columns", StudyColumn, given.get("columns"), problems)
    rows = _rows(given.get("rows"), problems)
    by_scale = _mapping("scales", given.get("scales"), problems)
    _refuse_others(by_scale, SCALES, problems, "scales.")
    scales = {
        scale: _scale(scale, _mapping(f"scales.{scale}", by_scale.get(scale), problems), problems) for scale in SCALES
    }
    study = Study(name, about, columns, rows, _published(given.get("published"), problems), scales)
    problems.lines += _gaps(study) + _names_of_nothing(study) + _wrong_measures(study)
    if problems.lines:
        raise ConfigError([f"{where}: {line}" for line in problems.lines])
    return study


def parse_common(given: Mapping[str, Any], where: str) -> InCommon:
    """Return the defaults that studies share; arguments and errors as in ``parse_study``."""
    problems = Problems()
    _refuse_others(given, ("papers", "scales"), problems)
    papers, scales = (_mapping(key, given.get(key), problems) for key in ("papers", "scales"))
    _refuse_others(scales, SCALES, problems, "scales.")
    by_paper = {name: _shared(f"papers.{name}", inner, problems) for name, inner in papers.items()}
    by_scale = {scale: _shared(f"scales.{scale}", scales.get(scale), problems) for scale in SCALES}
    if problems.lines:
        raise ConfigError([f"{where}: {line}" for line in problems.lines])
    return InCommon(by_paper, by_scale)


def _shared(key: str, value: Any, problems: Problems) -> Shared:
    own = _mapping(key, value, problems)
    methods = _sections(f"{key}.methods", SettingsOfSome, own.pop("methods", None), problems)
    shared: Shared = _section(key, Shared, own, problems)
    return replace(shared, methods=methods)


def _mapping(key: str, value: Any, problems: Problems) -> dict[str, Any]:
    """Return the content of a section; empty if the section is empty or invalid, which is reported."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.add(key, f"not a section, got {shown(value)}; write names with a colon, indented below it")
        return {}
    return {str(name): inner for name, inner in value.items()}


def _section(key: str, kind: type, value: Any, problems: Problems) -> Any:
    return check_section(key, kind, _mapping(key, value, problems), partial(_unknown, key, kind), problems)


def _sections(key: str, kind: type, value: Any, problems: Problems) -> dict[str, Any]:
    """Return the subsections of a section by name; names must be valid folder names."""
    found = _mapping(key, value, problems)
    for name in found:
        if not is_folder_name(name):
            problems.lines.append(f"{key}.{name}: not a name, got {shown(name)}; use letters, digits and hyphens")
    return {name: _section(f"{key}.{name}", kind, inner, problems) for name, inner in found.items()}


def _unknown(key: str, kind: type, name: str) -> str:
    return f"{key}.{name}: no such key; {did_you_mean(name, settings_of(kind))}"


def _refuse_others(given: Mapping[str, Any], known: tuple[str, ...], problems: Problems, prefix: str = "") -> None:
    problems.lines += [
        f"{prefix}{name}: no such section; {did_you_mean(str(name), known)}" for name in given if name not in known
    ]


def _rows(value: Any, problems: Problems) -> dict[str, StudyRow]:
    given = {name: _mapping(f"rows.{name}", row, problems) for name, row in _mapping("rows", value, problems).items()}
    columns = {
        name: _sections(f"rows.{name}.columns", SettingsOfSome, row.pop("columns", None), problems)
        for name, row in given.items()
    }
    rows = _sections("rows", StudyRow, given, problems)
    return {name: replace(row, columns=columns[name]) for name, row in rows.items()}


def _scale(scale: str, given: dict[str, Any], problems: Problems) -> StudyScale:
    key = f"scales.{scale}"
    columns = _sections(f"{key}.columns", ColumnAtScale, given.pop("columns", None), problems)
    rows = _sections(f"{key}.rows", SettingsOfSome, given.pop("rows", None), problems)
    whole: StudyScale = _section(key, StudyScale, given, problems)
    return replace(whole, rows=rows, columns=columns)


def _published(value: Any, problems: Problems) -> dict[str, dict[str, float]]:
    found = {}
    for row, cells in _mapping("published", value, problems).items():
        found[row] = _mapping(f"published.{row}", cells, problems)
        for column, number in found[row].items():
            if isinstance(number, bool) or not isinstance(number, int | float):
                problems.lines.append(f"published.{row}.{column}: wrong type, got {shown(number)}; must be a number")
    return found


def _gaps(study: Study) -> list[str]:
    """Return a line for each required entry that is missing from a study."""
    missing = [f"about.{name}" for name in ("title", "asks", "source") if not getattr(study.about, name)]
    missing += [name for name in ("columns", "rows") if not getattr(study, name)]
    missing += [f"columns.{name}.title" for name, column in study.columns.items() if not column.title]
    missing += [
        f"rows.{name}.{key}" for name, row in study.rows.items() for key in ("title", "method") if not getattr(row, key)
    ]
    lines = [f"{key}: missing; write it" for key in missing]
    if not any(study.published.values()) and not study.about.unknown:
        lines.append("published: no number, and about.unknown does not say why; write one of them")
    if any(study.published.values()) and not study.about.numbers:
        lines.append("about.numbers: missing; say how the published numbers are known")
    return lines + [
        f"scales.{name}.seeds: no seed; write [0]" for name, scale in study.scales.items() if not scale.seeds
    ]


def _names_of_nothing(study: Study) -> list[str]:
    """Return a line for each name that refers to an unknown row or column."""
    rows, columns = study.rows, study.columns
    printed = {row.beside or name for name, row in rows.items()}
    lines = [_no_such("published", row, printed, "row") for row in study.published if row not in printed]
    lines += [
        _no_such(f"published.{row}", name, columns, "column")
        for row, cells in study.published.items()
        for name in cells
        if name not in columns
    ]
    lines += [
        f"rows.{name}.beside: no published row of this name, got {row.beside!r}; "
        f"{did_you_mean(row.beside, study.published)}"
        for name, row in rows.items()
        if row.beside and row.beside not in study.published
    ]
    for name, row in rows.items():
        lines += [
            _no_such(f"rows.{name}.columns", each, columns, "column") for each in row.columns if each not in columns
        ]
    for scale, changes in study.scales.items():
        lines += [_no_such(f"scales.{scale}.rows", name, rows, "row") for name in changes.rows if name not in rows]
        lines += [
            _no_such(f"scales.{scale}.columns", name, columns, "column")
            for name in changes.columns
            if name not in columns
        ]
    return lines


def _no_such(key: str, name: str, known: Collection[str], what: str) -> str:
    return f"{key}.{name}: no such {what}; {did_you_mean(name, known)}"


def _wrong_measures(study: Study) -> list[str]:
    found = {name: measure_problem(column.measure) for name, column in study.columns.items()}
    return [f"columns.{name}.measure: {problem}" for name, problem in found.items() if problem]
