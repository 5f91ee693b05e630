"""The navigation beside every page, made once: for each page anew it takes a third of the time of the whole build."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r'(<a class="reference internal" href=")([^"#]+)')
TAG = re.compile(r"<(/?)(ul|li)[^>]*>")
TICK = ' class="toctree-checkbox"', ' checked="" class="toctree-checkbox"'
"""A closed entry's box, and an open one's."""
BEFORE_FURO, AFTER_FURO = 400, 600


def setup(app: Any) -> dict[str, bool]:
    """Have pages get this navigation in place of their own, which the theme makes from ``toctree``."""
    whole: list[str] = []

    def without(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        context.pop("toctree", None)

    def with_shared(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        if not whole:
            whole.append(_of_no_page(app.builder))
        context["furo_navigation_tree"] = seen_from(page, whole[0])

    app.connect("html-page-context", without, BEFORE_FURO)
    app.connect("html-page-context", with_shared, AFTER_FURO)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _of_no_page(builder: Any) -> str:
    """Return the navigation with links from the site's own folder, and no page marked: that of the search."""
    from furo.navigation import get_navigation_tree
    from sphinx.environment.adapters.toctree import global_toctree_for_doc

    asked: dict[str, Any] = {"tags": builder.tags, "titles_only": True, "maxdepth": -1, "includehidden": True}
    tree = global_toctree_for_doc(builder.env, "search", builder, collapse=False, **asked)
    return get_navigation_tree(builder.render_partial(tree)["fragment"])


def seen_from(page: str, whole: str) -> str:
    """Return the navigation as it stands beside a page: its links lead from there, what the page lies in is open.

    Args:
        page: Its address without the suffix, such as ``docs/data``.
        whole: The navigation of a page at the top that is not in it.
    """
    before, own, after = whole.partition(f'<a class="reference internal" href="{page}.html">')
    if own:
        around: list[re.Match[str]] = []
        for tag in TAG.finditer(before):
            around = around[:-1] if tag[1] else [*around, tag]
        if "has-children" in around[-1][0]:
            after = after.replace(*TICK, 1)
        before = before[: around[-1].start()] + _marked(around[-1][0], " current-page") + before[around[-1].end() :]
        for tag in reversed(around[:-1]):
            inside = before[tag.end() :]
            before = before[: tag.start()] + _marked(tag[0]) + (inside.replace(*TICK, 1) if tag[2] == "li" else inside)
        whole = before + '<a class="current reference internal" href="#">' + after
    folder = posixpath.dirname(page) or "."
    return LINK.sub(lambda link: link[1] + posixpath.relpath(link[2], folder), whole)


def _marked(tag: str, of_page: str = "") -> str:
    """Return the tag of a list or an entry with the classes of what holds the page, or of the page's own entry."""
    if tag == "<ul>":
        return '<ul class="current">'
    children = " has-children" if "has-children" in tag else ""
    return tag.replace(f'{children}">', f' current{children}{of_page}">')
