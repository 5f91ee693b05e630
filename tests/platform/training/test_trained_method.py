"""A run's whole method read back is the one that was trained, bit for bit, without its images."""

import shutil
from pathlib import Path

import pytest
import torch
from small_runs import saved_in, small_images, small_run

from ebclab.errors import RunError
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import load_trained_encoder
from ebclab.training.restore import load_trained_method
from energy_contrast.classifier import Classifier

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of VEM on images that are nowhere by now."""
    return small_run(tmp_path_factory.mktemp("runs"), "one", "method.bank_size=32", method="vem-langevin")


@pytest.mark.filterwarnings("ignore:.*batch norm")
def test_all_weights_and_banks_are_those_of_the_checkpoint(trained_run: Path) -> None:
    run = RunFolder.at(trained_run)
    trained = load_trained_encoder(run)
    method = load_trained_method(run, trained, CPU)
    torch.testing.assert_close(method.state_dict(), saved_in(run.path).model, rtol=0, atol=0)
    assert {"head.0.weight", "key_head.0.weight", "bank.particles"} <= set(method.state_dict())
    assert not any(module.training for module in method.modules())
    pixels = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(method.embed(pixels), trained.encoder(pixels))  # to rounding: another memory layout
    assert method.pixel_range == trained.preprocessing.pixel_range


@pytest.mark.parametrize("name", ["supervised", "jem"])
def test_a_classifier_has_as_many_classes_as_it_was_trained_with(name: str, tmp_path: Path) -> None:
    mine = small_images(num_classes=3)
    own = ["encoder.batch_norm=none", "method.buffer_size=32", "method.num_steps=1"] if name == "jem" else []
    run = RunFolder.at(small_run(tmp_path, "one", *own, method=name, images=mine))
    method = load_trained_method(run, load_trained_encoder(run), CPU)
    assert isinstance(method, Classifier)
    torch.testing.assert_close(method.state_dict(), saved_in(run.path).model, rtol=0, atol=0)
    assert method.classify(torch.rand(5, 1, 8, 8)).shape == (5, 3)


def test_a_run_that_goes_on_meanwhile_is_one_sentence(trained_run: Path, tmp_path: Path) -> None:
    """Heads of another step than the encoder's would give energies of no network that ever was."""
    run = RunFolder.at(shutil.copytree(trained_run, tmp_path / "one"))
    trained = load_trained_encoder(run)
    shutil.rmtree(run.checkpoints)
    with pytest.raises(RunError, match=r"the last checkpoint was of step \d+ a moment ago, got none; the run con"):
        load_trained_method(run, trained, CPU)
