"""Folders of runs and sweeps, on a disk or in an object store: reading, writing, locking and syncing them."""
