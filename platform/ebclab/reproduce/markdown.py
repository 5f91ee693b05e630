"""Renders a reproduction as Markdown: the same table as on the page."""

from __future__ import annotations

from ebclab.export.card import escape_markdown
from ebclab.reproduce.table import ReproducedTable
from ebclab.reproduce.wording import cost_in_words, shown_difference, shown_ours, shown_published, unit_in_words


def render_table_markdown(table: ReproducedTable) -> str:
    """Return a reproduction as Markdown."""
    study = table.plan.study
    facts = {
        "Asks": study.about.asks,
        "Source": study.about.source,
        "Scale": f"{table.plan.scale}. {table.what_it_shows}",
        "Seeds": table.what_seeds_say,
        "Published numbers": " ".join(filter(None, [study.about.numbers, study.about.unknown])),
        "Cost": cost_in_words(table),
    }
    parts = [f"# {escape_markdown(study.about.title)}"]
    parts.append("\n".join(f"- **{name}:** {escape_markdown(text)}" for name, text in facts.items()))
    parts.append(_table(table))
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


def _table(table: ReproducedTable) -> str:
    """Return the table with one line per cell."""
    study = table.plan.study
    lines = [["row", "column", "ours", "published", "difference"], ["---", "---", "---:", "---:", "---:"]]
    seeds = len(table.plan.seeds)
    for cell in table.cells:
        column = study.columns[cell.column]
        unit = unit_in_words(cell.unit)
        head = f"{column.title}, {unit}" if unit else column.title
        numbers = [shown_ours(cell, seeds), shown_published(cell.published, cell.unit), shown_difference(cell)]
        lines.append([escape_markdown(study.rows[cell.row].title), escape_markdown(head), *numbers])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
