"""When a cluster's head counts as gone, what is said if Ray does not start, and which machines are drained."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private.utils import validate_socket_filepath
from small_runs import Notes

from ebclab.cluster import join as module
from ebclab.cluster.join import Head, Notices
from ebclab.errors import UserError
from ebclab.training.display import Listener

HERE = "127.0.0.1:6379"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time and a head as a test wants them."""
    made = SimpleNamespace(now=0.0, answer=b"one", monotonic=lambda: made.now)
    monkeypatch.setattr(module, "who_answers", lambda address: made.answer)
    monkeypatch.setattr(module, "time", made)
    return made


def test_a_head_that_is_silent_for_a_moment_or_busy_is_not_lost(clock: SimpleNamespace) -> None:
    head = Head(HERE)
    for now, answer in ((2, b"one"), (20, None), (31, None), (32, b""), (60, None), (62, b"one"), (91, None)):
        clock.now, clock.answer = now, answer
        assert head.loss() == "", now


def test_a_head_that_stays_silent_is_lost_after_half_a_minute_and_at_once_when_ray_has_failed(clock):
    head = Head(HERE)
    clock.now, clock.answer = 10.0, None
    assert head.loss() == ""
    assert str(head.lost()) == (
        f"the cluster's head at {HERE} has not answered for 10 s; what was saved is kept: "
        "once the cluster is up, the same command resumes from there"
    )
    clock.now = 30.0
    assert f"{HERE} has not answered for 30 s; " in head.loss()
    clock.answer = b"one"
    assert head.lost() is None


def test_another_head_in_its_place_is_not_the_one_that_was_joined(clock: SimpleNamespace) -> None:
    head = Head(HERE)
    clock.answer = b"two"
    assert f"{HERE} is another one than before; " in head.loss()


def test_a_process_that_waits_for_a_lost_head_ends_with_the_sentence() -> None:
    program = """
import time
from ebclab.cluster import join as head
from ebclab.training.display import LineDisplay
import sys
head._POLL_SECONDS, head._PATIENCE = 0.01, 0.0
head.Head.loss.__kwdefaults__["patience"] = 0.0
with head.watched_head("127.0.0.1:9", LineDisplay(sys.stderr)):
    while True:
        time.sleep(3600)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the cluster's head at 127.0.0.1:9 has not answered for ")
    assert len(done.stderr.splitlines()) == 1


def late(**given: str) -> None:
    raise Exception("The current node timed out during startup.")


def wrong(**given: str) -> None:
    raise KeyError("a mistake of ours")


def too_long(**given: str) -> None:
    """Clusters with a queue give jobs such folders in TMPDIR."""
    validate_socket_filepath(f"{given['_temp_dir']}/{'x' * 100}")


@pytest.mark.parametrize(
    ("start", "told", "sentence"),
    [
        (late, UserError, "^Ray on this machine: did not start, got The current node timed out"),
        (wrong, KeyError, "a mistake of ours"),
        (
            too_long,
            UserError,
            "^Ray on this machine: did not start, since the paths of its sockets are too long, got .*; "
            "set RAY_TMPDIR to a folder of yours with a short path, such as /tmp$",
        ),
    ],
)
def test_ray_that_does_not_start_is_a_sentence_but_not_a_mistake_of_ours(start, told, sentence, tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(told, match=sentence), module.cluster_session("local", Listener()):
        pass


def nothing_found(address: str) -> str:
    raise ConnectionError("Could not find any running Ray instance.")


def test_a_cluster_of_this_machine_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setattr(module.services, "canonicalize_bootstrap_address", nothing_found)
    with (
        pytest.raises(UserError, match=r"^resources.address: no cluster runs on this machine, got auto; start one"),
        module.cluster_session("auto", Listener()),
    ):
        pass
    monkeypatch.setattr(module.services, "canonicalize_bootstrap_address", lambda address: "local")
    monkeypatch.setattr(ray, "init", lambda address, **_: nothing_found(address))  # it ended in between
    with (
        pytest.raises(UserError, match=r"got Could not find any running Ray instance; start one or leave"),
        module.cluster_session("auto", Listener()),
    ):
        pass


def test_a_start_of_ray_that_takes_long_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    shown = Notes()

    def start(**_: Any) -> None:
        give_up = time.monotonic() + 20
        while len(shown.lines) < is_long + 1 and time.monotonic() < give_up:
            time.sleep(0.01)
        raise ValueError("started enough")

    monkeypatch.setattr(ray, "init", start)
    for is_long, seconds in ((True, 0.01), (False, 3600.0)):
        shown.lines.clear()
        monkeypatch.setattr(module, "_LONG_SECONDS", seconds)
        with pytest.raises(UserError, match="started enough"), module.cluster_session("local", shown):
            pass
        late = ["Ray is still starting after 0 s; other programs may keep the processors busy"] * is_long
        assert shown.lines == ["starting Ray on this machine", *late]


@pytest.mark.parametrize("address", ["local", "auto"])
def test_an_address_for_this_machine_alone_names_no_head(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(module.services, "canonicalize_bootstrap_address", nothing_found)
    with pytest.raises(UserError, match=r"no cluster runs on this machine; call it later"):
        module.head_of_this_machine("call it later")


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> Notices:
    """Notices of a cluster in which machine a is draining, asked without a pause."""
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: {"id-a": 0})
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "id-a", "NodeManagerHostname": "a"}])
    return Notices()


def test_a_machine_is_new_until_somebody_has_acted_on_it(notices: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []

    def fail(*machines: list[str]) -> Any:
        told.extend(machines)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ray, "nodes", fail)  # a question that failed
        with pytest.raises(OSError, match="No space"):
            notices.tell(told.append)
    assert told == []
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            notices.tell(fail)
    notices.tell(told.append)
    notices.tell(told.append)
    assert told == [["a"]] * 3
