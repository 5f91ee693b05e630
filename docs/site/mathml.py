"""Equations as MathML, which browsers draw by themselves: no script, no fonts, no network."""

from __future__ import annotations

import re
from typing import Any

import latex2mathml.converter
from docutils import nodes

FUNCTION = re.compile(r"((?<!<msub>)<mi>(?:log|exp)</mi>)(?!<mo[^>]*>&#x00028;)")
"""A function's name that no parenthesis follows: browsers leave no room between it and its argument."""


def setup(app: Any) -> dict[str, bool]:
    """Make Sphinx write equations so (its extension point for them)."""
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def drawn(latex: str, display: str) -> str:
    """Return an equation as MathML.

    Args:
        latex: What stands between dollar signs or in a fence of Markdown, where ``aligned`` is what others understand.
        display: ``inline`` or ``block``.
    """
    text = latex.replace("{aligned}", "{align*}")  # the converter knows this name alone
    found = latex2mathml.converter.convert(text, display=display)
    found = found.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')  # not the height of a whole line
    return FUNCTION.sub(r'\1<mspace width="0.17em"/>', found)


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(drawn(node.astext(), "inline"))
    raise nodes.SkipNode


def _displayed(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="equation">{drawn(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode
