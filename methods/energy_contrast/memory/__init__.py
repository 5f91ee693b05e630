"""What outlives a step."""

from energy_contrast.memory.replay_buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
