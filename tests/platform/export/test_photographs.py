"""A photograph of 640 x 480 pixels: the exported folder makes of the file what the evaluation of the run made of it."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ebclab
from ebclab.config import compose
from ebclab.data.photograph import Reading
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError
from ebclab.evaluation.features import compute_features
from ebclab.export import load_encoder
from ebclab.export.run import export_run
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import load_trained_encoder
from ebclab.training.display import Listener

from .conftest import code_blocks, run_code


def photograph(path: Path, seed: int, *, rotated: bool) -> None:
    """Write a smooth picture with a bright left border, which a crop of the centre leaves out."""
    generator = np.random.default_rng(seed)
    coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    picture = coarse.resize((640, 480), Image.Resampling.BICUBIC)
    picture.paste((255, 255, 255), (0, 0, 70, 480))
    exif = Image.Exif()
    exif[0x0112] = 6 if rotated else 1  # orientation
    picture.save(path, exif=exif, quality=90)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of two classes; the first is turned by its EXIF orientation."""
    folder = tmp_path_factory.mktemp("photographs")
    for number in range(24):
        place = folder / ("cats" if number % 2 else "dogs")
        place.mkdir(exist_ok=True)
        photograph(place / f"{number:02}.jpg", number, rotated=False)
    return folder


VIEWS = ["views.recipe=none", "views.flip_rate=0.5", "encoder.width=4", "training.batch_size=8", "training.epochs=1"]
VIEWS += ["evaluation.knn_every=0"]


@pytest.fixture(
    scope="module",
    params=[("rgb", 40, 24, "full"), ("grey", 24, 24, "reduced"), ("rgb", 0, 32, "full")],
    ids=["cropped, then resized", "reduced, grey", "squeezed"],
)
def exported(
    request: pytest.FixtureRequest, photographs: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A run on the photographs, and its export."""
    colour, resize, size, decoding = request.param
    folder = tmp_path_factory.mktemp("run")
    settings = [f"data.colour={colour}", f"data.resize={resize}", f"views.image_size={size}", "resources.threads=1"]
    settings.append(f"data.decoding={decoding}")
    config = compose("simclr", overrides=[f"data.name=folder:{photographs}", *VIEWS, *settings])
    run = ebclab.pretrain(config, runs=folder, name="one", display=Listener())
    return run.path, export_run(run.path, folder / "encoder")[0]


def evaluated(run: Path, number: int) -> Tensor:
    """Return the features that ``evaluate`` has of one image, which probes are given."""
    trained = load_trained_encoder(RunFolder(run))
    data = trained.config.data
    images = load_split(data.name, None, "train", Reading.of(data)).images[number : number + 1]
    return compute_features(trained.encoder, images, trained.preprocessing, batch_size=1, device="cpu")


def code_for(folder: Path, photo: Path) -> list[str]:
    """Return the card's code for files: as it stands, but with the path of a file in place of photo.jpg."""
    lines = [re.sub(r"^images = .*\n# (images = )", r"\1", block, flags=re.MULTILINE) for block in code_blocks(folder)]
    assert all("photo.jpg" in block and "randint" not in block for block in lines)
    return [block.replace("photo.jpg", str(photo)) for block in lines]


def test_the_card_s_lines_give_a_file_the_bits_that_the_evaluation_gave_it(
    exported: tuple[Path, Path], photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = exported
    alone = shutil.copytree(folder, tmp_path / "alone")
    expected = evaluated(run, 0)  # files are read in the order of their names: cats/01.jpg comes first
    with_ebclab, without = code_for(alone, photographs / "cats" / "01.jpg")
    monkeypatch.chdir(alone)
    torch.testing.assert_close(run_code(with_ebclab)["features"], expected, rtol=0, atol=0)
    torch.testing.assert_close(run_code(without, "ebclab")["features"], expected, rtol=0, atol=0)


def test_tensors_of_photographs_are_cropped_as_files_are(exported: tuple[Path, Path], photographs: Path) -> None:
    run, folder = exported
    encoder, preprocessing, info = load_encoder(folder)
    channels = "RGB" if info["in_channels"] == 3 else "L"
    with Image.open(photographs / "cats" / "01.jpg") as picture:
        pixels = torch.from_numpy(np.array(picture.convert(channels)).reshape(480, 640, -1)).permute(2, 0, 1)[None]
    if info["decoding"] == "full":  # nobody can tell how tensors were decoded
        with torch.no_grad():
            torch.testing.assert_close(encoder(preprocessing(pixels)), evaluated(run, 0), rtol=0, atol=0)
    if info["read_size"]:
        with pytest.raises(DataError, match=r"cropped and scaled as bytes, got torch.float32 of 640 x 480; give uint8"):
            preprocessing(pixels.float() / 255)


def test_description_and_card_say_the_rule(exported: tuple[Path, Path]) -> None:
    _, folder = exported
    info = json.loads((folder / "encoder.json").read_text())
    rule, size = info["rule"], info["input_size"]
    crop = f"the largest central square, scaled to {info['read_size']} x {info['read_size']} bytes"
    assert (crop in rule) == (info["read_size"] > 0)
    assert ("an image of another shape is squeezed" in rule) == (info["read_size"] == 0)
    assert f"resized to {size} x {size}" in rule
    assert rule in (folder / "README.md").read_text()


def test_a_file_is_turned_upright(exported: tuple[Path, Path], tmp_path: Path) -> None:
    preprocessing = load_encoder(exported[1]).preprocessing
    photograph(tmp_path / "plain.jpg", 3, rotated=False)
    photograph(tmp_path / "rotated.jpg", 3, rotated=True)
    plain, rotated = (preprocessing.read(tmp_path / f"{name}.jpg") for name in ("plain", "rotated"))
    if preprocessing.read_size == 0:
        assert torch.equal(rotated, plain.rot90(-1, (1, 2)))  # the camera was held on its side
    assert rotated.shape == plain.transpose(1, 2).shape
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(DataError, match=r"text.jpg: not a readable image"):
        preprocessing.read(tmp_path / "text.jpg")
