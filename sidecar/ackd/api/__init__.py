"""What a running sidecar can be asked: protocols and values, shared by HTTP, push and commands."""
