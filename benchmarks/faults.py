"""What each fault costs: steps trained twice, and seconds until training is beyond where it went on.

    python benchmarks/faults.py

Runs the tests that let machines die, be taken away, run full, and stores be away, and makes a table of what they tell.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from page import write_page

TESTS = (
    "tests/integration/test_ray_faults.py",
    "tests/integration/test_ray_notice.py",
    "tests/integration/test_storage.py",
    "tests/cluster",
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.xml"
        command = [sys.executable, "-m", "pytest", "-q", *TESTS, f"--junitxml={told}", "-k", "not refuse"]
        subprocess.run(command, check=True)
        cases = [
            {each.get("name"): each.get("value") or "" for each in case.iter("property")}
            for case in ElementTree.parse(told).getroot().iter("testcase")
        ]
    rows = ["| fault | steps trained twice | seconds to recover | result |", "|---|---|---|---|"]
    for case in cases:
        if "fault" in case:
            result = case.get("result", "the same bits")
            rows.append(f"| {case['fault']} | {case['steps_lost']} | {case['seconds']} | {result} |")
    packages = ("torch", "ray")
    write_page("faults", "What faults cost", "`python benchmarks/faults.py`", packages, "\n".join(rows))


if __name__ == "__main__":
    main()
