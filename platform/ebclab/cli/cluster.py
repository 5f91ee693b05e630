"""``ebclab cluster``: checks a file for ``ray up``, reports a cluster's limits to its head, watches spot machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebclab.terminal import say

app = typer.Typer(
    help="Check a file for `ray up`, tell a head what clouds do not tell it; cluster/README.md has every command.",
    no_args_is_help=True,
)


@app.command("check")
def check(file: Annotated[Path, typer.Argument(help="Such as cluster/cluster.yaml.")]) -> None:
    """List every problem that would stop `ray up`, and the cluster's machines.

    Checked are keys that Ray does not know, values not chosen yet, missing files, and a dashboard that others could
    reach. Nothing is started, and no cloud is contacted.

    Examples:

    ebclab cluster check cluster/cluster.yaml

    ebclab cluster check mine.yaml
    """
    from ebclab.cluster.up_file import check_cluster_file

    for line in check_cluster_file(file):
        say(line)


@app.command("announce")
def announce(
    file: Annotated[
        Path | None, typer.Argument(help="Configuration copied by `ray up`: ~/ray_bootstrap_config.yaml.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="Largest number of workers at the same time, instead of a file.")
    ] = None,
    cpus: Annotated[int, typer.Option("--cpus", min=0, help="CPUs per worker.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs per worker.")] = 0,
) -> None:
    """Tell the head on this machine how far its cluster may grow.

    Else a sweep on a cluster without workers would be refused: it has nothing yet. The files for `ray up` call this.

    Examples:

    ebclab cluster announce ~/ray_bootstrap_config.yaml

    ebclab cluster announce --most 8 --cpus 16 --gpus 1
    """
    from ebclab.cluster.announce import Growth, growth_of
    from ebclab.cluster.announce import announce as report
    from ebclab.errors import UserError

    if (file is None) == (most is None):
        got = "neither" if file is None else f"{file} and {most}"
        raise UserError(f"cluster announce: either a file or --most, got {got}; see `ebclab cluster announce --help`")
    if file and (cpus, gpus) != (1, 0):
        raise UserError(
            f"cluster announce: --cpus and --gpus belong to --most, got {cpus} and {gpus} with {file}, which has its "
            "own; leave them out"
        )
    number = most or 0
    say(report(growth_of(file) if file else Growth({"workers": (number, {"CPU": cpus, "GPU": gpus})}, number)))


@app.command("watch")
def watch(
    node_ip_address: Annotated[
        str, typer.Option("--node-ip-address", help="As given to `ray start`; default: detected.")
    ] = "",
) -> None:
    """Wait for the termination notice of a spot machine of Amazon or Google, and tell the head.

    Runs on this machine then save a checkpoint at once. Ends with the notice. The files for `ray up` start this.

    Examples:

    ebclab cluster watch

    ebclab cluster watch --node-ip-address 10.0.0.7
    """
    from datetime import UTC, datetime

    from ebclab.cluster.spot import watch as wait

    wait(lambda line: say(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}"), node_ip_address)
