"""SUN397 (Xiao et al., 2010): photographs of 397 kinds of scenes; of its ten published splits the first is read."""

from __future__ import annotations

from functools import partial

from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.layouts.layout import Layout, ListedImages, Listing, lines_of, numbered, require_files
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location

_LISTS: dict[Split, str] = {"train": "Partitions/Training_01.txt", "test": "Partitions/Testing_01.txt"}
_CLASS_NAMES = "Partitions/ClassName.txt"


def _list_sun(place: Location, split: Split) -> Listing:
    class_names = tuple(line.strip("/") for line in lines_of(place, _CLASS_NAMES))
    files = [line.strip("/") for line in lines_of(place, _LISTS[split])]
    if odd := [file for file in files if not {"", ".", ".."}.isdisjoint(file.split("/"))]:
        raise DataError(f"{place.path}/{_LISTS[split]}: each line must be the path of an image, got {odd[0]!r:.80}")
    sizes = require_files(place, files, place.sizes((".jpg",)))
    labels = numbered(class_names, [file.rpartition("/")[0] for file in files], f"{place.path}/{_CLASS_NAMES}")
    return Listing(sizes, files, labels, class_names)


SUN397 = Layout(
    name="sun397",
    image="photographs",
    num_images={"train": 19_850, "test": 19_850},
    needs=(_LISTS["train"],),
    test_needs=(_LISTS["test"],),
    instructions="""\
From https://vision.princeton.edu/projects/2010/SUN/ unpack SUN397.tar.gz; PATH is SUN397 in it. Unpack Partitions.zip
into a folder Partitions there, so that PATH holds
  a/abbey/sun_aaalbzqrimafwbiv.jpg ...
  Partitions/ClassName.txt, Training_01.txt, Testing_01.txt ...""",
    open=partial(ListedImages, listed=_list_sun),
)
