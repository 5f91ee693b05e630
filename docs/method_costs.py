"""The table of methods.md that says what a training step of each method takes and keeps, from the methods themselves.

python docs/method_costs.py --write    writes it anew
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ebclab.cli.show import cost_rows

PAGE = Path(__file__).parent / "methods.md"
MARKS = re.compile(r"(<!-- costs of methods -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table() -> str:
    """Return the table of today's code."""
    (_, *heading), *rows = cost_rows()
    lines = [("", *heading), ("---",) * 5, *((f"`{name}`", *cells) for name, *cells in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rewritten(page: str) -> str:
    """Return the page with today's table."""
    if MARKS.search(page) is None:
        raise SystemExit(f"{PAGE}: the marks of the table of costs are missing")
    return MARKS.sub(lambda found: found[1] + table() + found[3], page)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
