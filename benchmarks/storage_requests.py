"""What runs and sweeps ask of an object store: requests by kind, and bytes.

    python benchmarks/storage_requests.py [--measured FILE]

Requests are counted in ``Store``, through which all of them go but those for leases, and in the lease's file, in the
sweep's process and in those of its trials, with a store on this disk. Looks for a request to stop that find nothing are
left out: their number depends on time alone. What a call is on the wire is counted by a server that speaks S3's
protocol on this machine.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from page import measured, write_page
from scaling import TINY, cluster, sweep_of
from sweep_start import generated_trial

REQUESTS = "EBCLAB_BENCHMARK_REQUESTS"  # variable with the file that requests are counted in
CALLS = ("names", "stored", "read", "download", "upload", "write", "delete")
LEASE_CALLS = ("read", "write", "changed", "now", "delete")
TRIED = (
    "lease tried"  # whether obstore reaches the store, which takes conditional writes: once a process, not on a disk
)
RUNS, SWEEPS, LOGS = (2, 12), (4, 16), (100, 1000)  # epochs, trials of two epochs, trials of twenty


def counted_turn(config: dict[str, Any], setup: Any) -> None:
    """Train a trial in a process whose requests are counted."""
    from ebclab.sweeps.ray_tune.trial_worker import run_turn

    count_requests("trial")
    run_turn(config, setup)


def count_requests(who: str) -> None:
    """Have every request of this process written down, with the bytes of content that it moves."""
    from ebclab.storage.object_store import Store
    from ebclab.storage.swap import LocalFile

    def note(call: str, size: int, file: str) -> None:
        with open(os.environ[REQUESTS], "a") as log:
            log.write(json.dumps({"who": who, "call": call, "bytes": size, "file": file}) + "\n")

    def counted(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(store: Any, *given: Any) -> Any:
            result = own(store, *given)
            size = given[0].stat().st_size if name == "upload" else 0
            size = len(given[1]) if name == "write" else len(result) if name == "read" else size
            size = given[1].stat().st_size if name == "download" else size
            note(name, size, str(given[1] if name == "upload" else given[0] if given else ""))
            return result

        call.is_counted = True  # type: ignore[attr-defined]
        return call

    def counted_for_lease(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *given: Any, **options: Any) -> Any:
            if name == "write" and os.getpid() not in tried:
                tried.add(os.getpid())
                note(TRIED, 0, "")
            result = own(file, *given, **options)
            note(f"lease {name}", len(given[0]) if name == "write" else 0, "lease")
            return result

        call.is_counted = True  # type: ignore[attr-defined]
        return call

    tried = set[int]()
    for owner, names, count in ((Store, CALLS, counted), (LocalFile, LEASE_CALLS, counted_for_lease)):
        for name in names:
            if not hasattr(getattr(owner, name), "is_counted"):
                setattr(owner, name, count(name, getattr(owner, name)))


def requests_of(work: Callable[[str], None], who: str) -> dict[str, Any]:
    """Return the requests that ``work`` makes in an empty store: number by call and bytes by file."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {REQUESTS: f"{folder}/requests", "EBCLAB_COPIES": f"{folder}/copies"}
        count_requests(who)
        began = time.perf_counter()
        work(f"file://{folder}/store")
        seconds = time.perf_counter() - began
        records = [json.loads(line) for line in Path(folder, "requests").read_text().splitlines()]
    calls = Counter(f"{record['who']} {record['call']}" for record in records)
    sent = Counter[str]()
    for record in records:
        is_log, is_checkpoint = "trials.jsonl" in record["file"], "checkpoints/" in record["file"]
        what = "log" if is_log else "checkpoints" if is_checkpoint else "rest"
        sent[f"{record['who']} {what}"] += record["bytes"] if record["call"].endswith(("upload", "write")) else 0
    logs = sum("trials.jsonl" in record["file"] and record["call"] in ("upload", "write") for record in records)
    return {"calls": dict(calls), "bytes": dict(sent), "logs": logs, "seconds": seconds}


def run_requests(epochs: int) -> dict[str, Any]:
    """Count the requests of one run, with a checkpoint after every epoch."""
    import ebclab
    from ebclab.training.display import Listener

    settings = [*TINY, f"training.epochs={epochs}", "training.checkpoint_every=1"]
    config = ebclab.compose("simclr", overrides=settings)
    return requests_of(lambda root: ebclab.pretrain(config, runs=root, name="r", display=Listener()), "run")


def sweep_requests(trials: int) -> dict[str, Any]:
    """Count the requests of a sweep of real trials of two epochs, two at a time."""

    def work(root: str) -> None:
        with cluster(2):  # its processes inherit where requests are counted
            sweep_of(trials, root, counted_turn, 2, epochs=2)

    return requests_of(work, "sweep")


def log_requests(trials: int) -> dict[str, Any]:
    """Count the requests for the log of a sweep of ``trials`` generated trials of 20 epochs, pushed twice a trial."""
    from ebclab.storage.mirror import Mirror
    from ebclab.storage.object_store import RemoteFolder
    from ebclab.sweeps.policies.suggest import suggest
    from ebclab.sweeps.space.space import load_space

    space, size = load_space(None, "flatclr"), 0

    def work(root: str) -> None:
        nonlocal size
        remote = RemoteFolder(root, "s")
        mirror, path = Mirror(remote), remote.cache / "trials.jsonl"
        remote.cache.mkdir(parents=True)
        for number in range(trials):
            point = suggest(space, "random", seed=0, number=number, trials=[], default=None)
            events = io.StringIO()
            generated_trial(events, number, point, space.settings(point))
            first, _, others = events.getvalue().partition("\n")
            for text in (f"{first}\n", others):
                with path.open("a") as file:
                    file.write(text)
                mirror.push()
        size = path.stat().st_size

    return requests_of(work, "log") | {"size": size}


def wire() -> dict[str, dict[str, int]]:
    """Count what each call of ``Store`` is for a server of S3's protocol, by method of HTTP."""
    import boto3
    from moto.server import ThreadedMotoServer

    seen: list[str] = []
    verbs = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) ')  # the server colours some of its lines
    logger = logging.getLogger("werkzeug")
    logger.setLevel(logging.INFO)
    logger.addFilter(lambda record: bool(seen.append(record.getMessage())))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=True)
    server.start()
    host, port = server.get_host_and_port()
    names = {"AWS_ACCESS_KEY_ID": "o", "AWS_SECRET_ACCESS_KEY": "o", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ |= {**names, "AWS_EC2_METADATA_DISABLED": "true", "EBCLAB_STORES": f"http://{host}:{port}"}
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="sets")
    from ebclab.storage.object_store import RemoteFolder, Store
    from ebclab.storage.swap import writable_file

    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(b"x" * 1000)
        remote = RemoteFolder(f"s3://sets/a?endpoint_override={host}:{port}&scheme=http", "s")
        store = Store(remote)
        store.write("first", b"x")
        seen.clear()
        file = writable_file(remote, ".held.json")
        time.sleep(0.3)
        tried = dict(Counter(verbs.findall("\n".join(seen))))
        given = {"names": (), "stored": ("first",), "read": ("first",), "download": ("first", path)}
        given |= {"upload": (path, "u"), "write": ("w", b"x"), "delete": ("w",)}
        for name in CALLS:
            seen.clear()
            getattr(store, name)(*given[name])
            time.sleep(0.3)
            found[name] = dict(Counter(verbs.findall("\n".join(seen))))
    seen.clear()
    with suppress(FileNotFoundError):
        store.read("none")
    time.sleep(0.3)
    found["read of what is not there"] = dict(Counter(verbs.findall("\n".join(seen))))
    found[TRIED] = tried
    for name in (f"lease {name}" for name in LEASE_CALLS):
        seen.clear()
        if name == "lease write":
            file.write(b"{}", over=None)
        else:
            getattr(file, name.split()[1])()
        time.sleep(0.3)
        found[name] = dict(Counter(verbs.findall("\n".join(seen))))
    server.stop()
    return found


PARTS: dict[str, Callable[..., Any]] = {"run": run_requests, "sweep": sweep_requests, "log": log_requests, "wire": wire}
CLASSES = {"GET": "get", "HEAD": "get", "PUT": "put", "POST": "put", "DELETE": "free"}  # as S3 prices them
DOLLARS = {"put": 0.005 / 1000, "get": 0.0004 / 1000, "free": 0.0}  # list prices, US East, assumed


def priced(calls: dict[str, float], wire: dict[str, dict[str, int]]) -> dict[str, float]:
    """Return requests by price class; a listing costs as much as a PUT."""
    found = dict.fromkeys(DOLLARS, 0.0)
    for name, number in calls.items():
        for verb, times in wire[name.split(" ", 1)[1]].items():
            found["put" if name.endswith(" names") else CLASSES[verb]] += number * times
    return found


def per(one: dict[str, Any], other: dict[str, Any], key: str, units: int) -> dict[str, float]:
    """Return what one more unit (epoch, trial) adds."""
    names = sorted({*one[key], *other[key]})
    return {name: (other[key].get(name, 0) - one[key].get(name, 0)) / units for name in names}


def row(label: str, calls: dict[str, float], sent: dict[str, float], wire: dict[str, dict[str, int]]) -> str:
    """Return a line of the table."""
    classes = priced(calls, wire)
    dollars = sum(classes[name] * DOLLARS[name] for name in DOLLARS)
    told = ", ".join(f"{number:.3g} {name}" for name, number in calls.items() if number)
    size = ", ".join(f"{number / 1e3:,.1f} {name}" for name, number in sent.items() if number)
    counts = f"{classes['put']:.3g} / {classes['get']:.3g}"
    return f"| {label} | {told} | {counts} | {size} | {dollars * 1e3:.3g} |"


def tables(found: dict[str, Any]) -> str:
    """Return the page's tables."""
    wire, (short, long), (few, many) = found["wire"], RUNS, SWEEPS
    runs, sweeps = ([found[f"{kind} {n}"] for n in sizes] for kind, sizes in (("run", RUNS), ("sweep", SWEEPS)))
    lines = ["| call of Store | requests on the wire |", "|---|---|"]
    lines += [f"| {name} | {', '.join(f'{n} {verb}' for verb, n in wire[name].items())} |" for name in wire]
    lines += ["", "| unit | calls | priced as PUT or LIST / as GET | kB sent | thousandths of a dollar |"]
    lines += ["|---|---|---|---|---|"]
    lines += [row(f"run of {short} epochs", runs[0]["calls"], runs[0]["bytes"], wire)]
    epoch = [per(*runs, key, long - short) for key in ("calls", "bytes")]
    lines += [row("an epoch more, with its checkpoint", *epoch, wire)]
    lines += [row(f"sweep of {few} trials", sweeps[0]["calls"], sweeps[0]["bytes"], wire)]
    trial = [per(*sweeps, key, many - few) for key in ("calls", "bytes")]
    lines += [row(f"a trial more, up to {many}", *trial, wire)]
    lines += ["", f"Uploads of the log: {sweeps[0]['logs']} with {few} trials, {sweeps[1]['logs']} with {many}."]
    lines += ["", "| a log pushed twice a trial | its size, MB | sent, MB | writes | seconds, this disk |"]
    lines += ["|---|---|---|---|---|"]
    for trials in LOGS:
        log = found[f"log {trials}"]
        sizes = f"{log['size'] / 1e6:.2f} | {log['bytes']['log log'] / 1e6:,.1f}"
        lines += [f"| {trials:,} trials of 20 epochs | {sizes} | {log['logs']:,} | {log['seconds']:.1f} |"]
    return "\n".join(lines)


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", metavar="FILE", help="keep measurements here; what it has is not repeated")
    parser.add_argument("--only", nargs="+", metavar="PART", help="measure this here and print it as JSON")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps(PARTS[asked.only[0]](*map(int, asked.only[1:]))))
        return
    names = [f"run {n}" for n in RUNS] + [f"sweep {n}" for n in SWEEPS] + [f"log {n}" for n in LOGS] + ["wire"]
    found = measured(__file__, names, asked.measured)
    command = "`python benchmarks/storage_requests.py`"
    write_page(
        "storage_requests", "What a store is asked", command, ("pyarrow", "obstore", "ray", "moto"), tables(found)
    )


if __name__ == "__main__":
    main()
