"""Random views of images: parameters drawn by hash, applied in batches."""
