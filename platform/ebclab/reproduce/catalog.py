"""Finds and reads the studies shipped with the package; lists tables without a study, with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from ebclab.config.names import did_you_mean
from ebclab.config.yaml_text import mapping_from_yaml
from ebclab.errors import UserError
from ebclab.reproduce.study import InCommon, Shared, Study, parse_common, parse_study

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
    """Return a study.

    Args:
        name: Paper and table or figure, e.g. ``ebclr/table1``.
    """
    known, without = list_studies(), without_study()
    if name in without:
        raise UserError(f"{name}: no study, since {without[name]}")
    if name not in known:
        raise UserError(f"reproduce: no such study, got {name!r}; {did_you_mean(name, known)}")
    paper, _, row = name.partition("/")
    where = f"studies/{name}.yaml"
    text = _folder().joinpath(paper, f"{row}.yaml").read_text(encoding="utf-8")
    return parse_study(name, mapping_from_yaml(text, where), where)


@cache
def in_common() -> InCommon:
    """Return the defaults that studies of a paper, and studies at a scale, share."""
    where = f"studies/{_IN_COMMON}"
    text = _folder().joinpath(_IN_COMMON).read_text(encoding="utf-8")
    return parse_common(mapping_from_yaml(text, where), where)


@cache
def without_study() -> Mapping[str, str]:
    """Return the tables and figures without a study, each with the reason."""
    text = _folder().joinpath(_WITHOUT).read_text(encoding="utf-8")
    return {name: str(reason) for name, reason in mapping_from_yaml(text, f"studies/{_WITHOUT}").items()}


def paper_of(study: Study) -> Shared:
    """Return the defaults of the study's paper."""
    return in_common().papers.get(study.name.partition("/")[0], Shared())
