"""Every method goes through the whole lab on a device of its own: trained, killed, gone on, evaluated, exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pretended_device import PretendedDevice
from stream_shard import Shard

from ebclab.config import ExperimentConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.views.pipeline import make_views
from ebclab.export import load_encoder
from ebclab.export.run import export_run
from ebclab.runs import checkpoint
from ebclab.runs.evaluate import evaluate_run
from ebclab.training.display import Listener
from ebclab.training.pretrain import RunResult, pretrain
from energy_contrast.catalog import METHODS

from .conftest import Killed

Tiny = Callable[..., ExperimentConfig]


def left_by(run: RunResult) -> checkpoint.Checkpoint:
    newest = checkpoint.load(run.path / "checkpoints")
    assert newest is not None
    return newest


def assert_equal_bits(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal_bits(one[key], other[key])
    else:
        assert one == other


@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_the_device_ends_in_the_bits_of_the_cpu_killed_or_not(
    method: str, tiny: Tiny, kills_at: Any, tmp_path: Path
) -> None:
    on_cpu = pretrain(tiny(method, "cpu"), runs=tmp_path, name="cpu", display=Listener())
    config = tiny(method, "pretended")
    num_batches = on_cpu.summary.steps // 2
    if method in ("moco", "ebclr"):  # a queue, and a memory beside the weights; tests/contracts resumes all methods
        with pytest.raises(Killed):
            pretrain(config, runs=tmp_path, name="device", display=kills_at(num_batches + 1))
    on_device = pretrain(config, runs=tmp_path, name="device", display=Listener())
    there, here = left_by(on_device), left_by(on_cpu)
    assert there.step == 2 * num_batches
    assert_equal_bits(there.model, here.model)
    assert_equal_bits(there.memories, here.memories)
    assert there.state is not None
    assert here.state is not None
    assert_equal_bits(there.state["optimizer"]["state"], here.state["optimizer"]["state"])
    assert_equal_bits(there.state["generator"], here.state["generator"])
    assert on_device.summary.scores == on_cpu.summary.scores
    assert on_device.summary.metrics is not None
    assert on_cpu.summary.metrics is not None
    # eigenvalues, by which ranks are measured, are rounded as memory is aligned
    assert numbers_of(on_device.summary.metrics) == pytest.approx(numbers_of(on_cpu.summary.metrics), rel=1e-6)


def numbers_of(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name != "images_per_second"}


def test_what_was_trained_on_the_device_is_evaluated_and_exported_there(
    tiny: Tiny, device: torch.device, tmp_path: Path
) -> None:
    scores = []
    for where in ("cpu", "pretended"):
        run = pretrain(tiny("simclr", where, "training.epochs=1"), runs=tmp_path, name=where, display=Listener())
        scores.append({name: score.value for name, score in evaluate_run(run.path).rows["simclr"].items()})
    assert scores[0] == scores[1]
    assert scores[0].keys() == {"knn", "linear"}
    folder, _ = export_run(run.path, tmp_path / "encoder")
    images = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    outputs = []
    for place in (torch.device("cpu"), device):
        encoder, preprocessing, _ = load_encoder(folder, place)
        outputs.append(encoder(preprocessing(images.to(place))))
    assert outputs[1].device == device
    assert torch.equal(outputs[0], outputs[1].cpu())


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_autocast_s_on_the_device(precision: str, tiny: Tiny, tmp_path: Path) -> None:
    """The device casts what the CPU's autocast casts of these networks, so that their bits agree."""
    ends = [
        left_by(
            pretrain(
                tiny("simclr", where, f"training.precision={precision}", "training.epochs=1"),
                runs=tmp_path,
                name=where,
                display=Listener(),
            )
        )
        for where in ("cpu", "pretended")
    ]
    assert_equal_bits(ends[1].model, ends[0].model)


def test_a_buffer_on_the_cpu_serves_a_network_on_the_device(tiny: Tiny, tmp_path: Path) -> None:
    on_cpu, apart = (
        left_by(pretrain(config, runs=tmp_path, name=config.resources.device, display=Listener()))
        for config in (
            tiny("ebclr", "cpu", "training.epochs=1"),
            tiny("ebclr", "pretended", "training.epochs=1", "method.buffer_device=cpu"),
        )
    )
    assert_equal_bits(apart.memories, on_cpu.memories)
    assert_equal_bits(apart.model, on_cpu.model)


def test_streamed_batches_reach_the_device_without_a_wait(
    tiny: Tiny, device: torch.device, pretended: PretendedDevice
) -> None:
    from ebclab.data.delivery.ray_data.worker import StreamedData
    from ebclab.data.delivery.resident import ViewSettings

    pixels = torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = ImageSet("numbered", pixels, torch.arange(24) % 3, torch.arange(24), ("a", "b", "c"), (0.5,), (0.5,))
    config = tiny("simclr", "pretended").views
    preprocessing = preprocessing_for(config, images)
    settings = ViewSettings(
        views=config, preprocessing=preprocessing, seed=1, num_views=2, num_proposals=3, batch_size=8, on_pipeline=False
    )
    shard: Any = Shard(images)
    data = StreamedData(shard, settings, num_images=24, device=device)
    data.batch(0, 0)  # the constants of views go there with the first
    with pretended.counting() as (operations, waits):
        batch = data.batch(0, 1)
    assert operations
    assert not waits
    assert {part.device for part in (batch.views, batch.labels, batch.index, batch.proposals)} == {device}
    rows = shard.order(0)[8:16]
    expected = make_views(pixels[rows], images.keys[rows], config, preprocessing, seed=1, epoch=0)
    assert torch.equal(batch.views.cpu(), expected)
