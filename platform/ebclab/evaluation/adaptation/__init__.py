"""Adaptation of an encoder to labelled images: fine-tuning of all weights, or a classifier on a few labels."""
