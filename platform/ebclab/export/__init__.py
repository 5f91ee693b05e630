"""Exports of encoders: weights in open formats, with a card."""

from ebclab.evaluation.answers import Score
from ebclab.export.card import CardFacts
from ebclab.export.encoder_folder import LoadedEncoder, load_encoder, save_encoder

__all__ = ["CardFacts", "LoadedEncoder", "Score", "load_encoder", "save_encoder"]
