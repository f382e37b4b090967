"""Frozen market data: its tables, their files, and the one view that reads them in a run."""
