"""What an encoder becomes when some labels are known: all weights trained further, or a classifier on a few labels."""
