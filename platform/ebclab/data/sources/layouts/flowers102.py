"""Flowers-102 (Nilsback and Zisserman, 2008): photographs of flowers, their labels and splits in two MATLAB files.

Training images are the published training and validation parts together, ``trnid`` and ``valid`` (1,020 each), test
images are ``tstid`` (6,149), as in Kornblith et al. (2019), table 1. Some published code has training and test part the
other way round, since the larger one looks like the training part; its accuracies are not those of this split.
"""

from __future__ import annotations

import io
from functools import partial
from itertools import chain

from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.layouts.layout import Layout, ListedImages, Listing, require_files
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_CLASSES = 102
_LARGEST_MATLAB = 64 << 10  # bytes; the larger of the two has 15 thousand
_PARTS: dict[Split, tuple[str, ...]] = {"train": ("trnid", "valid"), "test": ("tstid",)}


def _list_flowers(place: Location, split: Split) -> Listing:
    labels = _numbers(place, "imagelabels.mat", ("labels",))["labels"]
    if odd := [label for label in labels if not 1 <= label <= _CLASSES]:
        raise DataError(
            f"{place.path}/imagelabels.mat: labels must be from 1 to {_CLASSES}, got {odd[0]}; fetch it again"
        )
    parts = _numbers(place, "setid.mat", _PARTS[split])
    ids = sorted(chain.from_iterable(parts.values()))
    if odd := [number for number in ids if not 1 <= number <= len(labels)]:
        raise DataError(
            f"{place.path}/setid.mat: images must be from 1 to {len(labels):,}, got {odd[0]}; fetch it again"
        )
    wanted = [f"jpg/image_{number:05d}.jpg" for number in ids]
    sizes = require_files(place, wanted, place.sizes((".jpg",), "jpg"))
    class_names = tuple(f"class {number}" for number in range(1, _CLASSES + 1))
    return Listing(sizes, wanted, [labels[number - 1] - 1 for number in ids], class_names)


def _numbers(place: Location, file: str, names: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the numbers that a MATLAB file holds under each of ``names``."""
    from scipy.io import loadmat

    size = place.size(file)
    if size is None or size > _LARGEST_MATLAB:
        got = "none" if size is None else f"{size:,} bytes"
        raise DataError(f"{place.path}/{file}: at most {_LARGEST_MATLAB:,} bytes are needed, got {got}; fetch it again")
    content = place.read(file)
    try:
        held = loadmat(io.BytesIO(content), variable_names=names)
        return {name: [int(number) for number in held[name].ravel()] for name in names}
    except Exception as error:  # damaged input raises errors of many kinds
        raise DataError(
            f"{place.path}/{file}: must hold numbers called {', '.join(names)}, got {type(error).__name__}: {error}; "
            "fetch it again"
        ) from error


FLOWERS102 = Layout(
    name="flowers102",
    image="photographs",
    num_images={"train": 2_040, "test": 6_149},
    needs=("setid.mat",),
    test_needs=("setid.mat",),
    instructions="""\
From https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ fetch 102flowers.tgz, imagelabels.mat and setid.mat into PATH
and unpack the first, so that it holds
  jpg/image_00001.jpg ...
  imagelabels.mat, setid.mat""",
    open=partial(ListedImages, listed=_list_flowers),
)
