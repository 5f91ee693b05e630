"""Downloads happen only when asked and needed; a failure names the host and what to do."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import pytest
from torchvision import datasets

from ebclab.data.sources.catalogue import DATASETS
from ebclab.data.sources.load import fetch
from ebclab.errors import DataError

FILES = DATASETS["mnist"].files["train"] + DATASETS["mnist"].files["test"]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What takes the place of torchvision's class and writes the files."""

    def write(root: str, download: bool) -> None:
        for name in FILES:
            (Path(root) / "MNIST/raw" / name).write_bytes(b"content")

    made = Mock(mirrors=["https://first.example/mnist/", "http://second.example/mnist/"], side_effect=write)
    monkeypatch.setattr(datasets, "MNIST", made)
    return made


def test_files_are_downloaded_below_the_root_and_only_once(tmp_path: Path, source: Mock) -> None:
    lines: list[str] = []
    fetch("mnist", str(tmp_path), lines.append)
    source.assert_called_once_with(str(tmp_path), download=True)
    assert lines[0] == "mnist: downloading from first.example, second.example"
    assert lines[1].startswith(f"mnist: done, files in {tmp_path}/MNIST/raw; terms of use: ")
    fetch("mnist", str(tmp_path), lines.append)
    source.assert_called_once()
    assert lines[2] == f"mnist: all files are in {tmp_path}/MNIST/raw; delete them to fetch them again"


@pytest.mark.parametrize(
    "failure",
    [
        URLError("Name or service not known"),
        TimeoutError("timed out: Name or service not known"),
        RuntimeError("Error downloading x.gz:\nTried https://first.example, got:\n<Name or service not known>\n"),
    ],
)
def test_a_network_failure_is_one_sentence_with_host_reason_and_remedy(tmp_path, source, failure):
    source.side_effect = failure
    with pytest.raises(DataError) as caught:
        fetch("mnist", str(tmp_path), lambda line: None)
    text = str(caught.value)
    assert text.startswith("data fetch: could not download mnist from first.example, second.example, got ")
    assert "Name or service not known" in text
    assert "copy train-images-idx3-ubyte, " in text
    assert f"into {tmp_path}/MNIST/raw (plain, .gz or .xz)" in text
    assert "\n" not in text


def test_torchvisions_own_failure_without_a_network_is_understood(tmp_path, monkeypatch):
    def no_network(*args: Any, **kwargs: Any) -> None:
        raise URLError("no network in this test")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    hosts = {
        "mnist": "ossci-datasets",
        "fashion-mnist": "fashion-mnist.s3-website",
        "cifar10": "www.cs.toronto.edu",
        "cifar100": "www.cs.toronto.edu",
    }
    assert hosts.keys() == {name for name, entry in DATASETS.items() if entry.folder}  # all that are stored
    for name, host in hosts.items():
        with pytest.raises(DataError, match=f"from {host}.*no network in this test"):
            fetch(name, str(tmp_path), lambda line: None)


def test_a_download_that_leaves_files_out_is_not_called_done(tmp_path: Path, source: Mock) -> None:
    source.side_effect = None
    with pytest.raises(DataError, match="incomplete after the download, got no train-images-idx3-ubyte, "):
        fetch("mnist", str(tmp_path), lambda line: None)


def test_a_root_that_cannot_be_made_is_named(tmp_path: Path, source: Mock) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"data\.root: cannot create .*/file/MNIST/raw, got Not a directory"):
        fetch("mnist", str(tmp_path / "file"), lambda line: None)
    source.assert_not_called()


def test_digits_need_no_download(tmp_path: Path) -> None:
    lines: list[str] = []
    fetch("digits", str(tmp_path), lines.append)
    assert lines == ["digits: comes with scikit-learn, nothing to download"]
    assert list(tmp_path.iterdir()) == []
