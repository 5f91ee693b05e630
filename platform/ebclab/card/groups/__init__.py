"""The groups of a card, a file each: ``INFO`` says what it is, ``measure`` does it; several_labels is for transfer."""
