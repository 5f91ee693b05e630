"""What each fault costs: steps trained twice, and seconds until training is beyond where it went on.

    python benchmarks/faults.py

Runs the tests marked ``fault``, which let processes, machines, stores and disks fail, and makes a table of what they
tell. As root, on Linux with sshd, rsync and ip, all of them run.
"""

from __future__ import annotations

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
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.xml"
        command = [sys.executable, "-m", "pytest", "-v", "-m", "fault", f"--junitxml={told}"]
        subprocess.run([*command, "tests/integration", "tests/cluster"], check=False)
        cases = list(ElementTree.parse(told).getroot().iter("testcase"))
    found, missing = [], []
    for case in cases:
        properties = {each.get("name"): each.get("value") or "" for each in case.iter("property")}
        if any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped")):
            missing.append(str(case.get("name")))
        else:
            found.append(tuple(properties[column] for column in COLUMNS))
    found.sort(key=lambda row: (_place(row[0]), row[0]))
    rows = ["| fault | steps trained twice | seconds to recover | result |", "|---|---|---|---|"]
    rows += [f"| {' | '.join(row)} |" for row in found] + [
        f"| {name} | - | - | failed or skipped |" for name in missing
    ]
    write_page("faults", "What faults cost", "`python benchmarks/faults.py`", ("torch", "ray"), "\n".join(rows))
    if missing:
        sys.exit(f"failed or skipped, so without numbers: {', '.join(missing)}")


def _place(fault: str) -> int:
    return next((place for place, begin in enumerate(ORDER) if fault.startswith(begin)), len(ORDER))


if __name__ == "__main__":
    main()
