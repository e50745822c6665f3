"""What every part of the engine is given. It imports no part of the engine above it."""
