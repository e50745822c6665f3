"""Settles of any lease, whichever sidecar granted it."""
