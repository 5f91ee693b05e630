"""The options of ``ebclab sweep``, each with what its help says."""

from __future__ import annotations

from typing import Annotated

import typer

Method = Annotated[str, typer.Argument(help="Method; `ebclab show --methods` lists them.", show_default=False)]
Space = Annotated[
    str | None, typer.Option(help="YAML file of what is searched; the method's shipped one when left out.")
]
Recipe = Annotated[str | None, typer.Option(help="Named settings of every trial.")]
Config = Annotated[str | None, typer.Option(help="YAML file of settings of every trial.")]
Dataset = Annotated[str | None, typer.Option(help="Same as --set data.name=...")]
DataRoot = Annotated[str | None, typer.Option(help="Folder that holds datasets.")]
Init = Annotated[str | None, typer.Option(metavar="DIR", help="Weights that every trial starts from, or timm/NAME.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting of every trial.")
]
Objective = Annotated[
    str | None,
    typer.Option(help="holdout_knn, holdout_linear, effective_rank or alignment_uniformity; never the test set."),
]
Trials = Annotated[int | None, typer.Option(help="Trials of the search; 16, or the whole grid.")]
Epochs = Annotated[int | None, typer.Option(help="Epochs of a searching trial at most; training.epochs when left out.")]
Limit = Annotated[str | None, typer.Option("--time", help="Time for the search, such as 8h or 1h30m.")]
Scheduler = Annotated[str | None, typer.Option(help="asha (when left out), median, pbt or none.")]
Search = Annotated[str | None, typer.Option(help="tpe, random or grid; tpe, or random with pbt.")]
Interval = Annotated[int | None, typer.Option(help="pbt: epochs from one exchange to the next.")]
Rules = Annotated[
    list[str] | None, typer.Option("--rule", metavar="KEY=VALUE", help="Any stopping rule, e.g. plateau_epochs=5.")
]
GpusPerTrial = Annotated[float | None, typer.Option(help="GPUs of a trial; .25 puts four on one.")]
Concurrent = Annotated[str, typer.Option(metavar="N", help="Trials at once; auto: as many as fit.")]
Top = Annotated[int | None, typer.Option(help="Best settings to run again at full budget; 3; 0: none.")]
Seeds = Annotated[int | None, typer.Option(help="Seeds that each of them is run with; 3.")]
Baseline = Annotated[
    bool | None,
    typer.Option("--baseline/--no-baseline", help="Run the settings it starts from with these seeds too; yes."),
]
Name = Annotated[str | None, typer.Option(help="Name of the sweep; METHOD-DATASET when left out.")]
Sweeps = Annotated[str, typer.Option(help="Folder that holds sweeps, or an address: s3://bucket/sweeps.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a sweep; --trials may have grown.")]
WarmStart = Annotated[str | None, typer.Option(help="An earlier sweep to learn from: its folder or address.")]
Show = Annotated[bool, typer.Option("--show", help="Print space, trials, resources and longest time only.")]
PricePerHour = Annotated[float | None, typer.Option(help="--show: price of an hour of one trial.")]
