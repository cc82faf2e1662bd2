"""One cached stage a file; stage.py alone knows how caching works.

Here: the settings a stage is keyed by, what it opens, calls and saves, and who makes its
parts: this process, a cluster's workers, ranks on cards. It alone joins tensors (`nets`)
to files (`cmfio`, `store`). Not here: which stage follows which, and numerics that
tensors alone can test.
"""
