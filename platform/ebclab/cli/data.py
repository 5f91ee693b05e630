"""``ebclab data``: lists and fetches datasets, writes them as Parquet, draws their views."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from ebclab.cli import options
from ebclab.cli.options import RESULTS, as_assignments, composed
from ebclab.cli.progress import progress_bar
from ebclab.config.sections import LARGEST_SIDE, USUAL_VIEWS, fitting_views
from ebclab.errors import UserError
from ebclab.formatting import fitted
from ebclab.terminal import say

app = typer.Typer(help="List, fetch and look at datasets.", no_args_is_help=True)


@app.command("list")
def list_datasets(root: options.DataRoot = None) -> None:
    """List the datasets and whether their files are here.

    Examples:

    ebclab data list

    ebclab data list --data-root /data
    """
    from ebclab.data.sources.catalogue import DATASETS, PUBLISHED, missing_files
    from ebclab.data.sources.catalogue import data_root as resolve_root
    from ebclab.document.document import CellValue, Table, numeric
    from ebclab.document.text import print_blocks

    folder = resolve_root(root)
    rows: list[tuple[CellValue, ...]] = []
    for name, entry in DATASETS.items():
        channels, height, width = entry.shape
        counts = [numeric(f"{entry.num_images[split]:,}") for split in ("train", "test")]
        here = not missing_files(entry, str(folder), "train") and not missing_files(entry, str(folder), "test")
        rows.append((name, *counts, f"{height}x{width}x{channels}", "here" if here else "fetch"))
    for published in PUBLISHED.values():
        counts = [numeric(f"{published.num_images[split]:,}") for split in ("train", "test")]
        rows.append((f"{published.name}:PATH", *counts, published.image, "yours"))
    print_blocks([Table(f"datasets in {folder}", ("dataset", "train", "test", "image", "files"), tuple(rows))])
    words = [
        "here: ready to use. fetch: run `ebclab data fetch DATASET`. yours: unpack it yourself, as described below.",
        "Your own images (docs/data.md): folder:PATH, parquet:PATH, webdataset:PATH, arrow:PATH.",
        *(f"\n{published.name}:PATH\n{published.instructions}" for published in PUBLISHED.values()),
    ]
    say(fitted("\n".join(words), sys.stdout))


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="Dataset.", show_default=False)], root: options.DataRoot = None
) -> None:
    """Download a dataset's files.

    Examples:

    ebclab data fetch cifar10

    ebclab data fetch fashion-mnist --data-root /data
    """
    from ebclab.data.sources.load import fetch as fetch_files

    fetch_files(name, root, say)


@app.command("prepare")
def prepare(
    name: Annotated[str, typer.Argument(help="Dataset name, or a location such as folder:PATH.", show_default=False)],
    to: Annotated[
        str, typer.Option(help="New or empty folder to write to, also s3://...", show_default=False), RESULTS
    ],
    shards: Annotated[
        int,
        typer.Option(
            min=0, help="Files per split, at most one per 1,024 images; 0: chosen by size.", rich_help_panel="Files"
        ),
    ] = 0,
    resize: Annotated[
        int, typer.Option(min=0, max=LARGEST_SIDE, help="Same as --set data.resize=...", rich_help_panel="Images")
    ] = 0,
    train_limit: Annotated[
        int,
        typer.Option(
            min=0, help="Number of training images to keep, chosen by hash; 0: all.", rich_help_panel="Images"
        ),
    ] = 0,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Leave out damaged images.", rich_help_panel="Images")
    ] = False,
    store: Annotated[str, typer.Option(help="Store images as pixels or as jpeg.", rich_help_panel="Files")] = "pixels",
    quality: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="JPEG quality for --store jpeg; default: 90.", rich_help_panel="Files"),
    ] = None,
    assignments: Annotated[
        list[str] | None, options.set_option("Any setting of the data section, e.g. data.colour=grey.", "Images")
    ] = None,
    root: options.DataRoot = None,
) -> None:
    """Write a dataset as Parquet shards, which any storage can stream; if killed, repeat the command to continue.

    Examples:

    ebclab data prepare folder:PHOTOS --to shards --resize 256 --store jpeg

    ebclab data prepare cifar10 --to s3://bucket/cifar10 --shards 8
    """
    from ebclab.config.addresses import PARQUET, expanded, is_address
    from ebclab.data.preparing.write_parquet import Storage, prepare_dataset, require_target, split_rows
    from ebclab.data.sources.load import splits_of

    storage = Storage(store, 90 if quality is None else quality)
    if quality is not None and store != "jpeg":
        raise UserError(
            f"--quality: of --store jpeg, got {quality} with --store {store}; leave it out, or add --store jpeg"
        )
    given = {"data.name": name, "data.root": root, "data.resize": resize, "data.skip_corrupt": skip_corrupt}
    data = composed("simclr", None, None, as_assignments(given, ["views.recipe=none", *(assignments or ())])).data
    require_target(to)
    splits = {split: split_rows(data, split, train_limit) for split in splits_of(data.name)}
    with progress_bar() as bar:

        def on_progress(done: int, total: int) -> None:
            bar(done, total, "images")

        prepare_dataset(splits, to, shards=shards, storage=storage, progress=say, on_progress=on_progress)
    channels, height, width = splits["train"].source.example.shape
    usual = [f"views.recipe={USUAL_VIEWS[name]}"] if name in USUAL_VIEWS else fitting_views(channels, height, width)
    views = " ".join(f"--set {assignment}" for assignment in usual)
    place = f"'{PARQUET}{to}'" if is_address(to) else shlex.quote(f"{PARQUET}{expanded(to).absolute()}")
    grey = " --set data.colour=grey" if store == "jpeg" and channels == 1 else ""
    say(f"next: ebclab pretrain simclr --dataset {place} {views}{grey}")


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Dataset.", show_default=False)],
    views: Annotated[str, typer.Option(help="PNG file to write: images, each beside its views.")] = "views.png",
    view_recipe: Annotated[str | None, typer.Option(help="`ebclab show --views` lists them.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Use the views of a recipe.")] = None,
    assignments: Annotated[list[str] | None, options.set_option("Any setting, e.g. views.flip_rate=0.5.")] = None,
    root: options.DataRoot = None,
) -> None:
    """Draw images of a dataset and the views that training would make of them.

    Examples:

    ebclab data show folder:PHOTOS --views photos.png

    ebclab data show cifar10 --recipe cifar10-small
    """
    from ebclab.data.photograph import Reading
    from ebclab.data.sources.load import load_split
    from ebclab.data.views.preview import draw_views, require_png

    require_png(views)
    given = {"data.name": name, "data.root": root, "views.recipe": view_recipe}
    config = composed("simclr", recipe, None, as_assignments(given, assignments))
    images = load_split(config.data.name, config.data.root, "train", Reading.of(config.data))
    draw_views(images, config.views, views, seed=config.seed)
    say(f"wrote {views}")
