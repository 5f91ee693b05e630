"""What a method's page has from the code and from committed results: paper, settings, cost, scores, a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from ebclab.cli.show import cost_rows
from ebclab.config.check import choices
from ebclab.config.experiment import bounds_in_words
from energy_contrast.catalog import METHODS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FOLDER = "docs/methods"
PAGES = {name: "vem" if name.startswith("vem-") else name for name in METHODS}
"""The page of each method of the catalogue, without its ending."""
ROWS_BESIDE = ("simclr", "simclr's encoder, untrained", "raw pixels")


def added_to(page: str) -> str:
    """Return what is added to a page; nothing to pages that are about no method."""
    if page == f"{FOLDER}/README.md":
        return f"\n## Cost of a training step\n\n{costs([*METHODS])}"
    names = [name for name, where in PAGES.items() if f"{FOLDER}/{where}.md" == page]
    if not names:
        return ""
    paper = METHODS[names[0]].paper
    parts = [f"\n## Paper\n\n{_linked(paper)}.\n" if paper else ""]
    for name in names:
        parts.append(f"\n## Settings{f' of `{name}`' if names[1:] else ''}\n\n{_settings(name)}")
    parts.append(f"\n## Cost of a training step\n\n{costs(names)}")
    parts.append(f"\n## Scores measured here\n\n{''.join(_scores(names))}")
    commands = "".join(f"{command(name)}\n" for name in names)
    parts.append(f"\n## Try it\n\n```\n{commands}```\n")
    return "".join(parts)


def command(name: str) -> str:
    """Return a command that trains a method on images that need no download."""
    return f"ebclab pretrain {name} --recipe digits-demo"


def costs(names: list[str]) -> str:
    """Return a table of what a step of each method takes at default settings."""
    (_, *heading), *rows = cost_rows({name: METHODS[name] for name in names})
    lines = [("", *heading), ("---",) * 5, *((f"`{name}`", *cells) for name, *cells in rows)]
    return (
        "Passes of each image of the batch through the encoder and its momentum copies, and what each worker keeps "
        "besides networks and optimizer, with 50,000 training images of 3x32x32 pixels, at default settings.\n\n"
        + "".join(f"| {' | '.join(line)} |\n" for line in lines)
    )


def _linked(paper: str) -> str:
    return re.sub(r"arXiv:([\d.]+\d)", r"[arXiv:\1](https://arxiv.org/abs/\1)", paper)


def _settings(name: str) -> str:
    """Return a table of a method's own settings, and of others that its search space has."""
    config = METHODS[name].Config
    file = ROOT / "search_spaces" / f"{name}.yaml"
    searched = yaml.safe_load(file.read_text(encoding="utf-8"))["parameters"]
    hints = get_type_hints(config)
    rows = []
    for field in fields(config):
        key = f"method.{field.name}"
        meaning = [field.metadata["doc"]]
        if "symbol" in field.metadata:
            meaning.append(f"In the paper: {field.metadata['symbol']}.")
        is_switch = hints[field.name] is bool
        default = str(field.default).lower() if is_switch else field.default
        allowed = "true, false" if is_switch else ", ".join(choices(hints[field.name])) or bounds_in_words(field)
        rows.append((f"`{key}`", f"`{default}`", allowed, _range(searched.pop(key, None)), " ".join(meaning)))
    rows += [(f"`{key}`", "the recipe's", "", _range(entry), "") for key, entry in searched.items()]
    cells = [[re.sub(r"([|<>])", r"\\\1", cell) for cell in row] for row in rows]
    link = f"[search_spaces/{name}.yaml](../../search_spaces/{name}.yaml)"
    return (
        f"A sweep searches the ranges of {link}, which says where each comes from.\n\n"
        "| setting | default | allowed | searched | meaning |\n|---|---|---|---|---|\n"
        + "".join(f"| {' | '.join(row)} |\n" for row in cells)
    )


def _range(entry: dict[str, Any] | None) -> str:
    """Return a range of a search space as text; empty without one."""
    if entry is None:
        return ""
    kind = next(kind for kind in ("uniform", "loguniform", "int", "quantised", "choice") if kind in entry)
    values = [f"{value:g}" if isinstance(value, float) else str(value) for value in entry[kind]]
    text = ", ".join(values) if kind == "choice" else f"{values[0]} to {values[1]}"
    text += f" in steps of {values[2]}" if kind == "quantised" else ""
    text += ", log" if kind == "loguniform" or entry.get("log") else ""
    text += f", times `{entry['times']}`" if "times" in entry else ""
    return text + (f", or {entry['also']:g}" if "also" in entry else "")


def _scores(names: list[str]) -> Iterator[str]:
    """Yield the rows about methods in the tables that compare all methods, and links to all other tables with them."""
    others = []
    for file in sorted(RESULTS.glob("*.md")):
        text = file.read_text(encoding="utf-8")
        title = f"[{text.partition(chr(10))[0].removeprefix('# ')}](../../benchmarks/results/{file.name})"
        rows = [line for line in text.splitlines() if line.startswith("|")]
        found = [row for row in rows if _names_one(row, names)]
        if found and file.name.startswith("methods_"):
            beside = [row for row in rows if _first(row) in ROWS_BESIDE and row not in found]
            yield f"{title}:\n\n{rows[0]}\n{rows[1]}\n" + "".join(f"{row}\n" for row in (*found, *beside)) + "\n"
        elif found:
            others.append(title)
    if others:
        yield "Tables with it: " + "; ".join(others) + ".\n"


def _first(row: str) -> str:
    return row.strip("| ").partition("|")[0].strip(" `")


def _names_one(row: str, names: list[str]) -> bool:
    """Whether the first cell of a row is one of the methods, perhaps with settings after it."""
    return re.split(r"[ ,':]", _first(row))[0] in names and "untrained" not in _first(row)
