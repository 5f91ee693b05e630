"""Lays the pages out in a folder of their own; links to files beside them lead to pages that show those."""

from __future__ import annotations

import posixpath
import re
import shutil
from functools import partial
from pathlib import Path

import command_line
import examples
import method_pages
import notebooks
import reference
import studies

ROOT = Path(__file__).parents[2]
CONTENTS = {
    "Tutorials": "docs/tutorials/*.md",
    "Notebooks": "docs/notebooks/*.ipynb",
    "Guides": "docs/data.md docs/training.md docs/health.md docs/evaluation.md docs/watching.md docs/sweeps.md "
    "docs/comparisons.md docs/reports.md docs/export.md docs/reproduce.md docs/clusters.md cluster/README.md "
    "docs/scaling.md docs/security.md",
    "Methods": "docs/methods/README.md docs/methods/*.md",
    "Look up": "docs/glossary.md reference/command-line.md reference/ebclab.md reference/lab.md reference/science.md "
    "search_spaces/README.md studies/README.md",
    "Measured": "docs/examples/README.md docs/evidence.md docs/study.md benchmarks/results/index.md",
    "The project": "docs/architecture.md docs/decisions.md CONTRIBUTING.md AGENTS.md SECURITY.md CHANGELOG.md",
}
"""Captions of the navigation, and the pages below each; Sphinx refuses a page that is in none."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".csv": "text", "": "text"}
FENCE = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"(?<!\[)`([\w./-]+\.(?:py|yaml))`(?!\])")


class Gathering:
    """The pages of a site, as they are collected.

    Args:
        to: An empty folder for them.
    """

    def __init__(self, to: Path) -> None:
        self.to = to
        self.described = reference.paths_of_files()
        self.shown: dict[str, str] = {}

    def gather(self) -> None:
        """Write every page, and the files that pages show.

        Raises:
            LookupError: A page links to a file that is not there.
        """
        sources = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks" / "results").glob("*.md")]
        sources += [ROOT / folder / "README.md" for folder in ("cluster", "search_spaces", "studies")]
        for source in sources:
            name = source.relative_to(ROOT).as_posix()
            text = source.read_text(encoding="utf-8") + method_pages.added_to(name) + studies.added_to(name)
            self._write(_page_of(name), self._with_links(text, name, _page_of(name)))
        for source in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
            name = source.relative_to(ROOT).as_posix()
            self._write(
                _page_of(name), notebooks.as_page(source, partial(self._with_links, source=name, page=_page_of(name)))
            )
        with (self.to / "docs/examples/README.md").open("a", encoding="utf-8") as page:
            page.write(f"\n{examples.links()}")
        shutil.copytree(ROOT / "docs" / "images", self.to / "docs" / "images")
        for name, text in reference.pages().items():
            self._write(name, text)
        self._write("reference/command-line.md", command_line.page())
        self._write_lists(sorted(path.name for path in sources if path.parent.name == "results"))
        for name, page in sorted(self.shown.items()):
            self._write(page, _file_page(name))
        files = "".join(f"{page.removesuffix('.md')}\n" for page in sorted(self.shown.values()))
        self._write("files/index.md", f"# Files\n\n```{{toctree}}\n:maxdepth: 1\n\n{files.replace('files/', '')}```\n")
        self._add_contents()

    def _write(self, name: str, text: str) -> None:
        path = self.to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _with_links(self, text: str, source: str, page: str) -> str:
        """Return a page whose links, and files that it names, lead to pages of the site."""
        parts = FENCE.split(text)
        for number in range(0, len(parts), 2):
            linked = LINK.sub(lambda found: f"]({self._target(found[1], source, page)})", parts[number])
            parts[number] = NAMED_FILE.sub(lambda found: self._named(found[1], page) or found[0], linked)
        return "".join(parts)

    def _target(self, link: str, source: str, page: str) -> str:
        """Return where a link of a page leads on the site."""
        path, mark, name = link.partition("#")
        if "://" in link or not path:
            return link
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / target).exists():
            raise LookupError(f"{source}: {link} leads nowhere")
        return posixpath.relpath(self._shown_as(target), posixpath.dirname(page) or ".") + mark + name

    def _shown_as(self, target: str) -> str:
        """Return the page of the site, or the picture, that shows a file or folder."""
        path = ROOT / target
        if target == "benchmarks/results":
            return "benchmarks/results/index.md"
        if path.is_dir():
            return _page_of(f"{target}/README.md")
        if path.suffix in (".md", ".png", ".jpg", ".svg", ".ipynb"):
            return _page_of(target)
        if target in self.described:
            return self.described[target]
        return self.shown.setdefault(target, f"files/{target.replace('/', '-')}.md")

    def _named(self, name: str, page: str) -> str | None:
        """Return a link for a file that a page names, if there is one such file."""
        for root in ("", "methods/energy_contrast/", "platform/ebclab/"):
            path = posixpath.normpath(root + name)
            if "/" in name and (path in self.described or (name.endswith(".yaml") and (ROOT / path).is_file())):
                return f"[`{name}`]({posixpath.relpath(self._shown_as(path), posixpath.dirname(page) or '.')})"
        return None

    def _write_lists(self, results: list[str]) -> None:
        """Write the pages that list others."""
        titles = {name: (self.to / "benchmarks/results" / name).read_text(encoding="utf-8") for name in results}
        lines = [f"{title.partition(chr(10))[0].removeprefix('# ')} <{name}>\n" for name, title in titles.items()]
        self._write(
            "benchmarks/results/index.md",
            "# Measured tables\n\nOne script a claim: `benchmarks/NAME.py` writes each table, with command, commit "
            f"and machine.\n\n{_tree(''.join(sorted(lines)))}",
        )
        folders = [
            f"## {f'`{folder}/`' if folder else 'Files'}\n\n{_tree(''.join(_line(page) for page in pages))}"
            for folder, pages in reference.science_pages()
        ]
        self._write("reference/science.md", "# The science, file by file\n\n" + "\n".join(folders))
        lab = "".join(_line(page) for page in sorted(reference.lab_pages()))
        self._write("reference/lab.md", f"# The lab, where users call it\n\n{_tree(lab)}")

    def _add_contents(self) -> None:
        """Write the navigation into the first page."""
        front = (self.to / "index.md").read_text(encoding="utf-8")
        trees = []
        for caption, names in CONTENTS.items():
            pages = dict.fromkeys(page for name in names.split() for page in _matching(name))
            lines = "".join(f"{_page_of(page).removesuffix('.md')}\n" for page in pages)
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}```\n")
        trees.append("```{toctree}\n:hidden:\n\nfiles/index\n```\n")
        self._write("index.md", front + "\n" + "\n".join(trees))


def _matching(name: str) -> list[str]:
    """Return the pages that a name with an asterisk stands for; others may be pages that are written later."""
    return [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(name))] if "*" in name else [name]


def _page_of(name: str) -> str:
    return "index.md" if name == "README.md" else name.replace(".ipynb", ".md")


def _line(page: str) -> str:
    name = page.removeprefix("reference/").removesuffix(".md")
    return f"{name}\n"


def _tree(lines: str) -> str:
    return f"```{{toctree}}\n:maxdepth: 1\n\n{lines}```\n"


def _file_page(name: str) -> str:
    """Return a page that shows a text file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return f"# `{name}`\n\n````{LANGUAGES.get(Path(name).suffix, 'text')}\n{text}````\n"
