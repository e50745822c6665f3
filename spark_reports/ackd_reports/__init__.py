"""Spark jobs that turn exported traces into reports on service levels.

The package imports nothing of the sidecar: the files that the sidecar writes are its only input.
"""
