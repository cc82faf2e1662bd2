"""Runs that put the stages together, and the heal command line."""
