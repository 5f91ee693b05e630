"""Runs that start from given weights: which weights, recognised how, and that no launch needs them twice."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from small_runs import encoder_of, settings_of, small_config, small_images, small_run
from torch import Tensor

import ebclab
from ebclab.config import compose
from ebclab.config.encoder import EncoderConfig, InitConfig
from ebclab.encoders.build import digest_of, new_encoder
from ebclab.errors import ConfigError, RunError, UserError
from ebclab.export.run import export_run
from ebclab.runs.initial_weights import (
    InitialWeights,
    keep_weights,
    kept_weights,
    read_initial_weights,
    start_from,
)
from ebclab.training.display import Listener
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS

CPU = torch.device("cpu")


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of another seed."""
    return small_run(tmp_path_factory.mktemp("donor"), "first", "seed=5")


@pytest.fixture
def exported(donor: Path, tmp_path: Path) -> Path:
    return export_run(donor, tmp_path / "exported")[0]


@pytest.mark.parametrize("name", METHODS)
def test_the_encoder_of_every_method_and_its_copies_begin_with_the_same_bits(donor: Path, name: str) -> None:
    weights = InitialWeights("test", encoder_of(donor))
    config = small_config("encoder.batch_norm=global", method=name)
    method = build_method(config, METHODS[name], 1, CPU, 8, weights, num_classes=2)
    assert equal(dict(method.encoder.state_dict()), encoder_of(donor))
    if hasattr(method, "key_encoder"):
        assert equal(dict(method.key_encoder.state_dict()), encoder_of(donor))


def test_a_run_begins_with_the_weights_of_a_folder_and_so_ends_elsewhere(donor: Path, tmp_path: Path) -> None:
    still = "optimizer.learning_rate=1e-30"  # steps of nothing: the weights stay where they began
    begun = small_run(tmp_path, "second", f"init.weights={donor}", still)
    names = [name for name in encoder_of(donor) if "running" not in name and "num_batches" not in name]
    before, after = encoder_of(donor), encoder_of(begun)
    assert all(torch.equal(before[name], after[name]) for name in names)
    random = encoder_of(small_run(tmp_path, "third", still))
    assert any(not torch.equal(before[name], random[name]) for name in names)


def test_a_run_and_its_export_are_the_same_weights(donor: Path, exported: Path) -> None:
    one, other = (read_initial_weights(str(path)) for path in (donor, exported))
    assert equal(dict(one.tensors), dict(other.tensors))
    assert equal(dict(other.tensors), load_file(exported / "model.safetensors"))


def test_a_run_names_its_weights_and_goes_on_when_they_have_gone(exported: Path, tmp_path: Path) -> None:
    start = [f"init.weights={exported}", "optimizer.schedule=constant"]
    undisturbed = encoder_of(small_run(tmp_path, "whole", *start, "training.epochs=3"))
    small_run(tmp_path, "second", *start)
    kept = InitConfig(str(exported), digest_of(load_file(exported / "model.safetensors")))
    shutil.rmtree(exported)
    again = small_run(tmp_path, "second", *start, extend=3)
    assert settings_of(again).init == kept
    assert equal(encoder_of(again), undisturbed)
    how: dict[str, Any] = {"runs": tmp_path, "images": small_images(), "display": Listener(), "extend": 3}
    assert ebclab.pretrain(small_config(*start), name="second", **how).was_finished


def test_a_run_of_a_network_of_timm_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    timms = ["encoder.width=0", "encoder.name=timm/test_efficientnet", "optimizer.schedule=constant"]
    undisturbed = encoder_of(small_run(tmp_path, "whole", *timms, "training.epochs=2"))
    small_run(tmp_path, "second", *timms)
    assert equal(encoder_of(small_run(tmp_path, "second", *timms, extend=2)), undisturbed)


def test_a_run_killed_before_its_first_checkpoint_begins_with_the_weights(exported: Path, tmp_path: Path) -> None:
    start, still = f"init.weights={exported}", "optimizer.learning_rate=1e-30"
    begun = small_run(tmp_path, "second", start, still)
    before = encoder_of(begun)
    for name in ("checkpoints", "result.json"):
        (begun / name).rename(begun / f".{name}")
    assert torch.equal(encoder_of(small_run(tmp_path, "second", start, still))["conv1.weight"], before["conv1.weight"])
    for name in ("checkpoints", "result.json"):
        (begun / name).rename(begun / f".again-{name}")
    shutil.rmtree(exported)
    with pytest.raises(UserError, match="neither an exported encoder nor a run"):
        small_run(tmp_path, "second", start, still)


def test_a_run_does_not_go_on_from_another_start(exported: Path, tmp_path: Path) -> None:
    small_run(tmp_path, "second", f"init.weights={exported}")
    with pytest.raises(RunError, match=r"init\.weights: .*exported in the run, None now"):
        small_run(tmp_path, "second", "training.epochs=2")
    _shift(exported)
    with pytest.raises(UserError, match=r"init\.weights: other weights than those of init\.digest are in .* now"):
        small_run(tmp_path, "second", f"init.weights={exported}", "training.epochs=2")


def _shift(exported: Path) -> None:
    """Add one to every weight that is a number with fractions."""
    weights = load_file(exported / "model.safetensors")
    save_file({k: v + 1 if v.is_floating_point() else v for k, v in weights.items()}, exported / "model.safetensors")


def test_naming_other_weights_forgets_the_digest_of_the_old_ones(tmp_path: Path) -> None:
    old = {"init": {"weights": "/old", "digest": "abc"}}
    assert compose("simclr", config=old, overrides=["init.weights=/new"]).init == InitConfig("/new", "")
    assert compose("simclr", config=old).init == InitConfig("/old", "abc")


def test_a_relative_folder_means_the_same_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert small_config("init.weights=some/folder").init.weights == str(tmp_path / "some" / "folder")
    assert small_config("init.weights=timm/resnet18").init.weights == "timm/resnet18"


def test_weights_that_do_not_fit_are_refused_with_the_first_differences(exported: Path) -> None:
    weights = read_initial_weights(str(exported))
    with pytest.raises(ConfigError) as caught:
        build_method(small_config("encoder.width=8"), METHODS["simclr"], 1, CPU, 8, weights)
    (problem,) = caught.value.problems
    total = len(weights.tensors) - sum("num_batches" in name for name in weights.tensors)  # all others have a width
    assert problem == (
        f"init.weights: weights of {exported} (small for 1 channels) do not fit small for 1 channels, got "
        "conv1.weight of shape (4, 1, 3, 3) instead of (8, 1, 3, 3); bn1.weight of shape (4,) instead of (8,); "
        f"bn1.bias of shape (4,) instead of (8,) and {total - 3} more; "
        "set the encoder section to what the weights were made for"
    )


def test_few_differences_are_all_listed(donor: Path) -> None:
    weights = encoder_of(donor)
    del weights["bn1.bias"]
    with pytest.raises(ConfigError, match=r"got no tensor bn1\.bias; set the encoder section"):
        build_method(small_config(), METHODS["simclr"], 1, CPU, 8, InitialWeights("test", weights))


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda run: (run / "result.json").unlink(), "the run has not finished, got .*; finish it, or export it"),
        (lambda run: shutil.rmtree(run / "checkpoints"), "the run's weights are gone, got no checkpoint in"),
        (lambda run: (run / "config.yaml").unlink(), "neither an exported encoder nor a run, got .*or timm/NAME"),
    ],
)
def test_a_folder_without_weights_is_refused(donor, tmp_path, spoil, problem):
    copied = tmp_path / "copy"
    shutil.copytree(donor, copied)
    spoil(copied)
    with pytest.raises(UserError, match=f"init.weights: {problem}"):
        read_initial_weights(str(copied))


def test_damaged_weights_are_refused(exported: Path) -> None:
    (exported / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"model\.safetensors is damaged \(.*\); export the encoder again"):
        read_initial_weights(str(exported))


def test_a_refused_start_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither an exported encoder nor a run"):
        small_run(tmp_path, "second", f"init.weights={tmp_path / 'nowhere'}")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Random weights that timm finds on its hub for any name."""
    torch.manual_seed(5)
    weights = dict(timm.create_model("test_resnet").state_dict())
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *given, **more: dict(weights))
    return weights


@pytest.mark.parametrize("source", ["timm/test_resnet", "timm/test_resnet.r160_in1k"])
def test_timms_weights_go_in_bit_for_bit_where_images_have_three_colours(hub: dict[str, Tensor], source: str) -> None:
    weights = read_initial_weights(source)
    encoder = new_encoder(EncoderConfig("timm/test_resnet"), 3, 32)
    start_from(encoder, EncoderConfig("timm/test_resnet"), weights, 3, 32)
    assert equal(dict(encoder.state_dict()), {k: v for k, v in hub.items() if not k.startswith("fc.")})


def test_timms_weights_are_adapted_to_grey_images(hub: dict[str, Tensor]) -> None:
    config = EncoderConfig("timm/test_resnet")
    encoder = new_encoder(config, 1, 8)
    start_from(encoder, config, read_initial_weights("timm/test_resnet"), 1, 8)
    found = encoder.state_dict()
    torch.testing.assert_close(found["conv1.0.weight"], hub["conv1.0.weight"].sum(dim=1, keepdim=True))
    assert all(torch.equal(value, hub[name]) for name, value in found.items() if name != "conv1.0.weight")


def test_timms_resnet18_fits_ours_with_the_imagenet_stem(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    weights = dict(timm.create_model("resnet18").state_dict())
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *given, **more: dict(weights))
    config = EncoderConfig("resnet18", stem="imagenet")
    encoder = new_encoder(config, 3)
    start_from(encoder, config, read_initial_weights("timm/resnet18"), 3, 64)
    theirs = timm.create_model("resnet18", num_classes=0)
    theirs.load_state_dict(encoder.state_dict())
    pixels = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(encoder.eval()(pixels), theirs.eval()(pixels))


def test_what_timm_does_not_have_or_cannot_fetch_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **more: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", fail)
    with pytest.raises(ConfigError, match=r"init\.weights: timm/resnet18: the weights cannot be fetched, got OSError"):
        read_initial_weights("timm/resnet18")
    with pytest.raises(ConfigError, match=r"init\.weights: timm .* has no weights .*did you mean timm/resnet18"):
        read_initial_weights("timm/resnet19")


def test_kept_weights_come_back_and_are_not_overwritten(donor: Path, tmp_path: Path) -> None:
    weights, path = InitialWeights("there", encoder_of(donor)), tmp_path / "init.safetensors"
    init = InitConfig("there", digest_of(weights.tensors))
    keep_weights(path, weights)
    assert kept_weights(path, init).source == "there"
    assert equal(dict(kept_weights(path, init).tensors), dict(weights.tensors))
    keep_weights(path, InitialWeights("elsewhere", {"a": torch.zeros(1)}))
    assert equal(dict(kept_weights(path, init).tensors), dict(weights.tensors))
    with pytest.raises(UserError, match=r"not the weights of init\.digest"):
        kept_weights(path, replace(init, digest="0" * 64))
    with pytest.raises(UserError, match="is damaged"):
        kept_weights(tmp_path / "missing", init)
