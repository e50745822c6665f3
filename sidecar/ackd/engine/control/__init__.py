"""What operators see and change while a sidecar runs."""
