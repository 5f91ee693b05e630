"""Writes a reproduction as HTML, JSON and Markdown."""

from __future__ import annotations

from pathlib import Path

from ebclab.errors import UnsavedError
from ebclab.reproduce.markdown import render_table_markdown
from ebclab.reproduce.page import render_table_page
from ebclab.reproduce.table import ReproducedTable
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum


def write_table(table: ReproducedTable, folder: Path) -> None:
    """Write table.json, table.md and table.html into a folder.

    Args:
        table: The table.
        folder: Destination folder.

    Raises:
        UnsavedError: A file cannot be written; its ``result`` is the table.
    """
    try:
        atomic.write_json(folder / "table.json", with_checksum(table.to_mapping()))
        atomic.write_text(folder / "table.md", render_table_markdown(table))
        atomic.write_text(folder / "table.html", render_table_page(table))
    except OSError as error:
        raise UnsavedError(
            f"{folder}: all was measured and the table cannot be written, got {error.strerror or error}; make room "
            "and repeat the command",
            table,
        ) from error
