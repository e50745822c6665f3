"""Protocols and values of what one can ask a running sidecar, shared by HTTP, push and commands."""
