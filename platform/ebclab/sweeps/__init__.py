"""Sweeps: which settings to try, when to stop trials, which were best, and a log that survives kills."""
