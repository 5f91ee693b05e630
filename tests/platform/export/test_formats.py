"""ONNX and torch.export files: their cards' lines give our features, and a file that differs is never kept."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ebclab.config import compose
from ebclab.config.encoder import EncoderConfig
from ebclab.data.sources.load import load_split
from ebclab.errors import ExportError, UserError
from ebclab.export import formats, load_encoder
from ebclab.export.formats import MODEL_FILES, formats_named
from ebclab.export.run import comparison_for

from .conftest import SMALL, code_blocks, run_code, save

QUARTERS = EncoderConfig(name="small", width=4, stem="strided", pooling="quarters")
RESNET = EncoderConfig(name="resnet18", width=8, stem="imagenet", batch_norm="none", activation="leaky_relu")


def write(folder: Path, asked: list[Any], architecture: EncoderConfig = SMALL, channels: int = 1, **more: Any) -> str:
    return (save(folder, architecture, channels, 24, formats=asked, **more) / "README.md").read_text()


ENCODERS = {"quarters": (QUARTERS, 1), "resnet": (RESNET, 3)}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two encoders, each in both formats, compared on images."""
    folders = {}
    for name, (architecture, channels) in ENCODERS.items():
        images = torch.randint(
            256, (5, channels, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
        )
        more: Any = {"formats": [*MODEL_FILES], "comparison": (images, "5 <b>made-up</b> images")}
        folders[name] = save(tmp_path_factory.mktemp("formats") / "out", architecture, channels, 24, **more)
    return folders


@pytest.fixture(params=ENCODERS)
def exported(request: pytest.FixtureRequest, both: dict[str, Path]) -> Path:
    """One of them."""
    return both[request.param]


def test_the_printed_lines_give_the_features_of_the_exported_encoder_and_need_no_ebclab(exported, monkeypatch):
    monkeypatch.chdir(exported)
    loaded = load_encoder(exported)
    for file, code in zip(MODEL_FILES.values(), code_blocks(exported)[-2:], strict=True):
        assert file in code
        names = run_code(code, "ebclab", "energy_contrast")
        with torch.no_grad():
            expected = loaded.encoder(loaded.preprocessing(names["images"]))
        assert torch.as_tensor(names["features"]).shape == (8, loaded.info["feature_size"])
        torch.testing.assert_close(torch.as_tensor(names["features"]), expected, rtol=0, atol=1e-4)


def test_all_files_open_in_a_python_that_has_no_ebclab(both: dict[str, Path], tmp_path: Path) -> None:
    code = "import os\nimport sys\nsys.modules['ebclab'] = sys.modules['energy_contrast'] = None\n"
    expected = ""
    for folder in both.values():
        code += f"os.chdir({str(folder)!r})\n"
        code += "".join(f"{block}print(tuple(features.shape))\n" for block in code_blocks(folder)[-2:])
        expected += f"(8, {load_encoder(folder).info['feature_size']})\n" * 2
    (tmp_path / "lines.py").write_text(code)
    command = [sys.executable, "-I", str(tmp_path / "lines.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == expected, done.stderr


def test_the_card_says_the_difference_that_was_measured_and_on_what(exported: Path) -> None:
    import onnxruntime

    loaded = load_encoder(exported)
    channels = loaded.info["in_channels"]
    images = torch.randint(256, (5, channels, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    pixels = loaded.preprocessing(images)
    session = onnxruntime.InferenceSession(str(exported / "model.onnx"))
    got = torch.cat([torch.from_numpy(session.run(None, {"images": part.numpy()})[0]) for part in pixels.split([1, 4])])
    with torch.no_grad():
        difference = (got - loaded.encoder(pixels)).abs().max().item()
    card = (exported / "README.md").read_text()
    assert f"by at most {difference:.1e}, measured on 5 &lt;b&gt;made-up&lt;/b&gt; images." in card


def test_without_images_noise_stands_in_and_the_card_says_so(tmp_path: Path) -> None:
    assert "measured on 32 images of uniform noise, as the run's own were not available." in write(
        tmp_path / "out", ["torch-export"]
    )


@pytest.mark.parametrize(("shift", "said"), [(2e-4, "0.0002"), (float("nan"), "nan"), (2.0**-14, "")])
def test_a_difference_above_one_in_ten_thousand_fails_and_leaves_nothing(tmp_path, monkeypatch, shift, said):
    def shifted(encoder: Any, path: Path, example: Any) -> Callable[[Any], Any]:
        path.write_bytes(b"file")
        return lambda batch: encoder(batch) + torch.tensor([shift] + [0.0] * 15)

    monkeypatch.setattr(formats, "_torch_export", shifted)
    if not said:  # 6.1e-05; exact beside features below 1
        assert "differ from the encoder's by at most 6.1e-05" in write(tmp_path / "out", ["torch-export"])
        return
    with pytest.raises(ExportError, match=rf"a difference of {said} on 32 images .* at most 0\.0001") as error:
        write(tmp_path / "out", ["torch-export"])
    assert error.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_comes_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(UserError, match=r"got no onnxruntime; run `pip install 'onnx>=1.19' 'onnxruntime") as error:
        formats_named(["onnx"])
    assert error.value.exit_code == 2
    assert formats_named(["torch-export", "safetensors", "torch-export"]) == ["torch-export"]


def test_files_are_compared_on_held_out_images_of_the_run() -> None:
    found = comparison_for(compose("simclr", overrides=["data.holdout_rate=0.2", "data.train_limit=300"]), 1)
    images, source = found
    assert re.fullmatch(r"\d+ held-out images of digits", source)
    whole = load_split("digits", None, "train").images.flatten(1)
    assert all((whole == image).all(dim=1).any() for image in images.flatten(1))


@pytest.mark.parametrize(("settings", "channels"), [([], 3), (["data.name=cifar10", "data.root=/nowhere"], 3)])
def test_images_that_are_missing_or_of_other_channels_are_not_compared_on(settings: list[str], channels: int) -> None:
    assert comparison_for(compose("simclr", overrides=settings), channels) is None
