"""The mathematics behind the numbers of a card: tensors in, numbers out, each with its equation and its source."""
