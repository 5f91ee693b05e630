"""The groups of a card, spread over processes of Ray."""
