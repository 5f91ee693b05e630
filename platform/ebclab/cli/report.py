"""``ebclab report``: the page about runs, about sweeps or about a comparison."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ebclab.cli.options import refuse_given, takes
from ebclab.config.addresses import expanded, is_address, shortened
from ebclab.config.options import option, option_problems
from ebclab.errors import RunError, UserError
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.document.document import Document

_NOT_OF_COMPARISONS = "of runs and sweeps only, got a comparison; leave it out"


@dataclass(frozen=True)
class _ReportOptions:
    """Arguments and options of ``ebclab report``; see the help text of each option."""

    folders: tuple[str, ...] = option(
        MISSING,
        "Names, folders or addresses of runs or of sweeps, or of one comparison, finished or not.",
        metavar="DIR...",
        is_argument=True,
        is_place_of_results=True,
    )
    to: str | None = option(
        None,
        "Page to write; default: report.html in the folder (several folders: ./runs.html or ./sweeps.html).",
        metavar="FILE",
        is_place_of_results=True,
        panel="Results",
    )
    price_per_gpu_hour: float | None = option(None, "Price of one GPU-hour, in any currency.", metavar="P", minimum=0)
    optuna: str | None = option(
        None, "Also write the trials of sweeps as a journal for optuna-dashboard.", metavar="FILE"
    )
    latex: str | None = option(None, "Also write the page's tables as LaTeX.", metavar="FILE")
    watch: bool = option(
        False, "Write no files; serve the page on this machine and renew it until Ctrl-C.", panel="While it runs"
    )
    port: int | None = option(
        None, "Port of --watch; default: one that the system chooses.", metavar="P", minimum=1, maximum=65_535
    )


@takes(_ReportOptions)
def report(given: _ReportOptions) -> None:
    """Write a page about runs, sweeps or a comparison: one HTML file that needs no network, with its numbers beside it.

    Several are compared side by side. While one is running, the page shows what is known; repeat the command to update,
    or let --watch do so.

    Examples:

    ebclab report runs/first runs/second --to both.html

    ebclab report sweeps/mine --watch
    """
    from ebclab.reports.report import document_of
    from ebclab.reports.report import report as write_page
    from ebclab.storage.kinds import COMPARISON, RUN
    from ebclab.storage.object_store import holds

    if problems := option_problems(given):
        raise UserError("\n".join(problems))
    if given.watch:
        refuse_given(given, ("to", "optuna", "latex"), "--watch writes no files, got {}; leave out one of them")
    else:
        refuse_given(given, ("port",), "is for --watch, got {}; leave it out, or add --watch")
    if given.latex is not None:
        _require_place_of_latex(given.latex)
    is_comparison = len(given.folders) == 1 and holds(given.folders[0], COMPARISON.settings)
    if given.watch:
        return _watch(given, is_comparison=is_comparison)
    if is_comparison:
        return _report_comparison(given)
    if given.optuna is not None and any(holds(each, RUN.settings) for each in given.folders):
        raise UserError("--optuna: of sweeps only, got runs; leave it out")
    tables = None
    if given.latex is not None:
        tables = _tables_of(document_of(*given.folders, price_per_gpu_hour=given.price_per_gpu_hour))
    where = write_page(*given.folders, to=given.to, price_per_gpu_hour=given.price_per_gpu_hour)
    page = PurePosixPath(where.partition("?")[0])
    say(f"report: {where}")
    say(f"beside it: {page.with_suffix('.csv').name}, {page.with_suffix('.json').name}")
    if given.optuna is not None:
        _write_journal([*given.folders], given.optuna)
    if given.latex is not None and tables is not None:
        _write_latex(tables, given.latex)


def _watch(given: _ReportOptions, *, is_comparison: bool) -> None:
    """Serve the page until Ctrl-C."""
    from ebclab.reports.report import document_of
    from ebclab.reports.watch import LOOK_SECONDS, PageServer, WatchedPage

    draw = partial(document_of, *given.folders, price_per_gpu_hour=given.price_per_gpu_hour)
    if is_comparison:
        refuse_given(given, ("price_per_gpu_hour",), _NOT_OF_COMPARISONS)
        draw = partial(_comparison_now, given.folders[0])
    with PageServer(WatchedPage(draw, given.folders), given.port or 0) as server:
        say(f"report: {server.address}")
        say(f"it looks for changes every {LOOK_SECONDS} seconds; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _comparison_now(place: str) -> Document:
    from ebclab.comparisons.compare import findings_of
    from ebclab.comparisons.document import comparison_document
    from ebclab.comparisons.plan import ComparisonFolder

    folder = ComparisonFolder.at(place).of("reader")
    return comparison_document(findings_of(folder), folder.read_versions())


def _write_journal(folders: list[str], to: str) -> None:
    from ebclab.reports.journal import write_journal

    for line in write_journal(folders, Path(to)):
        say(line, err=True)
    say(f"journal: {to}; `optuna-dashboard {to}` opens it")


def _require_place_of_latex(to: str) -> None:
    if is_address(to):
        raise UserError(f"--latex: a file on this disk, got {shortened(to)}; write a path")
    path = expanded(to)
    if path.is_dir():
        raise UserError(f"--latex: a folder, got {to}; name a file in it, such as tables.tex")
    if not path.parent.is_dir():
        raise UserError(f"--latex: no such folder, got {path.parent}; make it first")


def _tables_of(document: Document) -> str:
    """Return the tables of a document for a paper; refuse a document without any."""
    from ebclab.document.text import as_latex

    if not (tables := as_latex(document)):
        raise UserError(f"--latex: the page has no table with rows, got {document.title}; leave it out")
    return tables


def _write_latex(tables: str, to: str) -> None:
    from ebclab.storage.atomic import write_text

    try:
        write_text(expanded(to), tables)
    except OSError as error:
        raise RunError(f"--latex: cannot be written, got {to}: {error.strerror}; choose another file") from error
    say(f"tables: {to}; it needs booktabs")


def _report_comparison(given: _ReportOptions) -> None:
    """Write the page of a comparison, which is always in its folder."""
    from ebclab.comparisons.compare import page_of
    from ebclab.comparisons.plan import ComparisonFolder

    refuse_given(given, ("to", "price_per_gpu_hour", "optuna"), _NOT_OF_COMPARISONS)
    tables = None if given.latex is None else _tables_of(_comparison_now(given.folders[0]))
    folder = page_of(ComparisonFolder.at(given.folders[0])).folder
    say(f"report: {folder.address_of(folder.page)}")
    say(f"beside it: {folder.table.name}, {folder.result.name}, comparison.csv, comparison.tex")
    if given.latex is not None and tables is not None:
        _write_latex(tables, given.latex)
