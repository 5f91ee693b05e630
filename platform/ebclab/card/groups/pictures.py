"""Visualizations of the features: maps of the test images, and the nearest training images of some."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterable, Iterator, Mapping

import plotly.graph_objects as go
import torch
from torch import Tensor
from torch.nn import functional

from ebclab.card.card import Findings
from ebclab.card.measuring import Group, Measuring
from ebclab.config.yaml_text import JsonObject
from ebclab.data.holdout import limited
from ebclab.data.image_grid import Tile, as_picture, as_png, draw_grid
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.folder import files_by_key
from ebclab.document.document import Picture, Plot
from ebclab.errors import DataError, EbclabError
from ebclab.reports.comparable import as_text
from ebclab.reports.plots import plot

_MOST_POINTS = 1_000  # t-SNE computes all pairwise distances
_QUERIES, _NEIGHBOURS = 10, 8
_CLUSTERS, _STARTS = 10, 4  # at most; of k-means, of which the best is taken
_SIDES = 56, 96  # pixels of neighbours, at least and at most
_CELLS = (8.0, 6.0)  # columns and rows of the grid of images on a map
_SHARE_OF_CELL = 0.6  # side of an image on a map
_THUMBNAIL = 48  # most pixels of its side
_OF_GROUPS = "Distances between groups mean nothing in such a map. In each of 8 x 6 cells, one image is shown."
_RIGHT, _WRONG, _QUERY = "#2e9e6b", "#d5442e", "#3987d0"


def measure(measuring: Measuring) -> Findings:
    """Return two maps, a grid of nearest neighbours and one of clusters; no metrics."""
    data = measuring.measured
    rows = limited(data.test.keys, _MOST_POINTS)
    few = data.test.rows(rows)
    if len(few) < 3:
        raise DataError(f"{data.test.name}: three test images are needed for a map, got {len(few)}")
    features = functional.normalize(measuring.features(data.test)[rows].double(), dim=1)
    if bool((features == features[0]).all()):
        raise DataError(f"{data.test.name}: features of {len(few):,} test images are all the same, which makes no map")
    start = _pca(features)
    tsne, files = _tsne(features, start), _files(data.name)
    maps = (
        _map("t-SNE", tsne, few, files, f"{_words(len(few))} {_OF_GROUPS}", _thumbnails(tsne, few)),
        _map("PCA", start, few, files, "The two directions in which unit features of test images vary most."),
    )
    return Findings((), plots=maps, pictures=(_neighbours(measuring), _clusters(features, few)))


def _files(dataset: str) -> dict[int, str]:
    """Return the files of test images by key; empty for images that are no files, or cannot be listed here."""
    try:
        return files_by_key(dataset, "test")
    except EbclabError:
        return {}


def _pca(features: Tensor) -> Tensor:
    """Return the first two principal components (n, 2) of features (n, D)."""
    centred = features - features.mean(dim=0)
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:2]  # (at most 2, D)
    return functional.pad(centred @ directions.T, (0, 2 - len(directions)))


def _tsne(features: Tensor, start: Tensor) -> Tensor:
    """Return a t-SNE map (n, 2) of features (n, D), initialized with (n, 2) positions, which are scaled down.

    The positions must not all be equal. scikit-learn's own PCA initialization is in float32, yields NaN for nearly
    equal features, and then crashes the process.
    """
    from sklearn.manifold import TSNE  # takes a second to import
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # its threads synchronize a thousand times: 20 times slower on a busy machine
        small = (1e-4 * start / start[:, 0].std(correction=0)).float().numpy()
        tsne = TSNE(perplexity=_perplexity(len(features)), init=small, random_state=0)
        return torch.from_numpy(tsne.fit_transform(features.float().numpy()))


def _perplexity(count: int) -> float:
    return min(30.0, (count - 1) / 3)


def _words(count: int) -> str:
    return f"{count:,} test images, unit features, perplexity {_perplexity(count):.3g}, start at PCA, seed 0."


def _thumbnails(places: Tensor, images: ImageSet) -> Iterator[JsonObject]:
    """Yield pictures to lay on a map (n, 2): in each cell of a grid over it, the image nearest to the cell's centre."""
    low, cells = places.amin(dim=0), torch.tensor(_CELLS)
    side = ((places.amax(dim=0) - low) / cells).clamp_min(1e-9)
    at = (places - low) / side  # in cells
    cell = torch.minimum(at.floor(), cells - 1)
    away = (at - cell - 0.5).square().sum(dim=1)
    for one in sorted(set(map(tuple, cell.tolist()))):
        rows = (cell == torch.tensor(one)).all(dim=1).nonzero().flatten()
        row = int(rows[away[rows].argmin()])
        picture = as_picture(images.images[row], most=_THUMBNAIL)
        x, y = places[row].tolist()
        yield {
            "source": f"data:image/png;base64,{base64.b64encode(as_png(picture)).decode()}",
            **{"x": round(x, 3), "y": round(y, 3), "xref": "x", "yref": "y", "xanchor": "center", "yanchor": "middle"},
            **dict(zip(("sizex", "sizey"), (_SHARE_OF_CELL * side).tolist(), strict=True)),
        }


def _map(
    name: str,
    places: Tensor,
    images: ImageSet,
    files: Mapping[int, str],
    note: str,
    thumbnails: Iterable[JsonObject] = (),
) -> Plot:
    figure = go.Figure()
    for label in sorted(set(images.labels.tolist())):
        here = places[images.labels == label]
        shown_files = [as_text(files.get(key, "")) for key in images.keys[images.labels == label].tolist()]
        figure.add_scatter(
            x=[round(x, 3) for x in here[:, 0].tolist()],
            y=[round(y, 3) for y in here[:, 1].tolist()],
            mode="markers",
            name=images.class_name(label),
            marker={"size": 5, "opacity": 0.75},
            **({"text": shown_files, "hovertemplate": "%{text}"} if files else {}),
        )
    figure.update_xaxes(showticklabels=False, zeroline=False, showgrid=False)
    figure.update_yaxes(showticklabels=False, zeroline=False, showgrid=False)
    figure.update_layout(images=[*thumbnails], legend_itemsizing="constant")
    return plot(f"Map of test images, {name}", note, figure, height=460)


def _neighbours(measuring: Measuring) -> Picture:
    data = measuring.measured
    rows = limited(data.test.keys, _QUERIES)
    queries, unit = data.test.rows(rows), functional.normalize(measuring.features(data.test)[rows], dim=1)
    bank = functional.normalize(measuring.features(data.train), dim=1)
    nearest = (unit @ bank.T).topk(min(_NEIGHBOURS, len(bank)), dim=1).indices.tolist()
    shown = []
    for query, label, near in zip(queries.images, queries.labels.tolist(), nearest, strict=True):
        frames = [_RIGHT if label == other >= 0 else _WRONG for other in data.train.labels[near].tolist()]
        framed = zip([query, *data.train.images[near]], [_QUERY, *frames], strict=True)
        shown.append([Tile(pixels, frame=frame) for pixels, frame in framed])
    return Picture(
        "neighbours",
        "Nearest neighbours",
        f"Left: {len(queries)} test images, chosen by hash. Beside each: the training images whose features are most "
        "similar by cosine. Frame: green for the same class, red for another one.",
        as_png(draw_grid(shown, least=_SIDES[0], most=_SIDES[1], is_first_apart=True)),
    )


def _clusters(features: Tensor, images: ImageSet) -> Picture:
    """Return a picture of the images nearest to the centres that k-means finds among unit features (n, D)."""
    from sklearn.cluster import KMeans  # takes a second to import
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    count = min(_CLUSTERS, len(torch.unique(features, dim=0)))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(count, n_init=_STARTS, random_state=0).fit(features.numpy())
    centres, member = torch.from_numpy(found.cluster_centers_), torch.from_numpy(found.labels_).long()
    sizes = member.bincount()
    filled = int((sizes > 0).sum())  # fewer than asked for if features are nearly equal
    names, shown = [], []
    for cluster in sizes.argsort(descending=True, stable=True)[:filled].tolist():
        rows = (member == cluster).nonzero().flatten()
        near = (features[rows] - centres[cluster]).square().sum(dim=1).argsort(stable=True)[:_NEIGHBOURS]
        shown.append([Tile(pixels) for pixels in images.images[rows[near]]])
        labels = images.labels[rows]
        label = int(labels.mode().values)
        share = f", {images.class_name(label)}: {100 * float((labels == label).double().mean()):.0f} %" * (label >= 0)
        names.append(f"{len(rows):,} images{share}")
    return Picture(
        "clusters",
        "Clusters",
        f"{len(images):,} test images in {filled} clusters by k-means of their unit features, labels unseen. Beside "
        "the images nearest to each centre: how many the cluster has, and the share of its most frequent class.",
        as_png(draw_grid(shown, names=names, least=_SIDES[0], most=_SIDES[1])),
    )


GROUP = Group(
    name="pictures",
    title="Pictures",
    doc="maps of the test images by PCA and t-SNE, their clusters, and a grid of nearest neighbours",
    source="van der Maaten & Hinton (2008), t-SNE as scikit-learn has it",
    looks_at=("train", "test"),
    measure=measure,
)
