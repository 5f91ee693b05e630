"""Breaks runs, sweeps and files in every way we know, and counts what survives.

    python benchmarks/breaking.py [--only KIND] [--kills N] [--damages N] [--hostile N] [--quick]

Rows named by a test are that test, driven by pytest with this file as its plugin, which counts what the test tries: a
kill point or a damaged file, not a test. The other rows start real processes. As root, on Linux, all of them run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from page import write_page

ROOT = Path(__file__).parents[1]
COUNTS, DAMAGES = "EBCLAB_BREAKING_COUNTS", "EBCLAB_BREAKING_DAMAGES"  # variables for the plugin
HOSTILE = "EBCLAB_HOSTILE_CASES"  # how many cases tests/platform/test_hostile_runs.py has


class Row(NamedTuple):
    """A line of the table."""

    kind: str
    what: str
    tried: int
    failed: int
    note: str = ""


class Tests(NamedTuple):
    """Tests of one row: which ones, and whether they count what they try."""

    what: str
    places: tuple[str, ...]
    words: str = ""


KILLS = (
    Tests("a run: start, checkpoints, going back, finish", ("tests/platform/training/test_killed_runs.py",)),
    Tests("saving last, best and kept checkpoints", ("tests/platform/runs/test_checkpoint_kills.py",)),
    Tests("an export, new or replaced", ("tests/platform/export/test_encoder_folder.py",), "replaced or whole_or"),
    Tests("`runs clean`", ("tests/platform/inventory/test_cleanup.py",), "killed_removal"),
    Tests("the log of a sweep", ("tests/platform/sweeps/test_log.py",), "no_event_is_lost"),
)
FUZZ = (Tests("files of every kind, damaged at random", ("tests/platform/test_damaged_files.py",)),)
STORE = (
    Tests(
        "two writers, a stalled writer, wrong clocks",
        ("tests/platform/storage/test_lease.py",),
    ),
)
OTHERS = (Tests("files, sessions, ports, a job with the token and without", ("tests/integration/test_ray_local.py",)),)

TESTED: dict[str, tuple[str, tuple[Tests, ...]]] = {
    "hostile": (
        "somebody's run, sweep or comparison, hostile in one field",
        (
            Tests("no connection, import or write; a sentence", ("tests/platform/test_hostile_runs.py",), "no_harm"),
            Tests("each harm would be noticed", ("tests/platform/test_hostile_runs.py",), "would_be_noticed"),
        ),
    ),
    "text": (
        "names with escapes, markup and formulas",
        (Tests("terminal, Markdown, CSV, JSON, HTML", ("tests/platform/test_text_that_leaves.py",)),),
    ),
    "links": (
        "links, pipes and devices in place of files and folders",
        (
            Tests("the command line", ("tests/platform/cli/test_links_and_pipes.py",)),
            Tests(
                "locks and run folders", ("tests/platform/storage/test_lock.py", "tests/platform/test_own_folders.py")
            ),
        ),
    ),
    "archives": (
        "archives and images that are bombs",
        (
            Tests(
                "tars and archives",
                (
                    "tests/platform/data/sources/test_stored_files.py",
                    "tests/platform/data/sources/test_webdataset.py",
                ),
            ),
            Tests(
                "Parquet and Arrow",
                ("tests/platform/data/sources/test_parquet.py", "tests/platform/data/sources/test_arrow.py"),
            ),
            Tests("images", ("tests/platform/data/test_photograph.py",)),
        ),
    ),
    "addresses": (
        "addresses in somebody's files that name a host",
        (
            Tests(
                "stores", ("tests/platform/cli/test_named_hosts.py", "tests/platform/config/test_hosts_of_addresses.py")
            ),
            Tests("clusters", ("tests/platform/cli/test_named_hosts.py", "tests/platform/training/test_addresses.py")),
            Tests("credentials", ("tests/platform/cli/test_credentials.py",)),
        ),
    ),
    "patterns": (
        "text that makes patterns slow",
        (Tests("every pattern of the package", ("tests/platform/test_patterns.py",)),),
    ),
    "tokens": (
        "another program on the port of a cluster",
        (
            Tests(
                "no token is sent to it",
                ("tests/platform/cluster/test_token.py", "tests/platform/cluster/test_socket_owner.py"),
            ),
        ),
    ),
    "checkpoints": (
        "checkpoints with valid checksums that somebody made",
        (
            Tests("weights", ("tests/platform/training/test_crafted_checkpoints.py",)),
            Tests("state.pt", ("tests/platform/storage/test_tensors.py",)),
        ),
    ),
    "cards": (
        "a card that is interrupted or damaged",
        (Tests("results kept", ("tests/platform/card/test_results.py",)),),
    ),
    "comparisons": (
        "a comparison that grew, was killed or was changed",
        (
            Tests(
                "its plan and page",
                ("tests/platform/comparisons/test_plan.py", "tests/platform/comparisons/test_output.py"),
            ),
        ),
    ),
    "preparations": (
        "a preparation killed at each shard",
        (Tests("resumes", ("tests/platform/data/preparing/test_preparing.py",), "killed_preparation_leaves"),),
    ),
    "exports": (
        "an export that is refused or interrupted",
        (
            Tests(
                "nothing or all",
                ("tests/platform/export/test_encoder_folder.py",),
            ),
        ),
    ),
}
"""Rows whose cases are tests, which are counted: what happens, and to what. A row without tests says so."""


# What pytest calls, when this file is its plugin


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Have every kill point and every damaged file written down, and damage each file as often as was asked."""
    import kill_points

    for module in {item.module for item in items}:
        if hasattr(module, "killed_everywhere"):
            module.killed_everywhere = _counted(kill_points.killed_everywhere)
        if hasattr(module, "seconds_at_most"):
            module.DAMAGES = int(os.environ[DAMAGES])
            module.seconds_at_most = _called(module.seconds_at_most)


def _counted(own: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def everywhere(*given: Any, **options: Any) -> Iterator[Any]:
        for folder in own(*given, **options):
            _note()
            yield folder
        _note(b"-")  # the last one was not killed

    return everywhere


def _called(own: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        _note()
        return own(*given)

    return call


def _note(mark: bytes = b".") -> None:
    with open(os.environ[COUNTS], "ab", buffering=0) as file:
        file.write(mark)


def driven(
    kind: str, rows: tuple[Tests, ...], damages: int, *, by_test: bool, hostile: int | None = None
) -> Iterator[Row]:
    """Yield a row for each group of tests; where they count nothing themselves, tests are counted."""
    for row in rows:
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "counts"
            counts.touch()
            paths = os.pathsep.join([str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
            environment = {**os.environ, COUNTS: str(counts), DAMAGES: f"{damages}", "PYTHONPATH": paths}
            environment |= {HOSTILE: f"{hostile}"} if hostile else {}
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "breaking",
                "-p",
                "no:xdist",
                "-p",
                "no:cacheprovider",
            ]
            command += ["--timeout=0", f"--junitxml={folder}/outcomes.xml", "-k", row.words, *row.places]
            ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            passed, failed, skipped = _outcomes(Path(folder) / "outcomes.xml", ended)
            marks = counts.read_bytes()
            tried = passed + failed if by_test else marks.count(b".") - marks.count(b"-")
            note = f"tests; {skipped} skipped" if by_test and skipped else "tests" if by_test else ""
            if failed:
                note = f"{note} {' '.join(ended.stdout.splitlines()[-failed - 1 :])[:200]}".strip()
            yield Row(kind, row.what, tried, failed, note)


def _outcomes(path: Path, ended: subprocess.CompletedProcess[str]) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped."""
    from xml.etree import ElementTree

    if not path.exists():
        raise RuntimeError(f"pytest: exit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    suite = next(ElementTree.parse(path).getroot().iter("testsuite"))
    number, failures, errors, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    return number - failures - errors - skipped, failures + errors, skipped


# Real processes


def kill_points(asked: argparse.Namespace) -> Iterator[Row]:
    """Kill, and cut the power, before every file operation."""
    yield from driven("a kill or a power cut before each file operation", KILLS, asked.damages, by_test=False)


def random_kills(asked: argparse.Namespace) -> Iterator[Row]:
    """Kill real runs at random moments."""
    from breaking_runs import killed_at_random

    for method in ("simclr",) if asked.quick else ("simclr", "moco", "ebclr", "vem-svgd"):
        tried, failed = killed_at_random(method, asked.kills)
        yield Row("SIGKILL at random moments", f"{method}: same bits as undisturbed", tried, failed)


def comparisons(asked: argparse.Namespace) -> Iterator[Row]:
    """Kill whole comparisons at random moments."""
    from breaking_comparisons import killed_comparisons

    tried, failed = killed_comparisons(1 if asked.quick else 10)
    yield Row("SIGKILL at random moments", "a comparison: same winners, same numbers", tried, failed)


def signals(asked: argparse.Namespace) -> Iterator[Row]:
    """Send a real run each signal that people and machines send."""
    from breaking_runs import signalled

    for name, failed in signalled():
        yield Row("a signal at a random moment", f"{name}: ends or continues, then the same bits", 1, failed)


def damaged(asked: argparse.Namespace) -> Iterator[Row]:
    """Damage files."""
    yield from driven(
        f"a value or a sentence within 5 s and 1 GB, {asked.damages} a file", FUZZ, asked.damages, by_test=False
    )


def other_user(asked: argparse.Namespace) -> Iterator[Row]:
    """Try to get in as another user."""
    if os.getuid() != 0:
        yield Row("another local user", OTHERS[0].what, 0, 0, "needs root")
        return
    yield from driven("another local user", OTHERS, asked.damages, by_test=True)


def store(asked: argparse.Namespace) -> Iterator[Row]:
    """Let two processes write to one place in a store."""
    yield from driven("two writers on a store", STORE, asked.damages, by_test=True)


def disks(asked: argparse.Namespace) -> Iterator[Row]:
    """Fill disks."""
    from breaking_runs import DISKS, full_disk

    for name, options in DISKS[:1] if asked.quick else DISKS:
        failed, note = full_disk(options)
        yield Row(
            "a disk that fills", f"{name}: a sentence, then the same bits", int(failed is not None), failed or 0, note
        )


def names(asked: argparse.Namespace) -> Iterator[Row]:
    """Start one name several times at once; write HTML into what reports show."""
    from breaking_inputs import hostile_words
    from breaking_runs import five_starts

    yield Row("five starts of one name at once", "one trains, nothing is spoilt", 5, five_starts())
    tried, failed = hostile_words()
    yield Row("HTML as dataset, reason and name of a machine", "the report has no tag more", tried, failed)


def settings(asked: argparse.Namespace) -> Iterator[Row]:
    """Give settings out of range, and files that are bombs."""
    from breaking_inputs import crafted

    tried, wrong = crafted()
    note = "; ".join(wrong)
    yield Row("crafted settings", "exit code 2, a sentence, 20 s and 1 GB at most", tried, len(wrong), note)


def tested(name: str) -> Callable[[argparse.Namespace], Iterator[Row]]:
    """Return what yields the rows of ``TESTED`` under a name."""
    kind, rows = TESTED[name]
    return lambda asked: driven(kind, rows, asked.damages, by_test=True, hostile=asked.hostile)


KINDS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "points": kill_points,
    "kills": random_kills,
    "comparisons": lambda asked: chain(comparisons(asked), tested("comparisons")(asked)),
    "signals": signals,
    "damage": damaged,
    "user": other_user,
    "store": store,
    "disks": disks,
    "names": names,
    "settings": settings,
    **{name: tested(name) for name in TESTED if name != "comparisons"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*KINDS], help="break this and print it; no page is written")
    parser.add_argument("--kills", type=int, default=8, help="SIGKILLs of each method")
    parser.add_argument("--damages", type=int, default=300, help="damages of each file")
    parser.add_argument("--hostile", type=int, default=500, help="cases of a run made hostile in one field")
    parser.add_argument("--quick", action="store_true", help="one method, one disk")
    asked = parser.parse_args()
    table = ["| what happens | to what | tried | survived | failed | seconds | |", "|---|---|---|---|---|---|---|"]
    failures = 0
    for name in [asked.only] if asked.only else KINDS:
        began = time.perf_counter()
        for row in KINDS[name](asked):
            seconds, began = time.perf_counter() - began, time.perf_counter()
            counts = (row.tried, row.tried - row.failed, row.failed)
            cells = [row.kind, row.what, *(f"{number:,}" for number in counts), f"{seconds:.0f}", row.note]
            table.append(f"| {' | '.join(cells)} |")
            print(table[-1], flush=True)
            failures += row.failed
    if not asked.only:
        words = f"--kills {asked.kills} --damages {asked.damages} --hostile {asked.hostile}" + " --quick" * asked.quick
        command = f"`python benchmarks/breaking.py {words}`"
        write_page(
            "breaking", "What was broken, and what survived", command, ("ebclab", "torch", "ray"), "\n".join(table)
        )
    sys.exit(min(failures, 1))


if __name__ == "__main__":
    main()
