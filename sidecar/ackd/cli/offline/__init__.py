"""Code for commands that work on store and broker themselves, without a running sidecar."""
