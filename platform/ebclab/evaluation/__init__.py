"""Measures the quality of an encoder's embeddings. Imports settings and data, never training and never Ray."""
