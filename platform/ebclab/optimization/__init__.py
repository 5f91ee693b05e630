"""How weights move: optimizers, parameter groups, learning-rate schedules."""
