"""Streamed delivery on Ray Data. The only part of ``ebclab.data`` that imports Ray.

The driver makes a ``Stream`` with ``plan_stream`` and a dataset with ``build_dataset``; each worker wraps its shard in
``StreamedData``, which the training loop uses like any other source of batches.
"""

from ebclab.data.delivery.ray_data.driver import Stream, plan_stream
from ebclab.data.delivery.ray_data.pipeline import StreamPlan, build_dataset, execution_options
from ebclab.data.delivery.ray_data.worker import StreamedData, user_error_in

__all__ = [
    "Stream",
    "StreamPlan",
    "StreamedData",
    "build_dataset",
    "execution_options",
    "plan_stream",
    "user_error_in",
]
