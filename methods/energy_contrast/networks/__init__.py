"""Encoders and heads."""

from energy_contrast.networks.encoders import build_encoder
from energy_contrast.networks.heads import ProjectionHead
from energy_contrast.networks.resnet import ResNet

__all__ = ["ProjectionHead", "ResNet", "build_encoder"]
