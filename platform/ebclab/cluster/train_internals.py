"""What elastic runs need of Ray Train 2.60 that it does not promise to keep, so that one room knows such names."""

from __future__ import annotations

from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ScalingDecision
from ray.train.v2._internal.execution.scaling_policy.elastic import ElasticScalingPolicy
from ray.train.v2.api.config import ScalingConfig

__all__ = ["ElasticScalingPolicy", "NoopDecision", "ScalingConfig", "ScalingDecision"]
