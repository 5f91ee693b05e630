"""Downloads happen only when asked and needed; a failure names the host and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError

import pytest
from torchvision import datasets

from ebclab.data.sources.catalogue import DATASETS
from ebclab.data.sources.fetch import fetch
from ebclab.errors import DataError


class Source:
    """Takes torchvision's place: writes the files, or fails as the network does."""

    mirrors: ClassVar = ["https://first.example/mnist/", "http://second.example/mnist/"]
    failure: ClassVar[Exception | None] = None
    files: ClassVar = DATASETS["mnist"].files["train"] + DATASETS["mnist"].files["test"]
    calls: ClassVar[list[str]] = []

    def __init__(self, root: str, download: bool) -> None:
        self.calls.append(root)
        assert download
        if self.failure is not None:
            raise self.failure
        for name in self.files:
            (Path(root) / "MNIST" / "raw" / name).write_bytes(b"content")


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> type[Source]:
    class Fresh(Source):
        calls: ClassVar[list[str]] = []

    monkeypatch.setattr(datasets, "MNIST", Fresh)
    return Fresh


def test_files_are_downloaded_below_the_root_and_only_once(tmp_path: Path, source: type[Source]) -> None:
    lines: list[str] = []
    fetch("mnist", str(tmp_path), lines.append)
    assert source.calls == [str(tmp_path)]
    assert lines[0] == "mnist: downloading from first.example, second.example"
    assert lines[1].startswith(f"mnist: done, files in {tmp_path}/MNIST/raw; terms of use: ")
    fetch("mnist", str(tmp_path), lines.append)
    assert len(source.calls) == 1
    assert lines[2] == f"mnist: all files are in {tmp_path}/MNIST/raw; delete them to fetch them again"


@pytest.mark.parametrize(
    "failure",
    [
        URLError("Name or service not known"),
        TimeoutError("timed out: Name or service not known"),
        RuntimeError("Error downloading x.gz:\nTried https://first.example, got:\n<Name or service not known>\n"),
    ],
)
def test_a_network_failure_is_one_sentence_with_host_reason_and_remedy(
    tmp_path: Path, source: type[Source], failure: Exception
) -> None:
    source.failure = failure
    with pytest.raises(DataError) as caught:
        fetch("mnist", str(tmp_path), lambda line: None)
    text = str(caught.value)
    assert text.startswith("data fetch: could not download mnist from first.example, second.example, got ")
    assert "Name or service not known" in text
    assert "copy train-images-idx3-ubyte, " in text
    assert f"into {tmp_path}/MNIST/raw (plain, .gz or .xz)" in text
    assert "\n" not in text


def test_torchvisions_own_failure_without_a_network_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_download_that_leaves_files_out_is_not_called_done(tmp_path: Path, source: type[Source]) -> None:
    source.files = source.files[:-1]
    with pytest.raises(DataError, match="incomplete after the download, got no t10k-labels-idx1-ubyte"):
        fetch("mnist", str(tmp_path), lambda line: None)


def test_a_root_that_cannot_be_made_is_named(tmp_path: Path, source: type[Source]) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"data\.root: cannot create .*/file/MNIST/raw, got Not a directory"):
        fetch("mnist", str(tmp_path / "file"), lambda line: None)
    assert source.calls == []


def test_digits_need_no_download(tmp_path: Path) -> None:
    lines: list[str] = []
    fetch("digits", str(tmp_path), lines.append)
    assert lines == ["digits: comes with scikit-learn, nothing to download"]
    assert list(tmp_path.iterdir()) == []
