"""Folders that are not a whole, fitting export are refused with one clear sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ebclab.errors import UserError
from ebclab.export import load_encoder
from ebclab.export.description import read_description

from .conftest import save, trained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "out")


@pytest.mark.parametrize(("value", "more"), [(torch.nan, ""), (-torch.inf, " and 1 more")])
def test_weights_that_are_not_finite_are_named_and_not_written(tmp_path: Path, value: float, more: str):
    encoder = trained()
    names = list(encoder.state_dict())
    with torch.no_grad():
        for name in names[: 2 if more else 1]:
            encoder.state_dict()[name].view(-1)[-1] = value
    with pytest.raises(UserError, match=f"title: .*, got NaN or infinity in {names[0]}{more}; export another"):
        save(tmp_path / "out", encoder=encoder)
    assert not (tmp_path / "out").exists()


def edit(path: Path, change: Callable[[dict], object]) -> None:
    content = json.loads(path.read_text())
    content.pop("digest", None)  # as older versions wrote it
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("missing", [["model.safetensors"], ["encoder.json"], ["encoder.json", "model.safetensors"]])
def test_a_missing_file_is_named(folder: Path, missing: list[str]):
    for name in missing:
        (folder / name).unlink()
    names = " and ".join(missing)
    with pytest.raises(UserError, match=f"not an exported encoder, {names} not found; `ebclab export RUN --to DIR`"):
        load_encoder(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("format_version"), "has no format_version"),
        (
            lambda c: c.update(format_version=2, architecture="something new"),
            r"written by a newer ebclab, got format_version 2; .*update ebclab",
        ),
        (
            lambda c: c.update(input_size=8, architecture=c["architecture"] | {"name": "timm/test_vit", "width": 0}),
            r"encoder\.json: architecture: .*test_vit cannot be built for .* 1 x 8 x 8",
        ),
        (lambda c: c.pop("input_size"), "input_size: Field required, got nothing"),
        (lambda c: c["normalisation"].update(std=[0.0]), r"normalisation\.std\.0: .* greater than 0, got 0\.0"),
        (
            lambda c: c["architecture"].update(name="resnet"),
            r"architecture\.name: .*got 'resnet'; did you mean resnet(18|50)",
        ),
        (lambda c: c["architecture"].update(name="timm/resnt18"), r"architecture\.name: no such network in timm"),
        (
            lambda c: c["architecture"].update(stem="imagenet"),
            r"architecture\.stem: the small encoder has no such stem",
        ),
        (lambda c: c["architecture"].update(widht=3), "widht"),
        (lambda c: c["normalisation"].update(mean=[0.1, 0.2]), "for each of the 1 channels, got 2 and 1"),
        (lambda c: c.update(feature_size=7), r"feature_size: the architecture gives \d+ features, got 7"),
    ],
)
def test_a_damaged_description_is_explained(folder: Path, change: Callable[[dict], object], message: str):
    edit(folder / "encoder.json", change)
    with pytest.raises(UserError, match=message):
        load_encoder(folder)


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_description_that_is_not_a_json_object_is_refused(folder: Path, text: str):
    (folder / "encoder.json").write_text(text)
    with pytest.raises(UserError, match=r"encoder\.json: (cannot be read|has no format_version)"):
        load_encoder(folder)


@pytest.mark.parametrize("keep", [0, 4, 200, -1, None])
def test_cut_off_weights_are_called_damaged_and_a_pickle_in_their_place_is_never_opened(folder: Path, keep: int | None):
    weights = folder / "model.safetensors"
    if keep is None:
        torch.save({"conv1.weight": torch.zeros(1)}, weights)
    else:
        weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"model\.safetensors: is damaged"):
        load_encoder(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.update({"conv1.weight": torch.zeros(2, 1, 3, 3)}),
            r"conv1\.weight of shape \(2, 1, 3, 3\) instead",
        ),
        (lambda w: w.pop("conv1.weight"), r"no tensor conv1\.weight"),
        (lambda w: w.update({"fc.weight": torch.zeros(2)}), r"an unknown tensor fc\.weight"),
    ],
)
def test_weights_of_another_encoder_are_refused(folder: Path, change: Callable[[dict], object], message: str):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(UserError, match=rf"weights do not match encoder\.json, got {message}"):
        load_encoder(folder)


@pytest.mark.parametrize("device", ["toaster", "cuda:99"])
def test_an_absent_device_is_refused(folder: Path, device: str):
    with pytest.raises(UserError, match=f"device: .*, got '{device}'"):
        load_encoder(folder, device)


def test_one_flipped_bit_in_a_description_is_noticed(folder: Path):
    path = folder / "encoder.json"
    before, own = path.read_bytes(), read_description(path)[0]
    for position in range(0, len(before), 3):
        damaged = bytearray(before)
        damaged[position] ^= 1 << position % 7
        path.write_bytes(damaged)
        if any(before[position - margin : position - margin + 8] == b'"digest"' for margin in range(1, 7)):
            assert read_description(path)[0] == own  # the name of the checksum: the rest is as it was
            continue
        with pytest.raises(UserError, match=rf"^{path}: "):
            read_description(path)
