"""The pages name what is there: packages, layers, files, links, commands."""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from ebclab.cli.app import app

from .test_house import LAB, LAB_LAYERS, PACKAGES, ROOT, SCIENCE, SCIENCE_LAYERS

README, ARCHITECTURE = ROOT / "README.md", ROOT / "docs" / "architecture.md"
PAGES = [
    README,
    *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "AGENTS")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
ROOTS = (ROOT, LAB, SCIENCE)
"""Where a path of a page may begin; architecture.md says so."""


def _script(name: str) -> ModuleType:
    """Return a script beside the pages as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_of_the_docs", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _section(page: Path, title: str) -> str:
    text = page.read_text(encoding="utf-8")
    assert f"## {title}\n" in text
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def _rows(section: str) -> list[list[str]]:
    lines = [line.strip("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def test_every_package_has_a_line_that_says_what_it_is_for() -> None:
    lines = re.findall(r"^\| `(\S+)` \| (.*) \|$", _section(ARCHITECTURE, "Packages"), re.MULTILINE)
    assert sorted(name for name, purpose in lines if purpose) == sorted(_packages())


def _packages() -> Iterator[str]:
    """Yield the files beside a package's folders, and all its folders, as the page names them."""
    for root in PACKAGES.values():
        for path in root.rglob("*.py"):
            inside = path.relative_to(root)
            if inside.name == "__init__.py" and len(inside.parts) > 1:
                yield f"{inside.parent}/"
            elif len(inside.parts) == 1 and not inside.name.startswith("__"):
                yield inside.name


def test_the_size_of_the_project_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    _script("size").main()
    counts = dict(re.findall(r"^\| (\D+?) \| ([\d,]+) \|$", capsys.readouterr().out, re.MULTILINE))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in SCIENCE.rglob("*.py"))
    assert counts["methods, lines of Python"] == f"{lines:,}"
    (words,) = (int(count.replace(",", "")) for what, count in counts.items() if what.endswith(": words"))
    most = 37_000  # what a reader can be asked to look through
    assert words <= most, f"take {words - most} words out of README, docs, cluster, CONTRIBUTING or CHANGELOG"


def test_the_layers_on_the_page_are_those_that_the_house_test_holds() -> None:
    block = _section(ARCHITECTURE, "Layers").split("```")[1]
    parts = re.findall(r"^(\w+)\n((?:  .+\n)+)", block, re.MULTILINE)
    layers = {package: [set(line.strip().split(", ")) for line in lines.splitlines()] for package, lines in parts}
    assert layers == {"energy_contrast": SCIENCE_LAYERS, "ebclab": LAB_LAYERS}


def test_pictures_show_the_numbers_of_today_and_are_small() -> None:
    pictures = _script("pictures")
    assert json.loads(pictures.MADE_OF.read_text(encoding="utf-8")) == {
        name: pictures.made_of(name) for name in pictures.PICTURES
    }, "run `python docs/pictures.py`"
    for path in (ROOT / "docs" / "images").glob("*.[pj][np]g"):
        with Image.open(path) as picture:
            assert (path.stat().st_size <= 150_000, picture.width <= 1_800) == (True, True), path.name


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 900


def test_the_first_screen_of_the_readme_says_what_was_run_on_gpus() -> None:
    assert README.read_text(encoding="utf-8").index("**GPUs: under an hour") < 1_500


def test_the_numbers_of_the_readme_are_those_of_the_comparison() -> None:
    found = (ROOT / "benchmarks" / "results" / "study_batch_size.md").read_text(encoding="utf-8")
    table = _rows(found.partition("### Default and tuned\n\n")[2].partition("\n\n")[0])
    tuned = {(name.partition(",")[0], size.split()[-1]): cell for size, name, _, cell, *_ in table}
    names = {"SimCLR": "simclr", "EBCLR": "ebclr", "VEM-SVGD": "vem-svgd", "untrained": "untrained encoder of simclr"}
    for name, *cells in _rows(_section(README, "What to expect")):
        printed = [cell for cell in cells if cell]  # what no batch size changes is printed once
        assert printed == [tuned[names[name], size] for size in ("16", "64", "256")][: len(printed)]
        names.pop(name)
    assert names == {}


def test_the_other_numbers_of_the_readme_are_those_of_their_tables() -> None:
    """Each number is taken from the cells that it speaks of, and printed as there or rounded."""
    said = dict(re.findall(r"\[([^]]*\d[^]]*)\]\(benchmarks/results/(\w+)\.md\)", README.read_text(encoding="utf-8")))
    of = {page: text for text, page in said.items()}
    results = {page: (ROOT / "benchmarks" / "results" / f"{page}.md").read_text(encoding="utf-8") for page in of}
    rows = {page: [line.strip("| ").split(" | ") for line in text.splitlines()] for page, text in results.items()}
    (speed,) = (row[5] for row in rows["end_to_end"] if row[0] == "ebclab")
    (views,) = (row[3] for row in rows["views"] if row[0].startswith("torchvision v2, PIL"))
    ebclr = next(row[3:5] for row in rows["gpu_cifar10"] if row[:2] == ["EBCLR, as released", "10"])
    columns = (2, 3, 4, 8, 9)  # of intervals, each with its share of simulations that hold
    held = [float(row[c]) for row in rows["coverage"] if len(row) == 13 and row[0][0].isdigit() for c in columns]
    assert of == {
        "end_to_end": f"{speed.rstrip('x')} of lightly's time",
        "views": f"{float(views.rstrip('x')):.0f} times torchvision's speed",
        "gpu_cifar10": f"{float(ebclr[0]):.1f} %, the paper {ebclr[1]}",
        "coverage": f"{min(held):g} to {max(held):g} of 100 cases",
    }


def test_the_plans_of_studies_are_the_files_at_their_commits() -> None:
    text = (ROOT / "benchmarks" / "results" / "reproductions.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([\w/-]+)` \| ([0-9a-f]{7,}) \| ([0-9a-f]{12}) \|$", text, re.MULTILINE)
    assert {name for name, _, _ in told} == set(re.findall(r"^## `([\w/-]+)`:", text, re.MULTILINE))
    for name, commit, digest in told:
        show = subprocess.run(["git", "show", f"{commit}:studies/{name}.yaml"], cwd=ROOT, capture_output=True)
        if b"invalid object name" in show.stderr:
            pytest.skip(f"commit {commit} is not in this clone, which has not the whole history")
        assert hashlib.sha256(show.stdout).hexdigest()[:12] == digest, name


def test_the_readme_names_every_folder_once() -> None:
    items = re.findall(r"^- (.+?):", _section(README, "Where things are"), re.MULTILINE)
    listed = [name for item in items for name in re.findall(r"`([^`]+)/`", item)]
    assert sorted(listed) == sorted(_top_folders())  # what is in the packages stands in architecture.md


def test_the_readme_names_every_verb_once() -> None:
    listed = [word for row in _rows(_section(README, "The commands")) for word in re.findall(r"`ebclab (\w+)", row[0])]
    verbs = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    assert sorted(listed) == sorted(str(verb) for verb in verbs)


@cache
def _top_folders() -> set[str]:
    """Return the folders of the repository; what is made beside them, such as runs, is not tracked."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name.partition("/")[0] for name in tracked.splitlines() if "/" in name and not name.startswith(".")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    for link in links:
        path, _, heading = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        if heading:
            assert heading in set(_anchors(target.read_text(encoding="utf-8"))), link


def _anchors(text: str) -> Iterator[str]:
    """Yield what GitHub calls the headings of a page."""
    for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    everywhere = {path.name for folder in ("platform", "methods", "tests") for path in (ROOT / folder).rglob("*.py")}
    gone = []
    for name in re.findall(r"`([\w./-]+)`", text):
        first, slash, _ = name.partition("/")
        in_a_package = any((root / first).is_dir() for root in ROOTS) and name.endswith("/")
        if slash and (first in _top_folders() or in_a_package or name.endswith(".py")):
            found = any((root / name).exists() for root in (*ROOTS, page.parent, ROOT / "tests"))
        elif name.endswith(".py"):
            found = name in everywhere
        else:
            continue
        if not found:
            gone.append(name)
    assert gone == []
