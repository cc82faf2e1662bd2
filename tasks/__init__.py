"""One cached stage a file; stage.py alone knows how caching works."""
