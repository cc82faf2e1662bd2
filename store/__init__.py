"""Artifacts on disk: keys, manifests, Zarr arrays, Arrow tables, locks.

Here: how an artifact is named, written whole, found, checked, shared between machines,
carried away and freed, and the book of runs. Not here: what a stage computes, what its
arrays mean, or the formats of models: this room would serve another program as well.
"""
