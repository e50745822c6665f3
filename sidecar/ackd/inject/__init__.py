"""Putting the sidecar into pods: what is decided is one pure function, the rest serves it."""
