"""What is exported comes back with the same bits, and what is no whole, fitting export is one clear sentence."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kill_points import LOSSES, Loss, killed_everywhere
from safetensors.torch import load_file, save_file

from ebclab.card.subject import open_subject
from ebclab.config.encoder import EncoderConfig
from ebclab.errors import UserError
from ebclab.export import CardFacts, load_encoder
from ebclab.export.description import _counterpart, read_description
from ebclab.export.place import refuse_occupied
from energy_contrast.networks import build_encoder

from .conftest import SMALL, save, seen_at, trained

FILES = {"model.safetensors", "encoder.json", "README.md"}


def titled(title: str) -> CardFacts:
    return CardFacts(title, "simclr", "method: {name: simclr}\n")


@pytest.mark.parametrize(
    ("architecture", "in_channels"),
    [
        (SMALL, 1),
        (EncoderConfig(name="small", width=4, batch_norm="none", activation="leaky_relu"), 3),
        (EncoderConfig(name="resnet18", width=4, stem="cifar", initialisation="torch"), 1),
        (EncoderConfig(name="resnet18", width=4, stem="imagenet"), 3),
        (EncoderConfig(name="small", width=4, stem="strided", pooling="quarters"), 1),
    ],
)
def test_an_export_comes_back_with_the_same_bits(tmp_path: Path, architecture: EncoderConfig, in_channels: int):
    encoder, preprocessing = trained(architecture, in_channels), seen_at(12, in_channels)
    save(tmp_path / "out", architecture, in_channels, encoder=encoder)
    loaded = load_encoder(tmp_path / "out")
    images = torch.randint(256, (3, in_channels, 16, 16), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.equal(loaded.encoder(loaded.preprocessing(images)), encoder(preprocessing(images)))
    assert not loaded.encoder.training
    assert loaded.preprocessing == preprocessing


def test_the_folder_holds_three_files_and_the_description_says_what_is_needed(tmp_path: Path):
    folder = save(tmp_path / "deep" / "out")
    assert {path.name for path in folder.iterdir()} == FILES
    info = load_encoder(folder).info
    assert info["format_version"] == 1
    described = {"name": "small", "stem": "cifar", "width": 4, "batch_norm": "global", "activation": "relu"}
    assert info["architecture"] == described
    assert (info["in_channels"], info["input_size"]) == (1, 12)
    assert info["normalisation"] == {"mean": [0.31], "std": [0.21]}
    assert info["feature_size"] == trained()(torch.rand(2, 1, 12, 12)).shape[1]
    assert info["counterpart"] is None
    assert info["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("architecture", "counterpart"),
    [
        (EncoderConfig(name="resnet18"), "torchvision.models.resnet18"),
        (EncoderConfig(name="resnet18", width=64, stem="imagenet"), "torchvision.models.resnet18"),
        (EncoderConfig(name="resnet50"), "torchvision.models.resnet50"),
        (EncoderConfig(name="wrn28", width=16), None),
        (EncoderConfig(name="pyramidnet-8-6"), None),
        (EncoderConfig(name="resnet18", width=32), None),
        (EncoderConfig(name="resnet18", batch_norm="none"), None),
        (EncoderConfig(name="resnet18", activation="leaky_relu"), None),
        (EncoderConfig(name="resnet18", stem="strided"), "torchvision.models.resnet18"),
        (EncoderConfig(name="resnet18", pooling="quarters"), None),
        (EncoderConfig(name="small"), None),
    ],
)
def test_a_counterpart_is_named_only_for_the_standard_resnets(architecture: EncoderConfig, counterpart: str | None):
    assert _counterpart(architecture) == counterpart


def test_weights_in_channels_last_memory_order_are_stored_with_the_same_values(tmp_path: Path):
    encoder = trained().to(memory_format=torch.channels_last)
    stored = load_file(save(tmp_path / "out", encoder=encoder) / "model.safetensors")
    assert all(torch.equal(stored[name], tensor) for name, tensor in encoder.state_dict().items())


def test_saving_and_loading_leave_the_global_generator_alone(tmp_path: Path):
    encoder = trained()
    before = torch.get_rng_state()
    load_encoder(save(tmp_path / "out", encoder=encoder))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_encoder_of_another_architecture_is_not_saved(tmp_path: Path):
    with pytest.raises(
        ValueError, match=r"encoder: is not what its architecture describes, got conv1\.weight of shape"
    ):
        save(tmp_path / "out", encoder=build_encoder("small", in_channels=1, width=8))
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_export_is_replaced_only_when_asked(tmp_path: Path):
    folder = save(tmp_path / "out", facts=titled("first"))
    with pytest.raises(UserError, match="already holds an exported encoder"):
        save(folder, facts=titled("second"))
    assert (folder / "README.md").read_text().split("---\n\n")[1].startswith("# first\n")
    save(folder, facts=titled("second"), overwrite=True)
    assert (folder / "README.md").read_text().split("---\n\n")[1].startswith("# second\n")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_is_filled_with_files_that_others_may_read(tmp_path: Path):
    (tmp_path / "out").mkdir()
    folder = save(tmp_path / "out")
    assert (folder / "model.safetensors").stat().st_mode == (folder / "README.md").stat().st_mode


@pytest.mark.parametrize(
    ("mine", "beside_an_export", "said"),
    [
        ("out/thesis.tex", True, r"holds other files, got thesis\.tex; choose a new or empty folder"),
        ("out/README.md", False, r"is not an earlier export, got no encoder\.json of ebclab"),
        ("out", False, "is not a folder that can be read"),
    ],
)
def test_what_is_not_an_export_is_left_alone(tmp_path: Path, mine: str, beside_an_export: bool, said: str):
    if beside_an_export:
        save(tmp_path / "out")
    (tmp_path / mine).parent.mkdir(exist_ok=True)
    (tmp_path / mine).write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UserError, match=said):
            save(tmp_path / "out", overwrite=overwrite)
    assert (tmp_path / mine).read_text() == "years of work"


def test_a_place_that_cannot_hold_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="out: cannot be written"):
        save(tmp_path / "file" / "out")


def test_a_place_in_a_private_folder_is_refused_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(path: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "stat", refused)  # root, as which tests may run, is never refused
    with pytest.raises(UserError, match="/out: cannot be used, got Permission denied; choose another folder"):
        refuse_occupied(tmp_path / "out", False)


@pytest.mark.parametrize("failing", ["write_text", "rename"])
def test_a_failure_half_way_leaves_the_earlier_export_whole(tmp_path, monkeypatch, failing):
    folder = save(tmp_path / "out", facts=titled("first"))
    original = getattr(Path, failing)

    def fail(path: Path, *args: object, **options: object) -> object:
        # the card cannot be written, or the finished folder cannot take its place after the old one was moved away
        if path.name == "README.md" or (failing == "rename" and args[0] == folder and not folder.exists()):
            monkeypatch.setattr(Path, failing, original)
            raise OSError(28, "No space left on device")
        return original(path, *args, **options)

    monkeypatch.setattr(Path, failing, fail)
    with pytest.raises(UserError, match=r"cannot be written, got No space left on device"):
        save(folder, facts=titled("second"), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (folder / "README.md").read_text().split("---\n\n")[1].startswith("# first\n")
    load_encoder(folder)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_export_that_is_replaced_is_whole_at_every_moment(tmp_path: Path, loss: Loss) -> None:
    old, new = trained(), trained()
    with torch.no_grad():
        next(new.parameters()).add_(1.0)
    first = [next(encoder.parameters()).flatten()[0].item() for encoder in (old, new)]
    seen, before = [], save(tmp_path / "before", encoder=old)
    for folder in killed_everywhere(
        tmp_path,
        lambda folder: shutil.copytree(before, folder / "out"),
        lambda folder: save(folder / "out", encoder=new, overwrite=True),
        loss,
    ):
        found = load_encoder(folder / "out").encoder
        seen.append(first.index(next(found.parameters()).flatten()[0].item()))
        subject = open_subject(str(folder / "out"))
        assert subject.label == "out"
        assert torch.equal(next(subject.encoder.parameters()), next(found.parameters()))
        with pytest.raises(UserError, match="already holds an exported encoder"):
            save(folder / "out", encoder=new)
        save(folder / "out", encoder=new, overwrite=True)
        assert {path.name for path in (folder / "out").iterdir()} == FILES
        assert not (folder / ".out.replaced").exists()
    assert seen == sorted(seen)
    assert set(seen) == {0, 1}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_new_export_is_whole_or_absent(tmp_path: Path, loss: Loss) -> None:
    encoder = trained()
    for folder in killed_everywhere(
        tmp_path, lambda folder: None, lambda folder: save(folder / "out", encoder=encoder), loss
    ):
        if (folder / "out").exists():
            load_encoder(folder / "out")
        else:
            save(folder / "out", encoder=encoder)


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
