"""The .cmf container: read, judge, write; codecs, tokenizers, GGUF import. No torch."""
