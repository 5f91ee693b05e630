"""The groups of a card, one module each, with ``INFO`` and ``measure``."""
