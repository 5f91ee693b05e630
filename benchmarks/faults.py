"""What each fault costs: steps trained twice, and seconds until training is beyond where it went on.

    python benchmarks/faults.py              run them all, and make the table
    python benchmarks/faults.py FILE...      make it from the junit files of earlier runs; a later file's rows win

The tests are those marked ``fault``, which let processes, machines, stores and disks fail, and record what that costs.
As root, on Linux with sshd, rsync and ip, all of them run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from page import write_page

ORDER = (
    "a worker killed",
    "a node killed during pretraining",
    "a node killed during a sweep",
    "a host of `ray up`",
    "the driver killed",
    "the process killed",
    "the head restarted",
    "the head lost",
    "a preemption notice",
    "storage away",
    "disk full",
)
"""How rows begin, from the first row to the last; others follow."""
COLUMNS = ("fault", "steps_lost", "seconds", "result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="junit files of earlier runs; none: run the tests")
    files = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        outcomes = str(Path(folder) / "outcomes.xml")
        if not files:
            command = [sys.executable, "-m", "pytest", "-v", "-m", "fault", "--full-waits", f"--junitxml={outcomes}"]
            subprocess.run([*command, "tests/integration", "tests/cluster"], check=False)
        cases = [case for file in files or [outcomes] for case in ElementTree.parse(file).getroot().iter("testcase")]
    found: dict[str, list[str]] = {}
    missing: dict[str, None] = {}
    for case in cases:
        test = str(case.get("name"))
        properties = {str(each.get("name")): each.get("value") or "" for each in case.iter("property")}
        if any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped")):
            missing[test] = None
        elif "fault" in properties:
            found[properties["fault"]] = [properties[column] for column in COLUMNS]
            missing.pop(test, None)
    rows = ["| fault | steps trained twice | seconds to recover | result |", "|---|---|---|---|"]
    rows += [f"| {' | '.join(found[fault])} |" for fault in sorted(found, key=lambda fault: (_place(fault), fault))]
    rows += [f"| {test} | - | - | failed or skipped |" for test in missing]
    write_page("faults", "What faults cost", "`python benchmarks/faults.py`", ("torch", "ray"), "\n".join(rows))
    if missing:
        sys.exit(f"failed or skipped, so without numbers: {', '.join(missing)}")


def _place(fault: str) -> int:
    return next((place for place, begin in enumerate(ORDER) if fault.startswith(begin)), len(ORDER))


if __name__ == "__main__":
    main()
