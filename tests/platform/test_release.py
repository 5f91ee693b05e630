"""What is published was committed, is dated in the changelog, and is equal bytes when built again."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AUTHOR = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")


@pytest.mark.slow
def test_a_release_is_committed_dated_and_built_twice_alike(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)

    def git(*words: str) -> None:
        subprocess.run(["git", *AUTHOR, *words], cwd=clone, check=True, capture_output=True)

    def release() -> tuple[int, str]:
        given = {**os.environ, "PYTHON": sys.executable}
        done = subprocess.run([".ci/release"], cwd=clone, env=given, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    shutil.copy(ROOT / ".ci" / "release", clone / ".ci" / "release")
    changes = clone / "CHANGELOG.md"
    changes.write_text(re.sub(r"^## 0.1.0 .*", "## 0.1.0 (soon)", changes.read_text(), flags=re.MULTILINE))
    assert release() == (1, "release: uncommitted changes; commit them\n")
    git("add", "-A")
    git("commit", "-qm", "not dated")
    assert release() == (1, "release: CHANGELOG.md has no line '## 0.1.0 (YYYY-MM-DD)'; write it\n")
    changes.write_text(changes.read_text().replace("## 0.1.0 (soon)", "## 0.1.0 (2026-12-01)"))
    git("commit", "-qam", "dated")
    code, said = release()
    assert code == 0, said
    built = sorted(path.name for path in (clone / "dist").iterdir())
    assert built == ["ebclab-0.1.0-py3-none-any.whl", "ebclab-0.1.0.tar.gz"]
    assert [line.split()[1] for line in said.splitlines()] == built
