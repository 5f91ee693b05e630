"""A run of VEM whose numbers stop being finite."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from energy_contrast.energy_based.vem_bank import VemLangevin


@pytest.fixture
def nan_in_the_fourth_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``vem-langevin`` measure something that is no number, once; the fourth step is in the second epoch of two."""
    once = iter([1.0, 1.0, 1.0, torch.nan])

    def measured(method: VemLangevin, query: Tensor, moved: Tensor) -> dict[str, Tensor]:
        return {"bank_cosine": query.new_tensor(next(once, 1.0))}

    monkeypatch.setattr(VemLangevin, "_measure_bank", measured)
