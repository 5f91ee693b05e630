"""Whole runs and sweeps are deleted by name: that folder and nothing else, and never what a process works in."""

import shutil
from pathlib import Path

import pytest
from store_requests import before_requests

from ebclab.config import compose, to_yaml
from ebclab.errors import LostLeaseError, RunError, UserError
from ebclab.inventory import deletion
from ebclab.inventory.deletion import delete, find_named, find_waste, obstacle, remove
from ebclab.inventory.listing import folders_with
from ebclab.runs.folder import RunFolder
from ebclab.storage import lease
from ebclab.storage.lease import Lease, leased
from ebclab.storage.lock import is_running
from ebclab.storage.object_store import COPIES, RemoteFolder

from .conftest import worked_in


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the runs ``one`` (finished) and ``two``, beside a folder with the sweep ``hunt``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    for name in ("one", "two"):
        weights = tmp_path / "runs" / name / "checkpoints" / "last-0000000004"
        weights.mkdir(parents=True)
        (weights / "model.safetensors").write_bytes(b"x" * 1000)
        (weights / "manifest.json").write_text("{}")
        (tmp_path / "runs" / name / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "runs" / "one" / "result.json").write_text("{}")
    trial = tmp_path / "sweeps" / "hunt" / "trials" / "0000"
    trial.mkdir(parents=True)
    (trial / "config.yaml").touch()
    (trial.parents[1] / "sweep.yaml").touch()
    return tmp_path / "runs"


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_named_ones_go_and_all_others_stay(tmp_path: Path) -> None:
    others = {name for name in _files(tmp_path) if name.startswith("runs/two/")}
    found = find_named(["one", "hunt", "one"], None, None)
    assert [each.in_words() for each in found] == [
        f"finished run {tmp_path}/runs/one",
        f"unfinished sweep {tmp_path}/sweeps/hunt",
    ]
    assert found[0].num_bytes == 1000 + len("{}") * 2 + len("seed: 0\n")
    for each in found:
        delete(each)
    assert _files(tmp_path) == others
    assert list((tmp_path / "sweeps").iterdir()) == []
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["two"]


@pytest.mark.parametrize("name", ["", ".", "..", "../sweeps/hunt", "/tmp", ".hidden", "a/b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"^NAME: not the name of a folder, got "):
        find_named(["one", name], None, None)


def test_a_folder_that_is_no_run_is_not_deleted(runs: Path) -> None:
    (runs / "photos").mkdir()
    (runs / "photos" / "a.png").touch()
    with pytest.raises(RunError, match=r"^photos: no run in runs and no sweep in sweeps and .*; known: one, two, hunt"):
        find_named(["photos"], None, None)
    with pytest.raises(RunError, match=r"^onne: .*did you mean one"):
        find_named(["onne"], None, None)


def test_links_are_not_followed(runs: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    shutil.copytree(runs / "two", precious)
    before = _files(precious)
    (runs / "link").symlink_to(precious)
    with pytest.raises(UserError, match=f"^{runs}/link: a symbolic link"):
        find_named(["link"], str(runs), None)
    (runs / "one" / "checkpoints" / "elsewhere").symlink_to(precious)
    (runs / "one" / "file").symlink_to(precious / "config.yaml")
    delete(*find_named(["one"], None, None))
    assert not (runs / "one").exists()
    assert _files(precious) == before


def test_what_a_process_works_in_is_refused_before_anything_is_deleted(runs: Path, tmp_path: Path) -> None:
    (two,) = find_named(["two"], None, None)
    with worked_in(runs / "two"):
        with pytest.raises(RunError, match="runs/two: another process is training"):
            find_named(["one", "two"], None, None)
        with pytest.raises(RunError, match="another process is training"):  # taken since the question
            delete(two)
    assert (runs / "two" / "config.yaml").exists()
    hunt = tmp_path / "sweeps" / "hunt"
    for folder in (hunt, hunt / "trials" / "0000"):
        with worked_in(folder), pytest.raises(RunError, match=f"{folder}: another process works on this sweep"):
            find_named(["hunt"], None, None)
    assert (runs / "one" / "result.json").exists()


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_killed_deletion_leaves_no_half_run_and_may_be_repeated(runs, monkeypatch, is_cleaned):
    def killed(path: Path, **_: object) -> None:
        (path / "config.yaml").unlink()
        raise KeyboardInterrupt

    (two,) = find_named(["two"], None, None)
    with monkeypatch.context() as patch:
        patch.setattr(deletion.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            delete(two)
    assert [path.name for path in folders_with(runs, "config.yaml")] == ["one"]
    if is_cleaned:
        wastes = find_waste(runs, runs.parent / "sweeps")
        assert [(each.path, each.why) for each in wastes] == [(runs / ".two.deleted", "what killed deletions left")]
        assert remove(wastes) == (1000 + len("{}"), [])
    else:
        shutil.copytree(runs / "one", runs / "two")
        delete(*find_named(["two"], None, None))
    assert sorted(path.name for path in runs.iterdir()) == ["one"]


def test_the_new_name_of_a_folder_is_on_the_disk_before_its_files_go(runs, disk, monkeypatch):
    (two,) = find_named(["two"], str(runs), None)
    monkeypatch.setattr(deletion.shutil, "rmtree", lambda path: disk.events.append(("remove", disk.named(path), None)))
    delete(two)
    assert disk.events == [
        ("rename", "runs/two", "runs/.two.deleted"),
        ("sync", "runs", b""),
        ("remove", "runs/.two.deleted", None),
    ]


def test_no_lock_is_open_while_files_go_or_nfs_would_keep_it(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = list[bool]()
    monkeypatch.setattr(deletion.shutil, "rmtree", lambda path: held.append(is_running(path)))
    delete(*find_named(["two"], None, None))
    assert held == [False]


def test_a_name_that_a_run_and_a_sweep_have_needs_the_folder(runs: Path, tmp_path: Path) -> None:
    (runs / "two").rename(runs / "hunt")
    with pytest.raises(UserError, match=r"^hunt: a run and a sweep have this name; name the folder of one by --runs"):
        find_named(["hunt"], None, None)
    (found,) = find_named(["hunt"], None, "sweeps")
    assert found.folder.path == tmp_path / "sweeps" / "hunt"


def test_in_a_store_the_folder_goes_result_first_settings_last(runs: Path) -> None:
    address = f"file://{runs}"
    asked: list[str] = []
    (found,) = find_named(["one"], address, None)
    assert (found.finished, found.in_words()) == (True, f"finished run {address}/one")
    with before_requests(asked.append, only_changes=True):
        delete(found)
    assert asked == [
        "write .held.json",
        "delete result.json",
        "delete checkpoints/last-0000000004/manifest.json",
        "delete checkpoints/last-0000000004/model.safetensors",
        "delete config.yaml",
        "delete .held.json",
    ]
    assert _files(runs) == {name for name in _files(runs) if name.startswith("two/")} != set()


def test_a_deletion_that_was_stalled_deletes_nothing_of_a_run_that_has_the_name_since(runs, monkeypatch):
    (found,) = find_named(["one"], f"file://{runs}", None)
    now, asked, begun = 0.0, list[str](), False

    def stall(request: str) -> None:
        nonlocal now, begun
        asked.append(request)
        if request == "delete config.yaml" and not begun:
            begun, now = True, 120.0
            monkeypatch.setattr(lease, "LIFETIME", 0.0)
            Lease(RemoteFolder(f"file://{runs}", "one"), "is training in this folder").take()

    monkeypatch.setattr(lease, "_seconds", lambda: now)
    with before_requests(stall, only_changes=True), pytest.raises(LostLeaseError, match="another process has taken"):
        delete(found)
    assert begun
    assert _files(runs / "one") == {"config.yaml", ".held.json"}


def test_in_a_store_what_another_process_holds_is_refused(runs, tmp_path, monkeypatch):
    one = RemoteFolder(f"file://{runs}", "one")
    training = pytest.raises(RunError, match="runs/one: another process is training in this folder, got")
    with leased(one, "trains"), training:
        find_named(["one"], f"file://{runs}", None)
    trial = RemoteFolder(f"file://{tmp_path}/sweeps", "hunt") / "trials" / "0000"
    working = pytest.raises(RunError, match="hunt/trials/0000: another process works on this sweep, got")
    with leased(trial, "trains"), working:
        find_named(["hunt"], None, f"file://{tmp_path}/sweeps")
    assert (runs / "one" / "result.json").exists()


def test_a_launch_meets_an_obstacle_in_a_finished_run_and_in_other_settings(runs: Path) -> None:
    config = compose("simclr")
    run = RunFolder.at(runs / "two")
    run.config_path.write_text(to_yaml(config))
    assert obstacle(run, config) is None
    assert obstacle(run, compose("simclr", overrides=["resources.threads=1"])) is None
    for other in ("seed=1", "training.epochs=99"):
        assert obstacle(run, compose("simclr", overrides=[other])) == "other settings"
    run.config_path.write_text("seed: [")
    assert obstacle(run, config) == "other settings"
    assert obstacle(RunFolder.at(runs / "one"), config) == "finished"
