"""The command `ackd`: serve, check, and what asks a running sidecar."""
