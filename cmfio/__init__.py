"""The .cmf container: read, judge, write; codecs, tokenizers, GGUF import. No torch.

Here: files of models in every format we take or give, byte for byte, and the `cmf`
command line. Not here: what a model computes, artifacts and their store, what a heal is.
"""
