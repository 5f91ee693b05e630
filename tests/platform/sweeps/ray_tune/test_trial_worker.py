"""What crosses the border to a trial's process: images without a copy, and scores that nobody loses or hears twice."""

import errno
import json
import logging
import math
import pickle
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.train._internal.storage import StorageContext
from ray.tune.trainable.function_trainable import wrap_function

from ebclab.cluster.versions import Origin
from ebclab.config.encoder import InitConfig
from ebclab.data.holdout import Split
from ebclab.data.image_set import ImageSet
from ebclab.encoders.build import digest_of, new_encoder
from ebclab.errors import RunError, UserError
from ebclab.evaluation.answers import Answers, table_of
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.initial_weights import InitialWeights, keep_weights
from ebclab.storage.object_store import COPIES, Store, Stored
from ebclab.storage.reading import typed
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.ray_tune import trial_worker as worker
from ebclab.sweeps.ray_tune.trial_worker import TrialSetup, TurnReport, run_turn
from ebclab.sweeps.scheduler import Turn
from ebclab.training.loggers import Loggers
from ebclab.training.setup import load_images
from energy_contrast.catalog import METHODS


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Tune is told."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(worker, "tune", SimpleNamespace(report=told.append))
    return told


@pytest.fixture
def split() -> Split:
    def part(rows: range) -> ImageSet:
        index = torch.tensor(list(rows))
        images = index.to(torch.uint8)[:, None, None, None].expand(-1, 3, 4, 4)
        return ImageSet("mine", images, index % 2, index * 7, ("a", "b"), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))

    return Split(part(range(10)), part(range(10, 13)), "digest", "content")


@pytest.mark.parametrize("held_out", [3, 0])
def test_shared_images_come_back_equal_after_a_journey_as_bytes(split: Split, held_out: int) -> None:
    split = replace(split, holdout=split.holdout.rows(torch.arange(held_out)))
    back: Split = pickle.loads(pickle.dumps(split))
    assert (back.digest, back.content) == ("digest", "content")
    for ours, theirs in ((back.train, split.train), (back.holdout, split.holdout)):
        assert (ours.name, ours.class_names, ours.mean, ours.std) == ("mine", ("a", "b"), theirs.mean, theirs.std)
        for name in ("images", "labels", "keys"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))
            assert getattr(ours, name).dtype == getattr(theirs, name).dtype


def test_all_readers_see_the_same_memory_which_may_be_read_only(split: Split) -> None:
    """As Ray's object store does: it takes the arrays aside, and gives them to each reader, not to be written to."""
    aside: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(split, protocol=5, buffer_callback=aside.append)
    kept = [each.raw().toreadonly() for each in aside]
    with warnings.catch_warnings(action="error"):
        one, two = (pickle.loads(sent, buffers=kept) for _ in range(2))
    assert split.train.labels.data_ptr() == one.train.labels.data_ptr()  # contiguous: not copied
    for name in ("images", "labels", "keys"):
        assert getattr(one.train, name).data_ptr() == getattr(two.train, name).data_ptr()


def test_an_epochs_scores_are_told_once_and_training_metrics_never(tmp_path, reports):
    report = TurnReport(RunFolder(tmp_path), "holdout_knn")
    report.on_log(5, 0, {"loss": 1.0})
    for _ in range(2):
        report.on_epoch(10, 1, {"loss": 1.0, "holdout_knn": 0.5})
    report.on_epoch(20, 2, {"holdout_knn": 0.6})
    assert reports == [
        {"epoch": 1, "objective": 0.5, "metrics": {"loss": 1.0, "holdout_knn": 0.5}},
        {"epoch": 2, "objective": 0.6, "metrics": {"holdout_knn": 0.6}},
    ]


def test_a_turn_begins_with_what_earlier_turns_measured_and_goes_on_from_there(tmp_path, reports):
    run = RunFolder(tmp_path)
    run.metrics.append("event", 0, event="started")
    for epoch, rank in ((1, math.inf), (2, 3.0), (3, math.nan)):
        knn = epoch / 10 if epoch < 3 else math.nan
        run.metrics.append("train", 10 * epoch, epoch=epoch - 1, seconds=1.0, holdout_knn=0.99)
        run.metrics.append("epoch", 10 * epoch, epoch=epoch, seconds=2.0 * epoch, holdout_knn=knn, effective_rank=rank)
    report = TurnReport(run, "holdout_knn")
    report.start(30, 40, 4)
    report.on_epoch(30, 3, {"holdout_knn": 0.2})
    report.on_epoch(40, 4, {"holdout_knn": 0.3})
    told = [(told["epoch"], told["objective"]) for told in reports]
    assert [*told[:2], told[3]] == [(1, 0.1), (2, 0.2), (4, 0.3)]
    assert math.isnan(told[2][1])
    assert reports[0]["metrics"]["effective_rank"] == math.inf
    assert reports[1]["metrics"] == {"seconds": 4.0, "holdout_knn": 0.2, "effective_rank": 3.0}
    reports.clear()
    TurnReport(run, "holdout_knn", measured=2).replay()  # a turn each epoch would else report ever more
    assert [told["epoch"] for told in reports] == [2, 3]


@pytest.fixture
def setup(sweep_plan: Callable[..., SweepPlan], tmp_path: Path) -> TrialSetup:
    config = sweep_plan("data.train_limit=64", "training.batch_size=32").config
    split = load_images(config.data)
    common = {"threads": 1, "gpus": 0.0, "command": ("test",), "origin": Origin.here()}
    return TrialSetup(SweepFolder(tmp_path), config, METHODS, split, **common)


def turn(epochs: int, *, confirms: bool = False, **settings: Any) -> dict[str, Any]:
    return {"turn": asdict(Turn("0000", "0000", settings, 0, epochs, confirms))}


@pytest.mark.parametrize(("confirms", "confirm_rate"), [(True, 0.0), (True, 0.25), (False, 0.25)])
def test_a_turn_is_scored_on_its_images_and_tells_answers_if_it_confirms(setup, reports, confirms, confirm_rate):
    config = replace(setup.config, data=replace(setup.config.data, confirm_rate=confirm_rate))
    split = load_images(config.data)
    scored = split.confirm if confirms and split.confirm is not None else split.holdout
    for _ in range(2):  # also a second time
        reports.clear()
        run_turn(turn(1, confirms=confirms), replace(setup, config=config, images=split))
        answers = setup.folder.run("0000").read_answers()
        assert answers.images == Answers.of(torch.ones(1, len(scored)) > 0, scored.keys).images
        assert table_of([answers]).mean() == pytest.approx(reports[-2]["objective"])
        assert reports[-1]["answers"] == (json.dumps(answers.to_mapping()) if confirms else "")
    result = setup.folder.run("0000").read_result()
    assert result.holdout_images == len(scored)


def test_a_trial_in_a_store_is_pulled_once_a_turn_and_left_to_others_with_all_that_it_measured(
    setup: TrialSetup, reports: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls: list[str] = []

    def names(store: Store) -> dict[str, Stored]:
        pulls.append(store.address)
        return usual(store)

    usual = Store.names
    monkeypatch.setattr(Store, "names", names)
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    stored = replace(setup, folder=SweepFolder.at(f"file://{tmp_path}/store/sweep"))
    run = stored.folder.run("0000", "worker")
    for epochs in (2, 2):  # the last turn finds a finished trial
        reports.clear()
        pulls.clear()
        run_turn(turn(epochs), stored)
        assert pulls == [run.address]
        assert [told.get("epoch") for told in reports] == [*range(1, epochs + 1), None]
        assert reports[-1] == {"outcome": "finished", "reason": "", "answers": ""}
        assert not run.path.exists()
        run.require_free()
    assert (tmp_path / "store/sweep/trials/0000/result.json").exists()


def test_answers_that_a_worker_elsewhere_wrote_into_the_store_are_told(setup, reports, tmp_path, monkeypatch):
    answers = Answers.of(torch.tensor([[True, False, True]]), torch.arange(3))

    def train_elsewhere(run: RunFolder, turn: Turn, setup: TrialSetup) -> None:
        run.path.mkdir(parents=True)
        there = setup.folder.run(turn.run_name, "worker")
        there.path.mkdir(parents=True)
        there.write_answers(answers)
        there.send("answers.json")

    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setattr(worker, "_train", train_elsewhere)
    config = replace(setup.config, resources=replace(setup.config.resources, workers=2))
    there = SweepFolder.at(f"file://{tmp_path}/store/sweep")
    run_turn(turn(1, confirms=True), replace(setup, folder=there, config=config))
    assert typed(json.loads(reports[-1]["answers"]), Answers) == answers


def test_warnings_of_a_trial_are_in_its_run_and_not_on_the_console(setup, reports, monkeypatch, capfd, caplog):
    def train(*_: Any) -> None:
        logging.getLogger("ebclab.training").warning("training.loggers: wandb failed")

    monkeypatch.setattr(worker, "train_rank", train)
    run_turn(turn(1), setup)
    (event,) = setup.folder.run("0000").metrics.records()
    assert (event["event"], event["text"]) == ("warning", "training.loggers: wandb failed")
    assert "wandb" not in capfd.readouterr().err
    assert not caplog.records
    assert reports[-1]["outcome"] == "finished"


def test_a_failure_is_told_in_one_line_and_kept_in_full(setup: TrialSetup, reports: list[dict[str, Any]]) -> None:
    run_turn(turn(1, **{"training.batch_size": 4096}), setup)
    (told,) = reports
    assert told["outcome"] == "failed"
    assert "\n" not in told["reason"]
    assert "Traceback" in (setup.folder.trials / "0000" / "error.txt").read_text()


@pytest.mark.parametrize("is_told", [False, True])
def test_a_full_disk_ends_the_sweep_and_its_trial_goes_on_later(setup, reports, monkeypatch, is_told):
    def train(*_: Any) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            if is_told:
                raise RunError("last-0000000004: the disk is full; free some space") from error
            raise

    with monkeypatch.context() as patch:
        patch.setattr(worker, "train_rank", train)
        run_turn(turn(1), setup)
    (told,) = reports
    assert told["outcome"] == "refused"
    assert "the disk is full" in told["reason"]
    assert "free some space" in told["reason"]
    run_turn(turn(1), setup)
    assert reports[-1]["outcome"] == "finished"


def test_a_machine_with_other_versions_refuses_its_turn_before_it_touches_the_run_folder(setup, reports):
    elsewhere = Origin("the-head", {**setup.origin.versions, "torch": "1.0"})
    run_turn(turn(1), replace(setup, origin=elsewhere))
    (told,) = reports
    assert told["outcome"] == "refused"
    assert "got 1.0 where the command runs; install the same wheel" in told["reason"]
    assert not setup.folder.trials.exists()


@pytest.mark.parametrize(
    ("device", "gpus", "expected"), [("auto", 0.0, "cpu"), ("auto", 0.25, "auto"), ("cuda", 0.0, "cuda")]
)
def test_a_trial_that_has_reserved_no_gpu_takes_none_by_itself(setup, reports, monkeypatch, device, gpus, expected):
    asked: list[str] = []

    def refuse(name: str, **options: bool) -> None:
        asked.append(name)
        raise UserError("enough")

    monkeypatch.setattr(worker, "resolve_device", refuse)
    config = replace(setup.config, resources=replace(setup.config.resources, device=device))
    run_turn(turn(1), replace(setup, config=config, gpus=gpus))
    assert asked == [expected]


def test_a_trial_told_to_stop_before_it_has_begun_is_interrupted_and_goes_on_later(setup, reports):
    run = setup.folder.run("0000")
    run.stop.set()
    run_turn(turn(3), setup)
    assert reports[-1]["outcome"] == "interrupted"
    run.stop.clear()
    run_turn(turn(3), setup)
    assert reports[-1]["outcome"] == "finished"


def test_a_trial_that_is_ended_may_take_a_while_to_close_its_run(setup, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNE_FUNCTION_THREAD_TIMEOUT_S", "")  # both are put back after the test
    monkeypatch.delenv("TUNE_FUNCTION_THREAD_TIMEOUT_S")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path))
    monkeypatch.setattr(Loggers, "__exit__", lambda *error: time.sleep(2.5))
    storage = StorageContext(storage_path=tmp_path, experiment_dir_name="tune", trial_dir_name="0000")
    trial = wrap_function(lambda config: run_turn(turn(3), setup))(config={}, storage=storage)
    try:
        assert trial.train()["epoch"] == 1
        assert trial.reset({}, storage=storage)  # for the next trial; if this fails, Tune calls the next one failed
    finally:
        trial.stop()


def test_a_trial_begins_with_the_weights_that_the_sweep_keeps_and_goes_on_without_them(setup, reports, tmp_path):
    torch.manual_seed(9)
    tensors = dict(new_encoder(setup.config.encoder, 1, 8).state_dict())
    kept = tmp_path / "init.safetensors"
    keep_weights(kept, InitialWeights("there", tensors))
    config = replace(setup.config, init=InitConfig("there", digest_of(tensors)))
    starting = replace(setup, config=config, weights=kept)
    still = {"optimizer.learning_rate": 1e-30}
    run_turn(turn(1, **still), starting)
    assert reports[-1] == {"outcome": "finished", "reason": "", "answers": ""}
    found = checkpoint.load(setup.folder.trials / "0000" / "checkpoints")
    assert all(torch.equal(found.model[f"encoder.{name}"], tensors[name]) for name in tensors if "conv" in name)
    kept.unlink()
    (setup.folder.trials / "0000" / "result.json").unlink()
    run_turn(turn(1, **still), starting)
    assert reports[-1] == {"outcome": "finished", "reason": "", "answers": ""}
    shutil.rmtree(setup.folder.trials / "0000")
    run_turn(turn(1), starting)
    assert reports[-1]["outcome"] == "failed"
    assert "init.safetensors" in reports[-1]["reason"]


def test_initial_weights_whose_copy_is_damaged_are_downloaded_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    there = tmp_path / "store" / "sweep"
    there.mkdir(parents=True)
    tensors = {"weight": torch.arange(6.0)}
    keep_weights(there / "weights.safetensors", InitialWeights("there", tensors))
    folder = SweepFolder.at(f"file://{there}")
    init = InitConfig(weights="there", digest=digest_of(tensors))
    copy = folder.remote.of("worker").cache / "weights.safetensors"

    def read() -> bool:
        return torch.equal(worker._initial_weights(copy, folder, init).tensors["weight"], tensors["weight"])

    assert read()
    whole = copy.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), bytes(len(whole)), b""):
        copy.write_bytes(damaged)
        caplog.clear()
        assert read()
        (line,) = caplog.messages
        assert line.endswith("; this machine's copy is fetched again")
        assert copy.read_bytes() == whole
    for path in (there / "weights.safetensors", copy):
        path.write_bytes(bytes(len(whole)))
    with pytest.raises(UserError, match=r"init.weights: file://.*/sweep: weights.safetensors is damaged"):
        read()
