"""Shared test set-up: one torch thread, so that parallel test runs do not fight for cores."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
