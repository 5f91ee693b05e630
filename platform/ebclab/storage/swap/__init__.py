"""A small file in a store that one process replaces only while it is what it was read as: compare and swap."""
