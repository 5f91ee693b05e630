"""Reproduces tables and figures of papers: studies, their runs, and a comparison with the published numbers."""
