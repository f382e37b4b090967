"""The agent pipeline: a view in, a decision out."""

from tradingagents_core.ratings import RatingReading, read_rating

__all__ = ["RatingReading", "read_rating"]
