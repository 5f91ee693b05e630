"""Every published dataset that is read where it lies, by the word with which ``data.name`` begins."""

from __future__ import annotations

from ebclab.data.sources.layouts.caltech101 import CALTECH101
from ebclab.data.sources.layouts.flowers102 import FLOWERS102
from ebclab.data.sources.layouts.imagenet import IMAGENET, IMAGENET100, TINY_IMAGENET
from ebclab.data.sources.layouts.layout import Layout
from ebclab.data.sources.layouts.stl10 import STL10, STL10_UNLABELLED
from ebclab.data.sources.layouts.sun397 import SUN397
from ebclab.data.sources.layouts.voc import VOC

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        TINY_IMAGENET,
        IMAGENET,
        IMAGENET100,
        STL10,
        STL10_UNLABELLED,
        FLOWERS102,
        CALTECH101,
        SUN397,
        VOC,
    )
}
"""Every layout by its name."""
