"""A node that runs something else is named with what and both versions, and does not work."""

import platform
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import ebclab
import energy_contrast
from ebclab.cluster import versions
from ebclab.cluster.placement import Placement
from ebclab.cluster.versions import Origin, mismatch, versions_here
from ebclab.errors import VersionError
from ebclab.runs.folder import RunFolder
from ebclab.training.process_group import Ranks
from ebclab.training.ray_train import worker
from ebclab.training.setup import RunSpec
from energy_contrast.catalog import METHODS

OURS = {"Python": "3.11.7", "ray": "2.60.0", "torch": "2.14.1", "ebclab": "0.1.0 (aaaaaaaa)"}


def test_the_sentence_names_the_node_and_of_all_that_differs_both_versions() -> None:
    assert mismatch("10.0.0.7", dict(OURS), OURS) is None
    theirs = {"Python": "3.11.7", "ray": "2.60.0", "torch": "2.13.0"}
    assert mismatch("10.0.0.7", theirs, OURS) == (
        "node 10.0.0.7: torch 2.13.0, got 2.14.1 where the command runs; ebclab none, got 0.1.0 (aaaaaaaa) where the "
        "command runs; install the same wheel and constraints.txt on every node"
    )
    here = versions_here()
    assert (here["Python"], here["torch"]) == (platform.python_version(), torch.__version__.split("+")[0])
    assert list(here) == list(OURS)


def test_one_changed_line_is_another_ebclab_and_a_copy_is_the_same(tmp_path, in_new_process):
    def ebclab_here() -> str:
        from ebclab.cluster.versions import versions_here

        return versions_here()["ebclab"]

    for module in (ebclab, energy_contrast):
        skip = shutil.ignore_patterns("__pycache__", "cluster_files", "search_spaces")
        shutil.copytree(Path(str(module.__file__)).parent, tmp_path / module.__name__, ignore=skip)
    assert in_new_process(ebclab_here, PYTHONPATH=str(tmp_path)) == versions_here()["ebclab"]
    with (tmp_path / "energy_contrast" / "contrastive" / "simclr.py").open("a") as file:
        file.write("# another line\n")
    assert in_new_process(ebclab_here, PYTHONPATH=str(tmp_path)) != versions_here()["ebclab"]


def test_a_machine_with_other_versions_refuses_to_work_and_the_origins_own_does_not_ask(monkeypatch):
    origin = Origin.here()
    changed = Origin(origin.host, {**origin.versions, "torch": "1.0"})
    changed.require_same_here()
    monkeypatch.setattr(versions.socket, "gethostname", lambda: "gpu-7")
    origin.require_same_here()
    with pytest.raises(VersionError, match=r"^node gpu-7: torch \S+, got 1\.0 where the command runs; install"):
        changed.require_same_here()


def test_a_worker_with_other_versions_returns_the_sentence_and_its_kind_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "Ranks", SimpleNamespace(of_process_group=Ranks))
    config = ebclab.compose("simclr")
    spec = RunSpec(RunFolder(tmp_path), config, METHODS["simclr"], None, ("test",))
    elsewhere = Origin("the-head", {**versions_here(), "ebclab": "0.0.9 (bbbbbbbb)"})
    told = worker.train_on_worker(spec, Placement((1,), 1.0, 0), elsewhere)
    assert told.kind == "VersionError"
    assert "got 0.0.9 (bbbbbbbb) where the command runs" in told.text
    assert list(tmp_path.iterdir()) == []
