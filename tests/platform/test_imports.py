"""What takes long to import is imported by whoever needs it: one new process goes from the lightest to the heaviest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LOADED = dict[str, list[str]]
"""The large packages that had been imported after each thing that was done, in order."""


@pytest.fixture(scope="module")
def loaded(in_new_process: Callable[..., Any]) -> LOADED:
    def do() -> dict[str, list[str]]:
        import contextlib
        import io
        import sys
        import tempfile

        after = {}

        def note(what: str) -> None:
            large = {"torch", "torch._dynamo", "ray", "timm", "sklearn", "scipy", "pandas"}
            large |= {"numpy", "pyarrow", "pydantic"}
            after[what] = sorted(large & sys.modules.keys())

        import ebclab

        note("the package")
        import ebclab.config

        note("settings")
        from ebclab.cli import main

        with contextlib.redirect_stdout(io.StringIO()):
            main(["data", "list"])
        note("the list of datasets")
        ebclab.config.compose("simclr")
        note("a recipe")
        from ebclab.training.pretrain import pretrain

        tiny = ["data.train_limit=40", "training.batch_size=8", "training.epochs=1", "resources.device=cpu"]
        with tempfile.TemporaryDirectory() as folder:
            pretrain(ebclab.config.compose("simclr", overrides=tiny), runs=folder)
        note("training")
        import torch

        from ebclab.config.sections import OptimizerConfig
        from ebclab.optimization.optimizers import build_optimizer

        optimizer = build_optimizer(OptimizerConfig(name="adamw"), torch.nn.Linear(2, 2))
        optimizer.zero_grad()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        note("an optimizer of torch")
        import ebclab.cli.submit
        import ebclab.sweeps.sweep
        from ebclab.cli.sweep import SweepOptions

        SweepOptions(method="simclr", time=3600.0).limits()
        note("checking a sweep")
        import ebclab.reports.document

        note("reading a sweep")
        build_optimizer(OptimizerConfig(name="lars"), torch.nn.Linear(2, 2))
        note("LARS")
        return after

    found: LOADED = in_new_process(do)
    return found


def test_importing_the_package_or_reading_settings_loads_neither_ray_nor_torch_nor_pydantic(loaded: LOADED) -> None:
    assert loaded["the package"] == []
    assert loaded["settings"] == []


def test_datasets_are_listed_without_torch_and_pyarrow(loaded: LOADED) -> None:
    assert {"torch", "numpy", "pyarrow"}.isdisjoint(loaded["the list of datasets"])


def test_our_own_encoders_do_not_import_timm(loaded: LOADED) -> None:
    assert "timm" not in loaded["a recipe"]
    assert "timm" not in loaded["training"]


def test_training_imports_torch_and_nothing_for_scores_and_tables(loaded: LOADED) -> None:
    assert {"pandas", "pyarrow", "ray", "scipy", "sklearn"}.isdisjoint(loaded["training"])
    assert "torch" in loaded["training"]


def test_timm_is_imported_for_lars_only(loaded: LOADED) -> None:
    assert "timm" not in loaded["an optimizer of torch"]
    assert "timm" in loaded["LARS"]


def test_neither_a_run_nor_an_optimizer_imports_the_compiler_of_torch(loaded: LOADED) -> None:
    assert "torch._dynamo" not in loaded["training"]
    assert "torch._dynamo" not in loaded["an optimizer of torch"]


def test_checking_or_reading_a_sweep_imports_no_ray(loaded: LOADED) -> None:
    assert "ray" not in loaded["checking a sweep"]
    assert "ray" not in loaded["reading a sweep"]
