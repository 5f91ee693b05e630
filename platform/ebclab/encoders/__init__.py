"""Encoders by their settings, ours and timm's, and the names and shapes of their weights."""

from ebclab.encoders.build import new_encoder
from ebclab.encoders.weights import differences, digest_of

__all__ = ["differences", "digest_of", "new_encoder"]
