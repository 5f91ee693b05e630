"""State that outlives a step: banks of particles, replay buffers, running means."""

from energy_contrast.memory.particle_bank import ParticleBank
from energy_contrast.memory.replay_buffer import ReplayBuffer
from energy_contrast.memory.running_means import RunningMeans

__all__ = ["ParticleBank", "ReplayBuffer", "RunningMeans"]
