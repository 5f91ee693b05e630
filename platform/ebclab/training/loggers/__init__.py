"""Loggers beside TensorBoard: sends what a run logs to MLflow, Weights & Biases or Trackio.

Start with ``loggers.py``, which protects the run from their errors.
"""
