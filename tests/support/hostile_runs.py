"""A real run, sweep and comparison with hostile values, one field at a time, and what commands do with each.

    python tests/support/hostile_runs.py FOLDER SEED [SEED ...]

prints a line of JSON for each seed: what was changed, and its faults, of which there should be none. Each case runs in
a fork of a process that has imported everything, under an audit hook, a limit of processor time and one of memory.
"""

import contextlib
import csv
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import socket
import stat
import sys
import threading
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

SECONDS = 20  # of the processor, for all commands of a case
WALL_SECONDS = 120  # for a case that waits for something
MEGABYTES = 1_500  # that a case may grow by
CHARACTERS = 100_000  # that a command may print
OLD_SWEEP = Path(__file__).parents[1] / "folders" / "made_by_0.1" / "sweeps" / "sweep"

TRAIN = ["pretrain", "simclr", "--recipe", "digits-demo", "--epochs", "1", "--name", "run", "--runs", "runs"]
TINY = ["data.train_limit=96", "training.batch_size=32", "optimizer.warmup_epochs=0", "resources.threads=1"]
PROBE = ["evaluate", "runs/run", "--only", "knn"]
CARD = ["evaluate", "runs/run", "--only", "classification", "--train-limit", "64", "--test-limit", "32"]
LIST = ["runs", "list"]
SHOW = ["runs", "show", "runs/run"]
REPORT = ["report", "runs/run", "--to", "written/page.html"]
EXPORT = ["export", "runs/run", "--to", "written/encoder"]
EVALUATE_EXPORT = ["evaluate", "exports/encoder", *CARD[2:], "--dataset", "digits"]
REPORT_SWEEP = ["report", "sweeps/sweep", "--to", "written/page.html"]
EXPORT_SWEEP = ["export", "sweeps/sweep", "--to", "written/encoders"]
CLEAN = ["runs", "clean"]
COMPARISON = ["compare", "--page", "--name", "comparison", "--comparisons", "comparisons"]

READ_BY = {
    "runs/run/config.yaml": (PROBE, CARD, REPORT, EXPORT),
    "runs/run/environment.json": (REPORT, EXPORT, PROBE),
    "runs/run/result.json": (REPORT, EXPORT, PROBE),
    "runs/run/metrics.jsonl": (REPORT, EXPORT, PROBE),
    "runs/run/evaluation.json": (EXPORT, PROBE, REPORT),
    "runs/run/answers.json": (EXPORT, PROBE, CARD),
    "runs/run/checkpoints/last-0000000002/manifest.json": (PROBE, EXPORT, CARD),
    "runs/run/card/card.json": (CARD, REPORT),
    "runs/run/card/groups/classification.json": (CARD, CARD),
    "exports/encoder/encoder.json": (EVALUATE_EXPORT,),
    "sweeps/sweep/sweep.yaml": (REPORT_SWEEP, EXPORT_SWEEP, CLEAN),
    "sweeps/sweep/trials.jsonl": (REPORT_SWEEP, EXPORT_SWEEP, CLEAN),
    "sweeps/sweep/result.json": (REPORT_SWEEP, EXPORT_SWEEP, CLEAN),
    "comparisons/comparison/comparison.yaml": (COMPARISON,),
    "comparisons/comparison/plans.json": (COMPARISON,),
}
"""Commands that read each file, besides those that list and show runs."""

OBEYED = re.compile(r"(?:.*\.)?(?:(?:data|method|encoder)\.name|data\.root|encoder\.width|init\.weights|address)")
"""Fields whose values are looked up, opened or built: a third of the changes, where a file has any, are to them."""


class Place(NamedTuple):
    """What hostile values point at.

    Attributes:
        port: Of a listener on loopback.
        elsewhere: A folder that no command was told of, with a file ``thesis.txt``.
    """

    port: int
    elsewhere: Path


VALUES: dict[str, Callable[[Place], Any]] = {
    "s3 with a host": lambda at: f"parquet:s3://evil/set?endpoint_override=127.0.0.1:{at.port}&scheme=http",
    "gs with a host": lambda at: f"parquet:gs://evil/set?endpoint_override=127.0.0.1:{at.port}&scheme=http",
    "a store with a host": lambda at: f"s3://evil/x?endpoint_override=127.0.0.1:{at.port}&scheme=http",
    "http": lambda at: f"http://127.0.0.1:{at.port}/x",
    "a host": lambda at: f"127.0.0.1:{at.port}",
    "ray": lambda at: f"ray://127.0.0.1:{at.port}",
    "credentials": lambda _: "s3://key:secret@evil/x",
    "a way out": lambda _: "../../../elsewhere/thesis.txt",
    "a folder's way out": lambda _: "folder:../../elsewhere",
    "elsewhere": lambda at: str(at.elsewhere),
    "images elsewhere": lambda at: f"folder:{at.elsewhere}",
    "passwd": lambda _: "/etc/passwd",
    "no end": lambda _: "/dev/zero",
    "home": lambda _: "~root/x",
    "a class": lambda _: "evilmod:Evil",
    "a class within": lambda _: "evilmod.inner:Evil",
    "own images": lambda _: "own:x",
    "a hub": lambda _: "timm/hf-hub:evil/model",
    "escapes": lambda _: "\x1b[2J\x1b]0;owned\x07\x9b2J",
    "bidi": lambda _: "a\u202egnp.exe\u2066\u200e",
    "nul": lambda _: "a\0b",
    "lines": lambda _: "x\nerror: all is lost\n" * 1_000,
    "half a character": lambda _: "\ud800",
    "long": lambda _: "x" * 100_000,
    "slashes": lambda _: "://" * 3_000,
    "digits": lambda _: "1" * 20_000 + "x",
    "braces": lambda _: "webdataset:{0..999990}{0..999990}.tar",
    "long braces": lambda _: "webdataset:{0.." + "9" * 5_000 + "}.tar",
    "markup": lambda _: "<img src=x onerror=alert(1)> [/x] `a` | b",
    "formula": lambda _: '=HYPERLINK("http:evil","x")',
    "format": lambda _: "%s%n{0.__class__}",
    "nothing": lambda _: "",
    "a space": lambda _: " ",
    "null": lambda _: None,
    "true": lambda _: True,
    "zero": lambda _: 0,
    "negative": lambda _: -1,
    "half": lambda _: 0.5,
    "a million": lambda _: 1_000_000,
    "2^63": lambda _: 2**63,
    "10^30": lambda _: 10**30,
    "10^4000": lambda _: 10**4_000,
    "1e308": lambda _: 1e308,
    "-1e308": lambda _: -1e308,
    "nan": lambda _: float("nan"),
    "infinity": lambda _: float("-inf"),
    "no list": lambda _: [],
    "a list": lambda _: [[]],
    "texts": lambda _: ["../../x", "\x1b[2J"],
    "deep": lambda _: _deep(60),
    "very deep": lambda _: _deep(900),
    "a long list": lambda _: [1] * 60_000,
    "an object": lambda _: {},
    "objects": lambda _: {"a": [1], "\x1b[2J": {"__class__": "x"}},
}

FILES: dict[str, Callable[[Path, Place], object]] = {
    "a link to passwd": lambda file, _: file.symlink_to("/etc/passwd"),
    "a link elsewhere": lambda file, at: file.symlink_to(at.elsewhere / "thesis.txt"),
    "a link to nothing": lambda file, at: file.symlink_to(at.elsewhere / "new"),
    "a link without end": lambda file, _: file.symlink_to("/dev/zero"),
    "a pipe": lambda file, _: os.mkfifo(file),
    "a folder": lambda file, _: file.mkdir(),
    "nothing": lambda file, _: file.touch(),
    "a bomb of lists": lambda file, _: file.write_text("[" * 500_000),
    "an endless line": lambda file, _: file.write_text('{"a": "' + "x" * 3_000_000),
    "no text": lambda file, _: file.write_bytes(bytes(range(256)) * 40),
}

_CONNECTS = {"socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"}
_WRITES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
_WRITES |= {"os.chown", "os.utime", "os.setxattr", "shutil.rmtree", "shutil.move", "os.mkfifo", "shutil.chown"}


def _deep(levels: int) -> list[Any]:
    return json.loads("[" * levels + "]" * levels)  # type: ignore[no-any-return]


# Changing one field


class Case(NamedTuple):
    """One change of one file, and what is then run."""

    seed: int
    file: str
    field: str
    value: str
    commands: tuple[list[str], ...]


def change(seed: int, folder: Path, place: Place) -> Case:
    """Make one field of one file in ``folder`` hostile; the files take turns, field and value are drawn."""
    chance = random.Random(seed)
    name = list(READ_BY)[seed % len(READ_BY)]
    commands = (chance.choice((LIST, SHOW)), *chance.sample(READ_BY[name], min(2, len(READ_BY[name]))))
    file = folder / name
    if chance.random() < 0.12:
        kind = chance.choice(list(FILES))
        file.unlink()
        FILES[kind](file, place)
        return Case(seed, name, "the file", kind, commands)
    value = chance.choice(list(VALUES))
    text = file.read_text(encoding="utf-8")
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in text.splitlines()]
        number = chance.randrange(len(lines))
        field = f"line {number + 1}, {_set_one(lines[number], VALUES[value](place), chance)}"
        file.write_text("".join(f"{_json(line)}\n" for line in lines))
    elif name.endswith(".json"):
        content = json.loads(text)
        field = _set_one(content, VALUES[value](place), chance)
        file.write_text(_json(_summed(content) if field != "digest" else content))
    else:
        content = yaml.safe_load(text)
        field = _set_one(content, VALUES[value](place), chance)
        file.write_text(_as_yaml(content))
    return Case(seed, name, field, value, commands)


def _set_one(content: Any, value: Any, chance: random.Random) -> str:
    """Replace a value within ``content``, or add it under a new key, or as one; return the key with dots."""
    places: list[tuple[Any, Any, str]] = []
    level: list[tuple[Any, str]] = [(content, "")]
    while level:
        inside, path = level.pop()
        keys = list(inside) if isinstance(inside, dict) else range(min(len(inside), 3))
        for key in keys:
            places.append((inside, key, f"{path}{key}"))
            if isinstance(inside[key], dict | list):
                level.append((inside[key], f"{path}{key}."))
    obeyed = [place for place in places if OBEYED.fullmatch(place[2])]
    texts = [place for place in places if isinstance(place[0][place[1]], str | None)]
    inside, key, path = chance.choice(chance.choice((obeyed, texts, places)) or places)
    draw = chance.random()
    if draw < 0.06 and isinstance(inside, dict):
        inside["new" if isinstance(value, dict | list) else str(value)] = value
        return f"a new key beside {path}"
    if draw < 0.1 and isinstance(inside, dict):
        del inside[key]
        return f"without {path}"
    inside[key] = value
    return path


def _json(content: Any, **options: Any) -> str:
    """Return JSON, numbers of any length included."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(content, **options)
    finally:
        sys.set_int_max_str_digits(limit)


def _summed(content: Any) -> Any:
    """Return the content of a file with its checksum, if it had one, made anew."""
    if not isinstance(content, dict) or "digest" not in content:
        return content
    own = {key: value for key, value in content.items() if key != "digest"}
    text = _json(own, sort_keys=True, separators=(",", ":"))
    return own | {"digest": hashlib.sha256(text.encode()).hexdigest()}


def _as_yaml(content: Any) -> str:
    """Return JSON where it is YAML of the same meaning, which it is but for numbers that are none."""
    text = _json(content)
    return re.sub(r"\bNaN\b", ".nan", re.sub(r"-Infinity\b", "-.inf", text))


# Watching one case


def _watch(folder: Path, report: Path, faults: list[str]) -> None:
    """Have everything noted that a command must not do: it may write within ``folder`` alone."""
    inside = f"{folder.resolve()}{os.sep}"

    def check_written(path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            real = os.path.realpath(os.fsdecode(path))
            if not f"{real}{os.sep}".startswith(inside) and real not in (os.devnull, str(report)):
                faults.append(f"wrote {real}")

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = given
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) or set(mode or "") & set("wax+"):
                check_written(path)
        elif event in _WRITES:
            for path in given[: 2 if event in ("os.rename", "os.link", "shutil.move") else 1]:
                if isinstance(path, str | os.PathLike):  # a link that is renamed or removed is not followed
                    check_written(os.path.join(os.path.realpath(os.path.dirname(path)), "x"))
        elif event in _CONNECTS:
            faults.append(f"{event} {given[1:] if event.startswith('socket.connect') else given[:2]}")
        elif event in _STARTS and given[0] != "git":  # which is asked for the commit of the code
            faults.append(f"{event} {given[:2]}")
        elif event == "import" and str(given[0]).startswith("evilmod"):
            faults.append("imported evilmod")

    sys.addaudithook(hook)


def _run_case(case: Case, folder: Path, report: Path) -> None:
    """Run the commands of a case in this process, which is a fork; write the faults after each of them."""
    from ebclab.cli import main

    os.chdir(folder)
    os.environ |= {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "COLUMNS": "100"}
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS + 1,) * 2)
    sys.setrecursionlimit(1_000)
    faults: list[str] = []
    _watch(folder, report, faults)
    for words in case.commands:
        report.write_text(json.dumps([*faults, f"{' '.join(words[:2])}: not done in {SECONDS} s, or killed"]))
        for name, number in (("out", 1), ("err", 2)):
            file = os.open(folder / "tmp" / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        before = len(faults)
        try:
            code: object = main(words)
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if "ebclab" in frame.filename][-1:]
            where = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in (*own, frames[-1]))
            code = f"traceback {type(error).__name__}: {str(error)[:120]!r} at {where}"
        sys.stdout.flush()
        sys.stderr.flush()
        faults += _outcome_faults(code, folder / "tmp")
        faults[before:] = [f"{' '.join(words[:2])}: {fault}" for fault in faults[before:]]
    faults += _written_faults(folder / "written")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used.ru_maxrss) / 1024
    if grown > MEGABYTES:
        faults.append(f"grew by {grown:.0f} MB")
    report.write_text(json.dumps(faults))


def _outcome_faults(code: object, folder: Path) -> Iterator[str]:
    """Yield what is wrong with how a command ended and what it printed."""
    said, told = ((folder / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
    if code not in (0, 1, 2):
        yield f"ended with {code}"
    elif code and "error: " not in told and "warning: " not in told and "not measured" not in said:
        yield f"exit code {code} without a sentence, but {told[-200:]!r}"
    if "Traceback (most recent" in said + told:
        yield f"traceback {told.strip()[-200:]!r}"
    if hidden := {each for each in said + told if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")} - set("\n\t"):
        yield f"printed {sorted(hidden)!r}"
    if len(said) + len(told) > CHARACTERS:
        yield f"printed {len(said) + len(told):,} characters"
    if "secret" in said + told:
        yield "printed credentials"


def _written_faults(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the tables and pages that a command wrote."""
    for path in folder.rglob("*"):
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                csv.field_size_limit(1 << 30)
                cells = [cell for row in csv.reader(file) for cell in row]
            if any(re.match(r"[=+@\t\r]|-(?![\d.]|inf)", cell) for cell in cells):
                yield f"{path.name} has a formula"
        elif path.suffix in (".md", ".html"):
            text = path.read_text(encoding="utf-8")
            if "key:secret" in text:
                yield f"{path.name} has credentials"
            outside_code = re.sub(r"^(`{3,}).*?^\1$|<script.*?</script>", "", text, flags=re.DOTALL | re.MULTILINE)
            if "<img src=x" in outside_code:
                yield f"{path.name} has markup"


# All cases


def _listen() -> tuple[int, Callable[[], list[str]]]:
    """Listen on loopback; return the port, and a function that returns the beginnings of all that has arrived since."""
    heard: list[str] = []
    server, own = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        while True:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.settimeout(2)
                if (text := client.recv(200)) == b"that was all":
                    own.set()
                else:
                    heard.append(f"the listener heard {text!r}")

    def arrived() -> list[str]:
        own.clear()
        with socket.create_connection(server.getsockname()) as client:  # waits behind those that came before
            client.sendall(b"that was all")
        own.wait(WALL_SECONDS)
        found = heard[:]
        heard.clear()
        return found

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1], arrived


def _make(folder: Path) -> None:
    """Make the run, sweep and comparison, and import what all commands import."""
    from made_up_comparison import MadeUp, request_for

    from ebclab.cli import main

    for name in ("written", "exports"):
        (folder / name).mkdir(parents=True)
    os.chdir(folder)
    options = [word for text in TINY for word in ("--set", text)]
    shutil.copytree(OLD_SWEEP, "sweeps/sweep")
    made_up = MadeUp(folder / "comparisons" / "comparison", request_for("simclr", "dcl"))
    for planned in made_up.plan.sweeps:
        made_up.measure(planned)
    written = []
    with Path("made.txt").open("w") as said, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        for words in ([*TRAIN, *options], PROBE, CARD, LIST, SHOW, REPORT, EXPORT, REPORT_SWEEP, EXPORT_SWEEP, CLEAN):
            written.append((words, main(words)))
        written.append((COMPARISON, main(COMPARISON)))
        shutil.move("written/encoder", "exports/encoder")
        if not (process := os.fork()):  # it starts threads of torch, which no later fork would have
            os._exit(main(EVALUATE_EXPORT))
        written.append((EVALUATE_EXPORT, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])))
    if any(code for _, code in written):
        raise RuntimeError(f"{written}\n{Path('made.txt').read_text()}")
    shutil.rmtree("written")
    importlib.import_module("timm")  # as names of networks are looked up there: its imports have ldconfig started


def _wait(process: int, patience: float) -> str:
    """Wait for a fork; return how it ended, empty if well. One that is stuck is killed."""
    until = time.monotonic() + patience
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else f"the process ended with {code}"
        if time.monotonic() > until:
            os.kill(process, 9)
            os.waitpid(process, 0)
            return f"hung for {patience} s"
        time.sleep(0.005)


def _state(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(path.lstat().st_mode) else "other"
        for path in folder.rglob("*")
    }


def outcomes(folder: Path, seeds: list[int]) -> Iterator[tuple[Case, list[str]]]:
    """Yield each case with its faults; the process is changed for good."""
    folder = folder.resolve()
    evil, elsewhere = folder / "modules", folder / "elsewhere"
    for each in (evil / "evilmod", elsewhere):
        each.mkdir(parents=True)
    (evil / "evilmod" / "__init__.py").write_text("Evil = type('Evil', (), {})\n")
    (evil / "evilmod" / "inner.py").write_text("Evil = type('Evil', (), {})\n")
    (elsewhere / "thesis.txt").write_text("all of it\n")
    sys.path.insert(0, str(evil))
    sys.dont_write_bytecode = True
    os.environ |= {"AWS_ACCESS_KEY_ID": "AKIAMADEUP", "AWS_SECRET_ACCESS_KEY": "secret", "HF_HUB_OFFLINE": "1"}
    os.environ["OMP_NUM_THREADS"] = (
        "1"  # threads that this process has are missing in its forks, which would wait for them
    )
    os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", "GCE_METADATA_HOST": "127.0.0.1:9"}
    _make(folder / "made")
    port, arrived = _listen()
    before = _state(elsewhere)
    gc.collect()
    gc.freeze()  # else the collections of every fork copy all that was imported
    for seed in seeds:
        there = folder / "case" / "x"
        shutil.copytree(folder / "made", there)
        for name in ("home", "tmp", "written"):
            (there / name).mkdir()
        case = change(seed, there, Place(port, elsewhere))
        report = folder / "case" / "report.json"
        if not (process := os.fork()):
            try:
                _run_case(case, there, report)
            finally:
                os._exit(0)
        ended = _wait(process, WALL_SECONDS)
        faults = [*json.loads(report.read_text()), *([ended] if ended else []), *arrived()[:2]]
        if _state(elsewhere) != before:
            faults.append("changed what is elsewhere")
            shutil.rmtree(elsewhere)
            elsewhere.mkdir()
            (elsewhere / "thesis.txt").write_text("all of it\n")
        shutil.rmtree(folder / "case")
        yield case, faults


def main() -> None:
    place, *seeds = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    for case, faults in outcomes(Path(place), [int(seed) for seed in seeds]):
        print(json.dumps([case.seed, f"{case.file}: {case.field} = {case.value}", faults]), file=answers, flush=True)


if __name__ == "__main__":
    main()
