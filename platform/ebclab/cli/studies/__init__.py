"""Verbs about whole studies: many runs, and what they show together."""
