"""Turns a notebook into a page: its text, its code, and what that printed and drew."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def as_page(notebook: Path, with_links: Callable[[str], str]) -> str:
    """Return a notebook as Markdown, its pictures within; ``with_links`` is called with each of its texts."""
    parts: list[str] = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts += [with_links(text)] if cell["cell_type"] == "markdown" else [_fence("python", text), *_outputs(cell)]
    return "\n\n".join(parts) + "\n"


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in data:
            yield f"![What the code above draws](data:image/png;base64,{''.join(data['image/png'].split())})"
        else:
            yield _fence("text", "".join(data["text/plain"]).rstrip("\n"))


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
