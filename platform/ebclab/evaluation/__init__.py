"""Is an encoder any good: tensors in, numbers out. Imports settings and data, never training and never Ray."""
