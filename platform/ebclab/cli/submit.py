"""``ebclab submit``: checks a command line here, runs it on a running cluster and follows its log."""

from __future__ import annotations

import inspect
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ebclab.cli.compare import CompareOptions
from ebclab.cli.options import RESULTS, read_options, takes
from ebclab.cli.pretrain import PretrainOptions
from ebclab.cli.sweep import SweepOptions
from ebclab.config.addresses import is_address
from ebclab.config.encoder import TIMM
from ebclab.config.options import option
from ebclab.errors import EbclabError, InterruptedRunError, UserError
from ebclab.formatting import fitted
from ebclab.methods_by_name import code_of, import_method, is_import_name
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.cluster.jobs import JobState
    from ebclab.cluster.jobs_client import Cluster


def _note(line: str) -> None:
    """Print a line that does not belong to the output of a job."""
    say(fitted(line, sys.stderr), err=True)


READS_THE_REST = {"allow_interspersed_args": False}
"""Settings of click: arguments after the submitted command belong to it, with or without a ``--`` before it."""


@dataclass(frozen=True)
class SubmitOptions:
    """Arguments and options of ``ebclab submit``; see the help text of each option."""

    command: tuple[str, ...] = option(
        (), "Command to run there, as written after `ebclab`.", metavar="[--] VERB", is_argument=True
    )
    address: str | None = option(None, "Job server; default: $RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265.")
    name: str | None = option(None, "Name of the job; default: generated.", metavar="ID", panel="New job")
    wheel: Path | None = option(None, "Wheel of ebclab to run there; default: the ebclab that runs here.")
    detach: bool = option(False, "Do not wait for the job.")
    follow: str | None = option(None, "Show a job's log until it ends.", metavar="ID", panel="Jobs of the cluster")
    stop: str | None = option(None, "Ask a job to save a checkpoint and stop.", metavar="ID")
    list_jobs: bool = option(False, "List the cluster's jobs.", flag="--list")


@takes(SubmitOptions)
def submit(asked: SubmitOptions, context: typer.Context) -> None:
    """Run an ebclab command line on a running cluster, through its job server.

    The ebclab that runs here is uploaded with the files of --space and --config and, for a method that is given as
    package.module:Class, its package.

    The job continues if this computer sleeps, or if Ctrl-C ends the display of its log.
    The exit code is that of the command.

    Examples:

    ebclab submit -- sweep simclr --recipe cifar10-resnet18 --trials 64

    ebclab submit --list
    """
    address = asked.address
    one_of = {
        "a command line": asked.command,
        "--follow": asked.follow,
        "--stop": asked.stop,
        "--list": asked.list_jobs,
    }
    given = [what for what, value in one_of.items() if value]
    if len(given) != 1:
        raise UserError(
            f"submit: one of {', '.join(one_of)}, got {' and '.join(given) or 'none'}; see `ebclab submit --help`"
        )
    if asked.command:
        _submit(context.find_root().command, asked)
    elif asked.follow:
        _follow(_connect(address), asked.follow, address)
    elif asked.stop:
        _stop(_connect(address), asked.stop, address)
    else:
        _list(_connect(address))


def _submit(ebclab: Any, asked: SubmitOptions) -> None:
    """Check a command line, send it with its files and the code, and follow the job."""
    from ebclab.submission import FILES, entrypoint, new_id, require_id, require_verb, stage_code, stage_files

    command = [*asked.command]
    verb = require_verb(command)
    job_id = require_id(asked.name) if asked.name is not None else new_id(verb)
    words, parser, given = parsed(ebclab, command)
    for note in (_note_on_results(_results_in(parser, given)), _note_on_settings(words, given)):
        if note:
            _note(note)
    with tempfile.TemporaryDirectory(prefix="ebclab-submit-") as folder:
        code, files = Path(folder) / "code", Path(folder) / "files"
        sent = stage_files(command, files / FILES)
        code.mkdir()
        packages = stage_code(code, asked.wheel, named_code(given)) + list(files.glob("*"))
        cluster = _connect(asked.address)
        cluster.submit(job_id, entrypoint(sent), packages, _origin(asked.wheel))
    _note(f"submitted {job_id} to {cluster.address}")
    if asked.detach:
        _note(_how_to_go_on(job_id, asked.address))
    else:
        _follow(cluster, job_id, asked.address)


def parsed(ebclab: Any, arguments: Sequence[str]) -> tuple[str, Any, dict[str, Any]]:
    """Return the name of the command, the command, and its options by name, as parsed by the command's own parser."""
    command = ebclab
    context, words, rest = command.make_context("ebclab", list(arguments)), [], list(arguments)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        words.append(name)
        context = command.make_context(name, list(rest), parent=context)
    return " ".join(words), command, context.params


def named_code(given: Mapping[str, Any]) -> list[Path]:
    """Return the packages and files of the methods that checked options name as ``package.module:Class``."""
    names = [name for name in (given.get("method"), *(given.get("methods") or ())) if name and is_import_name(name)]
    for name in names:
        import_method(name)
    return list(dict.fromkeys(map(code_of, names)))


def _results_in(command: Any, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield each path or address that the user gave, or that is the default, for an option marked ``RESULTS``."""
    for parameter in inspect.signature(command.callback, eval_str=True).parameters.values():
        value = given.get(parameter.name)
        if value and RESULTS in getattr(parameter.annotation, "__metadata__", ()):
            yield from value if isinstance(value, list | tuple) else [value]


def _note_on_results(results: Iterable[str]) -> str | None:
    """Return a note on results in folders of the head node; None if all of them are in a store."""
    local = [place for place in results if not place.startswith(TIMM) and not is_address(place)]
    if not local:
        return None
    shown = ", ".join(place if place.startswith(("/", "~")) else f"~/{place}" for place in local)
    return f"on the head node, not here: {shown}; an address such as s3://BUCKET/FOLDER outlives the cluster"


def _note_on_settings(verb: str, given: dict[str, Any]) -> str | None:
    """Compose the settings as the command will, and return a note on them; None if there is none.

    Settings of a resumed run or sweep are known on the cluster only.
    """
    if verb == "sweep" and not (sweep := read_options(SweepOptions, given)).resume:
        sweep.plan(look=False)
        sweep.limits()
    if verb == "compare" and "methods" in (comparison := read_options(CompareOptions, given)).given:
        comparison.require_possible()
    if (
        verb == "pretrain"
        and not (run := read_options(PretrainOptions, given)).goes_on
        and not run.settings(look=False).resources.workers
    ):
        return (
            "with resources.workers=0 the head node itself trains; --workers 1 or more trains on the cluster's workers"
        )
    return None


def _origin(wheel: Path | None) -> dict[str, str]:
    """Return the environment variables that record the submitting Python and the commit of the code."""
    from ebclab.cli.arrival import SUBMITTED_FROM
    from ebclab.runs.environment import SENT_COMMIT, source_commit

    commit = None if wheel else source_commit()
    return {SUBMITTED_FROM: f"Python {platform.python_version()}"} | ({SENT_COMMIT: commit} if commit else {})


def _connect(asked: str | None) -> Cluster:
    from ebclab.cluster.jobs import choose_address, plain_text_warning

    address = choose_address(asked, os.environ)
    if warning := plain_text_warning(address, os.environ):
        _note(f"warning: {warning}")
    from ebclab.cluster.jobs_client import Cluster

    return Cluster(address)


def _follow(cluster: Cluster, job_id: str, address: str | None) -> None:
    """Show a job's log until it ends, and exit with the job's exit code."""
    from ebclab.cluster.jobs import follow, verdict

    try:
        cluster.state(job_id)
        job = follow(cluster, job_id, partial(say, end=""), note=_note)
    except KeyboardInterrupt:
        _note(f"\n{job_id} continues; {_how_to_go_on(job_id, address)}")
        raise typer.Exit(InterruptedRunError.exit_code) from None
    except UserError:
        raise
    except EbclabError as error:
        raise EbclabError(f"{error}; {_how_to_go_on(job_id, address)}") from error
    code, sentence = verdict(job)
    if sentence:
        _note(sentence)
    raise typer.Exit(code)


def _stop(cluster: Cluster, job_id: str, address: str | None) -> None:
    job = cluster.state(job_id)
    if job.is_over or not cluster.stop(job_id):
        say(f"{job_id} is over already: {job.status.lower()}")
        return
    say(f"asked {job_id} to save and stop; {_command('follow', job_id, address)} shows it")


def _list(cluster: Cluster) -> None:
    from ebclab.submission import submitted_part

    jobs = cluster.all_jobs()
    if not jobs:
        say(f"no jobs on {cluster.address}")
    for job in jobs:
        started = time.strftime("%d %b %H:%M", time.localtime(job.started)) if job.started else "not yet"
        failed = f", exit code {job.exit_code}" if job.exit_code else ""
        say(f"{job.id}: {job.status.lower()}{failed}, started {started}, {_took(job)}")
        say(f"    {submitted_part(job.command)}")


def _took(job: JobState) -> str:
    from ebclab.formatting import clock

    return (
        clock(max(0.0, (job.ended or time.time()) - job.started)) if job.started else ""
    )  # the cluster's clock may differ


def _how_to_go_on(job_id: str, address: str | None) -> str:
    return f"{_command('follow', job_id, address)} shows it again, {_command('stop', job_id, address)} stops it"


def _command(what: str, job_id: str, address: str | None) -> str:
    where = f" --address {address}" if address else ""
    return f"`ebclab submit --{what} {job_id}{where}`"
