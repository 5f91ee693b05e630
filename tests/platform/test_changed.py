"""The tests that a change can affect are chosen by what they import, name and read."""

from pathlib import Path

import pytest
from changed import choose

TREE = {
    "platform/ebclab/__init__.py": '"""See ebclab.far."""\n_HOMES = {"far": "ebclab.b.far:far"}\n',
    "platform/ebclab/__main__.py": "def program():\n    import ebclab.b.page\n",
    "platform/ebclab/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ebclab.b.far\n",
    "platform/ebclab/b/__init__.py": "",
    "platform/ebclab/b/far.py": "from ebclab import a\n",
    "platform/ebclab/b/page.py": 'from importlib.resources import files\nfiles("ebclab").joinpath("templates", "x")\n',
    "platform/ebclab/b/lonely.py": "",
    "platform/ebclab/templates/page.html": "",
    "methods/energy_contrast/loss.py": "",
    "docs/page.md": "see tests",
    "docs/methods/page.md": "",
    "notes.txt": "",
    "pyproject.toml": "",
    "tests/conftest.py": "import pytest\n@pytest.fixture\ndef lost():\n    import energy_contrast.loss\n",
    "tests/platform/conftest.py": (
        "import pytest\nfrom ebclab.b.page import shown\nSIZE = shown\n\n"
        "@pytest.fixture\ndef sized():\n    return SIZE\n\n"
        "@pytest.fixture(autouse=True)\ndef each():\n    import helper\n"
    ),
    "tests/support/helper.py": "",
    "tests/support/child.py": "import ebclab.b.far",
    "tests/platform/test_a.py": "from ebclab.a import x\n",
    "tests/platform/test_lazy.py": "import ebclab\n\ndef test_it():\n    ebclab.far()\n",
    "tests/platform/test_sized.py": "def test_it(sized): ...\n",
    "tests/platform/test_verb.py": 'COMMAND = ["-m", "ebclab"]\nWHERE = ("methods", "energy_contrast.loss.nce")\n',
    "tests/platform/test_script.py": 'SCRIPT = "child.py"\n',
    "tests/platform/test_docs.py": 'from pathlib import Path\nROOT = Path(__file__)\nPAGES = ROOT / "docs"\n',
    "tests/platform/test_house.py": 'SOURCES = (__file__, "platform")\n',
    "tests/methods/test_loss.py": "def test_it(lost): ...\n",
}
PLATFORM = "a lazy sized verb script docs house"


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("platform/ebclab/a.py", "a house lazy script"),  # lazy and script by b.far
        ("platform/ebclab/b/far.py", "house lazy script"),
        ("platform/ebclab/b/page.py", "house sized verb"),
        ("platform/ebclab/b/lonely.py", "house"),
        ("platform/ebclab/templates/page.html", "house sized verb"),
        ("methods/energy_contrast/loss.py", "loss verb"),
        ("tests/support/helper.py", PLATFORM),
        ("tests/support/child.py", "script"),
        ("tests/platform/conftest.py", PLATFORM),
        ("tests/platform/test_a.py", "a"),
        ("docs/page.md", "docs"),
        ("docs/methods/page.md", "docs"),
        ("notes.txt", f"{PLATFORM} loss"),  # nothing is known to depend on it
        ("platform/ebclab/gone.py", f"{PLATFORM} loss"),
        ("pyproject.toml", f"{PLATFORM} loss"),
        ("tests/conftest.py", f"{PLATFORM} loss"),
    ],
)
def test_a_change_selects_the_tests_that_it_can_affect(tmp_path: Path, changed: str, chosen: str) -> None:
    for name, text in TREE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    tests, (of_file, total) = choose(tmp_path, [changed])
    assert sorted(Path(test).stem.removeprefix("test_") for test in tests) == sorted(chosen.split())
    assert of_file == f"{changed}: {'all' if 'loss' in chosen and 'docs' in chosen else len(tests)}"
    assert total == f"{len(tests)} of 8 test files"


def test_changes_together_select_what_each_of_them_does(tmp_path: Path) -> None:
    for name in ("platform/ebclab/a.py", "platform/ebclab/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tests" / "more").mkdir(parents=True)
    for name in "abc":
        (tmp_path / f"tests/more/test_{name}.py").write_text(f"import ebclab.{name}")
    tests, why = choose(tmp_path, ["platform/ebclab/b.py", "platform/ebclab/a.py"])
    assert tests == ["tests/more/test_a.py", "tests/more/test_b.py"]
    assert why == ["platform/ebclab/a.py: 1", "platform/ebclab/b.py: 1", "2 of 3 test files"]
