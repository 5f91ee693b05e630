"""When folders in a store are brought up to date, and how often a holder gives a sign of life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebclab.errors import RunError
from ebclab.storage import lease
from ebclab.storage.lease import LIFETIME, leased
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder
from ebclab.storage.sync import Syncer


class Away(Store):
    """A store that is away for the first upload.

    Attributes:
        asked: Uploads that it was asked for.
    """

    asked = 0

    def upload(self, source: Path, name: str) -> None:
        self.asked += 1
        if self.asked == 1:
            raise RunError("the store is away")
        super().upload(source, name)


def test_a_push_that_failed_is_tried_again_and_one_that_worked_is_not(remote: RemoteFolder, there: Path) -> None:
    remote.cache.mkdir(parents=True)
    store = Away(remote)
    syncer = Syncer(Mirror(remote, store=store))
    (remote.cache / "metrics.jsonl").write_text("1")
    syncer.push_if_wanted()
    assert store.asked == 0  # nobody has asked
    syncer.push_soon()
    with pytest.raises(RunError, match="the store is away"):
        syncer.push_if_wanted()
    syncer.push_if_wanted()
    assert (there / "metrics.jsonl").read_text() == "1"
    (remote.cache / "metrics.jsonl").write_text("longer")
    syncer.push_if_wanted()
    assert store.asked == 2


def test_a_holder_may_miss_two_signs_of_life_and_still_live(
    remote: RemoteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    @contextmanager
    def noted(work: Callable[[], None], seconds: float, what: str) -> Iterator[None]:
        pauses.append(seconds)
        yield

    monkeypatch.setattr(lease, "repeating", noted)
    with leased(remote, "is training"):
        (pause,) = pauses
    assert 0 < 3 * pause < LIFETIME
