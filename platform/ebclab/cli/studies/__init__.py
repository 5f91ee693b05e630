"""Commands about entire studies: many runs, evaluated together."""
