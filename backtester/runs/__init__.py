"""The folder of a run: manifest, journal, results root; a memory with a name."""
