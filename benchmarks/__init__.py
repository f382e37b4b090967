"""Benchmarks: each states a question, measures both sides in one process run, prints the ratio."""
