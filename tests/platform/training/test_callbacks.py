"""Callbacks: when they run, what they see, and that a run with them has the bits of one without."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import saved_in, untimed

import ebclab
from ebclab.config import compose
from ebclab.errors import CallbackError, UserError
from ebclab.runs.record import RunRecord, open_run
from ebclab.training.callbacks import RunView, Scheduled, scheduled
from ebclab.training.display import Listener
from ebclab.training.process_group import Ranks
from ebclab.training.rank import RankObserver
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Batch, StepOutput

TINY = ["data.train_limit=72", "training.batch_size=32", "training.epochs=2", "encoder.width=4", "training.log_every=1"]
"""Two steps an epoch, four in all."""


class Drawing(Simclr):
    """SimCLR whose steps also draw from torch's own generator, as networks with dropout do."""

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        assert self.encoder.training
        assert all(parameter.requires_grad for parameter in self.parameters())
        output = super().forward(batch, generator)
        return output._replace(loss=output.loss * (1 + torch.rand(())))


class Disturbing:
    """Draws from every generator, and turns every switch that it can reach."""

    every_steps = 3

    def __init__(self) -> None:
        self.views: list[RunView] = []

    def measure(self, run: RunView) -> Mapping[str, Any]:
        self.views.append(run)
        assert not run.encoder.training
        assert not torch.is_grad_enabled()
        images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
        features = run.encoder(run.preprocessing(images))
        random.random(), np.random.rand()
        run.encoder.requires_grad_(False)
        next(run.encoder.children()).train()
        return {"rank": torch.linalg.matrix_rank(features), "share": np.float32(0.5)}


class Named:
    """A callback of another name, which is run at the end of epochs."""

    every_epochs = 2
    name = "at the end"

    def measure(self, run: RunView) -> Mapping[str, float] | None:
        return {"knn": run.scores["holdout_knn"], "epoch": run.epoch}


class Saying:
    """Says nothing at the end of every epoch."""

    every_epochs = 1

    def __init__(self) -> None:
        self.steps: list[int] = []

    def measure(self, run: RunView) -> None:
        self.steps.append(run.step)


def trained(path: Path, *callbacks: Any) -> RunRecord:
    torch.manual_seed(0)
    how: dict[str, Any] = {"runs": path.parent, "name": path.name, "display": Listener(), "method": Drawing}
    ebclab.pretrain(compose("simclr", overrides=TINY), callbacks=callbacks, **how)
    return open_run(path)


def test_a_run_with_callbacks_has_the_bits_of_one_without(tmp_path: Path) -> None:
    disturbing, saying = Disturbing(), Saying()
    plain, run = trained(tmp_path / "plain"), trained(tmp_path / "watched", disturbing, Named(), saying)
    paths = run.folder.path, plain.folder.path
    ours, theirs = (untimed(path, "train", "epoch") for path in paths)
    assert ours == theirs
    torch.testing.assert_close(saved_in(run.folder.path).model, saved_in(plain.folder.path).model, rtol=0, atol=0)
    assert run.callbacks["step"] == [3, 4]  # every third step, and the end
    assert run.callbacks["Disturbing/share"] == [0.5, 0.5]
    assert run.callbacks["at the end/knn"] == [None, run.scores["holdout_knn"][1]]
    assert run.callbacks["at the end/epoch"] == [None, 2]
    assert saying.steps == [2, 4]
    first, _ = disturbing.views
    assert (first.step, first.epoch, first.folder) == (3, 1, tmp_path / "watched")
    assert first.metrics["loss"] == run.metrics["loss"][2]
    assert first.scores == {"holdout_knn": run.scores["holdout_knn"][0]}
    with pytest.raises(TypeError):
        first.metrics["loss"] = 0.0  # type: ignore[index]


class Failing(Disturbing):
    """Fails at one step."""

    every_steps = 1
    name = "mine"

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def measure(self, run: RunView) -> Mapping[str, Any]:
        if run.step == self._step:
            raise KeyError("no such file")
        return super().measure(run)


def test_a_run_continues_once_the_callback_that_failed_is_mended(tmp_path: Path) -> None:
    with pytest.raises(
        CallbackError, match=r"callback mine failed at step 4: KeyError: 'no such file' \(test_call"
    ) as e:
        trained(tmp_path / "run", Failing(4))
    assert isinstance(e.value.__cause__, KeyError)
    assert e.value.exit_code == 2
    broken = open_run(tmp_path / "run")
    assert broken.events[-1]["event"] == "failed"
    assert broken.callbacks["step"] == [1, 2, 3]
    run = trained(tmp_path / "run", Failing(0))  # from the checkpoint of step 2 on
    assert run.callbacks["step"] == [1, 2, 3, 4]
    assert run.metrics["step"] == [1, 2, 3, 4]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert sum('"kind": "callback"' in line for line in lines) == 4


def returned(value: Any) -> Callable[[RunView], Any]:
    return lambda run: value


def changed(run: RunView) -> None:
    next(run.encoder.parameters()).add_(1)


def learned(run: RunView) -> None:
    run.encoder.train()
    run.encoder(torch.rand(4, 1, 8, 8))  # running means of batch norm


def moved(run: RunView) -> None:
    run.encoder.double()


class Doing:
    """Does what it is told."""

    every_steps = 1

    def __init__(self, measure: Callable[[RunView], Any]) -> None:
        self.measure = measure


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (
            returned([1]),
            "callback Doing returned no mapping at step 7, got list; return numbers by their names, or None",
        ),
        (returned({"a": "x"}), "callback Doing returned no number at step 7: a, got 'x'; return numbers"),
        (returned({"a": torch.ones(2)}), r"callback Doing returned no number at step 7: a, got tensor\(\[1., 1.\]\)"),
        (changed, "callback Doing changed what is trained at step 7, got another encoder.*copy.deepcopy"),
        (learned, "callback Doing changed what is trained at step 7, got another encoder"),
        (moved, "callback Doing changed what is trained at step 7, got another encoder"),
    ],
)
def test_what_a_callback_must_not_do(measure: Callable[[RunView], Any], said: str) -> None:
    from ebclab.encoders.build import new_encoder

    config = compose("simclr", overrides=TINY)
    method = Simclr(config.method, new_encoder(config.encoder, 1, 8))
    shown: Any = {"preprocessing": None, "device": torch.device("cpu"), "folder": Path(), "encoder": method.encoder}
    view = RunView(step=7, epoch=0, metrics={}, scores={}, **shown)
    (one,) = scheduled([Doing(measure)])
    with pytest.raises(CallbackError, match=said):
        one.run(view, method)
    assert one.callback.every_steps == 1  # type: ignore[attr-defined]
    assert Scheduled(Doing(returned({"a": 1, "b": None})), "x", 1, 0).name == "x"


class Wrong:
    every_steps = 0
    every_epochs = 2
    name = "train"


def test_mistakes_are_told_all_at_once_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        trained(tmp_path / "run", Wrong(), Saying(), Saying(), object())
    said = str(error.value).splitlines()
    assert said[0] == "callbacks[0] (train): has no method measure, got Wrong; define measure(self, run)"
    assert "callbacks[0] (train): not a name, got 'train'" in said[1]
    assert "callbacks[0] (train): needs every_steps or every_epochs, got both" in said[2]
    assert "callbacks[0] (train): every_steps must be a whole number from 1 on, got 0" in said[3]
    assert "callbacks[2] (Saying): two callbacks have this name" in said[4]
    assert "callbacks[3] (object): needs every_steps or every_epochs, got neither" in said[6]
    assert list(tmp_path.iterdir()) == []


class Counting(Ranks):
    """One of two ranks, which counts how often it waits for the other."""

    def together(self, work: Callable[[], Any]) -> Any:
        WAITS.append(self.rank)
        return work()


WAITS: list[int] = []


def test_every_rank_waits_where_the_first_one_runs_a_callback() -> None:
    ranks = Counting(rank=1, world_size=2)
    restarts: list[int] = []
    rate = type("Rate", (), {"restart": lambda self: restarts.append(1)})()
    training: Any = type("Training", (), {"ranks": ranks, "images_per_second": rate})()
    observer = RankObserver(training, None, scheduled([Disturbing(), Saying()]))
    for step in range(1, 8):
        observer.on_step(step)
    assert len(WAITS) == len(restarts) == 2  # steps 3 and 6
