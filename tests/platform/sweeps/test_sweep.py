"""A sweep knows given weights and images by their digest, and forecasts by the work of the device, not the sending."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made_up_trials import Remembering
from safetensors.torch import save_file

from ebclab.cli.sweep import print_forecast
from ebclab.cluster import join
from ebclab.config import compose
from ebclab.config.encoder import InitConfig
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import Split
from ebclab.encoders.build import digest_of, new_encoder
from ebclab.errors import InterruptedRunError, UserError
from ebclab.runs.initial_weights import keep_weights
from ebclab.sweeps import preflight
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan, make_plan, require_same, write_plan
from ebclab.sweeps.preflight import SweepLaunch
from ebclab.sweeps.ray_tune import phase
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.space.space import parse_space
from ebclab.sweeps.sweep import sweep, with_initial_weights
from ebclab.training.captured import AS_THEY_ARE
from ebclab.training.setup import load_images, prepare
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


def test_own_images_are_not_taken_for_the_dataset_that_workers_of_a_trial_would_read(tmp_path, sweep_plan):
    images = torch.zeros(40, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(UserError, match=r"images: the workers of a trial read their own, got resources\.workers=2"):
        sweep(sweep_plan("resources.workers=2"), sweeps=tmp_path, images=images)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("in the log", "are not those that trials were trained on, got .*, expected 0123; restore them"),
        ("as checked", "have changed since they were checked, got .*, expected 0123; repeat the command"),
    ],
)
def test_a_sweep_is_not_continued_with_other_images(tmp_path: Path, sweep_plan: Plans, where: str, said: str) -> None:
    plan, folder = sweep_plan(), SweepFolder(tmp_path / "sweep")
    digest = "" if where == "in the log" else "0123"
    folder.path.mkdir()
    write_plan(folder.plan, plan)
    if where == "in the log":
        folder.read_log().append("started", images="0123")
        folder.read_log().append("resumed")  # by a version that wrote none
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    with pytest.raises(UserError, match=f"sweep: the images of digits {said}"):
        sweep(plan, sweeps=tmp_path, name="sweep", checked=digest)
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before


def test_a_plan_that_was_checked_with_these_images_is_not_checked_again(tmp_path, sweep_plan, monkeypatch):
    plan, loaded = sweep_plan(), []

    def load(data: DataConfig) -> Split:
        loaded.append(load_images(data))
        return loaded[-1]

    def refuse(*_: Any) -> None:
        raise UserError("checked")

    def killed(launch: SweepLaunch) -> None:
        raise SystemExit(launch.split)

    monkeypatch.setattr(preflight, "require_runnable", refuse)
    monkeypatch.setattr(phase, "trained_sweep", killed)
    with pytest.raises(UserError, match="checked"):
        sweep(plan, sweeps=tmp_path, load=load)
    with pytest.raises(SystemExit) as reached:
        sweep(plan, sweeps=tmp_path, load=load, checked=loaded[0].content)
    assert reached.value.args == (loaded[1],)  # trained on what was loaded


def test_a_sweep_knows_its_start_by_the_digest_and_resumes_with_a_copy(tmp_path, source, sweep_plan):
    folder, asked = SweepFolder(tmp_path / "sweep"), sweep_plan(f"init.weights={source}")
    plan, weights = with_initial_weights(asked, folder, folder.earlier_plan())
    assert plan.config.init == InitConfig(str(source), digest_of(weights.tensors))
    folder.path.mkdir()
    write_plan(folder.plan, plan)
    again, _ = with_initial_weights(asked, folder, folder.earlier_plan())
    require_same(plan, again, folder.path)
    keep_weights(folder.initial_weights, weights)
    shutil.rmtree(source)
    for command in (asked, plan):  # repeated, and with --resume
        found, kept = with_initial_weights(command, folder, folder.earlier_plan())
        assert found == plan
        assert digest_of(kept.tensors) == plan.config.init.digest
    folder.initial_weights.unlink()
    with pytest.raises(UserError, match="neither an exported encoder nor a run"):
        with_initial_weights(asked, folder, folder.earlier_plan())


def test_a_new_sweep_says_once_that_chains_go_through_batch_norm_and_show_says_it_too(tmp_path, monkeypatch, capsys):
    small = ["encoder.width=4", "data.train_limit=128", "training.batch_size=32", "method.buffer_size=64"]
    space = parse_space({"parameters": {"method.temperature": {"uniform": [0.05, 0.5]}}}, "test")
    plan = make_plan(compose("ebclr", overrides=small), SweepRequest(space=space, trials=2, top=1))
    said, display = "an image's energy depends on its neighbours", Remembering()

    def killed(launch: SweepLaunch) -> None:
        launch.folder.path.mkdir(exist_ok=True)
        write_plan(launch.folder.plan, plan)
        launch.folder.log.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(phase, "trained_sweep", killed)
    for _ in range(2):
        with pytest.raises(InterruptedRunError, match=r"what is done is saved in \S+/hunt; the same command resumes"):
            sweep(plan, sweeps=tmp_path, name="hunt", display=display)
    (note,) = display.notes
    assert note.startswith(f"warning: ebclr: {said}")
    _two_cores(monkeypatch)
    print_forecast(plan, Limits(), None)
    assert capsys.readouterr().out.count(said) == 1


def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a forecast find a cluster of two cores."""
    monkeypatch.setattr(join, "cluster_session", lambda *given: nullcontext())
    monkeypatch.setattr(join, "cluster_size", lambda: (2.0, 0.0))
    monkeypatch.setattr(phase, "cluster_size", lambda: (2.0, 0.0))
    monkeypatch.setattr(phase, "nodes", lambda: [{"CPU": 2.0}])
    monkeypatch.setattr(phase, "nodes_to_come", lambda most: [])


@pytest.mark.parametrize(
    ("scheduler", "rule", "is_less"),
    [
        ("asha", "plateau_epochs=0", True),
        ("median", "plateau_epochs=0", True),
        ("pbt", "plateau_epochs=0", False),
        ("none", "plateau_epochs=0", False),
        ("none", "plateau_epochs=3", True),
    ],
)
def test_a_forecast_speaks_of_early_stopping_if_there_is_any(scheduler, rule, is_less, monkeypatch, capsys):
    _two_cores(monkeypatch)
    monkeypatch.setattr(preflight, "epoch_seconds", lambda *_, **__: 1.0)
    space = parse_space({"parameters": {"optimizer.learning_rate": {"uniform": [0.05, 0.5]}}}, "test")
    small = ["data.train_limit=128", "training.batch_size=32", "encoder.width=4"]
    asked = SweepRequest(space=space, trials=4, scheduler=scheduler, rules=(rule,), epochs=5)
    print_forecast(make_plan(compose("simclr", overrides=small), asked), Limits(), None)
    assert ("less with early stopping" in " ".join(capsys.readouterr().out.split())) == is_less


class Device:
    """A clock, and work that the device has been sent: a step is sent in 10 ms and done in 700."""

    def __init__(self, slow: int) -> None:
        self.now, self.sent, self.slow = 0.0, 0.0, slow

    def step(self, training: object) -> dict[str, Device]:
        self.now += 0.01
        self.sent += 60 if self.slow > 0 else 0.7
        self.slow -= 1
        return {"loss": self}

    def __float__(self) -> float:
        self.now, self.sent = self.now + self.sent, 0.0
        return 0.0


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_forecast_waits_for_the_device_and_leaves_out_the_recording_of_a_step(sweep_plan, monkeypatch, is_captured):
    config = sweep_plan().config
    split = load_images(config.data)
    device = Device(slow=AS_THEY_ARE + 1 if is_captured else 1)

    def prepared(*given: Any) -> Any:
        made = prepare(*given)
        made.training.captured = SimpleNamespace() if is_captured else None
        return made

    monkeypatch.setattr(preflight, "prepare", prepared)
    monkeypatch.setattr(preflight, "train_step", device.step)
    monkeypatch.setattr(preflight, "time", SimpleNamespace(perf_counter=lambda: device.now))
    found = preflight.epoch_seconds(config, split, METHODS, threads=1)
    scored = (len(split.train) + len(split.holdout)) / config.training.batch_size / 6
    assert found == pytest.approx(0.71 * (len(split.train) // config.training.batch_size + scored))
    assert device.now % 60 < 5.0  # three seconds of steps, beside the first ones


def test_a_cluster_that_is_not_there_is_refused_before_images_are_read(
    sweep_plan: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(data: DataConfig) -> Split:
        raise AssertionError("images were read")

    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    with pytest.raises(UserError, match=r"^resources.address: not an address of a Ray cluster, got nowhere"):
        sweep(sweep_plan(), sweeps=tmp_path, load=load)
    assert [*tmp_path.iterdir()] == []
