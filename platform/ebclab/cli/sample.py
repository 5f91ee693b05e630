"""``ebclab sample``: long chains of a run's own sampler, drawn and measured."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from functools import partial
from typing import TYPE_CHECKING

from ebclab.cli.options import Json, takes
from ebclab.cli.progress import measured
from ebclab.config.options import DATA_ROOT, option, values_of
from ebclab.errors import UserError
from ebclab.formatting import count
from ebclab.terminal import say
from ebclab.training.sample_request import SampleRequest

if TYPE_CHECKING:
    from ebclab.evaluation.samples import SampleMeasures
    from ebclab.training.samples import Samples

_CLASSES = 20  # of the table, at most


@dataclass(frozen=True, kw_only=True)
class _SampleOptions(SampleRequest):
    """Arguments and options of ``ebclab sample``; see the help text of each option."""

    run: str = option(
        MISSING,
        "Run of ebclr, jem or vem-image (name, folder or address).",
        metavar="RUN",
        is_argument=True,
        is_place_of_results=True,
    )
    checkpoint: str = option("last", "Checkpoint: last, or best by the run's objective.", panel="Run")
    data_root: str | None = option(None, DATA_ROOT)
    to: str | None = option(
        None,
        "Folder for the files; default: that of the run.",
        metavar="DIR",
        is_place_of_results=True,
        panel="Results",
    )


@takes(_SampleOptions)
def sample(options: _SampleOptions, as_json: Json = False) -> None:
    """Run long chains of an energy-based run; draw them by step, and measure them beside real images.

    Examples:

    ebclab sample runs/mine --steps 1000

    ebclab sample runs/mine --from data --set method.step_size=0.02
    """
    from ebclab.config.encoder import TIMM
    from ebclab.export.load_energies import is_export
    from ebclab.runs.evaluate import checkpoint_name
    from ebclab.training.samples import sample_chains

    if options.run.startswith(TIMM) or is_export(options.run):
        raise UserError(f"RUN: an encoder alone has no chains, got {options.run}; name the run that it comes from")
    run_chains = partial(
        sample_chains,
        options.run,
        SampleRequest(**values_of(SampleRequest, options)),
        checkpoint_kind=checkpoint_name(options.checkpoint),
        to=options.to,
        data_root=options.data_root,
    )
    done = measured(lambda on_progress: run_chains(on_progress=on_progress), _print_table, as_json)
    if not as_json:
        for place in done.written:
            say(f"wrote {place}")


def _print_table(done: Samples) -> None:
    from ebclab.document.document import CellValue, Remark, Table, numeric
    from ebclab.document.text import print_blocks

    asked = done.request
    weights = f"{done.method}, {done.checkpoint} checkpoint, step {done.training_step:,}"
    say(f"{weights}: {count(asked.count, 'chain')} from {asked.source}")
    found = _rows([*done.samples.values(), done.test_images])
    rows: list[tuple[CellValue, ...]] = [(title, *map(numeric, cells)) for title, cells in found]
    heads = ("after steps", *(f"{step:,}" for step in done.samples), done.real_images)
    lines = [
        "saturated: pixels more than a tenth of the range beyond black or white",
        "distances: root mean square over pixels, black 0, white 1",
    ]
    if done.judge:
        accuracy = done.judge["test_accuracy"]
        lines.append(
            f"answers: a logistic regression on pixels of {count(done.judge['train_images'], 'training image')}"
            + ("" if accuracy is None else f", which is right on {100 * accuracy:.1f} % of {done.real_images}")
        )
    print_blocks([Table("", heads, tuple(rows)), *map(Remark, lines)])


def _rows(columns: list[SampleMeasures]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table; what was measured of no column is left out."""

    def shown(value: float | None, form: str) -> str:
        return "" if value is None else form.format(value)

    rows = [
        ("saturated, %", [f"{100 * each.saturation:.1f}" for each in columns]),
        ("energy, nats", [f"{each.energy:.{'2f' if abs(each.energy) < 1e5 else '1e'}}" for each in columns]),
        ("distance of two", [shown(each.diversity, "{:.3f}") for each in columns]),
        ("to nearest training", [f"{each.nearest:.3f}" for each in columns]),
        ("entropy of answers", [shown(each.entropy, "{:.2f}") for each in columns]),
    ]
    classes = list(columns[0].class_shares or ())
    if len(classes) <= _CLASSES:
        rows += [
            (f"answer {name}, %", [f"{100 * (each.class_shares or {})[name]:.0f}" for each in columns])
            for name in classes
        ]
    return [(title, cells) for title, cells in rows if any(cells)]
