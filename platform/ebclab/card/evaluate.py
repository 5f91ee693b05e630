"""Encoders, images and groups by their names, to cards on disk and one page that sets the encoders side by side."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ebclab.card.card import FORMAT, Card, CardFolder
from ebclab.card.feature_store import FeatureStore
from ebclab.card.images import MeasuredSet, OutsideSet, named_set, outside_set, own_set
from ebclab.card.markdown import render_markdown
from ebclab.card.measure import chosen_groups, measure_card
from ebclab.card.measuring import CardOptions, Measuring
from ebclab.card.page import render_page
from ebclab.card.results import Number
from ebclab.card.side_by_side import Cell, SideBySide
from ebclab.card.subject import Subject, open_subject, references
from ebclab.config.addresses import expanded, is_address
from ebclab.config.sections import EvaluationConfig
from ebclab.data.holdout import limit
from ebclab.data.sources.location import short_name
from ebclab.errors import RunError, UnsavedError, UserError
from ebclab.evaluation.evaluate import PROBES
from ebclab.evaluation.intervals import Score
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import PROTOCOLS, look_up
from ebclab.hardware import num_cores, resolve_device, set_threads
from ebclab.runs.environment import describe_environment
from ebclab.runs.evaluate import Evaluation, checkpoint_name, write_evaluation
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum

PAGE = "card.html"
_FOLDER = "cards"


@dataclass(frozen=True)
class CardRequest:
    """What a user asks to be measured.

    Attributes:
        encoders: Runs (folders or addresses), exported folders, or timm/NAME.
        datasets: Names of datasets: the first is measured on, encoders are transferred to the others. Empty means the
            run's own.
        outside: What ``--ood`` takes, see ``outside_set``.
        only: Names of groups, or "all"; empty means the quick ones.
        seeds: Seeds of what is random in a protocol.
        protocol: Linear probe protocol; None means the run's setting.
        checkpoint: "last" or "best", of runs.
        references: Also measure raw pixels, and of runs the encoder before its first step.
        data_root: Folder that holds datasets; None means the run's own, or the usual one.
        to: Folder of the page; None means ``card`` in the run folder for a single run, else ``cards`` here.
        attacked_images: Test images that attacks are tried on; 0 means all.
        autoattack: Also try AutoAttack, which costs more than all other attacks together.
        fine_tuning_epochs: Passes over the labelled images while all weights are trained.
        train_limit: Training images of each dataset that are used, chosen by hash; 0 means all.
    """

    encoders: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    seeds: int = CardOptions.seeds
    protocol: str | None = None
    checkpoint: str = "last"
    references: bool = False
    data_root: str | None = None
    to: str | None = None
    attacked_images: int = CardOptions.attacked_images
    autoattack: bool = False
    fine_tuning_epochs: int = CardOptions.fine_tuning_epochs
    train_limit: int = 0


@dataclass(frozen=True)
class Cards:
    """What was measured, encoder by encoder.

    Attributes:
        cards: The cards, in the order asked for; references follow the encoder that they stand beside.
        page: Path or address of the page.
    """

    cards: tuple[Card, ...]
    page: str

    @cached_property
    def side_by_side(self) -> SideBySide:
        """The cards beside each other."""
        return SideBySide.of(self.cards)

    @property
    def failures(self) -> list[str]:
        """Groups that ought to have worked and did not."""
        return [
            f"{card.label}: {each.group}: {each.problem}" for card in self.cards for each in card.results if each.failed
        ]

    def to_mapping(self) -> dict[str, Any]:
        """Return cards and their comparison as plain values."""
        beside = self.side_by_side
        compared = [
            {
                "group": row.group,
                "number": row.number.name,
                "columns": {
                    column.label: cell and _plain_cell(cell)
                    for column, cell in zip(beside.columns, row.cells, strict=True)
                },
            }
            for row in beside.rows
        ]
        return {"format": FORMAT, "cards": [card.to_mapping() for card in self.cards], "side_by_side": compared}


def measure_cards(request: CardRequest, on_progress: OnProgress = silent) -> Cards:
    """Measure encoders and write their cards and the page.

    Args:
        request: What is asked for.
        on_progress: Called with the work done, all work, and its name.

    Raises:
        UserError: An encoder, a dataset, a group or a protocol is not there, or they do not fit together.
        UnsavedError: The page cannot be written; its ``result`` is what would have been returned.
    """
    groups = chosen_groups(request.only)
    kind = checkpoint_name(request.checkpoint)
    for option, count in (("--seeds", request.seeds), ("--fine-tuning-epochs", request.fine_tuning_epochs)):
        if count < 1:
            raise UserError(f"{option}: must be at least 1, got {count}")
    for option, count in (("--attacked", request.attacked_images), ("--train-limit", request.train_limit)):
        if count < 0:
            raise UserError(f"{option}: must not be negative, got {count}")
    if request.autoattack and find_spec("pyautoattack") is None:
        raise UserError("--autoattack: pyautoattack is not installed; pip install 'ebclab[attack]'")
    if request.protocol is not None:
        look_up("--protocol", "protocol", request.protocol, PROTOCOLS)
    subjects = [open_subject(where, kind) for where in dict.fromkeys(request.encoders)]
    base = _base(request, subjects)
    refusal = _refusal(base)
    cards: list[Card] = []
    for subject in subjects:
        own = _own_folder(subject, base, request)
        kept = None if refusal else own
        images = _Images.of(subject, request)
        found = [_measure(subject, images, request, groups, kept, on_progress)]
        for each in references(subject) if request.references else []:
            folder = kept and kept / "references" / _slug(each.label)
            found.append(_measure(each, images, request, groups, folder, on_progress))
        if not refusal:
            _keep_scores(subject, found)
        cards += found
    done = Cards(tuple(_once(cards)), _address(subjects, base))
    if refusal:
        raise UnsavedError(f"{done.page}: the card was measured and cannot be written, got {refusal}", done)
    _write(base, done)
    _send(subjects)
    return done


@dataclass(frozen=True)
class _Images:
    """What an encoder and its references are measured on.

    Attributes:
        measured: The dataset that is measured on.
        others: Those that the encoder is transferred to.
        outside: Images that it should notice as none of its own.
    """

    measured: MeasuredSet
    others: tuple[MeasuredSet, ...]
    outside: tuple[OutsideSet, ...]

    @classmethod
    def of(cls, subject: Subject, request: CardRequest) -> _Images:
        measured, *others = _sets(subject, request)
        outside = (outside_set(given, subject, measured, request.data_root) for given in request.outside)
        return cls(measured, tuple(others), tuple(outside))


def _measure(
    subject: Subject,
    images: _Images,
    request: CardRequest,
    groups: Sequence[str],
    folder: Path | None,
    on_progress: OnProgress,
) -> Card:
    """Return the card of one encoder; without a folder nothing is kept."""
    config = subject.trained.config if subject.trained else None
    settings = config.evaluation if config else EvaluationConfig()
    settings = replace(settings, linear_protocol=request.protocol or settings.linear_protocol)
    device = resolve_device(config.resources.device if config else "auto")
    threads = set_threads(min(config.resources.threads, num_cores()) if config else 0)  # its machine may have more
    measuring = Measuring(
        subject,
        images.measured,
        CardOptions(settings, request.seeds, request.attacked_images, request.autoattack, request.fine_tuning_epochs),
        FeatureStore(folder and folder / "features", device, settings.batch_size),
        device=device,
        on_progress=on_progress,
        others=images.others,
        outside=images.outside,
    )
    environment = describe_environment(device, threads, 1, sys.argv)
    try:
        return measure_card(measuring, groups, CardFolder(folder) if folder else None, environment)
    except OSError as error:
        raise RunError(
            f"{error.filename or folder}: cannot be written, got {error.strerror or error}; make room and repeat the "
            "command: what was measured before is kept"
        ) from error


def _sets(subject: Subject, request: CardRequest) -> list[MeasuredSet]:
    """Return the dataset that is measured on, and those that the encoder is transferred to."""
    names = dict.fromkeys(request.datasets)
    whole = [named_set(name, subject, request.data_root) for name in names] or [own_set(subject, request.data_root)]
    return [replace(each, train=limit(each.train, request.train_limit)) for each in whole]


def _base(request: CardRequest, subjects: Sequence[Subject]) -> Path:
    """Return the folder of the page."""
    if request.to is not None:
        if is_address(request.to):
            raise UserError(f"--to: a folder on a disk is needed, got {request.to}")
        return expanded(request.to).absolute()
    run = subjects[0].run
    if len(subjects) == 1 and run is not None:
        return _card_of_run(subjects[0], run, request)
    return Path(_FOLDER).absolute()


def _own_folder(subject: Subject, base: Path, request: CardRequest) -> Path:
    """Return where the results of one encoder are kept: beside a run, else in the folder of the page."""
    if subject.run is not None:
        return _card_of_run(subject, subject.run, request)
    return base / _slug(subject.label)


def _card_of_run(subject: Subject, run: RunFolder, request: CardRequest) -> Path:
    """Return the folder of a run's card: ``card``, or ``card-<dataset>`` for another dataset than its own."""
    own = subject.trained.config.data.name if subject.trained else ""
    name = request.datasets[0] if request.datasets else own
    return run.path / ("card" if name == own else f"card-{short_name(name)}")


def _refusal(folder: Path) -> str:
    """Return why nothing can be written into ``folder``; empty when it can."""
    try:
        atomic.make_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _address(subjects: Sequence[Subject], base: Path) -> str:
    """Return path or address of the page."""
    run = subjects[0].run
    if len(subjects) == 1 and run is not None and run.remote is not None and base.parent == run.path:
        return (run.remote / base.name / PAGE).address
    return str(base / PAGE)


def _write(base: Path, done: Cards) -> None:
    """Write JSON, Markdown and the page.

    Raises:
        UnsavedError: The disk refuses.
    """
    try:
        atomic.write_json(base / "card.json", with_checksum(done.to_mapping()))
        atomic.write_text(base / "card.md", render_markdown(done.side_by_side))
        atomic.write_text(base / PAGE, render_page(done.side_by_side))
    except OSError as error:
        reason = error.strerror or error
        raise UnsavedError(f"{done.page}: the card was measured and cannot be written, got {reason}", done) from error


def _send(subjects: Sequence[Subject]) -> None:
    """Upload the cards of runs that live in a store; features stay here, they can be computed again."""
    for run in (subject.run for subject in subjects if subject.run is not None and subject.run.remote is not None):
        files = [path for path in run.path.glob("card*/**/*") if path.is_file() and "features" not in path.parts]
        run.send(*(path.relative_to(run.path).as_posix() for path in sorted(files)))


def _keep_scores(subject: Subject, cards: Sequence[Card]) -> None:
    """Keep kNN and linear scores of a run and its references as ``ebclab evaluate --only knn,linear`` does.

    Raises:
        UnsavedError: They cannot be written.
    """
    run, trained = subject.run, subject.trained
    names = [subject.label, *(card.label for card in cards[1:])]
    rows = {name: _scores(card) for name, card in zip(names, cards, strict=True)}
    if run is None or trained is None or not rows[subject.label]:
        return
    first = cards[0]
    evaluation = Evaluation(
        first.dataset, trained.kind, trained.step, trained.finished, first.num_train, first.num_test, rows
    )
    write_evaluation(run, evaluation, trained.config.data.name)


def _scores(card: Card) -> dict[str, Score]:
    return {each.name: _score(each) for each in card.numbers("classification") if each.name in PROBES}


def _score(number: Number) -> Score:
    return Score(
        number.name,
        number.value,
        number.low if number.low is not None else number.value,
        number.high if number.high is not None else number.value,
        number.num_images,
        number.protocol,
        number.seeds,
        number.per_seed,
        number.std,
    )


def _once(cards: Sequence[Card]) -> list[Card]:
    """Return cards without those that are the same by content, such as raw pixels beside each run."""
    known = {(card.encoder, card.dataset, card.seed, card.settings): card for card in reversed(cards)}
    return [card for card in cards if known[(card.encoder, card.dataset, card.seed, card.settings)] is card]


def _slug(label: str) -> str:
    """Return a label as the name of a folder."""
    return re.sub("[^a-z0-9]+", "-", label.lower()).strip("-") or "encoder"


def _plain_cell(cell: Cell) -> dict[str, Any]:
    plain = asdict(cell)
    if cell.against_first is not None:
        plain["against_first"] |= {"verdict": cell.against_first.verdict}
    return plain
