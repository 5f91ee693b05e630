"""Shared parts of all HTML pages: templates with escaping, values for scripts, common style and script."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

_IN_SCRIPT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def templates(package: str) -> Environment:
    """Return the environment of the templates in ``package``: text is escaped, undefined names raise an error."""
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


def page_frame(*, drawn: bool = True) -> dict[str, Any]:
    """Return the variables that the templates of all pages need: creation time, nonce, style and scripts.

    The script draws plots, sorts and filters tables, and follows light and dark mode. plotly.js is fully embedded, so
    that a page works offline.

    Args:
        drawn: Whether the page has plots; if not, plotly.js is omitted.
    """
    return {
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "nonce": secrets.token_urlsafe(16),
        "style": _own("report.css"),
        "script": _own("report.js"),
        "plotly": Markup(get_plotlyjs()) if drawn else "",
    }


def _own(name: str) -> Markup:
    return Markup(files("ebclab.reports").joinpath("templates", name).read_text(encoding="utf-8"))
