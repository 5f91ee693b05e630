"""Samples of a trained run: long chains of its own sampler without restarts, measured and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ebclab.config import ExperimentConfig, parse_experiment
from ebclab.config.addresses import absolute, is_address
from ebclab.config.experiment import methods_of, to_mapping
from ebclab.config.recipes import apply_overrides
from ebclab.config.yaml_text import JsonObject
from ebclab.data.image_grid import as_png
from ebclab.data.image_set import ImageSet
from ebclab.data.own_images import Images, own_images
from ebclab.data.photograph import Reading
from ebclab.data.sources.load import load_split, splits_of
from ebclab.errors import RunError, UnsavedError, UserError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.samples import JudgeFacts, SampleMeasures, draw_chains, fit_judge, measure_samples
from ebclab.formatting import size as readable
from ebclab.hardware import as_before, free_bytes, num_cores, resolve_device, set_threads
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.training.restore import load_memories, load_model
from ebclab.training.sample_request import SampleRequest
from ebclab.training.setup import Prepared, prepare, split_own
from energy_contrast.chains.restarts import Restarts
from energy_contrast.chains.trace import TracedMethod
from energy_contrast.memory.replay_buffer import ReplayBuffer
from energy_contrast.method import Batch, Method, PixelRange
from energy_contrast.sampling_method import ChainStart, ChainTrace

_DRAWN = 16  # chains of the picture, at most


@dataclass(frozen=True)
class Samples:
    """What was measured."""

    method: str  # name of the method
    checkpoint: str  # "last" or "best"
    training_step: int  # optimizer steps behind its weights
    request: SampleRequest  # the chains
    # what the classifier of real images is, and its accuracy on test images; None without labels
    judge: JudgeFacts | None
    samples: dict[int, SampleMeasures]  # measures of the chains, by the number of steps
    test_images: SampleMeasures  # the same measures of as many real images, or of all there are
    real_images: str = "test images"  # what these are
    written: tuple[str, ...] = ()  # paths or addresses of the picture and of the numbers

    def to_mapping(self) -> JsonObject:
        """Return everything as plain values."""
        plain = asdict(self)
        del plain["written"]
        return plain


def sample_chains(
    where: str | Path,
    request: SampleRequest,
    *,
    checkpoint_kind: checkpoint.Kind = "last",
    to: str | Path | None = None,
    data_root: str | Path | None = None,
    images: tuple[Images, Images] | None = None,
    methods: Mapping[str, type[Method]] | None = None,
    on_progress: OnProgress = silent,
) -> Samples:
    """Run chains, measure and draw them, and write ``chains-SOURCE.png`` and ``chains-SOURCE.json``.

    Args:
        where: The run: its folder, or its address in an object store.
        to: Folder of the files; None means the run's.
        data_root: Folder that holds datasets; None means the run's own.
        images: The run's own training and test images in place of its dataset.
        methods: Own methods by name, for runs that were made with one.
    """
    with as_before():
        if to is not None and is_address(str(to)):
            raise UserError(f"--to: a folder on a disk is needed, got {to}")
        run = RunFolder.at(where).of("reader").pull((checkpoint_kind,))
        config, method_class = _settings(run, request, data_root, methods)
        device = resolve_device(config.resources.device)
        set_threads(min(config.resources.threads, num_cores()))  # the run's machine may have more
        saved = _checkpoint(run, checkpoint_kind, request)
        prepared = prepare(config, device, split_own(config.data, images[0]) if images else None, method_class)
        real_images, test = _real_images(config, prepared, images)
        training = prepared.training
        load_model(training.method, saved, run.address)
        if request.source == "buffer":
            load_memories(training.method, saved, training.view_shape, run.address)
        training.method.eval()
        batch = training.data.batch(0, 0)
        generator = torch.Generator(device=device).manual_seed(request.seed)
        start = _start(request, prepared, batch, generator)
        trace = _trace(prepared, batch, start, generator, request.moments, on_progress)
        if not (trace.positions.isfinite().all() and trace.energies.isfinite().all()):
            raise RunError(
                f"{run.address}: pixels or energies are not finite, got {request.num_steps} steps; use fewer --steps"
            )
        chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(request.seed))[: request.count]
        real = prepared.preprocessing(test.images[chosen].to(device))
        unmoved = ChainStart(real, torch.zeros(len(real), dtype=torch.int32, device=device))
        beside = _trace(prepared, batch, unmoved, generator, (0,), silent)
        judge = fit_judge(prepared.bank, prepared.preprocessing, config.evaluation.linear_l2, on_progress)

        def measure(positions: Tensor, energies: Tensor) -> SampleMeasures:
            return measure_samples(positions, energies, prepared.bank, prepared.preprocessing, judge, on_progress)

        done = Samples(
            method=config.method_name,
            checkpoint=checkpoint_kind,
            training_step=saved.step,
            request=request,
            judge=None if judge is None else judge.facts(test, prepared.preprocessing),
            samples={
                step: measure(*moment)
                for step, *moment in zip(trace.steps, trace.positions, trace.energies, strict=True)
            },
            test_images=measure(beside.positions[0], beside.energies[0]),
            real_images=real_images,
        )
        return _written(done, trace, prepared.preprocessing.pixel_range, run, None if to is None else absolute(str(to)))


def _settings(
    run: RunFolder,
    request: SampleRequest,
    data_root: str | Path | None,
    methods: Mapping[str, type[Method]] | None,
) -> tuple[ExperimentConfig, type[Method]]:
    """Return the settings of a run with those of the request over them, and its method, which moves images."""
    config = run.read_config(methods)
    known = methods_of(config, (methods or {}).get(config.method_name))
    if not issubclass(known[config.method_name], TracedMethod):
        able = ", ".join(name for name, each in known.items() if issubclass(each, TracedMethod))
        raise UserError(f"{run.address}: chains of images are those of {able}, got a run of {config.method_name}")
    if request.overrides:
        config = parse_experiment(apply_overrides(to_mapping(config), request.overrides), known)
    if data_root is not None:
        config = replace(config, data=replace(config.data, root=str(data_root)))
    config = replace(config, training=replace(config.training, compile=False))
    return config, known[config.method_name]


def _checkpoint(run: RunFolder, kind: checkpoint.Kind, request: SampleRequest) -> checkpoint.Checkpoint:
    saved = run.load(kind)
    if saved is None:
        raise RunError(f"{run.address}: the run has no {kind} checkpoint yet; train it first")
    if request.source == "buffer" and not saved.memories:
        raise UserError(
            f"--from: the {kind} checkpoint of {run.address} holds no buffer, got buffer; use noise or data"
        )
    return saved


def _real_images(
    config: ExperimentConfig, prepared: Prepared, images: tuple[Images, Images] | None
) -> tuple[str, ImageSet]:
    """Return what real images stand beside samples: test images; without any, those held out or all for training."""
    if images:
        return "test images", own_images(images[1])
    data = config.data
    if "test" in splits_of(data.name):
        return "test images", load_split(data.name, data.root, "test", Reading.of(data))
    return ("held-out images", prepared.holdout) if len(prepared.holdout) else ("training images", prepared.bank)


def _start(request: SampleRequest, prepared: Prepared, batch: Batch, generator: torch.Generator) -> ChainStart:
    """Return where chains begin, with the counts that training would give them."""
    method, count, views = prepared.training.method, request.count, batch.views[0]
    needed, free = count * len(request.moments) * views[0].nbytes, free_bytes(views.device)
    if needed > free:
        raise UserError(
            f"--count: {count:,} chains at {len(request.moments)} moments do not fit into memory, got "
            f"{readable(needed)}, {readable(free)} free; use fewer"
        )
    if request.source == "buffer":
        (buffer,) = (each for each in method.memories.values() if isinstance(each, ReplayBuffer))
        if count > buffer.size:
            raise UserError(f"--count: the buffer holds {buffer.size:,} images, got {count:,}; use at most as many")
        rows = torch.randperm(buffer.size, generator=generator, device=generator.device)[:count]
        return ChainStart(*buffer.draw(rows.to(views.device), views.dtype))
    if request.source == "data":
        position = prepared.draw(count, generator).to(views)
    else:
        uniform = Restarts(rate=1.0, uniform_rate=1.0, first_count=0)
        position = uniform.new_starts(batch.proposals, generator, method.pixel_range, like=views, count=count)
    return ChainStart(position, torch.zeros(count, dtype=torch.int32, device=views.device))


def _trace(
    prepared: Prepared,
    batch: Batch,
    start: ChainStart,
    generator: torch.Generator,
    steps: Sequence[int],
    on_progress: OnProgress,
) -> ChainTrace:
    """Return snapshots of chains, of which as many as a batch has move at a time."""
    method, total = prepared.training.method, len(start.position) * steps[-1]
    parts, before = [], 0
    for position, counts in zip(*(torch.split(part, batch.views.shape[1]) for part in start), strict=True):

        def report(step: int, moved: int = len(position), before: int = before) -> None:
            on_progress(before + moved * step, total, f"steps of {len(start.position):,} chains")

        assert isinstance(method, TracedMethod)
        parts.append(method.trace_chains(batch, ChainStart(position, counts), generator, steps, report))
        before += len(position) * steps[-1]
    positions, energies = [part.positions for part in parts], [part.energies for part in parts]
    return ChainTrace(tuple(steps), torch.cat(positions, dim=1), torch.cat(energies, dim=1))


def _written(done: Samples, trace: ChainTrace, pixel_range: PixelRange, run: RunFolder, to: Path | None) -> Samples:
    """Write the picture and the numbers into ``to``, or into the run, and return ``done`` with their places."""
    folder = to or run.path
    few = trace._replace(positions=trace.positions[:, :_DRAWN], energies=trace.energies[:, :_DRAWN])
    picture = as_png(draw_chains(few, pixel_range))
    names = [f"chains-{done.request.source}.{ending}" for ending in ("png", "json")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(folder / names[0], picture)
        atomic.write_json(folder / names[1], done.to_mapping())
        if to is None:
            run.send(*names)
    except (OSError, RunError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        raise UnsavedError(
            f"{to or run.address}: the samples were measured and {names[0]} cannot be written, got {reason}; "
            "name another folder by --to",
            done,
        ) from error
    places = [str(folder / name) if to else run.address_of(folder / name) for name in names]
    return replace(done, written=tuple(places))
