"""How weights move: optimizers, parameter groups, learning-rate schedules."""

from ebclab.optimization.groups import parameter_groups
from ebclab.optimization.optimizers import build_optimizer
from ebclab.optimization.schedules import learning_rate_at, peak_learning_rate, set_learning_rate

__all__ = ["build_optimizer", "learning_rate_at", "parameter_groups", "peak_learning_rate", "set_learning_rate"]
