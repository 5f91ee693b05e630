"""Runs and sweeps that live in an object store: processes work in copies on their disks and keep it up to date."""
