"""What every benchmark's page shares: the circumstances on top, the notes that a person wrote below."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
NOTES = "## Notes"  # this heading and what follows it is kept when a table is written anew


def write_page(name: str, title: str, command: str, packages: tuple[str, ...], table: str) -> None:
    """Write ``results/<name>.md``, keep its notes, and print it."""
    path = RESULTS / f"{name}.md"
    page = f"# {title}\n\n{circumstances(command, packages)}\n\n{table}\n"
    before = path.read_text() if path.exists() else ""
    notes = before[before.index(NOTES) :] if NOTES in before else ""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{page}\n{notes}" if notes else page)
    print(page)


def exit_code(found: Iterable[tuple[str, float, float]]) -> int:
    """Print which measurements are beyond their goals; return 1 if any is, else 0.

    Args:
        found: What was measured with its unit, the number, and the goal: its largest allowed value.
    """
    beyond = [f"{what}: {number:,.1f}, goal {goal:,g}" for what, number, goal in found if number > goal]
    for line in beyond:
        print(f"beyond its goal: {line}", file=sys.stderr)
    return 1 if beyond else 0


def measured(script: str, names: list[str], file: str | None) -> dict[str, Any]:
    """Return what ``script --only NAME`` prints for each name; ``file`` keeps it, and what it has is not repeated."""
    kept = Path(file) if file else None
    found: dict[str, Any] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for name in names:
        if name in found:
            continue
        command = [sys.executable, script, "--only", *name.split()]
        try:
            output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=170).stdout
            found[name] = json.loads(output.splitlines()[-1])
        except subprocess.TimeoutExpired:
            found[name] = None
        if kept:
            kept.write_text(json.dumps(found))
    return found


def circumstances(command: str, packages: tuple[str, ...]) -> str:
    """Return command, date, machine, versions and commit as a markdown list."""
    versions = ", ".join(f"{name} {version}" for name in packages if (version := installed_version(name)))
    return "\n".join(
        [
            f"- command: {command}",
            f"- date: {date.today()}; commit: {commit()}",
            f"- machine: {processor()}, {platform.system()} {platform.machine()}",
            f"- versions: Python {platform.python_version()}, {versions}",
        ]
    )


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None when it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str:
    """Return the short commit, with a plus sign when the tree differs from it."""
    folder = Path(__file__).parent
    status, head = (
        subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        for words in (["status", "--porcelain", "--", ":/methods", ":/platform"], ["rev-parse", "--short", "HEAD"])
    )
    return head.stdout.strip() + ("+" if status.stdout.strip() else "") if head.returncode == 0 else "unknown"


def processor() -> str:
    """Return the processor's name, from Linux where it tells."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} logical cores" if names else platform.processor()
