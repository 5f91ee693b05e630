"""Stand-ins for the libraries of loggers: they keep what they are told, and take what the real ones take."""

import random
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch


class Told:
    """What one library was told.

    Attributes:
        runs: Id or name of each run that was begun or taken up again, in order, with what it began with.
        logged: (run, step, values) in order.
        endings: How launches ended, as the library calls it.
        fails_at: Step whose writing raises; None for none.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[str, dict[str, Any]]] = []
        self.logged: list[tuple[str, int | None, dict[str, float]]] = []
        self.endings: list[Any] = []
        self.fails_at: int | None = None

    def log(self, run: str, step: int | None, values: dict[str, float]) -> None:
        random.random(), np.random.rand(), torch.rand(1)  # as libraries do for ids and waiting times
        if step is not None and step == self.fails_at:
            raise ConnectionError("https://somebody:secret@tracking.example refuses\nand says more")
        self.logged.append((run, step, values))


def mlflow_of(told: Told) -> dict[str, ModuleType]:
    """Modules of an MLflow without a server."""

    class Metric:
        def __init__(self, key: str, value: float, timestamp: int, step: int) -> None:
            self.key, self.value, self.step = key, value, step

    class Param:
        def __init__(self, key: str, value: str) -> None:
            self.key, self.value = key, value

    class RunTag:
        def __init__(self, key: str, value: str) -> None:
            self.key, self.value = key, value

    class MlflowClient:
        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            return f"experiment {name}"

        def create_run(self, experiment_id: str, run_name: str | None = None) -> Any:
            told.runs.append((f"run {len(told.runs)}", {"experiment": experiment_id, "name": run_name}))
            return SimpleNamespace(info=SimpleNamespace(run_id=told.runs[-1][0]))

        def update_run(self, run_id: str, status: str | None = None) -> None:
            told.runs.append((run_id, {"status": status}))

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
            told.runs[-1][1].update({each.key: each.value for each in [*params, *tags]})
            if metrics:
                told.log(run_id, metrics[0].step, {metric.key: metric.value for metric in metrics})

        def set_terminated(self, run_id: str, status: str | None = None) -> None:
            told.endings.append(status)

    module, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    vars(module).update(MlflowClient=MlflowClient, entities=entities)
    vars(entities).update(Metric=Metric, Param=Param, RunTag=RunTag)
    return {"mlflow": module, "mlflow.entities": entities}


def wandb_of(told: Told) -> dict[str, ModuleType]:
    """A Weights & Biases that has nobody to send to."""

    class Run:
        def __init__(self, name: str) -> None:
            self._name = name

        def log(self, data: dict[str, Any], step: int | None = None) -> None:
            told.log(self._name, step, data)

        def finish(self, exit_code: int | None = None) -> None:
            told.endings.append(exit_code)

    def init(
        project: str | None = None,
        dir: Any = None,
        id: str | None = None,
        name: str | None = None,
        config: Any = None,
        group: str | None = None,
        reinit: Any = None,
        resume: Any = None,
        settings: Any = None,
    ) -> Run:
        began = {"project": project, "name": name, "group": group, "resume": resume, **config}
        told.runs.append((str(id), began))
        return Run(str(id))

    module = ModuleType("wandb")
    vars(module).update(init=init, Settings=lambda **settings: settings, Run=Run)
    return {"wandb": module}


def trackio_of(told: Told) -> dict[str, ModuleType]:
    """A Trackio without a database."""

    class Run:
        def __init__(self, name: str) -> None:
            self._name = name

        def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
            told.log(self._name, step, metrics)

        def finish(self) -> None:
            told.endings.append("finished")

    def init(
        project: str,
        name: str | None = None,
        group: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str = "never",
        embed: bool = True,
    ) -> Run:
        print("* Trackio project initialized")
        told.runs.append((str(name), {"project": project, "group": group, "resume": resume, **(config or {})}))
        return Run(str(name))

    module = ModuleType("trackio")
    vars(module).update(init=init, Run=Run)
    return {"trackio": module}


LIBRARIES = {"mlflow": mlflow_of, "wandb": wandb_of, "trackio": trackio_of}
