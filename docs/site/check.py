"""Looks through a built site: nothing may be loaded from elsewhere, and every link within it must lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src", "link": "href",
    "object": "data", "script": "src", "source": "src", "track": "src", "video": "src",
}  # fmt: skip
"""Which attribute of an element names something that a browser fetches by itself."""
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class Page(HTMLParser):
    """What a page loads, where it links to, and which names it has.

    Attributes:
        loaded: Addresses that a browser fetches to show it.
        links: Addresses that a reader may follow.
        names: Its anchors.
    """

    loaded: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element says."""
        values = {name: value or "" for name, value in attrs}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if (name := LOADED.get(tag)) in values and values.get("rel") not in ("canonical", "author"):
            self.loaded.append(values[str(name)])
        self.loaded += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
        self.loaded += style_addresses(values.get("style", ""))


def style_addresses(text: str) -> list[str]:
    """Return what a style sheet loads."""
    return [one or other for one, other in STYLE_URL.findall(text)]


def problems(site: Path) -> list[str]:
    """Return what is wrong with a built site, a line each, empty when all is well."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = [problem for path, page in pages.items() for problem in _of_page(site, path, page, pages)]
    for path in sorted(site.rglob("*.css")):
        for address in style_addresses(path.read_text(encoding="utf-8")):
            if _elsewhere(address):
                found.append(f"{path.relative_to(site)}: loads {address}")
    return found


def _read(path: Path) -> Page:
    page = Page()
    text = path.read_text(encoding="utf-8")
    page.feed(text)
    for style in re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL):
        page.loaded += style_addresses(style)
    return page


def _of_page(site: Path, path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    here = path.relative_to(site)
    for address in page.loaded:
        if _elsewhere(address):
            yield f"{here}: loads {address}"
        elif not address.startswith("data:") and not _target(path, address).exists():
            yield f"{here}: loads {address}, which is not there"
    for address in page.links:
        if _elsewhere(address) or address.startswith(("mailto:", "javascript:")):
            continue
        target, name = _target(path, address), unquote(urlsplit(address).fragment)
        if not target.exists() or target.is_dir():
            yield f"{here}: {address} leads nowhere"
        elif name and name not in ("", "top") and target in pages and name not in pages[target].names:
            yield f"{here}: {address} names no place of that page"


def _target(path: Path, address: str) -> Path:
    within = unquote(urlsplit(address).path)
    return _resolved(path.parent, within) if within else path


@cache  # the navigation is on every page
def _resolved(folder: Path, within: str) -> Path:
    return (folder / within).resolve()


def _elsewhere(address: str) -> bool:
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https", "ftp")
