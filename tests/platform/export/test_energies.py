"""Energies of runs and of their exports: equal to each other, to the card's code, and to loops of the equations."""

import json
import math
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from made_up_images import encoded, pixels, put
from safetensors.torch import load_file, save_file
from torch import Tensor

import ebclab
from ebclab.config import compose, to_yaml
from ebclab.errors import DataError, StoreError, UserError
from ebclab.export.energies import REFERENCES
from ebclab.export.load_energies import load_energies
from ebclab.export.run import export_run
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS

from .conftest import _load_few, code_blocks, run_code

TINY = ["encoder.width=4", "resources.threads=1"]
FORMS = {
    "ebclr": ["method.projection_size=6", "encoder.batch_norm=none", "encoder.activation=leaky_relu"],
    "jem": ["views.normalisation=half"],
    "vem-langevin": ["method.projection_size=6", "method.bank_size=8"],
    "vem-svgd": ["method.projection_size=6", "method.bank_size=8", "method.key_encoder=shared"],
    "vem-image": ["method.projection_size=6", "method.temperature=0.3"],
    "simclr": [],
}
IMAGES = torch.randint(256, (5, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a run of random weights on digits, of which 60 stand for the training set."""
    _load_few(monkeypatch)

    def make(name: str, *settings: str) -> Path:
        config = compose(name, overrides=[*TINY, *FORMS[name], *settings])
        classes = 10 if METHODS[name].needs_labels else 0
        method = build_method(config, METHODS[name], 1, torch.device("cpu"), 8, num_classes=classes)
        with torch.no_grad():  # statistics and slow copies that are not those of the start
            generator = torch.Generator().manual_seed(2)
            for tensor in method.state_dict().values():
                if tensor.is_floating_point():
                    tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator))
        run = RunFolder(tmp_path / name)
        run.checkpoints.mkdir(parents=True)
        run.config_path.write_text(to_yaml(config), encoding="utf-8")
        facts = {"in_channels": 1, "image_size": 8, "mean": [0.3], "std": [0.2], "epochs_done": 1, "scores": {}}
        saved = checkpoint.Checkpoint(2, facts | {"num_classes": classes}, dict(method.state_dict()), {}, {})
        checkpoint.save(run.checkpoints, "last", saved)
        return run.path

    return make


def code_on_the_card(folder: Path) -> list[str]:
    """Return the code of the section on energies, with ebclab and without."""
    return [code for code in code_blocks(folder) if "energies" in code][:2]


@pytest.mark.parametrize("name", [name for name in FORMS if name != "simclr"])
def test_a_run_its_export_and_the_cards_code_give_the_same_energies(tmp_path, run_of, monkeypatch, name):
    folder, _ = export_run(run_of(name), tmp_path / "out")
    monkeypatch.chdir(folder)
    here = f"images = torch.tensor({IMAGES.tolist()}, dtype=torch.uint8)"
    found = run_code(re.sub(r"^images = .*$", here, code_on_the_card(folder)[1], flags=re.MULTILINE), "ebclab")
    of_run = ebclab.load_energies(tmp_path / name)
    of_export = pickle.loads(pickle.dumps(ebclab.load_energies(folder)))  # as Ray workers get them
    expected = of_run.energy(IMAGES)
    assert expected.shape == (5,)
    assert expected.dtype == torch.float32
    assert torch.equal(of_export.energy(IMAGES), expected)
    torch.testing.assert_close(found["likely"], expected, rtol=1e-5, atol=1e-5)
    if name != "jem":
        pairs = of_run.pair_energy(IMAGES, IMAGES)
        assert pairs.shape == (5, 5)
        assert torch.equal(of_export.pair_energy(IMAGES, IMAGES), pairs)
        torch.testing.assert_close(found["pairs"], pairs, rtol=1e-5, atol=1e-5)
        assert of_export.source == "60 training images of digits, chosen by hash"


def test_an_energy_without_pairs_says_so(tmp_path: Path, run_of: Callable[..., Path]) -> None:
    folder, _ = export_run(run_of("jem"), tmp_path / "out")
    assert not any("pair_energy" in code for code in code_on_the_card(folder))
    with pytest.raises(UserError, match=r"energies of pairs are defined for ebclr, vem-langevin, .*, got jem"):
        load_energies(folder).pair_energy(IMAGES, IMAGES)


def test_the_code_with_ebclab_runs_as_printed(tmp_path, run_of, monkeypatch):
    folder, _ = export_run(run_of("ebclr"), tmp_path / "out")
    monkeypatch.chdir(folder)
    names = run_code(code_on_the_card(folder)[0])
    assert names["likely"].shape == (8,)
    assert names["pairs"].shape == (8, 8)
    assert torch.equal(names["likely"], names["energies"].energy(names["images"]))


def test_energies_of_ebclr_are_equations_8_and_20_in_float64(run_of: Callable[..., Path]) -> None:
    found = load_energies(run_of("ebclr"))
    method, tau = found.method.double(), found.method.config.temperature  # type: ignore[attr-defined]
    vectors = []
    for image in found.preprocessing(IMAGES).double():
        z = method.head(method.encoder(image[None]))[0].tolist()
        vectors.append([each / math.sqrt(sum(x * x for x in z)) for each in z])
    references = [[x / math.sqrt(sum(y * y for y in r)) for x in r] for r in found.references.double().tolist()]
    assert len(references) == 60 < REFERENCES

    def pair(a: list[float], b: list[float]) -> float:
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / tau

    energies = torch.tensor([-math.log(sum(math.exp(-pair(z, r)) for r in references)) for z in vectors])
    pairs = torch.tensor([[pair(a, b) for b in vectors] for a in vectors])
    method.float()
    torch.testing.assert_close(found.energy(IMAGES), energies, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.pair_energy(IMAGES, IMAGES), pairs, rtol=1e-4, atol=1e-4)


def test_references_come_from_a_folder_that_has_no_test_part(tmp_path: Path, run_of: Callable[..., Path]) -> None:
    for seed in range(60):
        put(tmp_path / "photos" / f"{seed}.png", encoded(pixels(seed, 8, 8)))
    run = run_of("ebclr", f"data.name=folder:{tmp_path / 'photos'}", "data.colour=grey", "views.recipe=none")
    assert load_energies(run).references.shape == (60, 6)


def test_an_export_of_a_method_without_energies_has_the_files_it_had(tmp_path, run_of):
    run = run_of("simclr")
    folder, _ = export_run(run, tmp_path / "out")
    assert {path.name for path in folder.iterdir()} == {"README.md", "encoder.json", "model.safetensors"}
    assert "nergies" not in (folder / "README.md").read_text(encoding="utf-8").partition("## Method and settings")[0]
    able = "jem, ebclr, vem-langevin, vem-svgd, vem-image"
    for path, sentence in (
        (run, f"{run}: energies are defined for {able}, got a run of simclr"),
        (
            folder,
            f"{folder}: energies need energies.json and energies.safetensors beside an encoder, got neither; name "
            "a run, or export one with energies",
        ),
    ):
        with pytest.raises(UserError) as refused:
            load_energies(path)
        assert str(refused.value) == sentence


@pytest.mark.parametrize("error", [DataError("no such folder"), StoreError("no answer"), None])
def test_a_run_without_its_images_or_a_finite_head_is_exported_without_energies(tmp_path, run_of, monkeypatch, error):
    run = RunFolder(run_of("ebclr"))
    if error is not None:
        monkeypatch.setattr("ebclab.export.load_energies.images_of_run", Mock(side_effect=error))
    else:
        saved = checkpoint.load(run.checkpoints)
        saved.model["head.2.bias"].fill_(torch.nan)
        checkpoint.save(run.checkpoints, "last", replace(saved, step=3))
    folder, notes = export_run(run.path, tmp_path / "out")
    assert {path.name for path in folder.iterdir()} == {"README.md", "encoder.json", "model.safetensors"}
    (note,) = [each for each in notes if "energies" in each]
    assert note.startswith("exported without energies of images, which need vectors of the run's training images: ")


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _with_facts(**facts: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "energies.json").read_text())
        content.pop("digest", None)
        (folder / "energies.json").write_text(json.dumps(content | facts))

    return change


def _with_tensor(name: str, tensor: Tensor | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "energies.safetensors") | ({} if tensor is None else {name: tensor})
        save_file(
            {key: each for key, each in tensors.items() if key != name or tensor is not None},
            folder / "energies.safetensors",
        )

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without("energies.json"), r"energies.json: cannot be read, got .*; export the run again"),
        (_without("energies.safetensors"), r"energies.safetensors: .*; export the run again"),
        (_with_facts(format_version=2), r"energies.json: written by a newer ebclab, got format_version 2; update"),
        (_with_facts(method={"name": "simclr"}), r"energies.json: energies are defined for .*, got a run of simclr"),
        (_with_facts(method={"name": "os:system"}), r"energies.json: the code of os:system is not run to measure"),
        (_with_facts(method={"name": "ebclr", "temperature": -1}), r"energies.json: method.temperature: out of range"),
        (_with_facts(method={"name": "ebclr", "projection_size": 2**40}), r"energies.json: .*does not fit in memory"),
        (_with_facts(num_classes=-1), r"energies.json: num_classes: .*, got -1"),
        (_with_tensor("references", None), r"energies.safetensors: references \(M, 6\) are needed, got none"),
        (_with_tensor("references", torch.ones(3, 5)), r"references \(M, 6\) are needed, got \(3, 5\)"),
        (_with_tensor("head.0.bias", torch.ones(3)), r"tensors do not match energies.json, got head.0.bias of shape"),
    ],
)
def test_a_damaged_export_is_refused_in_one_sentence(exported, tmp_path, change, words):
    folder = Path(shutil.copytree(exported, tmp_path / "copy"))
    change(folder)
    with pytest.raises(UserError, match=words) as refused:
        load_energies(folder)
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of EBCLR with its energies."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        run = run_of.__wrapped__(folder, patch)("ebclr")  # type: ignore[attr-defined]
        return export_run(run, folder / "out")[0]


@pytest.mark.parametrize(
    ("images", "got"),
    [
        (torch.zeros(8, 8), r"images: a tensor \(N, C, H, W\) is needed, got \(8, 8\)"),
        ([1, 2], r"images: a tensor \(N, C, H, W\) is needed, got list"),
        (torch.zeros(0, 1, 8, 8), "images: at least one is needed"),
        (torch.zeros(2, 3, 8, 8), r"images: the encoder expects 1 channel\(s\), got 3"),
    ],
)
def test_what_is_no_image_is_refused(exported: Path, images: object, got: str) -> None:
    with pytest.raises(UserError, match=got):
        load_energies(exported).energy(images)  # type: ignore[arg-type]
