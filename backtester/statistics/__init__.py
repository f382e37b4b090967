"""Figures of returns and ratings, and what of them may be believed: numbers in, numbers out."""
