"""How tensors are stored: one file a family of codecs, `registry.py` lists them.

Here: arrays to payloads and back, and their compiled kernels. Not here: files, headers,
which codec a tensor gets.
"""
