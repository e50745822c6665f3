"""Code for commands that ask a running sidecar."""
