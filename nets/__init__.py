"""Torch: tensors in, tensors out. Trunk, draft, chain, losses, training.

Here: whatever computes on a model's tensors, and which families can be computed; symbols
are healing.md's. Not here: files, stores, Prefect, progress bars: a caller gives `read`
and is called back. Of ours it sees `cmfio.header` and `conf`.
"""
