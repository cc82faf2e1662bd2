"""Artifacts on disk: keys, manifests, Zarr arrays, Arrow tables, locks."""
