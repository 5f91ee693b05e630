"""Addresses and the copies behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebclab.storage.home import COPIES, Home, copies_folder, home_at, home_in


def test_an_address_keeps_its_options_at_the_end() -> None:
    home = Home("s3://bucket/runs/?scheme=http&endpoint_override=localhost:9000", "one")
    assert home.address == "s3://bucket/runs/one?scheme=http&endpoint_override=localhost:9000"
    assert (
        home / "checkpoints"
    ).address == "s3://bucket/runs/one/checkpoints?scheme=http&endpoint_override=localhost:9000"


@pytest.mark.parametrize("address", ["s3://bucket/runs/one", "s3://bucket/runs/one/", "gs://b/one?scheme=http"])
def test_the_address_of_a_folder_leads_to_the_home_that_has_it(address: str) -> None:
    home = home_at(address)
    assert home is not None
    assert home.inside == "one"
    assert home.address == address.replace("one/", "one")
    assert home_at(home.address) == home


def test_local_folders_have_no_home_elsewhere() -> None:
    assert home_in("runs", "one") is None
    assert home_at(Path("/runs/one")) is None


def test_every_role_store_and_folder_has_a_copy_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COPIES, str(tmp_path))
    homes = [home for root in ("s3://a", "s3://b") for name in ("one", "two") if (home := home_in(root, name))]
    copies = {each.copy for home in homes for each in (home, home.of("worker"), home.of("controller"))}
    assert len(copies) == 12
    assert all(tmp_path in copy.parents for copy in copies)
    assert (homes[0] / "trials").copy == homes[0].copy / "trials"


def test_copies_lie_in_the_users_cache_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COPIES, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert copies_folder() == Path("/cache/ebclab/copies")
