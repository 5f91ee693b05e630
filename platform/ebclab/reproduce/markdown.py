"""Renders a reproduction as Markdown: the same table as on the page."""

from __future__ import annotations

from ebclab.formatting import escape_markdown, markdown_table
from ebclab.reproduce.table import ReproducedTable
from ebclab.reproduce.wording import (
    claims_asked,
    cost_in_words,
    published_in_words,
    shown_difference,
    shown_ours,
    shown_published,
    unit_in_words,
)


def render_table_markdown(table: ReproducedTable) -> str:
    """Return a reproduction as Markdown."""
    study = table.plan.study
    facts = {
        "Asks": study.about.asks,
        "Source": table.source,
        "Scale": f"{table.plan.scale}. {table.what_it_shows}",
        "Seeds": table.what_seeds_say,
        "Published numbers": published_in_words(table),
        "Cost": cost_in_words(table),
    }
    parts = [f"# {escape_markdown(study.about.title)}"]
    parts.append("\n".join(f"- **{name}:** {escape_markdown(text)}" for name, text in facts.items()))
    parts.append(_table(table))
    if table.claims:
        parts += ["## What the paper claims", escape_markdown(claims_asked(table)), _claims(table)]
    lists = {
        "What differs from the paper at this scale": table.differs,
        "Not run at this scale": [f"{title}: {why}" for title, why in table.not_run.items()],
        "What the released code does differently from the paper": table.released,
        "Runs without a number": list(table.failures),
    }
    for title, lines in lists.items():
        if lines:
            parts += [f"## {title}", "\n".join(f"- {escape_markdown(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def _claims(table: ReproducedTable) -> str:
    """Return a line for each claim with its answer."""
    lines = [["claim", "answer", "by", "in print"], ["---"] * 4]
    lines += [
        [escape_markdown(each.says), each.answer, escape_markdown(each.why), each.in_print] for each in table.claims
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table(table: ReproducedTable) -> str:
    """Return the table with one line per cell."""
    study = table.plan.study
    lines = [["row", "column", "ours", "published", "difference"]]
    seeds = len(table.plan.seeds)
    for cell in table.cells:
        column = study.columns[cell.column]
        unit = unit_in_words(cell.unit)
        head = f"{column.title}, {unit}" if unit else column.title
        numbers = [shown_ours(cell, seeds), shown_published(cell.published, cell.unit), shown_difference(cell)]
        lines.append([study.rows[cell.row].title, head, *numbers])
    return "\n".join(markdown_table(lines, ["---", "---", "---:", "---:", "---:"]))
