"""Render the page: template, style, script and plotly.js in one HTML file that needs no network."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from ebclab.evaluation.objectives import shown_interval
from ebclab.formatting import clock
from ebclab.reports import together
from ebclab.reports.comparable import short_names
from ebclab.reports.plots import ENDS, ending
from ebclab.reports.reading import SweepRecord
from ebclab.reports.sections import Section, lead, points, points_interval, short
from ebclab.sweeps.results import SeedScores
from ebclab.sweeps.trial import Trial

_IN_SCRIPT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def render(parts: Sequence[Section], csv_name: str, json_name: str) -> str:
    """Return the page as HTML.

    Args:
        parts: The content of the page, one part per sweep.
        csv_name: Name of the CSV file in the same folder.
        json_name: Name of the JSON file in the same folder.
    """
    environment = Environment(
        loader=PackageLoader("ebclab.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"clock": clock, "short": short, "json": in_script}
    records = [part.record for part in parts]
    several = len(parts) > 1
    return environment.get_template("report.html.j2").render(
        parts=parts,
        lead=lead,
        points=points,
        points_interval=points_interval,
        shown_interval=shown_interval,
        tested=_tested,
        short_names=short_names,
        ending=lambda trial: ENDS[ending(trial)][0],
        in_order=_in_order,
        is_number=_is_number,
        rows=together.rows(records) if several else [],
        budget=together.budget_of(records) if several else 0.0,
        disagreements=together.disagreements(records) if several else [],
        side_by_side=together.side_by_side(records) if several else None,
        title=", ".join(record.title for record in records),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        csv_name=csv_name,
        json_name=json_name,
        nonce=secrets.token_urlsafe(16),
        style=_own("report.css"),
        script=_own("report.js"),
        plotly=Markup(get_plotlyjs()),
    )


def in_script(value: Any) -> Markup:
    """Return plain values as JSON for a script element; no text in it can end the element."""
    return Markup(json.dumps(value, cls=PlotlyJSONEncoder, separators=(",", ":")).translate(_IN_SCRIPT))


def _own(name: str) -> Markup:
    """Return a template file of this package as it is."""
    return Markup(files("ebclab.reports").joinpath("templates", name).read_text(encoding="utf-8"))


def _in_order(record: SweepRecord) -> list[Trial]:
    """Return the search trials by rank, then those without a rank, then the confirming ones."""
    ranked = {trial.id: trial for trial in record.order}
    return list((ranked | {trial.id: trial for trial in record.search} | record.log.trials).values())


def _tested(score: SeedScores) -> str:
    """Return a test score for people, with its interval."""
    if score.low is None or score.high is None:
        return f"{score.mean:.1%}, no interval"
    return f"{score.mean:.1%} ({shown_interval('holdout_knn', score.low, score.high)})"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
