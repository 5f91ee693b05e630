"""Renders a document as a page: one HTML file with style, script and plotly.js, which needs no network."""

from __future__ import annotations

import base64
import json
import secrets
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import count, groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ebclab.document.document import (
    Block,
    CellValue,
    ColumnHead,
    Document,
    Picture,
    Plot,
    RichText,
    Table,
    is_numeric,
)
from ebclab.formatting import presentable, without_credentials

_IN_SCRIPT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_WORDS, _SENTENCE = 24, 60
"""Cells with more characters are wrapped; those with still more get room for a sentence."""


def as_page(document: Document, *, version: str = "", look_seconds: int = 0) -> str:
    """Return a document as HTML; text in it is shown and never obeyed, whatever it is.

    Args:
        version: The ETag with which the page is served, which it asks for every ``look_seconds``, to load itself again
            when that is another one; empty for a page in a file, which asks no one.
    """
    blocks = list(document.blocks())
    is_drawn = any(isinstance(block, Plot) for block in blocks)
    is_used = bool(version) or is_drawn or any(isinstance(block, Table) for block in blocks)
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            document=document,
            made=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
            nonce=secrets.token_urlsafe(16),
            version=version,
            look_seconds=look_seconds,
            number=count(1).__next__,
            style=_own("page.css"),
            script=_own("page.js") if is_used else "",
            plotly=_plotly() if is_drawn else "",
        )
    )


@cache
def _templates() -> Environment:
    """Return the environment of the template: text is escaped, undefined names raise an error."""
    environment = Environment(
        loader=PackageLoader("ebclab.document", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "json": in_script,
        "look": _look,
        "rich": _rich,
        "breakable": _breakable,
        "url": _data_url,
        "kind": _kind,
    }
    environment.globals["spans"] = _spans
    return environment


def _finalized(value: Any) -> Any:
    """Return what an expression of the template shows; markup is made of text that has been through this."""
    return presentable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _kind(block: Block) -> str:
    return "table" if isinstance(block, Table) else type(block).__name__.lower()


def in_script(value: Any) -> Markup:
    """Return plain values as JSON for a script element; no text in it can end the element, or shows credentials."""
    from plotly.utils import PlotlyJSONEncoder

    text = json.dumps(value, cls=PlotlyJSONEncoder, separators=(",", ":"))
    if "://" in text or "=" in text:
        text = json.dumps(_without_credentials_in(json.loads(text)), separators=(",", ":"))
    return Markup(text.translate(_IN_SCRIPT))


def _without_credentials_in(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, list):
        return [_without_credentials_in(each) for each in value]
    return (
        {without_credentials(key): _without_credentials_in(each) for key, each in value.items()}
        if isinstance(value, dict)
        else value
    )


def _rich(value: CellValue) -> RichText:
    """Return a cell or a fact with all attributes."""
    if isinstance(value, RichText):
        return value
    return RichText("" if value is None else str(value), is_number=is_numeric(value))


def _look(value: CellValue) -> str:
    """Return the classes of a cell: numbers to the right, short text on one line, long text and reasons wrapped."""
    rich = _rich(value)
    if is_numeric(value):
        return "number" if not rich.text or any(map(str.isdigit, rich.text)) else "number words"
    longest = max(len(rich.text), *map(len, rich.small), 0)
    return "reason" if longest > _SENTENCE else "words" if longest > _WORDS else ""


def _breakable(text: str) -> Markup:
    """Return text that may be broken after underscores."""
    return Markup("_<wbr>").join(escape(piece) for piece in presentable(text).split("_"))


def _spans(heads: list[ColumnHead]) -> list[tuple[str, str, int]]:
    """Return the headings over several columns: text, small print, number of columns; none if no column has one."""
    if not any(head.above for head in heads):
        return []
    return [(*key, len(list(each))) for key, each in groupby(heads, lambda head: (head.above, head.small))]


def _data_url(picture: Picture) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"


def _own(name: str) -> Markup:
    return Markup(files("ebclab.document").joinpath("templates", name).read_text(encoding="utf-8"))


def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())
