"""The card's code runs as printed and gives our features; its text cannot break out; scores are the checkpoint's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch

from ebclab.config import to_yaml
from ebclab.config.encoder import EncoderConfig
from ebclab.document.text import escape_markdown
from ebclab.export import CardFacts, Score, load_encoder
from ebclab.export.run import export_run
from ebclab.runs.evaluate import Evaluation
from ebclab.runs.folder import RunFolder

from .conftest import SMALL, code_blocks, run_code, save

IMAGENET = EncoderConfig(name="resnet18", stem="imagenet")
CIFAR = EncoderConfig(name="resnet18", stem="cifar")
TIMM = EncoderConfig(name="timm/test_efficientnet")
TOKENS = EncoderConfig(name="timm/test_vit")
STRIDED = EncoderConfig(name="resnet18", stem="strided")
QUARTERS = EncoderConfig(name="small", width=4, stem="strided", pooling="quarters")
LEAKY = EncoderConfig(name="resnet18", width=8, batch_norm="none", activation="leaky_relu")


@pytest.mark.parametrize(
    ("architecture", "in_channels"),
    [
        *((IMAGENET, 1), (IMAGENET, 3), (CIFAR, 1), (STRIDED, 3)),  # torchvision's
        *((SMALL, 1), (QUARTERS, 3), (LEAKY, 1)),  # its own class
        *((TIMM, 3), (TOKENS, 1)),
    ],
)
def test_the_printed_lines_give_the_features_of_the_exported_encoder(tmp_path, monkeypatch, architecture, in_channels):
    with_ebclab, without_ebclab, *by_name = code_blocks(save(tmp_path / "out", architecture, in_channels, 32))
    assert "ebclab" not in without_ebclab
    assert ("import torchvision" in without_ebclab) == (architecture in (IMAGENET, CIFAR, STRIDED))
    assert ("encoder.conv1" not in without_ebclab) or architecture != IMAGENET or in_channels == 1
    assert len(by_name) == (architecture in (IMAGENET, TIMM, TOKENS))
    monkeypatch.chdir(tmp_path / "out")
    loaded = load_encoder(tmp_path / "out")
    for code in (with_ebclab, without_ebclab):
        names = run_code(code)
        with torch.no_grad():
            expected = loaded.encoder(loaded.preprocessing(names["images"]))
        torch.testing.assert_close(names["features"], expected, rtol=1e-5, atol=1e-6)
        assert names["features"].shape == (8, loaded.info["feature_size"])
        assert not names["encoder"].training
        for code_by_name in by_name:
            exec(code_by_name, names)
            with torch.no_grad():
                again = names["encoder"](loaded.preprocessing(names["images"]))
            torch.testing.assert_close(again, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stored_size", [20, 47])
def test_the_printed_preprocessing_resizes_like_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_size: int):
    monkeypatch.chdir(save(tmp_path / "out", SMALL, 3, 32))
    names = run_code(code_blocks(tmp_path / "out")[1])
    images = torch.randint(256, (2, 3, stored_size, stored_size), dtype=torch.uint8)
    expected = load_encoder(tmp_path / "out").preprocessing(images)
    torch.testing.assert_close(names["preprocessing"](images), expected, rtol=0, atol=1e-6)


def card_of(folder: Path) -> str:
    return (folder / "README.md").read_text()


def test_a_network_torchvision_lacks_comes_with_its_class_and_every_tensor(tmp_path: Path):
    card = card_of(save(tmp_path))
    for name, tensor in load_encoder(tmp_path).encoder.state_dict().items():
        shape = " x ".join(str(length) for length in tensor.shape) or "one number"
        assert f"| `{name}` | {shape} |" in card
    assert "`energy_contrast.networks." in card
    assert "## Scores\n\nNone were measured.\n" in card


def test_scores_data_notes_and_settings_are_on_the_card(tmp_path: Path):
    facts = CardFacts(
        title="SimCLR on digits",
        method_name="simclr",
        settings_yaml="method:\n  name: simclr\n",
        data_lines=["digits: 1,437 training images", "360 test images"],
        scores=[
            Score("knn", 0.9333, 0.9027, 0.9548, 360, "20 neighbours"),
            Score("linear", 0.95, 0.922, 0.968, 360, "sgd", seeds=(0, 1), per_seed=(0.94, 0.96), std=0.0141),
        ],
        notes=["exported from an unfinished run at epoch 3"],
    )
    card = card_of(save(tmp_path, facts=facts))
    assert "\n---\n\n# SimCLR on digits\n" in card
    assert "| knn | 93.33 | 90.27 to 95.48 | one measurement | 360 | 20 neighbours |" in card
    assert "| linear | 95.00 | 92.20 to 96.80 | ± 1.41 (2 seeds) | 360 | sgd |" in card
    assert "- digits: 1,437 training images\n- 360 test images\n" in card
    assert "**Note:** exported from an unfinished run at epoch 3\n" in card
    assert "```yaml\nmethod:\n  name: simclr\n```\n" in card


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("a & b", "a &amp; b"),
        ("[click](http://x)", r"\[click\](http://x)"),
        ("a|b", r"a\|b"),
        ("**bold** `code` _it_ ~no~", r"\*\*bold\*\* \`code\` \_it\_ \~no\~"),
        (r"back\slash", r"back\\slash"),
        ("two\n\n# lines", "two # lines"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("# heading", r"\# heading"),
        ("## heading", r"\## heading"),
        ("0.95 at 3-4", "0.95 at 3-4"),
        ("plain words", "plain words"),
    ],
)
def test_markup_in_names_is_shown_and_not_obeyed(text: str, shown: str):
    assert escape_markdown(text) == shown


def test_names_with_markup_cannot_add_rows_code_or_html(tmp_path: Path):
    bad = "x | y\n| z <script>alert(1)</script> `"
    facts = CardFacts(bad, bad, f"name: |\n  ```\n  {bad}\n", [bad], [Score(bad, 0.5, 0.4, 0.6, 10, bad)], [bad], [bad])
    card = card_of(save(tmp_path, facts=facts))
    prose, settings = card.split("````yaml\n")
    assert "<script>" not in prose
    assert len([line for line in prose.splitlines() if line.startswith(("| x", "| z"))]) == 1
    assert settings.rstrip("\n").splitlines()[-1] == "````"


def test_the_card_of_a_network_of_timm_says_whose_it_is_and_that_timm_is_needed(tmp_path: Path):
    card = card_of(save(tmp_path / "out", TOKENS, 1, 32))
    assert "(test_vit of timm)" in card
    assert f"The weights load into `timm.create_model` (made with timm {timm.__version__})" in card
    assert 'timm.create_model("test_vit", in_chans=1, num_classes=0, img_size=32)' in card


@pytest.mark.parametrize(("step", "is_shown"), [(2, True), (1, False), (3, False)])
def test_scores_of_another_checkpoint_stay_off_the_card(tmp_path, sweep_of, step, is_shown):
    sweep = sweep_of()
    sweep.add("0000", 0.5)  # its only checkpoint is of step 2
    run = sweep.folder.trials / "0000"
    score = Score("knn", 0.75, 0.7, 0.8, 400, "a probe")
    found = Evaluation("digits", "last", step, True, 128, 400, {"simclr": {"knn": score}})
    (run / "evaluation.json").write_text(json.dumps(found.to_mapping()))
    folder, notes = export_run(run, tmp_path / "out")
    card = (folder / "README.md").read_text()
    assert ("75.0" in card) == is_shown
    assert ("a probe; 128 labelled training images" in card) == is_shown
    assert any(note.startswith("no scores") for note in notes) != is_shown


def test_the_card_of_a_populations_member_says_whose_weights_it_went_on_with(tmp_path, sweep_of):
    sweep = sweep_of()
    sweep.add("0000", 0.5)
    run = RunFolder(sweep.folder.trials / "0000")
    config = run.read_config()
    training = replace(config.training, copied_weights="hunt/0001 after epoch 2")
    run.config_path.write_text(to_yaml(replace(config, training=training)))
    folder, _ = export_run(run.path, tmp_path / "out")
    assert "it continued with the weights of hunt/0001 after epoch 2;" in (folder / "README.md").read_text()
