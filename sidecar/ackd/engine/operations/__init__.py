"""Decides the steps of seek, redrive and purge: long, resumable, one at a time.

It asks `base`, `partition`, `cluster`, `retry`, `ownership` and `control`. A job keeps its progress
in the store, where each sidecar finds it; by the signal `beat` it has the others told at once.
"""
