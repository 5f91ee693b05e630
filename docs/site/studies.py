"""The table of all studies, for the page about reproductions."""

from __future__ import annotations

from ebclab.reproductions.study import list_studies, load_study

PAGE = "docs/reproduce.md"


def added_to(page: str) -> str:
    """Return what is added to a page; nothing to other pages than that about reproductions."""
    if page != PAGE:
        return ""
    rows = []
    for study in map(load_study, list_studies()):
        count = sum(map(len, study.published.values())) or ""
        rows.append(f"| `{study.name}` | {study.about.title} | {count} | {len(study.claims)} |\n")
    return "\n| study | what it shows | published numbers | claims |\n|---|---|---|---|\n" + "".join(rows)
