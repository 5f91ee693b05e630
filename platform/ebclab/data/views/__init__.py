"""Random views of images: parameters drawn by hash, applied in batches."""

from ebclab.data.views.pipeline import make_views

__all__ = ["make_views"]
