"""Moving messages to the retry and dead-letter topics, and claiming them when they come back."""
