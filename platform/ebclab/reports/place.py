"""Where results and reports are written: a page on a disk or in a store, and the files next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebclab.config.addresses import is_address
from ebclab.document.document import Document, Table
from ebclab.document.html import as_page
from ebclab.document.text import as_csv, as_latex, as_markdown
from ebclab.errors import RunError, UserError
from ebclab.storage import atomic
from ebclab.storage.object_store import RemoteFolder, remote_at, send
from ebclab.storage.reading import with_checksum
from ebclab.storage.workspace import Workspace
from ebclab.sweeps.log import json_text


def write_result(
    numbers: Path, content: Mapping[str, object], document: Document, rows: Table | None = None
) -> list[str]:
    """Write all numbers of a result as JSON, and beside them its document as Markdown and as a page.

    With ``rows``, these are written as CSV, and the tables of the document as LaTeX. The names of the files are
    returned.
    """
    texts = {".md": as_markdown(document), ".html": as_page(document)}
    if rows is not None:
        texts |= {".csv": as_csv(rows), ".tex": as_latex(document)}
    atomic.write_json(numbers, with_checksum(content))
    for suffix, text in texts.items():
        atomic.write_text(numbers.with_suffix(suffix), text)
    return [numbers.name, *(numbers.with_suffix(suffix).name for suffix in texts)]


@dataclass(frozen=True)
class PagePlace:
    """The place of a page."""

    path: Path  # path of the page on this disk
    remote: RemoteFolder | None  # the store folder to which it is uploaded; None if it stays on the disk

    def write(self, document: Document, rows: Table, numbers: object) -> str:
        """Write the page, its rows as CSV and its numbers as JSON; return the path or address of the page."""
        texts = {
            ".csv": as_csv(rows),
            ".json": json_text(numbers) + "\n",
            self.path.suffix: as_page(document),
        }
        for suffix, text in texts.items():
            path = self.path.with_suffix(suffix)
            try:
                atomic.write_text(path, text)
            except OSError as error:
                raise RunError(
                    f"{path}: cannot be written, got {error.strerror or error}; choose another --to"
                ) from error
        if self.remote is None:
            return str(self.path)
        send(self.remote, *(self.path.with_suffix(suffix).name for suffix in texts))
        return (self.remote / self.path.name).address


def page_place(to: str | Path | None, folders: Sequence[Workspace], of_several: str) -> PagePlace:
    """Return the place of a page about some folders.

    If ``to`` is None, that is report.html in the only one, or a file with the name ``of_several`` in the current
    folder.
    """
    if to is None and len(folders) == 1:
        place = PagePlace(folders[0].path / "report.html", folders[0].remote)
    else:
        place = _place_at(of_several if to is None else to)
    page, remote = place.path, place.remote
    if page.is_dir():
        raise UserError(f"--to: a folder, got {page}; name a file, such as {page / 'report.html'}")
    if page.suffix not in (".html", ".htm"):
        got = page if remote is None else (remote / page.name).address
        raise UserError(f"--to: not a page, got {got}; name it {page.with_suffix('.html').name}")
    if not page.absolute().parent.is_dir():
        raise UserError(f"--to: no such folder, got {page.parent}; make it first")
    return place


def _place_at(to: str | Path) -> PagePlace:
    if not is_address(str(to)):
        return PagePlace(Path(to), None)
    base, mark, options = str(to).partition("?")
    parent, _, name = base.rpartition("/")
    remote = remote_at(f"{parent}{mark}{options}") if name else None
    if remote is None:
        raise UserError(f"--to: not a page, got {to}; name a file, such as {base.rstrip('/')}/report.html")
    remote = remote.of("reader")
    remote.cache.mkdir(parents=True, exist_ok=True)
    return PagePlace(remote.cache / name, remote)
