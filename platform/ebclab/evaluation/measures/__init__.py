"""Measures of classifiers and features as pure mathematics: tensors in, numbers out."""
