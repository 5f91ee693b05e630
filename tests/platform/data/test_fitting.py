"""What is chosen for images named by their place: by their sizes, below what is said, and said in a line."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ebclab.config import compose, to_mapping
from ebclab.data.fitting import SampledSizes, choose, fitted, look
from ebclab.data.photograph import size_in_header
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.load import open_source
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
        (seen((32, 32), count=20), {}, {**SMALL, "training.batch_size": 8}),
        (seen((32, 32)), {"data.train_limit": 452}, {**SMALL, "training.batch_size": 64}),
        (seen((32, 32), count=452), {"training.batch_size": 256}, SMALL),
    ],
)
def test_the_choice_follows_the_rule_of_the_page(
    images: SampledSizes, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert choose(images, given) == expected


def save(path: Path, width: int, height: int, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return path


def test_the_size_is_that_of_the_upright_image_and_no_pixel_is_decoded(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "lying.jpg", 40, 30, exif=exif)
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
        "13 images of 40 pixels on their shorter side (12 looked at); chosen for them: data.resize=32,"
    )

    again = compose("simclr", config=to_mapping(config), fit=lambda mapping: fitted(mapping, said.append))
    assert again == config
    assert len(said) == 1  # a run's own settings leave nothing to choose
    auto = compose(
        "simclr", overrides={**overrides, "views.recipe": "auto"}, fit=lambda mapping: fitted(mapping, print)
    )
    assert auto == config
    with pytest.raises(ConfigError, match="no usual views for images named by their place"):
        compose("simclr", overrides=overrides)
    with pytest.raises(DataError, match="no such folder"):
        compose("simclr", overrides={"data.name": "folder:/absent"}, fit=fitted)


def test_a_dataset_of_the_catalogue_is_left_alone() -> None:
    assert compose("simclr", fit=fitted) == compose("simclr")


def test_of_a_parquet_set_few_row_groups_are_looked_at_and_tensors_have_one_size(tmp_path: Path) -> None:
    encoded = [save(tmp_path / f"{number}.png", 20 + number, 30).read_bytes() for number in range(6)]
    pq.write_table(pa.table({"image": encoded}), tmp_path / "encoded.parquet", row_group_size=1)
    found = look(open_source(f"parquet:{tmp_path / 'encoded.parquet'}", "train", Reading()))
    assert (found.num_images, len(found.sizes), found.stored) == (6, 4, False)
    assert set(found.sizes) <= {(20 + number, 30) for number in range(6)}

    flat = pa.array([[0] * 48] * 5, pa.list_(pa.uint8(), 48))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.uint8(), (3, 4, 4)), flat)
    pq.write_table(pa.table({"image": tensors}), tmp_path / "tensors.parquet")
    assert look(open_source(f"parquet:{tmp_path / 'tensors.parquet'}", "train", Reading())) == SampledSizes(
        5, 3, [(4, 4)], True
    )


def test_of_tars_and_of_arrow_sets_the_sizes_of_images_are_looked_at_too(tmp_path: Path) -> None:
    sizes = [(40 + number, 60) for number in range(6)]
    files = [save(tmp_path / "photos" / f"{width}.png", width, height) for width, height in sizes]
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for file in files:
            tar.add(file, file.name)
    found = look(open_source(f"webdataset:{tmp_path / 'a.tar'}", "train", Reading()))
    assert (found.num_images, sorted(found.sizes), found.stored) == (6, sizes, False)

    table = pa.table({"image": [file.read_bytes() for file in files]})
    (tmp_path / "saved").mkdir()
    with pa.OSFile(str(tmp_path / "saved/a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    (tmp_path / "saved/state.json").write_text('{"_data_files": [{"filename": "a.arrow"}]}')
    found = look(open_source(f"arrow:{tmp_path / 'saved'}", "train", Reading()))
    assert (found.num_images, len(found.sizes), found.stored) == (6, 4, False)
    assert set(found.sizes) <= set(sizes)


def test_the_folder_above_a_set_is_noticed(tmp_path: Path) -> None:
    for part in ("train", "test"):
        save(tmp_path / "photos" / part / "cat" / "a.png", 8, 8)
    with pytest.raises(DataError, match=rf"got folders train and test in it; give folder:{tmp_path}/photos"):
        fitted({"data": {"name": f"folder:{tmp_path}"}})
    assert fitted({"data": {"name": f"folder:{tmp_path}/photos"}})
