"""``ebclab sample``: chains of a run where images move, drawn and measured; one sentence where there are none."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from safetensors.torch import load_file

from ebclab.cli import main
from energy_contrast.energy_based.ebclr import Ebclr
from energy_contrast.energy_based.jem import Jem
from energy_contrast.sampling_method import ChainStart, ChainTrace

from .conftest import TINY, Ebclab

SMALL = {
    "ebclr": ["--set", "method.buffer_size=64", "--set", "method.num_steps=2"],
    "jem": ["--set", "method.buffer_size=64", "--set", "method.num_steps=2"],
    "vem-image": ["--set", "method.bank_size=64", "--set", "method.num_steps=2"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one epoch of every method that moves images."""
    folder = tmp_path_factory.mktemp("sampled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("EBCLAB_DATA", raising=False)
        for method, settings in SMALL.items():
            assert main(["pretrain", method, "--epochs", "1", "--name", method, *TINY, *settings]) == 0
    return folder / "runs"


@pytest.fixture
def runs(ebclab: Ebclab, trained: Path) -> Path:
    """Copies of these runs in runs/."""
    return Path(shutil.copytree(trained, "runs")).absolute()


@pytest.mark.parametrize(("method", "source"), [("ebclr", "noise"), ("jem", "data"), ("vem-image", "buffer")])
def test_chains_are_drawn_and_measured_beside_the_run(ebclab: Ebclab, runs: Path, method: str, source: str) -> None:
    command = ("sample", f"runs/{method}", "--from", source, "--steps", "12", "--count", "5")
    done = ebclab(*command).ok
    picture, numbers = (runs / method / f"chains-{source}.{ending}" for ending in ("png", "json"))
    assert done.out.splitlines()[-2:] == [f"wrote {picture}", f"wrote {numbers}"]
    assert max(map(len, done.out.splitlines()[:-2])) <= 80
    with Image.open(picture) as image:
        assert image.size == (28 + 4 * 108, 44 + 5 * 124)  # steps 0, 1, 10 and 12 of five chains
        assert len(set(image.convert("L").tobytes())) > 20
    found = json.loads(numbers.read_text())
    assert list(found["samples"]) == ["0", "1", "10", "12"]
    assert found["request"] == {"source": source, "num_steps": 12, "count": 5, "seed": 0, "overrides": []}
    for each in (*found["samples"].values(), found["test_images"]):
        assert sum(each["class_shares"].values()) == pytest.approx(1)
        assert each["diversity"] > 0
        assert each["nearest"] > 0
    assert 0.5 < found["judge"]["test_accuracy"] <= 1
    before = picture.read_bytes(), numbers.read_bytes()
    assert json.loads(ebclab(*command, "--json").out) == found
    assert (picture.read_bytes(), numbers.read_bytes()) == before
    assert ebclab(*command, "--seed", "1", "--to", "other").ok
    assert Path(f"other/chains-{source}.png").read_bytes() != before[0]


def test_chains_begin_in_noise_or_at_different_images_of_the_buffer(ebclab, runs, monkeypatch):
    begun: dict[str, ChainStart] = {}
    trace_chains = Ebclr.trace_chains

    def seen(method: Ebclr, batch: Any, start: ChainStart, *given: Any) -> ChainTrace:
        begun.setdefault("first", start)
        return trace_chains(method, batch, start, *given)

    monkeypatch.setattr(Ebclr, "trace_chains", seen)
    command = ("sample", "runs/ebclr", "--steps", "1", "--count", "32")  # a batch
    assert ebclab(*command, "--from", "buffer").code == 0
    start = begun.pop("first")
    (saved,) = runs.glob("ebclr/checkpoints/last-0000000002/memory-buffer.safetensors")
    memory = load_file(saved)
    rows = [int((memory["pixels"] == each).flatten(1).all(dim=1).nonzero()[0]) for each in start.position]
    assert len(set(rows)) == 32
    assert start.counts.tolist() == memory["counts"][rows].tolist()

    found = json.loads(ebclab(*command, "--json").out)["samples"]["0"]
    assert begun["first"].counts.tolist() == [0] * 32
    assert found["saturation"] == 0
    assert found["diversity"] == pytest.approx(math.sqrt(1 / 6), rel=0.02)  # E |u - v|^2 of two uniform numbers


@pytest.mark.parametrize(("rate", "real"), [("0.3", "held-out images"), ("0", "training images")])
def test_chains_of_a_run_without_test_images_stand_beside_others(ebclab: Ebclab, rate: str, real: str) -> None:
    for number in range(32):
        place = Path(f"images/{'ab'[number % 2]}/{number}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("L", (8, 8), bytes((pixel * (number + 1)) % 256 for pixel in range(64))).save(place)
    settings = [f"data.holdout_rate={rate}", "data.name=folder:images", "training.batch_size=16", "encoder.width=4"]
    settings += ["resources.threads=1", "evaluation.knn_neighbours=5", *SMALL["jem"][1::2]]
    options = [word for each in settings for word in ("--set", each)]
    assert ebclab("pretrain", "jem", "--epochs", "1", "--name", "j", *options).ok
    done = ebclab("sample", "runs/j", "--steps", "1", "--count", "2").ok
    assert real in done.out.splitlines()[2]  # heads of the columns
    found = json.loads(Path("runs/j/chains-noise.json").read_text())
    assert found["real_images"] == real
    assert (found["test_images"]["nearest"] == 0) == (real == "training images")


def test_settings_of_the_sampler_may_be_others_than_those_of_the_run(ebclab: Ebclab, runs: Path) -> None:
    command = ("sample", runs / "jem", "--steps", "3", "--count", "2", "--to", "out", "--json")
    still = ebclab(*command, "--set", "method.step_size=1e-30", "--set", "method.noise_std=0")
    first, *_, last = json.loads(still.out)["samples"].values()
    assert first == last


def test_chains_are_run_in_parts_of_a_batch(ebclab: Ebclab, runs: Path) -> None:
    assert ebclab("sample", runs / "ebclr", "--from", "buffer", "--steps", "1", "--count", "40", "--json").ok
    with Image.open(runs / "ebclr" / "chains-buffer.png") as image:
        assert image.height == 44 + 16 * 124


def test_measured_samples_that_cannot_be_written_are_printed(ebclab: Ebclab, runs: Path) -> None:
    (runs / "ebclr" / "chains-noise.png").mkdir()  # no file can be written there
    outcome = ebclab("sample", "runs/ebclr", "--steps", "1", "--count", "2")
    assert "distance of two" in outcome.out
    assert f"{runs}/ebclr: the samples were measured and chains-noise.png cannot be written, got Is" in outcome.refusal


@pytest.mark.parametrize("field", ["positions", "energies"])
def test_chains_that_explode_are_a_sentence(ebclab, runs, monkeypatch, field):
    trace_chains = Jem.trace_chains

    def exploding(method: Jem, *given: Any) -> ChainTrace:
        trace = trace_chains(method, *given)
        getattr(trace, field)[-1, 0] = float("nan")
        return trace

    monkeypatch.setattr(Jem, "trace_chains", exploding)
    outcome = ebclab("sample", "runs/jem", "--steps", "2", "--count", "2")
    told = f"error: {runs}/jem: pixels or energies are not finite, got 2 steps; use fewer --steps"
    assert (outcome.code, outcome.err.strip()) == (2, told)


WRONG: dict[str, tuple[list[str], str]] = {
    "no steps": (["runs/ebclr", "--steps", "0"], "--steps: must be at least 1, got 0"),
    "no chains": (["runs/ebclr", "--count", "0"], "--count: must be at least 1, got 0"),
    "no such start": (["runs/ebclr", "--from", "dust"], "--from: "),
    "no seed": (["runs/ebclr", "--seed", "-1"], "--seed: must be at least 0, at most 4294967295, got -1"),
    "a setting of training": (
        ["runs/ebclr", "--set", "training.epochs=3"],
        "--set: only settings of the method act on chains, got training.epochs=3; write method.KEY=VALUE",
    ),
    "all that is wrong": (["runs/ebclr", "--steps", "-1", "--count", "0"], "--count: must be at least 1, got 0"),
    "a folder in a store": (["runs/ebclr", "--to", "s3://b/x"], "--to: a folder on a disk is needed, got s3://b/x"),
    "no such setting": (["runs/ebclr", "--set", "method.sigma=3"], "method.sigma: no such setting"),
    "more chains than memory": (["runs/ebclr", "--count", str(10**12)], "--count: 1,000,000,000,000 chains at 5 mo"),
    "more chains than images": (
        ["runs/ebclr", "--from", "buffer", "--count", "65"],
        "--count: the buffer holds 64 images, got 65; use at most as many",
    ),
    "a checkpoint without its buffer": (
        ["runs/ebclr", "--from", "buffer", "--checkpoint", "best"],
        "--from: the best checkpoint of runs/ebclr holds no buffer, got buffer; use noise or data",
    ),
    "no such checkpoint": (["runs/ebclr", "--checkpoint", "first"], "--checkpoint: no such checkpoint, got 'first'"),
    "no run": (["runs/none"], "runs/none: no run here, config.yaml is missing"),
    "an export": (["encoder"], "RUN: an encoder alone has no chains, got encoder; name the run that it comes from"),
    "pretrained": (["timm/resnet18"], "RUN: an encoder alone has no chains, got timm/resnet18; name the run that"),
    "a method without chains of images": (
        ["runs/done"],
        "runs/done: chains of images are those of jem, ebclr, vem-image, got a run of flatclr",
    ),
    "another network": (["runs/ebclr", "--set", "method.projection_size=3"], "runs/ebclr: the checkpoint at step"),
}


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder of one of these runs."""
    folder = tmp_path_factory.mktemp("exported") / "encoder"
    assert main(["export", str(trained / "ebclr"), "--to", str(folder)]) == 0
    return folder


def test_what_has_no_chains_is_refused_in_one_sentence(ebclab, runs, trained_once, exported):
    """Nothing is written, so one copy of the runs serves all."""
    shutil.copytree(trained_once, "runs/done")
    shutil.copytree(exported, "encoder")
    for case, (arguments, told) in WRONG.items():
        refused = ebclab("sample", *arguments)
        assert refused.code == 2, case
        assert told in refused.err.replace(f"{Path.cwd()}/", "")
        assert refused.err.startswith("error: "), case
        assert len(refused.err.splitlines()) == (2 if case == "all that is wrong" else 1), case
