"""Verbs that read a run in a store: what they say of it, and what they leave alone."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from small_runs import content_of, small_config, small_images

import ebclab
from ebclab.errors import UserError
from ebclab.export.run import export_run
from ebclab.runs.folder import RunFolder
from ebclab.runs.initial_weights import read_initial_weights
from ebclab.storage.object_store import COPIES
from ebclab.training.display import Listener
from ebclab.training.sample_request import SampleRequest
from ebclab.training.samples import sample_chains

BOTH = small_images(), small_images()
READERS: dict[str, Callable[[str], object]] = {
    "evaluate": lambda address: ebclab.evaluate(address, only=("knn",), images=BOTH),
    "sample": lambda address: sample_chains(address, SampleRequest("buffer", 2, 3), images=BOTH),
    "init": read_initial_weights,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a finished run of EBCLR."""
    store = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(COPIES, str(tmp_path_factory.mktemp("copies")))
        config = small_config("encoder.batch_norm=none", "method.buffer_size=64", method="ebclr")
        ebclab.pretrain(config, runs=f"file://{store}", name="one", images=small_images(), display=Listener())
    return store


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A copy of that run in a store of its own; this machine has no copy of it yet."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    shutil.copytree(finished, tmp_path / "store")
    return RunFolder.at(f"file://{tmp_path}/store/one")


def test_whoever_reads_a_run_leaves_the_copy_that_it_is_trained_in_alone(run: RunFolder, tmp_path: Path) -> None:
    run.pull(("last",))
    (run.path / "result.json").unlink()  # as a run that has been taken up again, one checkpoint further
    new = run.checkpoints / "last-0000000999"
    new.mkdir()
    (new / "model.safetensors").write_text("not uploaded yet")
    (run.path / "metrics.jsonl").write_text("longer by now")

    before = content_of(run.path)
    for read in (*READERS.values(), lambda address: export_run(address, tmp_path / "out")):
        read(run.address)
        assert content_of(run.path) == before
    there = tmp_path / "store" / "one"
    assert {"evaluation.json", "chains-buffer.png", "chains-buffer.json", "result.json"} <= {
        path.name for path in there.iterdir()
    }
    assert not (there / "checkpoints" / new.name).exists()


@pytest.mark.parametrize("reader", READERS)
def test_a_run_in_a_store_without_a_checkpoint_is_called_by_its_address(reader, run, tmp_path):
    for path in (tmp_path / "store" / "one" / "checkpoints").rglob("manifest.json"):
        path.unlink()
    with pytest.raises(UserError) as caught:
        READERS[reader](run.address)
    assert run.address in str(caught.value)
    assert "copies" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "told", "readers"),
    [
        ("model.safetensors", "", "/checkpoints: every last checkpoint is damaged, got", READERS),
        ("manifest.json", "{", "/checkpoints: every last checkpoint is damaged, got", READERS),
        ("manifest.json", '{"format": 99, "files": {}}', " was written by a newer ebclab, got format 99", READERS),
        ("config.yaml", "a: [", "/config.yaml, line 1, column 5: ", ["evaluate", "sample"]),
    ],
)
def test_what_is_wrong_with_a_run_in_a_store_is_called_by_its_address(
    file: str,
    content: str,
    told: str,
    readers: Iterable[str],
    run: RunFolder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for path in (tmp_path / "store" / "one").rglob(file):
        path.write_text(content)
    for reader in readers:
        with pytest.raises(UserError) as caught:
            READERS[reader](run.address)
        assert run.address in str(caught.value)
        assert told in str(caught.value)
        assert "copies" not in str(caught.value) + caplog.text


def test_a_damaged_export_in_a_store_is_called_by_its_address(run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "store" / "encoder"
    export_run(run.address, folder)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        read_initial_weights(f"file://{folder}")
    assert f"file://{folder}: model.safetensors is damaged" in str(caught.value)
    assert "copies" not in str(caught.value)
