"""Writes the page about runs or about sweeps, by the kind of the folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ebclab.config.addresses import is_address, name_hosts
from ebclab.config.names import nearest
from ebclab.document.document import Document
from ebclab.errors import RunError, UserError
from ebclab.storage.kinds import KINDS
from ebclab.storage.object_store import holds

_USUAL = ("runs", "sweeps", "comparisons")
_OTHERS = {
    "comparison": "`ebclab report {}` alone writes it",
    "reproduction": "`ebclab reproduce` writes it, with table.csv and table.tex",
}


def report(*places: str | Path, to: str | Path | None = None, price_per_gpu_hour: float | None = None) -> str:
    """Write one HTML page about runs or about sweeps; return its path or address.

    CSV and JSON files next to it have its name with other endings.

    Args:
        places: Folders or addresses of runs only, or of sweeps only, finished or not.
        to: File or address of the page. None means report.html in the folder, or runs.html or sweeps.html in the
            current folder if there are several.
        price_per_gpu_hour: Price of one GPU-hour, in any currency, for sweeps only; None if unknown.

    Raises:
        UserError: A place is neither a run nor a sweep, both kinds or no places are given, a price is given for runs,
            or the page cannot be written.
    """
    name_hosts(*places, to)
    unique, kind = _checked(places, price_per_gpu_hour)
    if kind == "sweep":
        from ebclab.reports.document import write_report

        return write_report(unique, to, price_per_gpu_hour)
    from ebclab.reports.runs.document import write_run_report

    return write_run_report(unique, to)


def document_of(*places: str | Path, price_per_gpu_hour: float | None = None) -> Document:
    """Return the document of the page that ``report`` would write now."""
    unique, kind = _checked(places, price_per_gpu_hour)
    page = Path(f"{kind}s.html" if len(unique) > 1 else "report.html")
    if kind == "sweep":
        from ebclab.reports.document import read_sweeps, sweeps_document

        return sweeps_document(read_sweeps(unique), price_per_gpu_hour, page)
    from ebclab.reports.runs.document import runs_document
    from ebclab.reports.runs.facts import open_runs

    return runs_document(open_runs(unique), page)


def _checked(places: Sequence[str | Path], price: float | None) -> tuple[list[str | Path], str]:
    """Return the places, each once, and the kind of all of them, run or sweep; refuse what no page is about."""
    if not places:
        raise UserError("report: nothing to show, got no folder; name runs or sweeps")
    unique: list[str | Path] = list(
        dict.fromkeys(str(each) if is_address(str(each)) else Path(each).absolute() for each in places)
    )
    kinds = {place: _kind(place) for place in unique}
    if unknown := [place for place, kind in kinds.items() if kind is None]:
        raise RunError("\n".join(_not_found(str(place)) for place in unknown))
    if others := [(place, str(kind)) for place, kind in kinds.items() if kind in _OTHERS]:
        said = [f"{place}: a {kind} has its own page; {_OTHERS[kind].format(place)}" for place, kind in others]
        raise UserError("\n".join(said))
    if len(set(kinds.values())) > 1:
        numbers = Counter(kinds.values())
        raise UserError(
            f"report: runs and sweeps have separate pages, got {numbers['run']} and {numbers['sweep']} of them; "
            "repeat the command for each kind"
        )
    kind = str(kinds[unique[0]])
    if price is not None and kind == "run":
        raise UserError("--price-per-gpu-hour: of sweeps only, got runs; leave it out")
    return unique, kind


def _kind(place: str | Path) -> str | None:
    return next((name for name in ("sweep", "run", *_OTHERS) if holds(place, KINDS[name].settings)), None)


def _not_found(place: str) -> str:
    """Return the message about a place that holds nothing to report on, with a suggestion."""
    path = Path(place)
    around = [folder for parent in (path.parent, *map(Path, _USUAL)) if parent.is_dir() for folder in parent.iterdir()]
    known = {str(folder): folder for folder in around if _kind(folder) is not None}
    by_name = {folder.name: name for name, folder in known.items()}
    close = nearest(path.name, by_name)
    inside = [folder for folder in sorted(path.iterdir()) if _kind(folder)] if path.is_dir() else []
    remedy = "`ebclab runs list` shows what there is"
    if inside:
        remedy = f"name one of those in it, such as {inside[0]}"
    elif _kind(path.parent):
        remedy = f"name the folder around it, {path.parent}"
    elif close is not None:
        remedy = f"did you mean {by_name[close]}?"
    return f"{place}: no run, sweep or comparison here; {remedy}"
