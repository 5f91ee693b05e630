"""Equations as MathML, which browsers draw by themselves: no script, no fonts, no network."""

from __future__ import annotations

from typing import Any

import latex2mathml.converter
from docutils import nodes


def setup(app: Any) -> dict[str, bool]:
    """Make Sphinx write equations so (its extension point for them)."""
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(latex2mathml.converter.convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _displayed(writer: Any, node: nodes.math_block) -> None:
    equation = latex2mathml.converter.convert(node.astext(), display="block")
    writer.body.append(f'<div class="equation">{equation}</div>\n')
    raise nodes.SkipNode
