"""What commands share that work on store and broker while no sidecar does."""
