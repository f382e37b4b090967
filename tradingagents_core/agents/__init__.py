"""The roles of the pipeline, one module for each kind; each builds node functions for the graph."""
