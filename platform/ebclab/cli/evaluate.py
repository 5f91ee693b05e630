"""``ebclab evaluate`` and ``search``: measure frozen encoders on a card; find the images most similar to given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

import typer

from ebclab.card.request import CardRequest, ProbeRequest, SearchRequest
from ebclab.cli.options import Json, refuse_given, takes
from ebclab.cli.progress import measured, progress_bar
from ebclab.errors import UserError
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.card.side_by_side import Cards
    from ebclab.evaluation.answers import Score
    from ebclab.runs.evaluate import Evaluation


@takes(CardRequest)
def evaluate(request: CardRequest, as_json: Json = False) -> None:
    """Measure frozen encoders on the test set; write card.json, card.md and card.html.

    Examples:

    ebclab evaluate runs/first --references

    ebclab evaluate runs/first timm/resnet18 --only classification,robustness
    """
    from ebclab.evaluation.evaluate import PROBES

    if request.features is not None:
        return _features(request, as_json)
    if request.only and all(name in PROBES for name in request.only):
        return _probe(request, as_json)
    return _measure(request, as_json)


_OF_FEATURES = (
    *("encoders", "datasets", "checkpoint", "data_root", "train_limit", "test_limit"),
    *("size", "resampling", "features"),
)
"""What chooses the encoder and the images."""


def _others(names: Sequence[str]) -> set[str]:
    return {each.name for each in fields(CardRequest)} - {*names}


def _features(request: CardRequest, as_json: bool) -> None:
    from ebclab.card.search import write_features

    refuse_given(request, _others(_OF_FEATURES), "is for a card, got {} with --features; leave one of them out")
    for word, given in (("ENCODER", request.encoders), ("--dataset", request.datasets)):
        if len(given) > 1:
            raise UserError(f"{word}: one for each file of --features, got {len(given)}; repeat the command for each")
    if as_json:
        raise UserError("--json: prints a card, which --features does not measure; leave one of them out")
    with progress_bar() as on_progress:
        said = write_features(request, on_progress)
    say(said)


def _measure(request: CardRequest, as_json: bool) -> None:
    from ebclab.card.evaluate import measure_cards

    done = measured(partial(measure_cards, request), _print_cards, as_json)
    if not as_json:
        say(f"wrote {done.page}")
    if done.failures:
        raise typer.Exit(1)


def _print_cards(done: Cards) -> None:
    """Print one table per group, with one row per metric and one column per encoder."""
    from ebclab.card.document import about_images, numbers_table, problems, what_intervals_say
    from ebclab.card.groups import GROUPS
    from ebclab.document.document import Remark
    from ebclab.document.text import print_blocks
    from ebclab.runs.evaluate import images_in_words

    several = len(done.columns) > 1
    print_blocks(map(Remark, done.learnt))
    for line in dict.fromkeys(images_in_words(card.dataset, card.num_test, card.tests_held_out) for card in done.cards):
        say(line)
    print_blocks(map(Remark, about_images(done.cards)))
    groups = dict.fromkeys(row.group for row in done.rows)
    print_blocks(numbers_table(done, group, is_brief=several, title=GROUPS[group].title) for group in groups)
    for failed in (True, False):
        print_blocks(Remark(f"not measured: {line}") for line in problems(done.cards, failed=failed))
    if several:
        print_blocks([Remark(f"*: beyond noise against {done.columns[0].label}; intervals are on the page")])
    print_blocks([Remark(what_intervals_say(done.columns))])


def _probe(request: CardRequest, as_json: bool) -> None:
    """Print the scores of single probes and save them with the run."""
    from ebclab.config.encoder import TIMM
    from ebclab.export.load_energies import is_export
    from ebclab.runs.evaluate import evaluate_run

    if len(request.encoders) > 1 or len(request.datasets) > 1:
        raise UserError(
            "--only: single probes are of one run on one dataset; of several, --only classification has them"
        )
    (where,) = request.encoders
    if where.startswith(TIMM) or is_export(where):
        raise UserError(
            f"--only: single probes are of runs, got {where}; --only classification has them for any encoder"
        )
    of_probes = [each.name for each in fields(ProbeRequest)]
    refuse_given(request, _others(of_probes), "is for groups of the card, got {} with single probes; leave it out")
    measure = partial(
        evaluate_run,
        where,
        dataset=request.datasets[0] if request.datasets else None,
        data_root=request.data_root,
        only=request.only,
        protocol=request.protocol,
        checkpoint_kind=request.checkpoint,
        references=request.references,
    )
    measured(lambda on_progress: measure(on_progress=on_progress), _print_scores, as_json)


def _print_scores(done: Evaluation) -> None:
    from ebclab.document.document import CellValue, Table, numeric
    from ebclab.document.text import print_blocks
    from ebclab.interval import SHARE

    def words(score: Score) -> str:
        return f"{SHARE.spread(score.interval)} ({SHARE.ends(score.low, score.high)})"

    probes = list(dict.fromkeys(probe for scores in done.rows.values() for probe in scores))
    lines: list[tuple[CellValue, ...]] = [
        (name, *(numeric(words(scores[probe]) if probe in scores else "") for probe in probes))
        for name, scores in done.rows.items()
    ]
    say(done.title)
    print_blocks([Table("", ("features", *probes), tuple(lines))])
    say("in brackets: 95 % interval over test images, for this run alone")


@takes(SearchRequest)
def search(request: SearchRequest) -> None:
    """Find the images most similar to yours by an encoder's features; print them, and draw them on a page.

    Examples:

    ebclab search runs/photos cat.jpg

    ebclab search timm/resnet18 cat.jpg dog.jpg --dataset folder:PHOTOS
    """
    from ebclab.card.search import search as find
    from ebclab.document.document import Remark
    from ebclab.document.text import print_blocks

    with progress_bar() as on_progress:
        found = find(request, on_progress)
    print_blocks([*found.tables, *([Remark(found.note)] if found.note else [])])
    say(f"wrote {found.page}")
