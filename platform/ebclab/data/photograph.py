"""Decodes image files to bytes of one shape: upright, grey or colour, the largest central square scaled."""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor

from ebclab.background import warn_once
from ebclab.config.sections import DataConfig
from ebclab.errors import DataError, MixedSizesError
from ebclab.formatting import how_to_install

Decoding = Literal["full", "reduced"]
"""How a JPEG file that will be scaled down is decoded: in full, or reduced to 1/2, 1/4 or 1/8 of its sides, whichever
is the smallest that still covers the target square."""

Resampling = Literal["bilinear", "bicubic"]
"""How pixels of a scaled image are interpolated."""

MOST_PIXELS = 1 << 27
"""Most pixels of an image that is decoded: half a gigabyte at the four bytes that Pillow uses for each."""

DAMAGE = (
    *(OSError, SyntaxError, ValueError, TypeError, EOFError, IndexError, RuntimeError),
    *(struct.error, Image.DecompressionBombError),
)
"""Exceptions that Pillow's formats raise on damaged files, and those of ``read_photograph``."""

_OF_PILLOW = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
"""Filter for warnings of metadata, and of a limit of pixels that is not this one."""

_JPEG = b"\xff\xd8\xff"
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")  # those with a length after them, and the end
_END, _SCAN = 0xD9, 0xDA
_MOST_SCANS = 32  # usual are 1 to 18
_MOST_MARKERS = 10_000
_STRIP_PIXELS = 1 << 22
_DARK = (1 << 12) - 1  # brightest level of 12 bits
_LIMIT = f"more than the {MOST_PIXELS:,} that are decoded"
_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # tag of EXIF, and its values for images stored on their side


_UNDECODED = {"BUFR", "EPS", "GRIB", "HDF5", "JXL", "MPEG", "WMF"}
"""Formats that Pillow knows by name alone, programs, and what is decoded before its size is known."""

NO_JPEG_XL = "JPEG XL is not read, since its plugin for Pillow decodes before the size is known: convert to PNG"
_JPEG_XL = (b"\0\0\0\x0cJXL ", b"\xff\x0a")


_BEGINNINGS = {
    b"version https://git-lfs": "a pointer of Git LFS, in place of the file",
    **dict.fromkeys(_JPEG_XL, NO_JPEG_XL),
    b"ARROW1": "an Arrow file of random access, which is written in place of a stream",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "ZIP",
    b"II*\0": "TIFF with pixels that Pillow does not decode",
    b"MM\0*": "TIFF with pixels that Pillow does not decode",
    b"\x93NUMPY": "a NumPy array",
    b"%PDF": "PDF",
    b"%!PS": "PostScript, which is a program",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
    b"<svg": "SVG",
    b"<?xml": "XML, such as SVG",
}
"""What files are that Pillow does not decode, by how they begin, in lower case where that is text."""
_HEIC = re.compile(rb"....ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)", re.DOTALL)
_DICOM_AT = 128  # bytes


def _quiet_pillow() -> None:
    """Filter Pillow's warnings, also after a block that put the filters back, as ``hardware.as_before`` does."""
    if _OF_PILLOW not in warnings.filters:
        warnings.filterwarnings("ignore", module=_OF_PILLOW[3].pattern)


@cache
def _add_formats() -> None:
    """Let Pillow read HEIC, if the package for it is installed."""
    Image.init()
    with suppress(Exception):  # one that cannot be imported, for whatever reason, must not end the reading of others
        import_module("pillow_heif").register_heif_opener()


@cache
def image_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that the installed Pillow decodes."""
    _add_formats()
    known = Image.registered_extensions().items()
    return (*(end for end, form in known if form in Image.OPEN and form not in _UNDECODED), ".mpo", ".pjpeg", ".pjp")


class TooManyPixelsError(ValueError):
    """An image has too many pixels to be decoded."""


class NoBytesError(ValueError):
    """The pixels of an image cannot be converted to bytes by a rule that suits all images."""


def read_photograph(
    content: bytes, channels: int, side: int, decoding: Decoding = "full", resampling: Resampling = "bilinear"
) -> Tensor:
    """Return one encoded image as (C, H, W) uint8, in colour (3 channels) or grey (1).

    The first frame of an animation is read. Of 16 bits, the higher 8 are used, as Pillow does for colours. Transparent
    pixels become white. The image is cropped and scaled to a square of ``side`` pixels; 0 leaves its size.
    """
    with _opened(content) as picture:
        if decoding == "reduced" and side:
            picture.draft(picture.mode, (side, side))  # formats other than JPEG have no draft
        _require_few_pixels(picture, decoding)
        if picture.format == "TIFF" and getattr(picture, "is_animated", False):
            warn_once("ebclab.data", "of TIFF files with several pages, the first page is read")
        ImageOps.exif_transpose(picture, in_place=True)
        upright = in_bytes(picture, "RGB" if channels == 3 else "L")
        if upright is not picture:
            picture.close()  # frees its pixels
        return _pixels(central_square(upright, side, resampling) if side else upright)


def kind_of_damage(error: BaseException) -> str:
    """Return the category of an error of ``DAMAGE``, for counting images that were left out."""
    kinds = {
        TooManyPixelsError: "too many pixels",
        NoBytesError: "pixels that are not bytes",
        UnidentifiedImageError: "of no known format",
    }
    return next((kind for type_, kind in kinds.items() if isinstance(error, type_)), "damaged or cut off")


def size_in_header(file: BinaryIO) -> tuple[int, int]:
    """Return width and height of an encoded image, upright, in pixels, without decoding it."""
    _quiet_pillow()
    _add_formats()
    with Image.open(file, formats=[each for each in Image.ID if each not in _UNDECODED]) as picture:
        width, height = picture.size
        return (height, width) if picture.getexif().get(_ORIENTATION) in _LYING else (width, height)


def sizes_in_headers(contents: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Yield ``size_in_header`` of encoded images, leaving out those whose header cannot be read."""
    for content in contents:
        with suppress(*DAMAGE):
            yield size_in_header(io.BytesIO(content))


def central_squares(images: Tensor, side: int, resampling: Resampling = "bilinear") -> Tensor:
    """Crop and scale images (B, C, H, W) uint8, C = 1 or 3, as ``read_photograph`` does: (B, C, side, side) uint8."""
    last = images[:, 0] if images.shape[1] == 1 else images.permute(0, 2, 3, 1)  # (B, H, W) or (B, H, W, 3)
    pictures = (Image.fromarray(each) for each in last.cpu().contiguous().numpy())
    return torch.stack([_pixels(central_square(each, side, resampling)) for each in pictures]).to(images.device)


def central_square(picture: Image.Image, side: int, resampling: Resampling = "bilinear") -> Image.Image:
    """Return the largest central square of a picture, scaled to ``side`` pixels, antialiased."""
    largest = min(picture.size)
    left, top = ((length - largest) // 2 for length in picture.size)
    square = picture.crop((left, top, left + largest, top + largest))
    return square.resize((side, side), Image.Resampling[resampling.upper()])


def in_bytes(picture: Image.Image, mode: Literal["RGB", "L"]) -> Image.Image:
    """Return a picture in ``mode``, by the rules of ``read_photograph``."""
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PPM"):  # 16 bits in both
        levels, transparent = np.asarray(picture), picture.info.get("transparency", -1)
        if 0 < levels.max() <= _DARK:
            warn_once(
                "ebclab.data",
                f"an image of 16 bits has no pixel above {_DARK:,} of 65,535 and is read nearly black, since the "
                "higher 8 bits are used; scale images that use only the lower ones first",
            )
        picture = Image.fromarray(np.where(levels == transparent, 255, levels >> 8).astype(np.uint8))
    elif picture.mode[0] in "IF":
        raise NoBytesError(f"pixels of mode {picture.mode}, more than 16 bits")
    if picture.has_transparency_data:
        return _on_white(picture, mode)
    return picture if picture.mode == mode else picture.convert(mode)


def _on_white(picture: Image.Image, mode: Literal["RGB", "L"]) -> Image.Image:
    """Return a picture with transparent pixels on white, made in strips, since each step takes four bytes a pixel."""
    width, height = picture.size
    whole = Image.new(mode, picture.size)
    rows = max(1, _STRIP_PIXELS // width)
    for top in range(0, height, rows):
        layer = picture.crop((0, top, width, min(top + rows, height))).convert("RGBA")
        whole.paste(Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert(mode), (0, top))
    return whole


def _opened(content: bytes) -> Image.Image:
    """Open an image by its header, without Pillow's own size limit, which ignores that JPEG files can be reduced."""
    _quiet_pillow()
    if content.startswith(_JPEG):
        _require_few_scans(content)
        return JpegImageFile(io.BytesIO(content))
    _add_formats()
    if content.startswith(_JPEG_XL):
        raise UnidentifiedImageError(_unknown(content))  # even if another package has registered the plugin
    try:
        picture = Image.open(io.BytesIO(content))
    except UnidentifiedImageError as error:
        raise UnidentifiedImageError(_unknown(content)) from error
    except Image.DecompressionBombError as error:
        count = re.search(r"\d+", str(error))
        raise TooManyPixelsError(f"{int(count[0]):,} pixels, {_LIMIT}" if count else _LIMIT) from error
    if picture.format == "EPS":
        raise UnidentifiedImageError(_unknown(content))  # Pillow would have Ghostscript run it
    if isinstance(picture, PngImageFile) and "transparency" in picture.info:
        _scale_transparent_colour(picture)
    return picture


def _unknown(content: bytes) -> str:
    """Return what a file that Pillow does not decode is, and what it seems to be."""
    kind = seeming(content)
    if not content:
        kind = "it is empty"
    elif _HEIC.match(content):
        kind = "HEIC, damaged" if "HEIF" in Image.OPEN else f"HEIC, for which {how_to_install('heic')}"
    elif content[_DICOM_AT : _DICOM_AT + 4] == b"DICM":
        kind = "DICOM"
    return f"a file of no known format ({kind})" if kind else "a file of no known format"


def seeming(content: bytes) -> str:
    """Return what a file that cannot be read seems to be by its beginning; empty if that tells nothing."""
    start = content[:_DICOM_AT].lstrip(b"\xef\xbb\xbf \t\r\n")
    begun = {start, start.lower()}
    return next((kind for magic, kind in _BEGINNINGS.items() if any(each.startswith(magic) for each in begun)), "")


def _scale_transparent_colour(picture: PngImageFile) -> None:
    """Give the transparent colour of a PNG file the range of its pixels, which Pillow scales to bytes."""
    # how pixels are stored, such as grey of 2 or 4 bits, or colours of 16
    stored = str(picture.tile[0].args) if picture.tile else ""
    if stored == "RGB;16B":
        raise NoBytesError("a transparent colour of 16 bits a channel, of which only the higher 8 are read")
    picture.info["transparency"] *= {"L;2": 85, "L;4": 17}.get(stored, 1)


def _require_few_scans(content: bytes) -> None:
    """Refuse a JPEG file with more scans than any use has; each is decoded over all pixels."""
    scans, at = 0, 2
    for markers in range(_MOST_MARKERS + 1):
        marker = _MARKER.search(content, at)
        code = marker[0][1] if marker else _END
        if marker is None or code == _END:
            return
        scans += code == _SCAN
        if scans > _MOST_SCANS or markers == _MOST_MARKERS:
            break
        at = marker.end() + int.from_bytes(content[marker.end() : marker.end() + 2], "big")
    raise ValueError(
        f"a JPEG file of {scans} scans or {markers:,} markers and more, at most {_MOST_SCANS} and {_MOST_MARKERS:,} "
        "are decoded"
    )


def _require_few_pixels(picture: Image.Image, decoding: Decoding) -> None:
    width, height = picture.size
    if width * height > MOST_PIXELS:
        reducible = isinstance(picture, JpegImageFile) and decoding == "full"
        hint = " (data.decoding=reduced with data.resize reads a JPEG file smaller)" if reducible else ""
        raise TooManyPixelsError(f"{width} x {height} pixels, {_LIMIT}{hint}")


def _pixels(picture: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(picture))
    return pixels.permute(2, 0, 1) if pixels.ndim == 3 else pixels.unsqueeze(0)


@dataclass(frozen=True)
class Reading:
    """How stored images are read."""

    resize: int = 0  # side of the square that images are scaled and cropped to, pixels; 0 leaves them unchanged
    colour: Literal["rgb", "grey"] = "rgb"  # images of tensors keep their channels
    skip_corrupt: bool = False  # leave out images that cannot be decoded
    image_column: str = "image"
    label_column: str = "label"  # there need not be one
    labels: str = ""  # file with the labels of a folder's images
    decoding: Decoding = "full"  # of JPEG files, if ``resize`` is set
    resampling: Resampling = "bilinear"

    @classmethod
    def of(cls, data: DataConfig) -> Reading:
        """Return how images are read according to the ``data`` section."""
        columns = (data.image_column, data.label_column)
        return cls(data.resize, data.colour, data.skip_corrupt, *columns, data.labels, data.decoding)


class Example(NamedTuple):
    """An image of a dataset with its shape, which all others must have."""

    name: str
    shape: tuple[int, int, int]  # C, H, W


@dataclass(frozen=True)
class LeftOut:
    """An image that was left out."""

    name: str  # its file, and its place within the file
    kind: str  # from ``kind_of_damage``
    reason: str

    @classmethod
    def because(cls, name: str, error: BaseException) -> LeftOut:
        """Return the record of the image ``name``, which raised ``error``."""
        reason = " ".join(str(error).split()) or type(error).__name__
        return cls(name, kind_of_damage(error), reason)

    def __str__(self) -> str:
        return f"{self.name}: not a readable image, got {self.reason}"


class Decoded(NamedTuple):
    """Result of reading n requested images, in the order of the request."""

    images: Tensor  # (k, C, H, W) uint8, those that could be decoded
    good: Tensor  # (n,) bool, which of the requested images they are
    left_out: list[LeftOut]  # the others


def decode_images(encoded: Iterable[tuple[str, bytes]], reading: Reading, example: Example) -> Decoded:
    """Decode images, each a name and its content, which must all have the shape of ``example``."""
    images, good, left_out = [], [], []
    for name, content in encoded:
        try:
            image = decode_image(content, reading)
        except DAMAGE as error:
            if not reading.skip_corrupt:
                raise _damaged(name, error) from error
            left_out.append(LeftOut.because(name, error))
            good.append(False)
            continue
        if tuple(image.shape) != example.shape:
            raise MixedSizesError(str(mixed_sizes(_example(name, image), example)))
        images.append(image)
        good.append(True)
    stacked = torch.stack(images) if images else torch.empty(0, *example.shape, dtype=torch.uint8)
    return Decoded(stacked, torch.tensor(good, dtype=torch.bool), left_out)


def first_example(encoded: Iterable[tuple[str, bytes]], reading: Reading, where: str) -> Example:
    """Return the first image that can be decoded."""
    for name, content in encoded:
        try:
            return _example(name, decode_image(content, reading))
        except DAMAGE as error:
            if not reading.skip_corrupt:
                raise _damaged(name, error) from error
    raise DataError(f"{where}: none of its images can be decoded; give another folder")


def decode_image(content: bytes, reading: Reading) -> Tensor:
    """Return one encoded image as (C, H, W) uint8, upright, scaled and cropped as ``reading`` says."""
    channels = 3 if reading.colour == "rgb" else 1
    return read_photograph(content, channels, reading.resize, reading.decoding, reading.resampling)


def mixed_sizes(other: Example, first: Example) -> DataError:
    """Return the error about two images of different shapes."""
    shown = [f"{image.name} of {image.shape[2]}x{image.shape[1]}" for image in (first, other)]
    return DataError(
        f"data.resize: the images must be of one size, got {shown[0]} and {shown[1]} pixels; "
        "set data.resize to the side that all are scaled and cropped to"
    )


def _example(name: str, image: Tensor) -> Example:
    channels, height, width = image.shape
    return Example(name, (channels, height, width))


def _damaged(name: str, error: BaseException) -> DataError:
    remedy = "make it smaller" if isinstance(error, TooManyPixelsError) else "replace it"
    return DataError(f"{LeftOut.because(name, error)}; {remedy}, or skip such images with data.skip_corrupt=true")
