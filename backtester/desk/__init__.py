"""One decision at a time, with a memory of its own."""
