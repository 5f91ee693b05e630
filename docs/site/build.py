"""Builds the documentation as one folder of pages that need no network: ``make docs``, then open site/index.html.

python docs/site/build.py [--to FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import check
import examples
from gather import ROOT, Gathering
from sphinx.cmd.build import main as sphinx


def build(to: Path) -> int:
    """Build the site and look through it; what is wrong is printed.

    Args:
        to: Folder of the site; what an earlier build left there is replaced.

    Returns:
        0 where nothing is wrong, 1 where something is, 2 where the folder holds something else.
    """
    if to.exists() and not (to / "searchindex.js").is_file() and any(to.iterdir()):
        print(f"{to}: holds something that is no built documentation; choose another folder", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        pages, fresh = Path(folder, "pages"), Path(folder, "site")
        Gathering(pages).gather()
        words = ["-q", "-b", "html", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-d", f"{folder}/trees"]
        if sphinx([*words, str(pages), str(fresh)]):
            return 1
        (fresh / "objects.inv").unlink()
        (fresh / ".buildinfo").unlink()
        shutil.rmtree(fresh / "_sources", ignore_errors=True)
        examples.write_examples(fresh / "docs" / "examples")
        if wrong := check.problems(fresh.resolve()):
            print("\n".join(wrong), file=sys.stderr)
            return 1
        if to.exists():
            shutil.rmtree(to)
        shutil.copytree(fresh, to)
    print(f"{to / 'index.html'}: {len(list(to.rglob('*.html')))} pages")
    return 0


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--to", type=Path, default=ROOT / "site", help="folder of the site")
    raise SystemExit(build(words.parse_args().to))
