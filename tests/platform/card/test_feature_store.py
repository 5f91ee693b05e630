"""Features are computed once for each encoder and set of images, and a damaged file is not believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ebclab.card.feature_store import FeatureStore
from ebclab.card.images import MeasuredSet
from ebclab.card.subject import Subject
from ebclab.errors import DivergedError
from ebclab.evaluation.progress import silent


def _store(folder: Path) -> FeatureStore:
    return FeatureStore(folder, torch.device("cpu"), 64)


def test_a_second_look_reads_the_file_and_gives_the_same_bits(
    tmp_path: Path, subject: Subject, measured: MeasuredSet
) -> None:
    first = _store(tmp_path).features(subject, measured.test, silent)
    assert subject.encoder.passes == 2  # 90 images in batches of 64
    again = _store(tmp_path).features(subject, replace(measured.test, images=measured.test.images.clone()), silent)
    assert subject.encoder.passes == 2
    assert torch.equal(first, again)
    assert len(list(tmp_path.iterdir())) == 1


def test_other_weights_or_images_are_computed_anew(tmp_path: Path, subject: Subject, measured: MeasuredSet) -> None:
    store = _store(tmp_path)
    store.features(subject, measured.test, silent)
    changed = measured.test.images.clone()
    changed[0, 0, 0, 0] += 1
    store.features(subject, replace(measured.test, images=changed), silent)
    store.features(replace(subject, digest="others"), measured.test, silent)
    assert subject.encoder.passes == 6
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("at", [-1, -40, 3])
def test_a_file_with_a_flipped_bit_is_computed_again(
    tmp_path: Path, subject: Subject, measured: MeasuredSet, at: int
) -> None:
    first = _store(tmp_path).features(subject, measured.test, silent)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert torch.equal(_store(tmp_path).features(subject, measured.test, silent), first)
    assert subject.encoder.passes == 4


def test_features_that_are_no_numbers_are_refused_and_not_kept(
    tmp_path: Path, subject: Subject, measured: MeasuredSet
) -> None:
    with torch.no_grad():
        subject.encoder.weight.fill_(float("nan"))
    with pytest.raises(DivergedError, match="NaN or infinity for 90 of 90 images"):
        _store(tmp_path).features(subject, measured.test, silent)
    assert list(tmp_path.iterdir()) == []
