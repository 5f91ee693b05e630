"""A run from Python: own images, own method, and everything a method may need around the loop."""

import json
import math
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pytest
import torch
from small_runs import Notes, records_of, saved_in, small_config, small_images, small_run
from torch import Tensor, nn

import ebclab
from ebclab.config import ExperimentConfig, compose
from ebclab.data.holdout import split_images
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.errors import ConfigError, InterruptedRunError, RunError, UserError
from ebclab.runs.stop_request import ASKED
from ebclab.storage.lease import NAME, FencingToken, held_by
from ebclab.storage.object_store import COPIES, RemoteFolder, Store, Stored
from ebclab.training import rank
from ebclab.training.display import Listener
from ebclab.training.recorder import Recorder
from ebclab.training.setup import RunSpec, load_images
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Batch, Draw, Method, Progress, StepOutput
from energy_contrast.settings import setting


@dataclass(frozen=True)
class ReplayConfig:
    """Settings of the toy method below."""

    share: float = setting(0.25, "Proposals as a share of the batch.", minimum=0.0, maximum=1.0)


class Bank:
    """A memory outside the module: the mean of each step's proposals."""

    def __init__(self) -> None:
        self.rows = torch.zeros(0)

    def state_dict(self) -> dict[str, Tensor]:
        return {"rows": self.rows}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.rows = state["rows"].clone()


class Replay(Method):
    """Three views, proposals, a start from training data, a draw from the generator, a memory."""

    Config = ReplayConfig
    num_views = 3

    def __init__(self, config: ReplayConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.head = nn.Linear(16, 1)
        self.memories = {"bank": Bank()}

    def num_proposals(self, batch_size: int) -> int:
        return int(batch_size * self.config.share)

    def memory_bytes(self, shape: tuple[int, int, int]) -> int:
        return 1_000_000 * shape[0] * shape[1]

    def start(self, draw: Draw) -> None:
        if self.pixel_range is None:
            raise ValueError("share: the pixel range is unknown")
        self.memories["bank"].rows = draw(5, torch.Generator().manual_seed(0)).mean(dim=(1, 2, 3))

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        assert batch.views.shape[0] == 3
        self.seen = batch.proposals.mean().reshape(1)
        noise = torch.randn(batch.views.shape[1], 1, generator=generator)
        scores = [self.head(self.encoder(view)) for view in batch.views]
        loss = sum((score - noise).square().mean() for score in scores)
        return StepOutput(loss, {"info_nce": loss.detach()})

    def after_step(self, progress: Progress) -> None:
        bank = self.memories["bank"]
        bank.rows = torch.cat([bank.rows, self.seen])


def _images(count: int = 80) -> ImageSet:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (count, 1, 12, 12), dtype=torch.uint8, generator=generator)
    mean, std = channel_statistics(images)
    return ImageSet("mine", images, torch.full((count,), -1), torch.arange(count), (), mean, std)


def _config(epochs: int = 2, *more: str) -> ExperimentConfig:
    overrides = [*more, "views.recipe=fashion-mnist", "training.batch_size=16", f"training.epochs={epochs}"]
    overrides.append("encoder.width=4")
    methods = {"replay": Replay}
    return compose("replay", overrides=[*overrides, "data.name=mine", "resources.threads=1"], methods=methods)


def _pretrain(runs: Path, config: ExperimentConfig, name: str) -> Path:
    return ebclab.pretrain(config, runs=runs, name=name, images=_images(), method=Replay, display=Listener()).path


def test_own_images_without_labels_and_an_own_method_make_a_run(tmp_path: Path) -> None:
    path = _pretrain(tmp_path, _config(), "mine")
    found = saved_in(path)
    steps = 2 * (found.facts["train_images"] // 16)
    assert found.step == steps
    assert found.memories["bank"]["rows"].shape == (5 + steps,)  # five from start, one from each step
    assert found.facts["scores"] == {}  # nothing is labelled, so nothing is scored


def test_a_run_in_this_process_builds_its_method_once(tmp_path: Path) -> None:
    built: list[Simclr] = []

    class Counted(Simclr):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            built.append(self)

    config = compose("simclr", overrides=["data.train_limit=64", "training.batch_size=32", "training.epochs=1"])
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 5)
    ebclab.pretrain(config, runs=tmp_path, name="run", method=Counted, display=Listener())
    assert torch.get_num_threads() == threads + 5  # a notebook computes on as before
    torch.set_num_threads(threads)
    assert len(built) == 1


def test_what_a_method_keeps_beside_its_network_is_said_before_the_start(tmp_path: Path) -> None:
    notes = Notes()
    done = ebclab.pretrain(_config(1), runs=tmp_path, name="x", images=_images(), method=Replay, display=notes)
    (started,) = records_of(done.path, "event", "started")  # from there, who follows workers knows it
    assert started["notes"] == notes.lines[1:3]
    assert started["notes"][0].startswith("own-mine: 80 images without labels, ")
    assert started["notes"][1] == "the method keeps 12 MB of images on each worker"


def test_energies_that_depend_on_neighbours_are_a_warning_once(tmp_path: Path) -> None:
    notes = Notes()
    settings = ["data.train_limit=48", "training.batch_size=16", "encoder.width=2", "method.bank_size=16"]

    def warnings_of(name: str, *more: str, extend: int | None = None) -> list[str]:
        config = compose("vem-image", overrides=[*settings, "method.num_steps=1", "resources.threads=1", *more])
        path = ebclab.pretrain(config, runs=tmp_path, name=name, display=notes, extend=extend).path
        return [record["text"] for record in records_of(path, "event", "warning")]

    assert warnings_of("alone", "training.epochs=1", "encoder.batch_norm=none") == []
    assert not any("neighbours" in line for line in notes.lines)
    (text,) = warnings_of("together", "training.epochs=1")
    assert text.startswith("vem-image: an image's energy depends on its neighbours in the batch")
    assert "encoder.batch_norm=none" in text
    assert notes.lines.count(f"warning: {text}") == 1
    assert warnings_of("together", "training.epochs=1", extend=2) == [text]  # continued: no second time
    assert notes.lines.count(f"warning: {text}") == 1


def test_a_methods_refusal_is_a_sentence_that_names_its_section(tmp_path, monkeypatch):
    for name in ("num_proposals", "memory_bytes", "start"):
        with monkeypatch.context() as patch:
            patch.setattr(Replay, name, _refuse)
            with pytest.raises(ConfigError) as caught:
                _pretrain(tmp_path, _config(), name)
        assert caught.value.problems == ["method.share: too large, got 9; use 1"]


def _refuse(*_: object) -> None:
    raise ValueError("share: too large, got 9; use 1")


def test_a_run_stopped_within_an_epoch_ends_in_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("optimizer.schedule=step", "optimizer.weight_decay_end=0.5", "training.average_weights=0.7")
    whole = _pretrain(tmp_path, _config(2, *more), "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "should_stop", lambda self: self.training.step == 6)
        with pytest.raises(InterruptedRunError, match=r"stopped at step 6 of 8; everything is saved"):
            _pretrain(tmp_path, _config(2, *more), "parts")
    parts = _pretrain(tmp_path, _config(2, *more), "parts")
    one, two = saved_in(whole), saved_in(parts)
    for part in ("model", "memories"):
        torch.testing.assert_close(getattr(one, part), getattr(two, part), rtol=0, atol=0)
    for name in ("generator", "optimizer", "weights"):
        torch.testing.assert_close(one.state[name], two.state[name], rtol=0, atol=0)


def test_a_request_to_stop_is_answered_once(tmp_path: Path) -> None:
    class Asking(Notes):
        def on_log(self, *_: Any) -> None:
            signal.raise_signal(signal.SIGTERM)

    asking = Asking()
    with pytest.raises(InterruptedRunError, match="everything is saved"):
        small_run(tmp_path, "run", "training.log_every=1", display=asking)
    assert asking.lines.count(ASKED) == 1


def test_two_launches_never_write_into_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def launch_again(self: Recorder, step: int, epochs_done: int) -> None:
        with pytest.raises(RunError, match="another process is training in this folder"):
            _pretrain(tmp_path, _config(epochs=1), "mine")
        seen.append(step)

    monkeypatch.setattr(Recorder, "on_epoch", launch_again)
    _pretrain(tmp_path, _config(epochs=1), "mine")
    assert seen


@pytest.mark.parametrize("in_a_store", [False, True])
@pytest.mark.parametrize("file", [".env", "tensorboard/events.out"])
def test_a_launch_that_workers_refuse_removes_nothing_that_was_there(tmp_path, monkeypatch, file, in_a_store):
    """Hidden files count, and those of TensorBoard, which no process reads back from a store."""
    from ebclab.training.ray_train import launch

    def refuse(spec: RunSpec, display: object) -> Never:
        raise UserError("training.batch_size: got 7 workers")

    monkeypatch.setattr(launch, "launch", refuse)
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    mine = tmp_path / "runs" / "mine" / file
    if not in_a_store and file != ".env":
        mine = mine.with_name(".hidden")  # on a disk others are refused as a run's
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    config = compose("simclr", overrides=["data.name=digits", "resources.workers=2"])
    runs = f"file://{tmp_path}/runs" if in_a_store else tmp_path / "runs"
    with pytest.raises(UserError, match="got 7 workers"):
        ebclab.pretrain(config, runs=runs, name="mine", display=Listener())
    assert mine.read_text() == "mine"
    with pytest.raises(UserError, match="got 7 workers"):
        ebclab.pretrain(config, runs=runs, name="new", display=Listener())
    assert not [path for path in (tmp_path / "runs" / "new").rglob("*") if path.is_file()]


def test_a_run_in_a_store_is_pulled_to_look_and_when_it_is_claimed(tmp_path, monkeypatch):
    pulls: list[bool] = []

    def names(store: Store) -> dict[str, Stored]:
        pulls.append(bool(held_by(RemoteFolder(f"file://{tmp_path}/store", "run"))))
        return usual(store)

    usual = Store.names
    monkeypatch.setattr(Store, "names", names)
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    tiny = ["data.train_limit=64", "training.batch_size=32", "resources.threads=1"]
    config = compose("simclr", overrides=[*tiny, "training.epochs=1"])
    for was_finished in (False, True):
        pulls.clear()
        found = ebclab.pretrain(config, runs=f"file://{tmp_path}/store", name="run", display=Listener())
        assert found.was_finished == was_finished
        assert pulls == ([False] if was_finished else [False, True])  # whether this process held the lease


def test_workers_get_the_token_under_which_the_launch_holds_the_run(tmp_path, monkeypatch):
    class StoppedError(Exception):
        pass

    def launch(spec: RunSpec, display: object) -> Never:
        sign = json.loads(Store(spec.run.remote).read(NAME))
        assert spec.token == FencingToken(sign["id"], 1)
        raise StoppedError

    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setitem(sys.modules, "ebclab.training.ray_train.launch", SimpleNamespace(launch=launch))
    config = compose("simclr", overrides=["data.train_limit=64", "training.batch_size=32", "resources.workers=2"])
    with pytest.raises(StoppedError):
        ebclab.pretrain(config, runs=f"file://{tmp_path}/store", name="run", display=Listener())


@pytest.mark.parametrize(
    ("given", "warns"),
    [
        (["data.holdout_rate=0.0001"], True),
        (["data.holdout_rate=0.0001", "evaluation.knn_every=0"], False),  # nobody asked for scores
        (["data.holdout_rate=0"], False),
        (["data.holdout_rate=0.2"], False),
    ],
)
def test_a_share_that_holds_out_none_of_few_images_is_a_warning(tmp_path: Path, given: list[str], warns: bool) -> None:
    notes = Notes()
    tiny = ["data.train_limit=64", "training.batch_size=32", "training.epochs=1", "encoder.width=4"]
    config = compose("simclr", overrides=[*tiny, "resources.threads=1", *given])
    done = ebclab.pretrain(config, runs=tmp_path, name="run", display=notes)
    said = (
        "data.holdout_rate: none of the 64 images is held out, got 0.0001; there will be no scores and no best "
        "checkpoint; hold a larger share out, or none (0)"
    )
    assert [note for note in notes.lines if "is held out" in note] == [f"warning: {said}"] * warns
    assert [record["text"] for record in records_of(done.path, "event") if "text" in record] == [said] * warns
    assert (done.summary.best is None) == (given != ["data.holdout_rate=0.2"])


@pytest.mark.parametrize(
    ("names", "shared"),
    [(("cat", "dog"), None), (("cat", "cat"), "cat"), (("cat", "dog", " cat", "e\u0301", "\u00e9"), "cat, \u00e9")],
)
def test_classes_of_one_name_are_a_warning(tmp_path: Path, names: tuple[str, ...], shared: str | None) -> None:
    notes, given = Notes(), replace(small_images(), class_names=names)
    done = ebclab.pretrain(small_config(), runs=tmp_path, name="run", images=given, display=notes)
    said = (
        f"own:mine: several classes have one name, got {shared}; they are told apart by their labels, and an answer "
        "with the other one counts as wrong: give them one label if they are one class"
    )
    expected = [] if shared is None else [said]
    assert [note for note in notes.lines if "one name" in note] == [f"warning: {line}" for line in expected]
    assert [record["text"] for record in records_of(done.path, "event") if "one name" in str(record)] == expected


@pytest.mark.parametrize("copies", ["of another class", "of unknown class", "none"])
def test_held_out_images_that_are_trained_on_too_are_a_warning(tmp_path: Path, copies: str) -> None:
    """PlantSeg#11, helmet-detection#29: photographs that are there several times; CVA-Net#27: in two classes."""
    once = small_images()
    labels = {"of another class": 1 - once.labels, "of unknown class": 0 * once.labels - 1}.get(copies, once.labels[:0])
    rows = torch.arange(40 + len(labels))
    given = replace(once, images=once.images[rows % 40], labels=torch.cat([once.labels, labels]), keys=rows)
    split = split_images(given, train_limit=0, holdout_rate=0.3)
    trained_on = {bytes(image.numpy()) for image in split.train.images}
    again = sum(bytes(image.numpy()) in trained_on for image in split.holdout.images)
    notes = Notes()
    done = ebclab.pretrain(
        small_config("data.holdout_rate=0.3"), runs=tmp_path, name="run", images=given, display=notes
    )
    other = f", {again} of them with another label" if copies == "of another class" else ""
    said = (
        f"own:mine: {again} of {len(split.holdout)} held-out images are also training images{other}; their scores are "
        "of what was learnt, so leave copies out"
    )
    assert [note for note in notes.lines if "also training" in note] == [f"warning: {said}"] * (copies != "none")
    assert [record["text"] for record in records_of(done.path, "event") if "text" in record] == [said] * (again > 0)


def test_raw_pixels_and_the_untrained_encoder_are_scored_as_the_run_is(tmp_path, monkeypatch):
    settings = [
        "data.name=digits",
        "data.train_limit=200",
        "encoder.name=small",
        "encoder.width=4",
        "encoder.batch_norm=none",
    ]
    settings += ["training.epochs=1", "training.batch_size=32", "optimizer.learning_rate=1e-12", "resources.threads=1"]
    config = compose("simclr", overrides=settings)
    run = ebclab.pretrain(config, runs=tmp_path, name="a", display=Listener(), references=True)
    # without batch norm, and with hardly a step, the run's encoder is the untrained one
    assert run.summary.references["untrained encoder"] == run.summary.scores["holdout_knn"]
    split = load_images(config.data)
    bank, held = (part.images.flatten(1).double() for part in (split.train, split.holdout))
    cosines = (held / held.norm(dim=1, keepdim=True)) @ (bank / bank.norm(dim=1, keepdim=True)).T
    right = 0
    for row, label in zip(cosines, split.holdout.labels, strict=True):
        near = sorted(range(len(row)), key=lambda n: -row[n])[: config.evaluation.knn_neighbours]
        votes = torch.zeros(10)
        for n in near:
            votes[split.train.labels[n]] += math.exp(row[n] / config.evaluation.knn_temperature)
        right += int(votes.argmax() == label)
    assert run.summary.references["raw pixels"] == right / len(held)
    monkeypatch.setattr(rank, "_MOST_PIXELS", 4 * 200 * 64 - 1)
    notes = Notes()
    large = ebclab.pretrain(config, runs=tmp_path, name="c", display=notes, references=True)
    assert list(large.summary.references) == ["untrained encoder"]
    assert "held-out kNN of the untrained encoder, to compare with (raw pixels would take 51 kB" in " ".join(
        notes.lines
    )
    plain = ebclab.pretrain(config, runs=tmp_path, name="b", display=Listener())
    assert (plain.summary.references, plain.summary.scores) == ({}, run.summary.scores)


def test_a_run_without_labels_has_no_references(tmp_path):
    images = torch.randint(0, 256, (64, 1, 8, 8), dtype=torch.uint8)
    config = compose(
        "simclr",
        overrides=[
            "encoder.name=small",
            "encoder.width=4",
            "training.epochs=1",
            "training.batch_size=16",
            "evaluation.objective=effective_rank",
            "resources.threads=1",
        ],
    )
    assert (
        ebclab.pretrain(config, runs=tmp_path, images=images, display=Listener(), references=True).summary.references
        == {}
    )
