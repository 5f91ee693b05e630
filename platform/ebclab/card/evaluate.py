"""Evaluates encoders: measures their cards, and writes these and a page that compares the encoders."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from ebclab.card.card import Card, CardFolder, as_score
from ebclab.card.document import card_document
from ebclab.card.images import MeasuredSet, named_set, no_images_of, outside_set, slug
from ebclab.card.measure import CardTask, groups_of, measure_card
from ebclab.card.measuring import CardOptions, FeatureStore, Measuring
from ebclab.card.request import CardRequest
from ebclab.card.side_by_side import Cards
from ebclab.card.subject import Subject, open_subject, references
from ebclab.cluster.switches import set_ray_switches
from ebclab.config.addresses import absolute, is_address
from ebclab.data.holdout import limit
from ebclab.errors import EbclabError, RunError, UnsavedError, UserError
from ebclab.evaluation.evaluate import PROBES
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.hardware import num_cores, resolve_device, set_threads
from ebclab.reports.place import write_result
from ebclab.runs import checkpoint
from ebclab.runs.environment import describe_environment
from ebclab.runs.evaluate import Evaluation, checkpoint_name, tell_of_labels, write_evaluation
from ebclab.storage import atomic
from ebclab.storage.own_folder import own_folder

PAGE = "card.html"
_FOLDER = "cards"


def measure_cards(request: CardRequest, on_progress: OnProgress = silent) -> Cards:
    """Return the cards asked for; write them, and the page, which has what was measured before too."""
    groups, kind = groups_of(request), checkpoint_name(request.checkpoint)
    subjects = _opened(request.encoders, kind)
    if not request.datasets and (wrong := [no_images_of(each) for each in subjects if each.trained is None]):
        raise UserError("\n".join(wrong))
    if "energies" in request.only and (wrong := [each.energy_problem for each in subjects if each.energy_problem]):
        raise UserError("\n".join(f"--only: {problem}" for problem in wrong))
    if request.scaling is not None:
        subjects = [subject.scaled(*request.scaling) for subject in subjects]
    base = _base(request, subjects)
    refusal = atomic.refusal(base)

    shared: dict[str, MeasuredSet] = {}

    def tasks() -> Iterator[list[CardTask]]:
        for subject in subjects:
            folder = None if refusal else _own_folder(subject, subjects, base, request)
            known = shared if request.workers else {}  # else one set at a time
            yield _tasks(subject, request, groups, folder, known, on_progress)

    is_whole = not (refusal or request.train_limit or request.test_limit or request.scaling)
    cards, kept = list[Card](), list[Card]()
    unsaved: UnsavedError | None = None
    measured = _spread(list(tasks()), request, on_progress) if request.workers else map(_one_after_the_other, tasks())
    for subject, pairs in zip(subjects, measured, strict=True):
        together = [card for card, _ in pairs]
        if is_whole:  # exports show these as the run's scores
            try:
                _keep_scores(subject, together)
            except UnsavedError as error:
                unsaved = unsaved or error
        cards += together
        kept += [whole for _, whole in pairs]
    done = Cards(tuple(_once(cards)), _address(subjects, base))
    if refusal:
        raise UnsavedError(f"{done.page}: the card was measured and cannot be written, got {refusal}", done)
    _write(base, replace(done, cards=tuple(_once(_alike(kept, request)))))
    _send(subjects)
    if unsaved is not None:
        raise UnsavedError(f"{unsaved}; the card with them is in {done.page}", done) from unsaved
    return done


def _opened(encoders: Sequence[str], kind: checkpoint.Kind) -> list[Subject]:
    """Return the encoders to measure; refuse all that cannot be opened at once."""
    subjects, wrong = [], []
    for where in dict.fromkeys(encoders):
        try:
            subjects.append(open_subject(where, kind))
        except EbclabError as error:
            wrong.append(error)
    if len(wrong) > 1:
        raise UserError("\n".join(map(str, wrong)))
    if wrong:
        raise wrong[0]
    return subjects


def _tasks(
    subject: Subject,
    request: CardRequest,
    groups: tuple[str, ...],
    folder: Path | None,
    known: dict[str, MeasuredSet],
    on_progress: OnProgress,
) -> list[CardTask]:
    """Return the cards to measure for one encoder and its references; without a folder nothing is saved.

    Equal sets of images are shared between encoders through ``known``.
    """
    root, most = request.data_root, request.test_limit
    whole = (named_set(name, subject, root) for name in dict.fromkeys(request.datasets or (None,)))
    sets = (replace(each, train=limit(each.train, request.train_limit), test=limit(each.test, most)) for each in whole)
    measured, *others = (known.setdefault(f"{each.name} {each.digest}", each) for each in sets)
    if subject.trained and not request.train_limit:
        for each in (measured, *others):
            tell_of_labels(subject.trained, each.name, len(each.train))
    outside = [outside_set(text, subject, measured, root) for text in request.outside]
    if "energies" in request.only and (count := len(measured.test)) < request.pairs:
        raise UserError(f"--pairs: {request.pairs} pairs need as many test images, got {count}; show fewer")
    tasks = []
    for each in (subject, *(references(subject) if request.references else ())):
        own = folder if each is subject or folder is None else folder / "references" / _file_name(each)
        card_folder = CardFolder(own) if own else None
        settings, named = each.evaluation, each.device_name
        settings = replace(settings, linear_protocol=request.protocol or settings.linear_protocol)
        device = torch.device("cpu") if request.workers else resolve_device(named)  # workers resolve it themselves
        measuring = Measuring(
            each,
            measured,
            CardOptions.of(request, settings),
            FeatureStore(card_folder.features if card_folder else None),
            device=device,
            on_progress=on_progress,
            others=tuple(others),
            outside=tuple(replace(far, outside=limit(far.outside, most)) for far in outside),
        )
        threads = each.trained.config.resources.threads if each.trained else 0
        tasks.append(CardTask(measuring, groups, card_folder, named, threads))
    return tasks


def _alike(cards: Sequence[Card], request: CardRequest) -> list[Card]:
    """Return cards with what was asked for, and of what else is kept, the groups that all of them have."""
    shared = set.intersection(*({result.group for result in card.results} for card in cards)) | {*groups_of(request)}
    return [replace(card, results=tuple(result for result in card.results if result.group in shared)) for card in cards]


_Pairs = list[tuple[Card, Card]]
"""Cards with the groups that are asked for, each beside the one with what else is kept."""


def _one_after_the_other(tasks: Sequence[CardTask]) -> _Pairs:
    cards = []
    for task in tasks:
        threads = set_threads(min(task.threads, num_cores()))  # the run's machine may have had more cores
        environment = describe_environment(task.measuring.device, threads, 1, sys.argv)
        with _room():
            card = measure_card(task, environment)
        cards.append((card, task.with_kept(card)))
    return cards


def _spread(tasks: Sequence[Sequence[CardTask]], request: CardRequest, on_progress: OnProgress) -> list[_Pairs]:
    """Return the cards of all encoders, encoder by encoder, measured by Ray workers."""
    set_ray_switches()
    from ebclab.card.ray_workers.spread import measure_on_workers  # Ray takes a second to import

    with _room():
        cards = iter(measure_on_workers([each for some in tasks for each in some], request.workers, on_progress))
    return [[(card := next(cards), task.with_kept(card)) for task in some] for some in tasks]


@contextmanager
def _room() -> Iterator[None]:
    """Convert an OSError of the block to an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{error.filename or 'the disk'}: cannot be written, got {error.strerror or error}; free some space and "
            "repeat the command: what was measured before is kept"
        ) from error


def _base(request: CardRequest, subjects: Sequence[Subject]) -> Path:
    if request.to is not None:
        if is_address(request.to):
            raise UserError(f"--to: a folder on a disk is needed, got {request.to}")
        return absolute(request.to)
    return (subjects[0].card_folder(*request.datasets[:1]) if len(subjects) == 1 else None) or absolute(_FOLDER)


def _own_folder(subject: Subject, subjects: Sequence[Subject], base: Path, request: CardRequest) -> Path:
    """Return the folder for the results of one encoder: in its run folder if that is writable, else in the page's."""
    own = subject.card_folder(*request.datasets[:1])
    if own is not None and not atomic.refusal(own):
        return own
    name = _file_name(subject)
    if own is not None or sum(_file_name(each) == name for each in subjects) > 1:
        name += f"-{hashlib.sha256(subject.address.encode()).hexdigest()[:8]}"  # exports of equal names
    return own_folder(base, name)


def _address(subjects: Sequence[Subject], base: Path) -> str:
    run = subjects[0].run
    if len(subjects) == 1 and run is not None and run.remote is not None and base.parent == run.path:
        return (run.remote / base.name / PAGE).address
    return str(base / PAGE)


def _write(base: Path, done: Cards) -> None:
    try:
        write_result(base / "card.json", done.to_mapping(), card_document(done))
    except OSError as error:
        reason = error.strerror or error
        raise UnsavedError(f"{done.page}: the card was measured and cannot be written, got {reason}", done) from error


def _send(subjects: Sequence[Subject]) -> None:
    """Upload the cards of runs in an object store, without features, which can be computed again."""
    for run in (subject.run for subject in subjects if subject.run is not None and subject.run.remote is not None):
        files = [path for path in run.path.glob("card*/**/*") if path.is_file() and "features" not in path.parts]
        run.send(*(path.relative_to(run.path).as_posix() for path in sorted(files)))


def _keep_scores(subject: Subject, cards: Sequence[Card]) -> None:
    """Save the scores of probes of a run and its references, as ``ebclab evaluate --only knn,linear,top5`` does."""
    run, trained = subject.run, subject.trained
    rows = {
        card.label: {each.name: as_score(each) for each in card.numbers("classification") if each.name in PROBES}
        for card in cards
    }
    if run is not None and trained is not None and rows[subject.label]:
        own, first = trained.config.data.name, cards[0]
        measured = (first.dataset, trained.kind, trained.step, trained.finished, first.num_train, first.num_test)
        write_evaluation(run, Evaluation(*measured, rows, first.tests_held_out), own)


def _once(cards: Sequence[Card]) -> list[Card]:
    """Return cards without duplicates by content, e.g. the raw pixels of each run."""
    known = {(card.encoder, card.dataset, card.seed, card.settings): card for card in reversed(cards)}
    return [card for card in cards if known[(card.encoder, card.dataset, card.seed, card.settings)] is card]


def _file_name(subject: Subject) -> str:
    return slug(subject.label) or "encoder"
