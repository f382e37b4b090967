"""Decisions that others made."""
