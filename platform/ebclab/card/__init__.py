"""The evaluation card: every number that the field measures of a frozen encoder, with its protocol and its spread."""
