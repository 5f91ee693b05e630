"""Distributes the groups of a card over Ray workers."""
