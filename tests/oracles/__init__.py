"""Figures of the product against independent libraries that no product code imports."""
