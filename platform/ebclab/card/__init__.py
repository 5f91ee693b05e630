"""The evaluation card: the standard metrics of a frozen encoder, each with its protocol and confidence interval."""
