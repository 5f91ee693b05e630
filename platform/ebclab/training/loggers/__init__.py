"""Other people's loggers beside TensorBoard: what a run logs, sent to MLflow, Weights & Biases or Trackio.

Start reading at ``loggers.py``, which guards the run against them.
"""
