"""Long-running operations: seek, redrive, purge."""
