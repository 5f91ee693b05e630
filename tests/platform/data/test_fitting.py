"""What is chosen for images named by their place: by their sizes, below what is said, and said in a line."""

from pathlib import Path
from typing import Any

import pytest
from made_up_images import encoded, pixels, put
from PIL import Image

from ebclab.config import compose, to_mapping
from ebclab.data.fitting import SampledSizes, choose, fitted
from ebclab.data.holdout import rows_of_parts
from ebclab.data.photograph import Reading, size_in_header
from ebclab.data.sources.load import load_split, open_source
from ebclab.errors import ConfigError, DataError


def seen(*sizes: tuple[int, int], count: int = 10_000, channels: int = 3, stored: bool = False) -> SampledSizes:
    return SampledSizes(count, channels, list(sizes), stored)


SMALL = {"views.recipe": "flatclr-cifar", "encoder.name": "small"}
LARGE = {"views.recipe": "simclr-imagenet", "encoder.name": "resnet18", "encoder.stem": "imagenet"}
PHOTOGRAPHS = seen(*[(640, 480)] * 5, *[(300, 400)] * 5)


@pytest.mark.parametrize(
    ("images", "given", "expected"),
    [
        (seen((28, 28), channels=1), {}, {"views.recipe": "fashion-mnist", "encoder.name": "small"}),
        (seen((32, 32)), {}, SMALL),
        (seen((64, 64)), {}, {**SMALL, "encoder.name": "resnet18", "encoder.stem": "cifar"}),
        (seen((96, 96)), {}, {**LARGE, "views.image_size": 96}),
        (seen((256, 256)), {}, LARGE),  # kept: 256 pixels, from which crops of 224 are made
        (seen((257, 257)), {}, {"data.resize": 224, **LARGE}),
        (seen((200, 150)), {}, {"data.resize": 128, **LARGE, "views.image_size": 128}),  # 4 x 32 pixels fit into 150
        (seen((200, 150), stored=True), {}, {**LARGE, "views.image_size": 150}),  # tensors keep their size
        (seen((30, 20), (20, 21)), {}, {"data.resize": 20, **SMALL}),
        (PHOTOGRAPHS, {}, {"data.resize": 224, **LARGE}),
        # One image in ten, and not more, may be smaller than the side.
        (seen((50, 50), *[(320, 320)] * 9), {}, {"data.resize": 224, **LARGE}),
        (seen((50, 50), (50, 50), *[(320, 320)] * 8), {}, {"data.resize": 32, **SMALL}),
        (PHOTOGRAPHS, {"data.resize": 64}, {**SMALL, "encoder.name": "resnet18", "encoder.stem": "cifar"}),
        (PHOTOGRAPHS, {"views.image_size": 64}, {"data.resize": 224, **LARGE, "encoder.stem": "cifar"}),
        (
            PHOTOGRAPHS,
            {"encoder.name": "timm/vit_tiny_patch16_224"},
            {"data.resize": 224, "views.recipe": LARGE["views.recipe"]},
        ),
        (PHOTOGRAPHS, {"init.weights": "runs/x"}, {"data.resize": 224, "views.recipe": LARGE["views.recipe"]}),
        (PHOTOGRAPHS, {"views.recipe": "byol-imagenet"}, {"data.resize": 224}),
        (seen((640, 480)), {"views.recipe": "byol-imagenet"}, {}),  # one size, and somebody's own views
        (seen((32, 32), count=452), {}, {**SMALL, "training.batch_size": 64}),  # 452 / 4 = 113
        # cctd-ml-machine#461: no more neighbours than half the images
        (seen((32, 32), count=40), {}, {**SMALL, "training.batch_size": 8}),
        (seen((32, 32), count=39), {}, {**SMALL, "training.batch_size": 8, "evaluation.knn_neighbours": 19}),
        (seen((32, 32), count=1), {}, {**SMALL, "training.batch_size": 2, "evaluation.knn_neighbours": 1}),
        (seen((32, 32)), {"data.train_limit": 17}, {**SMALL, "training.batch_size": 8, "evaluation.knn_neighbours": 8}),
        (seen((32, 32)), {"data.train_limit": 452}, {**SMALL, "training.batch_size": 64}),
        (seen((32, 32), count=452), {"training.batch_size": 256}, SMALL),
    ],
)
def test_the_choice_follows_the_rule_of_the_page(images, given, expected):
    assert choose(images, given) == expected


@pytest.mark.parametrize("count", [2, 5, 9, 17])
def test_a_set_of_few_images_trains_with_what_is_chosen_for_it(tmp_path: Path, count: int) -> None:
    """tabnet#537, spt#373: what the program chose itself was larger than the set."""
    for number in range(count):
        save(tmp_path / "ab"[number % 2] / f"{number}.png", 8, 8 + number // 99)
    name = f"folder:{tmp_path}"
    config = compose("simclr", overrides={"data.name": name}, fit=fitted)
    train, holdout, _ = rows_of_parts(open_source(name, "train", Reading()).index.keys, 0, config.data.holdout_rate, 0)
    assert 2 <= config.training.batch_size <= len(train)
    assert len(holdout) == 0 or config.evaluation.knn_neighbours <= len(train)


def save(path: Path, width: int, height: int, form: str = "PNG", **options: Any) -> Path:
    return put(path, encoded(pixels(width * height, height, width), form, **options))


def test_the_size_is_that_of_the_upright_image_and_no_pixel_is_decoded(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "lying.jpg", 40, 30, "JPEG", exif=exif)
    (tmp_path / "cut.jpg").write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for file in (path, tmp_path / "cut.jpg"):
        with file.open("rb") as opened:
            assert size_in_header(opened) == (30, 40)


def test_a_folder_of_mixed_sizes_is_ready_to_train_and_what_is_said_wins(tmp_path: Path) -> None:
    for number in range(12):
        save(tmp_path / "a" / f"{number}.png", 40 + number, 40)
    (tmp_path / "a" / "damaged.png").write_text("none")
    said: list[str] = []
    overrides = {"data.name": f"folder:{tmp_path}", "views.flip_rate": 0.25}
    config = compose("simclr", overrides=overrides, fit=lambda mapping: fitted(mapping, said.append))
    assert (config.data.resize, config.views.recipe, config.encoder.name) == (32, "flatclr-cifar", "small")
    assert (config.views.flip_rate, config.views.grayscale_rate, config.training.batch_size) == (0.25, 0.2, 8)
    (line,) = said
    assert line.startswith(
        "13 images of 40 pixels on their shorter side (12 looked at); chosen for them: data.resize=32"
    )

    again = compose("simclr", config=to_mapping(config), fit=lambda mapping: fitted(mapping, said.append))
    assert again == config
    assert len(said) == 1  # a run's own settings leave nothing to choose
    auto = compose("simclr", overrides={**overrides, "views.recipe": "auto"}, fit=fitted)
    assert auto == config
    with pytest.raises(ConfigError, match="no usual views for images named by their place"):
        compose("simclr", overrides=overrides)
    with pytest.raises(DataError, match="no such folder"):
        compose("simclr", overrides={"data.name": "folder:/absent"}, fit=fitted)


def test_what_is_told_of_images_is_told_once_whatever_their_path(tmp_path, monkeypatch, caplog) -> None:
    for number in range(12):
        save(tmp_path / "photos" / "ab"[number % 2] / f"{number}.png", 32, 32)
    put(tmp_path / "photos" / "notes.txt", "x")
    monkeypatch.chdir(tmp_path)
    config = compose("simclr", overrides={"data.name": "folder:photos"}, fit=fitted)
    assert len(load_split(config.data.name, None, "train")) == 12
    told = f"folder:{tmp_path}/photos: files that are not read as images were left out: 1 .txt"
    assert [message for message in caplog.messages if "left out" in message] == [told]


def test_a_dataset_of_the_catalogue_is_left_alone() -> None:
    assert compose("simclr", fit=fitted) == compose("simclr")
