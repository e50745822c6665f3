"""What commands share that ask a running sidecar."""
