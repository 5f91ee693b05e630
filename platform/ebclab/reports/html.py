"""What every page of ebclab is made of: templates that escape, values for scripts, the style and script they share."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

_IN_SCRIPT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def templates(package: str) -> Environment:
    """Return the environment of the templates in ``package``: text is escaped, an unknown name is an error."""
    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = in_script
    return environment


def in_script(value: Any) -> Markup:
    """Return plain values as JSON for a script element; no text in it can end the element."""
    return Markup(json.dumps(value, cls=PlotlyJSONEncoder, separators=(",", ":")).translate(_IN_SCRIPT))


def page_style() -> Markup:
    """Return the style sheet of all pages."""
    return _own("report.css")


def page_script() -> Markup:
    """Return the script of all pages: it draws plots, sorts and filters tables, and follows light and dark."""
    return _own("report.js")


def plotly_script() -> Markup:
    """Return plotly.js, whole: a page needs no network."""
    return Markup(get_plotlyjs())


def _own(name: str) -> Markup:
    return Markup(files("ebclab.reports").joinpath("templates", name).read_text(encoding="utf-8"))
