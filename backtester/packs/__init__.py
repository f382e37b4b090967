"""What is done with recordings: packed, taken over, replayed, explained, pruned."""
