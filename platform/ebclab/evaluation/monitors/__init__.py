"""Monitors: groups of metrics that are measured on held-out images during training."""
