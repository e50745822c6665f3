"""What every part of the engine is given. It asks nobody above it."""
