"""Set-up of the lab's tests: what commands tell Ray by environment variables ends with each test."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _authentication_stays_as_it_was() -> Iterator[None]:
    """Put back RAY_AUTH_MODE, which commands set for the process that they would otherwise be."""
    before = os.environ.get("RAY_AUTH_MODE")
    yield
    os.environ.pop("RAY_AUTH_MODE", None)
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before
