"""Runs the notebooks, each in a new kernel, and writes them with what they print and draw.

python docs/run_notebooks.py [--to FOLDER] [FILE...]
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

NOTEBOOKS = Path(__file__).parent / "notebooks"


def run(path: Path, to: Path) -> None:
    """Run a notebook and write it into the folder ``to``, without the lines of progress, which name seconds."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, record_timing=False).execute()
    notebook.metadata["language_info"] = {"name": "python"}  # else with the version of Python
    for cell in notebook.cells:
        if cell.cell_type == "code":
            seen = [each for each in cell.outputs if each.get("name") != "stderr"]
            cell.outputs = [each for each in seen if each.get("data", {}).get("text/html") != ""]  # Ray's
            for output in cell.outputs:
                output.get("data", {}).pop("image/jpeg", None)  # Pillow's second copy of a picture
    nbformat.write(notebook, to / path.name)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--to", type=Path, default=NOTEBOOKS, help="folder of the notebooks that are written")
    words.add_argument("files", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb")), metavar="FILE")
    given = words.parse_args()
    if missing := [name for name in ("nbclient", "ipykernel", "matplotlib") if find_spec(name) is None]:
        words.exit(2, f"notebooks: not installed, got no {', '.join(missing)}; `pip install {' '.join(missing)}`\n")
    for file in given.files:
        run(file, given.to)
