"""The built wheel holds every module and the data folders, and runs where only the dependencies are."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from ebclab.submission import stage_code

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(target.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_contains_every_module_and_the_data_folders(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for root, package in ((ROOT / "platform", "ebclab"), (ROOT / "methods", "energy_contrast")):
        for path in (root / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert path.relative_to(root).as_posix() in inside
    for folder, packaged in (("search_spaces", "search_spaces"), ("studies", "studies"), ("cluster", "cluster_files")):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file():
                assert f"ebclab/{packaged}/{path.relative_to(ROOT / folder).as_posix()}" in inside
        assert any(name.startswith(f"ebclab/{packaged}/") for name in inside), folder


@pytest.mark.slow
def test_the_source_archive_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("studies/README.md", "search_spaces/README.md", "cluster/README.md", "CITATION.cff", "LICENSE"):
        assert name in inside


@pytest.mark.slow
def test_the_wheel_works_beside_the_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True, capture_output=True)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(_site_packages_of_this_python())
    code = "import ebclab, ebclab.config, importlib.resources as r; print(ebclab.__file__); \
print(sorted(p.name for p in r.files('ebclab').joinpath('recipes').iterdir() if p.name.endswith('.yaml')))"
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path, env=alone)
    assert str(site) in result.stdout
    assert "digits-demo.yaml" in result.stdout
    shown = subprocess.run(
        [tmp_path / "venv" / "bin" / "ebclab", "show", "--recipes"], check=True, capture_output=True, text=True
    )
    assert "digits-demo" in shown.stdout


@pytest.mark.slow
def test_what_is_submitted_from_a_source_tree_is_what_the_wheel_holds(wheel: Path, tmp_path: Path) -> None:
    (sent := tmp_path / "sent").mkdir()
    stage_code(sent)
    files = {path.relative_to(sent).as_posix(): path.read_bytes() for path in sent.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    packages = ("ebclab/", "energy_contrast/")
    assert {name: text for name, text in files.items() if name.startswith(packages)} == {
        name: text for name, text in inside.items() if name.startswith(packages)
    }


def _site_packages_of_this_python() -> str:
    """Return this interpreter's site-packages as a .pth line: plain folders only, its own .pth files are not run."""
    import sysconfig

    return sysconfig.get_paths()["purelib"]
