"""Vendors: the files that may open a socket besides the model clients; `freeze` alone uses them."""
