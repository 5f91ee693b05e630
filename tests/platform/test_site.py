"""The documentation as pages: nothing is loaded from elsewhere, every link leads somewhere, equations are drawn."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ebclab.cli.show import cost_rows
from ebclab.config import compose
from ebclab.config.check import settings_of
from ebclab.sweeps.space.space import load_space
from energy_contrast.catalog import METHODS

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "site"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The scripts import each other by their bare names, as they do when one of them is run."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = {path.stem for path in SCRIPTS.glob("*.py")}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


def write_site(folder: Path, body: str, head: str = "") -> Path:
    (folder / "sub").mkdir()
    (folder / "index.html").write_text(f"<html><head>{head}</head><body>{body}</body></html>", encoding="utf-8")
    (folder / "sub" / "other.html").write_text(
        '<h2 id="here">Here</h2><a href="../index.html">back</a>', encoding="utf-8"
    )
    (folder / "picture.png").write_bytes(b"png")
    return folder.resolve()


SOUND = """<a href="sub/other.html#here">on</a> <a href="https://arxiv.org/abs/2002.05709">a paper</a>
<a href="#">top</a>
<img src="picture.png"> <img src="data:image/png;base64,AA=="> <math xmlns="http://www.w3.org/1998/Math/MathML"></math>"""


def test_a_sound_site_has_no_problems(tmp_path: Path, script) -> None:
    assert script("check").problems(write_site(tmp_path, SOUND)) == []


@pytest.mark.parametrize(
    ("body", "head", "problem"),
    [
        ("", '<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ("", '<link rel="stylesheet" href="//fonts.example/f.css">', "loads //fonts.example/f.css"),
        ("", "<style>@font-face { src: url('https://f.example/a.woff2') }</style>", "loads https://f.example/a.woff2"),
        ('<img src="http://i.example/a.png">', "", "loads http://i.example/a.png"),
        ('<img src="picture.png" srcset="https://i.example/b.png 2x">', "", "loads https://i.example/b.png"),
        ('<p style="background: url(https://i.example/c.png)">', "", "loads https://i.example/c.png"),
        ('<img src="gone.png">', "", "loads gone.png, which is not there"),
        ('<a href="gone.html">x</a>', "", "gone.html leads nowhere"),
        ('<a href="sub">x</a>', "", "sub leads nowhere"),
        ('<a href="sub/other.html#there">x</a>', "", "sub/other.html#there names no place of that page"),
        ('<a href="#there">x</a>', "", "#there names no place of that page"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, body: str, head: str, problem: str, script) -> None:
    assert script("check").problems(write_site(tmp_path, body, head)) == [f"index.html: {problem}"]


def test_style_sheets_are_looked_through(tmp_path: Path, script) -> None:
    site = write_site(tmp_path, "")
    (site / "a.css").write_text('@import "https://f.example/b.css"; p { src: url(local.woff) }', encoding="utf-8")
    assert script("check").problems(site) == ["a.css: loads https://f.example/b.css"]


def test_docstrings_become_text_that_markdown_reads_as_meant(script) -> None:
    text = """One line with a_name and <b, q>.

``L = sum_i x_i``, see ``other``.

Args:
    first: (N, D) vectors,
        on two lines.

Returns:
    () the loss.

>>> 1 + 1
2

Source: SimCLR (arXiv:2002.05709), eq. 1.
Departs from the paper: not at all.
"""
    expected = """One line with a\\_name and \\<b, q\\>.

`L = sum_i x_i`, see [`other`](<#m.other>).

**Args**

- `first`: (N, D) vectors, on two lines.

**Returns**

() the loss.

```pycon
>>> 1 + 1
2
```

**Source.** SimCLR ([arXiv:2002.05709](https://arxiv.org/abs/2002.05709)), eq. 1.

**Departs from the paper.** not at all.
"""
    assert script("docstrings")._text(text, {"other": "#m.other"}) == expected


def test_every_equation_of_the_pages_is_one_that_the_converter_knows(script) -> None:
    drawn = script("mathml").drawn
    for page in (ROOT / "docs").rglob("*.md"):
        for latex in re.findall(r"```math\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            written = drawn(latex, "block")
            assert not re.search(r"\\|&#x00026;|<merror", written), f"{page.name}: {latex}"
            assert written.count("<mtr>") == (latex.count("\\\\") + 1 if "aligned" in latex else 0), latex


def test_every_public_name_of_the_science_and_of_the_lab_has_an_entry(script) -> None:
    pages = script("reference").pages()
    for name in ("methods/energy_contrast/losses.py", "methods/energy_contrast/samplers/langevin.py"):
        dotted = ".".join(Path(name).relative_to("methods").with_suffix("").parts)
        public = re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert [f"({dotted}.{word})=" in pages[f"reference/{dotted}.md"] for word in public] == [True] * len(public)
    import ebclab

    assert set(re.findall(r"`ebclab\.(\w+)`", pages["reference/ebclab.md"])) == set(ebclab.__all__)


def test_the_page_of_the_command_line_has_every_option(script) -> None:
    page = script("command_line").page()
    assert "## `ebclab runs delete`" in page
    assert "`--temperature" not in page
    assert "\nebclab evaluate [OPTIONS] ENCODER...\n" in page
    assert "\nebclab demo [OPTIONS] [FOLDER]\n" in page
    assert "\n| `ENCODER...` | Runs (name, folder or" in page
    assert "\n| `RUN\\|SWEEP` | Name, folder or address" in page  # a bare bar would end the cell
    assert "| `--ood [near=\\|far=]NAME` | Out-of-distribution" in page
    assert "| `--workers W` | 0: this process; 2: two Ray workers; 1:4: one to four, as available. |" in page


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_a_method_gets_all_of_its_settings_its_cost_and_a_command_that_runs(name: str, script) -> None:
    pages = script("method_pages")
    added = pages.added_to(f"docs/methods/{pages.PAGES[name]}.md")
    (config,) = (part for part in re.split(r"\n(?=## )", added) if f"/{name}.yaml)" in part)
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \|", config, re.MULTILINE))
    config_type = METHODS[name].Config
    defaults = {field: yaml.safe_load(rows[f"method.{field}"].strip("`")) for field in settings_of(config_type)}
    assert defaults == {field: getattr(config_type(), field) for field in settings_of(config_type)}
    space = load_space(None, name)
    searched = {row.split("`")[1]: row.split(" | ")[3].strip() for row in config.splitlines() if row.startswith("| `")}
    assert {key for key, found in searched.items() if found} == {each.name for each in space.parameters}
    assert f"| `{name}` | {' | '.join(next(row for row in cost_rows() if row[0] == name)[1:])} |" in added
    assert compose(name, recipe="digits-demo").method_name == name
    assert f"\nebclab pretrain {name} --recipe digits-demo\n" in added


def test_ranges_and_scores_are_those_of_the_files(script) -> None:
    added = script("method_pages").added_to("docs/methods/simclr.md")
    assert "| `0.2` | above 0 | 0.05 to 1, log | Divides cosine" in added
    assert "| 0.04 to 0.9, or 0 |" in added
    assert "| `training.batch_size` | the recipe's |  | 16, 32, 64, 128, 256, 512 |" in added
    digits = added.partition("methods_digits_demo.md):\n\n")[2].partition("\n\n")[0].splitlines()
    assert [row.split(" | ")[0] for row in digits[2:]] == ["| simclr", "| simclr's encoder, untrained", "| raw pixels"]
    assert set(digits) <= set((ROOT / "benchmarks/results/methods_digits_demo.md").read_text("utf-8").splitlines())
    assert script("method_pages").added_to("docs/methods/encoders.md") == ""


def test_every_page_of_the_docs_is_in_the_navigation(script) -> None:
    gather, docs = script("gather"), ROOT / "docs"
    listed = {page for names in gather.CONTENTS.values() for name in names.split() for page in gather._matching(name)}
    pages = {page for page in listed if page.startswith("docs/") or "/" not in page}
    found = [*ROOT.glob("*.md"), *docs.rglob("*.md"), *docs.rglob("*.ipynb")]
    files = {path.relative_to(ROOT).as_posix() for path in found} - {"README.md"}  # the first page has the navigation
    assert files ^ pages == set(), "CONTENTS in docs/site/gather.py must have exactly the pages that there are"


def test_each_method_has_one_page_that_the_index_links_and_each_page_a_method(script) -> None:
    pages = set(script("method_pages").PAGES.values())
    files = {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert files - pages == {"README", "encoders", "ess-target"}
    assert not pages - files, f"docs/methods lacks {pages - files}"
    index = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    assert [name for name in files - {"README"} if f"]({name}.md)" not in index] == []


def test_the_page_about_reproductions_gets_every_study_with_its_numbers_and_claims(script) -> None:
    added = script("studies").added_to("docs/reproduce.md")
    files = (ROOT / "studies").glob("*/*.yaml")
    given = {f"{path.parent.name}/{path.stem}": yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    rows = {
        name: cells for name, *cells in re.findall(r"^\| `(\S+)` \| (.+) \| (\d*) \| (\d+) \|$", added, re.MULTILINE)
    }
    assert rows == {
        name: [
            study["about"]["title"],
            str(sum(map(len, study.get("published", {}).values())) or ""),
            str(len(study.get("claims", []))),
        ]
        for name, study in given.items()
    }


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_whole(tmp_path: Path) -> None:
    """The build itself looks through the pages, and fails on what it finds."""
    command = [sys.executable, "docs/site/build.py", "--to", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    glossary = (tmp_path / "site" / "docs" / "glossary.html").read_text(encoding="utf-8")
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML"' in glossary
    assert "infonce" in (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8").lower()
    settings = (tmp_path / "site" / "_static" / "documentation_options.js").read_text(encoding="utf-8")
    assert "SHOW_SEARCH_SUMMARY: false" in settings  # else a search fetches pages, which no browser does from a disk
    for name in ("runs", "sweep", "comparison", "card"):
        page = (tmp_path / "site" / "docs" / "examples" / f"{name}.html").read_text(encoding="utf-8")
        assert 'src="plotly.js"></script>' in page
        assert len(page) < 1_000_000  # plotly.js has four megabytes
        assert str(ROOT) not in page
