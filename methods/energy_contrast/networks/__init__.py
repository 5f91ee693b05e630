"""Encoders and heads."""

from energy_contrast.networks.encoders import build_encoder
from energy_contrast.networks.heads import ProjectionHead
from energy_contrast.networks.resnet import ResNet
from energy_contrast.networks.small import SmallEncoder

__all__ = ["ProjectionHead", "ResNet", "SmallEncoder", "build_encoder"]
