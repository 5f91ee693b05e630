"""Optimizers, parameter groups, learning-rate schedules, and a solver of softmax regression."""
