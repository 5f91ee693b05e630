"""Checkpoints that somebody wrote, with sound checksums and content that this run never makes: one sentence each."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import CHECKPOINT_FILES
from safetensors.torch import load_file, save_file

from ebclab.config import compose
from ebclab.errors import RunError, UserError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import load_trained_encoder
from ebclab.storage.reading import with_checksum
from ebclab.training import restore
from ebclab.training.pretrain import pretrain
from ebclab.training.restore import continue_or_start
from ebclab.training.sample_request import SampleRequest
from ebclab.training.samples import sample_chains
from ebclab.training.setup import Prepared, prepare
from energy_contrast.catalog import METHODS
from energy_contrast.method import PixelRange
from energy_contrast.networks import build_encoder

TINY = [
    *("data.train_limit=64", "training.batch_size=32", "training.epochs=2", "resources.threads=1"),
    *("method.buffer_size=64", "method.num_steps=1", "evaluation.knn_every=2", "encoder.width=4"),
]
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a memory and a sampler, trained once; only its last checkpoint is left."""
    runs = tmp_path_factory.mktemp("runs")
    pretrain(compose("ebclr", overrides=TINY), runs=runs, name="run")
    *older, _ = sorted((runs / "run" / "checkpoints").glob("last-*"))
    for path in older:
        shutil.rmtree(path)
    (runs / "run" / "result.json").unlink()
    return runs / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def _last(run: Path) -> Path:
    return next((run / "checkpoints").glob("last-*"))


def sign(folder: Path, change: Callable[[dict[str, Any]], object] = lambda manifest: None) -> None:
    """Write a manifest whose checksums agree with the files of a checkpoint."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = sorted(path for path in folder.iterdir() if path.name != "manifest.json")
    manifest["files"] = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))


def crafted(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return a function that changes the folder of a checkpoint and signs it anew."""

    def craft(folder: Path) -> None:
        change(folder)
        sign(folder)

    return craft


def of_tensors(file: str, change: Callable[[Tensors], object]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        tensors = load_file(folder / file)
        change(tensors)
        save_file(tensors, folder / file)

    return crafted(rewrite)


def of_state(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        state = torch.load(folder / "state.pt", weights_only=True)
        changed = change(state)
        torch.save(state if changed is None else changed, folder / "state.pt")

    return crafted(rewrite)


def of_facts(**facts: Any) -> Callable[[Path], None]:
    return lambda folder: sign(folder, lambda manifest: manifest["facts"].update(facts))


def without(file: str) -> Callable[[Path], None]:
    return crafted(lambda folder: (folder / file).unlink())


def written(file: str, content: bytes) -> Callable[[Path], None]:
    return crafted(lambda folder: (folder / file).write_bytes(content))


def _first(tensors: Tensors, part: str = "encoder.") -> str:
    return next(name for name in tensors if name.startswith(part) and tensors[name].ndim > 1)


def _reshaped(tensors: Tensors) -> None:
    tensors[_first(tensors)] = torch.zeros(3, 7)


def _retyped(dtype: torch.dtype) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[_first(tensors)] = tensors[_first(tensors)].to(dtype)

    return change


def _dropped(tensors: Tensors) -> None:
    del tensors[_first(tensors)]


def _momenta(state: dict[str, Any]) -> dict[str, Any]:
    momenta: dict[str, Any] = state["optimizer"]["state"][0]
    return momenta


def _others(tensors: Tensors) -> None:
    tensors.clear()
    tensors["other"] = torch.zeros(3)


MODEL, MEMORY = "model.safetensors", "memory-buffer.safetensors"
REST = [file for file in CHECKPOINT_FILES if file not in (MODEL, "manifest.json")]
OF_THE_MODEL = {
    "another shape": of_tensors(MODEL, _reshaped),
    "float64": of_tensors(MODEL, _retyped(torch.float64)),
    "complex": of_tensors(MODEL, _retyped(torch.complex64)),
    "whole numbers": of_tensors(MODEL, _retyped(torch.int8)),
    "a tensor less": of_tensors(MODEL, _dropped),
    "a tensor more": of_tensors(MODEL, lambda tensors: tensors.update({"encoder.more": torch.zeros(1)})),
    "no tensors": of_tensors(MODEL, lambda tensors: tensors.clear()),
    "no safetensors": written(MODEL, b"nothing of the kind"),
    "no model": without(MODEL),
}
OF_THE_REST = {
    **{f"{file}: nothing of the kind": written(file, b"nothing of the kind") for file in REST},
    **{f"{file}: other tensors": of_tensors(file, _others) for file in REST if file.endswith(".safetensors")},
    "state: no dictionary": of_state(lambda state: [state]),
    "state: averaged weights of nothing": of_state(lambda state: state.update(weights={"encoder.more": torch.ones(1)})),
    "state: averaged weights that are none": of_state(lambda state: state.update(weights=[1])),
    "state: empty": of_state(lambda state: state.clear()),
    "state: none": without("state.pt"),
    "optimizer: a list": of_state(lambda state: state.update(optimizer=[])),
    "optimizer: no groups": of_state(lambda state: state["optimizer"].update(param_groups=[])),
    "optimizer: groups of text": of_state(lambda state: state["optimizer"].update(param_groups=["a", "b"])),
    "optimizer: one parameter more": of_state(lambda state: state["optimizer"]["state"].update({9999: {}})),
    "optimizer: parameter x": of_state(lambda state: state["optimizer"]["state"].update(x={})),
    "momenta: another shape": of_state(
        lambda state: _momenta(state).update({n: torch.ones(5) for n in _momenta(state)})
    ),
    "momenta: text": of_state(lambda state: _momenta(state).update(dict.fromkeys(_momenta(state), "1"))),
    "momenta: whole numbers": of_state(
        lambda state: _momenta(state).update({n: v.to(torch.int32) for n, v in _momenta(state).items()})
    ),
    "momenta: another name": of_state(lambda state: _momenta(state).update(speed=torch.ones(1))),
    "generator: text": of_state(lambda state: state.update(generator="seed")),
    "generator: short": of_state(lambda state: state.update(generator=torch.zeros(3, dtype=torch.uint8))),
    "generator: floats": of_state(lambda state: state.update(generator=state["generator"].float())),
    "generator: zeros": of_state(lambda state: state.update(generator=torch.zeros_like(state["generator"]))),
    "best: text": of_state(lambda state: state.update(best="good")),
    "best: no value": of_state(lambda state: state.update(best={"objective": "holdout_knn"})),
    "loss scale: text": of_state(lambda state: state.update(loss_scale="large")),
    "loss scale: none": of_state(lambda state: state.update(loss_scale={"scale": float("nan")})),
    "loss scale: too many good steps": of_state(lambda state: state.update(loss_scale={"good_steps": 1 << 40})),
    "seconds: text": of_state(lambda state: state.update(seconds="long")),
    "metrics: a list": of_state(lambda state: state.update(metrics=[1.0])),
    "metrics: of text": of_state(lambda state: state.update(metrics={"loss": "low"})),
    "health: text": of_state(lambda state: state.update(health="good")),
    "health: of text": of_state(lambda state: state.update(health={"state": {"waiting": "soon"}})),
    "scores: a list": of_facts(scores=[0.5]),
    "scores: of text": of_facts(scores={"holdout_knn": "high"}),
    "epochs: text": of_facts(epochs_done="two"),
    "data: another digest": of_facts(data_digest=[]),
    "memory: none": without(MEMORY),
    "memory: another name": crafted(lambda folder: (folder / MEMORY).rename(folder / "memory-x.safetensors")),
    "memory: a tensor less": of_tensors(MEMORY, lambda tensors: tensors.pop("counts")),
    "memory: another size": of_tensors(
        MEMORY, lambda tensors: tensors.update(counts=torch.zeros(7, dtype=torch.int32))
    ),
    "memory: floating counts": of_tensors(MEMORY, lambda tensors: tensors.update(counts=tensors["counts"].float())),
    "memory: flat images": of_tensors(MEMORY, lambda tensors: tensors.update(pixels=tensors["pixels"].flatten(1))),
    "memory: complex images": of_tensors(
        MEMORY, lambda tensors: tensors.update(pixels=tensors["pixels"].to(torch.complex64))
    ),
    "memory: wider images": of_tensors(MEMORY, lambda tensors: tensors.update(pixels=torch.zeros(64, 1, 8, 9))),
    "memory: no images": of_tensors(
        MEMORY, lambda tensors: tensors.update(pixels=torch.zeros(0), counts=torch.zeros(0, dtype=torch.int32))
    ),
    "memory: no bounds": of_tensors(MEMORY, lambda tensors: tensors.update(bounds=torch.zeros(2, dtype=torch.float64))),
}


def _one_sentence(error: pytest.ExceptionInfo[UserError], run: Path) -> None:
    text = str(error.value)
    assert str(run) in text
    assert "\n" not in text


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(compose("ebclr", overrides=TINY), torch.device("cpu"), None, METHODS["ebclr"])


@pytest.mark.parametrize("case", [*OF_THE_MODEL, *OF_THE_REST])
def test_a_run_does_not_go_on_from_what_somebody_made_up(run: Path, prepared: Prepared, case: str) -> None:
    (OF_THE_MODEL | OF_THE_REST)[case](_last(run))
    with pytest.raises(RunError) as error:
        continue_or_start(RunFolder.at(run), prepared)
    _one_sentence(error, run)


def sampled(run: Path) -> object:
    return sample_chains(run, SampleRequest("buffer", 1, 2))


@pytest.mark.parametrize("case", OF_THE_MODEL)
@pytest.mark.parametrize("read", [sampled, lambda run: load_trained_encoder(RunFolder.at(run))])
def test_nobody_uses_an_encoder_that_somebody_made_up(run: Path, case: str, read: Callable[[Path], object]) -> None:
    OF_THE_MODEL[case](_last(run))
    with pytest.raises(RunError) as error:
        read(run)
    _one_sentence(error, run)


@pytest.mark.parametrize("case", [case for case in OF_THE_REST if case.startswith("memory")])
def test_no_chain_begins_in_a_buffer_that_somebody_made_up(run: Path, case: str) -> None:
    OF_THE_REST[case](_last(run))
    with pytest.raises(UserError) as error:
        sampled(run)
    _one_sentence(error, run)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_refuses_memories_of_other_images_than_its_views(name: str) -> None:
    small = {"ebclr": {"buffer_size": 8}, "jem": {"buffer_size": 8}, "vem-image": {"bank_size": 8}}.get(name, {})
    classes = (2,) if METHODS[name].needs_labels else ()
    method = METHODS[name](METHODS[name].Config(**small), build_encoder("small", in_channels=1, width=4), *classes)
    method.pixel_range = PixelRange((-1.0,), (1.0,))
    method.start(lambda count, generator: torch.rand(count, 1, 8, 8, generator=generator))
    method.require_images_of((1, 8, 8))
    holds_images = bool(method.memories) and name != "sogclr"  # whose memory is a number a row
    assert holds_images == (method.memory_bytes((1, 8, 8)) > 0)
    if holds_images:
        with pytest.raises(ValueError, match="with images of 1x8x8 in place of 3x8x8"):
            method.require_images_of((3, 8, 8))


def test_a_file_that_the_manifest_does_not_list_is_not_read(run: Path) -> None:
    (_last(run) / "memory-other.safetensors").write_bytes(b"not compared with any checksum")
    saved = checkpoint.load(run / "checkpoints")
    assert set(saved.memories) == {"buffer"}


def test_what_was_only_signed_anew_goes_on_and_what_was_made_up_does_not(run: Path) -> None:
    def extend() -> int:
        return pretrain(compose("ebclr", overrides=TINY), runs=run.parent, name=run.name, extend=3).summary.epochs

    state = (_last(run) / "state.pt").read_bytes()
    OF_THE_REST["optimizer: no groups"](_last(run))
    with pytest.raises(RunError, match="the checkpoint at step 2 is not one of this run, got other groups of param"):
        extend()
    written("state.pt", state)(_last(run))
    assert extend() == 3


@pytest.mark.parametrize("file", [MODEL, *REST])
def test_damage_that_is_signed_anew_is_content_or_a_sentence(run: Path, file: str) -> None:
    path = _last(run) / file
    content = path.read_bytes()
    refused = 0
    for seed in range(60):
        chance, damaged = random.Random(seed), bytearray(content)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(min(len(damaged), 4096))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged if seed % 3 else damaged[: chance.randrange(len(damaged))])
        sign(path.parent)
        try:
            checkpoint.load(run / "checkpoints")
        except RunError:
            refused += 1
    assert refused > 20


def test_random_numbers_of_another_kind_of_device_are_not_called_damage() -> None:
    """A CUDA generator's state has 16 bytes, that of a CPU 5,056."""
    with pytest.raises(UserError, match=r"resources\.device: the run drew its random numbers on another kind of"):
        restore._of_generator(torch.Generator(), torch.zeros(16, dtype=torch.uint8))
    assert restore._of_generator(torch.Generator(), torch.zeros(17, dtype=torch.uint8)) == [
        "a state that is none of this generator"
    ]
