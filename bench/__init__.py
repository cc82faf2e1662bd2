"""What the figures in `docs/` come from: a script a question, and the pages they write.

Here: measurements of the product beside a baseline or a peer, and what is worked out from
them. Not here: anything that the product imports or a user needs (it is in no wheel), and
whether a result is right: that is for `tests/`.
"""
