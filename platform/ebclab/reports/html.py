"""What every page of ebclab is made of: templates that escape, values for scripts, the style and script they share."""

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


def page_frame(*, drawn: bool = True) -> dict[str, Any]:
    """Return what the templates of all pages want, by name: when a page was made, its nonce, style and scripts.

    The script draws plots, sorts and filters tables, and follows light and dark. plotly.js is whole, since a page needs
    no network.

    Args:
        drawn: The page has plots; without any, plotly.js is left out.
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
