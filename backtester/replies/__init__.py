"""Recorded replies of models: by key, in a cache, in a file that people carry."""
