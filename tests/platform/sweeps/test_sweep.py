"""A sweep whose trials start from given weights or have given images: it knows them by their digest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_trials import Remembering
from safetensors.torch import save_file

from ebclab.cli.sweep import print_forecast
from ebclab.cluster import join
from ebclab.config import compose
from ebclab.config.encoder import InitConfig
from ebclab.encoders import digest_of, new_encoder
from ebclab.errors import UserError
from ebclab.runs.initial_weights import keep_weights
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan, make_plan, require_same, write_plan
from ebclab.sweeps.ray_tune import phase
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.space.space import parse_space
from ebclab.sweeps.sweep import sweep, with_initial_weights
from energy_contrast.catalog import METHODS

Plans = Callable[..., SweepPlan]


@pytest.fixture
def source(tmp_path: Path, sweep_plan: Plans) -> Path:
    """An exported encoder."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    torch.manual_seed(3)
    save_file(dict(new_encoder(sweep_plan().config.encoder, 1, 8).state_dict()), folder / "model.safetensors")
    (folder / "encoder.json").write_text("{}")
    return folder


def test_own_images_are_not_taken_for_the_dataset_that_workers_of_a_trial_would_read(
    tmp_path: Path, sweep_plan: Plans
) -> None:
    images = torch.zeros(40, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(UserError, match=r"images: the workers of a trial read their own, got resources\.workers=2"):
        sweep(sweep_plan("resources.workers=2"), sweeps=tmp_path, images=images)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["in the log", "of other sweeps"])
def test_a_sweep_is_not_continued_with_other_images(tmp_path: Path, sweep_plan: Plans, where: str) -> None:
    plan, folder = sweep_plan(), SweepFolder(tmp_path / "sweep")
    digest = "" if where == "in the log" else "0123"
    folder.path.mkdir()
    write_plan(folder.plan, plan)
    if where == "in the log":
        folder.read_log().append("started", images="0123")
        folder.read_log().append("resumed")  # by a version that wrote none
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    with pytest.raises(UserError, match=r"sweep: the images of digits are not those .*, expected 0123; restore them"):
        sweep(plan, sweeps=tmp_path, name="sweep", digest=digest)
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before


def test_a_sweep_knows_its_start_by_the_digest_and_resumes_with_a_copy(
    tmp_path: Path, source: Path, sweep_plan: Plans
) -> None:
    folder, asked = SweepFolder(tmp_path / "sweep"), sweep_plan(f"init.weights={source}")
    plan, weights = with_initial_weights(asked, folder, METHODS)
    assert weights is not None
    assert plan.config.init == InitConfig(str(source), digest_of(weights.tensors))
    folder.path.mkdir()
    write_plan(folder.plan, plan)
    again, _ = with_initial_weights(asked, folder, METHODS)
    require_same(plan, again, folder.path)
    keep_weights(folder.initial_weights, weights)
    shutil.rmtree(source)
    for command in (asked, plan):  # repeated, and with --resume
        found, kept = with_initial_weights(command, folder, METHODS)
        assert found == plan
        assert kept is not None
        assert digest_of(kept.tensors) == plan.config.init.digest
    folder.initial_weights.unlink()
    with pytest.raises(UserError, match="neither an exported encoder nor a run"):
        with_initial_weights(asked, folder, METHODS)


def test_a_new_sweep_says_once_that_chains_go_through_batch_norm_and_show_says_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["encoder.width=4", "data.train_limit=128", "training.batch_size=32", "method.buffer_size=64"]
    space = parse_space({"parameters": {"method.temperature": {"uniform": [0.05, 0.5]}}}, "test")
    plan = make_plan(compose("ebclr", overrides=small), SweepRequest(space=space, trials=2, top=1))
    said, display = "an image's energy depends on its neighbours", Remembering()

    def killed(folder: SweepFolder, *_: Any) -> None:
        folder.path.mkdir(exist_ok=True)
        write_plan(folder.plan, plan)
        folder.log.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(phase, "trained_sweep", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            sweep(plan, sweeps=tmp_path, name="hunt", display=display)
    (note,) = display.notes
    assert note.startswith(f"warning: ebclr: {said}")
    monkeypatch.setattr(join, "cluster_session", lambda *given: nullcontext())
    monkeypatch.setattr(join, "cluster_size", lambda: (2.0, 0.0))
    monkeypatch.setattr(phase, "cluster_size", lambda: (2.0, 0.0))
    monkeypatch.setattr(phase, "nodes", lambda: [{"CPU": 2.0}])
    monkeypatch.setattr(phase, "nodes_to_come", lambda most: [])
    print_forecast(plan, Limits(), None)
    assert capsys.readouterr().out.count(said) == 1
