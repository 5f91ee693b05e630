"""Construction of encoders, built-in and from timm, and checks of their weights."""
