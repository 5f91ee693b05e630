"""What takes long to import is imported by whoever needs it: one new process goes from the lightest to the heaviest."""

from collections.abc import Callable
from typing import Any

import pytest

LOADED = dict[str, list[str]]
HEAVY = "pydantic ray scipy sklearn timm torch torch._dynamo"
"""The large packages that had been imported after each thing that was done, in order: these and some others."""
TORCHLESS = "ray scipy sklearn timm torch"


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
        with contextlib.redirect_stdout(io.StringIO()):
            main(["show", "simclr"])
        note("the settings of a method")
        import ebclab.comparisons.plan
        from ebclab.cli.sweep import SweepOptions

        SweepOptions(method="simclr", recipe="digits-demo").plan()
        note("a recipe and plans")
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

        SweepOptions(method="simclr", time=3600.0).limits()
        note("checking a sweep")
        import ebclab.reports.document

        note("reading a sweep")
        return after

    found: LOADED = in_new_process(do)
    return found


@pytest.mark.parametrize(
    ("what", "absent", "there"),
    [
        ("the package", f"numpy pandas pyarrow {HEAVY}", ""),
        ("settings", f"numpy pandas pyarrow {HEAVY}", ""),
        ("the list of datasets", "torch numpy pyarrow", ""),
        ("the settings of a method", f"numpy pyarrow {TORCHLESS}", ""),
        ("a recipe and plans", f"pyarrow {TORCHLESS}", ""),
        ("training", "pandas pyarrow ray scipy sklearn timm torch._dynamo", "torch"),
        ("an optimizer of torch", "timm torch._dynamo", "torch"),
        ("checking a sweep", "ray", ""),
        ("reading a sweep", "ray", ""),
    ],
)
def test_what_takes_long_to_import_waits_for_whoever_needs_it(loaded, what, absent, there):
    assert set(absent.split()).isdisjoint(loaded[what])
    assert set(there.split()) <= set(loaded[what])


def test_pages_of_sweeps_and_runs_are_drawn_without_torch_and_ray(in_new_process):
    def draw() -> list[str]:
        import sys

        import ebclab.reports.document
        import ebclab.reports.report
        import ebclab.reports.runs.document  # noqa: F401

        return sorted({"torch", "ray", "sklearn"} & sys.modules.keys())

    assert in_new_process(draw) == []


def test_settings_read_without_torch_are_those_of_the_methods_in_their_order():
    from energy_contrast.catalog import METHODS
    from energy_contrast.method_settings import SETTINGS

    expected = [(name, method.Config) for name, method in METHODS.items()]
    assert list(SETTINGS.items()) == expected, "method_settings.py must have what catalog.py has"
