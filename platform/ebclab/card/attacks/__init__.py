"""What attacks need beside their mathematics: a classifier of pixels, and a picture."""
