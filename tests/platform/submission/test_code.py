"""What is uploaded is what a wheel would hold, and works by itself."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ebclab
from ebclab.errors import UserError
from ebclab.submission.code import stage_code


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_packages_of_this_process_are_staged_with_their_data_and_without_caches(tmp_path: Path) -> None:
    staged = stage_code(tmp_path)
    assert {"ebclab", "energy_contrast"} <= {path.name for path in staged}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    here = Path(ebclab.__path__[0])
    expected = {f"ebclab/{path.relative_to(here).as_posix()}" for path in here.rglob("*.py")}
    data = {f"ebclab/search_spaces/{path.name}" for path in (here / "search_spaces").glob("*.yaml")}
    found = _files(tmp_path)
    assert data
    assert expected | data <= found
    assert not any(name.endswith(".pyc") for name in found)
    assert not list(tmp_path.rglob("__pycache__"))


def test_staged_code_runs_before_an_older_one_that_is_installed(
    tmp_path: Path, in_new_process: Callable[..., Any]
) -> None:
    def file_of_ebclab() -> str | None:
        import ebclab
        import energy_contrast.catalog  # noqa: F401

        return ebclab.__file__

    (tmp_path / "new").mkdir()
    stage_code(tmp_path / "new")
    (tmp_path / "old" / "ebclab").mkdir(parents=True)
    (tmp_path / "old" / "ebclab" / "__init__.py").write_text("raise ImportError('older')")
    found = in_new_process(file_of_ebclab, PYTHONPATH=f"{tmp_path / 'new'}:{tmp_path / 'old'}")
    assert found == str(tmp_path / "new" / "ebclab" / "__init__.py")


def test_a_wheel_is_sent_as_what_it_holds(tmp_path: Path) -> None:
    wheel = tmp_path / "ebclab-9.9-py3-none-any.whl"
    inside = {"ebclab/__init__.py": "x = 1", "energy_contrast/__init__.py": "", "ebclab-9.9.dist-info/METADATA": "Name"}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in inside.items():
            archive.writestr(name, text)
    (tmp_path / "stage").mkdir()
    staged = stage_code(tmp_path / "stage", wheel)
    assert [path.name for path in staged] == ["ebclab", "ebclab-9.9.dist-info", "energy_contrast"]
    assert (tmp_path / "stage/ebclab/__init__.py").read_text() == "x = 1"


def test_what_is_no_wheel_of_ebclab_is_refused(tmp_path: Path) -> None:
    text, other, bomb, damaged = (tmp_path / f"{name}.whl" for name in ("text", "other", "bomb", "damaged"))
    text.write_text("no archive")
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("ebclab", "energy_contrast"):
            archive.writestr(f"{package}/__init__.py", "#" * 1000)
    content = bytearray(bomb.read_bytes())
    content[30 + len("ebclab/__init__.py")] ^= 0xFF  # the first byte of the compressed content
    damaged.write_bytes(content)
    with zipfile.ZipFile(bomb, "a") as archive:
        archive.filelist[0].file_size = 1 << 31
        archive.writestr("more", "")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("ebclab/__init__.py", "")
    stage = tmp_path / "stage"
    stage.mkdir()
    for wheel, sentence in (
        (tmp_path / "absent.whl", "--wheel: cannot be read as a wheel, .*No such file"),
        (text, "--wheel: cannot be read as a wheel, .*not a zip file"),
        (other, "--wheel: holds no energy_contrast, got"),
        (bomb, "--wheel: files of 268,435,456 bytes at most are sent, got 2,147,484,648 in .*bomb.whl"),
        (damaged, "--wheel: cannot be read as a wheel, .*decompressing"),
    ):
        with pytest.raises(UserError, match=sentence):
            stage_code(stage, wheel)
    assert [path for path in stage.rglob("*") if path.is_file() and path.stat().st_size] == []
