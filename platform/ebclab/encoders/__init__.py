"""Construction of encoders, built-in and from timm, and checks of their weights."""

from ebclab.encoders.build import has_batch_norm, new_encoder, room_problems, seeded_encoder
from ebclab.encoders.weights import differences, digest_of, first_of

__all__ = ["differences", "digest_of", "first_of", "has_batch_norm", "new_encoder", "room_problems", "seeded_encoder"]
