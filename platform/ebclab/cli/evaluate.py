"""``ebclab evaluate``: measures frozen encoders and writes their evaluation card."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ebclab.cli.options import RESULTS, DataRoot, takes
from ebclab.cli.progress import progress_bar
from ebclab.errors import UnsavedError, UserError
from ebclab.formatting import count
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.card.evaluate import Cards
    from ebclab.evaluation.intervals import Score
    from ebclab.runs.evaluate import Evaluation


_OF_CARDS = frozenset(
    [
        "ood",
        "seeds",
        "attacked",
        "autoattack",
        "train_limit",
        "test_limit",
        "workers",
        "fine_tuning_epochs",
        "pairs",
        "fine_tuning",
        "bins",
        "size",
        "resampling",
        "to",
    ]
)
"""Options that single probes do not use."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Arguments and options of ``ebclab evaluate``; see the help text of each option."""

    encoders: Annotated[
        list[str],
        typer.Argument(
            metavar="ENCODER...",
            help="Runs (folder or s3://bucket/runs/name), exported folders, timm/NAME; the first is compared with "
            "all others.",
            show_default=False,
        ),
        RESULTS,
    ]
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Dataset to measure on instead of the run's own; repeat it to also measure transfer."),
    ] = None
    ood: Annotated[
        list[str] | None,
        typer.Option(
            "--ood",
            metavar="[near=|far=]NAME",
            help="Out-of-distribution images: a dataset, or `rotated` or `inverted` (half of the test images).",
        ),
    ] = None
    only: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Groups of the card, separated by commas, or all; `ebclab show --card` lists them. Single probes "
            "(knn, linear, top5, ebclr-knn) are printed, without a card.",
        ),
    ] = ""
    seeds: Annotated[int, typer.Option(help="Number of seeds for protocols that are random.")] = 3
    protocol: Annotated[
        str | None, typer.Option(help="Linear probe protocol; `ebclab show --protocols` lists them.")
    ] = None
    checkpoint: Annotated[str, typer.Option(help="Checkpoint of runs: last, or best by the run's objective.")] = "last"
    references: Annotated[
        bool, typer.Option("--references", help="Also measure raw pixels and the untrained encoder.")
    ] = False
    attacked: Annotated[int, typer.Option(help="Number of test images to attack; 0: all.")] = 1_000
    autoattack: Annotated[
        bool,
        typer.Option("--autoattack", help="Also run AutoAttack, which costs more than all other attacks together."),
    ] = False
    train_limit: Annotated[int, typer.Option(help="Number of training images to use, chosen by hash; 0: all.")] = 0
    test_limit: Annotated[int, typer.Option(help="Number of test images to use, chosen by hash; 0: all.")] = 0
    size: Annotated[
        int,
        typer.Option(help="Side that the largest central squares of images are scaled to; 0: the encoder's own."),
    ] = 0
    resampling: Annotated[
        str, typer.Option(help="How images are scaled: bilinear or bicubic; by default as the encoder's own were.")
    ] = ""
    workers: Annotated[
        int, typer.Option(metavar="W", help="0: this process; W: distribute the groups over W Ray workers.")
    ] = 0
    pairs: Annotated[int, typer.Option(help="Number of nearest and of farthest pairs of views to show.")] = 4
    fine_tuning: Annotated[str, typer.Option(help="Fine-tuning protocol; `ebclab show --protocols` lists them.")] = (
        "simclr"
    )
    fine_tuning_epochs: Annotated[
        int, typer.Option(help="Epochs of fine-tuning on the labelled images; 0: as many as the protocol says.")
    ] = 0
    bins: Annotated[int, typer.Option(help="Bins of calibration errors, beside those with 15 and 20.")] = 15
    data_root: DataRoot = None
    to: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder for the page; default: that of a single run, else ./cards."),
        RESULTS,
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@takes(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> None:
    """Measure frozen encoders on the test set; write card.json, card.md and card.html."""
    from ebclab.evaluation.evaluate import PROBES

    names = tuple(part.strip() for part in options.only.split(",") if part.strip())
    if names and all(name in PROBES for name in names):
        return _probe(options, names)
    return _measure(options, names)


def _measure(options: EvaluateOptions, groups: tuple[str, ...]) -> None:
    """Write the card and print its numbers."""
    import json

    from ebclab.card.evaluate import measure_cards
    from ebclab.card.request import CardRequest

    request = CardRequest(
        encoders=tuple(options.encoders),
        datasets=tuple(options.dataset or ()),
        outside=tuple(options.ood or ()),
        only=groups,
        seeds=options.seeds,
        protocol=options.protocol,
        checkpoint=options.checkpoint,
        references=options.references,
        data_root=options.data_root,
        to=options.to,
        attacked_images=options.attacked,
        autoattack=options.autoattack,
        train_limit=options.train_limit,
        test_limit=options.test_limit,
        workers=options.workers,
        fine_tuning=options.fine_tuning,
        fine_tuning_epochs=options.fine_tuning_epochs,
        pairs=options.pairs,
        bins=options.bins,
        size=options.size,
        resampling=options.resampling,
    )
    unsaved = None
    with progress_bar() as on_progress:
        try:
            done = measure_cards(request, on_progress)
        except UnsavedError as error:
            done, unsaved = cast("Cards", error.result), error
    if options.as_json:
        say(json.dumps(done.to_mapping(), indent=2))
    else:
        _print_cards(done)
    if unsaved is not None:
        raise unsaved
    if not options.as_json:
        say(f"wrote {done.page}")
    if done.failures:
        raise typer.Exit(1)


def _print_cards(done: Cards) -> None:
    """Print one table per group, with one row per metric and one column per encoder."""
    from ebclab.card.catalog import GROUPS
    from ebclab.card.document import numbers_table
    from ebclab.card.wording import problems, what_intervals_say
    from ebclab.document.document import Remark
    from ebclab.document.terminal import print_blocks

    compared = done.side_by_side
    several = len(compared.columns) > 1
    for line in dict.fromkeys(f"{card.dataset} test set, {count(card.num_test, 'image')}" for card in done.cards):
        say(line)
    groups = dict.fromkeys(row.group for row in compared.rows)
    print_blocks(numbers_table(compared, group, is_brief=several, title=GROUPS[group].info.title) for group in groups)
    for failed in (True, False):
        print_blocks(Remark(f"not measured: {line}") for line in problems(done.cards, failed=failed))
    if several:
        print_blocks([Remark(f"*: beyond noise against {compared.columns[0].label}; intervals are on the page")])
    print_blocks([Remark(what_intervals_say(compared.columns))])


def _probe(options: EvaluateOptions, probes: tuple[str, ...]) -> None:
    """Print the scores of single probes and save them with the run."""
    import json

    from ebclab.config.timm_names import TIMM
    from ebclab.export.load_energies import is_export
    from ebclab.runs.evaluate import evaluate_run

    if len(options.encoders) > 1 or len(options.dataset or ()) > 1:
        raise UserError(
            "--only: single probes are of one run on one dataset; of several, --only classification has them"
        )
    (where,) = options.encoders
    if where.startswith(TIMM) or is_export(where):
        raise UserError(
            f"--only: single probes are of runs, got {where}; --only classification has them for any encoder"
        )
    _refuse_options_of_cards(options)
    unsaved = None
    with progress_bar() as on_progress:
        try:
            scores = evaluate_run(
                where,
                dataset=options.dataset[0] if options.dataset else None,
                data_root=options.data_root,
                only=probes,
                protocol=options.protocol,
                checkpoint_kind=options.checkpoint,
                references=options.references,
                on_progress=on_progress,
            )
        except UnsavedError as error:
            scores, unsaved = cast("Evaluation", error.result), error
    if options.as_json:
        say(json.dumps(scores.to_mapping(), indent=2))
    else:
        _print_table(scores.title, scores.rows)
    if unsaved is not None:
        raise unsaved


def _refuse_options_of_cards(options: EvaluateOptions) -> None:
    """Refuse options that single probes do not use.

    Raises:
        UserError: One of these options was given.
    """
    for field in fields(EvaluateOptions):
        given = getattr(options, field.name)
        if field.name in _OF_CARDS and given not in (field.default, []):
            shown = ", ".join(given) if isinstance(given, list) else given
            option = "--" + field.name.replace("_", "-")
            raise UserError(f"{option}: is for groups of the card, got {shown} with single probes; leave it out")


def _print_table(title: str, rows: dict[str, dict[str, Score]]) -> None:
    """Print a table with one row per encoder and one column per probe."""
    from ebclab.document.document import CellValue, Table, numeric
    from ebclab.document.terminal import print_blocks

    probes = list(dict.fromkeys(probe for scores in rows.values() for probe in scores))
    lines: list[tuple[CellValue, ...]] = [
        (name, *(numeric(_summary(scores[probe]) if probe in scores else "") for probe in probes))
        for name, scores in rows.items()
    ]
    say(title)
    print_blocks([Table("", ("features", *probes), tuple(lines))])
    say("in brackets: 95 % interval over test images, for this run alone")


def _summary(score: Score) -> str:
    """Return accuracy as text, with its standard deviation over seeds, if several, and interval over test images."""
    from ebclab.interval import SHARE

    spread = f" ± {SHARE.number(score.std)}" if score.std is not None else ""
    return f"{SHARE.number(score.value)}{spread} ({SHARE.ends(score.low, score.high)})"
