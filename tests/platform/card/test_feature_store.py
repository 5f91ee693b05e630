"""Features are computed once for each encoder and set of images, and a damaged file is not believed."""

from dataclasses import replace

import pytest
import torch

from ebclab.errors import DivergedError


def test_a_second_look_reads_the_file_and_gives_the_same_bits(tmp_path, subject, make, measured):
    first = make(tmp_path).features(measured.test)
    assert subject.encoder.passes == 1
    again = make(tmp_path).features(replace(measured.test, images=measured.test.images.clone()))
    assert subject.encoder.passes == 1
    assert torch.equal(first, again)
    assert len(list(tmp_path.iterdir())) == 1


def test_other_weights_or_images_are_computed_anew(tmp_path, subject, make, measured):
    make(tmp_path).features(measured.test)
    changed = measured.test.images.clone()
    changed[0, 0, 0, 0] += 1
    make(tmp_path).features(replace(measured.test, images=changed))
    make(tmp_path, subject=replace(subject, digest="others")).features(measured.test)
    assert subject.encoder.passes == 3
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("at", [-1, -40, 3])
def test_a_file_with_a_flipped_bit_is_computed_again(tmp_path, subject, make, measured, at):
    first = make(tmp_path).features(measured.test)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert torch.equal(make(tmp_path).features(measured.test), first)
    assert subject.encoder.passes == 2


def test_features_that_are_no_numbers_are_refused_and_not_kept(tmp_path, subject, make, measured):
    with torch.no_grad():
        subject.encoder.weight.fill_(float("nan"))
    with pytest.raises(DivergedError, match="NaN or infinity for 90 of 90 images"):
        make(tmp_path).features(measured.test)
    assert list(tmp_path.iterdir()) == []
