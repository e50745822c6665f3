"""The owner's half of the core: what a sidecar knows about a partition that it owns."""
