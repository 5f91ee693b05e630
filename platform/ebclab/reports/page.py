"""Render the page: template, style, script and plotly.js in one HTML file that works offline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ebclab.evaluation.objectives import shown_interval
from ebclab.formatting import clock
from ebclab.reports import together
from ebclab.reports.comparable import short_names
from ebclab.reports.html import page_frame, templates
from ebclab.reports.plots import ENDS, ending
from ebclab.reports.reading import SweepRecord
from ebclab.reports.sections import Section, lead, points, points_interval, short
from ebclab.sweeps.results import SeedScores
from ebclab.sweeps.trial import Trial


def render(parts: Sequence[Section], csv_name: str, json_name: str) -> str:
    """Return the page as HTML.

    Args:
        parts: The content of the page, one part per sweep.
        csv_name: Name of the CSV file in the same folder.
        json_name: Name of the JSON file in the same folder.
    """
    environment = templates("ebclab.reports")
    environment.filters |= {"clock": clock, "short": short}
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
        csv_name=csv_name,
        json_name=json_name,
        **page_frame(),
    )


def _in_order(record: SweepRecord) -> list[Trial]:
    """Return the search trials by rank, then those without a rank, then the confirming runs."""
    ranked = {trial.id: trial for trial in record.order}
    return list((ranked | {trial.id: trial for trial in record.search} | record.log.trials).values())


def _tested(score: SeedScores) -> str:
    """Return a formatted test score with its confidence interval."""
    if score.low is None or score.high is None:
        return f"{score.mean:.1%}, no interval"
    return f"{score.mean:.1%} ({shown_interval('holdout_knn', score.low, score.high)})"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
