"""``ebclab evaluate RUN --only chains``: a picture where images move, one sentence where none do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from .conftest import TINY, Outcome

SMALL = {
    "ebclr": ["--set", "method.buffer_size=64", "--set", "method.num_steps=2"],
    "vem-image": ["--set", "method.bank_size=64", "--set", "method.num_steps=2"],
}


@pytest.mark.parametrize("method", SMALL)
def test_chains_are_drawn_beside_the_run_and_the_path_is_printed(ebclab: Callable[..., Outcome], method: str) -> None:
    assert ebclab("pretrain", method, "--epochs", "1", "--name", "run", *TINY, *SMALL[method]).code == 0
    drawn = ebclab("evaluate", "runs/run", "--only", "chains")
    assert drawn.code == 0, drawn.err
    picture = Path("runs/run/chains.png")
    assert drawn.out.strip() == f"wrote {picture.absolute()}"
    with Image.open(picture) as image:
        assert image.width > 3 * 96  # start, middle, end
        assert len(set(image.convert("L").tobytes())) > 20
    before = picture.read_bytes()
    assert ebclab("evaluate", "runs/run", "--only", "chains").code == 0
    assert picture.read_bytes() == before


def test_a_method_that_moves_no_images_is_refused_in_one_sentence(
    ebclab: Callable[..., Outcome], finished: Path
) -> None:
    refused = ebclab("evaluate", finished, "--only", "chains")
    assert refused.code == 2
    assert refused.err.strip() == (
        "error: --only: chains of images are drawn for jem, ebclr, vem-image, got a run of flatclr"
    )
