"""Streamed delivery on Ray Data. The only part of ``ebclab.data`` that imports Ray.

The driver makes a ``Stream`` with ``driver.plan_stream`` and a dataset with ``pipeline.build_dataset``; each worker
wraps its shard in ``worker.StreamedData``, which the training loop uses like any other source of batches.
"""
