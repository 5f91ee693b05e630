"""Encoded images become bytes by stated rules, whatever their format, and bombs are never decoded."""

import io
import os
import struct
import sys
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from made_up_images import encoded
from PIL import Image
from sklearn.datasets import load_sample_images

from ebclab.background import warn_once
from ebclab.data import photograph
from ebclab.data.photograph import (
    LeftOut,
    NoBytesError,
    TooManyPixelsError,
    central_square,
    kind_of_damage,
    read_photograph,
)
from ebclab.hardware import as_before


def colours(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def read(content: bytes, channels: int = 3, side: int = 0) -> np.ndarray:
    return read_photograph(content, channels, side).permute(1, 2, 0).numpy()


@pytest.fixture(scope="module")
def natural() -> list[bytes]:
    """Two photographs of 640 x 427 as JPEG files, upright and lying on their side."""
    pictures = [Image.fromarray(array) for array in load_sample_images().images]
    exif = Image.Exif()
    exif[0x0112] = 6
    return [encoded(pictures[0], "JPEG", quality=90), encoded(pictures[1], "JPEG", quality=90, exif=exif)]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_reduced_photograph_is_close_to_a_full_one(natural: list[bytes], channels: int) -> None:
    for content in natural:  # the central square is 427 x 427
        for side in (32, 48, 64, 96, 150, 213):
            full, reduced = (
                read_photograph(content, channels, side, decoding).double() for decoding in ("full", "reduced")
            )
            assert reduced.shape == (channels, side, side)
            assert 0 < (full - reduced).abs().mean() <= 7  # of 255: the bound that docs/data.md states
            assert (full - reduced).square().mean().sqrt() <= 12


def test_where_all_pixels_are_needed_reduced_is_full(natural: list[bytes]) -> None:
    png = encoded(Image.open(io.BytesIO(natural[0])), "PNG")
    for content, side in ((natural[0], 214), (natural[1], 427), (natural[0], 500), (natural[1], 0), (png, 32)):
        assert torch.equal(read_photograph(content, 3, side, "reduced"), read_photograph(content, 3, side, "full"))


@pytest.mark.parametrize(("side", "scale"), [(213, 2), (107, 2), (106, 4), (53, 8), (20, 8)])
def test_the_least_scale_that_covers_the_square_is_decoded(natural, monkeypatch, side, scale):
    sizes: list[tuple[int, int]] = []

    def noted(picture: Image.Image, side: int, resampling: photograph.Resampling) -> Image.Image:
        sizes.append(picture.size)
        return central_square(picture, side, resampling)

    monkeypatch.setattr(photograph, "central_square", noted)
    read_photograph(natural[0], 3, side, "reduced")
    assert sizes == [(-(-640 // scale), -(-427 // scale))]


def png_header(width: int, height: int) -> bytes:
    """Return a PNG file that says how large it is and holds no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def jpeg_header(width: int, height: int) -> bytes:
    """Return a JPEG file that claims another size than it has."""
    content = encoded(Image.new("RGB", (8, 8)), "JPEG")
    start = content.index(b"\xff\xc0") + 5  # height and width of the frame
    return content[:start] + struct.pack(">HH", height, width) + content[start + 4 :]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png_header(20_000, 20_000), "400,000,000 pixels, more than the 134,217,728 that are decoded"),
        (png_header(12_000, 12_000), "12000 x 12000 pixels, more than the 134,217,728 that are decoded"),
        (
            jpeg_header(20_000, 20_000),
            "20000 x 20000 pixels, more than the 134,217,728 that are decoded "
            "(data.decoding=reduced with data.resize reads a JPEG file smaller)",
        ),
    ],
)
def test_a_bomb_is_refused_by_its_header(content: bytes, message: str) -> None:
    tracemalloc.start()
    with pytest.raises(TooManyPixelsError) as caught:
        read_photograph(content, 3, 64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value) == message
    assert peak < 1 << 20  # and no pixels, which Pillow takes from elsewhere, for a file without any is cut off
    assert kind_of_damage(caught.value) == "too many pixels"


def test_a_large_jpeg_file_is_reduced_and_then_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(Image.new("RGB", (640, 480), (200, 30, 40)), "JPEG", quality=95)
    monkeypatch.setattr(photograph, "MOST_PIXELS", 160 * 120)
    with pytest.raises(TooManyPixelsError, match="640 x 480 pixels"):
        read_photograph(content, 3, 100, "full")
    with pytest.raises(TooManyPixelsError, match="320 x 240 pixels"):
        read_photograph(content, 3, 200, "reduced")
    reduced = read_photograph(content, 3, 100, "reduced")  # at a quarter: exactly as many as are allowed
    assert (reduced.permute(1, 2, 0).int() - torch.tensor([200, 30, 40])).abs().max() <= 3


def test_of_16_bits_the_higher_8_are_taken(tmp_path: Path) -> None:
    grey = np.arange(24, dtype=np.uint16).reshape(4, 6) * 2731
    for format in ("PNG", "TIFF"):
        assert np.array_equal(read(encoded(Image.fromarray(grey), format), 1)[..., 0], grey // 256)
        assert np.array_equal(read(encoded(Image.fromarray(grey), format), 3), np.stack([grey // 256] * 3, -1))


@pytest.mark.parametrize(
    ("content", "levels"),
    [
        (b"P5 3 1 65535\n" + struct.pack(">3H", 255, 40_000, 65_535), [0, 156, 255]),
        (b"P2 3 1 65535\n255 40000 65535\n", [0, 156, 255]),
        (b"P5 3 1 1023\n" + struct.pack(">3H", 0, 512, 1023), [0, 128, 255]),
    ],
)
def test_a_pgm_file_of_16_bits_is_read_like_others(content: bytes, levels: list[int]) -> None:
    assert read(content, 1)[0, :, 0].tolist() == levels


@pytest.mark.parametrize("mode", ["I", "F"])
def test_wider_pixels_are_refused(mode: str) -> None:
    with pytest.raises(NoBytesError, match=f"pixels of mode {mode}, more than 16 bits") as caught:
        read(encoded(Image.new(mode, (3, 3)), "TIFF"))
    assert kind_of_damage(caught.value) == "pixels that are not bytes"


def test_what_is_transparent_shows_white_whatever_the_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = colours(37, 23, 4)
    alpha = layers[..., 3:].astype(float) / 255
    expected = layers[..., :3] * alpha + 255 * (1 - alpha)
    grey = Image.fromarray(layers[..., 1]).convert("LA")
    grey.putalpha(Image.fromarray(layers[..., 3]))
    for picture, channels, shown in ((Image.fromarray(layers), 3, expected), (grey, 1, expected[..., 1:2])):
        content = encoded(picture, "PNG")
        whole = read(content, channels)
        assert np.abs(whole - shown).max() <= 1
        with monkeypatch.context() as patch:
            patch.setattr(photograph, "_STRIP_PIXELS", 50)
            assert np.array_equal(read(content, channels), whole)


@pytest.mark.parametrize("format", ["PNG", "GIF"])
def test_a_palette_may_have_a_transparent_colour(format: str) -> None:
    picture = Image.fromarray(np.array([[0, 1], [2, 0]], np.uint8)).convert("P")
    picture.putpalette([10, 20, 30, 200, 100, 50, 0, 0, 255])
    found = read(encoded(picture, format, transparency=1))
    assert found.tolist() == [[[10, 20, 30], [255, 255, 255]], [[0, 0, 255], [10, 20, 30]]]


def png(depth: int, colour_type: int, row: bytes, transparent: bytes) -> bytes:
    """Return a PNG file of two pixels with a transparent colour (PNG specification, 11.2.2 and 11.3.1.1)."""
    chunks = [
        (b"IHDR", struct.pack(">2I5B", 2, 1, depth, colour_type, 0, 0, 0)),
        (b"tRNS", transparent),
        (b"IDAT", zlib.compress(b"\0" + row)),
        (b"IEND", b""),
    ]
    whole = (struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(whole)


@pytest.mark.parametrize(
    ("depth", "row", "level", "other"),
    [
        (16, struct.pack(">2H", 1000, 1001), 1000, 1001 >> 8),
        (8, bytes([1, 2]), 1, 2),
        (4, bytes([0x12]), 1, 2 * 17),
        (2, bytes([0b01_10_0000]), 1, 2 * 85),
        (1, bytes([0b0100_0000]), 0, 255),
    ],
)
def test_grey_of_any_depth_may_have_a_transparent_level(depth: int, row: bytes, level: int, other: int) -> None:
    content = png(depth, 0, row, struct.pack(">H", level))
    assert read(content, 1)[0, :, 0].tolist() == [255, other]
    assert read(content, 3)[0].tolist() == [[255] * 3, [other] * 3]


def test_a_transparent_colour_of_16_bits_is_refused_since_half_is_read() -> None:
    row, transparent = struct.pack(">6H", 1, 2, 3, 1, 2, 4), struct.pack(">3H", 1, 2, 3)
    with pytest.raises(NoBytesError, match="a transparent colour of 16 bits a channel"):
        read(png(16, 2, row, transparent))
    assert read(png(8, 2, bytes([1, 2, 3, 1, 2, 4]), transparent)).tolist() == [[[255] * 3, [1, 2, 4]]]


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_read(format: str) -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "lime", "blue")]
    lossless = {"lossless": True} if format == "WEBP" else {}
    content = encoded(frames[0], format, save_all=True, append_images=frames[1:], **lossless)
    assert getattr(Image.open(io.BytesIO(content)), "n_frames", 1) == 3
    assert (read(content) == (255, 0, 0)).all()


def test_a_jpeg_file_for_print_is_read() -> None:
    ink = (30, 120, 200, 60)  # cyan, magenta, yellow, black
    expected = [(255 - each) * (255 - ink[3]) / 255 for each in ink[:3]]
    found = read(encoded(Image.new("CMYK", (16, 16), ink), "JPEG", quality=95))
    assert np.abs(found - expected).max() <= 4


TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}
"""What a reader has to do with the pixels, by the number of the EXIF orientation."""


@pytest.mark.parametrize("orientation", TURNS)
def test_pictures_lie_upright(orientation: int) -> None:
    array = colours(4, 6, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = read(encoded(Image.fromarray(array), "PNG", exif=exif))
    assert np.array_equal(found, TURNS[orientation](array))


def test_a_truncated_file_is_damaged_and_text_is_of_no_format(natural: list[bytes]) -> None:
    kinds = []
    for content in (natural[0][:20_000], natural[0][:60], png_header(30, 30), b"no image", b""):
        with pytest.raises(photograph.DAMAGE) as caught:
            read(content)
        kinds.append(kind_of_damage(caught.value))
    assert kinds == ["damaged or cut off"] * 3 + ["of no known format"] * 2


SEEMS = {
    "empty": (b"", "it is empty"),
    # ComfyUI#13791: photographs of telephones, renamed
    "HEIC": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC, for which `pip install 'pillow-heif"),
    "JPEG XL": (
        b"\0\0\0\x0cJXL \r\n\x87\n",
        "JPEG XL is not read, since its plugin for Pillow decodes before the size",
    ),
    "a page": (b"\n<!DOCTYPE html><html><title>404", "a web page"),
    "SVG": (b"\xef\xbb\xbf<?xml version='1.0'?><svg/>", "XML, such as SVG"),
    "Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0",
        "a pointer of Git LFS, in place of the file",
    ),
    "bands": (b"II*\0\x08\0\0\0" + bytes(40), "TIFF with pixels that Pillow does not decode"),
    "DICOM": (bytes(128) + b"DICM\x02\0", "DICOM"),
    "PostScript": (b"%!PS-Adobe-3.0\nshowpage", "PostScript, which is a program"),
}


@pytest.mark.parametrize("case", SEEMS.values(), ids=SEEMS)
def test_a_file_that_is_no_image_is_told_what_it_seems_to_be(monkeypatch, case: tuple[bytes, str]) -> None:
    monkeypatch.setattr(photograph, "_add_formats", Image.init)  # as without a package for HEIC
    content, kind = case
    with pytest.raises(photograph.DAMAGE) as caught:
        read(content)
    assert f"got a file of no known format ({kind}" in str(LeftOut.because("a.jpg", caught.value))
    assert kind_of_damage(caught.value) == "of no known format"


def test_images_that_lose_pixels_without_damage_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """geti#6726: 12 bits in files of 16; stacks of napari and tifffile."""
    warn_once.cache_clear()
    stack = [Image.fromarray(colours(4, 6, 1)[..., 0] + each) for each in range(3)]
    dark, bright = (Image.fromarray(np.full((4, 6), level, np.uint16)) for level in (4095, 4096))
    for _ in range(2):
        for picture in (bright, Image.new("I;16", (4, 6))):
            read(encoded(picture, "PNG"))
        assert caplog.text == ""
    for _ in range(2):
        read(encoded(dark, "PNG"))
        read(encoded(stack[0], "TIFF", save_all=True, append_images=stack[1:]))
    said = "\n".join(caplog.messages)
    assert said.startswith("an image of 16 bits has no pixel above 4,095 of 65,535 and is read nearly black")
    assert said.endswith("\nof TIFF files with several pages, the first page is read")
    assert len(caplog.records) == 2
    warn_once.cache_clear()


def test_pillow_s_warnings_are_not_shown_and_their_filter_goes_with_the_call() -> None:
    large = encoded(Image.new("1", (12_000, 12_000)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = warnings.filters[:]
        for _ in range(2):
            with as_before(), pytest.raises(TooManyPixelsError):
                read(large)
            assert warnings.filters == before


@pytest.mark.parametrize("failure", [None, RuntimeError("another libheif")])
def test_a_package_for_heic_is_used_and_one_that_cannot_be_imported_ends_no_reading(monkeypatch, failure):
    heif = SimpleNamespace(register_heif_opener=Mock(side_effect=failure))
    monkeypatch.setitem(sys.modules, "pillow_heif", heif)
    photograph._add_formats.__wrapped__()
    heif.register_heif_opener.assert_called_once_with()


def test_a_damaged_heic_file_is_not_told_to_install_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Image.OPEN, "HEIF", (Mock(side_effect=SyntaxError), None))
    with pytest.raises(photograph.DAMAGE, match=r"no known format \(HEIC, damaged\)"):
        read(SEEMS["HEIC"][0])


def test_jpeg_xl_is_not_decoded_by_a_plugin_that_another_package_has_added(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = Mock()
    monkeypatch.setitem(Image.OPEN, "JXL", (plugin, None))
    monkeypatch.setitem(Image.EXTENSION, ".jxl", "JXL")
    monkeypatch.setattr(Image, "ID", ["JXL", *Image.ID])
    with pytest.raises(photograph.DAMAGE, match="JPEG XL is not read"):
        read(SEEMS["JPEG XL"][0])
    assert [*photograph.sizes_in_headers([SEEMS["JPEG XL"][0]])] == []
    plugin.assert_not_called()
    assert ".jxl" not in photograph.image_suffixes.__wrapped__()


def test_whatever_pillow_raises_on_a_damaged_file_is_damage() -> None:
    picture = Image.fromarray(colours(24, 30, 3))
    avif = encoded(picture, "AVIF").replace(b"iloc", b"lost")  # where its pixels lie
    strips = struct.pack("<HH", 273, 4)  # the same in a TIFF file, as a whole number of 32 bits, which becomes a float
    tiff = encoded(picture, "TIFF").replace(strips, struct.pack("<HH", 273, 11))
    for content in (avif, tiff):
        with pytest.raises(photograph.DAMAGE) as caught:
            read(content)
        assert kind_of_damage(caught.value) == "damaged or cut off"


def test_postscript_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    with pytest.raises(photograph.DAMAGE) as caught:
        read(content)
    assert kind_of_damage(caught.value) == "of no known format"
    assert not (tmp_path / "was-run").exists()


def test_a_photograph_of_more_scans_than_any_use_is_refused_soon() -> None:
    picture = Image.fromarray(colours(40, 60, 3))
    progressive = encoded(picture, "JPEG", progressive=True)
    assert np.array_equal(read(progressive), np.asarray(Image.open(io.BytesIO(progressive))))
    last = progressive.rindex(b"\xff\xda")
    repeated = progressive[:last] + progressive[last:-2] * 40 + progressive[-2:]
    with pytest.raises(ValueError, match=r"a JPEG file of 33 scans or \d+ markers"):
        read(repeated)
    comments = progressive[:2] + b"\xff\xfe\x00\x02" * 20_000 + progressive[2:]
    with pytest.raises(ValueError, match="10,000 markers and more"):
        read(comments)
