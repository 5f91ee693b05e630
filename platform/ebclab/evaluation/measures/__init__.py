"""Metrics of a card as functions of tensors, each with its equation and its source."""
