"""Prepares a command line and its code for a cluster's job server, and follows the job's log."""
