"""Preparation of a command line and its code for a cluster's job server, and following of the job's log."""
