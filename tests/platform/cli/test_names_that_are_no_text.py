"""Files and folders whose names are not UTF-8, and a folder that is gone: one sentence, or the name escaped."""

import io
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ebclab as ebclab_package
from ebclab.cli import main
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError, UserError

LATIN = os.fsdecode("café".encode("latin-1"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of images, one of which has a name that is not UTF-8."""
    (tmp_path / "set" / "dog").mkdir(parents=True)
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    for name in ("a", "b", LATIN):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        (tmp_path / "set" / "dog" / f"{name}.png").write_bytes(file.getvalue())
    return tmp_path / "set"


@pytest.mark.parametrize(
    "command",
    [
        ["data", "prepare", "folder:set", "--to", "prepared"],
        ["data", "prepare", "parquet:set", "--to", "prepared"],
        ["pretrain", "simclr", "--dataset", "folder:set", "--set", "views.recipe=none"],
        ["evaluate", "runs/done", "--dataset", "folder:set"],
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_an_image_whose_name_is_no_text_is_named(ebclab, finished, images, command):
    outcome = ebclab(*command)
    assert outcome.refusal == (
        f"error: {images}: a file's name is not UTF-8, got b'dog/caf\\xe9.png'; rename it, or its folder\n"
    )


def test_the_same_from_python(images: Path) -> None:
    with pytest.raises(DataError, match="name is not UTF-8, got b'dog/caf"):
        load_split(f"folder:{images}", None, "train")
    moved = images.rename(images.with_name(LATIN))
    with pytest.raises(DataError, match="not a place that can be opened"):
        load_split(f"folder:{moved}", None, "train")


@pytest.mark.parametrize(
    "command",
    [
        ["pretrain", "simclr", "--dataset", f"folder:{LATIN}"],
        ["evaluate", LATIN],
        ["data", "show", "digits", "--views", f"{LATIN}.png"],
    ],
    ids=lambda command: command[0],
)
def test_a_name_on_the_command_line_that_is_no_text_is_refused(ebclab, tmp_path, command):
    outcome = ebclab(*command)
    assert outcome.refusal.startswith("error: a name is not UTF-8, got b'")
    assert "caf\\xe9" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_working_folder_that_is_no_text_or_gone_is_refused(ebclab, tmp_path, monkeypatch):
    (tmp_path / LATIN).mkdir()
    monkeypatch.chdir(tmp_path / LATIN)
    assert ebclab("pretrain", "simclr").err.startswith("error: a name is not UTF-8, got b'/")
    (tmp_path / LATIN).rmdir()
    outcome = ebclab("runs", "list")
    assert (outcome.code, outcome.err) == (
        2,
        "error: the folder that this command runs in was removed; run it in another one\n",
    )
    with pytest.raises(UserError, match=r"^the folder that this process runs in was removed, got .* path runs"):
        ebclab_package.pretrain(ebclab_package.compose("simclr"), runs="runs")


def test_a_run_whose_name_is_no_text_is_listed(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.move(finished, finished.with_name(LATIN))
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["runs", "list"]) == 0
    written = shown.buffer
    assert isinstance(written, io.BytesIO)
    assert b"caf\\udce9" in written.getvalue()
