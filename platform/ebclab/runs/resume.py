"""Rules for launching a run in an existing folder: its state, its settings, and the process that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ebclab.config import ExperimentConfig, to_mapping, to_yaml
from ebclab.config.addresses import LOCATIONS
from ebclab.config.experiment import flat
from ebclab.config.yaml_text import LARGEST_YAML
from ebclab.errors import RunError, UserError
from ebclab.methods_by_name import Methods
from ebclab.regular_file import read_regular
from ebclab.runs import checkpoint
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.summary import RunSummary
from ebclab.storage import atomic
from ebclab.storage.mirror import Syncer

if TYPE_CHECKING:
    from ebclab.data.holdout import Split  # not imported: plans of sweeps and pages import no torch

MAY_CHANGE: Mapping[str, str] = {
    "data.root": "where the images are; they must be the same ones, every checkpoint holds their digest",
    "training.loggers": "nothing: other loggers",
    "resources.device": "rounding",
    "resources.threads": "rounding: sums are taken in another order",
    "resources.deterministic": "rounding",
    "resources.workers": "rounding: W workers compute the loss of the global batch",
    "resources.max_workers": "rounding: as workers",
    "resources.cpus_per_worker": "rounding: as threads",
    "resources.max_failures": "nothing",
    "resources.address": "nothing: the cluster on which it runs",
}
"""Settings that may change when a run is continued, and how each may affect its numbers.

Rounding also depends on the machine. environment.json records both, and the log says if they differ from the first
launch.
"""

State = Literal["new", "unfinished", "finished"]


class EarlierLaunches:
    """What earlier launches of a run have left in its folder, read once, and what another launch makes of it.

    Only this disk is read: a run in a store was pulled before, with the checkpoints that it needs. ``config`` are the
    settings there, None before the first launch. To ``resume`` is only to continue: a missing run, or one without a
    checkpoint, is an error. To ``extend`` is to continue to this total number of epochs.
    """

    def __init__(
        self,
        run: RunFolder,
        methods: Methods | None = None,
        *,
        resume: bool = False,
        extend: int | None = None,
    ) -> None:
        self.run, self._resume, self._extend = run, resume, extend
        self._written = _written_settings(run)  # to notice another process before the claim
        self.config = run.read_config(methods) if run.has_plan(resume=resume) else None

    @cached_property
    def result(self) -> RunSummary | None:
        return self.run.read_result()

    def completed(self, config: ExperimentConfig) -> ExperimentConfig:
        """Return ``config`` with the digest of the run's images, if it has none itself, and with what extends it."""
        config = with_images_of(config, self.config)
        return config if self._extend is None else self._extended(config, self._extend)

    def state_of(self, config: ExperimentConfig) -> State:
        """Return the state of the run that a launch with ``config``, which is ``completed``, starts or continues."""
        run = self.run
        if self.config is None:
            _require_own_weights(run, config)
            return "new"
        is_over = self.result is not None and self.result.epochs >= config.training.epochs
        self._refuse_other_settings(self.config, config, is_over=is_over)
        if is_over:
            return "finished"
        if checkpoint.latest_path(run.checkpoints) is not None:
            return "unfinished"
        if self.result is not None:
            raise RunError(
                f"{run.address}: nothing to resume from, the finished run has no checkpoint in "
                f"{run.address_of(run.checkpoints)} any more; put the folder back, or replace the run by --overwrite"
            )
        if self._resume:
            reached = run.metrics.newest_measured()
            found = "the run has no checkpoint yet; leave --resume out to start it"
            if reached is not None:
                found = (
                    f"no checkpoint in {run.address_of(run.checkpoints)}, though its log reaches step {reached}; "
                    "put the folder back, or leave --resume out to start over"
                )
            raise RunError(f"{run.address}: nothing to resume, {found}")
        _require_own_weights(run, config)
        return "new"

    def _refuse_other_settings(self, before: ExperimentConfig, config: ExperimentConfig, *, is_over: bool) -> None:
        goes_on = not is_over and (self._resume or self._extend is not None)  # so images are read and compared
        changed = contradictions(
            before if self._extend is None else _with_epochs_of(before, config),
            config,
            may_move=goes_on and not config.resources.workers,  # which write settings before they see the images
        )
        longer = before.training.epochs < config.training.epochs and not config.training.extended
        longer_way = f", train it on by --extend {config.training.epochs}" if longer else ""
        refuse_changes(
            self.run.address,
            changed,
            "this name belongs to a run with other settings; "
            f"choose another --name, use equal settings{longer_way}, or replace it by --overwrite",
        )

    @contextmanager
    def claim(self, config: ExperimentConfig) -> Iterator[Syncer]:
        """Claim the run folder for this process alone and write its settings; yield the folder's syncer."""
        run = self.run
        with run.claim(() if config.resources.workers else NEEDED) as syncer:  # workers pull checkpoints themselves
            result = run.read_result()
            is_over = result is not None and result.epochs >= config.training.epochs
            if is_over or _written_settings(run) != self._written:
                raise RunError(
                    f"{run.address}: another process has trained here since this one looked, and its settings or its "
                    "result are there now; repeat the command, which compares them, or choose another --name"
                )
            write_settings(run, config, syncer)
            yield syncer

    def _extended(self, config: ExperimentConfig, epochs: int) -> ExperimentConfig:
        """Return ``config`` for a run that continues until it has ``epochs`` epochs; its present total changes nothing.

        Earlier totals stay in ``training.extended``, so that equal settings still mean equal numbers: until the end of
        each total, schedules are computed for it. ``config`` has the epochs of its start, or of an earlier extension.
        """
        run, before = self.run, self.config
        if before is None:
            raise RunError(
                f"{run.address}: nothing to extend, no run of this name; write --epochs {epochs} instead of --extend"
            )
        if sweep := run.sweep():
            raise RunError(
                f"{run.address}: a trial of the sweep {sweep}, whose log says how long it trains; train its settings "
                f"as a separate run, under another --runs, with --epochs {epochs}"
            )
        had, given = before.training.ends, config.training.ends
        if given != had[: len(given)]:
            return config  # settings differ: ``state_of`` will refuse them
        if epochs < had[-1]:
            raise UserError(f"--extend: a run may grow, not shrink, got a total of {epochs}; it has {had[-1]} epochs")
        ends = had if epochs == had[-1] else (*had, epochs)
        return replace(config, training=replace(config.training, epochs=ends[-1], extended=ends[:-1]))

    def has_unnamed(self, split: Split, config: ExperimentConfig) -> bool:
        """Return whether an older version recorded the user's images under the name of the dataset in ``config``."""
        if self.config is None or self.config.data.digest or self.config.data.name != config.data.name:
            return False
        newest = self.run.load()
        return newest is not None and newest.facts.get("data_digest") == split.digest


def _with_epochs_of(before: ExperimentConfig, config: ExperimentConfig) -> ExperimentConfig:
    """Return ``before`` with the epochs of ``config``, if those extend it."""
    ends, had = config.training.ends, before.training.ends
    if ends[: len(had)] != had:
        return before
    return replace(before, training=replace(before.training, epochs=ends[-1], extended=ends[:-1]))


def _require_own_weights(run: RunFolder, config: ExperimentConfig) -> None:
    """Refuse to start a run from settings that alone do not reproduce the run they were recorded in."""
    if copied := config.training.copied_weights:
        raise RunError(
            f"{run.address}: settings of a population's member that continued with the weights of {copied}, so that "
            "they alone do not make its numbers; leave training.copied_weights out to train with them from the start"
        )


def _written_settings(run: RunFolder) -> bytes:
    """Return the content of a run's settings file on this disk; empty if there is none."""
    try:
        return read_regular(run.config_path, LARGEST_YAML)
    except OSError:
        return b""


def write_settings(run: RunFolder, config: ExperimentConfig, syncer: Syncer) -> None:
    """Write the settings of this launch into a run folder that this process has claimed.

    If workers train the run, they write into the store from then on, and ``syncer`` stops.
    """
    run.result.unlink(missing_ok=True)
    syncer.push()  # first: an old result must never be beside new settings
    atomic.write_text(run.config_path, to_yaml(config))
    atomic.make_folder(run.checkpoints)
    checkpoint.tidy(run.checkpoints)
    if config.resources.workers:
        syncer.hand_over()
    else:
        syncer.push()


def with_images_of(config: ExperimentConfig, before: ExperimentConfig | None) -> ExperimentConfig:
    """Return ``config`` with the image digest that the run has recorded, if ``config`` has none itself."""
    if before is None or config.data.digest:
        return config
    return replace(config, data=replace(config.data, digest=before.data.digest))


def with_own_images(config: ExperimentConfig, split: Split) -> ExperimentConfig:
    """Return ``config`` for images of the user's own: with a name that no dataset has, and with their digest."""
    from ebclab.data.image_set import require_digest
    from ebclab.data.own_images import own_name

    name = own_name(split.train.name)
    if config.data.name == name:
        require_digest(split.content, config.data.digest, name)
    return replace(config, data=replace(config.data, name=name, digest=split.content))


def contradictions(before: ExperimentConfig, now: ExperimentConfig, *, may_move: bool = False) -> list[str]:
    """Return a line for each setting that differs between a run and a launch although it must not.

    If they ``may_move``, images may have another place of the same kind: they are those of the recorded digest, or the
    launch is refused when it has read them.
    """
    now = with_images_of(now, before)
    kinds = {f"{each.data.name.partition(':')[0]}:" for each in (before, now)}
    if may_move and before.data.digest == now.data.digest != "" and len(kinds) == 1 and kinds <= {*LOCATIONS}:
        now = replace(now, data=replace(now.data, name=before.data.name))
    return changed_settings(to_mapping(before), to_mapping(now), tuple(MAY_CHANGE), what="run")


def record_images(run: RunFolder, config: ExperimentConfig, digest: str) -> None:
    """Write the digest of a run's images into its settings, if they do not have it yet."""
    atomic.write_text(run.config_path, to_yaml(replace(config, data=replace(config.data, digest=digest))))


def changed_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], may_change: tuple[str, ...], *, what: str
) -> list[str]:
    """Return ``key: old in the run, new now`` for each setting that differs although it must not.

    Those that may differ are keys, or sections that end in a dot. ``what`` is "run" or "sweep".
    """
    old, new = flat(before), flat(now)
    return [
        f"{key}: {old.get(key, 'absent')} in the {what}, {new.get(key, 'absent')} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not key.startswith(may_change)
    ]


def refuse_changes(where: str | Path, changed: Sequence[str], problem: str, *, most: int | None = None) -> None:
    """Refuse a launch in a folder if ``changed`` has lines about it; show at most ``most`` of them, or all."""
    if changed:
        lines = list(dict.fromkeys(changed))
        left = [] if most is None or len(lines) <= most else [f"and {len(lines) - most} more"]
        raise RunError("\n  ".join([f"{where}: {problem}:", *lines[:most], *left]))
