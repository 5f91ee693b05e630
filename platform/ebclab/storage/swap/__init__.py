"""Compare and swap: a small file in a store that a process replaces only if it is unchanged since it was read."""
