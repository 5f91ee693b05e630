"""Command lines that run on a cluster, through Ray Jobs: what is sent, how it is watched, how it is stopped."""
