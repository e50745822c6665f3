"""The owner's half: what a sidecar knows of a partition whose messages it grants."""
