"""Pages in a real browser: what they ask for, say and show."""

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)


class Visit:
    """A page that was opened: what it asked for and said, and its table.

    Args:
        browser: Chromium.
        page: The file.
        how: Options of the window: its size, its scheme.
    """

    def __init__(self, browser: Any, page: Path, **how: Any) -> None:
        self.tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **how})
        self.tab.set_default_timeout(120_000)  # also where other tests keep the processors busy
        self.requests: list[str] = []
        self.said: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.goto(page.as_uri())
        self.tab.wait_for_selector("html[data-drawn]")

    def sort(self, head: str) -> None:
        self.tab.locator("table.sortable thead button", has_text=head).first.click()

    def column(self, head: str) -> list[str]:
        """What the rows that are shown hold, from the first row to the last."""
        cells: list[str] = self.tab.evaluate(
            """head => {
              const table = document.querySelector("table.sortable");
              const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === head);
              const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
              return shown.map((row) => row.cells[at].dataset.value ?? row.cells[at].textContent.trim());
            }""",
            head,
        )
        return cells

    def plots(self, marks: str) -> dict[str, int]:
        """How many elements each plot has that ``marks`` selects."""
        found: dict[str, int] = self.tab.evaluate(
            """marks => Object.fromEntries([...document.querySelectorAll(".canvas")].map(
              (at) => [at.id, at.querySelectorAll(marks).length]))""",
            marks,
        )
        return found

    def sizes(self) -> list[tuple[float, float]]:
        """Width and height of every plot, in pixels."""
        found = self.tab.evaluate(
            """[...document.querySelectorAll(".canvas .main-svg:first-child")].map(
              (at) => [at.width.baseVal.value, at.height.baseVal.value])"""
        )
        return [(width, height) for width, height in found]
