"""A method that is written as package.module:Class: what is imported and when, and what refusals say."""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_up_method import HARDEST

import ebclab
from ebclab.config import compose, parse_yaml, to_mapping, to_yaml
from ebclab.config.experiment import RecordedSettings
from ebclab.encoders.build import new_encoder
from ebclab.errors import ConfigError
from ebclab.methods_by_name import as_file_name, code_of, import_method, is_import_name
from ebclab.runs.folder import RunFolder
from energy_contrast.catalog import METHODS

WRONG = f"""{HARDEST}
from energy_contrast.method import Method


class NoConfig(Method):
    def forward(self, batch, generator): ...


class Abstract(Simclr):
    from abc import abstractmethod

    @abstractmethod
    def more(self): ...


@dataclass(frozen=True)
class TakenConfig(SimclrConfig):
    digest: int = setting(1, "A name of ours.")


class Taken(Simclr):
    Config = TakenConfig


@dataclass(frozen=True)
class OpenConfig:
    width: int


class Open(NoConfig):
    Config = OpenConfig


@dataclass(frozen=True)
class LowConfig(SimclrConfig):
    width: int = setting(0, "Below its own range.", minimum=1)


class Low(Simclr):
    Config = LowConfig
"""


EXTENDED = """
from dataclasses import dataclass

from energy_contrast.contrastive.flatclr import Flatclr
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.energy_based.ebclr import Ebclr
from energy_contrast.settings import setting


@dataclass(frozen=True)
class WarmConfig(SimclrConfig):
    temperature: float = setting(0.7, "Warmer.", above=0)


class Warm(Simclr):
    Config = WarmConfig


class OfEnergies(Ebclr):
    pass


class OfFlat(Flatclr):
    pass
"""

NETWORK = """
from timm.models import register_model
from torch import nn


class Network(nn.Sequential):
    num_features = 24


@register_model
def own_network(pretrained=False, in_chans=3, num_classes=0, **more):
    return Network(nn.Conv2d(in_chans, 24, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with own_method.py; what is imported from it is forgotten afterwards."""
    (tmp_path / "own_method.py").write_text(HARDEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_name_of_the_catalogue_is_never_one_to_import() -> None:
    assert not any(map(is_import_name, METHODS))
    assert is_import_name("a.b_2:C")
    assert not any(map(is_import_name, ["a:", ":B", "a b:C", "a.b", "a/b:C", "a:B.C", "a..b:C", "1a:B"]))
    assert as_file_name("a.b:C") == "a.b.C"


def test_a_class_has_the_section_of_the_nearest_method_that_it_extends_in_a_recipe(folder: Path) -> None:
    base = compose("simclr", recipe="cifar10-small")
    assert base.method.temperature != compose("simclr").method.temperature  # the recipe's own
    assert compose("own_method:Hardest", recipe="cifar10-small").method.temperature == base.method.temperature
    assert compose("own_method:Hardest").method.temperature == compose("simclr").method.temperature
    (folder / "extended.py").write_text(EXTENDED)
    warm = compose("extended:Warm", recipe="cifar10-small").method
    assert (warm.temperature, warm.projection_size) == (0.7, base.method.projection_size)
    energy, ours = (compose(name, recipe="cifar10-small") for name in ("ebclr", "extended:OfEnergies"))
    assert (ours.encoder, ours.views, ours.optimizer) == (energy.encoder, energy.views, energy.optimizer)
    assert ours.method.buffer_size == energy.method.buffer_size == 10000
    assert compose("extended:OfFlat", recipe="cifar10-small", overrides=["method.temperature=0.3"]).method == replace(
        compose("flatclr", recipe="cifar10-small").method, temperature=0.3
    )


def test_the_class_is_found_in_the_current_folder_and_its_file_is_recorded(folder: Path) -> None:
    config = compose("own_method:Hardest", overrides=["method.num_negatives=8"])
    assert (config.method_name, config.method.num_negatives) == ("own_method:Hardest", 8)
    digest = hashlib.sha256(HARDEST.encode()).hexdigest()
    assert list(to_mapping(config)["method"].items())[:2] == [("name", "own_method:Hardest"), ("digest", digest)]
    assert f"  digest: {digest}  # SHA-256" in to_yaml(config, explain=True)
    with pytest.raises(ConfigError, match=r"method\.num_negatives: out of range, got 0"):
        compose("own_method:Hardest", overrides=["method.num_negatives=0"])
    with pytest.raises(ConfigError, match=r"method\.digest: the file of own_method:Hardest has changed"):
        compose("own_method:Hardest", config={"method": {"digest": "0" * 64}})
    with pytest.raises(ConfigError, match=r"method\.digest: not a SHA-256, got 3; leave it out"):
        compose("own_method:Hardest", config={"method": {"digest": 3}})
    assert "digest" not in to_mapping(compose("simclr"))["method"]


def test_a_default_outside_its_range_is_refused_before_a_run_that_nothing_could_resume(folder: Path) -> None:
    (folder / "wrong_method.py").write_text(WRONG)
    with pytest.raises(ConfigError, match=r"^method\.width: out of range, got 0; must be a whole number, at least 1$"):
        compose("wrong_method:Low")
    assert compose("wrong_method:Low", overrides=["method.width=2"]).method.width == 2


def test_a_network_that_the_methods_file_registers_with_timm_is_an_encoder(folder: Path) -> None:
    (folder / "own_network.py").write_text(NETWORK + HARDEST)
    network = new_encoder(compose("own_network:Hardest", overrides=["encoder.name=timm/own_network"]).encoder, 1)
    assert (network.embedding_size, network(torch.zeros(2, 1, 8, 8)).shape) == (24, (2, 24))


def test_a_file_alone_never_imports_what_it_names(folder: Path) -> None:
    text = to_yaml(compose("own_method:Hardest", overrides=["method.num_negatives=8"]))
    del sys.modules["own_method"]
    config = parse_yaml(text, "config.yaml")
    assert "own_method" not in sys.modules
    assert isinstance(config.method, RecordedSettings)
    assert to_yaml(config) == text
    with pytest.raises(ConfigError, match=r"method\.name: not the method asked for, got 'own_method:Hardest'"):
        compose("simclr", config={"method": {"name": "own_method:Hardest"}})
    with pytest.raises(ConfigError, match="a file alone does not choose which code is run, got own_method:Hardest"):
        ebclab.pretrain(config)
    assert "own_method" not in sys.modules


def test_a_class_given_in_python_needs_no_module_and_is_asked_for(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"not in the catalogue, got mine; give its class too: method=\.\.\."):
        ebclab.pretrain(compose("mine", methods={"mine": METHODS["simclr"]}))


@pytest.mark.parametrize("name", ["mine", "simclr"])
def test_own_methods_are_known_besides_the_catalogue(tmp_path: Path, name: str) -> None:
    own = {"mine": METHODS["moco"]}
    (tmp_path / "config.yaml").write_text(to_yaml(compose(name, methods={**METHODS, **own})))
    assert RunFolder.at(tmp_path).read_config(own).method_name == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_metod:Hardest", r"no module own_metod in .* or on the import path; did you mean own_method\?$"),
        ("own_method.inner:Hardest", "the module own_method.inner cannot be imported|no module own_method.inner"),
        ("own_method:Hardets", r"no class Hardets in .*own_method.py; did you mean Hardest(Config)?\?$"),
        ("own_method:setting", "no class setting in .*own_method.py"),
        (
            "own_method:HardestConfig",
            "HardestConfig in .* is not a method; derive it from energy_contrast.method.Method",
        ),
        ("wrong_method:NoConfig", "NoConfig in .*wrong_method.py has no Config; give it a frozen dataclass"),
        ("wrong_method:Abstract", "Abstract in .* is not complete, it lacks more$"),
        ("wrong_method:Taken", "Taken in .* has a setting called digest, which .* rename it$"),
        ("wrong_method:Open", "Open in .* has a Config that cannot be made, got TypeError: .*'width'"),
        (
            "broken_method:Any",
            r"the module broken_method cannot be imported, got SyntaxError: .* \(broken_method.py, line 2\)$",
        ),
        (
            "missing_method:Any",
            "the module missing_method cannot be imported, got ModuleNotFoundError: .*absent_library",
        ),
        ("failing_method:Any", r"cannot be imported, got KeyError: 'x' \(failing_method.py, line 2\)$"),
        ("leaving_method:Any", r"cannot be imported, got SystemExit: 0 \(leaving_method.py, line 1\)$"),
        ("random:Hardest", r"no class Hardest in .*random\.py"),
    ],
)
def test_refusals_are_one_sentence(folder: Path, name: str, said: str) -> None:
    (folder / "wrong_method.py").write_text(WRONG)
    (folder / "broken_method.py").write_text("\nclass:\n")
    (folder / "missing_method.py").write_text("import absent_library\n")
    (folder / "failing_method.py").write_text("import json\njson.loads('{}')['x']\n")
    (folder / "leaving_method.py").write_text("raise SystemExit(0)\n")
    (folder / "random.py").write_text(HARDEST)  # a library of this name comes first
    with pytest.raises(ConfigError, match=said) as caught:
        compose(name)
    assert str(caught.value).startswith("METHOD: ")
    assert len(caught.value.problems) == 1


def test_what_another_machine_needs_is_the_outermost_package_or_the_file(folder: Path) -> None:
    (folder / "own_package" / "inner").mkdir(parents=True)
    (folder / "own_package" / "__init__.py").touch()
    (folder / "own_package" / "inner" / "method.py").write_text(HARDEST)
    for name, place in (("own_method:Hardest", "own_method.py"), ("own_package.inner.method:Hardest", "own_package")):
        import_method(name)
        assert code_of(name) == folder / place
