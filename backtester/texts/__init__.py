"""Texts for people and other programs, which no word of a model can bend."""
