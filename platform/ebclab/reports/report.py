"""Writes the page about runs or about sweeps, depending on the kind of the folders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ebclab.config.addresses import is_address
from ebclab.config.named_hosts import name_hosts
from ebclab.config.names import nearest
from ebclab.errors import RunError, UserError
from ebclab.storage.kinds import KINDS
from ebclab.storage.object_store import holds

_USUAL = ("runs", "sweeps", "comparisons")
_OTHERS = {"comparison": "`ebclab report {}` alone writes it", "reproduction": "`ebclab reproduce` writes it"}


def report(*places: str | Path, to: str | Path | None = None, price_per_gpu_hour: float | None = None) -> str:
    """Write one HTML page about runs or about sweeps, with CSV and JSON files next to it; return its path or address.

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
    if not places:
        raise UserError("report: nothing to show, got no folder; name runs or sweeps")
    unique = list(dict.fromkeys(str(each) if is_address(str(each)) else Path(each).absolute() for each in places))
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
    if kinds[unique[0]] == "sweep":
        from ebclab.reports.document import write_report

        return write_report(unique, to, price_per_gpu_hour)
    if price_per_gpu_hour is not None:
        raise UserError("--price-per-gpu-hour: of sweeps only, got runs; leave it out")
    from ebclab.reports.runs.document import write_run_report

    return write_run_report(unique, to)


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
    elif close is not None:
        remedy = f"did you mean {by_name[close]}?"
    return f"{place}: no run, sweep or comparison here; {remedy}"
