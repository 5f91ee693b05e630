"""A Ray address in somebody's file is contacted only when the user names it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

Ebclab = Callable[..., Any]


class Listener:
    """Something that listens on loopback and hangs up; ``calls`` counts who came."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.calls = 0
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                self.calls += 1
                caller.close()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    listener = Listener()
    yield listener
    listener.close()


def _run_of_somebody(address: str, run: Path) -> None:
    """Let a run, as somebody may send it, name a cluster."""
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["training"]["epochs"] = 3
    settings["resources"] |= {"address": address, "workers": 1}
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    (run / "result.json").unlink()


RESUMED = ("pretrain", "flatclr", "--name", "done", "--resume")
NAMED = ("pretrain", "flatclr", "--name", "new", "--config", "runs/done/config.yaml")
SWEEP = ("sweep", "flatclr", "--config", "runs/done/config.yaml", "--trials", "1")


@pytest.mark.parametrize("command", [RESUMED, NAMED, SWEEP, (*SWEEP, "--show")], ids=lambda words: " ".join(words[:5]))
def test_an_address_in_a_file_is_named_and_not_contacted(
    ebclab: Ebclab, finished: Path, somebody: Listener, command: tuple[str, ...]
) -> None:
    _run_of_somebody(somebody.address, finished)
    outcome = ebclab(*command)
    assert outcome.code == 2
    what = "the run's config.yaml" if command == RESUMED else "runs/done/config.yaml"
    assert outcome.err.startswith(
        f"error: resources.address: {what} names a cluster, got {somebody.address}, and a file alone does not choose"
    )
    assert f"set RAY_ADDRESS={somebody.address}, or --set resources.address=null" in outcome.err
    assert somebody.calls == 0


def test_an_address_in_a_sweep_to_resume_is_not_contacted(ebclab: Ebclab, finished: Path, somebody: Listener) -> None:
    from ebclab.config import compose
    from ebclab.sweeps.plan import make_plan, write_plan

    place = finished.parents[1] / "sweeps" / "sent"
    place.mkdir(parents=True)
    write_plan(
        place / "sweep.yaml", make_plan(compose("simclr", overrides=[f'resources.address="{somebody.address}"']))
    )
    outcome = ebclab("sweep", "simclr", "--name", "sent", "--resume")
    assert outcome.code == 2
    assert "resources.address: the sweep's sweep.yaml names a cluster" in outcome.err
    assert somebody.calls == 0


@pytest.mark.parametrize("way", ["option", "variable"])
def test_an_address_that_the_user_names_is_contacted(
    ebclab: Ebclab, finished: Path, somebody: Listener, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    _run_of_somebody("10.255.255.1:6379", finished)  # nobody must ask there
    named = []
    if way == "option":
        named = ["--set", f'resources.address="{somebody.address}"']
    else:
        monkeypatch.setenv("RAY_ADDRESS", somebody.address)
    outcome = ebclab(*RESUMED, *named)
    assert f"resources.address: what answers is not a Ray cluster, got {somebody.address}" in outcome.err
    assert somebody.calls > 0


def test_without_workers_an_address_in_a_file_says_nothing(ebclab: Ebclab, finished: Path, somebody: Listener) -> None:
    _run_of_somebody(somebody.address, finished)
    assert ebclab(*RESUMED, "--workers", "0").code == 0
    assert somebody.calls == 0
