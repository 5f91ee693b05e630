"""What tests of several methods expect alike."""

DIAGNOSTICS = {
    "alignment",
    "effective_rank",
    "embedding_spread",
    "ess",
    "ess_with_positive",
    "log_k_saturation",
    "uniformity",
}
"""Metrics that a contrastive method adds while ``diagnosing``."""
