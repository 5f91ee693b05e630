"""The code that a job runs: the locally installed packages, or those of a wheel, and the user's own methods.

Ray can install a wheel itself, but uses pip with all dependencies (e.g. reinstalls torch on every node), and identifies
a wheel by its file name, so that changed code of the same version would not be updated. It identifies folders by the
hash of their content. They are first on the import path of head and workers, and need no network access there.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ebclab.errors import UserError

PACKAGES = ("ebclab", "energy_contrast")

_LARGEST = 256 << 20  # bytes of a wheel's files; Ray sends at most 500 MiB
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.py[co]", ".*")


def stage_code(folder: Path, wheel: Path | None = None, own: Iterable[Path] = ()) -> list[Path]:
    """Copy the packages and their metadata (version, requirements) to ``folder``; return the paths to upload.

    Args:
        folder: An empty folder.
        wheel: A built wheel of ebclab; None means the packages of this process.
        own: The user's packages and modules that define methods.
    """
    if wheel is not None:
        _unpack(wheel, folder)
    else:
        _copy_installed(folder)
    for place in own:
        if place.stem in PACKAGES:
            continue
        if place.is_dir():
            shutil.copytree(place, folder / place.name, ignore=_LEFT_OUT)
        else:
            shutil.copyfile(place, folder / place.name)
    return sorted(folder.iterdir())


def _copy_installed(folder: Path) -> None:
    """Copy the packages of this process; symbolic links are replaced by copies of their targets."""
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"{package}: not installed here as a folder; give the wheel to send with --wheel FILE")
        shutil.copytree(next(iter(spec.submodule_search_locations)), folder / package, ignore=_LEFT_OUT)
    try:
        about = metadata.distribution("ebclab")
    except metadata.PackageNotFoundError:  # run from a source tree without installation
        return
    place = folder / f"ebclab-{about.version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(about.read_text("METADATA") or "", encoding="utf-8")


def _unpack(wheel: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            missing = [package for package in PACKAGES if f"{package}/__init__.py" not in names]
            if missing:
                raise UserError(
                    f"--wheel: holds no {' and no '.join(missing)}, got {wheel}; build one with `make wheel`"
                )
            if (size := sum(member.file_size for member in archive.infolist())) > _LARGEST:
                raise UserError(f"--wheel: files of {_LARGEST:,} bytes at most are sent, got {size:,} in {wheel}")
            archive.extractall(folder, [name for name in names if ".data/" not in name])
    except (OSError, EOFError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile) as error:  # damaged members
        raise UserError(
            f"--wheel: cannot be read as a wheel, got {wheel} ({getattr(error, 'strerror', None) or error}); "
            "build one with `make wheel`, or leave it out to send the ebclab that runs here"
        ) from error
