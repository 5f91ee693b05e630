"""Groups of numbers that are measured of held-out images while an encoder is trained, a file each."""
