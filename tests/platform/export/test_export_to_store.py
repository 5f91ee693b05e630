"""Exports in a store: what may be replaced, what is deleted, and in which order files arrive."""

import json
from pathlib import Path
from typing import Any

import pytest

from ebclab.cli import main
from ebclab.errors import RunError, UserError
from ebclab.export import load_encoder
from ebclab.storage.object_store import COPIES, Store


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the store keeps an export; its address is file:// before that."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "out"


def export(source: Path, out: Path, *more: str) -> int:
    return main(["export", str(source), "--to", f"file://{out}", *more])


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(capsys: pytest.CaptureFixture[str], source: Path, out: Path) -> str:
    """Return what an export with --overwrite says; nothing there has changed."""
    before = files(out)
    capsys.readouterr()
    assert export(source, out, "--overwrite") == 2
    assert files(out) == before
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("foreign", ["notes.txt", "other-team/encoder.json", "other-team/deep/model.safetensors"])
@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_nothing_foreign_beside_an_export_is_replaced_or_deleted(kind, foreign, hunt, out, capsys):
    source = hunt.folder.path if kind == "sweep" else hunt.folder.trials / "0001"
    assert export(source, out) == 0
    (out / foreign).parent.mkdir(parents=True, exist_ok=True)
    (out / foreign).write_text("{}")
    said = refused(capsys, source, out)
    assert f"file://{out}: " in said
    assert foreign.split("/")[0] in said
    assert "choose a new or empty folder" in said


def test_an_export_of_the_other_kind_is_not_replaced(hunt: Any, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, sweep = hunt.folder.trials / "0001", hunt.folder.path
    assert export(run, out) == 0
    assert "is not an earlier export of a sweep" in refused(capsys, sweep, out)
    other = out.with_name("other")
    assert export(sweep, other) == 0
    assert "holds other files, got 1-0002" in refused(capsys, run, other)


def test_names_of_an_export_without_its_description_are_foreign(hunt, out, capsys):
    out.mkdir()
    (out / "README.md").write_text("mine")
    (out / "model.safetensors").write_bytes(b"mine")
    assert "got no encoder.json of ebclab" in refused(capsys, hunt.folder.trials / "0001", out)


def test_an_earlier_export_is_replaced_when_asked_and_leaves_nothing_of_its_own(hunt, out, capsys):
    assert export(hunt.folder.path, out, "--top", "2") == 0
    assert {name.split("/")[0] for name in files(out)} == {"1-0002", "2-0001", "leaderboard.json", "leaderboard.csv"}
    assert export(hunt.folder.path, out) == 2
    assert f"file://{out}: already holds exported encoders" in capsys.readouterr().err
    assert export(hunt.folder.path, out, "--overwrite") == 0
    assert {name.split("/")[0] for name in files(out)} == {"1-0002", "leaderboard.json", "leaderboard.csv"}
    load_encoder(out / "1-0002")


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_an_export_that_is_broken_off_at_any_moment_is_taken_for_none(kind, hunt, out, monkeypatch):
    source = hunt.folder.path if kind == "sweep" else hunt.folder.trials / "0001"
    last = "leaderboard.json" if kind == "sweep" else "encoder.json"
    assert export(source, out) == 0
    whole, count = files(out), len(files(out))
    steps = [0]

    def step() -> None:
        steps[0] -= 1
        if steps[0] < 0:
            raise RunError("the store is gone")

    upload, delete = Store.upload, Store.delete
    monkeypatch.setattr(Store, "upload", lambda self, *given: (step(), upload(self, *given))[1])
    monkeypatch.setattr(Store, "delete", lambda self, *given: (step(), delete(self, *given))[1])
    for allowed in range(1, count + 1):
        for name, content in whole.items():
            (out / name).write_bytes(content)
        steps[0] = allowed
        assert export(source, out, "--overwrite") != 0
        assert not (out / last).exists(), allowed
        if kind == "run":
            with pytest.raises(UserError, match="not an exported encoder"):
                load_encoder(out)


def test_a_described_folder_in_a_store_has_its_weights_already(hunt, out, monkeypatch):
    order: list[str] = []
    upload = Store.upload

    def watched(self: Store, source: Path, name: str) -> None:
        order.append(name)
        upload(self, source, name)

    monkeypatch.setattr(Store, "upload", watched)
    assert export(hunt.folder.path, out, "--top", "2") == 0
    assert order[-1] == "leaderboard.json"
    assert {name.rpartition("/")[2] for name in order[-3:-1]} == {"encoder.json"}
    assert json.loads((out / "leaderboard.json").read_text())["sweep"] == "hunt"
    assert not list((out.parents[1] / "copies").rglob("*.safetensors"))
