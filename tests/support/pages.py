"""HTML pages as a parser sees them."""

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """A page: its elements with their attributes, text outside of scripts and styles, and figures by their titles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.figures: dict[str, Any] = {}
        self._title = ""
        self.feed(text)

    @property
    def words(self) -> str:
        return " ".join("".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if tag == "h3" and data.strip():
            self._title = data
        if "data-for" in attributes and data.strip():
            self.figures.setdefault(self._title, json.loads(data))
        elif tag not in ("script", "style"):
            self.texts.append(data)
