"""Torch: tensors in, tensors out. Trunk, draft, chain, losses, training."""
