"""Other people's loggers: they are told what the log says, and nothing they do ends or changes a run."""

import importlib
import inspect
import json
import logging
import random
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from logger_libraries import LIBRARIES, Told
from small_runs import saved_in, untimed

from ebclab.config import ExperimentConfig, compose, to_mapping
from ebclab.config.sections import TrainingConfig
from ebclab.errors import ConfigError, InterruptedRunError, UserError
from ebclab.formatting import REQUIREMENTS, how_to_install
from ebclab.runs.folder import RunFolder
from ebclab.runs.record import RunRecord, open_run
from ebclab.runs.resume import flat
from ebclab.training.callbacks import random_state_kept
from ebclab.training.display import Listener
from ebclab.training.loggers import _LOGGERS, IDENTITIES, Loggers
from ebclab.training.pretrain import pretrain

TINY = ["data.train_limit=72", "training.batch_size=32", "training.epochs=2", "encoder.width=4", "training.log_every=1"]
NAMES = [*LIBRARIES]
CHOICES = get_args(get_args(get_type_hints(TrainingConfig)["loggers"])[0])
GROUP = {"mlflow": "sweep", "wandb": "group", "trackio": "group"}
"""What a library calls the sweep of a trial."""
ENDINGS = {"mlflow": ["KILLED", "FINISHED"], "wandb": [1, 0], "trackio": ["finished"] * 2}
"""What a library is told of a launch that was stopped, and of one that finished the run."""
Installed = Callable[..., dict[str, Told]]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Return a function that installs stand-ins for libraries and returns what each is told."""

    def install(*names: str) -> dict[str, Told]:
        told = {name: Told() for name in names}
        for name in names:
            for module, library in LIBRARIES[name](told[name]).items():
                monkeypatch.setitem(sys.modules, module, library)
        return told

    return install


def settings(*loggers: str, more: tuple[str, ...] = ()) -> ExperimentConfig:
    return compose("simclr", overrides=[*TINY, f"training.loggers=[{','.join(loggers)}]", *more])


def trained(path: Path, config: ExperimentConfig, **how: Any) -> RunRecord:
    pretrain(config, runs=path.parent, name=path.name, display=Listener(), **how)
    return open_run(path)


def test_a_run_with_loggers_has_the_bits_of_one_without_and_tells_them_its_log(tmp_path, installed):
    told = installed(*NAMES)
    told["wandb"].fails_at = 3
    plain, run = trained(tmp_path / "plain", settings()), trained(tmp_path / "told", settings(*NAMES))
    paths = run.folder.path, plain.folder.path
    ours, theirs = (untimed(path, "train", "epoch") for path in paths)
    assert ours == theirs
    torch.testing.assert_close(saved_in(run.folder.path).model, saved_in(plain.folder.path).model, rtol=0, atol=0)
    log_loss = dict(zip(run.metrics["step"], run.metrics["loss"], strict=True))
    log_knn = dict(zip(run.scores["step"], run.scores["holdout_knn"], strict=True))
    for name in {*NAMES} - {"wandb"}:
        logged = told[name].logged
        assert {step: values["train/loss"] for _, step, values in logged if "train/loss" in values} == log_loss
        assert {step: values["holdout/knn"] for _, step, values in logged if "holdout/knn" in values} == log_knn
        assert told[name].endings == ENDINGS[name][1:]
    assert {step for _, step, _ in told["wandb"].logged} == {1, 2}
    warnings = [event["text"] for event in run.events if event["event"] == "warning"]
    assert [text for text in warnings if "loggers" in text] == [
        "training.loggers: wandb failed, and the run continues without it: "
        "ConnectionError: https://***@tracking.example refuses"
    ]


@pytest.mark.parametrize("ending", [InterruptedRunError, SystemExit])
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_goes_on_in_the_same_run_of_the_logger(tmp_path, installed, name, ending):
    told = installed(name)[name]
    config, run = settings(name), RunFolder.at(tmp_path / "one")
    run.path.mkdir()

    def stopped() -> None:
        with Loggers(run, config) as loggers:
            loggers.write({"train/loss": 1.0}, 1)
            raise ending("stopped")

    with pytest.raises(ending):
        stopped()
    with Loggers(run, config) as loggers:
        loggers.write({"train/loss": 0.5}, 2)
    first, second = told.runs
    assert first[0] == second[0] == json.loads((run.path / IDENTITIES).read_text())[name]
    assert [(who, step) for who, step, _ in told.logged] == [(first[0], 1), (first[0], 2)]
    assert told.endings == ENDINGS[name]
    sent = {key: str(value) for key, value in first[1].items()}
    assert {key: sent[key] for key in flat(to_mapping(config))} == {
        key: str(value) for key, value in flat(to_mapping(config)).items()
    }
    assert set(first[1]) - set(flat(to_mapping(config))) <= {"experiment", "name", "project", "group", "resume"}


def test_a_library_that_is_missing_is_a_sentence_before_anything_is_written(tmp_path, monkeypatch):
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError) as error:
        trained(tmp_path / "run", settings("mlflow", "wandb"))
    assert "training.loggers: mlflow cannot be imported here" in str(error.value)
    assert "run `pip install 'wandb>=0.21'`" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["init", "finish"])
def test_a_logger_that_fails_at_either_end_is_a_warning(tmp_path, installed, monkeypatch, caplog, moment):
    told = installed("wandb", "trackio")

    def fail(*_: Any, **__: Any) -> None:
        raise SystemError

    monkeypatch.setattr(sys.modules["wandb"] if moment == "init" else sys.modules["wandb"].Run, moment, fail)
    run = RunFolder.at(tmp_path)
    with caplog.at_level(logging.WARNING), Loggers(run, settings("wandb", "trackio")) as loggers:
        loggers.write({"train/loss": 1.0}, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "training.loggers: wandb failed, and the run continues without it: SystemError: "
    ]
    assert len(told["trackio"].logged) == 1


def test_a_logger_that_is_named_twice_is_told_once(tmp_path: Path, installed: Installed) -> None:
    told = installed("wandb")["wandb"]
    with Loggers(RunFolder.at(tmp_path), settings("wandb", "wandb")) as loggers:
        loggers.write({"train/loss": 1.0}, 1)
    assert (len(told.runs), told.endings, len(told.logged)) == (1, [0], 1)


def test_what_loggers_print_stays_out_of_the_output(tmp_path, installed, capsys):
    installed("trackio")
    with Loggers(RunFolder.at(tmp_path), settings("trackio")):
        pass
    assert capsys.readouterr().out == ""


def test_a_trial_stands_in_the_group_of_its_sweep(tmp_path: Path, installed: Installed) -> None:
    told = installed(*NAMES)
    trial = tmp_path / "hunt" / "trials" / "0003"
    trial.mkdir(parents=True)
    (tmp_path / "hunt" / "sweep.yaml").write_text("")
    with Loggers(RunFolder.at(trial), settings(*NAMES)):
        pass
    assert {name: told[name].runs[0][1][GROUP[name]] for name in NAMES} == dict.fromkeys(NAMES, "hunt")


@pytest.mark.parametrize("content", ['{"wandb": "../../elsewhere"}', '{"wandb": 3}', "[]", "{"])
def test_an_id_that_is_none_is_not_taken(tmp_path: Path, installed: Installed, content: str) -> None:
    told = installed("wandb")["wandb"]
    (tmp_path / IDENTITIES).write_text(content)
    with Loggers(RunFolder.at(tmp_path), settings("wandb")):
        pass
    (begun,) = told.runs
    assert len(begun[0]) == 32
    assert json.loads((tmp_path / IDENTITIES).read_text()) == {"wandb": begun[0]}


def test_a_misspelt_logger_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"training.loggers.*wandb"):
        settings("wandbb")


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(1)), random.random(), float(np.random.rand())


@pytest.mark.parametrize("fails", [False, True])
def test_writing_draws_from_no_generator_of_the_run(tmp_path: Path, installed: Installed, fails: bool) -> None:
    told = installed("wandb")["wandb"]
    told.fails_at = 1 if fails else None
    with Loggers(RunFolder.at(tmp_path), settings("wandb")) as loggers:
        for seeded in (torch.manual_seed, random.seed, np.random.seed):
            seeded(1)
        expected = drawn()
        for seeded in (torch.manual_seed, random.seed, np.random.seed):
            seeded(1)
        loggers.write({"train/loss": 1.0}, 1)
        assert drawn() == expected
    with random_state_kept():
        assert drawn() != expected


CLIENT = ("create_run", "create_experiment", "get_experiment_by_name", "log_batch", "set_terminated", "update_run")
CALLS = {
    "mlflow": [
        *(f"MlflowClient.{name}" for name in CLIENT),
        *(f"entities.{name}.__init__" for name in ("Metric", "Param", "RunTag")),
    ],
    "wandb": ["init", "Run.log", "Run.finish"],
    "trackio": ["init", "Run.log", "Run.finish"],
}


@pytest.mark.parametrize("name", NAMES)
def test_the_stand_ins_take_what_the_real_libraries_take(name: str) -> None:
    real = pytest.importorskip(name, reason=how_to_install(name))
    stand_in = LIBRARIES[name](Told())[name]
    importlib.import_module(f"{name}.entities" if name == "mlflow" else name)
    for call in CALLS[name]:
        theirs, ours = real, stand_in
        for part in call.split("."):
            theirs, ours = getattr(theirs, part), getattr(ours, part)
        known = inspect.signature(theirs).parameters
        for parameter in inspect.signature(ours).parameters.values():
            assert parameter.name in known, f"{call}: {parameter.name}"
            assert parameter.default == known[parameter.name].default or ours is stand_in.init, f"{call}: {parameter}"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # theirs are not ours to mend
@pytest.mark.parametrize("name", NAMES)
def test_the_real_library_goes_on_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Two launches of a run, the second by --extend: one run in the library, with the steps of both."""
    pytest.importorskip(name, reason=how_to_install(name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trained(tmp_path / "run", settings(name))
    run = trained(tmp_path / "run", settings(name), extend=3)
    assert [event for event in run.events if event["event"] == "warning" and "loggers" in event["text"]] == []
    losses = dict(zip(run.metrics["step"], run.metrics["loss"], strict=True))
    identity = json.loads((tmp_path / "run" / IDENTITIES).read_text())[name]
    if name == "mlflow":
        from mlflow import MlflowClient

        history = MlflowClient().get_metric_history(identity, "train/loss")
        assert {entry.step: entry.value for entry in history} == pytest.approx(losses)
        assert MlflowClient().get_run(identity).info.status == "FINISHED"
    elif name == "wandb":
        folders = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{identity}"))
        assert len(folders) == 2  # `wandb sync` sends both into one run
        assert all(list(folder.glob("*.wandb")) for folder in folders)
        assert not list((tmp_path / "run" / "wandb").rglob("wandb-metadata.json"))
    elif name == "trackio":
        from trackio.sqlite_storage import SQLiteStorage

        rows = SQLiteStorage.get_logs("ebclab", identity)
        assert {row["step"]: row["train/loss"] for row in rows if "train/loss" in row} == pytest.approx(losses)
    else:
        pytest.fail(f"{name}: read back here what the library has of both launches")


@pytest.mark.parametrize("name", sorted({*_LOGGERS, *CHOICES, *NAMES}))
def test_a_logger_has_a_name_a_class_an_extra_a_stand_in_and_a_line_in_the_docs(name: str) -> None:
    root = Path(__file__).parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    missing = {
        "TrainingConfig.loggers in config/sections.py": name in CHOICES,
        "_LOGGERS in training/loggers.py": name in _LOGGERS,
        "REQUIREMENTS in formatting.py": name in REQUIREMENTS,
        "the extras of pyproject.toml": name in extras,
        "LIBRARIES in tests/support/logger_libraries.py": name in NAMES,
        "CALLS, GROUP and ENDINGS in this file": name in CALLS.keys() & GROUP.keys() & ENDINGS.keys(),
        "docs/watching.md": f"| `{name}` |" in (root / "docs" / "watching.md").read_text(encoding="utf-8"),
    }
    lacking = [place for place, is_there in missing.items() if not is_there]
    assert not lacking, f"still to come: {'; '.join(lacking)}"
