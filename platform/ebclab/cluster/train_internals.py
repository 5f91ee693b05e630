"""Private names of Ray Train 2.60 that runs and trials on Ray need. They may change with any version of Ray."""

from __future__ import annotations

from ray.train._internal.session import get_session
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ScalingDecision
from ray.train.v2._internal.execution.scaling_policy.elastic import ElasticScalingPolicy

__all__ = ["DatasetsCallback", "ElasticScalingPolicy", "NoopDecision", "ScalingDecision", "get_session"]
