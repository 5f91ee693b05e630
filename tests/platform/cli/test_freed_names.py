"""``ebclab runs delete`` and ``pretrain --overwrite``: a name is free again, and nothing goes unasked."""

from pathlib import Path

import pytest

from ebclab.runs.folder import RunFolder

from .conftest import TINY, Ebclab

AGAIN = ["pretrain", "flatclr", "--epochs", "1", "--name", "done", *TINY]


def _temperature(run: Path) -> float:
    temperature: float = RunFolder.at(run).read_config().method.temperature
    return temperature


def test_nothing_is_deleted_until_yes_is_said(ebclab: Ebclab, finished: Path) -> None:
    shown = ebclab("runs", "delete", "done")
    assert (shown.code, finished.is_dir()) == (2, True)
    assert f"finished run {finished}" in shown.out.replace("\n", "")
    assert "nothing was deleted; --yes deletes it" in shown.out
    assert ebclab("runs", "delete", "done", "--yes").code == 0
    assert list(finished.parent.iterdir()) == []


def test_a_finished_run_is_replaced_only_with_yes(ebclab: Ebclab, finished: Path) -> None:
    changed = [*AGAIN, "--set", "method.temperature=0.3"]
    before = _temperature(finished)
    assert before != 0.3
    refused = ebclab(*changed, "--overwrite")
    assert "--overwrite would delete a finished run; add --yes, or choose another --name" in refused.refusal
    assert ebclab(*changed, "--yes").code == 2  # without --overwrite nothing is replaced
    assert _temperature(finished) == before
    replaced = ebclab(*changed, "--overwrite", "--yes").ok
    assert f"deleted the finished run {finished}\n" in replaced.err
    assert (_temperature(finished), (finished / "result.json").is_file()) == (0.3, True)


def test_an_unfinished_run_of_other_settings_is_replaced_and_one_of_equal_settings_goes_on(ebclab, finished):
    (finished / "result.json").unlink()
    kept = finished / "kept-by-hand"
    kept.touch()
    assert ebclab(*AGAIN, "--epochs", "2", "--overwrite").code == 0
    assert kept.exists()
    (finished / "result.json").unlink()
    changed = [*AGAIN, "--set", "method.temperature=0.3"]
    refused = ebclab(*changed)
    assert "or replace it by --overwrite:" in refused.refusal
    replaced = ebclab(*changed, "--overwrite").ok
    assert f"deleted the unfinished run {finished}, which had other settings\n" in replaced.err
    assert (_temperature(finished), kept.exists()) == (0.3, False)


def test_overwrite_of_nothing_is_an_ordinary_start_and_excludes_resume(ebclab):
    outcome = ebclab(*AGAIN, "--overwrite").ok
    assert "deleted" not in outcome.err
    assert Path("runs/done/result.json").is_file()
    outcome = ebclab("pretrain", "flatclr", "--name", "done", "--overwrite", "--resume")
    assert "--overwrite: starts over, but --resume continues, got both; leave one out" in outcome.refusal


def test_a_name_in_a_store_is_freed_too(ebclab: Ebclab, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBCLAB_COPIES", str(finished.parents[1] / "copies"))
    store = f"file://{finished.parent}"
    changed = [*AGAIN, "--set", "method.temperature=0.3", "--runs", store]
    refused = ebclab(*changed, "--overwrite")
    assert f"{store}/done: --overwrite would delete a finished run; " in refused.refusal
    assert ebclab(*changed, "--overwrite", "--yes").ok
    assert _temperature(finished) == 0.3
    assert ebclab("runs", "delete", "done", "--runs", store, "--yes").code == 0
    assert [path for path in finished.rglob("*") if path.is_file()] == []
