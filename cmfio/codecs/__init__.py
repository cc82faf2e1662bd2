"""How tensors are stored: one file a family of codecs, `registry.py` lists them."""
