"""What a submitted command line takes along: the code, the files that it names, and its form on the head node.

Ray can install a wheel itself, but uses pip with all dependencies (e.g. reinstalls torch on every node), and identifies
a wheel by its file name, so that changed code of the same version would not be updated. It identifies folders by the
hash of their content. They are first on the import path of head and workers, and need no network access there.
"""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ebclab.config.addresses import credentials_problem, is_address
from ebclab.config.names import did_you_mean
from ebclab.errors import UserError
from ebclab.sweeps.space.space import list_spaces

PACKAGES = ("ebclab", "energy_contrast")

_LARGEST = 256 << 20  # bytes of a wheel's files; Ray sends at most 500 MiB
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.py[co]", ".*")

FILES = "ebclab_submitted"
"""Folder of the files that are sent with a command line; on the cluster it is on the job's import path."""

ON_ARRIVAL = "ebclab.cli.arrival"
"""Module that the head node starts."""

_SENT = "submitted:"
_SENT_FILE = re.compile(rf"^((?:--[a-z-]+=)?(?:[\w.:-]+=)?){_SENT}(\d+-)")
_VERBS: dict[str, tuple[str, ...]] = {
    "pretrain": ("--config",),
    "sweep": ("--config", "--space"),
    "compare": ("--space",),
    "evaluate": (),
    "sample": (),
    "report": (),
    "export": (),
    "data": (),
    "runs": (),
}
"""Verbs that may be submitted, each with the options whose value is a file to send.

For ``compare``, the value is ``METHOD=FILE``.
"""

_SHOWN_HERE = ("demo", "show", "submit")
_ON_ONE_MACHINE = ("cluster", "reproduce", "search")


def require_verb(arguments: Sequence[str]) -> str:
    """Return the verb of a command line; refuse a command line that must not be submitted."""
    if not arguments:
        raise UserError(f"submit: nothing to submit; write `ebclab submit -- VERB ...` with one of {', '.join(_VERBS)}")
    verb = arguments[0]
    if verb in _SHOWN_HERE:
        raise UserError(f"submit: {verb} needs no cluster; run `ebclab {verb}` here")
    if verb in _ON_ONE_MACHINE:
        raise UserError(f"submit: {verb} cannot be submitted; run `ebclab {verb}` here, or on a machine of the cluster")
    if verb not in _VERBS:
        raise UserError(f"submit: no such verb, got {verb!r}; {did_you_mean(verb, _VERBS)}")
    problems = [problem for text in arguments if (problem := credentials_problem(text))]
    if problems:
        raise UserError("\n".join(f"submit: {problem}" for problem in problems))
    return verb


def stage_files(arguments: Sequence[str], folder: Path) -> list[str]:
    """Copy the files named in a command line to ``folder``; return the command line with placeholders for them.

    The verb must be one that ``require_verb`` accepts; the folder is created if there is a file to copy.
    """
    options = _VERBS[arguments[0]]
    rewritten: list[str] = []
    previous = ""
    for text in arguments:
        option, equals, value = text.partition("=")
        if previous in options:
            rewritten.append(_value_sent(arguments[0], text, previous, folder))
        elif equals and option in options:
            rewritten.append(f"{option}={_value_sent(arguments[0], value, option, folder)}")
        else:
            rewritten.append(text)
        previous = text
    return rewritten


def _value_sent(verb: str, value: str, option: str, folder: Path) -> str:
    """Return an option's value with its file replaced by a placeholder; for ``compare`` it is ``METHOD=FILE``."""
    method, equals, file = value.partition("=") if verb == "compare" else ("", "", value)
    return f"{method}{equals}{_sent(file, option, folder)}" if file else value


def _sent(file: str, option: str, folder: Path) -> str:
    if is_address(file) or (option == "--space" and file in list_spaces()):
        return file
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{len(list(folder.iterdir()))}-{Path(file).name}"
    try:
        shutil.copyfile(file, folder / name)
    except OSError as error:
        raise UserError(
            f"{option}: cannot be read, got {file} ({error.strerror or error}); give the path of a file"
        ) from error
    return _SENT + name


def with_sent_files(arguments: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Return a command line with placeholders replaced by paths of the files, sent to one of ``folders``."""
    folder = next((parent / FILES for parent in folders if (parent / FILES).is_dir()), Path(FILES))
    return [_SENT_FILE.sub(lambda found: f"{found[1]}{folder}/{found[2]}", text) for text in arguments]


def as_recorded(arguments: Sequence[str]) -> list[str]:
    """Return a command line from ``stage_files`` with the original file names, since a job's folder is temporary."""
    return [_SENT_FILE.sub(r"\g<1>", text) for text in arguments]


def entrypoint(arguments: Sequence[str]) -> str:
    """Return the shell command that the head node runs.

    Paths are relative to the home folder. ``exec`` replaces the shell, so that signals reach the Python process.
    """
    return f"cd ~ && exec python -m {ON_ARRIVAL} {shlex.join(arguments)}"


def submitted_part(command: str) -> str:
    """Return the command line that the user submitted, from the shell command of its job, with original file names."""
    submitted = command.partition(f" -m {ON_ARRIVAL} ")[2]
    return shlex.join(as_recorded(shlex.split(submitted))) or command


def new_id(verb: str) -> str:
    """Return a random name for a job, used if the user gave none."""
    return f"{verb}-{secrets.token_hex(4)}"


def require_id(name: str) -> str:
    """Return ``name`` if it is a valid name of a job."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", name, flags=re.ASCII):
        raise UserError(f"--name: cannot name a job, got {name!r}; use letters, digits, dots, dashes and underscores")
    return name


def stage_code(folder: Path, wheel: Path | None = None, own: Iterable[Path] = ()) -> list[Path]:
    """Copy the packages and their metadata (version, requirements) to ``folder``; return the paths to upload.

    Args:
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
