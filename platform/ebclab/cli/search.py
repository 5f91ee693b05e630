"""``ebclab search``: the images of a dataset that are most similar to given ones."""

from __future__ import annotations

from ebclab.card.request import SearchRequest
from ebclab.cli.options import takes
from ebclab.cli.progress import progress_bar
from ebclab.terminal import say


@takes(SearchRequest)
def search(request: SearchRequest) -> None:
    """Find the images most similar to yours by an encoder's features; print them, and draw them on a page.

    Examples:

    ebclab search runs/photos cat.jpg

    ebclab search timm/resnet18 cat.jpg dog.jpg --dataset folder:PHOTOS
    """
    from ebclab.card.search import search as find
    from ebclab.document.text import print_blocks

    with progress_bar() as on_progress:
        found = find(request, on_progress)
    print_blocks(found.tables)
    say(f"wrote {found.page}")
