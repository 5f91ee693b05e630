"""What others open by name: timm the folder, the Hugging Face Hub the card."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import ModelCard
from PIL import Image
from safetensors import safe_open
from torch import Tensor

from ebclab.config.encoder import EncoderConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import new_encoder
from ebclab.evaluation.answers import Score
from ebclab.export import CardFacts
from ebclab.export.card import render_card
from ebclab.export.description import describe

from .conftest import FACTS, save, trained

TOKENS = (EncoderConfig(name="timm/test_vit"), 1, 32)
BATCH_NORM = (EncoderConfig(name="timm/test_resnet"), 3, 24)
SHARED = (EncoderConfig(name="timm/coat_lite_tiny"), 3, 32)  # layers share weights
OURS = (EncoderConfig(name="resnet18", stem="imagenet"), 1, 32)
NOT_IN_TIMM = (EncoderConfig(name="resnet18", width=8, stem="imagenet"), 3, 32), (EncoderConfig(name="small"), 1, 8)


def exported(folder: Path, architecture: EncoderConfig, channels: int, size: int) -> tuple[Tensor, Tensor]:
    """Export an encoder; return images and its features of them."""
    encoder = trained(architecture, channels, size)
    save(folder, architecture, channels, size, encoder=encoder, read_size=size)
    images = torch.rand(3, channels, size, size)
    with torch.no_grad():
        return images, encoder(images)


@pytest.mark.parametrize("encoder", [TOKENS, BATCH_NORM, SHARED, OURS], ids=lambda encoder: encoder[0].name)
def test_timm_opens_the_folder_by_name_with_the_same_bits(tmp_path, encoder):
    images, features = exported(tmp_path / "out", *encoder)
    name = f"local-dir:{tmp_path / 'out'}"
    network = timm.create_model(name, pretrained=True).eval()
    classifier = timm.create_model(name, pretrained=True, num_classes=5).eval()
    with torch.no_grad():
        assert torch.equal(network(images), features)
        assert classifier(images).shape == (3, 5)
        hidden = classifier.forward_head(classifier.forward_features(images), pre_logits=True)
    assert torch.equal(hidden, features)
    how = timm.data.resolve_model_data_config(network)
    assert how["input_size"] == tuple(images.shape[1:])
    assert tuple(how["mean"]) == (0.31, 0.42, 0.53)[: encoder[1]]
    assert (how["crop_pct"], how["interpolation"]) == (1.0, "bilinear")


@pytest.mark.slow
def test_a_process_that_knows_timm_alone_gets_the_same_bits(tmp_path: Path) -> None:
    torch.save(exported(tmp_path / "out", *TOKENS), tmp_path / "expected.pt")
    code = """
import sys, timm, torch
images, features = torch.load("expected.pt", weights_only=True)
with torch.no_grad():
    same = torch.equal(timm.create_model("local-dir:out", pretrained=True).eval()(images), features)
assert not {"ebclab", "energy_contrast"} & set(sys.modules)
sys.exit(not same)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("encoder", NOT_IN_TIMM, ids=["narrow", "small"])
def test_what_timm_has_no_network_for_is_said_in_a_sentence(tmp_path, encoder):
    exported(tmp_path / "out", *encoder)
    assert not (tmp_path / "out" / "config.json").exists()
    assert "timm cannot open this folder: it has no such network.\n" in (tmp_path / "out" / "README.md").read_text()


def test_the_hub_reads_what_the_card_is_about(tmp_path: Path) -> None:
    exported(tmp_path / "out", *BATCH_NORM)
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as weights:
        assert weights.metadata() == {"format": "pt"}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["num_classes"] == 0
    architecture, channels, size = BATCH_NORM
    description = describe(trained(*BATCH_NORM), architecture, channels, Preprocessing(size, (0.5,) * 3, (0.25,) * 3))
    bad = "a: [<b\n---\n# c"
    scores = [Score(bad, 0.98765, 0.9, 1.0, 10, "how"), Score("linear probe", 0.5, 0.4, 0.6, 10, "how")]
    text = render_card(CardFacts(bad, bad, "seed: 0\n", scores=scores, dataset=bad), description, {})
    data = ModelCard(text).data
    line = "a: [b --- # c"
    assert (data.library_name, data.pipeline_tag, data.license) == ("timm", "image-feature-extraction", None)
    assert data.tags == ["image-feature-extraction", "self-supervised-learning", "ebclab", line, "timm"]
    found = [(each.metric_name, each.metric_value, each.dataset_name) for each in data.eval_results]
    assert found == [(line, 98.77, line), ("linear probe", 50.0, line)]
    assert data.model_name == line
    held = render_card(CardFacts("t", "m", "", scores=scores, dataset="d", held_out=True), description, {})
    assert ModelCard(held).data.eval_results is None
    assert "| held-out images |" in held
    assert "test images" not in held
    assert ModelCard(render_card(FACTS, description, {})).data.eval_results is None


@pytest.mark.parametrize(("read_size", "is_a_rounding"), [(0, True), (32, False), (64, False)])
def test_the_card_says_how_timms_transforms_differ(tmp_path: Path, read_size: int, is_a_rounding: bool) -> None:
    """They differ by less than a level where images are only resized, and by many where they are cropped."""
    y, x = torch.meshgrid(torch.arange(61), torch.arange(99), indexing="ij")
    picture = Image.fromarray((127 + 127 * torch.sin(x / 2) * torch.cos(y / 3)).to(torch.uint8).numpy())
    picture.save(tmp_path / "waves.png")
    seen = Preprocessing(32, (0.0,), (1.0,), read_size)
    how = {"crop_pct": 1.0, "crop_mode": "center" if read_size else "squash", "interpolation": "bilinear"}
    transform = timm.data.create_transform((1, 32, 32), mean=(0.0,), std=(1.0,), **how)
    gap = 255 * (transform(picture) - seen(seen.read(tmp_path / "waves.png")[None])[0]).abs().max()
    assert (float(gap) < 1) == is_a_rounding
    assert is_a_rounding or float(gap) > 10
    architecture, channels, _ = OURS
    described = describe(new_encoder(architecture, channels), architecture, channels, seen)
    assert ("differ by a rounding" in render_card(FACTS, described, {})) == is_a_rounding
