"""Guards: each proves one rule of the house on the source itself, and can fail."""
